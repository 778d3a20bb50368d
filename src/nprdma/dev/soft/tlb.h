/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A model of the translation cache of an RNIC and its IOMMU. It belongs to a
 * target's port, as a cache belongs to its RNIC, and all peers of that share
 * it: they look into it, and fill it, in the port's segment. Like an IOTLB it
 * serves what it has until the owner of the memory flushes that. Off unless
 * asked for, on both sides.
 *
 * What a transfer takes by the model is a time at which it will have ended
 * (np_tlb_due). Its bytes move at once; its initiator tells its user later.
 */

#ifndef NP_SOFT_TLB_H_
#define NP_SOFT_TLB_H_

#include "../../mem/table.h"
#include "../../settings.h"
#include "../../stats.h"

#define NP_TLB_WAYS  4
#define NP_TLB_SETS  NP_DIRECTORY_FLUSHES

/**
 * The cache. A set has what was used last first. A word is what the model knows
 * of a page: the part of its number that its set does not tell, the count of
 * flushes when it was filled, and its view. Peers write words while others read
 * them: each is one store, with release, and one load, with acquire, so that
 * who goes by a view sees the page as who has read the view does. Two that fill
 * a set at the same time may lose a word, or have it twice.
 */
typedef struct np_tlb_cache {
    _Atomic uint64_t words[NP_TLB_SETS][NP_TLB_WAYS];
} np_tlb_cache_t;

/** What a link has of its target's. Owner: the link. */
typedef struct np_tlb {
    np_tlb_cache_t     *cache;
    np_stats_t         *stats;
    uint64_t           wire;    /**< np_tlb_config_t, in nanoseconds */
    uint64_t           miss;
    uint64_t           gap;
    uint64_t           began;   /**< the transfer that is being posted;
                                     np_clock(), as these two: */
    uint64_t           free_at; /**< the target's RNIC takes the next one */
    uint64_t           due;     /**< the last one will have ended */
    unsigned           misses;  /**< since np_tlb_take */
} np_tlb_t;

/** A link to a target has this cache, and the target this mode; @a pid: the
 *  target. NULL: it is not modelled, or there is no memory (logged). */
np_tlb_t *np_tlb_create(np_tlb_cache_t *cache, np_tlb_mode_t mode, pid_t pid,
                        np_stats_t *stats);

/**
 * What the target's RNIC believes of a page. While it moves (np_moving_begin).
 *
 * @param [in] page  Address >> NP_PAGE_SHIFT.
 *
 * @return NP_ENTRY_BITS.
 */
uint8_t np_tlb_translate(np_tlb_t *tlb, const np_directory_t *directory,
                         const np_table_t *table, uint64_t page);

/** What the cache has of this number, filled after so many flushes: its view,
 *  with one bit more; 0: nothing. Counts a hit. */
uint8_t np_tlb_look(np_tlb_t *tlb, uint64_t number, uint32_t flushes);

/** It had nothing, and has this now. Counts a miss. */
void np_tlb_fill(np_tlb_t *tlb, uint64_t number, uint32_t flushes,
                 uint8_t view);

/** Misses since the last call */
static inline unsigned np_tlb_take(np_tlb_t *tlb)
{
    const unsigned misses = tlb->misses;

    tlb->misses = 0;
    return misses;
}

/** When will a transfer have ended that has begun at @a began and has missed so
 *  often? In the order of these calls; np_clock(). 0: the model charges
 *  nothing. */
uint64_t np_tlb_due(np_tlb_t *tlb, uint64_t began, unsigned misses);

#endif
