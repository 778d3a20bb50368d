/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Units in flight.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "drain.h"

#include "host.h"

#include "../../mem/table.h"
#include "../../stats.h"

#include <pthread.h>
#include <sched.h>

/* Looks at a word before asking whether its writer still lives, which costs as
 * much as some units do */
#define NP_DRAIN_SPINS 10000

/* All segments; guarded by the lock. A drain holds it: units are short. */
static pthread_mutex_t np_drain_lock = PTHREAD_MUTEX_INITIALIZER;
static UCS_LIST_HEAD(np_drain_entries);


void np_drain_add(np_drain_entry_t *entry, np_link_shm_t *shm, pid_t pid,
                  uint64_t start_time, unsigned ours)
{
    entry->shm        = shm;
    entry->pid        = pid;
    entry->start_time = start_time;
    entry->ours       = ours;
    pthread_mutex_lock(&np_drain_lock);
    ucs_list_add_tail(&np_drain_entries, &entry->list);
    pthread_mutex_unlock(&np_drain_lock);
}

void np_drain_remove(np_drain_entry_t *entry)
{
    pthread_mutex_lock(&np_drain_lock);
    if (entry->shm != NULL) {
        ucs_list_del(&entry->list);
        entry->shm = NULL;
    }
    pthread_mutex_unlock(&np_drain_lock);
}

/* A process that we cannot see in our namespace counts as alive: its death ends
 * the connection, and that removes the entry */
static int np_drain_is_dead(const np_drain_entry_t *entry, np_mover_t mover)
{
    return !(entry->ours & UCS_BIT(mover)) && (entry->pid != 0) &&
           (np_host_proc_start_time(entry->pid) != entry->start_time);
}

static void np_drain_word(const np_drain_entry_t *entry, np_mover_t mover)
{
    _Atomic uint32_t *word = &entry->shm->moving[mover].word;
    unsigned spins         = 0;
    uint32_t before;

    /* acquire: what was in flight has landed */
    before = atomic_load_explicit(word, memory_order_acquire);
    if (!(before & 1)) {
        return;
    }

    while (atomic_load_explicit(word, memory_order_acquire) == before) {
        if (++spins == NP_DRAIN_SPINS) {
            if (np_drain_is_dead(entry, mover)) {
                return;
            }
            spins = 0;
            sched_yield();
        }
    }
}

void np_drain_target(np_drain_entry_t *entry)
{
    np_mover_t mover;

    np_barrier_peers();
    for (mover = NP_MOVER_TARGET; mover < NP_MOVER_LAST; ++mover) {
        np_drain_word(entry, mover);
    }
}

/* Counts of whoever drains; guarded by the lock */
static np_stats_t *np_drain_stats;

void np_drain_refresh(void)
{
    np_directory_t *directory = np_directory_own();

    if (directory != NULL) {
        atomic_fetch_add_explicit(&directory->flushes, 1,
                                  memory_order_seq_cst);
    }
}

void np_drain(void)
{
    np_drain_entry_t *entry;
    np_mover_t mover;

    np_drain_refresh();

    /* Whoever begins after this sees the new translations; whoever has begun
     * before has marked its word */
    np_barrier_peers();

    pthread_mutex_lock(&np_drain_lock);
    if (np_drain_stats == NULL) {
        np_drain_stats = np_stats_get();
    }
    NP_STATS_INC(np_drain_stats, flushes);
    ucs_list_for_each(entry, &np_drain_entries, list) {
        for (mover = 0; mover < NP_MOVER_LAST; ++mover) {
            np_drain_word(entry, mover);
        }
    }
    pthread_mutex_unlock(&np_drain_lock);
}
