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

#include <ucs/datastruct/list.h>

#include <pthread.h>

/** Owner: a port; guarded as that is. Where several threads progress it, a look
 *  of another one counts as a switch. */
typedef struct np_yield {
    ucs_list_link_t list;     /**< of all; guarded by its lock */
    const unsigned  *found;   /**< counts what the port's progress finds; read
                                   by other ports, as a hint */
    pthread_t       thread;   /**< that has looked last; guarded by the lock */
    int             has_thread;
    unsigned        sum;      /**< of *found of this thread's ports at the last
                                   turn */
    int             is_never; /**< others may wait for what the caller holds in
                                   its progress; set by the port's user */
    int             is_wanted;
    uint64_t        look_at;  /**< when the switches are counted again,
                                   np_clock() */
    long            switches; /**< ru_nivcsw of the thread that did; 0: none
                                   yet */
} np_yield_t;

/** A port opens, which counts what it finds in @a found */
void np_yield_open(np_yield_t *yield, const unsigned *found);

void np_yield_close(np_yield_t *yield);

/** np_yield_is_wanted(), where it is time to count the switches */
int np_yield_look(np_yield_t *yield, uint64_t now);

/**
 * A turn of a port, one in some progress calls, while the CPU is wanted.
 *
 * @return Whether the caller shall yield: since its last turn nothing was found
 *         by any port of this thread, or of one that is not known yet.
 */
int np_yield_turn(np_yield_t *yield);


/**
 * Has somebody else wanted this thread's CPU lately? Asks the kernel once in a
 * millisecond (getrusage, 0.2 us), and more often while somebody does.
 *
 * @param [in] now  np_clock(), or np_clock_coarse().
 *
 * @return 0 also if UCX_NPRDMA_YIELD=n, if the kernel does not say, and if the
 *         port never yields.
 */
static inline int np_yield_is_wanted(np_yield_t *yield, uint64_t now)
{
    return (now < yield->look_at) ? yield->is_wanted :
           np_yield_look(yield, now);
}

#endif
