/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which transfers in flight overlap a new one.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "overlap.h"

#define NP_OVERLAP_SHIFT  16
#define NP_OVERLAP_BITS   64

/* With so many bits set the filter is worth a walk of the list to renew it */
#define NP_OVERLAP_FULL   (NP_OVERLAP_BITS / 2)


/* Neighbours get different bits; so do most arrays of one alignment */
static UCS_F_ALWAYS_INLINE unsigned np_overlap_hash(uint64_t chunk)
{
    return (chunk ^ (chunk >> 6) ^ (chunk >> 12)) % NP_OVERLAP_BITS;
}

static UCS_F_ALWAYS_INLINE uint64_t
np_overlap_mask(uint64_t first, uint64_t last)
{
    uint64_t chunk = first >> NP_OVERLAP_SHIFT;
    uint64_t mask  = 0;

    last >>= NP_OVERLAP_SHIFT;
    if ((last - chunk) >= NP_OVERLAP_BITS) {
        return UINT64_MAX;
    }

    for (; chunk <= last; ++chunk) {
        mask |= UINT64_C(1) << np_overlap_hash(chunk);
    }

    return mask;
}

void np_overlap_init(np_overlap_t *overlap)
{
    ucs_list_head_init(&overlap->intervals);
    overlap->filter = 0;
}

void np_overlap_add(np_overlap_t *overlap, np_interval_t *interval, uint64_t va,
                    uint64_t len, int is_write)
{
    interval->first    = va;
    interval->last     = va + len - 1;
    interval->is_write = is_write;
    overlap->filter   |= np_overlap_mask(interval->first, interval->last);
    ucs_list_add_tail(&overlap->intervals, &interval->list);
}

/* Bits are shared, so they go only when all are counted anew */
static void np_overlap_renew(np_overlap_t *overlap)
{
    np_interval_t *interval;

    overlap->filter = 0;
    ucs_list_for_each(interval, &overlap->intervals, list) {
        overlap->filter |= np_overlap_mask(interval->first, interval->last);
    }
}

void np_overlap_remove(np_overlap_t *overlap, np_interval_t *interval)
{
    ucs_list_del(&interval->list);
    if (ucs_list_is_empty(&overlap->intervals)) {
        overlap->filter = 0;
    } else if (__builtin_popcountll(overlap->filter) >= NP_OVERLAP_FULL) {
        np_overlap_renew(overlap);
    }
}

int np_overlap_check(const np_overlap_t *overlap, uint64_t va, uint64_t len,
                     int is_write)
{
    const uint64_t last = va + len - 1;
    const np_interval_t *interval;

    if (ucs_likely(overlap->filter == 0)) {
        return 0;
    }

    if ((overlap->filter & np_overlap_mask(va, last)) == 0) {
        return 0;
    }

    ucs_list_for_each(interval, &overlap->intervals, list) {
        if ((interval->first <= last) && (va <= interval->last) &&
            (is_write || interval->is_write)) {
            return 1;
        }
    }

    return 0;
}
