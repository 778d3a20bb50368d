/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory that we gave out: segments that peers map, known by number, ended by
 * np_alloc_free.
 *
 * Layout of such a segment: one page for np_alloc_head_t, then the memory.
 */

#ifndef NP_ALLOC_H_
#define NP_ALLOC_H_

#include "../np.h"
#include "region.h"

#include <sys/types.h>

/** First page of an allocated segment. Written by its owner; peers read. */
typedef struct np_alloc_head {
    _Atomic uint32_t ended;   /**< the owner has freed the memory */
} np_alloc_head_t;

/** One allocation. Owner: the caller of np_alloc_create. */
typedef struct np_alloc {
    ucs_list_link_t list;     /**< in the list of all; guarded by its lock */
    uint64_t        id;       /**< never 0, never used again */
    np_alloc_head_t *head;    /**< its page */
    void            *addr;    /**< what the user sees, not always beside it */
    size_t          len;      /**< bytes, whole pages */
    np_region_t     *region;  /**< with exact scope */
    int             fd;
    pid_t           pid;      /**< of its maker */
} np_alloc_t;

/**
 * Allocate memory that peers may map.
 *
 * @param [in]     addr   NULL, or where, a multiple of the page size: what is
 *                        mapped there is replaced, as by MAP_FIXED.
 * @param [in,out] len    Bytes; rounded up to whole pages.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY (logged with the size).
 */
ucs_status_t np_alloc_create(void *addr, size_t *len, np_alloc_t **alloc_p);

/** Free it. Peers that have it mapped keep an empty mapping until they look;
 *  its pages go now. */
void np_alloc_free(np_alloc_t *alloc);

/**
 * Duplicate the file descriptor of allocation @a id, so that it can be sent.
 *
 * @return a descriptor that the caller closes, or -1 if there is no such
 *         allocation.
 */
int np_alloc_dup_fd(uint64_t id, size_t *segment_size);

#endif
