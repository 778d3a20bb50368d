/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a thread of the program says of itself: how what it posts is ordered,
 * and that it swaps just now. One word for each thread.
 */

#ifndef NP_THREAD_FLAGS_H_
#define NP_THREAD_FLAGS_H_

#include <nprdma/nprdma.h>

#define NP_ORDER_FLAGS (NPRDMA_ORDER_BEFORE | NPRDMA_ORDER_AFTER)

/** Flags of a thread, beside those of its order */
enum {
    NP_THREAD_TELLS      = 1u << 16, /**< tells that pages are in: no thread
                                          need bring them in */
    NP_THREAD_IN_SWAPPER = 1u << 17, /**< is in a swapper of the program */
    NP_THREAD_HOT        = 1u << 18  /**< puts into memory that is written
                                          often: nprdma_set_hint */
};

/** Which of NP_THREAD_.. the calling thread has set */
unsigned np_thread_flags(void);

/** Set those of @a flags that are in @a mask.
 *  @return 0, or an errno: no memory, and nothing is set. */
int np_thread_set_flags(unsigned mask, unsigned flags);

/** NP_ORDER_FLAGS: how what this thread posts is ordered */
unsigned np_order_flags(void);

/** The same, as the program has set it */
unsigned np_order_get(void);

/** The program sets its flags. They order what this thread posts from now on,
 *  even in a callback of an operation that waited (np_order_lend).
 *  @return 0; EAGAIN: no memory. */
int np_order_set(unsigned flags);

/** Order what this thread posts by other flags, whatever the program has set or
 *  sets meanwhile for itself. Returns whether np_order_return is to be called:
 *  not if they are the same. */
int np_order_lend(unsigned flags);

/** By the program's own flags again */
void np_order_return(void);

#endif
