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
#include "../../mem/table.h"

#include <stdlib.h>


np_tlb_t *np_tlb_create(np_tlb_mode_t mode, uint64_t miss_ns,
                        np_stats_t *stats)
{
    np_tlb_t *tlb;

    tlb = calloc(1, sizeof(*tlb));
    if (tlb == NULL) {
        np_error("no memory for a translation cache of %zu bytes",
                 sizeof(*tlb));
        return NULL;
    }

    tlb->mode    = mode;
    tlb->miss_ns = miss_ns;
    tlb->stats   = stats;
    return tlb;
}

static void np_tlb_charge(const np_tlb_t *tlb)
{
    uint64_t end;

    if (tlb->miss_ns > 0) {
        for (end = np_clock() + tlb->miss_ns; np_clock() < end;) {
        }
    }
}

uint8_t np_tlb_translate(np_tlb_t *tlb, uint64_t engine_id, uint64_t page,
                         uint64_t flushes, uint8_t view)
{
    uint64_t number = (tlb->mode == NP_TLB_PAGE) ? page :
                      (page / NP_ARENA_PAGES);
    np_tlb_entry_t *entry, *set, *victim;

    /* neighbours in neighbouring sets; peers spread by their id */
    set    = tlb->entries[(number ^ engine_id) % NP_TLB_SETS];
    victim = set;
    for (entry = set; entry < (set + NP_TLB_WAYS); ++entry) {
        if ((entry->engine_id == engine_id) && (entry->number == number) &&
            (entry->flushes == flushes) && (entry->used != 0)) {
            entry->used = ++tlb->clock;
            NP_STATS_INC(tlb->stats, tlb_hits);
            return (tlb->mode == NP_TLB_PAGE) ? entry->view : view;
        }

        if (entry->used < victim->used) {
            victim = entry;
        }
    }

    NP_STATS_INC(tlb->stats, tlb_misses);
    np_tlb_charge(tlb);
    *victim = (np_tlb_entry_t){
        .engine_id = engine_id,
        .flushes   = flushes,
        .number    = number,
        .used      = ++tlb->clock,
        .view      = view
    };
    return view;
}
