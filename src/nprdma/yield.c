/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Does anybody else want the CPU?
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "yield.h"

#include "engine.h"

#include <sys/resource.h>

/* ns to the next look: while nobody wants the CPU, and while somebody does. A
 * yield costs 0.2 us, and so does a look. */
#define NP_YIELD_LOOK   NP_CLOCK_MSEC
#define NP_YIELD_AGAIN  (100 * NP_CLOCK_USEC)


int np_yield_look(np_yield_t *yield, uint64_t now)
{
    struct rusage usage;

    yield->is_wanted = 0;
    if (np_engine.config.yield && (getrusage(RUSAGE_THREAD, &usage) == 0)) {
        yield->is_wanted = (usage.ru_nivcsw != yield->switches) &&
                           (yield->switches > 0);
        yield->switches  = usage.ru_nivcsw;
    }
    yield->look_at = now + (yield->is_wanted ? NP_YIELD_AGAIN : NP_YIELD_LOOK);
    return yield->is_wanted;
}
