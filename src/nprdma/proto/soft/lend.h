/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts and gets of what the target has lent (mem/lent.h), through the rings,
 * which its progress empties and fills. Both sides copy then, one behind the
 * other, and neither calls the kernel, which takes longer to find pages than to
 * copy them. Whether a target makes progress nobody can know: it is tried, and
 * left. Each byte is moved once all the same: what the target has not executed
 * is recalled first (carry.h).
 */

#ifndef NP_LEND_H_
#define NP_LEND_H_

#include "sop.h"

#include "../../engine.h"

/** Is a large transfer between this memory and the target's to be tried so?
 *  What is absent there is for other ways, which bring it in, and so is what
 *  UCX has allocated, which will be mapped here. */
int np_lend_may_copy(np_link_t *link, const np_key_t *key, np_dir_t dir,
                     const np_iov_t *iov, size_t iovcnt, size_t len,
                     uint64_t addr);

/**
 * Try it with a small transfer whose order has been asked for, in one slot.
 *
 * @param [in] kind  NP_OP_PUT: @a iov has one element, which is copied;
 *                   NP_OP_GET: @a unpack takes the bytes.
 *
 * @return UCS_OK or UCS_INPROGRESS: sent; UCS_ERR_NO_RESOURCE: there is no room
 *         until one that is out has ended; UCS_ERR_UNSUPPORTED: take another
 *         way; else as np_rma_send.
 */
ucs_status_t np_lend_send(np_link_t *link, const np_key_t *key,
                          np_op_kind_t kind, const np_iov_t *iov, size_t len,
                          uint64_t addr, np_unpack_t unpack, void *arg,
                          void *comp);

/**
 * The same for a transfer of the program's own memory, if it is in one buffer
 * and fits into one slot. np_lend_may_copy has said yes.
 *
 * @return UCS_INPROGRESS: sent; UCS_ERR_UNSUPPORTED: it does not fit now, or is
 *         a copy; else as np_rma_send.
 */
ucs_status_t np_lend_move(np_link_t *link, np_dir_t dir, const np_iov_t *iov,
                          size_t iovcnt, size_t len, uint64_t addr,
                          void *comp);

/** The same for a put of the program's bytes, which need not be copied before,
 *  and whose order has not been asked for. UCS_ERR_NO_RESOURCE: as from any
 *  operation; UCS_ERR_UNSUPPORTED: copy them, and ask np_rma_put_copied. */
ucs_status_t np_lend_put(np_link_t *link, const np_key_t *key, const void *data,
                         size_t len, uint64_t addr);

/** A copy or a large request, or a small one, is sent so. If no other one
 *  waits, nothing has been waited for. */
void np_lend_begin(np_link_t *link, int is_large);

/** One has ended: the whole of it has come or gone so, or it goes by other
 *  ways now */
void np_lend_end(np_link_t *link, int is_large, int is_done);

/** The same for a request of its own */
void np_lend_end_one(np_link_t *link, const np_sop_t *op, int is_done);

/** Of a request that was sent so the target says that it has not lent the
 *  memory, or that it was recalled */
void np_lend_refused(np_link_t *link, np_sop_t *op);

/** Does the target not come to what is out? Then it is recalled, and what it
 *  has not executed goes by other ways, and the rings are not tried for a
 *  while. In progress; returns how many have ended. */
unsigned np_lend_progress_slow(np_link_t *link);


static UCS_F_ALWAYS_INLINE unsigned np_lend_progress(np_link_t *link)
{
    return ucs_likely(link->lent_count == 0) ? 0 : np_lend_progress_slow(link);
}

/** It is left: nothing more is sent so */
static inline int np_lend_is_left(const np_link_t *link)
{
    return link->lent_state != NP_LENT_TRIED;
}

#endif
