/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts and gets that the data ring carries, where neither side may reach the
 * other's memory, and those of what the target has lent: the bytes go through
 * the payload area, and the target's CPU moves them, in order. What it has to
 * say about one is in the slot when its head passes that.
 */

#ifndef NP_SOFT_CARRY_H_
#define NP_SOFT_CARRY_H_

#include "link.h"

/** A request that is carried. Owner: its sender. */
struct np_carry {
    ucs_list_link_t list;    /**< of its link's */
    uint32_t        index;   /**< of its slot */
    uint32_t        start;   /**< of its bytes, as a position of payload_tail */
    uint8_t         *bytes;  /**< where that is here: in its slot, or in the
                                  ring's area; what the slot says of that is
                                  the target's word */
    int             is_lent; /**< sent with NP_CARRY_LENT */
};

/** Id of a request that the target is to execute only if it has lent the memory
 *  (mem/lent.h); else it answers UCS_ERR_NO_PROGRESS, to this one and to all
 *  that follow until they are recalled */
#define NP_CARRY_LENT  1

/** Find room for a request of @a len bytes. Returns 0 if there is none now. */
int np_carry_begin(np_link_t *link, np_carry_t *carry, size_t len);

/** Send it. Nothing else has been sent since it began. Nothing of its slot is
 *  used again before np_carry_end, and np_port_ops_t::carried tells what the
 *  target has said of it.
 *
 * @param [in] dir  NP_DIR_PUT: its bytes are at carry->bytes.
 * @param [in] id   0, or NP_CARRY_LENT. */
void np_carry_send(np_link_t *link, np_carry_t *carry, np_dir_t dir, size_t len,
                   uint64_t addr, uint8_t id);

/** Take what the target has passed; returns how many have ended */
unsigned np_carry_progress(np_link_t *link);

/** How many has the target executed and passed, one after the other, that
 *  np_carry_progress would take? */
unsigned np_carry_passed(np_link_t *link);

/** Has the target passed any that np_carry_progress would take? */
int np_carry_has_news(np_link_t *link);

/** What the target says of this one is not taken any more: another way is
 *  faster. The target may still pass it, and until then nothing of its slot and
 *  its bytes is used again. */
void np_carry_leave(np_link_t *link, np_carry_t *carry);

/**
 * Have the target execute nothing more of what was sent with NP_CARRY_LENT
 * until now. What it executes just now is in its way.
 *
 * @return for np_carry_is_recalled.
 */
uint32_t np_carry_recall(np_link_t *link);

/** What was recalled, and is: the target's answer, if it has executed it before
 *  that; UCS_ERR_NO_PROGRESS: it has not, and will not. */
ucs_status_t np_carry_answer(const np_link_t *link, const np_carry_t *carry);

/** Take what the target has executed, though it may not have passed it: all
 *  that is out, from the first on, up to one that it has not. What was sent
 *  with NP_CARRY_LENT is recalled. Returns how many have ended. */
unsigned np_carry_take_executed(np_link_t *link);

/** Is there room for so much, and a part of it for others after that? What
 *  is sent with NP_CARRY_LENT leaves room for them, should the target not come
 *  to it. */
int np_carry_has_room_beside(np_link_t *link, size_t len);

/** What is out keeps its slot no longer: its end is not taken any more. When
 *  this returns the target moves nothing for it that it has lent, if it
 *  runs. */
void np_carry_drop(np_link_t *link);

/** np_port_ops_t::serve or lend for a slot of the data ring, whose answer goes
 *  into it. Returns 0 if it must be tried again in a later progress.
 *  np_carry_lent is called before anything else is done but to serve another
 *  one. */
int np_carry_serve(np_peer_t *peer, np_slot_t *slot, uint64_t word);

/** The end of what that may have begun: a recall need not wait any more, and
 *  what is lent may end */
void np_carry_lent(np_peer_t *peer);

/** Serve the slot at the data ring's head, which has @a word, and those behind
 *  it while they are ready, and are small requests of what is lent. The last
 *  one that was served is at the head then. Returns 0 if the first one cannot
 *  be served yet, or the connection has ended. */
int np_carry_take_row(np_peer_t *peer, uint64_t word);


/** It has ended: its slot is for others, after the next np_carry_progress */
static UCS_F_ALWAYS_INLINE void np_carry_end(np_carry_t *carry)
{
    ucs_list_del(&carry->list);
}

/** Does the target execute none of what was recalled? */
static UCS_F_ALWAYS_INLINE int
np_carry_is_recalled(const np_link_t *link, uint32_t recalled)
{
    /* acquire: what it has moved and said is seen */
    return (recalled == 0) ||
           (atomic_load_explicit(&link->shm->lending, memory_order_acquire) !=
            recalled);
}

/** Bytes of a request of @a len that lie in the payload area: none, if they fit
 *  into its slot */
static UCS_F_ALWAYS_INLINE uint32_t np_carry_payload(size_t len)
{
    return (len > NP_SLOT_RMA_INLINE) ? len : 0;
}

#endif
