/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The user mapper: its invariants, and unmap. Map is in fault_in.c.
 *
 * Words (an entry and its views) change only under the lock of their slice, but
 * neither a page that is brought in nor a flush is waited for under it. So a
 * map takes three steps, and an unmap two, between which others may come:
 *
 *   map:   look at the entry, bring the page in;
 *          [entry as it was: set the views]; flush;
 *          [entry as it was: set it, next count]; else begin again
 *   unmap: [clear the entry, next count];
 *          [clear the entry, next count; clear the views]; flush
 *
 * Each [...] is done under the lock, without a break. An unmap changes the
 * count of an entry that was not mapped, too, while any map is under way in the
 * slice.
 *
 * 1. What an entry says, the views have. A map sets an entry only if it is as
 *    it was before the same map set the views. Views are cleared by the second
 *    step of an unmap alone, which changes the entry under the same lock:
 *    because it was set, or because a map is under way (the map has counted
 *    itself before it took the lock to set the views, so an unmap that takes
 *    the lock later sees that). Either the unmap comes before the map has set
 *    the views, then the map sets them after; or it comes between, and the map
 *    begins again; or it comes last and clears both.
 * 2. When an entry is set, no device has a way to the black hole cached: the
 *    map's flush (or refresh, which waits for no mover) began after the views
 *    were set, and since then no unmap has cleared them (1.).
 * 3. A map whose page was brought in before an unmap began does not outlive it.
 *    If it had finished, its entry or views are seen. If not, it had counted
 *    itself before it looked at the entry; the unmap sees that, changes the
 *    count, and the map begins again. Its next look comes after the unmap's
 *    first step, and so does the page that it brings in then; a swapper's own
 *    lock decides whether that page is in.
 * 4. When an unmap returns, no device uses a translation from before it: views
 *    are cleared before its flush. If another unmap has cleared them, but may
 *    still be waiting for its flush (it has counted itself before it cleared
 *    them), this one flushes too.
 * 5. A map that gives up may leave views that no entry covers: a device reaches
 *    a page that the check calls absent. That does no harm, and an unmap goes
 *    by the views, so it clears these as well.
 * 6. A page that is mapped for peers is mapped for ourselves. The converse
 *    holds too, except for pages at the edges of regions (region.h). Which
 *    pages these are is looked up in each round of the map, after it has
 *    counted itself, and a region that ends leaves the set before it unmaps: by
 *    3., no page that was mapped for peers because of this region stays so.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "mapper.h"

#include "kmod.h"
#include "page.h"
#include "span.h"
#include "swapper.h"

#include "../pause.h"
#include "../unit.h"

static _Atomic(np_mapper_flush_t) np_mapper_flush_func;
static _Atomic(np_mapper_flush_t) np_mapper_refresh_func;

/* See np_mapper_set_paged */
static _Atomic int np_mapper_paged;


void np_mapper_set_flush(np_mapper_flush_t flush)
{
    atomic_store_explicit(&np_mapper_flush_func, flush, memory_order_release);
}

void np_mapper_set_refresh(np_mapper_flush_t refresh)
{
    atomic_store_explicit(&np_mapper_refresh_func, refresh,
                          memory_order_release);
}

void np_mapper_set_paged(int is_paged)
{
    /* Set before the first page is announced. seq_cst: a map that has counted
     * itself and does not see this is seen by the unmap that follows. */
    if (atomic_load_explicit(&np_mapper_paged,
                             memory_order_relaxed) != is_paged) {
        atomic_store_explicit(&np_mapper_paged, is_paged, memory_order_seq_cst);
    }
}

int np_mapper_is_paged(void)
{
    return atomic_load_explicit(&np_mapper_paged, memory_order_seq_cst);
}

void np_mapper_flush(uint64_t va, uint64_t len)
{
    np_mapper_flush_t flush = atomic_load_explicit(&np_mapper_flush_func,
                                                   memory_order_acquire);

    if (flush != NULL) {
        flush(va, len);
    }
}

/* A transfer that moves now may still go by the older views: it reads the
 * signature, or writes into the black hole, as it would have a moment ago. That
 * is right, since the entry is set only after this. */
void np_mapper_refresh(uint64_t va, uint64_t len)
{
    np_mapper_flush_t refresh = atomic_load_explicit(&np_mapper_refresh_func,
                                                     memory_order_acquire);

    if (refresh != NULL) {
        refresh(va, len);
    } else {
        np_mapper_flush(va, len);
    }
}

int np_mapper_is_mapped(uint64_t va, uint64_t len, int write)
{
    return np_pages_have(va, len, NP_ENTRY_OWN(write ? NP_ENTRY_BITS :
                                               NP_ENTRY_READ));
}

