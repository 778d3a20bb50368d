/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Units in flight.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "drain.h"

#include "../host.h"

#include "../../clock.h"
#include "../../mem/table.h"
#include "../../stats.h"
#include "../../thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

/* Looks at a word before asking whether its writer still lives, which costs as
 * much as some units do */
#ifndef NP_DRAIN_SPINS
#  define NP_DRAIN_SPINS 10000
#endif

/* Guards what follows, and the fields of listed entries that say so. No thread
 * waits for a mover under it: connecting, closing and answering take it on
 * every port. */
static pthread_mutex_t np_drain_lock = PTHREAD_MUTEX_INITIALIZER;

/* All segments, the newest first: a drain need not see those that come while it
 * waits, for their movers begin after its barrier. Each is its owner's. */
static UCS_LIST_HEAD(np_drain_entries);

/* The waiters of an entry have become 0 */
static pthread_cond_t np_drain_left = PTHREAD_COND_INITIALIZER;

/* Counts of all drains; guarded by the lock */
static np_stats_t *np_drain_stats;

static pthread_once_t np_drain_once = PTHREAD_ONCE_INIT;


/* The entries are the parent's: a child has nothing to do with its peers */
static void np_drain_after_fork(void)
{
    pthread_mutex_init(&np_drain_lock, NULL);
    pthread_cond_init(&np_drain_left, NULL);
    ucs_list_head_init(&np_drain_entries);
    np_drain_stats = NULL;
}

static void np_drain_init(void)
{
    np_at_fork(NULL, NULL, np_drain_after_fork);
}

static int np_moving_unit_begin(np_atomic_unit_t *self)
{
    np_moving_unit_t *unit = ucs_container_of(self, np_moving_unit_t, super);

    np_moving_begin(unit->moving);
    return !np_moving_is_ended(unit->moving);
}

/* Executed is executed: a peer that has given up waiting takes no answer */
static void np_moving_unit_end(np_atomic_unit_t *self)
{
    np_moving_unit_t *unit = ucs_container_of(self, np_moving_unit_t, super);

    (void)np_moving_end(unit->moving);
}

void np_moving_unit_init(np_moving_unit_t *unit, np_moving_own_t *moving)
{
    unit->super.begin = np_moving_unit_begin;
    unit->super.end   = np_moving_unit_end;
    unit->moving      = moving;
}

void np_drain_add(np_drain_entry_t *entry, np_link_shm_t *shm, int fd,
                  np_process_t *process, unsigned ours)
{
    np_mover_t mover;

    entry->shm     = shm;
    entry->fd      = fd;
    entry->process = process;
    entry->ours    = ours;
    for (mover = 0; mover < NP_MOVER_LAST; ++mover) {
        entry->own[mover].shared = &shm->moving[mover];
        atomic_init(&entry->own[mover].word, 0);
        entry->own[mover].is_fenced = 1;
    }
    entry->waiters = 0;
    atomic_init(&entry->is_leaving, 0);
    atomic_init(&entry->is_over, 0);
    pthread_once(&np_drain_once, np_drain_init);
    pthread_mutex_lock(&np_drain_lock);
    ucs_list_add_head(&np_drain_entries, &entry->list);
    pthread_mutex_unlock(&np_drain_lock);
}

void np_drain_set_barrier(np_drain_entry_t *entry, int has_barrier)
{
    np_mover_t mover;

    for (mover = 0; mover < NP_MOVER_LAST; ++mover) {
        entry->own[mover].is_fenced = !has_barrier;
    }
}

/* Wait until no drain waits for its movers any more. Under the lock, which is
 * released meanwhile. */
static void np_drain_leave(np_drain_entry_t *entry)
{
    int state;

    /* seen by the threads that wait; relaxed: soon is enough */
    atomic_store_explicit(&entry->is_leaving, 1, memory_order_relaxed);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    while (entry->waiters > 0) {
        pthread_cond_wait(&np_drain_left, &np_drain_lock);
    }
    pthread_setcancelstate(state, NULL);
}

