/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Peers: the receiving end of another process's link.
 */

#ifndef NP_SOFT_PEER_H_
#define NP_SOFT_PEER_H_

#include "carry.h"
#include "dma.h"
#include "help.h"
#include "inbox.h"
#include "port.h"
#include "ring.h"
#include "sock.h"
#include "wide.h"

#include "../../mem/table.h"

#include <ucs/type/spinlock.h>

/** What takes active messages; @a data is in the ring and gone afterwards */
typedef void (*np_am_cb_t)(void *arg, uint8_t id, void *data, unsigned len);

/** Lines that are asked for at once: what a core can have outstanding */
#define NP_PEER_PREFETCH 32

/** And before anything has come: a header, and what fits beside it */
#define NP_PEER_AHEAD    3

/** Owner: its port. */
struct np_peer {
    np_event_t      event;        /**< first member */
    np_ring_rx_t    data;
    np_ring_rx_t    ctl;
    np_link_shm_t   *_Atomic shm; /**< NULL when it has been detached */
    np_port_shm_t   *initiator;   /**< the port to wake */
    np_port_t       *port;
    size_t          shm_size;     /**< of which so much is mapped at first: */
    size_t          shm_part;
    _Atomic(void*)  wide_shm;     /**< all of it; NULL: not mapped. Set once, by
                                       any thread (wide.h) */
    uint32_t        payload_full; /**< bytes of its payload area */
    unsigned        number;       /**< index in port->peers */
    int             fd;
    np_process_t    process;      /**< the initiator's */
    np_event_t      death;        /**< of it */
    uint64_t        engine_id;
    np_remote_t     *remote;      /**< the initiator's tables; NULL: none */
    uint8_t         *inline_areas;
    np_drain_entry_t drain;
    ucs_spinlock_t  ctl_lock;     /**< its holder takes from ctl */
    _Atomic int     has_atomic;   /**< one of its atomics is being executed; set
                                       under ctl_lock */
    uint32_t        lending;      /**< what shm->lending says: its word is ours
                                       alone. Odd in np_carry_take_row alone */
    np_lent_range_t *kept;        /**< then: of np_lent_copy */
    int             has_refused;  /**< the last request for what is lent, and
                                       with it all of .. */
    uint32_t        refused_epoch; /**< .. the number that it had */
    uint32_t        served;       /**< bytes of the request at the data ring's
                                       head that are done already */
    int             is_fenced;    /**< see np_moving_own_t; constant */
    int             is_hot;
    int             is_unanswered; /**< the initiator does not know yet that it
                                        is taken in: the ACCEPT could not be
                                        sent. Under the port's lock, as
                                        port->num_unanswered */
    int             is_gone;      /**< no more will come; free when drained */
    int             is_malformed; /**< it counts as drained */
    _Atomic unsigned jobs;        /**< its requests in service threads: it stays
                                       until they are done */
};

/**
 * The process on socket @a fd has shown our address: take it in. Under the
 * port's lock.
 *
 * @param [in] msg  What np_sock_look has seen, which is still there.
 *
 * @return UCS_OK: the socket is the peer's; any other status: it is no peer.
 */
ucs_status_t np_peer_create(np_port_t *port, int fd, const np_msg_t *msg,
                            int is_owner);

/** Answer those that could not be answered. Returns how many still could not;
 *  under the port's lock. */
unsigned np_port_answer_peers(np_port_t *port);

void np_peer_destroy(np_peer_t *peer);

/** Tell the initiator whether we look at its rings all the time */
void np_peer_poll_set(np_peer_t *peer, int polled);

/** Take what has come from peers that are not polled: those that the activity
 *  map names, and one more in turn. Returns how many messages. */
unsigned np_port_poll_cold(np_port_t *port, np_am_cb_t am_cb, void *arg);

/** Free the peers that are gone and drained */
void np_port_reap(np_port_t *port);

/** It wrote what no initiator writes: end the connection */
void np_peer_malformed(np_peer_t *peer, uint64_t word);

/** Wake the initiator, if it sleeps */
void np_peer_wake(np_peer_t *peer);

/** The way to the initiator's memory, in one arena, up to the first page that
 *  is absent on either side */
