/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Room in a link's data ring: when the link becomes wide, where its payload
 * begins anew, and what a caller that has found none waits for.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "link.h"
#include "wide.h"

/* Times that the payload area was filled before a link becomes wide */
#define NP_LINK_BUSY_LAPS   64

/* Positions are compared as signed differences: not farther ahead than that */
#define NP_LINK_BUSY_MAX    UCS_BIT(30)

/* Bytes of payload between two looks whether anything has come from peers */
#define NP_LINK_REWIND_STEP 2048


/* Bytes of payload after which a link is a busy one */
static uint32_t np_link_busy_bytes(uint32_t payload_size)
{
    return ucs_min((uint64_t)payload_size * NP_LINK_BUSY_LAPS,
                   (uint64_t)NP_LINK_BUSY_MAX);
}

void np_link_init_room(np_link_t *link)
{
    const uint32_t narrow = link->port->config.payload_size;

    link->data.busy_at = link->data.payload_tail + np_link_busy_bytes(narrow);
    link->rewind_after = narrow;
    np_fill_init(&link->fill);
    if (np_link_is_widened(link)) {
        np_fill_begin(&link->fill, &link->data, narrow);
    }
}

/* May it use, now or when the ring is empty, the whole payload area? */
static int np_link_may_widen(np_link_t *link)
{
    if (!link->is_wide && !link->no_wide &&
        (link->port->num_wide < link->port->config.wide_links)) {
        ++link->port->num_wide;
        link->is_wide = 1;
    }

    return link->is_wide;
}

/* Is it to do so as soon as the ring is empty? */
static int np_link_is_widening(np_link_t *link)
{
    return !np_link_is_widened(link) && np_link_may_widen(link) &&
           np_wide_is_ready(link);
}

/* The whole payload area is more than a core's cache likes. Where the target
 * has taken all, payload begins anew, with lines that are in the caches still.
 * To see whether it has costs the line of its head, so that is asked where the
 * answer is likely to be yes: when something has come from a peer since the
 * last look, as a program's answer to what was sent; and otherwise seldom. */
static void np_link_rewind(np_link_t *link)
{
    const uint32_t narrow = link->port->config.payload_size;
    const uint32_t most   = ucs_min(UINT64_C(4) * narrow,
                                    (uint64_t)NP_LINK_BUSY_MAX);
    np_ring_tx_t *ring    = &link->data;
    const uint32_t since  = ring->payload_tail - link->rewind_at;
    const int has_come    = link->rewind_taken != link->port->taken;

    link->rewind_taken = link->port->taken;
    ring->busy_at      = ring->payload_tail + NP_LINK_REWIND_STEP;
    if ((link->fill.way == NP_FILL_WHOLE) ||
        ((since < most) && !(has_come && (since >= link->rewind_after)))) {
        return;
    }

    if (np_ring_tx_refresh(ring) && np_ring_tx_is_empty(ring)) {
        np_ring_tx_align(ring, ring->payload_full + 1);
        link->rewind_after = narrow;
    } else {
        link->rewind_after = ucs_min(2 * link->rewind_after, most);
    }
    link->rewind_at = ring->payload_tail;
}

/* Would what comes next have its place there whatever part of the area is used?
 * Then there is as much room after a change as there was before. */
static int np_link_may_switch(const np_link_t *link)
{
    const np_ring_tx_t *ring = &link->data;

    return ((ring->payload_tail & ring->payload_mask) +
            (link->port->config.payload_size / 2)) <= link->fill.near;
}

void np_link_busy(np_link_t *link)
{
    np_ring_tx_t *ring = &link->data;
    uint32_t size      = ring->payload_mask + 1;

    if (np_link_is_widened(link)) {
        if (np_link_may_switch(link)) {
            np_fill_look(&link->fill, ring);
        }
        np_link_rewind(link);
    } else if (!np_link_may_widen(link)) {
        ring->busy_at = ring->payload_tail + np_link_busy_bytes(size);
    } else if (np_wide_is_ready(link) && np_ring_tx_refresh(ring) &&
               np_ring_tx_is_empty(ring)) {
        np_wide_use(link);
        np_ring_tx_widen(ring);
        np_fill_begin(&link->fill, ring, link->port->config.payload_size);
        link->rewind_at = ring->payload_tail;
        ring->busy_at   = ring->payload_tail + size;
    } else {
        ring->busy_at = ring->payload_tail + (size / 4);
    }
}

int np_link_busy_request(np_link_t *link)
{
    if (!np_link_is_widening(link) || (np_ring_tx_refresh(&link->data) &&
                                       np_ring_tx_is_empty(&link->data))) {
        np_link_busy(link);
        return 1;
    }
    return 0;
}

/* For a caller that has found no room in the data ring */
static int np_link_has_ring_room(np_link_t *link)
{
    uint32_t start;

    /* A link that is to become wide does so when all is read */
    if (ucs_unlikely(link->is_wide) && np_link_is_widening(link)) {
        np_link_busy(link);
        return np_link_is_widened(link);
    }

    /* Half of the payload area: a sender that has waited once shall not wait
     * for each message that follows */
    return np_ring_tx_has_payload(&link->data,
                                  link->port->config.payload_size / 2,
                                  &start) &&
           np_ring_tx_has_slot(&link->data);
}

int np_link_has_room(np_link_t *link)
{
    link->flight.is_full = link->flight.is_full && !np_link_has_ring_room(link);
    return !link->flight.is_full;
}
