/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Units in flight: a thread that moves data stands between translation and move
 * while another one swaps out what it is about to touch. Swap-out returns after
 * the unit has landed.
 */

#include "test_race.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

/* Looks at what the other thread does, and at whether it does more than that */
#define RACE_LOOKS 10000000
#define RACE_AFTER 20

typedef struct race_flight {
    const race_transfer_t *transfer;
    race_start_t          start;
    race_region_t         *region;
    unsigned              page;
    unsigned              at;        /* units before the one that stands */
    unsigned              units;
    uint64_t              flushes;
    _Atomic int           is_there;  /* it stands; or the transfer is over */
    _Atomic int           is_evicted;
} race_flight_t;

static race_flight_t flight;
static __thread int is_mover;


static uint64_t race_flushes(void)
{
    np_stats_t sum;

    np_stats_sum(&sum);
    return sum.flushes;
}

/* Stand until the page is out, which is wrong, or a flush has begun, and then
 * give that some time to be wrong */
static void race_flight_hook(np_pause_point_t point)
{
    unsigned i;

    if (!is_mover || (point != NP_PAUSE_UNIT_IN_FLIGHT) ||
        (flight.units++ != flight.at)) {
        return;
    }

    flight.flushes = race_flushes();
    atomic_store(&flight.is_there, 1);
    for (i = 0; (i < RACE_LOOKS) && !atomic_load(&flight.is_evicted) &&
                (race_flushes() == flight.flushes); ++i) {
        sched_yield();
    }

    for (i = 0; (i < RACE_AFTER) && !atomic_load(&flight.is_evicted); ++i) {
        sched_yield();
    }
}

static void *race_flight_move(void *arg)
{
    ucs_status_t status;
    race_comp_t comp;

    is_mover = 1;
    status   = race_transfer_post(flight.transfer, &comp);
    (void)race_transfer_wait(flight.transfer, status, &comp);
    if (!race_drain()) {
        race_violation("something stays outstanding");
    }
    atomic_store(&flight.is_there, 1);
    return NULL;
}

/* Returns whether a unit stood */
static int race_flight_run(void)
{
    pthread_t thread;

    ++race_result->runs;
    race_set_label("units in flight: %s, %s; out of %s page %u at unit %u",
                   flight.transfer->name, race_start_names[flight.start],
                   (flight.region == &race_remote) ? "remote" : "local",
                   flight.page, flight.at);
    race_transfer_reset(flight.transfer, flight.start);
    race_plans_clear();
    flight.units      = 0;
    flight.is_there   = 0;
    flight.is_evicted = 0;
    race.is_threaded  = 1;
    np_pause_hook     = race_flight_hook;
    if (pthread_create(&thread, NULL, race_flight_move, NULL) != 0) {
        race_violation("no thread");
        return 0;
    }

    while (!atomic_load(&flight.is_there)) {
        sched_yield(); /* the transfer is bounded */
    }
    race_evict(flight.region, flight.page);
    atomic_store(&flight.is_evicted, 1);
    pthread_join(thread, NULL);
    np_pause_hook    = NULL;
    race.is_threaded = 0;
    race_transfer_judge("afterwards", flight.transfer, 0);
    return flight.units > flight.at;
}

void race_in_flight(void)
{
    static const race_transfer_t transfers[] = {
        {"get 100",        RACE_GET,        4096 + 256,  8192 + 1000, 100, 1},
        {"put 1000",       RACE_PUT,        4096 + 3700, 8192 + 1000, 1000, 1},
        {"put copied 600", RACE_PUT_COPIED, 4096 + 3800, 0, 600, 1},
        {"get 1000",       RACE_GET,        4096 + 3700, 8192 + 3700, 1000, 1}
    };
    unsigned i;
    int side;

    for (i = 0; i < ucs_static_array_size(transfers); ++i) {
        flight.transfer = &transfers[i];
        for (flight.start = 0; flight.start <= RACE_REMOTE_OUT;
             ++flight.start) {
            for (side = 0; side <= race_has_local(flight.transfer); ++side) {
                flight.region = side ? &race_local : &race_remote;
                flight.page   = (side ? transfers[i].local :
                                 transfers[i].remote) / NP_PAGE_SIZE;
                flight.at     = 0;
                while (race_flight_run() && !race_is_over()) {
                    ++flight.at;
                }
            }
        }
    }
}
