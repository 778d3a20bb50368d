/* SPDX-License-Identifier: BSD-3-Clause */
/* Every transfer, with one event at each of its points, or with two. */

#include "test_race.h"

/* Points of its own at which an actor stops, besides at none */
#define RACE_UNTIL 6

/* Later points are not reached by what ends */
#define RACE_POINTS 2000

/* In transfers of up to so many bytes actors stop on their way; in those of up
 * to so many they begin at each point, in larger ones at the first ones, and
 * then at each so many-th, which falls on any place of a page */
#define RACE_SMALL  1024
#define RACE_MEDIUM 8192
#define RACE_FIRST  8
#define RACE_STRIDE 7

/* Offsets: 253 is 3 bytes before a unit's end, 4093 before a page's */
static const race_transfer_t transfers[] = {
    {"get 8",              RACE_GET,        4096 + 253,  8192 + 1000, 8, 1},
    {"get 100",            RACE_GET,        4096 + 3,    8192 + 4090, 100, 1},
    {"get 1 KiB, 3 parts", RACE_GET,        4096 + 1000, 4096 + 3333, 1024, 3},
    {"get 3 pages",        RACE_GET,        4096 + 3900, 4096 + 1000, 4500, 1},
    {"get unpacked 100",   RACE_GET_UNPACK, 4096 + 4093, 0, 100, 1},
    {"get unpacked 4500",  RACE_GET_UNPACK, 4096 + 4000, 0, 4500, 1},
    {"get 16000",          RACE_GET,        4096 + 300,  4096 + 77, 16000, 1},
    {"put 8",              RACE_PUT,        4096 + 64,   8192 + 1000, 8, 1},
    {"put 1 KiB, 3 parts", RACE_PUT,        4096 + 3500, 4096 + 3333, 1024, 3},
    {"put 3 pages",        RACE_PUT,        4096 + 3900, 4096 + 1000, 4500, 1},
    {"put 16000",          RACE_PUT,        4096 + 300,  4096 + 77, 16000, 2},
    {"put copied 8",       RACE_PUT_COPIED, 4096 + 64,   0, 8, 1},
    {"put copied 1 KiB",   RACE_PUT_COPIED, 4096 + 3900, 0, 1024, 1},
    {"put copied 4500",    RACE_PUT_COPIED, 4096 + 3900, 0, 4500, 1},
    {"put short 8",        RACE_PUT_SHORT,  4096 + 72,   0, 8, 1},
    {"fetch and add",      RACE_ADD,        4096 + 128,  0, 8, 1},
    {"compare and swap",   RACE_CSWAP,      4096 + 256,  0, 8, 1}
};

/* Makes sense only where something is out, or not */
static int race_is_for(race_kind_t kind, race_side_t side, race_start_t start,
                       int is_first)
{
    int is_out;

    is_out = (start == RACE_BOTH_OUT) || ((side == RACE_REMOTE) ?
             (start == RACE_REMOTE_OUT) || (start == RACE_ALL_REMOTE_OUT) :
             (start == RACE_LOCAL_OUT));
    switch (kind) {
    case RACE_EV_IN:
    case RACE_EV_PRESENT:
        return is_out;
    case RACE_EV_SERVE:
        return (side == RACE_REMOTE) && is_first;
    case RACE_EV_NONE:
    case RACE_EV_CALL:
        return 0;
    default:
        return 1;
    }
}

static int race_is_start_for(const race_transfer_t *transfer,
                             race_start_t start)
{
    if ((start == RACE_LOCAL_OUT) || (start == RACE_BOTH_OUT)) {
        return race_has_local(transfer);
    }
    return (start != RACE_ALL_REMOTE_OUT) || (transfer->len > RACE_SMALL);
}

/* The event at each point of the transfer, stopping at each of its own */
static void race_sweep_event(const race_transfer_t *transfer,
                             race_start_t start, race_plan_t *plan)
{
    const unsigned stride = (transfer->len > RACE_MEDIUM) ? RACE_STRIDE : 1;
    const unsigned stops  = (transfer->len > RACE_SMALL) ? 0 : RACE_UNTIL;
    unsigned until;

    for (plan->at = 0; (plan->at < RACE_POINTS) && !race_is_over();
         plan->at += (plan->at < RACE_FIRST) ? 1 : stride) {
        plan->until = RACE_NEVER;
        race_transfer_run(transfer, start, plan, 1);
        if (!race_plan_has_begun(0)) {
            return;
        }

        for (until = 0; (until < stops) && !race_is_over(); ++until) {
            plan->until = until;
            race_transfer_run(transfer, start, plan, 1);
            if (!race_plan_has_stopped(0)) {
                break;
            }
        }
    }
}

