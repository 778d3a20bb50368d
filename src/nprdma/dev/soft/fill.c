/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How a wide link fills its payload area.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "fill.h"

#include "../../clock.h"
#include "../../engine.h"

/* The part of the area that a core's own cache keeps */
#define NP_FILL_PART       (512 * 1024)

/* What is timed. More than the ring holds of messages, so that it takes as long
 * as the slower of both ends. */
#define NP_FILL_PERIOD     (1024 * 1024)

/* So many, of which the one that took longest does not count: perhaps the
 * program computed meanwhile */
#define NP_FILL_TIMED      5

/* Periods of another way before that: its pages have been touched, its lines
 * are where it has them */
#define NP_FILL_WARM       1
#define NP_FILL_WARM_WHOLE 2

/* Periods to the first trial, and to the next one: twice as many after each
 * that changes nothing. A trial has 18 periods at most, of which 7 are twice as
 * long, so that it has little part in what takes long. */
#define NP_FILL_FIRST      64
#define NP_FILL_PAUSE_MIN  256
#define NP_FILL_PAUSE_MAX  2048


static void
np_fill_use(np_fill_t *fill, np_ring_tx_t *ring, np_fill_way_t way)
{
    fill->way          = way;
    fill->is_past      = way == NP_FILL_PAST;
    ring->payload_part = (way == NP_FILL_WHOLE) ? (ring->payload_full + 1) :
                         fill->near;
}

void np_fill_init(np_fill_t *fill)
{
    *fill = (np_fill_t){.step = NP_FILL_LAST};
    if (np_engine.config.nt_stores == UCS_CONFIG_ON) {
        fill->chosen  = NP_FILL_PAST;
        fill->way     = NP_FILL_PAST;
        fill->is_past = 1;
    }
}

void np_fill_begin(np_fill_t *fill, np_ring_tx_t *ring, uint32_t least)
{
    fill->near  = ucs_min(ring->payload_full + 1,
                          ucs_max(NP_FILL_PART, least));
    np_fill_use(fill, ring, fill->chosen);
    fill->pause = NP_FILL_PAUSE_MIN / 2;
    fill->left  = NP_FILL_FIRST;
    fill->bytes = NP_FILL_PERIOD;
}

/* Can it be tried? */
static int np_fill_is_there(const np_fill_t *fill, const np_ring_tx_t *ring,
                            np_fill_way_t way)
{
    const int nt_stores = np_engine.config.nt_stores;

    switch (way) {
    case NP_FILL_PAST:
        return NP_BYPASS_IS_THERE && (nt_stores != UCS_CONFIG_OFF);
    case NP_FILL_WHOLE:
        return (nt_stores != UCS_CONFIG_ON) &&
               (fill->near <= ring->payload_full);
    default:
        return nt_stores != UCS_CONFIG_ON;
    }
}

/* Time the next way that is there. Returns 0 if there is none. */
static int np_fill_try_next(np_fill_t *fill, np_ring_tx_t *ring)
{
    np_fill_way_t way;

    for (; fill->step < NP_FILL_LAST; ++fill->step) {
        way             = (fill->chosen + fill->step) % NP_FILL_LAST;
        fill->cost[way] = UINT64_MAX;
        if (np_fill_is_there(fill, ring, way)) {
            fill->left  = NP_FILL_TIMED + ((way == fill->way)     ? 0 :
                                           (way == NP_FILL_WHOLE) ?
                                           NP_FILL_WARM_WHOLE : NP_FILL_WARM);
            fill->timed = 0;
            fill->sum   = 0;
            fill->worst = 0;
            np_fill_use(fill, ring, way);
            return 1;
        }
    }
    return 0;
}

/* All have been timed. Another one must be better by an eighth. */
static void np_fill_choose(np_fill_t *fill, np_ring_tx_t *ring)
{
    np_fill_way_t best = fill->chosen, way;
    uint64_t least     = fill->cost[best] - (fill->cost[best] / 8);

    for (way = 0; way < NP_FILL_LAST; ++way) {
        if (fill->cost[way] < least) {
            least = fill->cost[way];
            best  = way;
        }
    }

    fill->pause  = (best != fill->chosen) ? NP_FILL_PAUSE_MIN :
                   ucs_min(2 * fill->pause, NP_FILL_PAUSE_MAX);
    fill->left   = fill->pause;
    fill->chosen = best;
    np_fill_use(fill, ring, best);
}

/* A period of the way that is tried has taken so long. Returns whether no more
 * are needed: it has had all, or takes more than twice as long as the one that
 * was chosen. */
static int np_fill_time(np_fill_t *fill, uint64_t ns)
{
    ++fill->timed;
    fill->sum  += ns;
    fill->worst = ucs_max(fill->worst, ns);
    if (fill->timed == 1) {
        return 0;
    }

    fill->cost[fill->way] = (fill->sum - fill->worst) / (fill->timed - 1);
    return (fill->timed == NP_FILL_TIMED) ||
           ((fill->way != fill->chosen) &&
            ((fill->cost[fill->way] / 2) > fill->cost[fill->chosen]));
}

void np_fill_period(np_fill_t *fill, np_ring_tx_t *ring, uint64_t ns)
{
    if (fill->left > NP_FILL_TIMED) {
        --fill->left;
    } else if (fill->step == NP_FILL_LAST) {
        if (--fill->left == 0) {
            fill->step = 0;
            np_fill_try_next(fill, ring);
        }
    } else if (np_fill_time(fill, ns)) {
        ++fill->step;
        if (!np_fill_try_next(fill, ring)) {
            np_fill_choose(fill, ring);
        }
    }
}

void np_fill_look_slow(np_fill_t *fill, np_ring_tx_t *ring)
{
    const uint64_t now = np_clock();
    /* it may have been looked late: of the whole, once round */
    const double late  = NP_FILL_PERIOD - (double)fill->bytes;
    const uint64_t ns  = (now - fill->since) * (NP_FILL_PERIOD / late);

    fill->since = now;
    fill->bytes = NP_FILL_PERIOD;
    np_fill_period(fill, ring, ns);
}
