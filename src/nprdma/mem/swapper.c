/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranges that the program swaps by itself.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "swapper.h"

#include "kmod.h"

#include "../unit.h"
#include "../thread.h"

#include <pthread.h>
#include <stdlib.h>

/* Guards np_swap_ranges and the counts; not held while a swapper runs */
static pthread_mutex_t np_swap_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t np_swap_idle  = PTHREAD_COND_INITIALIZER;
static UCS_LIST_HEAD(np_swap_ranges);

/* How many there are; most programs have none */
static _Atomic unsigned np_swap_count;

/* Copies in progress: those from before the last wait began, and those from
 * after; guarded by np_swap_lock */
static unsigned np_swap_copies[2];
static int np_swap_phase;

/* One thread waits at a time; taken before np_swap_lock */
static pthread_mutex_t np_swap_wait_lock = PTHREAD_MUTEX_INITIALIZER;

/* Held while a range is added and blocked in the module, and while it is
 * unblocked: so that a range that is there is blocked. Taken before
 * np_swap_lock. */
static pthread_mutex_t np_swap_block_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_once_t np_swap_atfork_once = PTHREAD_ONCE_INIT;


/* The first range that ends after @a va; NULL: none */
static np_swap_range_t *np_swap_range_find_locked(uint64_t va)
{
    np_swap_range_t *range;

    np_assert_locked(&np_swap_lock);
    ucs_list_for_each(range, &np_swap_ranges, list) {
        if (va < range->end) {
            return range;
        }
    }

    return NULL;
}

np_swap_range_t *np_swap_range_get(uint64_t va, uint64_t end)
{
    np_swap_range_t *range;

    if (ucs_likely(atomic_load_explicit(&np_swap_count,
                                        memory_order_acquire) == 0)) {
        return NULL;
    }

    pthread_mutex_lock(&np_swap_lock);
    range = np_swap_range_find_locked(va);
    if ((range != NULL) && (range->first < end)) {
        ++range->refs;
    } else {
        range = NULL;
    }
    pthread_mutex_unlock(&np_swap_lock);
    return range;
}

void np_swap_range_put(np_swap_range_t *range)
{
    pthread_mutex_lock(&np_swap_lock);
    if (--range->refs == 0) {
        pthread_cond_broadcast(&np_swap_idle);
    }
    pthread_mutex_unlock(&np_swap_lock);
}

/* A child has none of its parent's ranges: at the fork, threads of the parent
 * may be in one of them, and hold the lock */
static void np_swap_atfork(void)
{
    if (pthread_atfork(NULL, NULL, np_mapper_after_fork) != 0) {
        np_warn("no memory for a fork handler: a forked child must not use "
                "memory that its parent swaps");
    }
}

/* Without entries the swapper would not be asked before the bytes are copied */
static int np_swap_has_tables(np_arenas_t arenas)
{
    uint32_t i;

    for (i = 0; i < arenas.count; ++i) {
        if (np_table_get(arenas.first + i) == NULL) {
            return 0;
        }
    }
    return 1;
}

