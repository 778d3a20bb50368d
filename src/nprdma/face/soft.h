/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The short ways of soft0: active messages, small puts and gets. They wait
 * their turn as all operations do (proto/order.h); the rest is the device's
 * (dev/soft/fast.h). What they cannot do goes the way of all other operations.
 * Active messages are always copied into the ring, so they never meet a page
 * that is absent.
 */

#ifndef NP_FACE_SOFT_H_
#define NP_FACE_SOFT_H_

#include "../dev/soft/fast.h"
#include "../proto/soft/lend.h"
#include "../proto/soft/rma.h"

/** As np_soft_put_short, for any length up to np_rma_max_bcopy() */
ucs_status_t np_soft_put_taken(np_link_t *link, np_key_t *key, const void *data,
                               size_t len, uint64_t addr);

/** As np_soft_get_bcopy, for any length up to np_rma_max_bcopy() */
ucs_status_t np_soft_get_taken(np_link_t *link, np_key_t *key, size_t len,
                               uint64_t addr, np_unpack_t unpack, void *arg,
                               void *comp);


/** As np_fast_reserve, and np_fast_send sends it; returns also why the link is
 *  down */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_soft_reserve(np_link_t *link, uint32_t max, void **data, uint32_t *start)
{
    ucs_status_t status;

    status = np_flight_start(&link->flight);
    return ucs_likely(status == UCS_OK) ?
           np_fast_reserve(link, max, data, start) : status;
}

/** As np_fast_reserve_inline, and np_fast_send_inline sends it; returns also
 *  why the link is down */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_soft_reserve_inline(np_link_t *link, np_slot_t **slot)
{
    ucs_status_t status;

    status = np_flight_start(&link->flight);
    return ucs_likely(status == UCS_OK) ? np_fast_reserve_inline(link, slot) :
           status;
}

/** Put of bytes that are ours: no memory of the program is touched while it is
 *  in flight */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_soft_put_ours(np_link_t *link, np_key_t *key, const void *data, size_t len,
                uint64_t addr)
{
    ucs_status_t status;

    status = np_flight_start_key(&link->flight, key, &addr, len);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    return ucs_likely(np_fast_put(link, key, data, len, addr)) ? UCS_OK :
           np_rma_put_copied(&link->flight, key, data, len, addr);
}

/** Put of the program's bytes. Its own pager may have to bring them in, so they
 *  are read before anything is in flight. */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_soft_put_short(np_link_t *link, np_key_t *key, const void *data, size_t len,
                 uint64_t addr)
{
    uint64_t word;

    if (ucs_unlikely((len != sizeof(word)) || (key->segment_id == 0))) {
        return np_soft_put_taken(link, key, data, len, addr);
    }

    memcpy(&word, data, sizeof(word));
    return np_soft_put_ours(link, key, &word, sizeof(word), addr);
}

/** Get; @a unpack takes the bytes when nothing is in flight any more */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_soft_get_bcopy(np_link_t *link, np_key_t *key, size_t len, uint64_t addr,
                 np_unpack_t unpack, void *arg, void *comp)
{
    ucs_status_t status;
    uint64_t word;

    if (ucs_unlikely(len != sizeof(word))) {
        return np_soft_get_taken(link, key, len, addr, unpack, arg, comp);
    }

    status = np_flight_start_key(&link->flight, key, &addr, len);
    if (ucs_unlikely(status != UCS_OK)) {
        return np_flight_refuse_op(&link->flight, status, comp);
    }

    if (ucs_likely(np_fast_get(link, key, &word, sizeof(word), addr))) {
        np_unit_assert_outside();
        unpack(arg, &word, sizeof(word));
        return UCS_OK;
    }

    return np_rma_get_unpack(&link->flight, key, len, addr, unpack, arg, comp);
}

#endif
