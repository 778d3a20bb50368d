/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies in pieces: large transfers, which target and initiator may share (the
 * target's part: help.h), and transfers through the rings that need more than
 * one slot.
 */

#ifndef NP_COPY_H_
#define NP_COPY_H_

#include "sop.h"

/** Work on a link's copies; returns how many completed */
unsigned np_copy_progress(np_link_t *link);

/** Is there anything to do for a link's copies but to wait for others? */
int np_copy_has_work(np_link_t *link);

/** A copy of which nothing is claimed, by this device if it is not told
 *  otherwise. @a window_addr: where @a addr is mapped here, in @a window; or
 *  both NULL. */
void np_copy_init(np_copy_t *copy, np_dir_t dir, np_window_t *window,
                  void *window_addr, const np_iov_t *iov, size_t iovcnt,
                  size_t len, uint64_t addr);

/** An operation that is such a copy, to be posted. @a direct: where @a addr is
 *  mapped here, by @a key; or NULL.
 *  @return NULL: no memory (logged). */
np_sop_t *np_copy_new(np_dir_t dir, np_link_t *link, np_key_t *key,
                      void *direct, const np_iov_t *iov, size_t iovcnt,
                      size_t len, uint64_t addr, void *comp);

/** Begin a copy. Returns as np_rma_move. */
ucs_status_t np_copy_post(np_link_t *link, np_sop_t *op);

/** A request that the data ring has carried, and that the target has not
 *  executed and will not, goes on as a copy, in the next progress */
void np_copy_turn(np_link_t *link, np_sop_t *op);

/** What has not gone through the rings goes by this device, in the next
 *  progress. None of its pieces is out any more. */
void np_copy_leave_rings(np_sop_t *op);

/**
 * May the CPU still move this local memory for a copy? With exact scope the
 * program may have ended its registration, and use it for something else. What
 * has no completion is copied by its caller: short and buffered transfers.
 */
int np_copy_may_touch(const np_sop_t *copy_op, const np_iov_t *iov,
                      size_t iovcnt);

/** It is complete: its user has what it has brought */
void np_copy_finish(np_link_t *link, np_sop_t *op);

/** A piece that went through the ring has arrived */
void np_copy_piece_done(np_sop_t *copy_op, ucs_status_t status);

#endif
