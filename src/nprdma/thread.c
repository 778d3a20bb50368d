/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Threads of our own.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "thread.h"

#include "np.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>

/* Of the address space; a swapper's functions run on it, too */
#define NP_THREAD_STACK  (1ul << 20)


int np_thread_start(pthread_t *thread, const char *name,
                    void *(*function)(void *arg), void *arg)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP,
                                 SIGSYS};
    pthread_attr_t attr;
    sigset_t mask, old;
    unsigned i;
    int ret;

    sigfillset(&mask);
    for (i = 0; i < (sizeof(faults) / sizeof(faults[0])); ++i) {
        sigdelset(&mask, faults[i]);
    }
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, NP_THREAD_STACK);
    pthread_sigmask(SIG_SETMASK, &mask, &old); /* inherited */
    ret = pthread_create(thread, &attr, function, arg);
    if (ret == EINVAL) {
        /* the program's thread-local variables do not leave enough of it */
        ret = pthread_create(thread, NULL, function, arg);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (ret == 0) {
        pthread_setname_np(*thread, name);
    }
    return ret;
}

void np_at_fork(void (*prepare)(void), void (*parent)(void),
                void (*child)(void))
{
    if (pthread_atfork(prepare, parent, child) != 0) {
        np_warn("no memory for a fork handler: a forked child must not use "
                "nprdma");
    }
}
