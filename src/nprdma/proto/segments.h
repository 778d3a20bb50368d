/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Segments of the target that are mapped here: memory that it has allocated for
 * its peers. A link asks for them, and keeps them until they end or it does.
 */

#ifndef NP_SEGMENTS_H_
#define NP_SEGMENTS_H_

#include "../dev/soft/port.h"
#include "../mem/key.h"

/** A segment of @a key that peers may map; NULL if there is none, or not yet */
np_window_t *np_segments_resolve(np_link_t *link, np_key_t *key);

/** np_port_ops_t::segment */
void np_segments_take(np_link_t *link, uint64_t segment_id, int fd,
                      size_t size);

/** The link ends */
void np_segments_drop(np_link_t *link);

#endif
