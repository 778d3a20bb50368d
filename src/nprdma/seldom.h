/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Lines that others can make us log as often as they like are logged once a
 * second, with the number of those left out.
 */

#ifndef NP_SELDOM_H_
#define NP_SELDOM_H_

#include "clock.h"

#include <stdatomic.h>

/** Nanoseconds from one line to the next */
#define NP_SELDOM_NS UINT64_C(1000000000)

/** Owner: any thread that writes the line */
typedef struct np_seldom {
    _Atomic uint64_t next;     /**< not before; np_clock() */
    _Atomic unsigned unsaid;
} np_seldom_t;

/** May the line be written now? If not, counts it. @a unsaid: how often it was
 *  not. */
static inline int np_seldom(np_seldom_t *seldom, unsigned *unsaid)
{
    uint64_t now  = np_clock();
    uint64_t next = atomic_load_explicit(&seldom->next, memory_order_relaxed);

    if ((now < next) ||
        !atomic_compare_exchange_strong_explicit(&seldom->next, &next,
                                                 now + NP_SELDOM_NS,
                                                 memory_order_relaxed,
                                                 memory_order_relaxed)) {
        atomic_fetch_add_explicit(&seldom->unsaid, 1, memory_order_relaxed);
        return 0;
    }

    *unsaid = atomic_exchange_explicit(&seldom->unsaid, 0,
                                       memory_order_relaxed);
    return 1;
}

/** An error line, with the count of those that were left out, if there are
 *  any */
#define np_error_seldom(_fmt, ...) \
    do { \
        static np_seldom_t _seldom; \
        unsigned _unsaid; \
        \
        if (np_seldom(&_seldom, &_unsaid)) { \
            if (_unsaid == 0) { \
                np_error(_fmt, ## __VA_ARGS__); \
            } else { \
                np_error(_fmt " (and %u times before that were not told)", \
                         ## __VA_ARGS__, _unsaid); \
            } \
        } \
    } while (0)

#endif
