/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Units in flight: who moves data marks a word of the link's segment while it
 * does, and a page that is taken from the device goes only when every word of
 * every segment of this process has changed, or its writer is dead.
 *
 * Beginning costs a store: the fence that orders it before the look at the
 * translations is paid by np_drain, through np_barrier_peers().
 */

#ifndef NP_SOFT_DRAIN_H_
#define NP_SOFT_DRAIN_H_

#include "wire.h"

#include "../../engine.h"

/** A segment whose movers may touch this process's memory.
 *  Owner: the link or peer that it is part of. */
typedef struct np_drain_entry {
    ucs_list_link_t list;        /**< of all; guarded by its lock */
    np_link_shm_t   *shm;
    pid_t           pid;         /**< the other end; 0: not in our namespace */
    uint64_t        start_time;
    unsigned        ours;        /**< bitmap of np_mover_t that this process is */
} np_drain_entry_t;

void np_drain_add(np_drain_entry_t *entry, np_link_shm_t *shm, pid_t pid,
                  uint64_t start_time, unsigned ours);

/** Its shm is not looked at any more after this call; harmless if never added */
void np_drain_remove(np_drain_entry_t *entry);

/** What the other end of a link's segment has in flight has landed when this
 *  returns, or it is dead. Whatever must stop it from beginning anew has been
 *  stored before. The link's owner. */
void np_drain_target(np_drain_entry_t *entry);

/**
 * What devices may have cached is stale from now on, and what they had in flight
 * has landed when this returns. Any thread that is not itself moving.
 */
void np_drain(void);

/** The first half alone: nobody is waited for. Enough where pages were added. */
void np_drain_refresh(void);


/** From here on translations are looked at. One writer a word at a time. */
static UCS_F_ALWAYS_INLINE void np_moving_begin(np_moving_t *moving)
{
    uint32_t word = atomic_load_explicit(&moving->word, memory_order_relaxed);

    atomic_store_explicit(&moving->word, word + 1, memory_order_relaxed);
    if (ucs_likely(np_engine.has_membarrier)) {
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_thread_fence(memory_order_seq_cst);
    }
}

static UCS_F_ALWAYS_INLINE void np_moving_end(np_moving_t *moving)
{
    uint32_t word = atomic_load_explicit(&moving->word, memory_order_relaxed);

    /* release: what was moved has landed */
    atomic_store_explicit(&moving->word, word + 1, memory_order_release);
}

#endif
