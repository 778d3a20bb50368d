/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranges that the program swaps by itself; see np_mapper_add_swapper.
 */

#ifndef NP_SWAPPER_H_
#define NP_SWAPPER_H_

#include "entries.h"
#include "file.h"
#include "mapper.h"

/** A range and what brings its pages in. Counted while the swapper is
 *  called. */
typedef struct np_swap_range {
    ucs_list_link_t list;   /**< of all, by address; guarded by its lock */
    uint64_t        first;
    uint64_t        end;
    np_swapper_t    swapper;
    unsigned        refs;   /**< calls in progress; guarded by the lock */
} np_swap_range_t;

/** The lowest range that touches [@a va, @a end), one use more; NULL: none.
 *  Without any range of the whole process this costs one load. */
np_swap_range_t *np_swap_range_get(uint64_t va, uint64_t end);

/** One use less */
void np_swap_range_put(np_swap_range_t *range);

/** Does the program swap any of [@a va, @a va + @a len) by itself? Without any
 *  range of the whole process this costs one load. */
static inline int np_swap_range_touches(uint64_t va, uint64_t len)
{
    np_swap_range_t *range = np_swap_range_get(va, va + len);

    if (ucs_likely(range == NULL)) {
        return 0;
    }

    np_swap_range_put(range);
    return 1;
}

/**
 * Copies by the CPU of memory that may be swapped, or of a file that peers
 * reach. After np_swap_copy_begin, look whether the memory is mapped, or a
 * region has it; if so, it stays until np_swap_copy_end. Do not wait for
 * anything in between.
 *
 * @return for np_swap_copy_end.
 */
int np_swap_copy_begin(void);
void np_swap_copy_end(int phase);

/** As np_swap_copy_begin if the program swaps any of [@a va, @a va + @a len) by
 *  itself; else nothing, which costs one load without any range of the whole
 *  process. @return for np_swap_let_go. */
static inline int np_swap_hold(uint64_t va, uint64_t len)
{
    return ucs_unlikely(np_swap_range_touches(va, len)) ? np_swap_copy_begin() :
           -1;
}

static inline void np_swap_let_go(int phase)
{
    if (ucs_unlikely(phase >= 0)) {
        np_swap_copy_end(phase);
    }
}

/** Copies that have begun are over when this returns. Entries must have been
 *  cleared before, or regions ended. Without any range or file of the whole
 *  process this costs two loads. */
void np_swap_wait_copies(void);

/** A child after fork: it has no ranges */
void np_swap_range_after_fork(void);

/** To be called before the CPU looks at memory that the program may swap by
 *  itself: the program then waits for np_swap_let_go before it takes it away.
 *  Returns 0 if the memory has gone by now. */
static inline int
np_swap_hold_iov(const np_iov_t *iov, size_t iovcnt, int *phase)
{
    size_t i;

    *phase = -1;
    for (i = 0; (i < iovcnt) && (*phase < 0); ++i) {
        *phase = np_swap_hold((uintptr_t)iov[i].base, iov[i].len);
    }

    if (ucs_likely(*phase < 0) || (np_entries_of_iov(iov, iovcnt).bits &
                                   NP_ENTRY_OWN(NP_ENTRY_READ))) {
        return 1;
    }

    np_swap_let_go(*phase);
    return 0;
}

#endif
