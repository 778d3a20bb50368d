/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a thread of the program says of itself.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "thread_flags.h"

#include "np.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* The word of a thread: NP_ORDER_FLAGS as the program has set them,
 * NP_THREAD_.., and, if it posts by other flags, NP_THREAD_ORDERS and these */
#define NP_THREAD_ORDER_SHIFT 8

enum {
    NP_THREAD_ORDERS     = 1u << 15,
    NP_THREAD_ORDER_MASK = NP_THREAD_ORDERS |
                           (NP_ORDER_FLAGS << NP_THREAD_ORDER_SHIFT)
};

/* Not thread-local memory: the plug-in is loaded late, and memory of that kind
 * that is made late confuses leak checkers. */
static pthread_key_t np_thread_key;
static pthread_once_t np_thread_once = PTHREAD_ONCE_INIT;
static _Atomic int np_thread_has_key;


static void np_thread_make_key(void)
{
    if (pthread_key_create(&np_thread_key, NULL) == 0) {
        /* release: whoever sees it finds the key */
        atomic_store_explicit(&np_thread_has_key, 1, memory_order_release);
    }
}

static unsigned np_thread_get(void)
{
    return ucs_likely(!atomic_load_explicit(&np_thread_has_key,
                                            memory_order_acquire)) ? 0 :
           (uintptr_t)pthread_getspecific(np_thread_key);
}

/* Set what @a mask covers; 0 or an errno */
static int np_thread_set(unsigned mask, unsigned value)
{
    pthread_once(&np_thread_once, np_thread_make_key);
    if (!atomic_load_explicit(&np_thread_has_key, memory_order_acquire)) {
        return EAGAIN;
    }

    value |= np_thread_get() & ~mask;
    return pthread_setspecific(np_thread_key, (void*)(uintptr_t)value);
}

unsigned np_thread_flags(void)
{
    return np_thread_get() & (NP_THREAD_TELLS | NP_THREAD_IN_SWAPPER |
                              NP_THREAD_HOT);
}

int np_thread_set_flags(unsigned mask, unsigned flags)
{
    return np_thread_set(mask, flags & mask);
}

unsigned np_order_flags(void)
{
    unsigned word = np_thread_get();

    return ((word & NP_THREAD_ORDERS) ? (word >> NP_THREAD_ORDER_SHIFT) :
            word) & NP_ORDER_FLAGS;
}

unsigned np_order_get(void)
{
    return np_thread_get() & NP_ORDER_FLAGS;
}

int np_order_set(unsigned flags)
{
    return np_thread_set(NP_ORDER_FLAGS | NP_THREAD_ORDER_MASK, flags);
}

int np_order_lend(unsigned flags)
{
    return (flags != np_order_flags()) &&
           (np_thread_set(NP_THREAD_ORDER_MASK,
                          NP_THREAD_ORDERS |
                          (flags << NP_THREAD_ORDER_SHIFT)) == 0);
}

void np_order_return(void)
{
    (void)np_thread_set(NP_THREAD_ORDER_MASK, 0);
}
