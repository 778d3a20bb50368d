/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies that leave the caches to others: what is larger than a cache holds
 * does not stay there, and to bring its lines in before they are overwritten
 * takes a third of the memory's bandwidth. Or the lines are in the cache of
 * another core, which would have to give them up.
 */

#ifndef NP_BYPASS_H_
#define NP_BYPASS_H_

#include "../np.h"

#include <stddef.h>
#include <string.h>

/** Has this processor stores that go to memory at once? */
#ifdef __SSE2__
#  define NP_BYPASS_IS_THERE 1
#else
#  define NP_BYPASS_IS_THERE 0
#endif

/** Copies of less stay in the caches, whatever is wanted */
#define NP_BYPASS_LEAST 4096

/** Bytes of a transfer from which np_bypass_copy() is faster: a half of the
 *  largest cache, since both sides' memory goes through it. SIZE_MAX: never, or
 *  the kernel does not say how large it is. Set by np_bypass_start() alone. */
extern size_t np_bypass_min;

/** Ask the kernel for that. Once, before there are ports. */
void np_bypass_start(void);

/** Copy, with such stores where they are there. What is stored afterwards is
 *  seen after it. */
void np_bypass_copy(void *dst, const void *src, size_t len);


/** The same if @a past and it is worth it */
static UCS_F_ALWAYS_INLINE void
np_bypass_copy_if(int past, void *dst, const void *src, size_t len)
{
    if (ucs_unlikely(past) && (len >= NP_BYPASS_LEAST)) {
        np_bypass_copy(dst, src, len);
    } else {
        memcpy(dst, src, len);
    }
}

#endif
