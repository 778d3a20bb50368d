/*
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifndef NF_CLOCK_H_
#define NF_CLOCK_H_

#include <stdint.h>
#include <time.h>

#define nf_min(_a, _b)   (((_a) < (_b)) ? (_a) : (_b))

/** Nanoseconds of a clock that never goes back */
static inline uint64_t nf_now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return ((uint64_t)time.tv_sec * 1000000000) + time.tv_nsec;
}

#endif
