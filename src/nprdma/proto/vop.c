/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations over queue pairs.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vbring.h"
#include "vlate.h"
#include "vput.h"
#include "vremote.h"

#include "../trace.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A name: an index into port->names, and a generation above it, so that a late
 * answer is none of the next operation. 0 is no name. */
#define NP_VOP_INDEX_BITS  16
#define NP_VOP_INDEX_MASK  UCS_MASK(NP_VOP_INDEX_BITS)


int np_vop_is_full(const np_vport_t *port)
{
    return (port->free_ops == NULL) && (port->num_ops > NP_VOP_INDEX_MASK);
}

/* Twice as many; the new ones are free, with their names */
static int np_vop_grow(np_vport_t *port)
{
    unsigned count = (port->num_ops == 0) ? 64 : (2 * port->num_ops), i;
    np_vop_t **ops, *op;

    if (count > (NP_VOP_INDEX_MASK + 1)) {
        return 0;
    }

    ops = realloc(port->names, count * sizeof(*ops));
    if (ops == NULL) {
        return 0;
    }

    port->names = ops;
    for (i = port->num_ops; i < count; ++i) {
        op = calloc(1, sizeof(*op));
        if (op == NULL) {
            break;
        }

        op->port       = port;
        op->index      = i;
        ops[i]         = op;
        op->next_free  = port->free_ops;
        port->free_ops = op;
        ++port->num_ops;
    }
    return port->free_ops != NULL;
}

np_vop_t *np_vop_get(np_vport_t *port, np_vop_kind_t kind, void *comp)
{
    np_vop_t *op;

    if (ucs_unlikely(port->free_ops == NULL) && !np_vop_grow(port)) {
        if (!np_vop_is_full(port)) {
            np_error("no memory for one more operation beside %u",
                     port->num_ops);
        }
        return NULL;
    }

    op             = port->free_ops;
    port->free_ops = op->next_free;
    op->kind       = kind;
    op->conn       = NULL;
    op->link       = NULL;
    op->name       = 0;
    op->status     = UCS_OK;
    op->comp       = comp;
    op->sequence   = 0;
    op->copy       = NULL;
    op->bring      = NULL;
    op->is_ordered = 0;
    op->request    = (np_vctl_t){.msg = {.kind = NP_VMSG_AM}};
    ucs_list_head_init(&op->todo);
    ucs_list_head_init(&op->list);
    if (kind == NP_VOP_MOVE) {
        memset(&op->move, 0, sizeof(op->move));
    } else if (kind == NP_VOP_ONE) {
        memset(&op->one, 0, offsetof(np_vone_t, pieces));
    }
    return op;
}

void np_vop_put(np_vop_t *op)
{
    if (op->copy != NULL) {
        np_vport_buffer_put(op->port, op->copy);
        op->copy = NULL;
    }
    np_vbring_end(&op->bring);
    ucs_list_del(&op->todo);
    ucs_list_head_init(&op->todo);
    op->name           = 0;
    op->conn           = NULL;
    op->next_free      = op->port->free_ops;
    op->port->free_ops = op;
}

/* Has the target's CPU nothing to do for it, as far as is known? */
static int np_vop_is_one_sided(const np_vop_t *op)
{
    return (op->kind == NP_VOP_ONE) || (op->kind == NP_VOP_PUTS);
}

void np_vop_post(np_vlink_t *link, np_vop_t *op)
{
    op->link     = link;
    op->begin    = np_trace_begin();
    op->conn     = link->conn;
    op->sequence = np_flight_begin(&link->flight, op->kind == NP_VOP_ATOMIC);
    op->name     = (++op->generation << NP_VOP_INDEX_BITS) | op->index;
    if (op->name == 0) {
        op->name = ++op->generation << NP_VOP_INDEX_BITS;
    }
    link->ones += np_vop_is_one_sided(op);
    ucs_list_add_tail(&link->ops, &op->list);
}

void np_vop_unpost(np_vop_t *op)
{
    np_vlink_t *link = op->link;

    np_flight_end(&link->flight, op->kind == NP_VOP_ATOMIC);
    link->ones -= np_vop_is_one_sided(op);
    if (op->is_ordered) {
        np_overlap_remove(&link->flight.overlap, &op->interval);
    }
    ucs_list_del(&op->list);
    np_vop_put(op);
}

