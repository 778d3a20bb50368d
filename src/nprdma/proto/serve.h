/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a target does for its peers.
 */

#ifndef NP_SERVE_H_
#define NP_SERVE_H_

#include "../dev/soft/peer.h"

/** Execute a request of a peer's data ring; the answer goes into the slot.
 *  Returns 0 if a swapper does not let it: try again in a later progress. */
int np_serve_data(np_peer_t *peer, np_slot_t *slot, uint64_t word);

/** np_port_ops_t::execute */
void np_serve_job(const np_job_t *job, np_mover_t mover, np_stats_t *stats);

#endif
