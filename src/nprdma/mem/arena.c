/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of arenas: two levels, leaves made on first need and kept until
 * the process ends, so that a look-up needs no lock.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "arena.h"

#include <sys/mman.h>

#define NP_ARENA_LEAF_SHIFT   14
#define NP_ARENA_LEAF_SIZE    (1u << NP_ARENA_LEAF_SHIFT)
#define NP_ARENA_TOP_SIZE     (NP_ARENA_MAX >> NP_ARENA_LEAF_SHIFT)

/* State of one arena: flags, and above them the number of its table plus 1.
 * Each is written once, by the thread that needs it first, and never unset; but
 * NP_ARENA_FILES is, by a forked child. */
typedef _Atomic uint32_t np_arena_state_t;

enum {
    NP_ARENA_SHARED = 1u << 0,
    NP_ARENA_FILES  = 1u << 1  /* never shared, whatever the other one says */
};

#define NP_ARENA_TABLE_SHIFT  2

/* Owner: the process, for its life. A leaf is published by compare-and-swap
 * with release (its zeroes must be seen before its address) and read with
 * acquire. */
static _Atomic(np_arena_state_t*) np_arena_top[NP_ARENA_TOP_SIZE];


static UCS_F_ALWAYS_INLINE np_arena_state_t *np_arena_find(uint32_t number)
{
    np_arena_state_t *leaf;

    leaf = atomic_load_explicit(&np_arena_top[number >> NP_ARENA_LEAF_SHIFT],
                                memory_order_acquire);
    return (leaf == NULL) ? NULL : &leaf[number & (NP_ARENA_LEAF_SIZE - 1)];
}

int np_arenas_are_shared(np_arenas_t arenas)
{
    np_arena_state_t *state;
    uint32_t i;

    if (((uint64_t)arenas.first + arenas.count) > NP_ARENA_MAX) {
        return 0;
    }

    for (i = 0; i < arenas.count; ++i) {
        state = np_arena_find(arenas.first + i);
        if ((state == NULL) ||
            ((atomic_load_explicit(state, memory_order_relaxed) &
              (NP_ARENA_SHARED | NP_ARENA_FILES)) != NP_ARENA_SHARED)) {
            return 0;
        }
    }

    return 1;
}

static np_arena_state_t *np_arena_get(uint32_t number)
{
    _Atomic(np_arena_state_t*) *slot =
            &np_arena_top[number >> NP_ARENA_LEAF_SHIFT];
    const size_t size = NP_ARENA_LEAF_SIZE * sizeof(np_arena_state_t);
    np_arena_state_t *leaf, *expected = NULL;

    if (atomic_load_explicit(slot, memory_order_acquire) == NULL) {
        /* fresh pages: only those that are used cost memory */
        leaf = mmap(NULL, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (leaf == MAP_FAILED) {
            np_error("no memory for %zu bytes of the table of arenas",
                     NP_ARENA_LEAF_SIZE * sizeof(*leaf));
            return NULL;
        }

        if (!atomic_compare_exchange_strong_explicit(slot, &expected, leaf,
                                                     memory_order_release,
                                                     memory_order_relaxed)) {
            munmap(leaf, size); /* another thread was first */
        }
    }

    return np_arena_find(number);
}

void np_arenas_start(void)
{
    np_arena_state_t *state;

    /* a library lies where the system maps memory */
    state = np_arena_get(np_arena_of((uintptr_t)np_arenas_start));
    if (state != NULL) {
        /* what it is: nobody has shared anything yet */
        atomic_store_explicit(state, 0, memory_order_relaxed);
    }
}

int np_arena_get_table(uint32_t number)
{
    np_arena_state_t *state;

    state = (number < NP_ARENA_MAX) ? np_arena_find(number) : NULL;
    return (state == NULL) ? -1 :
           ((int)(atomic_load_explicit(state, memory_order_acquire) >>
                  NP_ARENA_TABLE_SHIFT) - 1);
}

ucs_status_t np_arena_set_table(uint32_t number, uint32_t index)
{
    np_arena_state_t *state;

    if (number >= NP_ARENA_MAX) {
        return UCS_ERR_INVALID_PARAM;
    }

    state = np_arena_get(number);
    if (state == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    atomic_fetch_or_explicit(state, (index + 1) << NP_ARENA_TABLE_SHIFT,
                             memory_order_release);
    return UCS_OK;
}

static ucs_status_t np_arenas_set(np_arenas_t arenas, uint32_t flag)
{
    np_arena_state_t *state;
    uint32_t i;

    for (i = 0; i < arenas.count; ++i) {
        state = np_arena_get(arenas.first + i);
        if (state == NULL) {
            return UCS_ERR_NO_MEMORY;
        }

        atomic_fetch_or_explicit(state, flag, memory_order_relaxed);
    }

    return UCS_OK;
}

ucs_status_t np_arenas_set_files(np_arenas_t arenas)
{
    return np_arenas_set(arenas, NP_ARENA_FILES);
}

void np_arenas_unset_files(np_arenas_t arenas)
{
    np_arena_state_t *state;
    uint32_t i;

    for (i = 0; i < arenas.count; ++i) {
        state = np_arena_find(arenas.first + i);
        if (state != NULL) {
            atomic_fetch_and_explicit(state, ~(uint32_t)NP_ARENA_FILES,
                                      memory_order_relaxed);
        }
    }
}

ucs_status_t np_arenas_share(uint64_t va, uint64_t len, np_arenas_t *arenas)
{
    ucs_status_t status;

    status = np_arenas_of(va, len, arenas);
    if (ucs_unlikely(status != UCS_OK)) {
        np_error("cannot share %#lx..%#lx: not a range of user addresses", va,
                 va + len);
        return status;
    }

    if (ucs_likely(np_arenas_are_shared(*arenas))) {
        return UCS_OK;
    }

    return np_arenas_set(*arenas, NP_ARENA_SHARED);
}
