/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The user mapper.
 *
 * Words (an entry and its views) change only under the lock of their piece, but
 * neither a page that is brought in nor a flush is waited for under it. So a
 * map takes three steps, and an unmap two, between which others may come:
 *
 *   map:   look at the entry, bring the page in;
 *          [entry as it was: set the views]; flush;
 *          [entry as it was: set it, next count]; else begin again
 *   unmap: [clear the entry, next count];
 *          [clear the entry, next count; clear the views]; flush
 *
 * Each [...] is one hold of the lock. An unmap changes the count of an entry
 * that was not mapped, too, while any map is under way in the piece.
 *
 * 1. What an entry says, the views have. A map sets an entry only if it is as
 *    it was before the same map set the views. Views are cleared by the second
 *    step of an unmap alone, which changes the entry in the same hold: because
 *    it was set, or because a map is under way (the map has counted itself
 *    before it took the lock to set the views, so an unmap that takes the lock
 *    later sees that). Either the unmap comes before the map has set the views,
 *    then the map sets them after; or it comes between, and the map begins
 *    again; or it comes last and clears both.
 * 2. When an entry is set, no device has a way to the black hole cached: the
 *    map's flush (or refresh, which waits for nobody) began after the views
 *    were set, and since then nobody has cleared them (1.).
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
 *    a page of which the check says that it is absent. That harms nobody, and
 *    an unmap goes by the views, so it clears these as well.
 * 6. A page that is mapped for peers is mapped for ourselves. The converse
 *    holds but for pages at the edges of regions (region.h). Which are, is
 *    looked up after the map has counted itself, in each of its rounds, and a
 *    region that ends leaves the set before it unmaps: by 3., no page that was
 *    mapped for peers on its account stays so.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "mapper.h"

#include "kmod.h"
#include "populate.h"
#include "region.h"
#include "span.h"
#include "swapper.h"

#include "../pause.h"
#include "../trace.h"
#include "../unit.h"

#include <time.h>

/* Pages that are mapped with one flush: 4 MiB, in at most two pieces */
#define NP_BATCH_PAGES  1024

_Static_assert(NP_BATCH_PAGES <= NP_PIECE_PAGES, "at most two pieces");

/* Until a page that went under a map is looked for again, ns: its program has
 * said that it takes it away, and is about to */
#define NP_LOST_PAUSE   200000

static void (*_Atomic np_mapper_flush_func)(void);
static void (*_Atomic np_mapper_refresh_func)(void);

/* See np_mapper_set_paged */
static _Atomic int np_mapper_paged;

/* Pages that a fault-in maps with one flush */
typedef struct np_batch {
    uint64_t va;
    uint32_t count;
    uint32_t bits;                  /* to read, or to read and write */
    np_bring_t *bring;              /* or NULL */
    uint32_t want[NP_BATCH_PAGES];  /* bits of each entry, one's own too */
    uint32_t seen[NP_BATCH_PAGES];  /* entries before pages were brought in */
} np_batch_t;


void np_mapper_set_flush(void (*flush)(void))
{
    atomic_store_explicit(&np_mapper_flush_func, flush, memory_order_release);
}

void np_mapper_set_refresh(void (*refresh)(void))
{
    atomic_store_explicit(&np_mapper_refresh_func, refresh,
                          memory_order_release);
}

void np_mapper_set_paged(int is_paged)
{
    /* Before it is told of any page. seq_cst: a map that has counted itself and
     * does not see this is seen by the unmap that follows. */
    if (atomic_load_explicit(&np_mapper_paged,
                             memory_order_relaxed) != is_paged) {
        atomic_store_explicit(&np_mapper_paged, is_paged, memory_order_seq_cst);
    }
}

int np_mapper_is_paged(void)
{
    return atomic_load_explicit(&np_mapper_paged, memory_order_seq_cst);
}

void np_mapper_flush(void)
{
    void (*flush)(void) = atomic_load_explicit(&np_mapper_flush_func,
                                               memory_order_acquire);

    if (flush != NULL) {
        flush();
    }
}

/* After a map. Who is moving now may still go by the older views: it reads the
 * signature, or writes into the black hole, as it would have a moment ago, and
 * the entry, which comes after this, does not say that it did not. */
static void np_mapper_refresh(void)
{
    void (*refresh)(void) = atomic_load_explicit(&np_mapper_refresh_func,
                                                 memory_order_acquire);

    if (refresh != NULL) {
        refresh();
    } else {
        np_mapper_flush();
    }
}

static UCS_F_ALWAYS_INLINE uint32_t
np_entry_load(const np_table_t *table, uint32_t page)
{
    return atomic_load_explicit(&table->entries[page], memory_order_acquire);
}

/* For peers, and for ourselves */
static UCS_F_ALWAYS_INLINE uint32_t np_entry_all(uint32_t bits)
{
    return bits | NP_ENTRY_OWN(bits);
}

/* Under the lock. The count wraps between the bits. Release: who sees that it
 * is mapped sees the views that were set before, and the flush. Those who
 * compare entries load with acquire (entries.h). */
