/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Actors: each does its part on a stack of its own, so that it can stop at a
 * pause point while the transfer goes on.
 */

#include "test_race.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define RACE_STACK (256 * 1024)

typedef struct race_actor {
    race_plan_t plan;
    ucontext_t  self;
    ucontext_t  caller;     /* who goes on when it stops or ends */
    void        *stack;
    unsigned    points;     /* pause points of its own so far */
    int         has_begun;
    int         has_stopped;
    int         is_running; /* it, or who it has called */
    int         is_done;
} race_actor_t;

static race_actor_t actors[RACE_MAX_PLANS];
static unsigned num_actors;
static race_actor_t *current;   /* NULL: the transfer */
static int is_finishing;        /* nobody stops any more */


static race_region_t *race_region(race_side_t side)
{
    return (side == RACE_REMOTE) ? &race_remote : &race_local;
}

static void race_tell(race_region_t *region, unsigned page)
{
    /* it may be taken again before that is done: then the engine asks */
    (void)np_mapper_fault_in(race_va(region, page * NP_PAGE_SIZE), NP_PAGE_SIZE,
                             1);
}

static void race_act(const race_plan_t *plan)
{
    race_region_t *region = race_region(plan->side);
    uint64_t va           = race_va(region, plan->page * NP_PAGE_SIZE);

    switch (plan->kind) {
    case RACE_EV_NONE:
        break;
    case RACE_EV_OUT:
        race_evict(region, plan->page);
        break;
    case RACE_EV_IN:
        race_bring_in(region, plan->page);
        race_tell(region, plan->page);
        break;
    case RACE_EV_PRESENT:
        race_bring_in(region, plan->page);
        break;
    case RACE_EV_OUT_IN:
        race_evict(region, plan->page);
        race_bring_in(region, plan->page);
        race_tell(region, plan->page);
        break;
    case RACE_EV_REPLACE:
        race_replace(region, plan->page);
        race_tell(region, plan->page);
        break;
    case RACE_EV_UNMAP:
        np_mapper_unmap(va, NP_PAGE_SIZE);
        break;
    case RACE_EV_PROTECT:
        np_mapper_protect(va, NP_PAGE_SIZE);
        break;
    case RACE_EV_SERVE:
        race_serve();
        break;
    case RACE_EV_CALL:
        race.call();
        break;
    }
}

/* The actor that begins now; a context takes no pointers */
static void race_actor_main(void)
{
    race_actor_t *self = current;

    race_act(&self->plan);
    self->is_done = 1;
    /* uc_link: back to the caller */
}

/* Go on with an actor until it stops or ends */
static void race_actor_run(race_actor_t *actor)
{
    race_actor_t *before = current;

    actor->is_running = 1;
    current           = actor;
    swapcontext(&actor->caller, &actor->self);
    current           = before;
    actor->is_running = 0;
}

static void race_actor_begin(race_actor_t *actor)
{
    actor->has_begun = 1;
    if (actor->stack == NULL) {
        actor->stack = mmap(NULL, RACE_STACK, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (actor->stack == MAP_FAILED) {
            abort();
        }
    }

    getcontext(&actor->self);
    actor->self.uc_stack.ss_sp   = actor->stack;
    actor->self.uc_stack.ss_size = RACE_STACK;
    actor->self.uc_link          = &actor->caller;
    makecontext(&actor->self, race_actor_main, 0);
    race_actor_run(actor);
}

static void race_actor_stop(race_actor_t *actor)
{
    actor->has_stopped = 1;
    swapcontext(&actor->self, &actor->caller);
}

static void race_hook(np_pause_point_t point)
{
    race_actor_t *self = current;
    unsigned at, i;

    if (point == NP_PAUSE_UNIT_IN_FLIGHT) {
        return; /* who drains would wait for us */
    }

    if (race.always != NULL) {
        race.always(point);
    }

    if (self != NULL) {
        if ((self->points++ == self->plan.until) && !is_finishing) {
            race_actor_stop(self);
        }
        return;
    }

    at = race.index++;
    for (i = 0; i < num_actors; ++i) {
        if ((actors[i].plan.at == at) && !actors[i].has_begun) {
            race_actor_begin(&actors[i]);
        }
    }
}

void race_plans_clear(void)
{
    race.index   = 0;
    num_actors   = 0;
    is_finishing = 0;
}

void race_plan_add(const race_plan_t *plan)
{
    race_actor_t *actor = &actors[num_actors++];

    actor->plan        = *plan;
    actor->points      = 0;
    actor->has_begun   = 0;
    actor->has_stopped = 0;
    actor->is_done     = 0;
    actor->is_running  = 0;
}

static int race_actor_is_stopped(const race_actor_t *actor)
{
    return actor->has_begun && !actor->is_done && !actor->is_running;
}

void race_actors_finish(void)
{
    int before = is_finishing;
    unsigned i;

    is_finishing = 1;
    for (i = 0; i < num_actors; ++i) {
        if (race_actor_is_stopped(&actors[i])) {
            race_actor_run(&actors[i]);
        }
    }
    is_finishing = before;
}

void race_actors_release_page(race_region_t *region, unsigned page)
{
    race_actor_t *actor;

    for (actor = actors; actor < (actors + num_actors); ++actor) {
        if ((race_region(actor->plan.side) == region) &&
            (actor->plan.page == page) && race_actor_is_stopped(actor)) {
            race_actors_finish();
            return;
        }
    }

    /* whoever takes it waits for us */
    race_violation("page %u is going, and nobody is at it", page);
    abort();
}

int race_plan_has_begun(unsigned i)
{
    return actors[i].has_begun;
}

int race_plan_has_stopped(unsigned i)
{
    return actors[i].has_stopped;
}

void race_hook_on(void)
{
    np_pause_hook = race_hook;
}

void race_hook_off(void)
{
    np_pause_hook = NULL;
}