void np_drain_remove(np_drain_entry_t *entry)
{
    pthread_mutex_lock(&np_drain_lock);
    if (entry->shm != NULL) {
        if (entry->waiters > 0) {
            np_drain_leave(entry);
        }
        ucs_list_del(&entry->list);
        entry->shm = NULL;
    }
    pthread_mutex_unlock(&np_drain_lock);
}

int np_drain_is_waited_for(const np_drain_entry_t *entry)
{
    int is_waited_for;

    pthread_mutex_lock(&np_drain_lock);
    is_waited_for = (entry->shm != NULL) && (entry->waiters > 0);
    pthread_mutex_unlock(&np_drain_lock);
    return is_waited_for;
}

void np_patience_init(np_patience_t *patience, const np_drain_entry_t *entry)
{
    *patience = (np_patience_t){
        .entry = entry,
        .left  = NP_PATIENCE
    };
}

/* It may be in a debugger or wait for a slow disk: not its fault. Another
 * user's process could pretend that; and closing a connection does not wait for
 * a debugger. */
static int np_drain_is_excused(const np_drain_entry_t *entry)
{
    return !atomic_load_explicit(&entry->is_leaving, memory_order_relaxed) &&
           (entry->process->uid == np_engine.uid) &&
           (entry->process->pid != 0) &&
           np_host_proc_is_stopped(entry->process->pid);
}

ucs_status_t np_patience_look(np_patience_t *patience)
{
    uint64_t now, passed;

    if (++patience->spins < NP_DRAIN_SPINS) {
        return UCS_INPROGRESS;
    }

    patience->spins = 0;
    if (!np_process_runs(patience->entry->process)) {
        return UCS_ERR_CONNECTION_RESET;
    }

    now            = np_clock();
    passed         = (patience->last == 0) ? 0 :
                     ucs_min(now - patience->last, NP_PATIENCE_SLICE);
    patience->last = now;
    if ((passed > 0) && !np_drain_is_excused(patience->entry)) {
        if (passed >= patience->left) {
            return UCS_ERR_TIMED_OUT;
        }
        patience->left -= passed;
    }

    sched_yield();
    return UCS_INPROGRESS;
}

void np_drain_give_up(np_drain_entry_t *entry)
{
    np_mover_t mover;

    if (atomic_exchange(&entry->is_over, 1)) {
        return;
    }

    np_error("process %d (user %d) has not come to the end of what it moves, "
             "which takes microseconds: its connection ends",
             entry->process->pid, entry->process->uid);
    for (mover = 0; mover < NP_MOVER_LAST; ++mover) {
        if (!(entry->ours & UCS_BIT(mover))) {
            atomic_store_explicit(&entry->shm->moving[mover].ended, 1,
                                  memory_order_relaxed);
        }
    }

    /* A mover that ends a unit after this sees it, and one that has not seen it
     * has moved before; one that begins sees it, or has marked its word */
    np_barrier_peers();
    shutdown(entry->fd, SHUT_RDWR);
}

/* A mover of our own is as honest as we are */
static void np_drain_own(const np_moving_own_t *own)
{
    unsigned spins = 0;
    uint32_t before;

    /* acquire: what was in flight has landed */
    before = atomic_load_explicit(&own->word, memory_order_acquire);
    while ((before & 1) &&
           (atomic_load_explicit(&own->word, memory_order_acquire) == before)) {
        if (++spins == NP_DRAIN_SPINS) {
            spins = 0;
            sched_yield();
        }
    }
}

/* Wait for the end of the unit that @a before is of. Returns 0 if the word has
 * not changed in all the time that there was. */
static int np_drain_unit(const np_drain_entry_t *entry, np_mover_t mover,
                         uint32_t before)
{
    _Atomic uint32_t *word = &entry->shm->moving[mover].word;
    ucs_status_t status    = UCS_INPROGRESS;
    np_patience_t patience;

    np_patience_init(&patience, entry);
    while ((status == UCS_INPROGRESS) &&
           (atomic_load_explicit(word, memory_order_acquire) == before)) {
        status = np_patience_look(&patience);
    }
    return status != UCS_ERR_TIMED_OUT;
}

