/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranges of a transfer.
 */

#ifndef NP_RANGES_H_
#define NP_RANGES_H_

#include <stddef.h>

/** Of a list: what one call of a mover reports, and some that come back */
#define NP_RANGES_MAX  64

/** Parts of a transfer, as offsets into it; in order and not touching, unless
 *  said otherwise */
typedef struct np_ranges {
    unsigned count;
    struct {
        size_t offset;
        size_t len;
    } range[NP_RANGES_MAX];
} np_ranges_t;

/** Add a range. If there is no room it becomes part of the last one, with all
 *  that is between. */
void np_ranges_add(np_ranges_t *ranges, size_t offset, size_t len);

/** Copies only what is filled in: as a rule there is none */
static inline void np_ranges_copy(np_ranges_t *dst, const np_ranges_t *src)
{
    unsigned i;

    dst->count = src->count;
    for (i = 0; i < src->count; ++i) {
        dst->range[i] = src->range[i];
    }
}

#endif
