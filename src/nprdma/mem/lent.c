/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the program has lent.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "lent.h"

#include "bypass.h"
#include "swapper.h"

#include "../thread.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define NP_LENT_WORD 64

/* A look at a range must not meet the writes of those that read another one */
struct np_lent_range {
    _Atomic uint64_t va;
    _Atomic uint64_t end;     /* 0: not lent. Written by the one who has it */
    _Atomic uint32_t users;   /* threads that are copying it, or have begun to
                                 look whether they may */
} NP_LINE_ALIGNED;

/* Aligned: the first registrations touch one page */
static struct {
    /* guards used[]; no thread waits for a user under it */
    pthread_mutex_t  lock;
    /* bitmap: has somebody this range? The last bit is of none. */
    uint64_t         used[(NP_LENT_MAX + 1) / NP_LENT_WORD];
    /* all that are used are below it; relaxed: who needs a range knows that it
     * has been lent before */
    _Atomic unsigned top;
    np_lent_range_t  ranges[NP_LENT_MAX];
} np_lent __attribute__((aligned(4096))) = {
    .lock = PTHREAD_MUTEX_INITIALIZER
};


/* Its parent's threads do not copy here, nor hold the lock */
static void np_lent_after_fork(void)
{
    const unsigned top = atomic_load_explicit(&np_lent.top,
                                              memory_order_relaxed);
    unsigned i;

    pthread_mutex_init(&np_lent.lock, NULL);
    for (i = 0; i < top; ++i) {
        atomic_store_explicit(&np_lent.ranges[i].users, 0,
                              memory_order_relaxed);
    }
}

void np_lent_start(void)
{
    np_at_fork(NULL, NULL, np_lent_after_fork);
    /* this page is written now, and not by the first registration */
    pthread_mutex_lock(&np_lent.lock);
    pthread_mutex_unlock(&np_lent.lock);
}

/* One that nobody has; NP_LENT_MAX: none. Under the lock. */
static unsigned np_lent_get(void)
{
    unsigned word, i = NP_LENT_MAX;

    for (word = 0; word < ucs_static_array_size(np_lent.used); ++word) {
        if (~np_lent.used[word] != 0) {
            i = (word * NP_LENT_WORD) + __builtin_ctzll(~np_lent.used[word]);
            break;
        }
    }

    if (i < NP_LENT_MAX) {
        np_lent.used[word] |= UCS_BIT(i % NP_LENT_WORD);
    }
    return i;
}

unsigned np_lent_begin(uint64_t va, uint64_t len)
{
    np_lent_range_t *range;
    unsigned i;

    if ((len == 0) || (len > (UINT64_MAX - va))) {
        return 0;
    }

    pthread_mutex_lock(&np_lent.lock);
    i = np_lent_get();
    if (i < NP_LENT_MAX) {
        range = &np_lent.ranges[i];
        atomic_store_explicit(&range->va, va, memory_order_relaxed);
        /* release: who sees the end sees the beginning */
        atomic_store_explicit(&range->end, va + len, memory_order_release);
        if (i >= atomic_load_explicit(&np_lent.top, memory_order_relaxed)) {
            atomic_store_explicit(&np_lent.top, i + 1, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&np_lent.lock);
    return (i < NP_LENT_MAX) ? (i + 1) : 0;
}

void np_lent_end(unsigned id)
{
    np_lent_range_t *range;

    if (id == 0) {
        return;
    }

    np_assertv(id <= NP_LENT_MAX, "range %u of what is lent", id);
    range = &np_lent.ranges[id - 1];
    /* seq_cst, as np_lent_enter: either it sees the end, or we see it */
    atomic_store_explicit(&range->end, 0, memory_order_seq_cst);
    while (atomic_load_explicit(&range->users, memory_order_seq_cst) != 0) {
        sched_yield();
    }

    pthread_mutex_lock(&np_lent.lock);
    np_lent.used[(id - 1) / NP_LENT_WORD] &=
            ~UCS_BIT((id - 1) % NP_LENT_WORD);
    pthread_mutex_unlock(&np_lent.lock);
}

static int np_lent_has(np_lent_range_t *range, uint64_t va, size_t len)
{
    /* acquire: see np_lent_begin. In this order: if the range has become
     * another one meanwhile, np_lent_enter looks once more while it cannot. */
    const uint64_t end = atomic_load_explicit(&range->end,
                                              memory_order_acquire);

    return (end != 0) && (va < end) && (len <= (end - va)) &&
           (atomic_load_explicit(&range->va, memory_order_relaxed) <= va);
}

/* Have the range stay while it is copied; returns 0 if it has ended */
static int np_lent_enter(np_lent_range_t *range, uint64_t va, size_t len)
{
    atomic_fetch_add_explicit(&range->users, 1, memory_order_seq_cst);
    if ((atomic_load_explicit(&range->end, memory_order_seq_cst) != 0) &&
        np_lent_has(range, va, len)) {
        return 1;
    }

    atomic_fetch_sub_explicit(&range->users, 1, memory_order_release);
    return 0;
}

/* A word is written once and whole, which memcpy() of a length that it does not
 * know beforehand does not promise */
static void np_lent_move(void *dst, const void *src, size_t len, int is_past)
{
    switch (len) {
    case 8:
        memcpy(dst, src, 8);
        break;
    case 4:
        memcpy(dst, src, 4);
        break;
    case 2:
        memcpy(dst, src, 2);
        break;
    default:
        np_bypass_copy_if(is_past, dst, src, len);
    }
}

void np_lent_leave(np_lent_range_t **kept)
{
    if (*kept != NULL) {
        /* release: what was copied was copied before */
        atomic_fetch_sub_explicit(&(*kept)->users, 1, memory_order_release);
        *kept = NULL;
    }
}

/* Keep the range that has all of it; returns 0 if there is none. Who waits in a
 * page of one range keeps no other. */
static int np_lent_find(uint64_t va, size_t len, np_lent_range_t **kept)
{
    np_lent_range_t *range = *kept;
    unsigned top;

    if ((range != NULL) && np_lent_has(range, va, len)) {
        return 1;
    }

    np_lent_leave(kept);
    top = atomic_load_explicit(&np_lent.top, memory_order_relaxed);
    for (range = np_lent.ranges; range < &np_lent.ranges[top]; ++range) {
        if (np_lent_has(range, va, len) && np_lent_enter(range, va, len)) {
            *kept = range;
            return 1;
        }
    }
    return 0;
}

int np_lent_copy(np_dir_t dir, uint64_t va, void *area, size_t len, int is_past,
                 np_lent_range_t **kept)
{
    if (np_swap_range_touches(va, len) || !np_lent_find(va, len, kept)) {
        return 0; /* a swapper takes pages away while they are registered */
    }

    if (dir == NP_DIR_PUT) {
        np_lent_move((void*)va, area, len, 0);
    } else {
        np_lent_move(area, (const void*)va, len, is_past);
    }
    /* a swapper that has come meanwhile may have taken some */
    return !np_swap_range_touches(va, len);
}
