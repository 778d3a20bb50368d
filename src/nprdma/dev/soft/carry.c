/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts and gets that the data ring carries.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "carry.h"

#include "peer.h"


int np_carry_begin(np_link_t *link, np_carry_t *carry, size_t len)
{
    np_ring_tx_t *ring = &link->data;

    if (!np_ring_tx_has_slot(ring) ||
        !np_ring_tx_has_payload(ring, len, &carry->start)) {
        return 0;
    }

    carry->index   = ring->tail;
    carry->payload = carry->start & ring->payload_mask;
    return 1;
}

/* From the first slot that is out, slots must stay though the target has passed
 * them */
static void np_carry_keep(np_link_t *link)
{
    link->data.is_kept = !ucs_list_is_empty(&link->carried);
    if (link->data.is_kept) {
        link->data.kept = ucs_list_head(&link->carried, np_carry_t,
                                        list)->index;
    }
}

void np_carry_send(np_link_t *link, np_carry_t *carry, np_dir_t dir, size_t len,
                   uint64_t addr)
{
    np_ring_tx_t *ring = &link->data;
    np_slot_t *slot    = np_ring_tx_slot(ring);

    np_assertv(carry->index == ring->tail, "slot %u is not %u", carry->index,
               ring->tail);
    ucs_list_add_tail(&link->carried, &carry->list);
    np_carry_keep(link);
    slot->rma = (np_slot_rma_t){
        .addr   = addr,
        .offset = carry->payload,
        .status = UCS_ERR_NO_PROGRESS
    };
    np_ring_tx_commit_payload(ring, carry->start, len);
    np_ring_tx_publish(ring, slot, len,
                       (dir == NP_DIR_PUT) ? NP_SLOT_PUT : NP_SLOT_GET, 0);
    np_link_notify(link);
}

void np_carry_drop(np_link_t *link)
{
    link->data.is_kept = 0;
}

/* The first of those that are out, if the target has passed it; else NULL */
static np_carry_t *np_carry_next(np_link_t *link)
{
    np_carry_t *carry;

    if (ucs_list_is_empty(&link->carried)) {
        return NULL;
    }

    carry = ucs_list_head(&link->carried, np_carry_t, list);
    return np_ring_tx_is_read(&link->data, carry->index) ? carry : NULL;
}

int np_carry_has_news(np_link_t *link)
{
    return np_carry_next(link) != NULL;
}

unsigned np_carry_progress(np_link_t *link)
{
    const np_ring_tx_t *ring = &link->data;
    unsigned count           = 0;
    const np_slot_t *slot;
    np_carry_t *carry;

    while ((carry = np_carry_next(link)) != NULL) {
        slot = &ring->slots[carry->index & ring->mask];
        if (!link->port->ops->carried(link, carry,
                                      np_status_of_peer(slot->rma.status))) {
            break;
        }
        ++count;
    }

    if (count > 0) {
        np_carry_keep(link);
    }
    return count;
}

int np_carry_serve(np_peer_t *peer, np_slot_t *slot, uint64_t word)
{
    /* Read once: what the peer writes after the check does not count */
    const uint64_t addr   = *(const volatile uint64_t*)&slot->rma.addr;
    const uint32_t offset = *(const volatile uint32_t*)&slot->rma.offset;
    const np_dir_t dir    = (np_word_kind(word) == NP_SLOT_PUT) ? NP_DIR_PUT :
                            NP_DIR_GET;
    uint32_t len          = np_word_len(word);
    ucs_status_t status   = UCS_ERR_INVALID_PARAM;

    if (np_ring_rx_has_payload(&peer->data, offset, len)) {
        status = peer->port->ops->serve(peer, dir, addr,
                                        peer->data.payload + offset, len,
                                        &peer->served);
    }

    if (status == UCS_ERR_NO_RESOURCE) {
        return 0; /* it stays where it is, until its pages do */
    }

    peer->served     = 0; /* however it ends: the next one is another */
    slot->rma.status = status;
    return 1;
}
