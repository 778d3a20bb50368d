/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Flushes and fences of links over queue pairs: what is complete, and who waits
 * for that.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vput.h"

#include "../pause.h"


int np_vlink_has_completed(np_vlink_t *link, uint64_t sequence,
                           uint32_t put_seq)
{
    if (!np_vlink_has_acked(link, put_seq)) {
        return 0;
    }

    return ucs_list_is_empty(&link->ops) ||
           (ucs_list_head(&link->ops, np_vop_t, list)->sequence > sequence);
}

/* The target's word on messages up to this one, once */
static void np_vlink_want(np_vlink_t *link, uint32_t seq)
{
    if ((int32_t)(seq - link->conn->tx_wanted) > 0) {
        np_conn_owe_ack(link->conn);
    }
}

void np_vlink_ask(np_vlink_t *link)
{
    np_vput_confirm(link);
    if ((link->conn != NULL) && (link->conn->state == NP_CONN_READY) &&
        !np_vlink_has_acked(link, link->put_seq)) {
        np_vlink_want(link, link->put_seq);
    }
}

void np_vlink_end_flush(np_vop_t *flush, ucs_status_t status)
{
    np_vport_t *port = flush->port;
    np_vop_t *group  = flush->flush.group;
    void *comp       = flush->comp;

    ucs_list_del(&flush->list);
    np_vop_put(flush);
    if (group != NULL) {
        if (status != UCS_OK) {
            group->status = status; /* as on soft0 (np_op_flush_done) */
        }
        if (--group->group.pending > 0) {
            return;
        }
        comp   = group->comp;
        status = group->status;
        ucs_list_del(&group->list);
        np_vop_put(group);
    }
    np_vlink_complete(port, comp, status);
}

void np_vlink_check_flushes(np_vlink_t *link, ucs_status_t status)
{
    np_vop_t *flush;

    while (!ucs_list_is_empty(&link->flushes)) {
        flush = ucs_list_head(&link->flushes, np_vop_t, list);
        if ((status == UCS_OK) &&
            !np_vlink_has_completed(link, flush->sequence,
                                    flush->flush.put_seq)) {
            return;
        }
        np_vlink_end_flush(flush, status);
    }
}

ucs_status_t np_vlink_flush(np_vlink_t *link, void *comp)
{
    NP_TURN_OR_RETURN(&link->port->turn, UCS_ERR_NO_RESOURCE);
    np_vop_t *op;

    if (np_flight_is_down(&link->flight)) {
        return link->flight.status;
    }

    if (link->flight.gate & NP_GATE_PENDING) {
        return UCS_ERR_NO_RESOURCE;
    }

    if (np_vlink_has_completed(link, link->flight.sequence, link->put_seq)) {
        return UCS_OK;
    }

    np_vlink_ask(link);
    if (comp != NULL) {
        op = np_vop_get(link->port, NP_VOP_FLUSH, comp);
        if (op == NULL) {
            return np_vop_none(link->port);
        }

        op->sequence      = link->flight.sequence;
        op->flush.put_seq = link->put_seq;
        op->flush.group   = NULL;
        ucs_list_add_tail(&link->flushes, &op->list);
    }
    return UCS_INPROGRESS;
}

ucs_status_t np_vport_flush(np_vport_t *port, void *comp)
{
    NP_TURN_WAIT(&port->turn);
    np_vop_t *group     = NULL, *op;
    unsigned pending    = 0;
    ucs_status_t status = UCS_INPROGRESS;
    np_vlink_t *link;

    ucs_list_for_each(link, &port->links, list) {
        /* one that has failed takes part until its user has been told */
        if (np_flight_is_down(&link->flight) ?
            link->flight.is_reported :
            np_vlink_has_completed(link, link->flight.sequence,
                                   link->put_seq)) {
            continue;
        }

        ++pending;
        if (!np_flight_is_down(&link->flight)) {
            np_vlink_ask(link);
        }
        if (comp == NULL) {
            continue;
        }

        if (group == NULL) {
            group = np_vop_get(port, NP_VOP_GROUP, comp);
            if (group == NULL) {
                return np_vop_none(port);
            }
            group->group.pending = 1; /* until all are counted */
            ucs_list_add_tail(&port->groups, &group->list);
        }

        op = np_vop_get(port, NP_VOP_FLUSH, NULL);
        if (op == NULL) {
            group->comp = NULL; /* those that have begun end without a word */
            status      = np_vop_none(port);
            break;
        }

        op->sequence      = link->flight.sequence;
        op->flush.put_seq = link->put_seq;
        op->flush.group   = group;
        ++group->group.pending;
        ucs_list_add_tail(&link->flushes, &op->list);
    }

    if ((group != NULL) && (--group->group.pending == 0)) {
        ucs_list_del(&group->list); /* none has begun */
        np_vop_put(group);
    }
    return (pending == 0) ? UCS_OK : status;
}

void np_vlink_fence(np_vlink_t *link)
{
    NP_TURN_WAIT(&link->port->turn);
    if (!np_vlink_has_completed(link, link->flight.sequence, link->put_seq) &&
        !NP_IS_MUTANT(FENCE_LETS_PASS)) {
        np_flight_fence(&link->flight);
    }
}

void np_vport_fence(np_vport_t *port)
{
    NP_TURN_WAIT(&port->turn);
    np_vlink_t *link;

    ucs_list_for_each(link, &port->links, list) {
        np_vlink_fence(link);
    }
}
