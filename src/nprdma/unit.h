/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Is this thread inside a unit? A thread that takes a page away waits for the
 * units that are in flight (np_drain, np_swap_wait_copies), and may be the
 * thread that brings pages in. So inside a unit nothing may wait for the
 * program: no page is brought in, nothing of the program is called, and no peer
 * is drained.
 *
 * Counted where there are assertions; elsewhere it is nothing.
 */

#ifndef NP_UNIT_H_
#define NP_UNIT_H_

#include "np.h"

#if NP_HAS_ASSERT

/** Units that this thread is in */
extern NP_THREAD_OWN unsigned np_unit_depth;

static inline void np_unit_enter(void)
{
    ++np_unit_depth;
}

static inline void np_unit_leave(void)
{
    np_assert(np_unit_depth > 0);
    --np_unit_depth;
}

/** Before anything that may wait for the program, or for units */
#define np_unit_assert_outside() \
    np_assertv(np_unit_depth == 0, "inside %u DMA units", np_unit_depth)

#else

static inline void np_unit_enter(void)
{
}

static inline void np_unit_leave(void)
{
}

#define np_unit_assert_outside() ((void)0)

#endif
#endif