static void race_sweep_page(const race_transfer_t *transfer,
                            race_start_t start, race_side_t side, unsigned page,
                            int is_first)
{
    race_plan_t plan = {.side = side, .page = page};

    for (plan.kind = 0; (plan.kind <= RACE_EV_CALL) && !race_is_over();
         ++plan.kind) {
        if (race_is_for(plan.kind, side, start, is_first)) {
            race_sweep_event(transfer, start, &plan);
        }
    }
}

/* First and last page of a side */
static void race_sweep_side(const race_transfer_t *transfer,
                            race_start_t start, race_side_t side)
{
    size_t offset  = (side == RACE_REMOTE) ? transfer->remote : transfer->local;
    unsigned first = offset / NP_PAGE_SIZE;
    unsigned last  = (offset + transfer->len - 1) / NP_PAGE_SIZE;

    race_sweep_page(transfer, start, side, first, 1);
    if (last != first) {
        race_sweep_page(transfer, start, side, last, 0);
    }
}

void race_sweep_single(void)
{
    const race_transfer_t *transfer;
    race_start_t start;
    unsigned i;

    for (i = 0; i < ucs_static_array_size(transfers); ++i) {
        transfer = &transfers[i];
        for (start = 0; (start < RACE_STARTS) && !race_is_over(); ++start) {
            if (!race_is_start_for(transfer, start)) {
                continue;
            }

            race_sweep_side(transfer, start, RACE_REMOTE);
            if (race_has_local(transfer)) {
                race_sweep_side(transfer, start, RACE_LOCAL);
            }
        }
    }
}

typedef struct race_pair {
    race_kind_t first;
    race_side_t first_side;
    race_kind_t second;
    race_side_t second_side;
} race_pair_t;

static const race_pair_t pairs[] = {
    {RACE_EV_OUT,    RACE_REMOTE, RACE_EV_IN,      RACE_REMOTE},
    {RACE_EV_OUT,    RACE_REMOTE, RACE_EV_PRESENT, RACE_REMOTE},
    {RACE_EV_OUT_IN, RACE_REMOTE, RACE_EV_OUT,     RACE_REMOTE},
    {RACE_EV_SERVE,  RACE_REMOTE, RACE_EV_OUT,     RACE_REMOTE},
    {RACE_EV_OUT,    RACE_REMOTE, RACE_EV_SERVE,   RACE_REMOTE},
    {RACE_EV_OUT,    RACE_REMOTE, RACE_EV_OUT,     RACE_LOCAL},
    {RACE_EV_OUT,    RACE_LOCAL,  RACE_EV_IN,      RACE_LOCAL},
    {RACE_EV_OUT_IN, RACE_LOCAL,  RACE_EV_OUT,     RACE_LOCAL}
};

/* Transfers of which each pair of points is tried */
static const race_transfer_t paired[] = {
    {"get 8",          RACE_GET,        4096 + 253,  8192 + 1000, 8, 1},
    {"get 600",        RACE_GET,        4096 + 3900, 8192 + 1000, 600, 1},
    {"put 8",          RACE_PUT,        4096 + 64,   8192 + 1000, 8, 1},
    {"put 600",        RACE_PUT,        4096 + 3900, 8192 + 1000, 600, 1},
    {"put copied 8",   RACE_PUT_COPIED, 4096 + 64,   0, 8, 1},
    {"put copied 600", RACE_PUT_COPIED, 4096 + 3900, 0, 600, 1},
    {"fetch and add",  RACE_ADD,        4096 + 128,  0, 8, 1}
};

static void race_sweep_pair(const race_transfer_t *transfer,
                            race_start_t start, const race_pair_t *pair)
{
    race_plan_t plans[2] = {
        {.kind = pair->first, .side = pair->first_side, .until = RACE_NEVER},
        {.kind = pair->second, .side = pair->second_side, .until = RACE_NEVER}
    };
    unsigned i;

    for (i = 0; i < 2; ++i) {
        plans[i].page = ((plans[i].side == RACE_REMOTE) ? transfer->remote :
                         transfer->local) / NP_PAGE_SIZE;
    }

    for (plans[0].at = 0; plans[0].at < RACE_POINTS; ++plans[0].at) {
        for (plans[1].at = plans[0].at; plans[1].at < RACE_POINTS;
             ++plans[1].at) {
            if (race_is_over()) {
                return;
            }

            race_transfer_run(transfer, start, plans, 2);
            if (!race_plan_has_begun(1)) {
                break;
            }
        }

        if (!race_plan_has_begun(0)) {
            return;
        }
    }
}

void race_sweep_pairs(void)
{
    race_start_t start;
    unsigned i, j;

    for (i = 0; i < ucs_static_array_size(paired); ++i) {
        for (j = 0; j < ucs_static_array_size(pairs); ++j) {
            if ((pairs[j].second_side == RACE_LOCAL) &&
                !race_has_local(&paired[i])) {
                continue;
            }

            for (start = 0; start <= RACE_REMOTE_OUT; ++start) {
                race_sweep_pair(&paired[i], start, &pairs[j]);
            }
        }
    }
}
