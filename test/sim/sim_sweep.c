/* SPDX-License-Identifier: BSD-3-Clause */
/* Sweeps: a few operations of one link, and an event at each moment of them, or
 * two at each two: every step of the device, every progress of either side, and
 * on soft0 every pause point of the protocol is such a moment. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "sim_inside.h"

#include "nprdma/clock.h"

#include <stdio.h>
#include <string.h>

#define SWEEP_FROM     0u
#define SWEEP_TO       1u
#define SWEEP_NEVER    (~0u)
#define SWEEP_MOMENTS  400u       /* in which events happen */
#define SWEEP_LIMIT    200000u    /* after which all must have ended */
#define SWEEP_STILL    40u        /* moments for which a target computes */

/* Each letter of a program is an operation at the case's place */
typedef struct sweep_case {
    const char *program;
    size_t     len;
    uint64_t   offset;
    unsigned   pieces;
} sweep_case_t;

typedef enum sweep_event {
    SWEEP_TAKE_LOCAL,   /* pages of the buffers that are in use */
    SWEEP_TAKE_REMOTE,
    SWEEP_GIVE_REMOTE,
    SWEEP_SETTLE,       /* what was taken is gone, what was given is there */
    SWEEP_STAND_STILL,  /* the target computes for a while */
    SWEEP_FAIL,         /* a queue pair of the link, or both */
    SWEEP_FAIL_AGAIN,   /* another choice of that */
    SWEEP_EVENTS
} sweep_event_t;

typedef struct sweep_at {
    unsigned      moment;
    sweep_event_t event;
} sweep_at_t;

static const char *const sweep_names[] = {
    "local pages go", "remote pages go", "remote pages come", "changes settle",
    "the target computes", "a queue pair fails", "a queue pair fails (2)"
};

static const sweep_case_t sweep_cases[] = {
    {"s", 8, 0, 1},
    {"s", 24, 64, 1},
    {"ss", 24, 64, 1},
    {"sFs", 24, 64, 1},
    {"sfm", 24, 64, 1},
    {"sg", 24, 64, 1},
    {"gs", 24, 64, 1},
    {"b", 1000, 128, 1},
    {"bfm", 1000, 128, 1},
    {"bg", 5000, 128, 1},
    {"p", 300, 4000, 1},
    {"p", 4096, 0, 1},
    {"pfm", 3000, 100, 3},
    {"pg", 4096, 0, 1},
    {"gp", 4096, 0, 1},
    {"ppg", 700, 0, 1},
    {"g", 300, 4000, 1},
    {"g", 4096, 0, 1},
    {"g", 3000, 100, 3},
    {"u", 8, 0, 1},
    {"u", 5000, 3000, 1},
    {"a", 8, 64, 1},
    {"aa", 8, 64, 1},
    {"sag", 8, 64, 1},
    {"pa", 4096, 0, 1},
    {"afm", 8, 64, 1},
    {"p", 50000, (SIM_AREA / 2) - 20000, 1},
    {"g", 50000, (SIM_AREA / 2) - 20000, 1},
    {"pg", 150000, (SIM_AREA / 2) - 90000, 1},
    {"gp", 40000, (SIM_AREA / 2) - 20000, 3}};

static sweep_at_t sweep_at[2];
static const sweep_case_t *sweep_case;
static unsigned sweep_moment, sweep_still_until;
static unsigned long sweep_ran;


static void sweep_take_local(void)
{
    const sim_op_t *op;
    uint64_t va, end;
    size_t i;

    for (op = sim_ops; op < &sim_ops[SIM_OPS]; ++op) {
        for (i = 0; op->is_used && (i < op->iovcnt); ++i) {
            va  = ucs_align_down_pow2((uintptr_t)op->iov[i].base, SIM_PAGE);
            end = ucs_align_up_pow2((uintptr_t)op->iov[i].base +
                                    op->iov[i].len, SIM_PAGE);
            if (end > va) {
                sim->take((void*)va, end - va);
            }
        }
    }
}

static void sweep_remote(int is_taken)
{
    const uint64_t first = sim_addr(SWEEP_FROM, SWEEP_TO, sweep_case->offset);
    const uint64_t va    = ucs_align_down_pow2(first, SIM_PAGE);
    const size_t len     = ucs_align_up_pow2(first + sweep_case->len,
                                             SIM_PAGE) - va;

    if (is_taken) {
        sim->take((void*)va, len);
    } else {
        sim->give((void*)va, len, 1);
    }
}

static void sweep_happens(sweep_event_t event)
{
    sim_tell("moment %u: %s", sweep_moment, sweep_names[event]);
    switch (event) {
    case SWEEP_TAKE_LOCAL:
        sweep_take_local();
        break;
    case SWEEP_TAKE_REMOTE:
    case SWEEP_GIVE_REMOTE:
        sweep_remote(event == SWEEP_TAKE_REMOTE);
        break;
    case SWEEP_SETTLE:
        while (sim->settle()) {
        }
        break;
    case SWEEP_STAND_STILL:
        sweep_still_until = sweep_moment + SWEEP_STILL;
        break;
    default:
        sim_seed((sweep_moment * SWEEP_EVENTS) + event);
        (void)sim->fail();
        break;
    }
}

/* A moment of the run */
static void sweep_tick(void)
{
    const unsigned moment = sweep_moment++;
    unsigned i;

    /* what is lost goes again after a time that need not be looked at */
    np_clock_of_test += (moment < SWEEP_MOMENTS) ? NP_CLOCK_USEC :
                        (500 * NP_CLOCK_USEC);
    for (i = 0; i < 2; ++i) {
        if (sweep_at[i].moment == moment) {
            sweep_at[i].moment = SWEEP_NEVER; /* an event has moments, too */
            sweep_happens(sweep_at[i].event);
        }
    }
}

