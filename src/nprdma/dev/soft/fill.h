/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How a wide link fills the payload area of its data ring. An ordinary store
 * waits until the reader's cache has given the line up: 64 bytes took 1.5 ns
 * between two threads of a core, 7 between cores with a cache in common, and 30
 * between others, on one machine in turn. So what is fast depends on where the
 * two ends run, and on what they send; nobody tells. Each way is tried now and
 * then, for some MiB, and the one with which they took the least time is used.
 */

#ifndef NP_SOFT_FILL_H_
#define NP_SOFT_FILL_H_

#include "ring.h"

#include "../../mem/bypass.h"
#include "../../mem/stage.h"

typedef enum np_fill_way {
    NP_FILL_NEAR,  /**< round and round in a part that a core's own cache
                        keeps */
    NP_FILL_PAST,  /**< the same with non-temporal stores: the lines are in no
                        cache when they are read */
    NP_FILL_WHOLE, /**< in all of it, which goes through the cache that cores
                        have in common */
    NP_FILL_LAST   /**< in np_fill_t::step: no way is tried */
} np_fill_way_t;

/** Bytes of a period are counted down to this */
#define NP_FILL_LATE_MAX (-(1 << 30))

/** Owner: the link; guarded as its port is. */
typedef struct np_fill {
    int           is_past;  /**< way is NP_FILL_PAST */
    np_fill_way_t way;      /**< in use */
    np_fill_way_t chosen;   /**< in use while none is tried */
    unsigned      step;     /**< ways that have been tried; the next one is so
                                 many behind the one that was chosen */
    uint32_t      left;     /**< periods to its end, or to the next trial */
    uint32_t      pause;    /**< of which that one had so many */
    uint32_t      near;     /**< bytes of the area that the first two use */
    int32_t       bytes;    /**< to the end of this period */
    uint64_t      since;    /**< np_clock() when it began */
    unsigned      timed;    /**< periods of the way that is tried */
    uint64_t      sum;      /**< of what they took, in ns .. */
    uint64_t      worst;    /**< .. and the one that took longest */
    uint64_t      cost[NP_FILL_LAST]; /**< ns of a period, without the worst;
                                           UINT64_MAX: it is not there */
} np_fill_t;

/** Of a link that is not wide */
void np_fill_init(np_fill_t *fill);

/** The ring has been made wide. @param [in] least  A payload may have half of
 *  this at any time. */
void np_fill_begin(np_fill_t *fill, np_ring_tx_t *ring, uint32_t least);

/** A period is over, which has taken @a ns */
void np_fill_period(np_fill_t *fill, np_ring_tx_t *ring, uint64_t ns);

/** np_fill_look if one is */
void np_fill_look_slow(np_fill_t *fill, np_ring_tx_t *ring);


/** How to copy into the area */
static inline np_stage_way_t np_fill_out(const np_fill_t *fill)
{
    return fill->is_past ? NP_STAGE_OUT_PAST : NP_STAGE_OUT;
}

/** A message or a put is sent, or a get has come. To small ones all ways are
 *  the same. */
static UCS_F_ALWAYS_INLINE void np_fill_count(np_fill_t *fill, uint32_t len)
{
    if ((len >= NP_BYPASS_LEAST) && (fill->bytes > NP_FILL_LATE_MAX)) {
        fill->bytes -= len;
    }
}

/** Is a period over? To be asked all along while the ring is wide. */
static inline void np_fill_look(np_fill_t *fill, np_ring_tx_t *ring)
{
    if (fill->bytes <= 0) {
        np_fill_look_slow(fill, ring);
    }
}

#endif
