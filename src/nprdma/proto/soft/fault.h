/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Two-sided when a page is absent, the initiator's part: ask the target to
 * bring its memory in and to finish the transfer (seed NP-RDMA, section 3.2).
 */

#ifndef NP_FAULT_H_
#define NP_FAULT_H_

#include "sop.h"

/** Repeated FAULTs of a copy after which the CPU copies what is left of it */
#define NP_FAULT_ROUNDS 4

/** Names the page of @a va; never 0 */
static UCS_F_ALWAYS_INLINE uint64_t np_fault_page(uint64_t va)
{
    return va | (NP_PAGE_SIZE - 1);
}

/**
 * Write @a len bytes, at most NP_INLINE_SIZE; @a data may change as soon as
 * this returns. There is room (np_mail_has_room).
 *
 * @return UCS_OK: on its way; UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_fault_put(np_link_t *link, const void *data, size_t len,
                          uint64_t addr);

/**
 * The same, but the message is sent at this time, np_clock().
 *
 * @param [in]  is_program  It is the program's memory, which may not be there.
 * @param [in]  comp        Completed later; NULL: nothing is.
 * @param [out] op_p        Its operation, posted.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY; others: our memory is not there.
 */
ucs_status_t np_fault_put_later(np_link_t *link, const np_iov_t *iov,
                                size_t iovcnt, size_t len, uint64_t addr,
                                int is_program, uint64_t send_at, void *comp,
                                np_sop_t **op_p);

/**
 * Read @a len bytes, at most NP_INLINE_SIZE, into @a buffer; if that is NULL,
 * @a unpack takes them.
 *
 * @return UCS_INPROGRESS; UCS_ERR_NO_RESOURCE; UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_fault_get(np_link_t *link, void *buffer, np_unpack_t unpack,
                          void *arg, size_t len, uint64_t addr, void *comp);

/**
 * Have memory brought in, and try again when an operation has completed.
 *
 * @return UCS_ERR_NO_RESOURCE; UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_fault_fetch(np_link_t *link, size_t len, uint64_t addr);

/** The answer to a FAULT is an error: is the rest to be asked for again?
 *  Otherwise it has ended. */
int np_fault_is_again(np_link_t *link, np_sop_t *op, ucs_status_t status);

/** Is there room to ask for more of what a copy has to do? */
int np_fault_has_room(np_link_t *link, const np_copy_t *copy);

/** Ask for what a copy has to do, as much as there is room for; returns whether
 *  all of it is asked for */
int np_fault_send_todo(np_link_t *link, np_sop_t *copy);

/** The answer has come; the operation is still outstanding */
void np_fault_answered(np_link_t *link, np_sop_t *op);

#endif
