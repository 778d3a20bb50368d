/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies that leave the caches to others: what is larger than a cache holds
 * does not stay there, and to bring its lines in before they are overwritten
 * takes a third of the memory's bandwidth.
 */

#ifndef NP_BYPASS_H_
#define NP_BYPASS_H_

#include <stddef.h>

/** Bytes of a transfer from which np_bypass_copy() is faster: a half of the
 *  largest cache, since both sides' memory goes through it. SIZE_MAX: never, or
 *  the kernel does not say how large it is. Set by np_bypass_start() alone. */
extern size_t np_bypass_min;

/** Ask the kernel for that. Once, before there are ports. */
void np_bypass_start(void);

/** Copy, with stores that go to memory at once where the processor has such.
 *  What is stored afterwards is seen after it. */
void np_bypass_copy(void *dst, const void *src, size_t len);

#endif
