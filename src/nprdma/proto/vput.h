/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Small puts over queue pairs that one Read of the target's entries confirms
 * together.
 */

#ifndef NP_VPUT_H_
#define NP_VPUT_H_

#include "vop.h"

/** Bytes of the largest */
#define NP_VPUT_SIZE    64u

/** Places that are confirmed together */
#define NP_VPUT_COUNT   32u

/**
 * A put of at most NP_VPUT_SIZE bytes, one-sided; it is complete with the next
 * flush.
 *
 * @return UCS_OK; UCS_ERR_NO_RESOURCE: others first; UCS_ERR_UNSUPPORTED: not
 *         in this way.
 */
ucs_status_t np_vput_post(np_vlink_t *link, const void *data, size_t len,
                          uint64_t addr);

/** A put is about to go as a message, where others go one-sided */
void np_vput_by_message(np_vlink_t *link, uint64_t addr, size_t len);

/** Is there one that is not acknowledged? That is asked for, then. */
int np_vput_is_unacked(np_vlink_t *link);

/** Would what the target's CPU has no part in overtake such a put that must be
 *  before it? Its acknowledgement is asked for, then. */
int np_vput_is_overtaken(np_vlink_t *link, uint64_t addr, size_t len);

/** Somebody waits for them: confirm those that have been posted */
void np_vput_confirm(np_vlink_t *link);

/** And those of all links, before the program sleeps */
void np_vput_confirm_all(np_vport_t *port);

/** And those that have waited long enough, in the progress call of this
 *  number */
void np_vput_age(np_vport_t *port, unsigned ticks);

/** Do what can be done for what is back; returns whether to come again. Owner's
 *  turn. */
int np_vput_run(np_vop_t *op);

void np_vput_posted_done(np_vop_t *op);
void np_vput_release(np_vop_t *op);

/** Its queue pair has failed: they go again as messages over the next one */
void np_vput_lost(np_vop_t *op);

/** The link ends; nothing is outstanding any more */
void np_vput_cleanup(np_vlink_t *link);

#endif
