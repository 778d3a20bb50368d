/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A model of the translation cache of an RNIC and its IOMMU: counts hits and
 * misses, may charge time for a miss, and serves what it has until the owner of
 * the memory flushes, as an IOTLB does. Off unless asked for.
 */

#ifndef NP_SOFT_TLB_H_
#define NP_SOFT_TLB_H_

#include "../../engine.h"
#include "../../stats.h"

#define NP_TLB_WAYS  4
#define NP_TLB_SETS  1024

typedef struct np_tlb_entry {
    uint64_t engine_id;
    uint64_t flushes;   /**< of its directory, when it was filled */
    uint64_t number;    /**< of the page or the arena */
    uint64_t used;      /**< when, for the choice of a victim */
    uint8_t  view;      /**< NP_ENTRY_BITS */
} np_tlb_entry_t;

/** Owner: its port. */
typedef struct np_tlb {
    np_tlb_mode_t  mode;
    uint64_t       miss_ns;
    uint64_t       clock;
    np_stats_t     *stats;
    np_tlb_entry_t entries[NP_TLB_SETS][NP_TLB_WAYS];
} np_tlb_t;

/** @return NULL without memory (logged) */
np_tlb_t *np_tlb_create(np_tlb_mode_t mode, uint64_t miss_ns,
                        np_stats_t *stats);

/**
 * What the device believes of a page.
 *
 * @param [in] page     Address >> NP_PAGE_SHIFT.
 * @param [in] flushes  Of the page's directory, read before @a view.
 * @param [in] view     What the table says now.
 */
uint8_t np_tlb_translate(np_tlb_t *tlb, uint64_t engine_id, uint64_t page,
                         uint64_t flushes, uint8_t view);

#endif
