/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads of our own in other people's programs, and what a fork finds of them.
 */

#ifndef NP_THREAD_H_
#define NP_THREAD_H_

#include "np.h"

#include <errno.h>
#include <pthread.h>

/** This lock is taken, as a rule by the caller */
#define np_assert_locked(_mutex) \
    np_assertv(pthread_mutex_trylock(_mutex) == EBUSY, "%s is not locked", \
               #_mutex)

/**
 * Start one. Signals are for the program: the thread gets none but those of its
 * own faults, which the program may mend where we call it (in a swapper).
 *
 * @param [in] name  At most 15 characters.
 *
 * @return 0, or an errno value.
 */
int np_thread_start(pthread_t *thread, const char *name,
                    void *(*function)(void *arg), void *arg);

/** As pthread_atfork(); without memory for it a line says what must not be
 *  done */
void np_at_fork(void (*prepare)(void), void (*parent)(void),
                void (*child)(void));

#endif
