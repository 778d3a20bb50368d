/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows: peers' allocated segments, mapped here. One for each segment in the
 * whole process, shared by all keys.
 */

#ifndef NP_WINDOW_H_
#define NP_WINDOW_H_

#include "../np.h"
#include "alloc.h"

/** A peer's segment. Counted: the table of windows itself has no count. */
typedef struct np_window {
    ucs_list_link_t list;        /**< in the table; guarded by its lock */
    uint64_t        port_id;     /**< of the port that has sent it: an engine's
                                      id is the peer's word, and another peer
                                      may claim the same; no other can listen
                                      there */
    uint64_t        segment_id;
    unsigned        refs;        /**< guarded by the table's lock */
    np_alloc_head_t *head;       /**< start of the mapping */
    void            *base;       /**< the owner's first byte, as seen here */
    size_t          size;        /**< bytes of the mapping */
} np_window_t;

/** Look for a window and count one more use of it; NULL if there is none */
np_window_t *np_window_get(uint64_t port_id, uint64_t segment_id);

/**
 * Map a segment that its owner sent and put it into the table with one use.
 *
 * @param [in] fd    Stays the caller's.
 * @param [in] size  Bytes of the whole segment, as the owner said; checked.
 */
ucs_status_t np_window_add(uint64_t port_id, uint64_t segment_id, int fd,
                           size_t size, np_window_t **window_p);

/** One use less; the last one unmaps */
void np_window_put(np_window_t *window);


/** Has its owner freed it? */
static UCS_F_ALWAYS_INLINE int np_window_is_ended(const np_window_t *window)
{
    /* acquire: what the owner did before it freed the memory is over */
    return atomic_load_explicit(&window->head->ended, memory_order_acquire);
}

#endif
