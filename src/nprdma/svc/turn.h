/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Turns: a port is used by its owner or by a service thread, one at a time. The
 * owner pays two stores and a load for each call; a thread that wants a turn
 * pays for both with a barrier in all processors (as np_drain does).
 *
 *     owner                                thread
 *     owner_in = 1                         thread_in = 1
 *     (compiler barrier)                   (barrier everywhere)
 *     thread_in == 0: its turn             owner_in == 0: its turn
 *
 * The owner never waits for a thread where it can say "try again"; where it
 * must, it waits for the mutex that a thread holds during its turn.
 */

#ifndef NP_TURN_H_
#define NP_TURN_H_

#include "../engine.h"
#include "../thread.h"

#include <pthread.h>
#include <stdatomic.h>

/** Owner: the port. */
typedef struct np_turn {
    _Atomic int     owner_in;
    _Atomic int     thread_in;
    _Atomic int     is_wanted; /**< the owner was refused: threads end theirs */
    unsigned        depth;     /**< of the owner's calls in calls; its own */
    pthread_mutex_t lock;      /**< held by a thread during its turn */
} np_turn_t;


static inline void np_turn_init(np_turn_t *turn)
{
    atomic_init(&turn->owner_in, 0);
    atomic_init(&turn->thread_in, 0);
    atomic_init(&turn->is_wanted, 0);
    turn->depth = 0;
    pthread_mutex_init(&turn->lock, NULL);
}

static inline void np_turn_cleanup(np_turn_t *turn)
{
    pthread_mutex_destroy(&turn->lock);
}

/** The owner's turn, also inside one of its turns; NULL: a thread has it */
static UCS_F_ALWAYS_INLINE np_turn_t *np_turn_enter(np_turn_t *turn)
{
    if (turn->depth++ > 0) {
        return turn;
    }

    atomic_store_explicit(&turn->owner_in, 1, memory_order_relaxed);
    if (ucs_likely(np_engine.has_membarrier)) {
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_thread_fence(memory_order_seq_cst);
    }

    /* acquire: what the last thread did is seen */
    if (ucs_likely(atomic_load_explicit(&turn->thread_in,
                                        memory_order_acquire) == 0)) {
        return turn;
    }

    np_assert(turn->depth == 1);
    turn->depth = 0;
    atomic_store_explicit(&turn->is_wanted, 1, memory_order_relaxed);
    atomic_store_explicit(&turn->owner_in, 0, memory_order_release);
    return NULL;
}

static UCS_F_ALWAYS_INLINE void np_turn_leave(np_turn_t **turn_p)
{
    np_turn_t *turn = *turn_p;

    np_assert((turn == NULL) ||
              ((turn->depth > 0) &&
               atomic_load_explicit(&turn->owner_in, memory_order_relaxed)));
    /* release: a thread sees what was done */
    if ((turn != NULL) && (--turn->depth == 0)) {
        atomic_store_explicit(&turn->owner_in, 0, memory_order_release);
    }
}

/** The owner's turn, as soon as a thread's is over */
static inline np_turn_t *np_turn_wait(np_turn_t *turn)
{
    while (np_turn_enter(turn) == NULL) {
        pthread_mutex_lock(&turn->lock);
        pthread_mutex_unlock(&turn->lock);
    }
    return turn;
}

/** A thread's turn; 0: the owner or another thread has it */
static inline int np_turn_take(np_turn_t *turn)
{
    if (pthread_mutex_trylock(&turn->lock) != 0) {
        return 0;
    }

    atomic_store_explicit(&turn->thread_in, 1, memory_order_relaxed);
    np_barrier_peers();
    /* acquire: what the owner did is seen */
    if (atomic_load_explicit(&turn->owner_in, memory_order_acquire) == 0) {
        atomic_store_explicit(&turn->is_wanted, 0, memory_order_relaxed);
        return 1;
    }

    atomic_store_explicit(&turn->thread_in, 0, memory_order_release);
    pthread_mutex_unlock(&turn->lock);
    return 0;
}

static inline int np_turn_is_wanted(const np_turn_t *turn)
{
    return atomic_load_explicit(&turn->is_wanted, memory_order_relaxed);
}

static inline void np_turn_give(np_turn_t *turn)
{
    np_assert(atomic_load_explicit(&turn->thread_in, memory_order_relaxed));
    np_assert_locked(&turn->lock);
    atomic_store_explicit(&turn->thread_in, 0, memory_order_release);
    pthread_mutex_unlock(&turn->lock);
}

/** The rest of this function is the owner's turn, or it returns @a _refused */
#define NP_TURN_OR_RETURN(_turn, _refused) \
    __attribute__((cleanup(np_turn_leave))) np_turn_t *_own_turn = \
            np_turn_enter(_turn); \
    if (ucs_unlikely(_own_turn == NULL)) { \
        return _refused; \
    }

/** The rest of this function is the owner's turn; may wait for a thread */
#define NP_TURN_WAIT(_turn) \
    __attribute__((cleanup(np_turn_leave), unused)) np_turn_t *_own_turn = \
            np_turn_wait(_turn)

#endif
