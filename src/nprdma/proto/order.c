/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What waits for what.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "order.h"

#include "copy.h"
#include "request.h"

#include "../engine.h"
#include "../extension.h"
#include "../mem/overlap.h"
#include "../pause.h"


void np_op_order(np_link_t *link, np_op_t *op, uint64_t addr, size_t len,
                 int is_write)
{
    np_assert(!op->is_ordered && (len > 0));
    np_overlap_add(&link->flight.overlap, &op->interval, addr, len, is_write);
    op->is_ordered = 1;
}

ucs_status_t np_link_refuse(np_link_t *link)
{
    link->is_full    = 0;
    link->flight.is_refused = link->flight.outstanding > 0;
    return UCS_ERR_NO_RESOURCE;
}

ucs_status_t np_link_no_room(np_link_t *link)
{
    NP_PAUSE(REFUSED);
    link->is_full    = 0;
    link->flight.is_refused = np_mail_is_full(link);
    np_mail_ring_slow(link); /* notes, never answered, may have it all */
    return UCS_ERR_NO_RESOURCE;
}

np_order_t np_order_now(void)
{
    return (np_order_flags() & NPRDMA_ORDER_BEFORE) ? NP_ORDER_STRICT :
           np_engine.config.order;
}

int np_order_waits(const np_overlap_t *overlap, uint64_t addr, size_t len,
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

ucs_status_t np_link_order_slow(np_link_t *link, uint64_t addr, size_t len,
                                int is_write)
{
    if (np_order_waits(&link->flight.overlap, addr, len, is_write)) {
        NP_STATS_INC(link->port->stats, order_waits);
        return np_link_refuse(link);
    }
    return ucs_likely(link->copies < NP_COPY_MAX) ? UCS_OK :
           np_link_refuse(link);
}

int np_link_has_completed(np_link_t *link, uint64_t sequence)
{
    np_op_t *op;
    unsigned i;

    for (i = 0; i < NP_QUEUE_FLUSH; ++i) {
        if (!ucs_list_is_empty(&link->queues[i])) {
            op = ucs_list_head(&link->queues[i], np_op_t, list);
            if (op->sequence <= sequence) {
                return 0;
            }
        }
    }

    return 1;
}

void np_op_flush_done(np_port_t *port, np_op_t *op)
{
    np_op_t *group = op->flush.group;

    if (group == NULL) {
        np_op_complete(port, op);
        return;
    }

    if (op->status != UCS_OK) {
        group->status = op->status;
    }
    np_op_put(port, op);
    if (--group->group.pending == 0) {
        np_op_complete(port, group);
    }
}

unsigned np_link_complete_flushes(np_link_t *link)
{
    unsigned count = 0;
    np_op_t *op;

    while (!ucs_list_is_empty(&link->queues[NP_QUEUE_FLUSH])) {
        op = ucs_list_head(&link->queues[NP_QUEUE_FLUSH], np_op_t, list);
        if (!np_link_has_completed(link, op->sequence)) {
            break;
        }

        ucs_list_del(&op->list);
        np_op_flush_done(link->port, op);
        ++count;
    }

    return count;
}

ucs_status_t np_link_flush(np_link_t *link, void *comp)
{
    np_op_t *op;

    if (np_flight_is_down(&link->flight)) {
        np_link_report(link); /* which ends what is outstanding, and this */
        if (link->flight.outstanding == 0) {
            return link->flight.status;
        }
    } else if (link->flight.gate & NP_GATE_PENDING) {
        return UCS_ERR_NO_RESOURCE; /* it belongs behind those that wait */
    } else if (link->flight.outstanding == 0) {
        return UCS_OK;
    }

    if (comp != NULL) {
        op = np_op_get(link->port, NP_OP_FLUSH, comp);
        if (op == NULL) {
            return UCS_ERR_NO_MEMORY;
        }

        op->flush.group = NULL;
        np_op_post(link, NP_QUEUE_FLUSH, op);
    }

    return UCS_INPROGRESS;
}

ucs_status_t np_port_flush(np_port_t *port, void *comp)
{
    np_op_t *group, *op;
    np_link_t *link;

    if (ucs_list_is_empty(&port->busy_links)) {
        return UCS_OK;
    }

    if (comp == NULL) {
        return UCS_INPROGRESS;
    }

    group = np_op_get(port, NP_OP_GROUP, comp);
    if (group == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    group->group.pending = 0;
    ucs_list_for_each(link, &port->busy_links, busy) {
        op = np_op_get(port, NP_OP_FLUSH, NULL);
        if (op == NULL) {
            /* what has been posted completes the group without the rest: so
             * take its completion away */
            group->comp = NULL;
            if (group->group.pending == 0) {
                np_op_put(port, group);
            }
            return UCS_ERR_NO_MEMORY;
        }

        op->flush.group = group;
        ++group->group.pending;
        np_op_post(link, NP_QUEUE_FLUSH, op);
    }

    return UCS_INPROGRESS;
}

void np_link_fence(np_link_t *link)
{
    /* Stores into mapped memory are in order with the slots' words */
    atomic_thread_fence(memory_order_release);
    if ((link->flight.outstanding > 0) && !NP_IS_MUTANT(FENCE_LETS_PASS)) {
        np_flight_fence(&link->flight);
    }
}

void np_port_fence(np_port_t *port)
{
    np_link_t *link;

    atomic_thread_fence(memory_order_release);
    ucs_list_for_each(link, &port->busy_links, busy) {
        np_link_fence(link);
    }
}

ucs_status_t np_link_enter_slow(np_link_t *link)
{
    ucs_status_t status;

    if (np_flight_is_down(&link->flight)) {
        np_link_report(link);
        return link->flight.status;
    }

    if (link->flight.gate & NP_GATE_PENDING) {
        return UCS_ERR_NO_RESOURCE;
    }

    if (link->flight.gate & NP_GATE_UNCONNECTED) {
        if (!np_link_may_connect(link)) {
            return UCS_ERR_NO_RESOURCE;
        }

        status = np_link_connect(link);
        if (status != UCS_OK) {
            if (np_flight_is_down(&link->flight)) {
                np_link_report(link);
            }
            return status;
        }
    }

    if (link->flight.gate & NP_GATE_FENCED) {
        if (!np_link_has_completed(link, link->flight.fence)) {
            return UCS_ERR_NO_RESOURCE;
        }
        link->flight.gate &= ~NP_GATE_FENCED;
    }

    return UCS_OK;
}

int np_link_has_resources(np_link_t *link)
{
    const unsigned gate = link->flight.gate & ~NP_GATE_PENDING;

    if (gate & NP_GATE_DOWN) {
        return 1; /* whoever tries learns that it is down */
    }

    if (link->flight.is_refused) {
        return 0;
    }

    if ((gate & NP_GATE_FENCED) &&
        !np_link_has_completed(link, link->flight.fence)) {
        return 0;
    }

    if (gate & NP_GATE_UNCONNECTED) {
        return np_link_may_connect(link);
    }

    /* A target that computes reads no messages, but others than these go on */
    if (!np_link_has_room(link)) {
        return 0;
    }

    if (!np_mail_has_slot(link)) {
        np_mail_ring_slow(link); /* nothing of it may be outstanding */
        return 0;
    }
    return 1;
}
