/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations over queue pairs.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vput.h"

#include "../trace.h"
#include "../work.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>


np_vop_t *np_vop_get(np_vport_t *port, np_op_kind_t kind, void *comp)
{
    np_vop_t *op = (np_vop_t*)np_op_get(&port->flights, kind, comp);

    if (op == NULL) {
        return NULL;
    }

    op->port    = port;
    op->conn    = NULL;
    op->link    = NULL;
    op->copy    = NULL;
    op->bring   = NULL;
    op->request = (np_vctl_t){.msg = {.kind = NP_VMSG_AM}};
    ucs_list_head_init(&op->todo);
    if (kind == NP_OP_MOVE) {
        memset(&op->move, 0, sizeof(op->move));
    } else if (kind == NP_OP_ONE) {
        memset(&op->one, 0, offsetof(np_vone_t, pieces));
    }
    return op;
}

/* It is over: what it holds of the port's */
static void np_vop_clean(np_vop_t *op)
{
    if (op->copy != NULL) {
        np_vport_buffer_put(op->port, op->copy);
        op->copy = NULL;
    }
    np_bring_end(&op->bring);
    ucs_list_del(&op->todo);
    ucs_list_head_init(&op->todo);
}

void np_vop_post(np_vlink_t *link, np_vop_t *op)
{
    op->link        = link;
    op->conn        = link->conn;
    op->super.begin = np_trace_begin();
    np_op_name(&op->super);
    np_op_post(&link->flight, &op->super);
}

/* np_flight_ops_t::ended */
static void np_vop_ended(np_op_t *super)
{
    np_vop_clean((np_vop_t*)super);
}

np_vop_t *np_vop_find(np_conn_t *conn, uint32_t name)
{
    return (conn->link == NULL) ? NULL :
           (np_vop_t*)np_op_find(&conn->link->flight, name);
}

np_vop_t *np_vop_find_served(np_conn_t *conn, uint32_t name)
{
    np_vop_t *op;

    ucs_list_for_each(op, &conn->served, super.list) {
        if (op->super.name == name) {
            return op;
        }
    }
    return NULL;
}

void np_vop_todo(np_vop_t *op)
{
    if (ucs_list_is_empty(&op->todo)) {
        ucs_list_add_tail(&op->port->todo, &op->todo);
    }
}

void np_vop_release(np_vop_t *op)
{
    if (op->super.kind == NP_OP_MOVE) {
        np_vmove_release(op);
    } else if (op->super.kind == NP_OP_ONE) {
        np_vone_release(op);
    } else if (op->super.kind == NP_OP_PUTS) {
        np_vput_release(op);
    }
}

static void np_vop_posted_done(np_vop_t *op, uint32_t number)
{
    if (op->super.kind == NP_OP_ONE) {
        np_vone_posted_done(op, number);
    } else if (op->super.kind == NP_OP_PUTS) {
        np_vput_posted_done(op);
    } else {
        np_vmove_posted_done(op, number);
    }
}

/* Returns whether to come again */
static int np_vop_run(np_vop_t *op)
{
    switch (op->super.kind) {
    case NP_OP_ONE:
        return np_vone_run(op);
    case NP_OP_PUTS:
        return np_vput_run(op);
    default:
        return np_vmove_run(op);
    }
}

/* May a service thread do it? For peers, and some of what was posted here. */
static int np_vop_is_for_thread(np_vop_t *op)
{
    return (op->link == NULL) || np_vmove_is_for_thread(op);
}

/* Do for a transfer what can be done */
static unsigned np_vop_work_one(ucs_list_link_t *todo)
{
    np_vop_t *op       = ucs_container_of(todo, np_vop_t, todo);
    const int is_ready = (op->conn->state == NP_CONN_READY) &&
                         (op->conn->replay == NULL);

    if (is_ready && op->port->is_thread && !np_vop_is_for_thread(op)) {
        return 0; /* the owner */
    }

    ucs_list_del(todo);
    ucs_list_head_init(todo);
    if (!is_ready) {
        return 0; /* it ends with the connection, or begins anew */
    }

    if (np_vop_run(op)) {
        np_vop_todo(op);
    }
    return 1;
}

void np_vop_serve(np_conn_t *conn, np_vop_t *op)
{
    op->conn        = conn;
    op->super.begin = np_trace_begin();
    ucs_list_add_tail(&conn->served, &op->super.list);
    ++conn->num_served;
    ++conn->port->num_served;
}

