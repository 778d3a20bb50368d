/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The whole payload area of a link, which both ends map when it becomes wide.
 * The initiator asks (NP_SLOT_WIDE), and goes on as before until the target has
 * answered in np_link_shm_t::wide: nothing waits for it.
 */

#ifndef NP_SOFT_WIDE_H_
#define NP_SOFT_WIDE_H_

#include "link.h"

/** Have both ends mapped it? If not, they are asked; if one cannot, the link is
 *  not wide any more. */
int np_wide_is_ready(np_link_t *link);

/** The payload that comes next is in there */
void np_wide_use(np_link_t *link);

/** The link ends */
void np_wide_free_link(np_link_t *link);

/** Map it, and say so. Any thread that takes requests. */
void np_wide_answer(np_peer_t *peer);

/** Take payload from there from now on, if it is mapped. Returns whether it is.
 *  Owner of the port. */
int np_wide_begin(np_peer_t *peer);

void np_wide_free_peer(np_peer_t *peer);

#endif
