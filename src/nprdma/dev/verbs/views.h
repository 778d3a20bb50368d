/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The views of our arenas as memory regions of an RNIC. They are made at first
 * use, by a thread, since that takes milliseconds, and kept until the process
 * ends. Bytes are named by their virtual addresses, entries of the table by
 * NP_VIEWS_TABLE of the address of their page.
 *
 * Many devices take no region as large as an arena. So a view is a row of
 * regions, all of the same size but perhaps the last, which begin at multiples
 * of it; where the device takes it, a row of one. Two regions have different
 * keys: no request may cross their border.
 */

#ifndef NP_VIEWS_H_
#define NP_VIEWS_H_

#include "nic.h"
#include "vwire.h"

#include "../../mem/kmod.h"

#include <pthread.h>

/** Where an RNIC finds the entry of the page of @a va */
#define NP_VIEWS_TABLE(_va) \
    (((_va) >> NP_PAGE_SHIFT) * sizeof(uint32_t))

typedef enum np_views_state {
    NP_VIEWS_BUILDING,
    NP_VIEWS_READY,
    NP_VIEWS_LATER,     /**< refused for a time */
    NP_VIEWS_REFUSED    /**< for good */
} np_views_state_t;

/** One place of the row */
typedef struct np_views_part {
    struct ibv_mr *read;  /**< for peers to read, and for us to send from */
    struct ibv_mr *write; /**< for peers to write, and for us to read into */
} np_views_part_t;

/** Owner: its nic, until the process ends */
typedef struct np_nic_views {
    ucs_list_link_t  list;       /**< of the nic's; guarded by the views'
                                      lock */
    np_nic_t         *nic;
    uint32_t         arena;
    uint64_t         engine_id;  /**< whose: not those of the parent of a
                                      fork */
    ucs_list_link_t  build;      /**< of those to be built; guarded as list */
    _Atomic int      state;      /**< np_views_state_t; set with release, what
                                      follows is constant then */
    np_kmod_region_t *region;
    unsigned         shift;      /**< parts have 2^shift bytes */
    unsigned         count;      /**< so many of them */
    np_views_part_t  *parts;     /**< in the order of addresses */
    struct ibv_mr    *table;     /**< for peers to read */
    uint64_t         again;      /**< LATER: not before; np_clock_coarse() */
    uint64_t         delay;      /**< and for how long it has waited */
} np_nic_views_t;

/** Those of an arena; not READY yet after the first call. NULL: no memory. Any
 *  thread. */
np_nic_views_t *np_views_get(np_nic_t *nic, uint32_t arena);

/** Those that are LATER: build them, if it is time. Any thread. */
void np_views_again(np_nic_views_t *views);

/** Nothing is being built any more, since nothing more is asked for. Any
 *  thread. */
void np_views_wait(np_nic_t *nic);

/** A forked child: the threads that held locks are not there */
void np_views_after_fork(void);

static UCS_F_ALWAYS_INLINE np_views_state_t
np_views_state(const np_nic_views_t *views)
{
    return (np_views_state_t)atomic_load_explicit(&views->state,
                                                  memory_order_acquire);
}

/** The part that has all of [@a va, @a va + @a len), of views that are READY;
 *  NULL: none has. @a va lies in their arena, @a len is at least 1. */
static UCS_F_ALWAYS_INLINE const np_views_part_t *
np_views_part(const np_nic_views_t *views, uint64_t va, uint64_t len)
{
    const uint64_t first = va - views->region->va;
    const uint64_t last  = first + len - 1;

    /* both at once: one branch */
    return (((first ^ last) >> views->shift) |
            (last >= views->region->len)) ? NULL :
           &views->parts[first >> views->shift];
}

#endif
