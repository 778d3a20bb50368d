/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Mail: what a link sends through its control ring, for the target's owner or
 * its service threads to take.
 */

#ifndef NP_SOFT_MAIL_H_
#define NP_SOFT_MAIL_H_

#include "link.h"

/** Send a note, a request that is not answered; returns 0 if there is no room.
 *  It leaves the last slot to requests: whoever has found room for one keeps
 *  it. */
int np_mail_tell(np_link_t *link, const np_slot_t *slot, np_slot_kind_t kind);

#endif
