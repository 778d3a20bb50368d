/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rings: the part of the writer that is not on the fast path.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "ring.h"


int np_ring_tx_refresh(np_ring_tx_t *ring)
{
    uint32_t old_head = ring->limit - (ring->mask + 1);
    uint32_t head;

    head = atomic_load_explicit(ring->head, memory_order_acquire);
    if (ucs_unlikely((head - old_head) > (ring->tail - old_head))) {
        return 0; /* before what it was, or beyond what we wrote */
    }

    if (ring->is_kept && ((int32_t)(head - ring->kept) > 0)) {
        head = ring->kept;
    }

    if (head != old_head) {
        ring->limit        = head + ring->mask + 1;
        ring->payload_head = ring->payload_end[(head - 1) & ring->mask];
    }

    return 1;
}

void np_ring_tx_widen(np_ring_tx_t *ring)
{
    ring->payload_mask = ring->payload_full;
    ring->payload_part = ring->payload_full + 1;
    ring->payload_tail = 0;
    ring->payload_head = 0;

    /* the next refresh reads where the payload of the last slot ended */
    ring->payload_end[(ring->tail - 1) & ring->mask] = 0;
}

void np_ring_tx_align(np_ring_tx_t *ring, uint32_t part)
{
    np_assert(np_ring_tx_is_empty(ring));
    ring->payload_tail = ucs_align_up_pow2(ring->payload_tail, part);
    ring->payload_head = ring->payload_tail;
    ring->payload_end[(ring->tail - 1) & ring->mask] = ring->payload_tail;
}