static void np_drain_word(np_drain_entry_t *entry, np_mover_t mover)
{
    _Atomic uint32_t *word = &entry->shm->moving[mover].word;
    uint32_t before, now;

    /* acquire: what was in flight has landed */
    before = atomic_load_explicit(word, memory_order_acquire);
    if (!(before & 1) || np_drain_unit(entry, mover, before)) {
        return;
    }

    np_drain_give_up(entry);

    /* At the last moment it may have ended the unit, and have begun another */
    now = atomic_load_explicit(word, memory_order_acquire);
    if ((now & 1) && (now != before)) {
        np_drain_unit(entry, mover, now);
    }
}

/* Is anything in flight? An end that was given up does not count. */
static int np_drain_is_moving(const np_drain_entry_t *entry)
{
    const int is_over = atomic_load_explicit(&entry->is_over,
                                             memory_order_relaxed);
    const _Atomic uint32_t *word;
    np_mover_t mover;

    for (mover = 0; mover < NP_MOVER_LAST; ++mover) {
        if (entry->ours & UCS_BIT(mover)) {
            word = &entry->own[mover].word;
        } else if (!is_over) {
            word = &entry->shm->moving[mover].word;
        } else {
            continue;
        }

        /* acquire: what was in flight has landed */
        if (atomic_load_explicit(word, memory_order_acquire) & 1) {
            return 1;
        }
    }
    return 0;
}

/* All movers of the other end; and our own, if @a with_own */
static void np_drain_movers(np_drain_entry_t *entry, int with_own)
{
    np_mover_t mover;

    for (mover = 0; mover < NP_MOVER_LAST; ++mover) {
        if (entry->ours & UCS_BIT(mover)) {
            if (with_own) {
                np_drain_own(&entry->own[mover]);
            }
        } else if (!atomic_load_explicit(&entry->is_over,
                                         memory_order_relaxed)) {
            np_drain_word(entry, mover);
        }
    }
}

void np_drain_target(np_drain_entry_t *entry)
{
    np_unit_assert_outside();
    np_barrier_peers();
    np_drain_movers(entry, 0);
}

/* Under the lock, which is released meanwhile: the entry stays in the list, and
 * what it names in its place, but its neighbours come and go */
static void np_drain_wait(np_drain_entry_t *entry)
{
    int state;

    ++entry->waiters;
    pthread_mutex_unlock(&np_drain_lock);

    /* The thread that removes it relies on our coming back */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    np_drain_movers(entry, 1);
    pthread_setcancelstate(state, NULL);

    pthread_mutex_lock(&np_drain_lock);
    if (--entry->waiters == 0) {
        pthread_cond_broadcast(&np_drain_left);
    }
}

void np_drain_refresh(uint64_t va, uint64_t len)
{
    np_directory_t *directory = np_directory_own();
    const uint64_t first      = va >> NP_PAGE_SHIFT;
    const uint64_t count      = ucs_min(np_page_count(va, len),
                                        (uint64_t)NP_DIRECTORY_FLUSHES);
    uint64_t i;

    if ((np_engine.config.tlb.mode == NP_TLB_OFF) || (directory == NULL)) {
        atomic_thread_fence(memory_order_seq_cst);
        return;
    }

    for (i = 0; i < count; ++i) {
        atomic_fetch_add_explicit(
                &directory->flushes[(first + i) % NP_DIRECTORY_FLUSHES], 1,
                memory_order_seq_cst);
    }
}

void np_drain(uint64_t va, uint64_t len)
{
    np_drain_entry_t *entry;

    np_unit_assert_outside();
    np_drain_refresh(va, len);

    /* A mover that begins after this sees the new translations; one that has
     * begun before has marked its word */
    np_barrier_peers();

    pthread_mutex_lock(&np_drain_lock);
    if (np_drain_stats == NULL) {
        np_drain_stats = np_stats_get();
    }
    NP_STATS_INC(np_drain_stats, flushes);
    ucs_list_for_each(entry, &np_drain_entries, list) {
        if (np_drain_is_moving(entry)) {
            np_drain_wait(entry);
        }
    }
    pthread_mutex_unlock(&np_drain_lock);
}
