/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Put and get. The way is chosen for each transfer: a mapped segment, else
 * process_vm_*, else the rings; large ones are shared with the target.
 */

#ifndef NP_RMA_H_
#define NP_RMA_H_

#include "sop.h"
#include "../dev/soft/fast.h"

/** Largest put_bcopy and get_bcopy: what surely fits into the rings at once */
size_t np_rma_max_bcopy(const np_port_config_t *config);

/** Bytes of one piece of a transfer through the rings */
uint32_t np_rma_ring_piece(const np_port_config_t *config);

/**
 * Send one request through the data ring.
 *
 * @param [in]  kind  NP_OP_PUT: @a iov is copied; NP_OP_GET: what to do with
 *                    the bytes is filled into the operation by the caller.
 * @param [out] op_p  The operation, which is outstanding.
 *
 * @return UCS_OK; UCS_ERR_NO_RESOURCE; UCS_ERR_NO_MEMORY;
 *         UCS_ERR_INVALID_ADDR: a swapper has not got it.
 */
ucs_status_t np_rma_send(np_link_t *link, np_op_kind_t kind,
                         const np_iov_t *iov, size_t iovcnt, size_t len,
                         uint64_t addr, np_sop_t **op_p, void *comp);

/**
 * Move bytes between local memory and the memory of the link's target.
 *
 * @param [in] iov   At most NP_MAX_IOV pieces; a list that one call uses.
 * @param [in] addr  Address at the target.
 * @param [in] comp  Completed if UCS_INPROGRESS is returned; may be NULL.
 *
 * @return UCS_OK: done, both sides; UCS_INPROGRESS; UCS_ERR_NO_RESOURCE: try
 *         again; UCS_ERR_INVALID_ADDR: the key does not cover it, or it is not
 *         there; UCS_ERR_NO_MEMORY; or why the link is down.
 */
ucs_status_t np_rma_move(np_dir_t dir, np_link_t *link, np_key_t *key,
                         const np_iov_t *iov, size_t iovcnt, uint64_t addr,
                         void *comp);

/** As np_rma_move with a get that is complete when it returns UCS_OK: it is
 *  never UCS_INPROGRESS. UCS_ERR_NO_RESOURCE also while a page is brought in;
 *  UCS_ERR_UNSUPPORTED: only the target itself can read that, since the kernel
 *  refuses direct access, or since no entry tells of the page. */
ucs_status_t np_rma_get_now(np_link_t *link, np_key_t *key, void *buffer,
                            size_t len, uint64_t addr);

/** As np_rma_put_short, for any length up to np_rma_max_bcopy() */
ucs_status_t np_rma_put_taken(np_link_t *link, np_key_t *key, const void *data,
                              size_t len, uint64_t addr);

/** Would np_rma_put_copied of up to @a len bytes find all that it may need? If
 *  so, one that follows at once is not refused for lack of room. */
ucs_status_t np_rma_may_put(np_link_t *link, uint64_t addr, size_t len);

/** As np_rma_move with a put of @a len bytes that @a data, which is not the
 *  program's, may lose at once */
ucs_status_t np_rma_put_copied(np_link_t *link, np_key_t *key,
                               const void *data, size_t len, uint64_t addr);

/** As np_rma_get_bcopy, for any length up to np_rma_max_bcopy() */
ucs_status_t np_rma_get_taken(np_link_t *link, np_key_t *key, size_t len,
                              uint64_t addr, np_unpack_t unpack, void *arg,
                              void *comp);

/** As np_rma_move with a get whose bytes @a unpack takes: the way that is open
 *  to all of np_rma_get_bcopy */
ucs_status_t np_rma_get_unpack(np_link_t *link, np_key_t *key, size_t len,
                               uint64_t addr, np_unpack_t unpack, void *arg,
                               void *comp);

/** The port's buffer for put_bcopy, np_rma_max_bcopy() bytes */
void *np_rma_bounce(np_port_t *port);


/** Begin a transfer that is not empty: may it start, and does the key cover it?
 *  One of no bytes may come with UCT_INVALID_RKEY, and has begun and ended. */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_rma_enter(np_link_t *link, const np_key_t *key, uint64_t addr, size_t len)
{
    if (ucs_unlikely((key->engine_id != link->addr.engine_id) ||
                     !np_key_covers(key, addr, len))) {
        return UCS_ERR_INVALID_ADDR;
    }

    return np_link_enter(link);
}

/** Put of what is ours: nothing of the program is touched while it is in
 *  flight */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_rma_put_ours(np_link_t *link, np_key_t *key, const void *data, size_t len,
                uint64_t addr)
{
    ucs_status_t status;

    if (ucs_unlikely(len == 0)) {
        return UCS_OK;
    }

    status = np_rma_enter(link, key, addr, len);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    return ucs_likely(np_fast_put(link, key, data, len, addr)) ? UCS_OK :
           np_rma_put_copied(link, key, data, len, addr);
}

/** Put of the program's bytes, which its own pager may have to bring in: so
 *  they are taken before anything is in flight */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_rma_put_short(np_link_t *link, np_key_t *key, const void *data, size_t len,
                 uint64_t addr)
{
    uint64_t word;

    if (ucs_unlikely(len != sizeof(word))) {
        return np_rma_put_taken(link, key, data, len, addr);
    }

    memcpy(&word, data, sizeof(word));
    return np_rma_put_ours(link, key, &word, sizeof(word), addr);
}

/** Get whose bytes @a unpack takes when nothing is in flight any more */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_rma_get_bcopy(np_link_t *link, np_key_t *key, size_t len, uint64_t addr,
                 np_unpack_t unpack, void *arg, void *comp)
{
    ucs_status_t status;
    uint64_t word;

    if (ucs_unlikely(len != sizeof(word))) {
        return np_rma_get_taken(link, key, len, addr, unpack, arg, comp);
    }

    status = np_rma_enter(link, key, addr, len);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    if (ucs_likely(np_fast_get(link, key, &word, sizeof(word), addr))) {
        np_unit_assert_outside();
        unpack(arg, &word, sizeof(word));
        return UCS_OK;
    }

    return np_rma_get_unpack(link, key, len, addr, unpack, arg, comp);
}

#endif
