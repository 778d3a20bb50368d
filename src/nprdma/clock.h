/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The clock that all processes of a host have in common.
 */

#ifndef NP_CLOCK_H_
#define NP_CLOCK_H_

#include <stdint.h>
#include <time.h>

/** Nanoseconds; 25 ns to ask where the kernel lets user space read it */
static inline uint64_t np_clock(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (ts.tv_sec * UINT64_C(1000000000)) + ts.tv_nsec;
}

/** The same, precise to a tick of the kernel (1 to 10 ms), and never a system
 *  call, which a look at the exact time is on some machines */
static inline uint64_t np_clock_coarse(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (ts.tv_sec * UINT64_C(1000000000)) + ts.tv_nsec;
}

#endif
