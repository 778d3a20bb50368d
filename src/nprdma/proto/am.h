/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Active messages: always copied into the ring, so they never meet a page that
 * is absent.
 */

#ifndef NP_AM_H_
#define NP_AM_H_

#include "order.h"

#include "../trace.h"

#include <string.h>

/* UCP's header has 8 bytes: a payload that begins so far into a line has the
 * program's data aligned, which both copies like */
#define NP_AM_SKEW (NP_LINE - sizeof(uint64_t))

/**
 * Find room for a message of up to @a max bytes.
 *
 * @param [out] data   Where the payload goes.
 * @param [out] start  For np_am_commit.
 *
 * @return UCS_OK; UCS_ERR_NO_RESOURCE; or why the link is down.
 */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_am_reserve(np_link_t *link, uint32_t max, void **data, uint32_t *start)
{
    np_ring_tx_t *ring = &link->data;
    ucs_status_t status;

    status = np_link_enter(link);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    if (ucs_unlikely(np_link_is_busy(link))) {
        np_link_busy(link);
    }

    if (ucs_unlikely(!np_ring_tx_has_slot(ring) ||
                     !np_ring_tx_has_payload(ring, max + NP_AM_SKEW,
                                             start))) {
        return np_link_full(link);
    }

    *data = ring->payload + (*start & ring->payload_mask) + NP_AM_SKEW;
    return UCS_OK;
}

/** Send what was put where np_am_reserve said */
static UCS_F_ALWAYS_INLINE void
np_am_commit(np_link_t *link, uint8_t id, uint32_t start, uint32_t len)
{
    np_ring_tx_t *ring = &link->data;
    np_slot_t *slot    = np_ring_tx_slot(ring);

    slot->offset = (start & ring->payload_mask) + NP_AM_SKEW;
    np_ring_tx_commit_payload(ring, start, len + NP_AM_SKEW);
    np_ring_tx_publish(ring, slot, len, NP_SLOT_AM_LONG, id);
    np_link_notify(link);
    np_trace(NP_TRACE_MESSAGE, 0, id, len);
}

/** Find a slot for a message that fits into it; @a data has NP_SLOT_INLINE
 *  bytes. np_am_commit_inline sends it. */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_am_reserve_inline(np_link_t *link, np_slot_t **slot)
{
    ucs_status_t status;

    status = np_link_enter(link);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    if (ucs_unlikely(!np_ring_tx_has_slot(&link->data))) {
        return np_link_full(link);
    }

    *slot = np_ring_tx_slot(&link->data);
    return UCS_OK;
}

static UCS_F_ALWAYS_INLINE void
np_am_commit_inline(np_link_t *link, np_slot_t *slot, uint8_t id, uint32_t len)
{
    np_ring_tx_publish(&link->data, slot, len, NP_SLOT_AM, id);
    np_link_notify(link);
    np_trace(NP_TRACE_MESSAGE, 0, id, len);
}

#endif
