/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Mail: what a link asks its target through the control ring. The target's
 * owner or its service threads take it (inbox.h). A request is answered, in any
 * order; a note is not.
 */

#ifndef NP_SOFT_MAIL_H_
#define NP_SOFT_MAIL_H_

#include "link.h"

#include "../../clock.h"

/** A request that is out. Owner: its sender. */
struct np_ask {
    ucs_list_link_t     list;       /**< of its link's, or alone */
    uint32_t            index;      /**< of its answer, and of its inline
                                         area */
    uint32_t            sequence;   /**< what its answer bears */
    np_slot_kind_t      kind;       /**< what it asks for, as its slot says: */
    union {
        np_atomic_t     atomic;
        np_slot_fault_t fault;      /**< but for its epoch */
        np_slot_when_t  when;
    };
    uint64_t            after;      /**< not sent before np_port_ops_t::may_send
                                         says so; 0: at any time */
    int                 is_waiting; /**< to be sent, perhaps again .. */
    unsigned            retries;    /**< .. attempts so far .. */
    uint64_t            retry_at;   /**< .. not before; np_clock() */
};

/** How long a target in progress may take to look at a request, nanoseconds:
 *  then its service threads are woken, which costs both sides more than that */
#define NP_MAIL_PATIENCE_NS 2000

/** The same of one that takes requests itself, and will come to this one:
 *  unless it has just begun to compute, or waits for a page */
#define NP_MAIL_PATIENCE_BUSY_NS 30000

/** Between two tries of a request that a swapper prevents: at first, and at
 *  most */
#define NP_MAIL_RETRY_MIN_NS UINT64_C(1000)
#define NP_MAIL_RETRY_MAX_NS UINT64_C(1000000)


/**
 * Begin a request. There is room for it: its caller has asked np_mail_has_room,
 * once. The target makes room at any time, so a caller that asks again for the
 * reason of a refusal may hear that there was none.
 */
void np_mail_begin(np_link_t *link, np_ask_t *ask);

/**
 * Send it: its kind and what it says are filled in. It is out until
 * np_mail_end, and np_port_ops_t::answered tells of its answer.
 */
void np_mail_send(np_link_t *link, np_ask_t *ask);

/** The same, but not before what np_ask_t::after and retry_at say: then a later
 *  progress sends it, or np_mail_resend. One that is kept for its time has its
 *  place in the list, and those behind it may be sent before. */
void np_mail_keep(np_link_t *link, np_ask_t *ask);

/** Send what has waited long enough, as far as there is room */
void np_mail_resend(np_link_t *link);

/** The same for one of the device's own, whose sender looks for its answer
 *  itself (np_mail_is_answered): np_mail_progress does nothing about it. */
void np_mail_send_own(np_link_t *link, np_ask_t *ask);

/** Has its answer come? If so, and there is a @a status, what it says. */
int np_mail_is_answered(np_link_t *link, const np_ask_t *ask,
                        ucs_status_t *status);

/** The request has ended, or is not sent after all: answer and area are for
 *  others */
void np_mail_end(np_link_t *link, np_ask_t *ask);

/** Take the answers that have come, and send again what its target could not
 *  do; returns how many requests have ended */
unsigned np_mail_progress(np_link_t *link);

/** Has an answer come that np_mail_progress would take, or does a request wait
 *  that it may send, now or later? */
int np_mail_has_news(np_link_t *link);

/** Send a note; returns 0 if there is no room. It leaves the last slot to
 *  requests: a caller that has found room for one keeps it. */
int np_mail_tell(np_link_t *link, const np_slot_t *slot, np_slot_kind_t kind);

/** There was no room for a request (np_mail_has_room): its target must read
 *  what it has not, or an answer must come. @return UCS_ERR_NO_RESOURCE. */
ucs_status_t np_mail_no_room(np_link_t *link);

/** No answer is waited for any more. What the target moves for requests has
 *  landed when this returns, and it begins no more of it. */
void np_mail_drop(np_link_t *link);

/** Slow half of np_mail_ring */
void np_mail_ring_slow(np_link_t *link);

/** Wake the target's service threads now, if it has not taken all */
void np_mail_ring_now(np_link_t *link);


/** Is there a slot for one more of anything? */
static UCS_F_ALWAYS_INLINE int np_mail_has_slot(np_link_t *link)
{
    return np_ring_tx_has_slot(&link->ctl);
}

/** Requests may stand still because the target does not look, and so may what
 *  finds no room since slots without an answer fill the ring: call it again and
 *  again while some are outstanding */
static UCS_F_ALWAYS_INLINE void np_mail_ring(np_link_t *link)
{
    if ((link->answers_used != 0) || ucs_unlikely(!np_mail_has_slot(link))) {
        np_mail_ring_slow(link);
    }
}

/** Are as many requests out as can be? Else there may still be no slot. */
static UCS_F_ALWAYS_INLINE int np_mail_is_full(const np_link_t *link)
{
    return link->answers_used == UCS_MASK(NP_CTL_SLOTS);
}

/** Is there room for a request? Once there is, only a request takes it away, or
 *  a copy that is offered. */
static UCS_F_ALWAYS_INLINE int np_mail_has_room(np_link_t *link)
{
    return !np_mail_is_full(link) && np_mail_has_slot(link);
}

/** What is sent next is filled into this, but for its word */
static UCS_F_ALWAYS_INLINE np_slot_t *np_mail_slot(np_link_t *link)
{
    return np_ring_tx_slot(&link->ctl);
}

/** The data of a request that is inside the message, NP_INLINE_SIZE bytes */
static UCS_F_ALWAYS_INLINE uint8_t *
np_mail_area(np_link_t *link, const np_ask_t *ask)
{
    return link->inline_areas + ((size_t)ask->index * NP_INLINE_SIZE);
}

/** What the answer brings, if it has come */
static UCS_F_ALWAYS_INLINE const np_answer_t *
np_mail_answer(const np_link_t *link, const np_ask_t *ask)
{
    return &link->shm->answers[ask->index];
}

/** When to try again what a swapper has prevented n times: it is asked for as
 *  long as the target lives, less and less often */
static inline uint64_t np_mail_retry_at(unsigned retries)
{
    return np_clock() + ucs_min(NP_MAIL_RETRY_MIN_NS << ucs_min(retries, 16u),
                                NP_MAIL_RETRY_MAX_NS);
}

#endif
