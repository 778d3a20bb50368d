/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The views of our arenas as memory regions of an RNIC. They are made at first
 * use, by a thread, since that takes milliseconds, and kept until the process
 * ends. Bytes are named by their virtual addresses, entries of the table by
 * NP_VIEWS_TABLE of the address of their page.
 */

#ifndef NP_VIEWS_H_
#define NP_VIEWS_H_

#include "nic.h"

#include "../../mem/kmod.h"

#include <pthread.h>

/** Where an RNIC finds the entry of the page of @a va */
#define NP_VIEWS_TABLE(_va) \
    (((_va) >> NP_PAGE_SHIFT) * sizeof(uint32_t))

typedef enum np_views_state {
    NP_VIEWS_BUILDING,
    NP_VIEWS_READY,
    NP_VIEWS_REFUSED    /**< for good */
} np_views_state_t;

/** Owner: its nic, until the process ends */
typedef struct np_nic_views {
    ucs_list_link_t  list;       /**< of the nic's; guarded by the views' lock */
    np_nic_t         *nic;
    uint32_t         arena;
    uint64_t         engine_id;  /**< whose: not those of the parent of a fork */
    ucs_list_link_t  build;      /**< of those to be built; guarded as list */
    _Atomic int      state;      /**< np_views_state_t; set with release, what
                                      follows is constant then */
    np_kmod_region_t *region;
    struct ibv_mr    *read;      /**< for peers to read, and for us to send from */
    struct ibv_mr    *write;     /**< for peers to write, and for us to read into */
    struct ibv_mr    *table;     /**< for peers to read */
} np_nic_views_t;

/** Those of an arena; not READY yet after the first call. NULL: no memory. Any
 *  thread. */
np_nic_views_t *np_views_get(np_nic_t *nic, uint32_t arena);

/** Nothing is being built any more, for nobody asks for more. Any thread. */
void np_views_wait(np_nic_t *nic);

/** A forked child: whoever held locks is not there */
void np_views_after_fork(void);

static UCS_F_ALWAYS_INLINE np_views_state_t
np_views_state(const np_nic_views_t *views)
{
    return (np_views_state_t)atomic_load_explicit(&views->state,
                                                  memory_order_acquire);
}

#endif
