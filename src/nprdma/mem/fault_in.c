/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fault-in: pages are brought in and mapped, in batches. Its steps, and what
 * keeps them right beside an unmap, are in mapper.c.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "mapper.h"

#include "page.h"
#include "populate.h"
#include "region.h"
#include "span.h"
#include "swapper.h"

#include "../pause.h"
#include "../trace.h"
#include "../unit.h"

#include <time.h>

/* Pages that are mapped with one flush: 4 MiB, in at most two slices */
#define NP_BATCH_PAGES  1024

_Static_assert(NP_BATCH_PAGES <= NP_SLICE_PAGES, "at most two slices");

/* Time until a page that went while it was mapped is looked for again, ns: its
 * program has said that it takes the page away, and is about to do so */
#define NP_LOST_PAUSE   200000

/* Pages that a fault-in maps with one flush */
typedef struct np_batch {
    uint64_t va;
    uint32_t count;
    uint32_t bits;                  /* to read, or to read and write */
    np_bring_t *bring;              /* or NULL */
    uint32_t want[NP_BATCH_PAGES];  /* bits of each entry, also those for
                                     * ourselves */
    uint32_t seen[NP_BATCH_PAGES];  /* entries before pages were brought in */
} np_batch_t;


static UCS_F_ALWAYS_INLINE int
np_batch_is_wanted(const np_batch_t *batch, uint32_t i)
{
    return (batch->seen[i] & batch->want[i]) != batch->want[i];
}

static UCS_F_ALWAYS_INLINE uint64_t np_batch_end(const np_batch_t *batch)
{
    return batch->va + ((uint64_t)batch->count << NP_PAGE_SHIFT);
}

/* Looks at all entries. Returns the first page that is not as wanted. */
static uint32_t np_batch_see(np_batch_t *batch)
{
    const uint64_t end = np_batch_end(batch);
    uint32_t wanted    = batch->count, seen = 0, i;
    uint64_t va, next;
    np_span_t span;

    for (va = batch->va; va < end; va = next) {
        next = np_span_get(va, end, &span);
        for (i = 0; i < span.count; ++i, ++seen) {
            batch->seen[seen] = (span.table == NULL) ? 0 :
                                np_page_entry(span.table, span.first + i);
            if (np_batch_is_wanted(batch, seen)) {
                wanted = ucs_min(wanted, seen);
            }
        }
    }

    return wanted;
}

/* Brings [va, end) in; @a done as in np_populate */
static ucs_status_t
np_bring_in(uint64_t va, uint64_t end, int write, uint64_t *done)
{
    ucs_status_t status = UCS_OK;
    np_swap_range_t *range;
    uint64_t at = va, stop, some;

    while ((at < end) && (status == UCS_OK)) {
        range = np_swap_range_get(at, end);
        stop  = (range == NULL) ? end : ucs_max(range->first, at);
        if (stop > at) {
            status = np_populate(at, stop - at, write, &some);
            at    += some;
        } else {
            stop = ucs_min(range->end, end);
            if (range->swapper.swap_in(range->swapper.arg, (void*)at,
                                       stop - at, write) == 0) {
                at = stop;
            } else {
                status = UCS_ERR_INVALID_ADDR;
            }
        }

        if (range != NULL) {
            np_swap_range_put(range);
        }
    }

    *done = at - va;
    return status;
}

/* On error the batch ends before the page that is not there */
static ucs_status_t np_batch_bring_in(np_batch_t *batch, uint32_t first)
{
    np_bring_t *bring = batch->bring;
    const int write = !!(batch->bits & NP_ENTRY_WRITE);
    ucs_status_t status;
    uint32_t i, end;
    uint64_t done;

    if ((bring != NULL) &&
        !np_swap_range_touches(batch->va, np_batch_end(batch) - batch->va)) {
        status = bring->use(bring->arg);
        if (status == UCS_OK) {
            bring->is_done = 1;
        } else {
            batch->count = first;
        }
        return status;
    }

    for (i = first; i < batch->count; i = end) {
        end = i + 1;
        if (!np_batch_is_wanted(batch, i)) {
            continue;
        }

        while ((end < batch->count) && np_batch_is_wanted(batch, end)) {
            ++end;
        }

        status = np_bring_in(batch->va + ((uint64_t)i << NP_PAGE_SHIFT),
                             batch->va + ((uint64_t)end << NP_PAGE_SHIFT),
                             write, &done);
        if (status != UCS_OK) {
            batch->count = i + (done >> NP_PAGE_SHIFT);
            return status;
        }
    }

    return UCS_OK;
}