static UCS_F_ALWAYS_INLINE void
np_entry_store(np_table_t *table, uint32_t page, uint32_t entry, uint32_t bits)
{
    if (!NP_IS_MUTANT(COUNT_NOT_BUMPED)) {
        entry += NP_ENTRY_STEP;
    }

    atomic_store_explicit(&table->entries[page],
                          (entry & ~np_entry_all(NP_ENTRY_BITS)) | bits,
                          memory_order_release);
}

/* Have all entries of the range these bits? */
static int np_mapper_has(uint64_t va, uint64_t len, uint32_t bits)
{
    uint64_t left = np_page_count(va, len);
    const np_table_t *table;
    np_arenas_t arenas;
    uint32_t page, end;

    if (ucs_unlikely(np_arenas_of(va, len, &arenas) != UCS_OK)) {
        return 0;
    }

    page = np_page_index(va);
    for (; left > 0; ++arenas.first, page = 0) {
        table = np_table_find(arenas.first);
        if (ucs_unlikely(table == NULL)) {
            return 0;
        }

        end   = ucs_min(page + left, NP_ARENA_PAGES);
        left -= end - page;
        for (; page < end; ++page) {
            if ((np_entry_load(table, page) & bits) != bits) {
                return 0;
            }
        }
    }

    return 1;
}

int np_mapper_is_mapped(uint64_t va, uint64_t len, int write)
{
    return np_mapper_has(va, len, NP_ENTRY_OWN(write ? NP_ENTRY_BITS :
                                                 NP_ENTRY_READ));
}

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
                                np_entry_load(span.table, span.first + i);
            if (np_batch_is_wanted(batch, seen)) {
                wanted = ucs_min(wanted, seen);
            }
        }
    }

    return wanted;
}

/* Brings [va, end) in; done as np_populate */
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

/* Under the lock, so its own load may be relaxed. Release: who sees the bit
 * sees the page as it was brought in. Movers load with acquire
 * (np_views_have). */
static UCS_F_ALWAYS_INLINE void
np_page_translate(np_table_t *table, uint32_t page, uint32_t bits)
{
    uint8_t views = atomic_load_explicit(&table->views[page],
                                         memory_order_relaxed);

    atomic_store_explicit(&table->views[page], views | bits,
                          memory_order_release);
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
            if (np_entry_load(span.table, page) != seen) {
                ++lost;
            } else if (set_entry) {
                np_mapper_assert_views(span.table, page,
                                       (want & NP_ENTRY_BITS) |
                                       NP_VIEW_OWN(batch->bits));
                np_entry_store(span.table, page, seen,
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

/* What the pages are to be mapped for: ourselves, and peers, as far as these
 * may reach them. After NP_BUSY_MAP: see region.c */
static void np_batch_want(np_batch_t *batch)
{
    uint64_t whole = np_batch_end(batch), va;
    uint32_t i;

    for (i = 0; i < batch->count; ++i) {
        va = batch->va + ((uint64_t)i << NP_PAGE_SHIFT);
        if (np_region_is_exact() && ((i == 0) || (va >= whole))) {
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

    if (first < batch->count) { /* still, or the very first is not there */
        NP_PAUSE(MAP_PRESENT);
        np_batch_step(batch, 0);
        if (NP_IS_MUTANT(ENTRY_BEFORE_FLUSH)) {
            np_batch_step(batch, 1);
        }

        NP_PAUSE(MAP_TRANSLATED);
        np_mapper_refresh();
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
 * itself, that call is over, or about to be, and for a moment they are there
 * still: to map them in it, and to move what has gone by then, is to wait for a
 * pager that may wait for us. A swapper has a lock for that. */
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
    if (ucs_likely(np_mapper_has(va, len, bits)) || (len == 0)) {
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

/* A locked step of an unmap.
 * @param [in] which  For each page whether it is meant, and then all are of one
 *                    piece; NULL: all pages are meant.
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

            entry = np_entry_load(span.table, page);
            if (entries && ((entry & np_entry_all(bits)) || (maps > 0))) {
                np_entry_store(span.table, page, entry,
                               entry & np_entry_all(NP_ENTRY_BITS & ~bits));
            }

            view = atomic_load_explicit(&span.table->views[page],
                                        memory_order_relaxed);
            if (views && (view & NP_VIEW_ALL(bits))) {
                np_assert(NP_HAS_MUTANT || !(np_entry_load(span.table, page) &
                                             np_entry_all(bits)));
                /* release: who sees that the page is gone for the device sees
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
    /* another one may have cleared the views, and not flushed yet */
    if (((cleared > 0) || (np_stripes_busy(va, end, NP_BUSY_UNMAP) > 1)) &&
        !NP_IS_MUTANT(SWAP_OUT_NO_DRAIN)) {
        np_mapper_flush();
        np_swap_wait_copies();
    }
    NP_PAUSE(UNMAP_DONE);

    np_stripes_leave(va, end, NP_BUSY_UNMAP, life);
    return cleared;
}

/* Maps are looked for before the views, since one that ends in between has set
 * some; unmaps after them, since one that begins in between has cleared some */
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
