/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What waits for what.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "order.h"

#include "../pause.h"
#include "../stats.h"
#include "../thread_flags.h"


np_order_t np_order_now(void)
{
    return (np_order_flags() & NPRDMA_ORDER_BEFORE) ? NP_ORDER_STRICT :
           np_engine.config.order;
}

int np_order_waits(np_overlap_t *overlap, uint64_t addr, size_t len,
                   int is_write)
{
    switch (NP_IS_MUTANT(ORDER_IGNORED) ? NP_ORDER_RELAXED : np_order_now()) {
    case NP_ORDER_RELAXED:
        return 0;
    case NP_ORDER_STRICT:
        return 1;
    default:
        return np_overlap_check(overlap, addr, len, is_write);
    }
}

ucs_status_t np_flight_order_slow(np_flight_t *flight, uint64_t addr,
                                  size_t len, int is_write)
{
    if (np_order_waits(&flight->overlap, addr, len, is_write)) {
        NP_STATS_INC(flight->all->stats, order_waits);
    } else if (np_flight_transfers(flight) < NP_TRANSFERS_MAX) {
        return UCS_OK;
    }

    if (flight->all->ways->hurry != NULL) {
        flight->all->ways->hurry(flight); /* what is put off may be in the
                                             way */
    }
    return np_flight_refuse(flight);
}

void np_op_order(np_flight_t *flight, np_op_t *op, uint64_t addr, size_t len,
                 int is_write)
{
    np_assert(!op->is_ordered && (len > 0));
    np_overlap_add(&flight->overlap, &op->interval, addr, len, is_write);
    op->is_ordered = 1;
}

void np_flight_begun(np_flight_t *flight)
{
    if (ucs_unlikely(np_order_flags() & NPRDMA_ORDER_AFTER)) {
        np_flight_fence(flight);
    }
}

int np_flight_has_completed(np_flight_t *flight, uint64_t sequence,
                            uint32_t put)
{
    const np_dev_ops_t *dev = flight->all->dev;

    return (ucs_list_is_empty(&flight->ops) ||
            (ucs_list_head(&flight->ops, np_op_t, list)->sequence >
             sequence)) &&
           ((dev->has_taken == NULL) || dev->has_taken(flight, put));
}

/* All that was posted until now */
static int np_flight_is_complete(np_flight_t *flight)
{
    return np_flight_has_completed(flight, flight->sequence, flight->put);
}

void np_flight_hurry(np_flight_t *flight)
{
    if (flight->all->ways->hurry != NULL) {
        flight->all->ways->hurry(flight);
    }
    if (flight->all->dev->want_taken != NULL) {
        flight->all->dev->want_taken(flight);
    }
}

static int np_flight_is_fenced(np_flight_t *flight)
{
    if (flight->gate & NP_GATE_FENCED) {
        if (!np_flight_has_completed(flight, flight->fence, flight->put)) {
            np_flight_hurry(flight);
            return 1;
        }
        flight->gate &= ~NP_GATE_FENCED;
    }
    return 0;
}

ucs_status_t np_flight_refuse_op(np_flight_t *flight, ucs_status_t status,
                                 void *comp)
{
    np_op_t *op;

    if ((comp == NULL) || (status == UCS_ERR_NO_RESOURCE)) {
        return status; /* of the latter there may be no turn */
    }

    /* a link that never was connected has no progress */
    if ((flight->gate & NP_GATE_UNCONNECTED) &&
        (np_flight_enter(flight) == UCS_ERR_NO_RESOURCE)) {
        return UCS_ERR_NO_RESOURCE;
    }

    if ((flight->gate & NP_GATE_UNCONNECTED) ||
        (np_flight_is_down(flight) && flight->is_reported)) {
        return status;
    }

    op = np_op_get(flight->all, NP_OP_REFUSED, comp);
    if (op == NULL) {
        return status;
    }

    op->status               = status;
    flight->all->has_refused = 1;
    np_op_post(flight, op);
    return UCS_INPROGRESS;
}

ucs_status_t np_flight_enter(np_flight_t *flight)
{
    ucs_status_t status;

    if (np_flight_is_down(flight)) {
        np_flight_report(flight);
        return flight->status;
    }

    if (flight->gate & NP_GATE_PENDING) {
        return UCS_ERR_NO_RESOURCE;
    }

    if (flight->gate & NP_GATE_UNCONNECTED) {
        status = flight->all->dev->connect(flight);
        if (status != UCS_OK) {
            if (np_flight_is_down(flight)) {
                np_flight_report(flight);
                status = flight->status;
            }
            return status;
        }
    }

    return ((flight->gate & NP_GATE_REPLAY) || np_flight_is_fenced(flight)) ?
           UCS_ERR_NO_RESOURCE : UCS_OK;
}

ucs_status_t
np_flight_fence_atomic(np_flight_t *flight, uint64_t addr, size_t size)
{
    if (ucs_unlikely((addr & (size - 1)) != 0)) {
        np_error("atomic of %zu bytes on the unaligned address %#lx", size,
                 addr);
        return UCS_ERR_INVALID_ADDR;
    }

    if (ucs_unlikely(flight->outstanding != flight->count[NP_OP_ATOMIC])) {
        np_flight_fence(flight);
    }
    return UCS_OK;
}