static void np_vop_trace(const np_vop_t *op)
{
    if (op->kind == NP_VOP_MOVE) {
        np_trace(op->move.is_source ? NP_TRACE_PUT : NP_TRACE_GET, op->begin,
                 op->move.remote, op->move.len);
    } else if (op->kind == NP_VOP_ONE) {
        np_trace((op->one.dir == NP_DIR_PUT) ? NP_TRACE_PUT : NP_TRACE_GET,
                 op->begin, op->one.remote, op->one.len);
    }
}

void np_vop_finish(np_vop_t *op, ucs_status_t status)
{
    const uint64_t sequence = op->sequence;
    np_vlink_t *link        = op->link;
    void *comp              = op->comp;

    np_vop_trace(op);
    np_vop_unpost(op);
    if ((status != UCS_OK) &&
        ((comp == NULL) || np_flight_is_relied_on(&link->flight, sequence))) {
        /* nobody else would hear of it; or what is behind the fence, such as
         * UCP's word that a put is there, must not go */
        np_conn_fail(link->conn, status);
    }
    np_vlink_complete(link->port, comp, status);
    np_vlink_check_flushes(link, UCS_OK);
}

np_vop_t *np_vop_find(np_conn_t *conn, uint32_t name)
{
    uint32_t index = name & NP_VOP_INDEX_MASK;
    np_vop_t *op   = (index < conn->port->num_ops) ? conn->port->names[index] :
                     NULL;

    return ((op != NULL) && (name != 0) && (op->name == name) &&
            (op->conn == conn) && (op->link != NULL)) ? op : NULL;
}

np_vop_t *np_vop_find_served(np_conn_t *conn, uint32_t name)
{
    np_vop_t *op;

    ucs_list_for_each(op, &conn->served, list) {
        if (op->name == name) {
            return op;
        }
    }
    return NULL;
}

void np_vop_hold(np_vop_t *op, uint64_t addr, size_t len, int is_write)
{
    np_overlap_add(&op->link->flight.overlap, &op->interval, addr, len,
                   is_write);
    op->is_ordered = 1;
}

void np_vop_todo(np_vop_t *op)
{
    if (ucs_list_is_empty(&op->todo)) {
        ucs_list_add_tail(&op->port->todo, &op->todo);
    }
}

void np_vop_release(np_vop_t *op)
{
    if (op->kind == NP_VOP_MOVE) {
        np_vmove_release(op);
    } else if (op->kind == NP_VOP_ONE) {
        np_vone_release(op);
    } else if (op->kind == NP_VOP_PUTS) {
        np_vput_release(op);
    }
}

static void np_vop_posted_done(np_vop_t *op, uint32_t number)
{
    if (op->kind == NP_VOP_ONE) {
        np_vone_posted_done(op, number);
    } else if (op->kind == NP_VOP_PUTS) {
        np_vput_posted_done(op);
    } else {
        np_vmove_posted_done(op, number);
    }
}

/* Returns whether to come again */
static int np_vop_run(np_vop_t *op)
{
    switch (op->kind) {
    case NP_VOP_ONE:
        return np_vone_run(op);
    case NP_VOP_PUTS:
        return np_vput_run(op);
    default:
        return np_vmove_run(op);
    }
}

/* Do for transfers what can be done; returns how much it was. A service thread
 * does it for peers, and for what np_vmove_is_for_thread says. */
static unsigned np_vop_progress(np_vport_t *port)
{
    unsigned count = 0;
    ucs_list_link_t todo;
    np_vop_t *op;

    ucs_list_head_init(&todo);
    ucs_list_splice_tail(&todo, &port->todo);
    ucs_list_head_init(&port->todo);
    while (!ucs_list_is_empty(&todo)) {
        op = ucs_list_extract_head(&todo, np_vop_t, todo);
        ucs_list_head_init(&op->todo);
        if ((op->conn->state != NP_CONN_READY) || (op->conn->replay != NULL)) {
            continue; /* it ends with the connection, or begins anew */
        }

        if (port->is_thread && (op->link != NULL) &&
            !np_vmove_is_for_thread(op)) {
            np_vop_todo(op);
            continue;
        }

        if (np_vop_run(op)) {
            np_vop_todo(op);
        }
        ++count;
    }
    return count;
}

