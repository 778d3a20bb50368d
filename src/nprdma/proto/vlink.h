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

ucs_status_t np_vport_flush(np_vport_t *port, void *comp);
void np_vport_fence(np_vport_t *port);

void np_vlink_init(np_vlink_t *link, np_vport_t *port,
                   const np_vdev_addr_t *dev_addr, const np_vport_addr_t *addr);

/** What is outstanding is cancelled, without completions; messages that were
 *  sent still arrive */
void np_vlink_close(np_vlink_t *link);

/* All that follow: UCS_ERR_NO_RESOURCE: try again after progress; other errors
 * are those of the link, which is down, or of the call. */

/** Active message: @a len bytes behind an 8-byte header */
ucs_status_t np_vlink_am_short(np_vlink_t *link, uint8_t id, uint64_t header,
                               const void *payload, unsigned len);

/** Active message that @a pack writes; returns its length, or an error */
ssize_t np_vlink_am_bcopy(np_vlink_t *link, uint8_t id,
                          size_t (*pack)(void *dest, void *arg), void *arg);

/** Active message gathered from a header and pieces */
ucs_status_t np_vlink_am_iov(np_vlink_t *link, uint8_t id, const void *header,
                             unsigned header_len, const np_iov_t *iov,
                             size_t iovcnt);

/** Put of bytes that are copied; complete with the next flush */
ucs_status_t np_vlink_put_copied(np_vlink_t *link, np_key_t *key,
                                 const void *data, size_t len, uint64_t addr);

/** The same, packed; returns the length, or an error */
ssize_t np_vlink_put_bcopy(np_vlink_t *link, np_key_t *key,
                           size_t (*pack)(void *dest, void *arg), void *arg,
                           uint64_t addr);

/** Put or get of the program's own memory, which stays its own until the
 *  completion */
ucs_status_t np_vlink_move(np_dir_t dir, np_vlink_t *link, np_key_t *key,
                           const np_iov_t *iov, size_t iovcnt, uint64_t addr,
                           void *comp);

/** Get of at most np_vport_attr_t::max_message bytes that @a unpack takes */
ucs_status_t np_vlink_get_unpack(np_vlink_t *link, np_key_t *key, size_t len,
                                 uint64_t addr, np_unpack_t unpack, void *arg,
                                 void *comp);

/** As np_atomic_post */
ucs_status_t np_vlink_atomic(np_vlink_t *link, np_key_t *key,
                             np_atomic_op_t op, size_t size, uint64_t value,
                             uint64_t compare, uint64_t addr, void *result,
                             void *comp);

ucs_status_t np_vlink_flush(np_vlink_t *link, void *comp);
void np_vlink_fence(np_vlink_t *link);

/** Complete all that is outstanding with @a status. The link is good for
 *  nothing more, and nobody is told that it is down. */
void np_vlink_cancel(np_vlink_t *link, ucs_status_t status);

/** Find out whether the peer is there: its death is reported by link_down */
ucs_status_t np_vlink_check(np_vlink_t *link);

/** Others wait, who were first; or none do any more */
void np_vlink_set_pending(np_vlink_t *link, int has_pending);

/** Would an operation start? For what waits for room. */
int np_vlink_has_resources(np_vlink_t *link);

#endif
