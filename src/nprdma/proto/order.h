/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What waits for what: room, fences, transfers of the same memory, flush.
 */

#ifndef NP_ORDER_H_
#define NP_ORDER_H_

#include "op.h"

/** What UCX_NPRDMA_ORDER and the posting thread's flags say of the next
 *  transfer */
np_order_t np_order_now(void);

/** Must a transfer wait for those in flight, as np_order_now says? Asked only
 *  if some are. */
int np_order_waits(const np_overlap_t *overlap, uint64_t addr, size_t len,
                   int is_write);

/** Later transfers that overlap this one wait until it completes */
void np_op_order(np_link_t *link, np_op_t *op, uint64_t addr, size_t len,
                 int is_write);

/** An operation must wait for one that is outstanding: nothing is tried again
 *  before one completes. @return UCS_ERR_NO_RESOURCE. */
ucs_status_t np_link_refuse(np_link_t *link);

/** There was no room for a request (np_mail_has_room): its target must read
 *  what it has not, or an answer must come. @return UCS_ERR_NO_RESOURCE. */
ucs_status_t np_link_no_room(np_link_t *link);

/** Slow half of np_link_order */
ucs_status_t np_link_order_slow(np_link_t *link, uint64_t addr, size_t len,
                                int is_write);

/** Would any operation find room now? Looks past NP_GATE_PENDING, which is for
 *  whoever keeps the waiting ones in order. */
int np_link_has_resources(np_link_t *link);

/** Slow half of np_link_enter */
ucs_status_t np_link_enter_slow(np_link_t *link);

/**
 * Everything before is complete.
 *
 * @param [in] comp  Completed later, if UCS_INPROGRESS is returned; may be
 *                   NULL.
 *
 * @return UCS_OK, UCS_INPROGRESS, UCS_ERR_NO_MEMORY, or why the link is down;
 *         of a link also UCS_ERR_NO_RESOURCE: others wait for room, and this
 *         flush must wait behind them.
 */
ucs_status_t np_link_flush(np_link_t *link, void *comp);
ucs_status_t np_port_flush(np_port_t *port, void *comp);

/** What comes later waits for what came before */
void np_link_fence(np_link_t *link);
void np_port_fence(np_port_t *port);

/** Is everything up to this sequence number complete? */
int np_link_has_completed(np_link_t *link, uint64_t sequence);

/** End the flushes that have nothing before them; returns how many */
unsigned np_link_complete_flushes(np_link_t *link);

/** A flush that is in no list any more has ended */
void np_op_flush_done(np_port_t *port, np_op_t *op);


/** May an operation start? The one branch of the fast path. */
static UCS_F_ALWAYS_INLINE ucs_status_t np_link_enter(np_link_t *link)
{
    return ucs_likely(link->flight.gate == 0) ? UCS_OK :
           np_link_enter_slow(link);
}

/** May a transfer of [@a addr, @a addr + @a len) start beside what is in
 *  flight? Not if it must come after some of that, nor if that is much. */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_link_order(np_link_t *link, uint64_t addr, size_t len, int is_write)
{
    return ucs_likely(link->flight.outstanding == 0) ? UCS_OK :
           np_link_order_slow(link, addr, len, is_write);
}

#endif