void np_vop_serve(np_conn_t *conn, np_vop_t *op)
{
    op->conn  = conn;
    op->begin = np_trace_begin();
    ucs_list_add_tail(&conn->served, &op->list);
    ++conn->num_served;
    ++conn->port->num_served;
}

void np_vop_served(np_vop_t *op)
{
    const np_vmove_t *move = &op->move;

    np_trace(NP_TRACE_SERVE, op->begin, (uintptr_t)move->iov[0].base,
             move->len);
    if (move->is_absent) {
        np_vserve_absent(op->port, (uintptr_t)move->iov[0].base, move->len,
                         !move->is_source);
    }
    np_assert((op->conn->num_served > 0) && (op->port->num_served > 0));
    ucs_list_del(&op->list);
    --op->conn->num_served;
    --op->port->num_served;
    np_vop_put(op);
}

/* Forget all that is served over a connection */
static void np_vop_end_served(np_conn_t *conn)
{
    np_vop_t *op;

    while (!ucs_list_is_empty(&conn->served)) {
        op = ucs_list_head(&conn->served, np_vop_t, list);
        np_vmove_release(op);
        np_vop_served(op);
    }
}

/* Free what a port has kept */
static void np_vop_cleanup(np_vport_t *port)
{
    unsigned i;

    for (i = 0; i < port->num_ops; ++i) {
        free(port->names[i]);
    }
    free(port->names);
}

static void np_vop_conn_renewed(np_conn_t *conn)
{
    np_vlate_drop(conn);
    if (!conn->is_link) {
        np_vop_end_served(conn);
    }
}

static void np_vop_conn_ended(np_conn_t *conn)
{
    np_vreplay_drop(conn);
    np_vlate_drop(conn);
}

static void np_vop_conn_freed(np_conn_t *conn)
{
    np_vop_end_served(conn);
    np_vop_conn_ended(conn);
}

static int np_vop_conn_awaits_write(const np_conn_t *conn)
{
    const np_vop_t *op;

    ucs_list_for_each(op, &conn->served, list) {
        if (np_vmove_awaits_write(op)) {
            return 1;
        }
    }
    return 0;
}

static unsigned np_vop_work(np_vport_t *port)
{
    unsigned count;

    count  = np_vlate_progress(port);
    count += np_vop_progress(port);
    count += np_vremote_answer(port);
    return count;
}

static unsigned np_vop_owner_work(np_vport_t *port, unsigned ticks)
{
    unsigned count;

    np_vput_age(port, ticks);
    count  = np_vlink_report(port);
    count += np_vreplay_progress(port);
    return count;
}

static int np_vop_has_thread_work(np_vport_t *port)
{
    np_vop_t *op;

    ucs_list_for_each(op, &port->todo, todo) {
        if ((op->link == NULL) || np_vmove_is_for_thread(op)) {
            return 1;
        }
    }
    return 0;
}

static void np_vop_port_closed(np_vport_t *port)
{
    np_vremote_drop_asked(port);
    np_vop_cleanup(port);
    np_stage_cleanup(&port->stage);
}

const np_vport_ops_t np_vlink_ops = {
    .arrived         = np_vlate_arrived,
    .resume          = np_vlate_resume,
    .moved           = np_vop_posted_done,
    .renewed         = np_vop_conn_renewed,
    .lost            = np_vreplay_lost,
    .resumed         = np_vreplay_begin,
    .ended           = np_vop_conn_ended,
    .freed           = np_vop_conn_freed,
    .down            = np_vlink_down,
    .awaits_write    = np_vop_conn_awaits_write,
    .work            = np_vop_work,
    .owner_work      = np_vop_owner_work,
    .has_thread_work = np_vop_has_thread_work,
    .idle            = np_vserve_bring_in,
    .arm             = np_vput_confirm_all,
    .closed          = np_vop_port_closed
};