int np_flight_has_resources(np_flight_t *flight)
{
    if (np_flight_is_down(flight)) {
        return 1; /* the next call learns that */
    }

    return !flight->is_refused && !np_flight_is_fenced(flight) &&
           !np_op_is_full(flight->all) &&
           ((flight->all->ways->may_begin == NULL) ||
            flight->all->ways->may_begin(flight)) &&
           flight->all->dev->has_room(flight);
}

void np_flight_fence(np_flight_t *flight)
{
    atomic_thread_fence(memory_order_release);
    if (!np_flight_is_complete(flight) && !NP_IS_MUTANT(FENCE_LETS_PASS)) {
        flight->fence = flight->sequence;
        flight->gate |= NP_GATE_FENCED;
    }
}

void np_flights_fence(np_flights_t *all)
{
    np_flight_t *flight;

    atomic_thread_fence(memory_order_release); /* there may be none */
    ucs_list_for_each(flight, &all->busy, busy) {
        np_flight_fence(flight);
    }
}

/* It is in no list any more. A port's flush fails with any of its links. */
static void np_flush_end(np_flights_t *all, np_op_t *flush, ucs_status_t status)
{
    np_op_t *group = flush->flush.group;
    void *comp     = flush->comp;

    np_op_put(all, flush);
    if (group != NULL) {
        if (status != UCS_OK) {
            group->status = status;
        }
        if (--group->group.pending > 0) {
            return;
        }
        comp   = group->comp;
        status = group->status;
        np_op_put(all, group);
    }
    np_flights_tell(all, comp, status);
}

void np_flight_check_flushes(np_flight_t *flight, ucs_status_t status)
{
    np_op_t *flush;

    while (!ucs_list_is_empty(&flight->flushes)) {
        flush = ucs_list_head(&flight->flushes, np_op_t, list);
        if ((status == UCS_OK) &&
            (np_flight_is_down(flight) || /* it ends with what was lost */
             !np_flight_has_completed(flight, flush->sequence,
                                      flush->flush.put))) {
            return;
        }
        ucs_list_del(&flush->list);
        np_flush_end(flight->all, flush, status);
    }

    if (np_flight_is_complete(flight)) {
        ucs_list_del(&flight->busy);
        ucs_list_head_init(&flight->busy);
    }
}

/* Returns 0: np_op_none says why */
static int
np_flush_begin(np_flight_t *flight, np_op_t *group, void *comp)
{
    np_op_t *flush = np_op_get(flight->all, NP_OP_FLUSH, comp);

    if (flush == NULL) {
        return 0;
    }

    flush->sequence    = flight->sequence;
    flush->flush.put   = flight->put;
    flush->flush.group = group;
    ucs_list_add_tail(&flight->flushes, &flush->list);
    np_flight_set_busy(flight);
    return 1;
}

ucs_status_t np_flight_flush(np_flight_t *flight, void *comp)
{
    if (np_flight_is_down(flight)) {
        np_flight_report(flight); /* which ends what is outstanding, and this */
        if (flight->outstanding == 0) {
            return flight->status;
        }
    } else if (flight->gate & NP_GATE_PENDING) {
        return UCS_ERR_NO_RESOURCE; /* it belongs after those that wait */
    } else if (np_flight_is_complete(flight)) {
        return UCS_OK;
    } else {
        np_flight_hurry(flight);
    }

    return ((comp == NULL) || np_flush_begin(flight, NULL, comp)) ?
           UCS_INPROGRESS : np_op_none(flight->all);
}

/* A link's part in the flush of a port; 0: it has none. A link that is down has
 * one until its user has been told of that, and of the end of each
 * operation. */
static int np_flush_takes(np_flight_t *flight)
{
    if (np_flight_is_down(flight)) {
        np_flight_report(flight);
        return !flight->is_reported || (flight->outstanding > 0);
    }

    if (np_flight_is_complete(flight)) {
        return 0;
    }

    np_flight_hurry(flight);
    return 1;
}

ucs_status_t np_flights_flush(np_flights_t *all, void *comp)
{
    ucs_status_t status = UCS_OK;
    np_op_t *group      = NULL;
    np_flight_t *flight;

    ucs_list_for_each(flight, &all->busy, busy) {
        if (!np_flush_takes(flight)) {
            continue;
        }

        status = UCS_INPROGRESS;
        if (comp == NULL) {
            continue;
        }

        if (group == NULL) {
            group = np_op_get(all, NP_OP_GROUP, comp);
            if (group == NULL) {
                return np_op_none(all);
            }
            group->group.pending = 0;
        }

        if (!np_flush_begin(flight, group, NULL)) {
            /* what has begun ends the group without the rest, and without a
             * word */
            status      = np_op_none(all);
            group->comp = NULL;
            if (group->group.pending == 0) {
                np_op_put(all, group);
            }
            return status;
        }
        ++group->group.pending;
    }
    return status;
}
