/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A link asks the policy of unloading (unload.h) about its small puts, and
 * tells it what they have cost: one at a time is timed, from its beginning to
 * its end, whichever way it went in the end.
 */

#ifndef NP_WEIGH_H_
#define NP_WEIGH_H_

#include "unload.h"

#include "../clock.h"

/** A put whose end was not seen for so long is not timed any more */
#define NP_WEIGH_LATE_NS  UINT64_C(1000000000)

/** Owner: its link, in turns of its port */
typedef struct np_weigh {
    np_unload_t       policy;
    int               is_asked; /**< of a put that has not begun yet */
    int               is_unloaded; /**< the answer, */
    np_unload_guess_t guess;    /**< what is expected of it, */
    uint64_t          addr;     /**< and of what put it is */
    np_unload_guess_t timed;    /**< of the put whose time is taken; NONE: of
                                     none */
    uint64_t          begin;    /**< and when it began */
    uint64_t          sequence; /**< its operation; 0: it has none */
} np_weigh_t;


/** Was it asked for, and left to the device? */
static inline int np_weigh_is_left(const np_weigh_t *weigh, uint64_t addr)
{
    return weigh->is_asked && (weigh->addr == addr) && !weigh->is_unloaded;
}

/** Is a put unloaded? One that could not begin yet is asked for again, and has
 *  the same answer if no other was asked for meanwhile. */
static inline int np_weigh_decides(np_weigh_t *weigh, uint64_t addr)
{
    if (!weigh->is_asked || (weigh->addr != addr)) {
        weigh->is_unloaded = np_unload_decides(&weigh->policy, addr,
                                               &weigh->guess);
        weigh->is_asked    = 1;
        weigh->addr        = addr;
    }
    return weigh->is_unloaded;
}

/** The put that was asked for has begun, as this operation; @a begin: when,
 *  np_clock(), or 0: now. Returns whether its time is taken. */
static inline int
np_weigh_begin(np_weigh_t *weigh, uint64_t sequence, uint64_t begin)
{
    uint64_t now;

    weigh->is_asked = 0;
    if (ucs_likely(weigh->guess == NP_UNLOAD_NONE)) {
        return 0;
    }

    now = np_clock();
    if ((weigh->timed != NP_UNLOAD_NONE) &&
        ((now - weigh->begin) < NP_WEIGH_LATE_NS)) {
        return 0;
    }

    weigh->timed    = weigh->guess;
    weigh->begin    = (begin == 0) ? now : begin;
    weigh->sequence = sequence;
    return 1;
}

/** This operation has ended; 0: the one that has none. @a is_right: its time
 *  counts. */
static inline void
np_weigh_ended(np_weigh_t *weigh, uint64_t sequence, int is_right)
{
    if ((weigh->timed == NP_UNLOAD_NONE) || (weigh->sequence != sequence)) {
        return;
    }

    if (is_right) {
        np_unload_observe(&weigh->policy, weigh->timed,
                          np_clock() - weigh->begin);
    }
    weigh->timed = NP_UNLOAD_NONE;
}

#endif
