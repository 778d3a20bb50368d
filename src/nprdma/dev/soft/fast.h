/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The short ways of soft0: small puts and gets of memory that is mapped here,
 * and messages, as instructions over the link. Whether an operation may start
 * (np_flight_start) has been asked before.
 */

#ifndef NP_SOFT_FAST_H_
#define NP_SOFT_FAST_H_

#include "dma.h"
#include "link.h"
#include "segments.h"

#include "../../mem/access.h"
#include "../../trace.h"

#include <string.h>

/* UCP's header has 8 bytes: a payload that begins so far into a line has the
 * program's data aligned, which both copies like */
#define NP_FAST_SKEW (NP_LINE - sizeof(uint64_t))

/* Sequentially consistent: an atomic is what programs order other memory by */
#define NP_FAST_EXECUTE(_type, _ptr, _op, _value, _compare) \
    ({ \
        _Atomic _type *_word = (_Atomic _type*)(_ptr); \
        _type _old = (_type)(_compare); \
        switch (_op) { \
        case NP_ATOMIC_ADD: \
            _old = atomic_fetch_add(_word, (_type)(_value)); \
            break; \
        case NP_ATOMIC_AND: \
            _old = atomic_fetch_and(_word, (_type)(_value)); \
            break; \
        case NP_ATOMIC_OR: \
            _old = atomic_fetch_or(_word, (_type)(_value)); \
            break; \
        case NP_ATOMIC_XOR: \
            _old = atomic_fetch_xor(_word, (_type)(_value)); \
            break; \
        case NP_ATOMIC_SWAP: \
            _old = atomic_exchange(_word, (_type)(_value)); \
            break; \
        default: \
            atomic_compare_exchange_strong(_word, &_old, (_type)(_value)); \
            break; \
        } \
        (uint64_t)_old; \
    })


/** The target's memory, if it is mapped here: where @a addr is */
static UCS_F_ALWAYS_INLINE void *
np_fast_direct(np_link_t *link, np_key_t *key, uint64_t addr)
{
    np_window_t *window;

    window = atomic_load_explicit(&key->window, memory_order_acquire);
    if (ucs_unlikely(window == NULL)) {
        if (ucs_likely(key->segment_id == 0)) {
            return NULL;
        }

        window = np_segments_resolve(link, key);
        if (window == NULL) {
            return NULL;
        }
    }

    if (ucs_unlikely(np_window_is_ended(window))) {
        return NULL;
    }

    return UCS_PTR_BYTE_OFFSET(window->base, addr - key->first);
}

/** Where the target's memory is mapped here, if soft0 can move these bytes at
 *  once and knows by itself whether it has; NULL: take the long way */
static UCS_F_ALWAYS_INLINE void *
np_fast_at_once(np_link_t *link, np_key_t *key, uint64_t addr, size_t len)
{
    return ucs_likely((link->flight.outstanding == 0) &&
                      !link->port->is_model &&
                      (link->table != NULL) &&
                      (link->table_arena == np_arena_of(addr)) &&
                      (link->table_arena == np_arena_of(addr + len - 1))) ?
           np_fast_direct(link, key, addr) : NULL;
}

/* One DMA unit of soft0, without a call, if the target's view has its pages.
 * Returns whether it was done. */
static UCS_F_ALWAYS_INLINE int
np_fast_unit(np_dir_t dir, np_link_t *link, np_key_t *key, void *data,
             size_t len, uint64_t addr)
{
    np_moving_own_t *moving;
    int is_mapped;
    void *ptr;

    ptr = np_fast_at_once(link, key, addr, len);
    if (ucs_unlikely(ptr == NULL)) {
        return 0;
    }

    moving    = &link->drain.own[NP_MOVER_INITIATOR];
    np_moving_begin(moving);
    is_mapped = !np_moving_is_ended(moving) &&
                np_dma_is_mapped(link->table, addr, len, dir);
    if (ucs_likely(is_mapped)) {
        memcpy((dir == NP_DIR_PUT) ? ptr : data,
               (dir == NP_DIR_PUT) ? data : ptr, len);
    }
    if (ucs_unlikely(!np_moving_end(moving) || !is_mapped)) {
        return 0;
    }

    np_stats_moved(link->port->flights.stats, dir, len);
    return 1;
}

/** Put of what is ours, into mapped memory whose pages the target's write view
 *  has. Returns whether it was done. */
static UCS_F_ALWAYS_INLINE int
np_fast_put(np_link_t *link, np_key_t *key, const void *data, size_t len,
            uint64_t addr)
{
    return np_fast_unit(NP_DIR_PUT, link, key, (void*)data, len, addr);
}

/** Put of the program's bytes into mapped memory, if both sides' views have all
 *  pages and keep them while it is in flight; returns whether it was done */