/* Invariant 1, for a page whose entry is about to be set. Not for deliberate
 * faults, which break it. */
static UCS_F_ALWAYS_INLINE void
np_mapper_assert_views(const np_table_t *table, uint32_t page, uint32_t bits)
{
    np_assertv(NP_HAS_MUTANT ||
               ((atomic_load_explicit(&table->views[page],
                                      memory_order_relaxed) & bits) == bits),
               "page %#x is to be mapped (%u), but its views are not", page,
               bits);
}

/* A locked step of a map: all pages that are not as wanted and whose entry is
 * as it was. Returns how many are not as they were. */
static uint32_t np_batch_step(np_batch_t *batch, int set_entry)
{
    const uint64_t end = np_batch_end(batch);
    uint32_t lost = 0, page, seen, want, i = 0;
    uint64_t va, next;
    np_span_t span;

    for (va = batch->va; va < end; va = next) {
        next = np_span_get(va, end, &span);
        if (span.table == NULL) { /* a swapper has forked, and returned */
            lost += span.count;
            i    += span.count;
            continue;
        }

        np_span_set_mapped(&span);
        pthread_mutex_lock(&span.stripe->lock);
        for (page = span.first; page < (span.first + span.count);
             ++page, ++i) {
            if (!np_batch_is_wanted(batch, i)) {
                continue;
            }

            seen = batch->seen[i];
            want = batch->want[i];
            if (np_page_entry(span.table, page) != seen) {
                ++lost;
            } else if (set_entry) {
                np_mapper_assert_views(span.table, page,
                                       (want & NP_ENTRY_BITS) |
                                       NP_VIEW_OWN(batch->bits));
                np_page_set_entry(span.table, page, seen,
                               (seen & np_entry_all(NP_ENTRY_BITS)) | want);
            } else {
                np_page_translate(span.table, page,
                                  (want & NP_ENTRY_BITS) |
                                  NP_VIEW_OWN(batch->bits));
            }
        }
        pthread_mutex_unlock(&span.stripe->lock);
    }

    return lost;
}

/* Whether the pages are to be mapped for ourselves alone, or also for peers,
 * which must be allowed to reach them. After NP_BUSY_MAP: see region.c */
static void np_batch_want(np_batch_t *batch)
{
    const int is_guarded = np_region_guards(batch->va);
    uint64_t whole       = np_batch_end(batch), va;
    uint32_t i;

    for (i = 0; i < batch->count; ++i) {
        va = batch->va + ((uint64_t)i << NP_PAGE_SHIFT);
        if (is_guarded && ((i == 0) || (va >= whole))) {
            whole = np_regions_whole(va, np_batch_end(batch));
        }
        batch->want[i] = (va < whole) ? np_entry_all(batch->bits) :
                         NP_ENTRY_OWN(batch->bits);
    }
}

/* On error the batch ends before the page that must not be mapped. After
 * NP_BUSY_MAP: see region.c */
static ucs_status_t np_batch_allow(np_batch_t *batch)
{
    const uint64_t end = np_batch_end(batch);

    if (ucs_likely(np_regions_allow(batch->va, end - batch->va))) {
        return UCS_OK;
    }

    batch->count = (np_regions_touched(batch->va, end) - batch->va) >>
                   NP_PAGE_SHIFT;
    return UCS_ERR_INVALID_ADDR;
}

/* One attempt to map. On error the batch has become shorter.
 * @param [out] lost_p  Pages that changed meanwhile. */
