/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Rings with one writer and one reader: slots of one line each, and for what
 * does not fit a payload area that is used round and round, or from its
 * beginning again when all was read.
 *
 * A slot is ready when its word carries the sequence number that its index has
 * in this lap, so nothing is cleared and no index is shared but the reader's
 * head, which the writer reads when it runs out of slots, and seldom else.
 */

#ifndef NP_SOFT_RING_H_
#define NP_SOFT_RING_H_

#include "wire.h"

/** Writing end. Owner: the link; guarded as the port is. */
typedef struct np_ring_tx {
    np_slot_t        *slots;
    uint32_t         mask;
    uint32_t         tail;       /**< next index to write */
    uint32_t         limit;      /**< tail may not pass it */
    uint32_t         payload_mask;
    uint32_t         payload_tail;
    uint32_t         payload_head;
    uint8_t          *payload;
    uint32_t         *payload_end; /**< of each slot: payload_tail after it */
    _Atomic uint32_t *head;      /**< written by the reader */
    uint32_t         kept;       /**< if is_kept: this slot and its payload are
                                      not free yet, though read */
    int              is_kept;
    uint32_t         payload_part; /**< no payload ends after so many bytes of
                                        the area: it begins anew there. May
                                        change at any time, to at least twice
                                        the largest payload; what was free may
                                        not be for a lap then */
    uint32_t         payload_full; /**< mask of the whole area; payload_mask is
                                        that of the part in use */
    uint32_t         busy_at;    /**< position of payload_tail at which its user
                                      asks what part of the area to use */
} np_ring_tx_t;

/** Reading end. Owner: the peer; guarded as the port is. */
typedef struct np_ring_rx {
    np_slot_t        *slots;
    uint32_t         mask;
    uint32_t         head;       /**< next index to read */
    uint32_t         lag;        /**< bytes read since the writer was told */
    uint32_t         lag_max;    /**< tell it at the latest then */
    uint32_t         payload_size;
    uint8_t          *payload;
    np_slot_t        *next;      /**< slot of head */
    const uint8_t    *ahead;     /**< where the next payload is likely to begin;
                                      never read, only prefetched */
    _Atomic uint32_t *shared_head;
} np_ring_rx_t;


/** Look how far the reader is. Returns 0 if the head that it wrote cannot
 *  be. */
int np_ring_tx_refresh(np_ring_tx_t *ring);

/** Is everything read, and nothing kept? After np_ring_tx_refresh(). */
static UCS_F_ALWAYS_INLINE int np_ring_tx_is_empty(const np_ring_tx_t *ring)
{
    return ring->tail == (ring->limit - (ring->mask + 1));
}

/** Use the whole payload area from now on. The ring must be empty. */
void np_ring_tx_widen(np_ring_tx_t *ring);


/** Have the next payload begin where @a part, a power of two, begins. The ring
 *  must be empty. */
void np_ring_tx_align(np_ring_tx_t *ring, uint32_t part);


/** Has the reader passed slot @a index? */
static UCS_F_ALWAYS_INLINE int
np_ring_tx_is_read(np_ring_tx_t *ring, uint32_t index)
{
    /* acquire: what the reader wrote into the slot is seen */
    return (int32_t)(atomic_load_explicit(ring->head, memory_order_acquire) -
                     index) > 0;
}

static UCS_F_ALWAYS_INLINE int np_ring_tx_has_slot(np_ring_tx_t *ring)
{
    return ucs_likely(ring->tail != ring->limit) ||
           (np_ring_tx_refresh(ring) && (ring->tail != ring->limit));
}

/** Is there one beside so many others? */
static inline int np_ring_tx_has_slots(np_ring_tx_t *ring, uint32_t others)
{
    return ((ring->limit - ring->tail) > others) ||
           (np_ring_tx_refresh(ring) && ((ring->limit - ring->tail) > others));
}

static UCS_F_ALWAYS_INLINE np_slot_t *np_ring_tx_slot(np_ring_tx_t *ring)
{
    return &ring->slots[ring->tail & ring->mask];
}

