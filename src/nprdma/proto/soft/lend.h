/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Gets of what the target has lent (mem/lent.h), through the rings, which its
 * progress fills. Both sides copy then, one behind the other, and neither calls
 * the kernel, which takes longer to find pages than to copy them. Whether a
 * target makes progress nobody can know: it is tried, and left.
 */

#ifndef NP_LEND_H_
#define NP_LEND_H_

#include "sop.h"

#include "../../engine.h"

/** Is a transfer that np_lend_is_large to be tried so? What is absent is for
 *  other ways, which bring it in. */
int np_lend_may(np_link_t *link, const np_iov_t *iov, size_t iovcnt, size_t len,
                uint64_t addr);

/** A copy that is tried so is about to be posted: if no other one waits,
 *  nothing has been waited for. */
void np_lend_begin(np_link_t *link);

/** Has nothing that the target has lent come for too long? After another copy
 *  that was left nothing is waited for, unless the target has come since. */
int np_lend_is_late(np_link_t *link);

/** It does not come to this copy's pieces, or has not lent it: what has not
 *  come is moved by other ways, in the next progress, and the rings are not
 *  tried for a while. */
void np_lend_leave(np_link_t *link, np_sop_t *copy_op);

/** A whole copy has come so */
void np_lend_came(np_link_t *link);


static UCS_F_ALWAYS_INLINE int np_lend_is_large(np_dir_t dir, size_t len)
{
    return (dir == NP_DIR_GET) && (len >= np_engine.config.ring_get_min);
}

#endif
