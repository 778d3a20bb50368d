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
#include "thread.h"

#include <pthread.h>
#include <sys/resource.h>

/* ns to the next look: while nobody wants the CPU, and while somebody does. A
 * yield costs 0.2 us, and so does a look. */
#define NP_YIELD_LOOK   NP_CLOCK_MSEC
#define NP_YIELD_AGAIN  (100 * NP_CLOCK_USEC)

/* Guards the list and who is in it; the last lock that a thread takes */
static pthread_mutex_t np_yield_lock = PTHREAD_MUTEX_INITIALIZER;

static UCS_LIST_HEAD(np_yield_list);

static pthread_once_t np_yield_once = PTHREAD_ONCE_INIT;


/* A child has no use of its parent's ports, and does not close them */
static void np_yield_after_fork(void)
{
    pthread_mutex_init(&np_yield_lock, NULL);
    ucs_list_head_init(&np_yield_list);
}

static void np_yield_init(void)
{
    np_at_fork(NULL, NULL, np_yield_after_fork);
}

void np_yield_open(np_yield_t *yield, const unsigned *found)
{
    pthread_once(&np_yield_once, np_yield_init);
    yield->found = found;
    pthread_mutex_lock(&np_yield_lock);
    ucs_list_add_tail(&np_yield_list, &yield->list);
    pthread_mutex_unlock(&np_yield_lock);
}

void np_yield_close(np_yield_t *yield)
{
    pthread_mutex_lock(&np_yield_lock);
    ucs_list_del(&yield->list);
    pthread_mutex_unlock(&np_yield_lock);
}

/* Other ports of this thread ask whose each is */
static void np_yield_tell_thread(np_yield_t *yield)
{
    const pthread_t self = pthread_self();

    if (!yield->has_thread || !pthread_equal(yield->thread, self)) {
        pthread_mutex_lock(&np_yield_lock);
        yield->thread     = self;
        yield->has_thread = 1;
        pthread_mutex_unlock(&np_yield_lock);
    }
}

int np_yield_look(np_yield_t *yield, uint64_t now)
{
    struct rusage usage;

    yield->is_wanted = 0;
    if (np_engine.config.yield && !yield->is_never &&
        (getrusage(RUSAGE_THREAD, &usage) == 0)) {
        yield->is_wanted = (usage.ru_nivcsw != yield->switches) &&
                           (yield->switches > 0);
        yield->switches  = usage.ru_nivcsw;
        np_yield_tell_thread(yield);
    }
    yield->look_at = now + (yield->is_wanted ? NP_YIELD_AGAIN : NP_YIELD_LOOK);
    return yield->is_wanted;
}

int np_yield_turn(np_yield_t *yield)
{
    const pthread_t self  = pthread_self();
    const unsigned before = yield->sum;
    const np_yield_t *other;

    yield->sum = 0;
    pthread_mutex_lock(&np_yield_lock);
    ucs_list_for_each(other, &np_yield_list, list) {
        if (!other->has_thread || pthread_equal(other->thread, self)) {
            yield->sum += __atomic_load_n(other->found, __ATOMIC_RELAXED);
        }
    }
    pthread_mutex_unlock(&np_yield_lock);
    return yield->sum == before;
}