/* A locked step of an unmap.
 * @param [in] which  For each page, whether it is meant (all are of one slice);
 *                    NULL: all pages are meant.
 * Returns how many views had the bits. */
static uint64_t np_unmap_step(uint64_t va, uint64_t end, uint32_t bits,
                              const uint8_t *which, int entries, int views)
{
    uint64_t cleared = 0, next;
    uint32_t page, entry, maps;
    np_span_t span;
    uint8_t view;

    for (; va < end; va = next) {
        next = np_span_get(va, end, &span);
        if ((span.table == NULL) ||
            (!np_span_was_mapped(&span) &&
             (np_span_busy(&span, NP_BUSY_MAP) == 0))) {
            continue;
        }

        pthread_mutex_lock(&span.stripe->lock);
        maps = np_span_busy(&span, NP_BUSY_MAP);
        for (page = span.first; page < (span.first + span.count); ++page) {
            if ((which != NULL) && !which[page - span.first]) {
                continue;
            }

            entry = np_page_entry(span.table, page);
            if (entries && ((entry & np_entry_all(bits)) || (maps > 0))) {
                np_page_set_entry(span.table, page, entry,
                               entry & np_entry_all(NP_ENTRY_BITS & ~bits));
            }

            view = atomic_load_explicit(&span.table->views[page],
                                        memory_order_relaxed);
            if (views && (view & NP_VIEW_ALL(bits))) {
                np_assert(NP_HAS_MUTANT || !(np_page_entry(span.table, page) &
                                             np_entry_all(bits)));
                /* release: a thread that sees the page gone for the device sees
                 * the entry that was changed before */
                atomic_store_explicit(&span.table->views[page],
                                      view & ~NP_VIEW_ALL(bits),
                                      memory_order_release);
                ++cleared;
            }
        }
        pthread_mutex_unlock(&span.stripe->lock);
    }

    return cleared;
}

/* Returns how many pages had a view */
static uint64_t np_unmap_pages(uint64_t va, uint64_t end, uint32_t bits,
                               const uint8_t *which)
{
    const int is_late = NP_IS_MUTANT(ENTRY_AFTER_TRANSLATION);
    uint64_t cleared;
    unsigned life;

    np_unit_assert_outside();
    life     = np_stripes_enter(va, end, NP_BUSY_UNMAP);

    cleared  = np_unmap_step(va, end, bits, which, !is_late, is_late);
    NP_PAUSE(UNMAP_ENTRY);
    cleared += np_unmap_step(va, end, bits, which, 1, 1);
    NP_PAUSE(UNMAP_TRANSLATED);
    /* another unmap may have cleared the views, and not flushed yet */
    if (((cleared > 0) || (np_stripes_busy(va, end, NP_BUSY_UNMAP) > 1)) &&
        !NP_IS_MUTANT(SWAP_OUT_NO_DRAIN)) {
        np_mapper_flush(va, end - va);
        np_swap_wait_copies();
    }
    NP_PAUSE(UNMAP_DONE);

    np_stripes_leave(va, end, NP_BUSY_UNMAP, life);
    return cleared;
}

/* Maps are looked for before the views, since a map that ends in between has
 * set some; unmaps after them, since an unmap that begins in between has
 * cleared some */
static int np_unmap_is_needed(uint64_t va, uint64_t end, uint32_t bits)
{
    np_span_t span;
    uint64_t next;

    for (; va < end; va = next) {
        next = np_span_get(va, end, &span);
        if ((span.table != NULL) &&
            ((np_span_busy(&span, NP_BUSY_MAP) > 0) ||
             (np_span_was_mapped(&span) &&
              np_span_has_views(&span, NP_VIEW_ALL(bits))) ||
             (np_span_busy(&span, NP_BUSY_UNMAP) > 0))) {
            return 1;
        }
    }

    return 0;
}

static void np_unmap_range(uint64_t va, uint64_t len, uint32_t bits)
{
    uint64_t first, end;

    if (np_span_range(va, len, &first, &end) &&
        np_unmap_is_needed(first, end, bits)) {
        np_unmap_pages(first, end, bits, NULL);
    }
}

void np_mapper_unmap(uint64_t va, uint64_t len)
{
    np_unmap_range(va, len, NP_ENTRY_BITS);
    np_kmod_unmap(va, len);
}

void np_mapper_protect(uint64_t va, uint64_t len)
{
    np_unmap_range(va, len, NP_ENTRY_WRITE);
}

uint64_t np_mapper_unmap_some(uint64_t va, uint64_t end, const uint8_t *which)
{
    return np_unmap_pages(va, end, NP_ENTRY_BITS, which);
}

void np_mapper_after_fork(void)
{
    np_stripes_after_fork();
    np_swap_range_after_fork();
}
