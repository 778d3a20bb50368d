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

/** A request of a peer's control ring, taken out of it.
 *  Owner: whoever has taken it. */
typedef struct np_job {
    np_peer_t *peer;
    np_slot_t slot;    /**< a copy: what the peer writes later does not count */
    uint64_t  word;
} np_job_t;

/**
 * Execute a request that is answered (np_job_is_answered), and answer it. Any
 * thread that has taken the job.
 *
 * @param [in] mover  Who we are to the link: each has its own word.
 */
void np_serve_job(const np_job_t *job, np_mover_t mover, np_stats_t *stats);

/** Is this a request that np_serve_job takes? Others are for the owner of the
 *  port. */
static inline int np_job_is_answered(uint64_t word)
{
    return (np_word_kind(word) == NP_SLOT_ATOMIC) ||
           (np_word_kind(word) == NP_SLOT_FAULT);
}

/** Take and execute what is in a peer's control ring; the port's owner. Returns
 *  how many. */
unsigned np_serve_ctl(np_peer_t *peer);

/** May such a request be answered? Else it is malformed. */
static inline int np_job_is_valid(uint64_t word)
{
    return np_word_id(word) < NP_CTL_SLOTS;
}

/** Take the next request out of a control ring; whoever gets it executes it,
 *  once. Any thread. Returns 0 if there is none that may be executed now, or
 *  somebody else is taking. */
int np_serve_take(np_peer_t *peer, np_job_t *job);

/** Have the service threads answer peers of this port, and let them leave it
 *  alone when that returns. The port's owner. */
void np_serve_begin(np_port_t *port);
void np_serve_end(np_port_t *port);

/** Execute one of the others; returns 0 if it is no request */
int np_serve_note(np_peer_t *peer, const np_slot_t *slot, uint64_t word);

#endif