ucs_status_t np_mapper_add_swapper(uint64_t va, uint64_t len,
                                   const np_swapper_t *swapper)
{
    np_swap_range_t *range, *next;
    np_arenas_t arenas;
    int is_blocked;

    if ((len == 0) || (((va | len) & (NP_PAGE_SIZE - 1)) != 0) ||
        (swapper->swap_in == NULL) ||
        (np_arenas_of(va, len, &arenas) != UCS_OK)) {
        np_error("no swapper for %#lx..%#lx: it takes whole pages of user "
                 "addresses, and a function that brings them in", va, va + len);
        return UCS_ERR_INVALID_PARAM;
    }

    if (!np_swap_has_tables(arenas)) {
        np_error("no swapper for %#lx..%#lx: there is no table for this memory "
                 "(a forked child has none; others have some for %u GiB, if "
                 "'ulimit -v' and 'ulimit -f' let them)", va, va + len,
                 NP_TABLE_ARENAS);
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    range = calloc(1, sizeof(*range));
    if (range == NULL) {
        np_error("no memory for a swapper");
        return UCS_ERR_NO_MEMORY;
    }

    range->first   = va;
    range->end     = va + len;
    range->swapper = *swapper;
    pthread_once(&np_swap_atfork_once, np_swap_atfork);

    pthread_mutex_lock(&np_swap_block_lock);
    pthread_mutex_lock(&np_swap_lock);
    next = np_swap_range_find_locked(va);
    if ((next != NULL) && (next->first < range->end)) {
        pthread_mutex_unlock(&np_swap_lock);
        pthread_mutex_unlock(&np_swap_block_lock);
        np_error("no swapper for %#lx..%#lx: there is one for %#lx..%#lx", va,
                 va + len, next->first, next->end);
        free(range);
        return UCS_ERR_ALREADY_EXISTS;
    }

    ucs_list_insert_before((next != NULL) ? &next->list : &np_swap_ranges,
                           &range->list);
    atomic_fetch_add_explicit(&np_swap_count, 1, memory_order_release);
    pthread_mutex_unlock(&np_swap_lock);
    is_blocked = np_kmod_block(va, len);
    pthread_mutex_unlock(&np_swap_block_lock);
    if (!is_blocked) {
        np_mapper_remove_swapper(va, len);
        return UCS_ERR_NO_MEMORY;
    }
    return UCS_OK;
}

/* Unblock what belongs to no other range by now. Under np_swap_block_lock. */
static void np_swap_unblock(uint64_t va, uint64_t end)
{
    np_swap_range_t *range;
    uint64_t stop, next;

    for (; va < end; va = next) {
        range = np_swap_range_get(va, end);
        stop  = (range == NULL) ? end : ucs_max(range->first, va);
        next  = (range == NULL) ? end : ucs_min(range->end, end);
        if (stop > va) {
            np_kmod_unblock(va, stop - va);
        }
        if (range != NULL) {
            np_swap_range_put(range);
        }
    }
}

ucs_status_t np_mapper_remove_swapper(uint64_t va, uint64_t len)
{
    np_swap_range_t *range;

    pthread_mutex_lock(&np_swap_lock);
    range = np_swap_range_find_locked(va);
    if ((range == NULL) || (range->first != va) ||
        (range->end != (va + len))) {
        pthread_mutex_unlock(&np_swap_lock);
        return UCS_ERR_NO_ELEM;
    }

    ucs_list_del(&range->list);
    atomic_fetch_sub_explicit(&np_swap_count, 1, memory_order_release);
    while (range->refs > 0) {
        pthread_cond_wait(&np_swap_idle, &np_swap_lock);
    }
    pthread_mutex_unlock(&np_swap_lock);

    pthread_mutex_lock(&np_swap_block_lock);
    np_swap_unblock(va, va + len);
    pthread_mutex_unlock(&np_swap_block_lock);
    free(range);
    return UCS_OK;
}

int np_swap_copy_begin(void)
{
    int phase;

    np_unit_enter();
    pthread_mutex_lock(&np_swap_lock);
    phase = np_swap_phase;
    ++np_swap_copies[phase];
    pthread_mutex_unlock(&np_swap_lock);
    return phase;
}

void np_swap_copy_end(int phase)
{
    pthread_mutex_lock(&np_swap_lock);
    np_assert(np_swap_copies[phase] > 0);
    if (--np_swap_copies[phase] == 0) {
        pthread_cond_broadcast(&np_swap_idle);
    }
    pthread_mutex_unlock(&np_swap_lock);
    np_unit_leave();
}

void np_swap_wait_copies(void)
{
    int phase;

    np_unit_assert_outside();

    if (ucs_likely((atomic_load_explicit(&np_swap_count,
                                         memory_order_acquire) == 0) &&
                   !np_file_are_there())) {
        return;
    }

    pthread_mutex_lock(&np_swap_wait_lock);
    pthread_mutex_lock(&np_swap_lock);
    phase         = np_swap_phase;
    np_swap_phase = !phase;
    while (np_swap_copies[phase] > 0) {
        pthread_cond_wait(&np_swap_idle, &np_swap_lock);
    }
    pthread_mutex_unlock(&np_swap_lock);
    pthread_mutex_unlock(&np_swap_wait_lock);
}

void np_swap_range_after_fork(void)
{
    pthread_mutex_init(&np_swap_wait_lock, NULL);
    pthread_mutex_init(&np_swap_block_lock, NULL);
    np_swap_copies[0] = np_swap_copies[1] = 0;
    pthread_mutex_init(&np_swap_lock, NULL);
    pthread_cond_init(&np_swap_idle, NULL);
    ucs_list_head_init(&np_swap_ranges);
    atomic_store_explicit(&np_swap_count, 0, memory_order_relaxed);
}
