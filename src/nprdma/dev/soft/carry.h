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

/** A request that is carried. Owner: whoever has sent it. */
typedef struct np_carry {
    uint32_t index;     /**< of its slot */
    uint32_t start;     /**< of its bytes, as a position of payload_tail */
    uint32_t payload;   /**< where that is in the ring's area; what the slot
                             says of that is the target's word */
} np_carry_t;

/** Find room for a request of @a len bytes. Returns 0 if there is none now. */
int np_carry_begin(np_link_t *link, np_carry_t *carry, size_t len);

/** Send it. Nothing else has been sent since it began.
 *
 * @param [in] dir  NP_DIR_PUT: its bytes are where np_carry_bytes() says. */
void np_carry_send(np_link_t *link, const np_carry_t *carry, np_dir_t dir,
                   size_t len, uint64_t addr);

/** Nothing of the slots from this one on is used again, though the target has
 *  passed them; NULL: none is held */
void np_carry_hold(np_link_t *link, const np_carry_t *carry);

/** What the target says of it, as soon as that has passed it */
ucs_status_t np_carry_status(const np_link_t *link, const np_carry_t *carry);

/** np_port_ops_t::serve for a slot of the data ring, whose answer goes into it.
 *  Returns 0 if it must be tried again in a later progress. */
int np_carry_serve(np_peer_t *peer, np_slot_t *slot, uint64_t word);


/** Has the target passed it? */
static UCS_F_ALWAYS_INLINE int
np_carry_is_done(np_link_t *link, const np_carry_t *carry)
{
    return np_ring_tx_is_read(&link->data, carry->index);
}

/** Its bytes */
static UCS_F_ALWAYS_INLINE uint8_t *
np_carry_bytes(const np_link_t *link, const np_carry_t *carry)
{
    return link->data.payload + carry->payload;
}

#endif