void np_vop_served(np_vop_t *op)
{
    const np_vmove_t *move = &op->move;

    np_trace(NP_TRACE_SERVE, op->super.begin, (uintptr_t)move->iov[0].base,
             move->len);
    if (move->is_absent) {
        np_bring_later(op->port, (uintptr_t)move->iov[0].base, move->len,
                       !move->is_source);
    }
    np_assert((op->conn->num_served > 0) && (op->port->num_served > 0));
    ucs_list_del(&op->super.list);
    --op->conn->num_served;
    --op->port->num_served;
    np_vop_clean(op);
    np_op_put(&op->port->flights, &op->super);
}

/* Forget all that is served over a connection */
static void np_vop_end_served(np_conn_t *conn)
{
    np_vop_t *op;

    while (!ucs_list_is_empty(&conn->served)) {
        op = ucs_list_head(&conn->served, np_vop_t, super.list);
        np_vmove_release(op);
        np_vop_served(op);
    }
}

static void np_vop_conn_renewed(np_conn_t *conn)
{
    if (!conn->is_link) {
        np_vop_end_served(conn);
    }
}

static int np_vop_conn_awaits_write(const np_conn_t *conn)
{
    const np_vop_t *op;

    ucs_list_for_each(op, &conn->served, super.list) {
        if (np_vmove_awaits_write(op)) {
            return 1;
        }
    }
    return 0;
}

static unsigned np_vop_work(np_vport_t *port)
{
    return np_work(&port->todo, np_vop_work_one);
}

static unsigned np_vop_owner_work(np_vport_t *port, unsigned ticks)
{
    np_vput_age(port, ticks);
    return np_flights_report(&port->flights);
}

static int np_vop_has_thread_work(np_vport_t *port)
{
    np_vop_t *op;

    ucs_list_for_each(op, &port->todo, todo) {
        if (np_vop_is_for_thread(op)) {
            return 1;
        }
    }
    return 0;
}

static void np_vop_port_closed(np_vport_t *port)
{
    np_flights_cleanup(&port->flights);
}

static int np_vop_has_taken(np_flight_t *flight, uint32_t put)
{
    return np_vlink_has_acked(np_vlink_of(flight), put);
}

static void np_vop_fail(np_flight_t *flight, ucs_status_t status)
{
    np_conn_fail(np_vlink_of(flight)->conn, status);
}

static const np_flight_ops_t np_vop_flight_ops = {
    .op_size    = sizeof(np_vop_t),
    .max_ops    = NP_OP_NAMES,
    .has_taken  = np_vop_has_taken,
    .ask        = np_vlink_ask,
    .connect    = np_vlink_connect,
    .has_room   = np_vlink_has_room,
    .fail       = np_vop_fail,
    .stop       = np_vlink_stop,
    .ended      = np_vop_ended,
    .close      = np_vlink_close,
    .end        = np_vlink_end,
    .check      = np_vlink_check,
    .move       = np_vlink_move,
    .put_copied = np_vlink_put_copied,
    .put_packed = np_vlink_put_packed,
    .get_unpack = np_vlink_get_unpack,
    .atomic     = np_vlink_atomic
};

const np_vport_ops_t np_vlink_ops = {
    .flight          = &np_vop_flight_ops,
    .max_answers     = (NP_VASKED_MAX + NP_VONES_MAX) * NP_VDEPTH_MAX * 8,
    .max_writes      = NP_VSERVED_MAX * NP_VDEPTH_MAX,
    .asked           = np_vserve_asked,
    .answered        = np_vserve_answered,
    .written         = np_vserve_written,
    .take_key        = np_vserve_take_key,
    .acked           = np_vlink_acked,
    .moved           = np_vop_posted_done,
    .renewed         = np_vop_conn_renewed,
    .lost            = np_vreplay_lost,
    .taken           = np_vreplay_taken,
    .renumber        = np_vreplay_renumber,
    .ask_again       = np_vreplay_ask,
    .resumed         = np_vreplay_resumed,
    .freed           = np_vop_end_served,
    .down            = np_vlink_down,
    .awaits_write    = np_vop_conn_awaits_write,
    .work            = np_vop_work,
    .owner_work      = np_vop_owner_work,
    .has_thread_work = np_vop_has_thread_work,
    .arm             = np_vput_confirm_all,
    .closed          = np_vop_port_closed
};