/* The next operation; returns 0: it is refused for now */
static int sweep_post(char letter)
{
    const unsigned long refused = sim_counts.refused;

    switch (letter) {
    case 's':
        sim_put_copied(SWEEP_FROM, SWEEP_TO);
        break;
    case 'b':
        sim_put_packed(SWEEP_FROM, SWEEP_TO);
        break;
    case 'p':
        sim_move(NP_DIR_PUT, SWEEP_FROM, SWEEP_TO);
        break;
    case 'g':
        sim_move(NP_DIR_GET, SWEEP_FROM, SWEEP_TO);
        break;
    case 'u':
        sim_get_unpacked(SWEEP_FROM, SWEEP_TO);
        break;
    case 'a':
        sim_atomic(SWEEP_FROM, SWEEP_TO);
        break;
    case 'm':
        sim_send(SWEEP_FROM, SWEEP_TO);
        break;
    case 'f':
        sim_fence(SWEEP_FROM, SWEEP_TO);
        break;
    default:
        sim_flush(SWEEP_FROM, SWEEP_TO);
        break;
    }
    return sim_counts.refused == refused;
}

/* One step of one of those that take part, each in turn */
static void sweep_step(unsigned turn, const char **next)
{
    switch (turn % 4) {
    case 0:
        *next += (**next != '\0') && sweep_post(**next);
        break;
    case 1:
        sim->progress(SWEEP_FROM);
        break;
    case 2:
        (void)sim->turn();
        break;
    default:
        if (sweep_moment >= sweep_still_until) {
            sim->progress(SWEEP_TO);
        }
        break;
    }
}

/* To its end, and all is as it must be. Returns how many moments it had. */
static unsigned sweep_run(const char *program)
{
    const sim_link_t *link = &sim_links[SWEEP_FROM][SWEEP_TO];
    const char *next       = program;
    int is_flushed         = 0;
    unsigned turn;

    sweep_moment      = 0;
    sweep_still_until = 0;
    for (turn = 0; turn < SWEEP_LIMIT; ++turn) {
        sweep_tick();
        sweep_step(turn, &next);
        if ((*next != '\0') || (sim_num_ops > 0) ||
            (link->sent != link->received)) {
            continue;
        }
        if (is_flushed) {
            sim_check_area(SWEEP_FROM, SWEEP_TO, UINT64_MAX, "at the end of");
            return sweep_moment;
        }
        is_flushed = sweep_post('F');
    }
    sim_wrong("it never ends");
}

/* All is there, and known to be, half of the time */
static void sweep_prepare(unsigned n)
{
    sweep_at[0].moment = SWEEP_NEVER;
    sweep_at[1].moment = SWEEP_NEVER;
    sweep_remote(0);
    while (sim->settle()) {
    }
    if (n & 1) {
        (void)sweep_run("g");
    }
    sim_seed(n);
}

static void sweep_one(unsigned n, const sweep_at_t *at, unsigned count)
{
    sweep_prepare(n);
    memcpy(sweep_at, at, count * sizeof(*at));
    sim_tell("%s of %zu at %#lx: %s at %u, %s at %u", sweep_case->program,
             sweep_case->len, sweep_case->offset, sweep_names[at[0].event],
             at[0].moment, (count > 1) ? sweep_names[at[1].event] : "nothing",
             (count > 1) ? at[1].moment : 0);
    (void)sweep_run(sweep_case->program);
    ++sweep_ran;
}

static int sweep_can(sweep_event_t event)
{
    return sim->can_fail || (event < SWEEP_FAIL);
}

/* Each event at each moment, and so many pairs, evenly spread */
static void sweep_all(unsigned moments, unsigned long pairs)
{
    const unsigned long singles = moments * SWEEP_EVENTS;
    const unsigned long all     = singles * singles;
    unsigned long step          = ucs_max(all / ucs_max(pairs, 1ul), 1ul), i;
    sweep_at_t at[2];

    for (i = 0; i < singles; ++i) {
        at[0] = (sweep_at_t){i / SWEEP_EVENTS, i % SWEEP_EVENTS};
        if (sweep_can(at[0].event)) {
            sweep_one(i, at, 1);
        }
    }

    step |= 1; /* so that all events meet */
    for (i = 0; (pairs > 0) && (i < all); i += step) {
        at[0] = (sweep_at_t){(i / singles) / SWEEP_EVENTS,
                             (i / singles) % SWEEP_EVENTS};
        at[1] = (sweep_at_t){(i % singles) / SWEEP_EVENTS,
                             (i % singles) % SWEEP_EVENTS};
        if ((at[0].moment <= at[1].moment) && sweep_can(at[0].event) &&
            sweep_can(at[1].event)) {
            sweep_one(i, at, 2);
        }
    }
}

unsigned long sim_sweep(unsigned long pairs)
{
    unsigned i, moments, all = 0;

    sim_between = sweep_tick;
    for (i = 0; i < ucs_static_array_size(sweep_cases); ++i) {
        sweep_case = &sweep_cases[i];
        sim_shape  = (sim_shape_t){
            .is_set = 1,
            .len    = sweep_case->len,
            .offset = sweep_case->offset,
            .pieces = sweep_case->pieces
        };
        sweep_prepare(1);
        moments = ucs_min(sweep_run(sweep_case->program), SWEEP_MOMENTS);
        sweep_all(moments, pairs);
        all += moments;
    }
    printf("# %zu cases of %u moments in all, %lu interleavings\n",
           ucs_static_array_size(sweep_cases), all, sweep_ran);
    sim_shape.is_set = 0;
    sim_between      = NULL;
    return sweep_ran;
}