static inline int
np_fast_put_iov(np_link_t *link, np_key_t *key, const np_iov_t *iov,
                size_t iovcnt, size_t len, uint64_t addr)
{
    uint8_t *ptr = (len <= NP_DMA_MAX) ?
                   np_fast_at_once(link, key, addr, len) : NULL;
    np_moving_own_t *moving;
    int is_mapped;
    size_t i;

    if (ptr == NULL) {
        return 0;
    }

    moving    = &link->drain.own[NP_MOVER_INITIATOR];
    np_moving_begin(moving);
    is_mapped = !np_moving_is_ended(moving) &&
                np_dma_is_mapped(link->table, addr, len, NP_DIR_PUT);
    for (i = 0; i < iovcnt; ++i) {
        is_mapped = is_mapped && np_access_is_there((uintptr_t)iov[i].base,
                                                    iov[i].len, 0);
    }

    for (i = 0; is_mapped && (i < iovcnt); ptr += iov[i++].len) {
        memcpy(ptr, iov[i].base, iov[i].len);
    }
    return np_moving_end(moving) && is_mapped;
}

/** Get of mapped memory whose pages the target's read view has: the bytes need
 *  not be looked at, none of them can be of the signature page. Returns whether
 *  it was done. */
static UCS_F_ALWAYS_INLINE int
np_fast_get(np_link_t *link, np_key_t *key, void *data, size_t len,
            uint64_t addr)
{
    return np_fast_unit(NP_DIR_GET, link, key, data, len, addr);
}

static inline uint64_t np_fast_execute(void *ptr, const np_atomic_t *request)
{
    return (request->size == sizeof(uint64_t)) ?
           NP_FAST_EXECUTE(uint64_t, ptr, request->op, request->value,
                           request->compare) :
           NP_FAST_EXECUTE(uint32_t, ptr, request->op, request->value,
                           request->compare);
}

/**
 * Execute an atomic if its page is in the target's write view just now: once,
 * or not at all.
 *
 * @param [in]  ptr     Where its word is mapped here.
 * @param [out] result  The value before.
 *
 * @return UCS_OK; UCS_ERR_NO_PROGRESS: not executed; UCS_ERR_CONNECTION_RESET:
 *         the other end has ended the connection without waiting for it: it may
 *         have had no effect, and must not be repeated.
 */
static inline ucs_status_t
np_fast_atomic(np_link_t *link, void *ptr, const np_atomic_t *request,
               uint64_t *result)
{
    np_moving_own_t *moving = &link->drain.own[NP_MOVER_INITIATOR];
    const np_table_t *table = np_link_table(link, request->addr);
    int is_mapped, in_time;

    if (ucs_unlikely(table == NULL)) {
        return UCS_ERR_NO_PROGRESS;
    }

    np_moving_begin(moving);
    is_mapped = !np_moving_is_ended(moving) &&
                np_dma_is_mapped(table, request->addr, 1, NP_DIR_PUT);
    if (is_mapped) {
        *result = np_fast_execute(ptr, request);
    }
    in_time = np_moving_end(moving);
    return !is_mapped ? UCS_ERR_NO_PROGRESS :
           in_time ? UCS_OK : UCS_ERR_CONNECTION_RESET;
}

/**
 * Find room for a message of up to @a max bytes.
 *
 * @param [out] data   Where the payload goes.
 * @param [out] start  For np_fast_send.
 *
 * @return UCS_OK; UCS_ERR_NO_RESOURCE.
 */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_fast_reserve(np_link_t *link, uint32_t max, void **data, uint32_t *start)
{
    np_ring_tx_t *ring = &link->data;

    if (ucs_unlikely(np_link_is_busy(link))) {
        np_link_busy(link);
    }

    if (ucs_unlikely(!np_ring_tx_has_slot(ring) ||
                     !np_ring_tx_has_payload(ring, max + NP_FAST_SKEW,
                                             start))) {
        return np_link_full(link);
    }

    *data = ring->payload + (*start & ring->payload_mask) + NP_FAST_SKEW;
    return UCS_OK;
}

/** Send what was put where np_fast_reserve said */
static UCS_F_ALWAYS_INLINE void
np_fast_send(np_link_t *link, uint8_t id, uint32_t start, uint32_t len)
{
    np_ring_tx_t *ring = &link->data;
    np_slot_t *slot    = np_ring_tx_slot(ring);

    slot->offset = (start & ring->payload_mask) + NP_FAST_SKEW;
    np_ring_tx_commit_payload(ring, start, len + NP_FAST_SKEW);
    np_fill_count(&link->fill, len);
    np_ring_tx_publish(ring, slot, len, NP_SLOT_AM_LONG, id);
    np_link_notify(link);
    np_trace(NP_TRACE_MESSAGE, 0, id, len);
}

/** Find a slot for a message that fits into it: its data has NP_SLOT_INLINE
 *  bytes. np_fast_send_inline sends it. */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_fast_reserve_inline(np_link_t *link, np_slot_t **slot)
{
    if (ucs_unlikely(!np_ring_tx_has_slot(&link->data))) {
        return np_link_full(link);
    }

    *slot = np_ring_tx_slot(&link->data);
    return UCS_OK;
}

static UCS_F_ALWAYS_INLINE void
np_fast_send_inline(np_link_t *link, np_slot_t *slot, uint8_t id, uint32_t len)
{
    np_ring_tx_publish(&link->data, slot, len, NP_SLOT_AM, id);
    np_link_notify(link);
    np_trace(NP_TRACE_MESSAGE, 0, id, len);
}

#endif
