/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Allocated segments: memory that a process has allocated for its peers. A link
 * asks its target for them, maps those that come, and keeps them until they end
 * or it does.
 */

#ifndef NP_SOFT_SEGMENTS_H_
#define NP_SOFT_SEGMENTS_H_

#include "link.h"

#include "../../mem/key.h"

/** A segment of @a key that peers may map; NULL if there is none, or not yet */
np_window_t *np_segments_resolve(np_link_t *link, np_key_t *key);

/** A segment has come from the link's target; @a fd stays the caller's */
void np_segments_take(np_link_t *link, uint64_t segment_id, int fd,
                      size_t size);

/** The link ends */
void np_segments_drop(np_link_t *link);

/** The peer has asked for a segment of ours: send it, if there is one */
void np_segments_send(np_peer_t *peer, uint64_t segment_id);

#endif
