/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Control requests: what a target is asked to do, answered in any order, by its
 * progress or by its service thread.
 */

#ifndef NP_REQUEST_H_
#define NP_REQUEST_H_

#include "op.h"

#include "../clock.h"

/** Between two tries of what a swapper prevents: at first, and at most */
#define NP_REQUEST_RETRY_MIN_NS UINT64_C(1000)
#define NP_REQUEST_RETRY_MAX_NS UINT64_C(1000000)

/**
 * Begin a request that will be answered. There is room for it: its caller has
 * asked np_request_has_room, once. The target makes room at any time, so who
 * asks a second time for the reason of a refusal may hear that there was none.
 *
 * @param [out] slot  To be filled in by the caller.
 *
 * @return the operation, with op->index the number of its answer and of its
 *         inline area; NULL if there is no memory (logged).
 */
np_op_t *np_request_begin(np_link_t *link, np_op_kind_t kind, void *comp,
                          np_slot_t **slot);

/** Send it: it is outstanding from now on */
void np_request_send(np_link_t *link, np_op_t *op, np_slot_t *slot,
                     np_slot_kind_t kind);

/** When to try for the n-th time what a swapper has prevented n times: it is
 *  asked again for as long as the target lives, less and less often */
static inline uint64_t np_request_retry_at(unsigned retries)
{
    return np_clock() +
           ucs_min(NP_REQUEST_RETRY_MIN_NS << ucs_min(retries, 16u),
                   NP_REQUEST_RETRY_MAX_NS);
}

/** Take the answers that have come, and send again what its target could not
 *  do; returns how many have completed */
unsigned np_request_progress(np_link_t *link);

/** Has an answer come that np_request_progress would take, or does a request
 *  wait to be sent again? */
int np_request_is_answered(np_link_t *link);

/** How long a target in progress may take to look at a request, nanoseconds:
 *  then its service threads are woken, which costs both sides more than that */
#define NP_REQUEST_PATIENCE_NS 2000

/** Slow half of np_request_ring */
void np_request_ring_slow(np_link_t *link);

/** Wake the target's service threads now, if it has not taken all */
void np_request_ring_now(np_link_t *link);

/** Requests may stand still because nobody at the target looks, and so may what
 *  has no room behind what needs no answer: call it again and again while some
 *  are outstanding */
static UCS_F_ALWAYS_INLINE void np_request_ring(np_link_t *link)
{
    if (!ucs_list_is_empty(&link->queues[NP_QUEUE_REQUEST]) ||
        ucs_unlikely(!np_ring_tx_has_slot(&link->ctl))) {
        np_request_ring_slow(link);
    }
}

/** Is there room for a request? Once there is, only a request takes it away, or
 *  a copy that is offered (np_copy_post). */
static UCS_F_ALWAYS_INLINE int np_request_has_room(np_link_t *link)
{
    return (link->answers_used != UCS_MASK(NP_CTL_SLOTS)) &&
           np_ring_tx_has_slot(&link->ctl);
}

static UCS_F_ALWAYS_INLINE uint8_t *
np_request_inline(np_link_t *link, unsigned index)
{
    return link->inline_areas + ((size_t)index * NP_INLINE_SIZE);
}

#endif
