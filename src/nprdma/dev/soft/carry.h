/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts and gets that the data ring carries, where neither side may reach the
 * other's memory: the bytes go through the payload area, and the target's CPU
 * moves them, in order. What it has to say about one is in the slot when its
 * head passes that.
 */

#ifndef NP_SOFT_CARRY_H_
#define NP_SOFT_CARRY_H_

#include "link.h"

/** A request that is carried. Owner: its sender. */
struct np_carry {
    ucs_list_link_t list;    /**< of its link's */
    uint32_t        index;   /**< of its slot */
    uint32_t        start;   /**< of its bytes, as a position of payload_tail */
    uint32_t        payload; /**< where that is in the ring's area; what the
                                  slot says of that is the target's word */
};

/** Find room for a request of @a len bytes. Returns 0 if there is none now. */
int np_carry_begin(np_link_t *link, np_carry_t *carry, size_t len);

/** Send it. Nothing else has been sent since it began. Nothing of its slot is
 *  used again before np_carry_end, and np_port_ops_t::carried tells what the
 *  target has said of it.
 *
 * @param [in] dir  NP_DIR_PUT: its bytes are where np_carry_bytes() says. */
void np_carry_send(np_link_t *link, np_carry_t *carry, np_dir_t dir, size_t len,
                   uint64_t addr);

/** Take what the target has passed; returns how many have ended */
unsigned np_carry_progress(np_link_t *link);

/** Has the target passed any that np_carry_progress would take? */
int np_carry_has_news(np_link_t *link);

/** What is out keeps its slot no longer: its end is not taken any more */
void np_carry_drop(np_link_t *link);

/** np_port_ops_t::serve for a slot of the data ring, whose answer goes into it.
 *  Returns 0 if it must be tried again in a later progress. */
int np_carry_serve(np_peer_t *peer, np_slot_t *slot, uint64_t word);


/** It has ended: its slot is for others, after the next np_carry_progress */
static UCS_F_ALWAYS_INLINE void np_carry_end(np_carry_t *carry)
{
    ucs_list_del(&carry->list);
}

/** Its bytes */
static UCS_F_ALWAYS_INLINE uint8_t *
np_carry_bytes(const np_link_t *link, const np_carry_t *carry)
{
    return link->data.payload + carry->payload;
}

#endif
