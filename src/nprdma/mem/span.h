/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Spans: what a mapper goes through page by page. Slices of 16 MiB, each with a
 * lock for its entries and views, and a count of what is under way in it.
 */

#ifndef NP_SPAN_H_
#define NP_SPAN_H_

#include "table.h"

#include <pthread.h>

/** log2 of a slice */
#define NP_SLICE_SHIFT  24
#define NP_SLICE_PAGES  (UINT64_C(1) << (NP_SLICE_SHIFT - NP_PAGE_SHIFT))

/** What is under way in the slices of a stripe */
typedef enum np_busy {
    NP_BUSY_MAP,    /**< from before it looks at an entry until it is done */
    NP_BUSY_UNMAP,  /**< from before it clears views until it has flushed */
    NP_BUSY_LAST
} np_busy_t;

/** Slices of one lock */
typedef struct np_stripe {
    pthread_mutex_t  lock;  /**< guards their entries and views */
    _Atomic uint32_t busy[NP_BUSY_LAST];
} NP_LINE_ALIGNED np_stripe_t;

/** Pages of one slice, or of an arena that has no table */
typedef struct np_span {
    np_table_t       *table;   /**< NULL: none */
    np_stripe_t      *stripe;
    _Atomic uint64_t *slices;  /**< slices of the table that were ever mapped */
    uint64_t         slice;    /**< the bit of this slice */
    uint32_t         first;
    uint32_t         count;
} np_span_t;


/** The range in whole pages, as far as it is in user space; 0: none of it is */
int np_span_range(uint64_t va, uint64_t len, uint64_t *first, uint64_t *end);

/** The first pages of [@a va, @a end), both at page borders. Returns where they
 *  end. */
uint64_t np_span_get(uint64_t va, uint64_t end, np_span_t *span);

/** Has a view of any of the pages one of the bits? No lock. */
int np_span_has_views(const np_span_t *span, uint32_t bits);

/** Count what begins in [@a va, @a end), once in each stripe.
 *  @return what np_stripes_leave takes */
unsigned np_stripes_enter(uint64_t va, uint64_t end, np_busy_t what);

/** What was counted ends. In a child, all that began before the fork has ended
 *  with the fork, even if its thread comes here: a swapper may fork. */
void np_stripes_leave(uint64_t va, uint64_t end, np_busy_t what, unsigned life);

/** The most that is under way in any stripe of [@a va, @a end) */
uint32_t np_stripes_busy(uint64_t va, uint64_t end, np_busy_t what);

/** A child after fork: nothing is under way */
void np_stripes_after_fork(void);


/** Was any page of its slice ever mapped? */
static UCS_F_ALWAYS_INLINE int np_span_was_mapped(const np_span_t *span)
{
    return (atomic_load_explicit(span->slices, memory_order_acquire) &
            span->slice) != 0;
}

/** Before the first page of its slice is mapped */
static UCS_F_ALWAYS_INLINE void np_span_set_mapped(const np_span_t *span)
{
    if (!np_span_was_mapped(span)) {
        atomic_fetch_or_explicit(span->slices, span->slice,
                                 memory_order_release);
    }
}

/** seq_cst, as is the count: who has stored before, as np_mapper_set_paged(),
 *  and sees none here is seen by the one that counts itself next. An acquire
 *  load may be done before that store where the processor has one that is no
 *  more than that (ldapr of aarch64). */
static UCS_F_ALWAYS_INLINE uint32_t
np_span_busy(const np_span_t *span, np_busy_t what)
{
    return atomic_load_explicit(&span->stripe->busy[what],
                                memory_order_seq_cst);
}

#endif