static inline np_dma_t np_peer_dma(np_peer_t *peer, np_dir_t dir, uint64_t va,
                                   np_moving_own_t *moving)
{
    return (np_dma_t){
        .dir       = dir,
        .process   = &peer->process,
        .table     = (peer->remote == NULL) ? NULL :
                     np_remote_table(peer->remote, np_arena_of(va)),
        .remote    = peer->remote,
        .moving    = moving,
        .is_prefix = 1,
        .has_local = 1
    };
}

/** The epoch of its link: what was asked in another one is not moved any
 *  more */
static inline uint32_t np_peer_epoch(const np_peer_t *peer)
{
    return atomic_load_explicit(&peer->shm->epoch, memory_order_relaxed);
}

/** Our word to it, as this mover */
static inline np_moving_own_t *np_peer_moving(np_peer_t *peer, np_mover_t mover)
{
    return &peer->drain.own[mover];
}

/** What is moved that way is moved in this epoch alone */
static inline void
np_peer_bind(np_peer_t *peer, np_dma_t *dma, uint32_t epoch)
{
    dma->epoch     = &peer->shm->epoch;
    dma->was_epoch = epoch;
}

/** Is there anything in its rings? */
static inline int np_peer_has_data(np_peer_t *peer)
{
    return (peer->shm != NULL) && !peer->is_malformed &&
           (np_ring_rx_has_any(&peer->data) || np_ring_rx_has_any(&peer->ctl));
}

static UCS_F_ALWAYS_INLINE void np_peer_wake_armed(np_peer_t *peer)
{
    /* No fence: if the initiator arms now, its barrier orders either this load
     * or its own look at what we have stored (np_port_arm). Where one of us
     * cannot have that barrier: seq_cst, before the load. */
    if (ucs_unlikely(peer->is_fenced)) {
        atomic_thread_fence(memory_order_seq_cst);
    }
    if (ucs_unlikely(atomic_load_explicit(&peer->initiator->armed,
                                          memory_order_relaxed))) {
        np_peer_wake(peer);
    }
}

static UCS_F_ALWAYS_INLINE void
np_peer_publish(np_peer_t *peer, np_ring_rx_t *ring)
{
    np_ring_rx_publish(ring);
    np_peer_wake_armed(peer);
}

/** What the last look has read, but not freed: it ended with a full batch.
 *  Owner of the port. */
static inline void np_peer_publish_all(np_peer_t *peer)
{
    if ((peer->shm != NULL) && (peer->data.lag > 0)) {
        np_peer_publish(peer, &peer->data);
    }
}

/** Have payload on its way from the other core while its header is matched: all
 *  that was not prefetched ahead */
static UCS_F_ALWAYS_INLINE void np_peer_prefetch(const void *data, uint32_t len)
{
    uint32_t offset;

    for (offset = NP_PEER_AHEAD * NP_LINE;
         offset < ucs_min(len, NP_PEER_PREFETCH * NP_LINE);
         offset += NP_LINE) {
        __builtin_prefetch(UCS_PTR_BYTE_OFFSET(data, offset));
    }
}

/** Have the payload that comes next on its way while its slot is: lines that
 *  are waited for in turn cost twice as much */
static UCS_F_ALWAYS_INLINE void np_peer_prefetch_ahead(const np_ring_rx_t *ring)
{
    unsigned i;

    for (i = 0; i < NP_PEER_AHEAD; ++i) {
        __builtin_prefetch(ring->ahead + (i * NP_LINE));
    }
}

/** Does what a slot of the data ring points to lie in the payload area? */
static UCS_F_ALWAYS_INLINE int
np_ring_rx_has_payload(const np_ring_rx_t *ring, uint32_t offset, uint32_t len)
{
#ifdef NP_FUZZ_MUTANT
    return 1; /* the deliberate fault that fuzzing must find */
#endif
    return ((uint64_t)offset + len) <= ring->payload_size;
}

/** Has it, or has what the link uses since it has become wide? The owner. */
static UCS_F_ALWAYS_INLINE int
np_peer_has_payload(np_peer_t *peer, uint32_t offset, uint32_t len)
{
    return ucs_likely(np_ring_rx_has_payload(&peer->data, offset, len)) ||
           (np_wide_begin(peer) &&
            np_ring_rx_has_payload(&peer->data, offset, len));
}

