/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Spans, slices and their locks.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "span.h"

/* Slices share locks: neighbours have different ones */
#define NP_STRIPES      64

_Static_assert((NP_ARENA_SHIFT - NP_SLICE_SHIFT) == 6,
               "the slices of an arena are the bits of a word");

static np_stripe_t np_stripes[NP_STRIPES] = {
    [0 ... NP_STRIPES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}
};

/* Forks on the way here; changed by the only thread of a child */
static unsigned np_stripes_life;

/* For each table, the slices of its arena that were ever mapped, a bit each:
 * other memory costs neither time nor pages of the table. Set before the views,
 * never unset. */
static _Atomic uint64_t np_slices[NP_TABLE_ARENAS];


int np_span_range(uint64_t va, uint64_t len, uint64_t *first, uint64_t *end)
{
    const uint64_t limit = NP_ARENA_MAX << NP_ARENA_SHIFT;

    if ((len == 0) || (va >= limit)) {
        return 0;
    }

    *first = va & ~(NP_PAGE_SIZE - 1);
    *end   = va + ucs_min(len, limit - va);
    *end   = ucs_align_up_pow2(*end, NP_PAGE_SIZE);
    return 1;
}

uint64_t np_span_get(uint64_t va, uint64_t end, np_span_t *span)
{
    const uint64_t slice = va >> NP_SLICE_SHIFT;
    const uint32_t arena = va >> NP_ARENA_SHIFT;

    span->table   = np_table_find(arena);
    end           = ucs_min(end, (span->table == NULL) ?
                                 (((uint64_t)arena + 1) << NP_ARENA_SHIFT) :
                                 ((slice + 1) << NP_SLICE_SHIFT));
    span->stripe  = &np_stripes[slice % NP_STRIPES];
    span->slice   = UINT64_C(1) << (slice % 64);
    span->first   = np_page_index(va);
    span->count   = (end - va) >> NP_PAGE_SHIFT;
    span->slices  = (span->table == NULL) ? NULL :
                    &np_slices[np_arena_get_table(arena)];
    return end;
}

int np_span_has_views(const np_span_t *span, uint32_t bits)
{
    const np_table_t *table = span->table;
    const uint32_t end      = span->first + span->count;
    uint32_t page           = span->first;

    while (page < end) {
        if (((page % NP_VIEWS_PAGES) == 0) &&
            ((end - page) >= NP_VIEWS_PAGES)) {
            if (np_views_load(table, page) & (bits * NP_VIEWS_EACH)) {
                return 1;
            }
            page += NP_VIEWS_PAGES;
        } else {
            if (atomic_load_explicit(&table->views[page],
                                     memory_order_acquire) & bits) {
                return 1;
            }
            ++page;
        }
    }

    return 0;
}

/* Stripes that [va, end) has slices in; the first is that of va */
static uint64_t np_stripes_of(uint64_t va, uint64_t end)
{
    return ucs_min(((end - 1) >> NP_SLICE_SHIFT) - (va >> NP_SLICE_SHIFT) + 1,
                   (uint64_t)NP_STRIPES);
}

static UCS_F_ALWAYS_INLINE _Atomic uint32_t *
np_stripe_busy(uint64_t va, uint64_t i, np_busy_t what)
{
    return &np_stripes[((va >> NP_SLICE_SHIFT) + i) % NP_STRIPES].busy[what];
}

unsigned np_stripes_enter(uint64_t va, uint64_t end, np_busy_t what)
{
    const unsigned life = np_stripes_life;
    uint64_t i;

    for (i = 0; i < np_stripes_of(va, end); ++i) {
        atomic_fetch_add_explicit(np_stripe_busy(va, i, what), 1,
                                  memory_order_seq_cst);
    }
    return life;
}

void np_stripes_leave(uint64_t va, uint64_t end, np_busy_t what, unsigned life)
{
    uint64_t i;

    if (ucs_unlikely(life != np_stripes_life)) {
        return;
    }

    for (i = 0; i < np_stripes_of(va, end); ++i) {
        np_assert(atomic_load_explicit(np_stripe_busy(va, i, what),
                                       memory_order_relaxed) > 0);
        atomic_fetch_sub_explicit(np_stripe_busy(va, i, what), 1,
                                  memory_order_release);
    }
}

uint32_t np_stripes_busy(uint64_t va, uint64_t end, np_busy_t what)
{
    uint32_t most = 0, busy;
    uint64_t i;

    for (i = 0; i < np_stripes_of(va, end); ++i) {
        busy = atomic_load_explicit(np_stripe_busy(va, i, what),
                                    memory_order_acquire);
        most = ucs_max(most, busy);
    }

    return most;
}

void np_stripes_after_fork(void)
{
    unsigned i;

    ++np_stripes_life;
    for (i = 0; i < NP_STRIPES; ++i) {
        pthread_mutex_init(&np_stripes[i].lock, NULL);
        atomic_store_explicit(&np_stripes[i].busy[NP_BUSY_MAP], 0,
                              memory_order_relaxed);
        atomic_store_explicit(&np_stripes[i].busy[NP_BUSY_UNMAP], 0,
                              memory_order_relaxed);
    }
}
