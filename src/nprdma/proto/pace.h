/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies under the timing model (mem/model.h): a chunk moves when both sides
 * have registered it, and has arrived when the link has brought it. The target
 * is asked once, with the FAULT that only asks when.
 */

#ifndef NP_PACE_H_
#define NP_PACE_H_

#include "sop.h"

/** Is this copy under the model? What goes through rings is not. */
static UCS_F_ALWAYS_INLINE int np_pace_is_on(const np_copy_t *copy)
{
    return ucs_unlikely(np_model_is_on) && !copy->by_rings;
}

/** A copy begins that does not go through rings; nothing if the model is off */
void np_pace_begin(np_copy_t *copy);

/** How many of the next @a len bytes from @a offset on can move now */
size_t
np_pace_len(np_link_t *link, np_sop_t *copy_op, size_t offset, size_t len);

/** They have moved */
void np_pace_moved(np_copy_t *copy, size_t offset, size_t len);

/** The target has said when its memory is registered */
void np_pace_answered(np_copy_t *copy, const np_model_times_t *theirs);

/** All has moved: has it arrived? */
int np_pace_is_over(const np_copy_t *copy);

#endif
