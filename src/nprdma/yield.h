/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A progress that finds nothing gives way to other processes, if they want its
 * CPU: what it waits for may be one of them, and would else wait for the end of
 * its time slice.
 *
 * That the CPU is wanted shows in the count of switches that the thread had not
 * asked for, which those are that follow a yield: as long as somebody takes
 * what is given, it is given. A thread that is alone gives nothing away.
 */

#ifndef NP_YIELD_H_
#define NP_YIELD_H_

#include "clock.h"

/** Owner: a port, or what else is progressed; guarded as that is. Where several
 *  threads progress it, a turn of another one counts as a switch. */
typedef struct np_yield {
    uint64_t look_at;   /**< when the switches are counted again, np_clock() */
    long     switches;  /**< ru_nivcsw of the thread that did; 0: none yet */
    int      is_wanted; /**< had they grown by then? */
} np_yield_t;

/** np_yield_is_wanted(), which asks the kernel (getrusage, 0.2 us) */
int np_yield_look(np_yield_t *yield, uint64_t now);


/**
 * Has somebody else wanted this thread's CPU lately? Looks once in a
 * millisecond, and where it has been so far more often.
 *
 * @param [in] now  np_clock(), or np_clock_coarse().
 *
 * @return 0 also if UCX_NPRDMA_YIELD=n, or if the kernel does not say.
 */
static inline int np_yield_is_wanted(np_yield_t *yield, uint64_t now)
{
    return (now < yield->look_at) ? yield->is_wanted :
           np_yield_look(yield, now);
}

#endif
