/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Active messages: always copied into the ring, so they never meet a page that
 * is absent. They wait their turn as all operations do; the rest is the
 * device's.
 */

#ifndef NP_AM_H_
#define NP_AM_H_

#include "sop.h"

#include "../dev/soft/fast.h"

/** As np_fast_reserve, and np_fast_send sends it; or why the link is down */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_am_reserve(np_link_t *link, uint32_t max, void **data, uint32_t *start)
{
    ucs_status_t status;

    status = np_link_enter(link);
    return ucs_likely(status == UCS_OK) ?
           np_fast_reserve(link, max, data, start) : status;
}

/** As np_fast_reserve_inline, and np_fast_send_inline sends it; or why the link
 *  is down */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_am_reserve_inline(np_link_t *link, np_slot_t **slot)
{
    ucs_status_t status;

    status = np_link_enter(link);
    return ucs_likely(status == UCS_OK) ? np_fast_reserve_inline(link, slot) :
           status;
}

#endif
