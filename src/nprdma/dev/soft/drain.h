/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Units in flight: a mover of data marks a word of the link's segment while it
 * moves, and a page that is taken from the device goes only when every word of
 * every segment of this process has changed, or its writer is dead.
 *
 * Beginning costs a store: the fence that orders it before the look at the
 * translations is paid by np_drain, through np_barrier_peers().
 *
 * No peer is waited for without end. A peer that does not come to the end of a
 * unit for NP_PATIENCE is given up: it is told so in the line of its word
 * (`ended`), which an honest peer looks at before it moves and after it has
 * moved; its connection ends, and its words are not looked at any more.
 */

#ifndef NP_SOFT_DRAIN_H_
#define NP_SOFT_DRAIN_H_

#include "process.h"
#include "wire.h"

#include "../../engine.h"
#include "../../mem/atomic.h"
#include "../../unit.h"

/** How long to wait for a peer that is in the middle of something that takes
 *  microseconds, in ns of our own waiting: pauses in which we did not run count
 *  NP_PATIENCE_SLICE at most. For a peer of our own user, who could stop us
 *  anyway, time does not count while it is stopped or sleeps in the kernel. */
#ifndef NP_PATIENCE
#  define NP_PATIENCE       1000000000ull
#endif
#define NP_PATIENCE_SLICE   10000000ull

/** A word of our own. We go by our copy: the other end could write the shared
 *  one. */
typedef struct np_moving_own {
    np_moving_t      *shared;
    _Atomic uint32_t word;
    int              is_fenced; /**< one of the ends cannot have a barrier in
                                     the other (np_barrier_peers). Changed
                                     before the mover has moved anything. */
} np_moving_own_t;

/** The same around an atomic on our own memory */
typedef struct np_moving_unit {
    np_atomic_unit_t super;
    np_moving_own_t  *moving;
} np_moving_unit_t;

/** A segment whose movers may touch this process's memory.
 *  Owner: the link or peer that it is part of. */
typedef struct np_drain_entry {
    ucs_list_link_t list;        /**< of all; guarded by its lock */
    np_link_shm_t   *shm;
    int             fd;          /**< of the connection; open while this is in
                                      the list */
    np_process_t    *process;    /**< the other end; as long as this is in the
                                      list */
    unsigned        ours;        /**< bitmap of np_mover_t that this process
                                      is */
    np_moving_own_t own[NP_MOVER_LAST];
    unsigned        waiters;     /**< drains that wait for one of its movers;
                                      guarded by the list's lock. It stays in
                                      the list until there are none. */
    _Atomic int     is_leaving;  /**< its owner waits for these: no excuses any
                                      more */
    _Atomic int     is_over;     /**< given up: see np_drain_give_up */
} np_drain_entry_t;

/** Waiting for a peer */
typedef struct np_patience {
    const np_drain_entry_t *entry;
    uint64_t               last;   /**< time of the last look, in ns */
    uint64_t               left;   /**< ns */
    unsigned               spins;
} np_patience_t;

void np_moving_unit_init(np_moving_unit_t *unit, np_moving_own_t *moving);

void np_drain_add(np_drain_entry_t *entry, np_link_shm_t *shm, int fd,
                  np_process_t *process, unsigned ours);

/** Can both ends have a barrier in the other? Said before anything is moved;
 *  no, unless it is said. */
void np_drain_set_barrier(np_drain_entry_t *entry, int has_barrier);

/**
 * Its shm, its fd and its process are not looked at any more after this call;
 * harmless if never added. Its owner, under no lock. A drain that waits for one
 * of its movers comes to its end first, in about NP_PATIENCE, whether the peer
 * is stopped or not; drains that wait for others are not waited for.
 */
void np_drain_remove(np_drain_entry_t *entry);

/** Would np_drain_remove() have to wait now? Its owner. */
int np_drain_is_waited_for(const np_drain_entry_t *entry);

void np_patience_init(np_patience_t *patience, const np_drain_entry_t *entry);

/**
 * To be called in a loop that waits for the other end.
 *
 * @return UCS_INPROGRESS: wait on; UCS_ERR_CONNECTION_RESET: it is dead;
 *         UCS_ERR_TIMED_OUT: it has been waited for long enough.
 */
ucs_status_t np_patience_look(np_patience_t *patience);

/** The other end has been waited for long enough: says so, tells it, and shuts
 *  the connection down, which its owner hears of. Once. Any thread. */
void np_drain_give_up(np_drain_entry_t *entry);

/** What the other end of a link's segment has in flight has landed when this
 *  returns, or it is dead or given up. Whatever must stop it from beginning
 *  anew has been stored before. The link's owner. */
void np_drain_target(np_drain_entry_t *entry);

/**
 * What devices may have cached of [va, va + len) is stale from now on, and what
 * they had in flight, anywhere, has landed when this returns. Any thread that
 * is not itself moving, under no lock that a port needs: it may take
 * NP_PATIENCE for each peer, and with a peer of our own user that is stopped as
 * long as it is stopped.
 */
void np_drain(uint64_t va, uint64_t len);

/** The first half alone: without a wait. Enough where pages were added. */
void np_drain_refresh(uint64_t va, uint64_t len);


/** From here on translations are looked at. One writer a word at a time. */
static UCS_F_ALWAYS_INLINE void np_moving_begin(np_moving_own_t *moving)
{
    uint32_t word = atomic_load_explicit(&moving->word, memory_order_relaxed);

    np_assertv(!(word & 1), "two units of one mover at once");
    np_unit_enter();
    atomic_store_explicit(&moving->word, word + 1, memory_order_relaxed);
    atomic_store_explicit(&moving->shared->word, word + 1,
                          memory_order_relaxed);
    if (ucs_likely(!moving->is_fenced)) {
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_thread_fence(memory_order_seq_cst);
    }
}

/** Has the other end given us up? Between begin and end: then nothing is to be
 *  moved. */
static UCS_F_ALWAYS_INLINE int np_moving_is_ended(const np_moving_own_t *moving)
{
    return ucs_unlikely(atomic_load_explicit(&moving->shared->ended,
                                             memory_order_relaxed) != 0);
}

/** @return 0 if the other end has not waited for this end: what was moved may
 *          be lost, and counts as not moved. */
static UCS_F_ALWAYS_INLINE int np_moving_end(np_moving_own_t *moving)
{
    uint32_t word = atomic_load_explicit(&moving->word, memory_order_relaxed);
    int in_time;

    np_assertv(word & 1, "the end of a unit that has not begun");
    np_unit_leave();
    /* between what was moved and the look at `ended`: np_drain_give_up pays for
     * it where it can */
    if (ucs_unlikely(moving->is_fenced)) {
        atomic_thread_fence(memory_order_seq_cst);
    }
    in_time = !np_moving_is_ended(moving);

    /* release: what was moved has landed */
    atomic_store_explicit(&moving->word, word + 1, memory_order_release);
    atomic_store_explicit(&moving->shared->word, word + 1,
                          memory_order_release);
    return in_time;
}

#endif
