/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which transfers in flight overlap a new one (seed NP-RDMA, section 3.3).
 * Belongs to one link; guarded as the link is.
 */

#ifndef NP_OVERLAP_H_
#define NP_OVERLAP_H_

#include "../np.h"

/** A range of bytes in flight. Owner: the operation that it is part of. */
typedef struct np_interval {
    ucs_list_link_t list;
    uint64_t        first;
    uint64_t        last;      /**< inclusive */
    int             is_write;  /**< of this memory */
} np_interval_t;

/** Ranges in flight in one address space */
typedef struct np_overlap {
    ucs_list_link_t intervals;
    uint64_t        filter;    /**< a bit for each hashed 64 KiB that any of them
                                    touches; all bits if one is larger */
} np_overlap_t;

void np_overlap_init(np_overlap_t *overlap);

/** @a len is at least 1. Two ranges that only read may overlap. */
void np_overlap_add(np_overlap_t *overlap, np_interval_t *interval, uint64_t va,
                    uint64_t len, int is_write);

void np_overlap_remove(np_overlap_t *overlap, np_interval_t *interval);

/** Does a new range touch one in flight, and does one of the two write? Nothing
 *  in flight costs one load. */
int np_overlap_check(const np_overlap_t *overlap, uint64_t va, uint64_t len,
                     int is_write);

#endif
