/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Requests: what a target is asked to do, as operations. How they travel is the
 * device's matter (mail.h).
 */

#ifndef NP_REQUEST_H_
#define NP_REQUEST_H_

#include "sop.h"

#include "../clock.h"

/** Between two tries of what a swapper prevents: at first, and at most */
#define NP_REQUEST_RETRY_MIN_NS UINT64_C(1000)
#define NP_REQUEST_RETRY_MAX_NS UINT64_C(1000000)

/**
 * Begin a request that will be answered. There is room (np_mail_has_room).
 *
 * @param [out] slot  To be filled in by the caller.
 *
 * @return the operation; NULL if there is no memory (logged).
 */
np_sop_t *np_request_begin(np_link_t *link, np_op_kind_t kind, void *comp,
                          np_slot_t **slot);

/** Send it: it is outstanding from now on */
void np_request_send(np_link_t *link, np_sop_t *op, np_slot_kind_t kind);

/** It is not sent after all */
void np_request_drop(np_link_t *link, np_sop_t *op);

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

#endif
