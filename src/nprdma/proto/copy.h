/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies in pieces: large transfers, which target and initiator may share, and
 * transfers through the rings that need more than one slot.
 */

#ifndef NP_COPY_H_
#define NP_COPY_H_

#include "op.h"

/** A copy that somebody else began and asked us to help with.
 *  Owner: the port's list of helps. */
typedef struct np_help {
    ucs_list_link_t list;
    np_peer_t       *peer;
    np_share_t      *share;
    np_share_args_t args;        /**< checked; what the peer writes later does
                                      not count */
    uint16_t        generation;
    uint32_t        done;
} np_help_t;

/** Work on a link's copies; returns how many completed */
unsigned np_copy_progress(np_link_t *link);

/** Is there anything to do about a link's copies but to wait for others? */
int np_copy_has_work(np_link_t *link);

/** Begin a copy. Returns as np_rma_move. */
ucs_status_t np_copy_post(np_link_t *link, np_op_t *op);

/** No one works on this copy any more after this call */
void np_copy_abort(np_link_t *link, np_op_t *op);

/** A piece that went through the ring is there */
void np_copy_piece_done(np_op_t *copy_op, ucs_status_t status);

/** A peer asks for help with a copy; returns 0 if that is nonsense */
int np_help_begin(np_peer_t *peer, const np_slot_share_t *request);

/** Work on others' copies; returns how many pieces */
unsigned np_help_progress(np_port_t *port);

/** Forget the copies of a peer that is gone */
void np_help_forget(np_peer_t *peer);

#endif
