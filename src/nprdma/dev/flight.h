/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What is in flight on a link, of any device: how many operations, which memory
 * of the target they are about, and why no other one may start now. It is part
 * of the device's link, and the layers above own it.
 */

#ifndef NP_FLIGHT_H_
#define NP_FLIGHT_H_

#include "../mem/overlap.h"

#include <string.h>

/** Why an operation must not just start */
enum {
    NP_GATE_UNCONNECTED = 1u << 0,
    NP_GATE_FENCED      = 1u << 1,  /**< waits for what was before a fence */
    NP_GATE_PENDING     = 1u << 2,  /**< others wait, who were first */
    NP_GATE_DOWN        = 1u << 3,
    NP_GATE_REPLAY      = 1u << 4   /**< what went over the queue pair before
                                         this one goes again first */
};

/** Guarded as its link is */
typedef struct np_flight {
    unsigned        gate;         /**< NP_GATE_..; 0: go ahead */
    ucs_status_t    status;       /**< why it is down, or UCS_OK */
    unsigned        outstanding;  /**< operations but flushes */
    unsigned        atomics;      /**< of these */
    uint64_t        sequence;     /**< of the last operation */
    uint64_t        fence;        /**< with NP_GATE_FENCED: up to this one */
    int             is_refused;   /**< an operation must wait for one that is
                                       outstanding, not for room */
    int             is_reported;  /**< the user knows that it is down */
    ucs_list_link_t down;         /**< of the port's that are to be reported, or
                                       alone */
    np_overlap_t    overlap;      /**< remote ranges in flight */
} np_flight_t;

static inline void np_flight_init(np_flight_t *flight)
{
    memset(flight, 0, sizeof(*flight));
    flight->gate   = NP_GATE_UNCONNECTED;
    flight->status = UCS_OK;
    ucs_list_head_init(&flight->down);
    np_overlap_init(&flight->overlap);
}

/** The user of the link has others that wait, or none any more */
static UCS_F_ALWAYS_INLINE void
np_flight_set_pending(np_flight_t *flight, int has_pending)
{
    if (has_pending) {
        flight->gate |= NP_GATE_PENDING;
    } else {
        flight->gate &= ~NP_GATE_PENDING;
    }
}

/** One more is outstanding; returns its number */
static UCS_F_ALWAYS_INLINE uint64_t
np_flight_begin(np_flight_t *flight, int is_atomic)
{
    ++flight->outstanding;
    flight->atomics += is_atomic;
    return ++flight->sequence;
}

/** One is not any more: what was refused may be tried again */
static UCS_F_ALWAYS_INLINE void
np_flight_end(np_flight_t *flight, int is_atomic)
{
    np_assert(flight->outstanding > 0);
    np_assert(!is_atomic || (flight->atomics > 0));
    --flight->outstanding;
    flight->atomics   -= is_atomic;
    flight->is_refused = 0;
}

/** What comes later waits for all that is outstanding now */
static inline void np_flight_fence(np_flight_t *flight)
{
    flight->fence = flight->sequence;
    flight->gate |= NP_GATE_FENCED;
}

/** Does anything behind a fence rely on the operation of this number? */
static UCS_F_ALWAYS_INLINE int
np_flight_is_relied_on(const np_flight_t *flight, uint64_t sequence)
{
    return (flight->gate & NP_GATE_FENCED) && (sequence <= flight->fence);
}

static UCS_F_ALWAYS_INLINE int np_flight_is_down(const np_flight_t *flight)
{
    return !!(flight->gate & NP_GATE_DOWN);
}

#endif
