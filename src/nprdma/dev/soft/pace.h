/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Large copies under the timing model (mem/model.h): a chunk moves when both
 * sides have registered it, and has arrived when the link has brought it. The
 * target is asked once, with the request that only asks when.
 */

#ifndef NP_SOFT_PACE_H_
#define NP_SOFT_PACE_H_

#include "inbox.h"
#include "mail.h"

#include "../../mem/model.h"

typedef struct np_chunks np_chunks_t;

/** The timing model's part of a copy */
typedef struct np_pace {
    int              is_on;
    int              has_asked;  /**< the target, when .. */
    int              has_theirs; /**< .. and it has answered */
    np_ask_t         ask;
    uint64_t         asked;      /**< np_trace_begin() */
    uint64_t         posted;     /**< np_clock(), as all times below */
    np_model_times_t ours;
    np_model_times_t theirs;
    uint64_t         arrived;    /**< when the last that has moved will have */
} np_pace_t;

/** A copy begins; nothing if the model is off */
void np_pace_begin(np_chunks_t *chunks);

/**
 * How many of the next @a len bytes from @a offset on can move now?
 *
 * @param [in,out] len  More than 0.
 *
 * @return UCS_OK: @a len of them; UCS_INPROGRESS: none yet; else what the
 *         target says (logged).
 */
ucs_status_t np_pace_next(np_link_t *link, np_chunks_t *chunks, size_t offset,
                          size_t *len);

/** They have moved */
void np_pace_moved(np_chunks_t *chunks, size_t offset, size_t len);

/** All has moved: has it arrived, and is nothing of it outstanding?
 *
 * @param [in] is_ok  Else the copy has failed, and no arrival is waited for. */
int np_pace_is_over(np_link_t *link, np_chunks_t *chunks, int is_ok);

/** Answer a peer that asks when our memory is registered. Any thread. */
void np_pace_serve(const np_job_t *job);

#endif
