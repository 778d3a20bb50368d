/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Inbox: what peers ask through their control rings. Their requests are taken
 * by the port's owner in its progress, or by the service threads while it
 * computes. Those that are answered go to the layers above
 * (np_port_ops_t::execute); notes are the device's own.
 */

#ifndef NP_SOFT_INBOX_H_
#define NP_SOFT_INBOX_H_

#include "port.h"

/** A request of a peer's control ring, taken out of it. Owner: the thread that
 *  has taken it. */
struct np_job {
    np_peer_t *peer;
    np_slot_t slot;    /**< a copy: what the peer writes later does not count */
    uint64_t  word;
};

/** Take and execute what is in a peer's control ring; the port's owner. Returns
 *  how many. */
unsigned np_inbox_progress(np_peer_t *peer);

/** Take the next request out of a control ring; the caller executes it, once.
 *  Any thread. Returns 0 if there is none that may be executed now, or another
 *  thread is taking. */
int np_inbox_take(np_peer_t *peer, np_job_t *job);

/** Is it for the protocol, which answers it, and may it be answered? */
int np_inbox_is_answered(const np_job_t *job);

/** May it wait for a page of ours, as a request does? */
int np_inbox_may_sleep(const np_job_t *job);

/** Execute one that is not for the protocol; returns 0 if it is no request. Any
 *  thread, but of NP_SLOT_SHARE the port's owner alone. */
int np_inbox_note(const np_job_t *job);

/**
 * Answer a request, once, and wake the initiator if it sleeps. Any thread that
 * has executed it.
 *
 * @param [in] result  As np_answer_t::result. Data that belongs to it has been
 *                     stored before.
 * @param [in] last    As np_answer_t::last.
 */
void np_inbox_answer(const np_job_t *job, ucs_status_t status, uint64_t result,
                     uint64_t last);

/** The data of a request that is inside the message, NP_INLINE_SIZE bytes */
uint8_t *np_inbox_area(const np_job_t *job);

/** Have the service threads answer peers of this port, and let them leave it
 *  alone when that returns. The port's owner. */
void np_inbox_begin(np_port_t *port);
void np_inbox_end(np_port_t *port);

/** Peers could not be told that they are taken in: for a second, service
 *  threads try it too. The port's owner, without the port's lock. */
void np_inbox_accept(np_port_t *port);

#endif
