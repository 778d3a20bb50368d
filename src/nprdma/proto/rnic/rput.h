/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Small puts over queue pairs that one Read of the target's entries confirms
 * together.
 */

#ifndef NP_RPUT_H_
#define NP_RPUT_H_

#include "rop.h"

/** Bytes of the largest */
#define NP_RPUT_SIZE    64u

/** Places that are confirmed together */
#define NP_RPUT_COUNT   32u

/**
 * A put of at most NP_RPUT_SIZE bytes, one-sided, which nothing says is to be a
 * message; it is complete with the next flush.
 *
 * @return UCS_OK; UCS_ERR_NO_RESOURCE: others must complete first;
 *         UCS_ERR_UNSUPPORTED: not in this way.
 */
ucs_status_t np_rput_post(np_vlink_t *link, const void *data, size_t len,
                          uint64_t addr);

/** A put is about to go as a message, where others go one-sided; @a
 *  is_unloaded: though it need not */
void np_rput_by_message(np_vlink_t *link, np_vctl_t *ctl, uint64_t addr,
                        size_t len, int is_unloaded);

/** Is there a put that is not acknowledged? If so, the acknowledgement is asked
 *  for. */
int np_rput_is_unacked(np_vlink_t *link);

/** Would a transfer without the target's CPU overtake such a put that must come
 *  before it? If so, the acknowledgement is asked for. */
int np_rput_is_overtaken(np_vlink_t *link, uint64_t addr, size_t len);

/** They are waited for: confirm those that have been posted */
void np_rput_confirm(np_vlink_t *link);

/** The same for all links, before the program sleeps */
void np_rput_confirm_all(np_vport_t *port);

/** The same for those that have waited long enough, in the progress call of
 *  this number */
void np_rput_age(np_vport_t *port, unsigned ticks);

/** Do what can be done for what has come back; returns whether to come again.
 *  Owner's turn. */
int np_rput_run(np_rop_t *op);

void np_rput_posted_done(np_rop_t *op);
void np_rput_release(np_rop_t *op);

/** Its queue pair has failed: the puts are sent again as messages over the next
 *  one */
void np_rput_lost(np_rop_t *op);

/** The link ends; nothing is outstanding any more */
void np_rput_cleanup(np_vlink_t *link);

#endif
