/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Active messages over an RNIC's queue pairs. Each takes the owner's turn, as
 * the calls of proto/ep.h do. UCS_ERR_NO_RESOURCE: try again after progress;
 * other errors are those of the link, which is down.
 */

#ifndef NP_FACE_RNIC_H_
#define NP_FACE_RNIC_H_

#include "../proto/rnic/rop.h"

/** Active message: @a len bytes after an 8-byte header */
ucs_status_t np_vlink_am_short(np_vlink_t *link, uint8_t id, uint64_t header,
                               const void *payload, unsigned len);

/** Active message that @a pack writes; returns its length, or an error */
ssize_t np_vlink_am_bcopy(np_vlink_t *link, uint8_t id, np_pack_t pack,
                          void *arg);

/** Active message gathered from a header and buffers */
ucs_status_t np_vlink_am_iov(np_vlink_t *link, uint8_t id, const void *header,
                             unsigned header_len, const np_iov_t *iov,
                             size_t iovcnt);

#endif
