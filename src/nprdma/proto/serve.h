/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a target does for its peers.
 */

#ifndef NP_SERVE_H_
#define NP_SERVE_H_

#include "../dev/soft/peer.h"

/** Execute a request of a peer; returns 0 if it is no request */
int np_serve(np_peer_t *peer, np_slot_t *slot, uint64_t word);

#endif