/** Take one slot of the data ring, or a row of small requests, of which the
 *  last is at the head then. Returns 0 if it cannot be served yet, or the
 *  connection has ended. */
static UCS_F_ALWAYS_INLINE int
np_peer_take(np_peer_t *peer, uint64_t word, np_am_cb_t am_cb, void *arg)
{
    np_ring_rx_t *ring = &peer->data;
    np_slot_t *slot    = ring->next;
    uint32_t len       = np_word_len(word);
    uint32_t offset;
    uint8_t *data;

    switch (np_word_kind(word)) {
    case NP_SLOT_NONE:
        if (word == 0) {
            return 0; /* the number of a slot that was never written */
        }
        break;
    case NP_SLOT_AM:
        if (ucs_unlikely(len > NP_SLOT_INLINE)) {
            break;
        }
        am_cb(arg, np_word_id(word), slot->data, len);
        ring->lag += NP_LINE;
        return 1;
    case NP_SLOT_AM_LONG:
        offset = slot->offset;
        if (ucs_unlikely(!np_peer_has_payload(peer, offset, len))) {
            break;
        }
        data        = ring->payload + offset;
        ring->ahead = data + len + NP_LINE - 1; /* in the line behind it */
        np_peer_prefetch(data, len);
        am_cb(arg, np_word_id(word), data, len);
        ring->lag += NP_LINE + len;
        return 1;
    case NP_SLOT_PUT:
    case NP_SLOT_GET:
        return np_carry_take_row(peer, word);
    }

    np_peer_malformed(peer, word);
    return 0;
}

/** Take what is ready in the data ring, from the slot with @a word on. Returns
 *  how many messages and rows. Not inline: most looks find nothing. */
static __attribute__((noinline)) unsigned
np_peer_take_batch(np_peer_t *peer, uint64_t word, np_am_cb_t am_cb, void *arg)
{
    np_ring_rx_t *ring = &peer->data;
    unsigned count     = 0;
    int is_ready;

    do {
        if (ucs_unlikely(!np_peer_take(peer, word, am_cb, arg))) {
            if (peer->is_malformed || (count == 0)) {
                return count; /* there is nothing to free */
            }
            is_ready = 0; /* nothing else can be done now */
            break;
        }

        np_ring_rx_advance(ring);
        if (ring->lag >= ring->lag_max) {
            np_peer_publish(peer, ring);
        }

        is_ready = np_ring_rx_is_ready(ring, &word);
    } while ((++count < NP_PORT_BATCH) && is_ready);

    /* Nothing else to do: free what we have read */
    if (!is_ready) {
        np_peer_publish(peer, ring);
    }

    return count;
}

static UCS_F_ALWAYS_INLINE unsigned
np_peer_poll(np_peer_t *peer, np_am_cb_t am_cb, void *arg)
{
    unsigned count = 0;
    uint64_t word;

    np_peer_prefetch_ahead(&peer->data);
    if (np_ring_rx_is_ready(&peer->data, &word)) {
        count = np_peer_take_batch(peer, word, am_cb, arg);
    }

    if (ucs_unlikely(np_ring_rx_is_ready(&peer->ctl, &word)) &&
        !peer->is_malformed) {
        count += np_inbox_progress(peer);
    }

    return count;
}

/** Take what has come, from all peers, and help those that have asked for it.
 *  Returns how many messages and chunks. */
static UCS_F_ALWAYS_INLINE unsigned
np_port_poll(np_port_t *port, np_am_cb_t am_cb, void *arg)
{
    unsigned count = 0, i;

    if (ucs_unlikely(port->has_chores)) {
        count = np_port_chores(port);
    }

    for (i = 0; i < port->num_hot; ++i) {
        count += np_peer_poll(port->hot[i], am_cb, arg);
    }

    if (ucs_unlikely(port->num_peers > port->num_hot)) {
        count += np_port_poll_cold(port, am_cb, arg);
    }

    port->taken += count;
    if (ucs_unlikely(--port->countdown == 0)) {
        np_port_clock(port);
    }

    return count;
}

#endif
