/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Links over an RNIC's reliable queue pairs: what the face to UCX calls.
 *
 * Memory is not registered beforehand. A transfer below a size is carried
 * inside messages, a larger one is registered by both sides at once, in chunks,
 * for as long as it takes (design, section 6). All of a port is used by one
 * thread at a time.
 */

#ifndef NP_VLINK_H_
#define NP_VLINK_H_

#include "../dev/verbs/vport.h"
#include "../mem/key.h"

/** What a port must be opened with */
extern const np_vport_ops_t np_vlink_ops;

/* All that follow: UCS_ERR_NO_RESOURCE: try again after progress; other errors
 * are those of the link, which is down, or of the call. */

/** Active message: @a len bytes behind an 8-byte header */
ucs_status_t np_vlink_am_short(np_vlink_t *link, uint8_t id, uint64_t header,
                               const void *payload, unsigned len);

/** Active message that @a pack writes; returns its length, or an error */
ssize_t np_vlink_am_bcopy(np_vlink_t *link, uint8_t id, np_pack_t pack,
                          void *arg);

/** Active message gathered from a header and pieces */
ucs_status_t np_vlink_am_iov(np_vlink_t *link, uint8_t id, const void *header,
                             unsigned header_len, const np_iov_t *iov,
                             size_t iovcnt);

#endif
