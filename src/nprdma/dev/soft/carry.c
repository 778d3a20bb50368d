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

#include "../../engine.h"

/* Largest requests whose answers are told together, and that are served in a
 * row; most of a row */
#define NP_CARRY_SMALL 1024
#define NP_CARRY_ROW   8


int np_carry_begin(np_link_t *link, np_carry_t *carry, size_t len)
{
    const uint32_t payload = np_carry_payload(len);
    np_ring_tx_t *ring     = &link->data;

    if (!np_ring_tx_has_slot(ring) ||
        !np_ring_tx_has_payload(ring, payload, &carry->start)) {
        return 0;
    }

    carry->index = ring->tail;
    carry->bytes = (payload == 0) ? np_ring_tx_slot(ring)->rma.data :
                   (ring->payload + (carry->start & ring->payload_mask));
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
                   uint64_t addr, uint8_t id)
{
    np_ring_tx_t *ring = &link->data;
    np_slot_t *slot    = np_ring_tx_slot(ring);

    np_assertv(carry->index == ring->tail, "slot %u is not %u", carry->index,
               ring->tail);
    carry->is_lent = id == NP_CARRY_LENT;
    ucs_list_add_tail(&link->carried, &carry->list);
    np_carry_keep(link);
    slot->rma.addr    = addr;
    slot->rma.offset  = carry->start & ring->payload_mask;
    slot->rma.status  = UCS_ERR_NO_PROGRESS;
    slot->rma.epoch   = atomic_load_explicit(&link->shm->lent_epoch,
                                             memory_order_relaxed);
    slot->rma.is_past = link->fill.is_past;
    np_ring_tx_commit_payload(ring, carry->start, np_carry_payload(len));
    if (dir == NP_DIR_PUT) {
        np_fill_count(&link->fill, len);
    }
    np_ring_tx_publish(ring, slot, len,
                       (dir == NP_DIR_PUT) ? NP_SLOT_PUT : NP_SLOT_GET, id);
    np_link_notify(link);
}

/* The last slots that have been left, one after the other: np_link_has_lost */
static void np_carry_note_left(np_link_t *link, uint32_t index)
{
    if (link->left_end != index) {
        link->left_begin = index;
    }
    link->left_end = index + 1;
}

void np_carry_leave(np_link_t *link, np_carry_t *carry)
{
    ucs_list_del(&carry->list);
    ucs_list_head_init(&carry->list); /* np_carry_end */
    np_carry_keep(link);
}

uint32_t np_carry_recall(np_link_t *link)
{
    np_carry_t *carry;
    uint32_t word;

    ucs_list_for_each(carry, &link->carried, list) {
        if (carry->is_lent) {
            np_carry_note_left(link, carry->index);
        }
    }

    /* seq_cst, as np_carry_lend: either the target sees the new number, or we
     * see that it reads */
    atomic_fetch_add_explicit(&link->shm->lent_epoch, 1, memory_order_seq_cst);
    word = atomic_load_explicit(&link->shm->lending, memory_order_seq_cst);
    return (word & 1) ? word : 0;
}

/* Would there be room for @a other bytes if @a len had been sent? */
static int np_carry_fits(const np_ring_tx_t *ring, uint32_t start, size_t len,
                         uint32_t other)
{
    const uint32_t size = ring->payload_mask + 1;
    uint32_t offset;

    start += ucs_align_up_pow2(len, (size_t)NP_LINE);
    offset = start & ring->payload_mask;
    if ((offset + other) > ring->payload_part) {
        start += size - offset;
    }
    return (start + other - ring->payload_head) <= size;
}

int np_carry_has_room_beside(np_link_t *link, size_t bytes)
{
    const uint32_t len   = np_carry_payload(bytes);
    np_ring_tx_t *ring   = &link->data;
    const uint32_t other = link->port->config.payload_size / 2;
    uint32_t start;

    if (!np_ring_tx_has_slots(ring, (ring->mask + 1) / 4) ||
        !np_ring_tx_has_payload(ring, len, &start)) {
        return 0;
    }

    if (np_carry_fits(ring, start, len, other)) {
        return 1;
    }

    if (!np_ring_tx_refresh(ring)) {
        return 0;
    }

    if (np_ring_tx_is_empty(ring)) {
        np_ring_tx_align(ring, other); /* one of two halves is for the others */
        start = ring->payload_tail;
    }
    return np_carry_fits(ring, start, len, other);
}

