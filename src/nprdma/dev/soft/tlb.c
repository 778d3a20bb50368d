/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The model of a translation cache.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "tlb.h"

#include "../../clock.h"
#include "../../engine.h"

#include <stdlib.h>

/* A word, from its lowest bits on: view, flushes, what is left of the number.
 * 2^24 flushes of a set between two looks at a page would seem none. */
#define NP_TLB_VIEW_BITS   4
#define NP_TLB_FLUSH_BITS  24

/* Of each view in a word: it is one */
#define NP_TLB_VALID       UCS_BIT(NP_TLB_VIEW_BITS - 1)

/* What a miss takes of an RNIC's time, of what a small write does: seed 001 has
 * 61 % of the writes if each misses (its Figure 2) */
#define NP_TLB_MISS_GAP    0.64


np_tlb_t *np_tlb_create(np_tlb_cache_t *cache, np_tlb_mode_t mode, pid_t pid,
                        np_stats_t *stats)
{
    const np_tlb_config_t *config = &np_engine.config.tlb;
    np_tlb_t *tlb;

    if (mode != config->mode) {
        np_error("process %d has UCX_NPRDMA_SOFT_TLB=%s, this one has %s: "
                 "transfers to it are not modelled. Give both the same", pid,
                 (mode < NP_TLB_LAST) ? np_tlb_mode_names[mode] : "?",
                 np_tlb_mode_names[config->mode]);
        return NULL;
    }

    if (config->mode == NP_TLB_OFF) {
        return NULL;
    }

    tlb = calloc(1, sizeof(*tlb));
    if (tlb == NULL) {
        np_error("no memory for a model of %zu bytes", sizeof(*tlb));
        return NULL;
    }

    tlb->cache = cache;
    tlb->stats = stats;
    tlb->wire  = config->wire * 1e9;
    tlb->miss  = config->miss * 1e9;
    tlb->gap   = config->gap * 1e9;
    return tlb;
}

static uint64_t np_tlb_word(uint64_t number, uint32_t flushes, uint8_t view)
{
    const uint64_t flush = flushes % (1u << NP_TLB_FLUSH_BITS);

    return ((((number / NP_TLB_SETS) << NP_TLB_FLUSH_BITS) | flush)
            << NP_TLB_VIEW_BITS) | NP_TLB_VALID | view;
}

/* Put it first. Those that were before its place move on by one, so the one at
 * its place is gone: itself, or the last. */
static void np_tlb_put_first(_Atomic uint64_t *set, unsigned place,
                             uint64_t word)
{
    for (; place > 0; --place) {
        atomic_store_explicit(&set[place],
                              atomic_load_explicit(&set[place - 1],
                                                   memory_order_acquire),
                              memory_order_release);
    }
    atomic_store_explicit(&set[0], word, memory_order_release);
}

uint8_t np_tlb_look(np_tlb_t *tlb, uint64_t number, uint32_t flushes)
{
    _Atomic uint64_t *set = tlb->cache->words[number % NP_TLB_SETS];
    const uint64_t tag    = np_tlb_word(number, flushes, 0);
    uint64_t word;
    unsigned place;

    for (place = 0; place < NP_TLB_WAYS; ++place) {
        word = atomic_load_explicit(&set[place], memory_order_acquire);
        if ((word & ~(uint64_t)NP_ENTRY_BITS) == tag) {
            if (place > 0) {
                np_tlb_put_first(set, place, word);
            }
            NP_STATS_INC(tlb->stats, tlb_hits);
            return word % (1u << NP_TLB_VIEW_BITS);
        }
    }
    return 0;
}

void np_tlb_fill(np_tlb_t *tlb, uint64_t number, uint32_t flushes, uint8_t view)
{
    NP_STATS_INC(tlb->stats, tlb_misses);
    ++tlb->misses;
    np_tlb_put_first(tlb->cache->words[number % NP_TLB_SETS], NP_TLB_WAYS - 1,
                     np_tlb_word(number, flushes, view));
}

uint8_t np_tlb_translate(np_tlb_t *tlb, const np_directory_t *directory,
                         const np_table_t *table, uint64_t page)
{
    const int is_page     = np_engine.config.tlb.mode == NP_TLB_PAGE;
    const uint64_t number = is_page ? page : (page / NP_ARENA_PAGES);
    uint32_t flushes      = 0;
    uint8_t cached, view;

    /* An arena says nothing of its pages, which are looked up each time. Of a
     * page, acquire: older than the view that we look at then. */
    if (is_page) {
        flushes = atomic_load_explicit(
                &directory->flushes[page % NP_DIRECTORY_FLUSHES],
                memory_order_acquire);
    }

    cached = np_tlb_look(tlb, number, flushes);
    if (is_page && (cached != 0)) {
        return cached & NP_ENTRY_BITS;
    }

    /* acquire: as np_views_have */
    view = atomic_load_explicit(&table->views[page % NP_ARENA_PAGES],
                                memory_order_acquire) & NP_ENTRY_BITS;
    if (cached == 0) {
        np_tlb_fill(tlb, number, flushes, view);
    }
    return view;
}

uint64_t np_tlb_due(np_tlb_t *tlb, uint64_t began, unsigned misses)
{
    uint64_t begin;

    if ((tlb->wire | tlb->miss | tlb->gap) == 0) {
        return 0;
    }

    begin        = ucs_max(began, tlb->free_at);
    tlb->free_at = begin + tlb->gap +
                   (uint64_t)(misses * NP_TLB_MISS_GAP * tlb->gap);
    tlb->due     = ucs_max(tlb->due, ucs_max(begin + tlb->wire +
                                             ((misses > 0) ? tlb->miss : 0),
                                             tlb->free_at + tlb->wire -
                                             ucs_min(tlb->wire, tlb->gap)));
    return tlb->due;
}