/* Where @a len contiguous bytes would start, as a position of payload_tail */
static UCS_F_ALWAYS_INLINE uint32_t
np_ring_tx_payload_start(np_ring_tx_t *ring, uint32_t len)
{
    uint32_t offset = ring->payload_tail & ring->payload_mask;

    return ucs_likely((offset + len) <= ring->payload_part) ?
           ring->payload_tail :
           (ring->payload_tail + (ring->payload_mask + 1) - offset);
}

/**
 * Find room for @a len contiguous bytes, at most half of payload_part.
 *
 * @param [out] start  Position; np_ring_tx_commit_payload takes it.
 *
 * @return 1, or 0 if there is no room now.
 */
static UCS_F_ALWAYS_INLINE int
np_ring_tx_has_payload(np_ring_tx_t *ring, uint32_t len, uint32_t *start)
{
    *start = np_ring_tx_payload_start(ring, len);
    if (ucs_likely((*start + len - ring->payload_head) <=
                   (ring->payload_mask + 1))) {
        return 1;
    }

    return np_ring_tx_refresh(ring) &&
           ((*start + len - ring->payload_head) <= (ring->payload_mask + 1));
}

static UCS_F_ALWAYS_INLINE void
np_ring_tx_commit_payload(np_ring_tx_t *ring, uint32_t start, uint32_t len)
{
    np_assertv((start + len - ring->payload_head) <= (ring->payload_mask + 1),
               "payload of %u bytes at %u, free from %u on", len, start,
               ring->payload_head);
    ring->payload_tail = start + ucs_align_up_pow2(len, (uint32_t)NP_LINE);
}

/** Make the slot at the tail ready */
static UCS_F_ALWAYS_INLINE void
np_ring_tx_publish(np_ring_tx_t *ring, np_slot_t *slot, uint32_t len,
                   np_slot_kind_t kind, uint8_t id)
{
    np_assertv(ring->tail != ring->limit, "slot %u is not free", ring->tail);
    np_assertv(len <= UINT16_MAX, "a slot's word cannot say %u", len);
    ring->payload_end[ring->tail & ring->mask] = ring->payload_tail;

    /* release: a reader that sees the word sees slot and payload */
    atomic_store_explicit(&slot->word,
                          np_slot_word(ring->tail, len, kind, id),
                          memory_order_release);
    ++ring->tail;
}

/** Is the next slot ready? Then @a word is its word. For the owner of a data
 *  ring, under the lock of a control ring, or for one who comes again: while
 *  another takes from it this may say no where there is more. */
static UCS_F_ALWAYS_INLINE int
np_ring_rx_is_ready(const np_ring_rx_t *ring, uint64_t *word)
{
    np_slot_t *next = __atomic_load_n(&ring->next, __ATOMIC_RELAXED);

    *word = atomic_load_explicit(&next->word, memory_order_acquire);
    return (uint32_t)*word ==
           (__atomic_load_n(&ring->head, __ATOMIC_RELAXED) + 1);
}

/** The same for one who may not miss anything, since it would sleep: while
 *  another takes from the ring this may say yes of what is taken already. A
 *  word of 0 was never written, whatever its number. */
static inline int np_ring_rx_has_any(const np_ring_rx_t *ring)
{
    const uint32_t head = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
    uint64_t word;

    word = atomic_load_explicit(&ring->slots[head & ring->mask].word,
                                memory_order_acquire);
    return ((uint32_t)word == (uint32_t)(head + 1)) && (word != 0);
}

/** The next slot has been read. relaxed: a thread that looks at a control ring
 *  without its lock looks again with it. */
static UCS_F_ALWAYS_INLINE void np_ring_rx_advance(np_ring_rx_t *ring)
{
    const uint32_t head = ring->head + 1;

    __atomic_store_n(&ring->head, head, __ATOMIC_RELAXED);
    __atomic_store_n(&ring->next,
                     ((head & ring->mask) != 0) ? (ring->next + 1) :
                     ring->slots, __ATOMIC_RELAXED);
}

/** Tell the writer what is free */
static UCS_F_ALWAYS_INLINE void np_ring_rx_publish(np_ring_rx_t *ring)
{
    ring->lag = 0;

    /* release: we have read the slots, and written our answers into them */
    atomic_store_explicit(ring->shared_head, ring->head, memory_order_release);
}

#endif
