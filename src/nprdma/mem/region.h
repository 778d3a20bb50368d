/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Regions: with UCX_NPRDMA_MR_SCOPE=exact, what peers may reach is what is
 * registered, and no more. The process keeps the set of all regions; they may
 * overlap. With arena scope there are those of files alone (file.h), whose
 * bytes are always reached exactly.
 *
 * A region ends for its bytes at once. A page is mapped for peers only while
 * one region has all of it: a neighbour in the same page must not keep alive
 * what has ended. At the edges of a region, whose pages have other bytes too,
 * this process moves the bytes itself, and looks at the set each time
 * (access.h). For this, a page is mapped for this process alone while a region
 * touches it.
 */

#ifndef NP_REGION_H_
#define NP_REGION_H_

#include "file.h"

#include "../engine.h"

/** A registered range. Owner: the set, while it is registered. */
typedef struct np_region np_region_t;


/** Is all that the program registers a region? Constant once the engine has
 *  started. */
static UCS_F_ALWAYS_INLINE int np_region_is_exact(void)
{
    return ucs_unlikely(np_engine.config.mr_scope == NP_MR_SCOPE_EXACT);
}

/** Is this byte reached by a region, or not at all? */
static UCS_F_ALWAYS_INLINE int np_region_guards(uint64_t va)
{
    return np_region_is_exact() || ucs_unlikely(np_file_has(va));
}

/** Prepare for forks; each registration does it as well */
void np_regions_start(void);

/**
 * Register [@a va, @a va + @a len), a length of 0 counts as 1. To register the
 * same range again gives the same region, one use more. Touches no page of it.
 * Any thread.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM: not a range of user addresses
 *         (logged); UCS_ERR_NO_MEMORY (logged).
 */
ucs_status_t np_region_get(uint64_t va, uint64_t len, np_region_t **region_p);

/**
 * One use less; the last one ends it: later requests of peers are refused. When
 * this returns, those of its pages that no other region has as a whole are not
 * mapped any more, and no device uses them. What this process has begun to move
 * for a peer may still be under way: np_drain waits for that. Any thread.
 */
void np_region_put(np_region_t *region);

/**
 * As np_region_put, and @a ended is called when the region has ended, and
 * nothing of it is being moved any more: before this returns, or, if others
 * have the same range registered and so keep its keys good, when the last of
 * them gives it back.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY (logged): nothing has been done.
 */
ucs_status_t np_region_invalidate(np_region_t *region, void (*ended)(void *arg),
                                  void *arg);

uint64_t np_region_va(const np_region_t *region);

/** Bytes */
uint64_t np_region_len(const np_region_t *region);

/** Does one region have all of [@a va, @a va + @a len)? The check of a peer's
 *  request. Any thread. */
int np_regions_cover(uint64_t va, uint64_t len);

/**
 * Which pages a mapper may map for this process.
 *
 * @return end of the pages from @a va on of which each is touched by a region:
 *         a page border, at most @a end rounded up, at least @a va rounded
 *         down.
 */
uint64_t np_regions_touched(uint64_t va, uint64_t end);

/** The same for peers: pages of which each is in one region as a whole */
uint64_t np_regions_whole(uint64_t va, uint64_t end);

/** May peers reach all pages of [@a va, @a va + @a len) by themselves? With
 *  arenas, yes. */
static UCS_F_ALWAYS_INLINE int np_regions_share(uint64_t va, uint64_t len)
{
    return !np_region_guards(va) ||
           (np_regions_whole(va, va + len) >= (va + len));
}

/** May every page of [@a va, @a va + @a len) be mapped for this process? With
 *  arenas, yes. */
static UCS_F_ALWAYS_INLINE int np_regions_allow(uint64_t va, uint64_t len)
{
    return !np_region_guards(va) || (len == 0) ||
           (np_regions_touched(va, va + len) >= (va + len));
}

#endif
