/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which transfers in flight overlap a new one (seed NP-RDMA, section 3.3).
 * Belongs to one link; guarded as the link is.
 *
 * The ranges are a search tree by their first byte, and each knows the last
 * byte of all that is below it: one way down tells whether anything overlaps,
 * however much is in flight. Random priorities keep the tree flat (a treap), so
 * it needs neither memory of its own nor a second pass.
 *
 * Few transfers overlap others. So a range is put into the tree only when a
 * search comes near it: until then it is in a list, of which only the hull is
 * known, and most ranges end there.
 */

#ifndef NP_OVERLAP_H_
#define NP_OVERLAP_H_

#include "../np.h"

/** Which ranges a search is about */
enum {
    NP_OVERLAP_ALL,
    NP_OVERLAP_WRITES,
    NP_OVERLAP_LAST
};

/** A range of bytes in flight. Owner: the operation that it is part of; it must
 *  not move while it is in a table. */
typedef struct np_interval {
    struct np_interval *left;    /**< what begins before it, or NULL; in the
                                      list the one that was added before */
    struct np_interval *right;   /**< in the list the one that was added
                                      after */
    uint64_t           first;
    uint64_t           last;     /**< inclusive */
    uint64_t           end[NP_OVERLAP_LAST]; /**< greatest last + 1 of it and of
                                      all below it; 0: none of them is of that
                                      kind */
    uint32_t           priority; /**< at least as high as all below */
    uint16_t           is_write; /**< of this memory */
    uint16_t           is_recent; /**< in the list, not in the tree */
} np_interval_t;

/** Ranges in flight in one address space */
typedef struct np_overlap {
    np_interval_t *root;         /**< NULL: nothing is in the tree */
    np_interval_t *recent;       /**< the last of the list; NULL: it is empty */
    uint64_t      begin[NP_OVERLAP_LAST]; /**< of the hull of the list, and of
                                      what was in it since it was empty */
    uint64_t      end[NP_OVERLAP_LAST];   /**< greatest last + 1 of these */
    uint64_t      random;        /**< of the last priority */
} np_overlap_t;

void np_overlap_init(np_overlap_t *overlap);

/** @a len is at least 1, and the range ends before the last byte that 64 bits
 *  address. Two ranges that only read may overlap. */
void np_overlap_add(np_overlap_t *overlap, np_interval_t *interval, uint64_t va,
                    uint64_t len, int is_write);

void np_overlap_remove(np_overlap_t *overlap, np_interval_t *interval);

/** Does a new range touch one in flight, and does one of the two write? Nothing
 *  in flight costs two loads. */
int np_overlap_check(np_overlap_t *overlap, uint64_t va, uint64_t len,
                     int is_write);

/** The same; @a steps_p: ranges of the tree that were looked at */
int np_overlap_check_steps(np_overlap_t *overlap, uint64_t va, uint64_t len,
                           int is_write, unsigned *steps_p);

#endif
