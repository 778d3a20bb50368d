/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What waits for what: fences, transfers of the same memory, flush.
 */

#ifndef NP_ORDER_H_
#define NP_ORDER_H_

#include "op.h"

#include "../engine.h"

/** What UCX_NPRDMA_ORDER and the posting thread's flags say of the next
 *  transfer */
np_order_t np_order_now(void);

/** Must a transfer wait for those in flight, as np_order_now says? Asked only
 *  if some are in flight. */
int np_order_waits(np_overlap_t *overlap, uint64_t addr, size_t len,
                   int is_write);

/** Later transfers that overlap this one wait until it completes */
void np_op_order(np_flight_t *flight, np_op_t *op, uint64_t addr, size_t len,
                 int is_write);

/** Largest number of transfers that a link has outstanding, as a queue pair has
 *  work requests: a later one waits until one of them completes. Progress may
 *  have to look at all of them. */
#define NP_TRANSFERS_MAX  128u

/** Slow half of np_flight_order */
ucs_status_t np_flight_order_slow(np_flight_t *flight, uint64_t addr,
                                  size_t len, int is_write);

/** A transfer has begun: what comes later may have to wait for it */
void np_flight_begun(np_flight_t *flight);

/** May an operation start, as far as its link knows? Slow half of the functions
 *  that ask for a gate of 0. */
ucs_status_t np_flight_enter(np_flight_t *flight);

/**
 * A read or an atomic is not begun, for this reason. If it has a completion
 * that tells: the newer protocols of UCP end the process if one fails at once.
 *
 * @return UCS_INPROGRESS; UCS_ERR_NO_RESOURCE: try again; or @a status, if
 *         there is no completion or no memory, or if its user knows that the
 *         link is down.
 */
ucs_status_t np_flight_refuse_op(np_flight_t *flight, ucs_status_t status,
                                 void *comp);

/** A fence before an atomic of @a size bytes, which then starts as any
 *  operation does. It takes effect, and completes, after the puts and gets
 *  before it, as on a reliable queue pair: Open MPI's request-based one-sided
 *  calls use one as their end marker, without a fence.
 *  @return UCS_OK, or UCS_ERR_INVALID_ADDR: it is not aligned. */
ucs_status_t
np_flight_fence_atomic(np_flight_t *flight, uint64_t addr, size_t size);

/** All that was posted is waited for: nothing is put off any more, and we must
 *  learn of its end */
void np_flight_hurry(np_flight_t *flight);

/** Would any operation find room now? Ignores NP_GATE_PENDING, which is for the
 *  code that keeps the waiting ones in order. */
int np_flight_has_resources(np_flight_t *flight);

/**
 * Everything before is complete.
 *
 * @param [in] comp  Completed later, if UCS_INPROGRESS is returned; may be
 *                   NULL.
 *
 * @return UCS_OK, UCS_INPROGRESS, UCS_ERR_NO_MEMORY, or why the link is down;
 *         UCS_ERR_NO_RESOURCE: there are too many operations, or, for one link,
 *         others wait for room, and this flush must wait after them.
 */
ucs_status_t np_flight_flush(np_flight_t *flight, void *comp);
ucs_status_t np_flights_flush(np_flights_t *all, void *comp);

/** What comes later waits for what came before; what the CPU has stored into a
 *  target's memory stays in order with messages */
void np_flight_fence(np_flight_t *flight);
void np_flights_fence(np_flights_t *all);

/** Is all complete up to this operation, and the put of this number? */
int np_flight_has_completed(np_flight_t *flight, uint64_t sequence,
                            uint32_t put);

/** End the flushes that have nothing before them; with an error, all of them */
void np_flight_check_flushes(np_flight_t *flight, ucs_status_t status);


/** May an operation start? The one branch of the fast path. */
static UCS_F_ALWAYS_INLINE ucs_status_t np_flight_start(np_flight_t *flight)
{
    return ucs_likely(flight->gate == 0) ? UCS_OK : np_flight_enter(flight);
}

/**
 * May a transfer with this key start, if it has bytes? One of no bytes may come
 * with UCT_INVALID_RKEY, and has begun and ended.
 *
 * @param [in,out] addr  Of the key; then the target's.
 */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_flight_start_key(np_flight_t *flight, const np_key_t *key, uint64_t *addr,
                    size_t len)
{
    if (ucs_unlikely(!np_key_covers(key, flight->engine_id, *addr, len))) {
        return UCS_ERR_INVALID_ADDR;
    }

    *addr += key->base;
    return np_flight_start(flight);
}

/** May a transfer of [@a addr, @a addr + @a len) start beside what is in
 *  flight? Not if it must come after some of that, or if too much is in
 *  flight. */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_flight_order(np_flight_t *flight, uint64_t addr, size_t len, int is_write)
{
    return ucs_likely(flight->outstanding == 0) ? UCS_OK :
           np_flight_order_slow(flight, addr, len, is_write);
}

#endif