void np_carry_drop(np_link_t *link)
{
    np_patience_t patience;
    uint32_t recalled;

    link->data.is_kept = 0;
    if (!np_flights_are_ours(&link->port->flights) || (link->shm == NULL) ||
        ucs_list_is_empty(&link->carried)) {
        return;
    }

    recalled = np_carry_recall(link);
    np_patience_init(&patience, &link->drain);
    while (!np_carry_is_recalled(link, recalled) &&
           (np_patience_look(&patience) == UCS_INPROGRESS)) {
    }
}

ucs_status_t np_carry_answer(const np_link_t *link, const np_carry_t *carry)
{
    /* acquire: what it has moved is seen */
    return np_status_of_peer(__atomic_load_n(
            &link->data.slots[carry->index & link->data.mask].rma.status,
            __ATOMIC_ACQUIRE));
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

unsigned np_carry_passed(np_link_t *link)
{
    unsigned count = 0;
    np_carry_t *carry;

    ucs_list_for_each(carry, &link->carried, list) {
        if (!np_ring_tx_is_read(&link->data, carry->index) ||
            (np_carry_answer(link, carry) != UCS_OK)) {
            break;
        }
        ++count;
    }
    return count;
}

int np_carry_has_news(np_link_t *link)
{
    return np_carry_next(link) != NULL;
}

/* The first of those that are out, if the target has executed it; else NULL */
static np_carry_t *np_carry_next_executed(np_link_t *link)
{
    np_carry_t *carry;

    if (ucs_list_is_empty(&link->carried)) {
        return NULL;
    }

    carry = ucs_list_head(&link->carried, np_carry_t, list);
    return (np_carry_answer(link, carry) != UCS_ERR_NO_PROGRESS) ? carry : NULL;
}

/* End one after the other, as long as there is a next */
static UCS_F_ALWAYS_INLINE unsigned
np_carry_end_all(np_link_t *link, np_carry_t *(*next)(np_link_t *link))
{
    unsigned count = 0;
    np_carry_t *carry;

    while (((carry = next(link)) != NULL) &&
           link->port->ops->carried(link, carry,
                                    np_carry_answer(link, carry))) {
        ++count;
    }

    if (count > 0) {
        np_carry_keep(link);
    }
    return count;
}

unsigned np_carry_progress(np_link_t *link)
{
    return np_carry_end_all(link, np_carry_next);
}

unsigned np_carry_take_executed(np_link_t *link)
{
    return np_carry_end_all(link, np_carry_next_executed);
}

/* From now on a recall waits. One store for many requests: it waits for all
 * that was stored before, in lines that the initiator has. */
static UCS_F_ALWAYS_INLINE void np_carry_begin_lending(np_peer_t *peer)
{
    if (!(peer->lending & 1)) {
        /* seq_cst: see np_carry_recall */
        atomic_store_explicit(&peer->shm->lending, ++peer->lending,
                              memory_order_seq_cst);
    }
}

void np_carry_lent(np_peer_t *peer)
{
    if (peer->lending & 1) {
        np_lent_leave(&peer->kept);
        /* release: what was moved and said was so before */
        atomic_store_explicit(&peer->shm->lending, ++peer->lending,
                              memory_order_release);
    }
}

/* Move for a peer of our own user what it still waits for */
static ucs_status_t
np_carry_lend(np_peer_t *peer, np_dir_t dir, uint32_t epoch, uint64_t addr,
              uint8_t *area, uint32_t len, int is_past)
{
    ucs_status_t status = UCS_ERR_NO_PROGRESS;

    if ((peer->process.uid != np_engine.uid) || peer->is_gone ||
        (peer->has_refused && (peer->refused_epoch == epoch))) {
        return UCS_ERR_NO_PROGRESS;
    }

    np_carry_begin_lending(peer);
    if (atomic_load_explicit(&peer->shm->lent_epoch, memory_order_seq_cst) ==
        epoch) {
        status = peer->port->ops->lend(dir, addr, area, len, is_past,
                                       &peer->kept);
    }
    peer->has_refused   = status == UCS_ERR_NO_PROGRESS;
    peer->refused_epoch = epoch;
    return status;
}

int np_carry_serve(np_peer_t *peer, np_slot_t *slot, uint64_t word)
{
    /* Read once: what the peer writes after the check does not count */
    const uint64_t addr   = *(const volatile uint64_t*)&slot->rma.addr;
    const uint32_t offset = *(const volatile uint32_t*)&slot->rma.offset;
    const uint32_t epoch  = *(const volatile uint32_t*)&slot->rma.epoch;
    const np_dir_t dir    = (np_word_kind(word) == NP_SLOT_PUT) ? NP_DIR_PUT :
                            NP_DIR_GET;
    const uint32_t len    = np_word_len(word);
    ucs_status_t status   = UCS_ERR_INVALID_PARAM;
    uint8_t *bytes;

    if (np_peer_has_payload(peer, offset, np_carry_payload(len))) {
        bytes  = (np_carry_payload(len) == 0) ? slot->rma.data :
                 (peer->data.payload + offset);
        status = (np_word_id(word) == NP_CARRY_LENT) ?
                 np_carry_lend(peer, dir, epoch, addr, bytes, len,
                               slot->rma.is_past != 0) :
                 peer->port->ops->serve(peer, dir, addr, bytes, len,
                                        &peer->served);
    }

    if (status == UCS_ERR_NO_RESOURCE) {
        return 0; /* it stays where it is, until its pages do */
    }

    peer->served = 0; /* however it ends: the next one is another */
    /* release: what was moved was moved before. Of what is lent this is said
     * before it counts as recalled: nobody else executes it then. */
    __atomic_store_n(&slot->rma.status, status, __ATOMIC_RELEASE);
    return 1;
}

/* Does it name bytes that there are? */
static int
np_carry_is_whole(np_peer_t *peer, const np_slot_t *slot, uint64_t word)
{
    return np_peer_has_payload(peer, slot->rma.offset,
                               np_carry_payload(np_word_len(word)));
}

/* Is it one of those that may stand in a row? */
static int np_carry_is_small(uint64_t word)
{
    return (np_word_id(word) == NP_CARRY_LENT) &&
           (np_word_len(word) <= NP_CARRY_SMALL);
}

/* Returns 0 if it cannot be served yet */
static int np_carry_take(np_peer_t *peer, np_slot_t *slot, uint64_t word)
{
    np_ring_rx_t *ring = &peer->data;

    if (!np_carry_serve(peer, slot, word)) {
        return 0;
    }

    /* it waits for the answer; of many small ones for that to the last */
    ring->lag = np_carry_is_small(word) ?
                (ring->lag + NP_LINE + np_word_len(word)) : ring->lag_max;
    return 1;
}

/* The slot behind the head, if it is ready and a small request of what is lent;
 * else NULL. Its word is read once: the peer may write another one. */
static np_slot_t *np_carry_another(np_peer_t *peer, uint64_t *word)
{
    np_ring_rx_t *ring  = &peer->data;
    const uint32_t next = ring->head + 1;
    np_slot_t *slot     = &ring->slots[next & ring->mask];

    /* acquire: the slot and its payload are seen */
    *word = atomic_load_explicit(&slot->word, memory_order_acquire);
    return (((uint32_t)*word == (next + 1)) &&
            ((np_word_kind(*word) == NP_SLOT_PUT) ||
             (np_word_kind(*word) == NP_SLOT_GET)) &&
            np_carry_is_small(*word) &&
            np_carry_is_whole(peer, slot, *word)) ? slot : NULL;
}

int np_carry_take_row(np_peer_t *peer, uint64_t word)
{
    np_ring_rx_t *ring = &peer->data;
    np_slot_t *slot    = ring->next;
    unsigned taken     = 0;

    if (ucs_unlikely(!np_carry_is_whole(peer, slot, word))) {
        np_peer_malformed(peer, word);
        return 0;
    }

    while ((slot != NULL) && np_carry_take(peer, slot, word)) {
        if (++taken > 1) {
            np_ring_rx_advance(ring); /* from the one before it */
        }
        /* what waits to be told does not wait for the next one */
        slot = ((peer->lending & 1) && (taken < NP_CARRY_ROW) &&
                (ring->lag < ring->lag_max)) ?
               np_carry_another(peer, &word) : NULL;
    }
    np_carry_lent(peer);
    return taken > 0;
}
