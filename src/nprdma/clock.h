/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The clock that all processes of a host have in common.
 */

#ifndef NP_CLOCK_H_
#define NP_CLOCK_H_

#include <stdint.h>
#include <time.h>

/** Nanoseconds in these */
#define NP_CLOCK_USEC UINT64_C(1000)
#define NP_CLOCK_MSEC UINT64_C(1000000)
#define NP_CLOCK_SEC  UINT64_C(1000000000)

#ifdef NP_TEST_BUILD
/** Set by a test of one thread: the time, which the test lets pass itself; 0:
 *  the real time */
extern uint64_t np_clock_of_test;
#  define NP_CLOCK_OF_TEST np_clock_of_test
#else
#  define NP_CLOCK_OF_TEST UINT64_C(0)
#endif

/** Nanoseconds; 25 ns to ask where the kernel lets user space read it */
static inline uint64_t np_clock(void)
{
    struct timespec ts;

    if (NP_CLOCK_OF_TEST != 0) {
        return NP_CLOCK_OF_TEST;
    }

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (ts.tv_sec * NP_CLOCK_SEC) + ts.tv_nsec;
}

/** The same, precise to a tick of the kernel (1 to 10 ms), and never a system
 *  call: to read the exact time is one on some machines */
static inline uint64_t np_clock_coarse(void)
{
    struct timespec ts;

    if (NP_CLOCK_OF_TEST != 0) {
        return NP_CLOCK_OF_TEST;
    }

    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (ts.tv_sec * NP_CLOCK_SEC) + ts.tv_nsec;
}

/** Nanoseconds of a setting in seconds; a century stands for more */
static inline uint64_t np_clock_of_sec(double seconds)
{
    return (uint64_t)(((seconds < 3e9) ? seconds : 3e9) * 1e9);
}

#endif
