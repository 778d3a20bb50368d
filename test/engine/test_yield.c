/* SPDX-License-Identifier: BSD-3-Clause */
/* A port that waits gives way to a process that wants its CPU, and only then.
 * Each case is a child with an engine of its own. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "pair.h"
#include "rival.h"
#include "tap.h"

#include "nprdma/clock.h"
#include "nprdma/engine.h"

#define YIELD_WAIT  (5 * NP_CLOCK_SEC)   /* for what must happen */
#define YIELD_NEVER (200 * NP_CLOCK_MSEC) /* for what must not */
#define YIELD_TIMES 100


static uint64_t yield_count(const pair_t *pair)
{
    return atomic_load(&pair->target->flights.stats->yields) +
           atomic_load(&pair->initiator->flights.stats->yields);
}

/* Both ports poll for so long, or until they have given way often. A message
 * comes before each look if @a is_busy. Returns how often they have. */
static uint64_t yield_poll(pair_t *pair, uint64_t time, int is_busy)
{
    const uint64_t end = np_clock() + time;

    while ((np_clock() < end) && (yield_count(pair) < YIELD_TIMES)) {
        if (is_busy) {
            pair_send(&pair->link);
        }
        pair_progress(pair->target);
        pair_progress(pair->initiator);
    }
    return yield_count(pair);
}

/* With a rival. Returns how often the ports have given way, or -1. */
static int64_t
yield_beside(int is_on, int is_never, uint64_t time, int is_busy)
{
    pair_t pair;
    int64_t count;
    pid_t pid;

    if (!pair_open_child(&pair)) {
        return -1;
    }

    np_engine.config.yield         = is_on;
    pair.target->yield.is_never    = is_never;
    pair.initiator->yield.is_never = is_never;
    pid                            = rival_start();
    if (pid < 0) {
        return -1;
    }

    count = yield_poll(&pair, time, is_busy);
    rival_stop(pid);
    return count;
}

static int yield_on(void)
{
    TAP_CHILD_CHECK(yield_beside(1, 0, YIELD_WAIT, 0) >= YIELD_TIMES);
    return 0;
}

static int yield_off(void)
{
    TAP_CHILD_CHECK(yield_beside(0, 0, YIELD_NEVER, 0) == 0);
    return 0;
}

static int yield_never(void)
{
    TAP_CHILD_CHECK(yield_beside(1, 1, YIELD_NEVER, 0) == 0);
    return 0;
}

/* One of them finds something, the other one waits */
static int yield_busy(void)
{
    TAP_CHILD_CHECK(yield_beside(1, 0, YIELD_NEVER, 1) == 0);
    return 0;
}

void test_yield(void)
{
    TAP_CHECK(tap_child(yield_on), "yield: to one that wants the CPU");
    TAP_CHECK(tap_child(yield_off), "yield: not if it shall not");
    TAP_CHECK(tap_child(yield_never), "yield: nor with a lock of its caller's");
    TAP_CHECK(tap_child(yield_busy), "yield: nor while messages come");
}