static ucs_status_t np_batch_map(np_batch_t *batch, uint32_t *lost_p)
{
    const uint64_t end  = np_batch_end(batch);
    ucs_status_t status = UCS_OK, error;
    uint32_t first;
    unsigned life;

    *lost_p = 0;
    life    = np_stripes_enter(batch->va, end, NP_BUSY_MAP);

    np_batch_want(batch);
    first = np_batch_see(batch);
    if (first < batch->count) {
        status = np_batch_allow(batch);
    }
    if (first < batch->count) {
        error  = np_batch_bring_in(batch, first);
        status = (error == UCS_OK) ? status : error;
    }

    if (first < batch->count) { /* else the very first is not there */
        NP_PAUSE(MAP_PRESENT);
        np_batch_step(batch, 0);
        if (NP_IS_MUTANT(ENTRY_BEFORE_FLUSH)) {
            np_batch_step(batch, 1);
        }

        NP_PAUSE(MAP_TRANSLATED);
        np_mapper_refresh(batch->va, end - batch->va);
        NP_PAUSE(MAP_FLUSHED);
        if (!NP_IS_MUTANT(ENTRY_BEFORE_FLUSH)) {
            *lost_p = np_batch_step(batch, 1);
        }

        NP_PAUSE(MAP_DONE);
    }

    np_stripes_leave(batch->va, end, NP_BUSY_MAP, life);
    return status;
}

/* Pages went while they were mapped. If their program takes them away by
 * itself, its call is over, or about to be, but the pages are still there for a
 * moment. If we map them in that moment, and move what has gone by then, we
 * wait for a pager that may wait for us. A swapper has a lock against that. */
static void np_batch_was_lost(np_batch_t *batch)
{
    const struct timespec pause = {.tv_nsec = NP_LOST_PAUSE};
    const uint64_t len          = np_batch_end(batch) - batch->va;

    if (np_mapper_is_paged() && !np_swap_range_touches(batch->va, len) &&
        (np_batch_see(batch) < batch->count)) {
        nanosleep(&pause, NULL);
        NP_PAUSE(MAP_LOST);
    }
}

static ucs_status_t np_batch_fault_in(np_batch_t *batch)
{
    ucs_status_t status = UCS_OK, error;
    uint32_t lost;
    unsigned round;

    for (round = 0; round < NP_MAPPER_ROUNDS; ++round) {
        if ((np_table_get(batch->va >> NP_ARENA_SHIFT) == NULL) ||
            (np_table_get((np_batch_end(batch) - 1) >> NP_ARENA_SHIFT) ==
             NULL)) {
            return UCS_ERR_EXCEEDS_LIMIT;
        }

        error  = np_batch_map(batch, &lost);
        status = (error == UCS_OK) ? status : error;
        if (lost == 0) {
            return status;
        }
        if (round == 0) {
            np_batch_was_lost(batch);
        }
        if (batch->bring != NULL) {
            batch->bring->is_done = 0;
        }
    }

    return (status == UCS_OK) ? UCS_ERR_NO_RESOURCE : status;
}

ucs_status_t np_mapper_fault_in(uint64_t va, uint64_t len, int write)
{
    return np_mapper_fault_in_by(va, len, write, NULL);
}

ucs_status_t np_mapper_fault_in_by(uint64_t va, uint64_t len, int write,
                                   np_bring_t *bring)
{
    const uint32_t bits = write ? NP_ENTRY_BITS : NP_ENTRY_READ;
    ucs_status_t status;
    uint64_t end, begin;
    np_arenas_t arenas;
    np_batch_t batch;

    np_unit_assert_outside();
    if (ucs_likely(np_pages_have(va, len, bits)) || (len == 0)) {
        return UCS_OK;
    }

    if (np_arenas_of(va, len, &arenas) != UCS_OK) {
        return UCS_ERR_INVALID_ADDR;
    }

    begin       = np_trace_begin();
    end         = ucs_align_up_pow2(va + len, NP_PAGE_SIZE);
    batch.bits  = bits;
    batch.bring = bring;
    for (batch.va = va & ~(NP_PAGE_SIZE - 1); batch.va < end;
         batch.va = np_batch_end(&batch)) {
        batch.count = ucs_min((end - batch.va) >> NP_PAGE_SHIFT,
                              (uint64_t)NP_BATCH_PAGES);
        status      = np_batch_fault_in(&batch);
        if (status != UCS_OK) {
            return status;
        }
    }

    np_trace(NP_TRACE_FAULT_IN, begin, va, len);
    return UCS_OK;
}
