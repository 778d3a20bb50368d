/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A hash of numbers that come in rows, such as those of pages.
 */

#ifndef NP_HASH_H_
#define NP_HASH_H_

#include <ucs/sys/compiler_def.h>

#include <stdint.h>

/** The upper bits of what is returned are the hash: neighbours are far apart.
 *  The factor is odd, and near 2^64 divided by the golden ratio. */
static UCS_F_ALWAYS_INLINE uint64_t np_hash(uint64_t number)
{
    return number * UINT64_C(0x9e3779b97f4a7c15);
}

#endif
