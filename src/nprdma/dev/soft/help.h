/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Helping with a peer's copy: the target's part of a shared copy.
 */

#ifndef NP_SOFT_HELP_H_
#define NP_SOFT_HELP_H_

#include "port.h"

/** A copy that a peer began and asked us to help with. Owner: the port's list
 *  of helps. */
typedef struct np_help {
    ucs_list_link_t list;
    np_peer_t       *peer;
    np_share_t      *share;
    np_share_args_t args;        /**< checked; what the peer writes later does
                                      not count */
    uint16_t        generation;
    uint64_t        prepared;    /**< bytes from the front that are brought
                                      in */
    uint32_t        done;        /**< chunks that we have claimed and done: the
                                      peer's word for it does not count */
    int             is_waiting;  /**< for pages of the initiator's */
    uint8_t         bounce[];    /**< NP_HELP_BOUNCE bytes if args.is_open */
} np_help_t;

/** What goes through a processor's nearest caches on its way */
#define NP_HELP_BOUNCE  (64 * UCS_KBYTE)

/** A peer asks for help with a copy; returns 0 if that is nonsense */
int np_help_begin(np_peer_t *peer, const np_slot_share_t *request);

/** Work on others' copies; returns how many chunks */
unsigned np_help_progress(np_port_t *port);

/** Is there one that does not wait for its initiator? */
int np_help_has_work(np_port_t *port);

/** Forget the copies of a peer that is gone */
void np_help_forget(np_peer_t *peer);

#endif
