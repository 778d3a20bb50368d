/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations over queue pairs, and what becomes of them when one fails (design,
 * section 4: recovery). The device asks again and sends again, in order
 * (dev/verbs/replay.h); what is one-sided ends two-sided.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "rput.h"
#include "runload.h"
#include "rserve.h"

#include "../../trace.h"
#include "../../work.h"

#include <stddef.h>
#include <string.h>


np_rop_t *np_rop_get(np_vport_t *port, np_op_kind_t kind, void *comp)
{
    np_rop_t *op = (np_rop_t*)np_op_get(&port->flights, kind, comp);

    if (op == NULL) {
        return NULL;
    }

    op->port = port;
    op->conn = NULL;
    op->link = NULL;
    op->copy = NULL;
    ucs_list_head_init(&op->todo);
    if (kind == NP_OP_ONE) {
        memset(&op->one, 0, offsetof(np_rone_t, pieces));
    }
    return op;
}

/* It has nothing more to do */
static void np_rop_rest(np_rop_t *op)
{
    ucs_list_del(&op->todo);
    ucs_list_head_init(&op->todo);
}

void np_rop_ended(np_op_t *super)
{
    np_rop_t *op = (np_rop_t*)super;

    if (op->copy != NULL) {
        np_vport_buffer_put(op->port, op->copy);
        op->copy = NULL;
    }
    if (super->kind == NP_OP_MOVE) {
        np_stream_drop(&op->stream);
    } else if ((super->kind == NP_OP_UNPACK) || (super->kind == NP_OP_ATOMIC)) {
        np_ask_end(&op->asked);
    }
    np_rop_rest(op);
}

void np_rop_post(np_vlink_t *link, np_rop_t *op)
{
    op->link        = link;
    op->conn        = link->conn;
    op->super.begin = np_trace_begin();
    np_op_name(&op->super);
    np_op_post(&link->flight, &op->super);
}

void np_rop_todo(np_rop_t *op)
{
    if (ucs_list_is_empty(&op->todo)) {
        ucs_list_add_tail(&op->port->todo, &op->todo);
    }
}

void np_rop_release(np_rop_t *op)
{
    if (op->super.kind == NP_OP_MOVE) {
        np_stream_drop(&op->stream);
    } else if (op->super.kind == NP_OP_ONE) {
        np_rone_release(op);
    } else if (op->super.kind == NP_OP_PUTS) {
        np_rput_release(op);
    }
}

/* np_vport_ops_t::moved */
static void np_rop_posted_done(np_rop_t *op, uint32_t number)
{
    if (op->super.kind == NP_OP_ONE) {
        np_rone_posted_done(op, number);
    } else {
        np_rput_posted_done(op);
    }
}

/* np_vport_ops_t::answered */
static void np_rop_answered(np_asked_t *asked, ucs_status_t status,
                            const void *data, size_t len)
{
    np_rop_t *op = ucs_container_of(asked, np_rop_t, asked);

    if ((status == UCS_OK) && (op->super.kind == NP_OP_UNPACK)) {
        np_unit_assert_outside();
        op->unpack(op->arg, data, len);
    } else if (status == UCS_OK) {
        np_op_store(&op->super, data);
    }
    np_op_finish(&op->super, status);
}

/* np_vport_ops_t::ended */
static void np_rop_stream_ended(np_stream_t *stream, ucs_status_t status)
{
    np_rop_t *op = ucs_container_of(stream, np_rop_t, stream);

    np_runload_ended(op, status == UCS_OK);
    np_op_finish(&op->super, status);
}

/* Do what can be done now for a transfer */
static unsigned np_rop_work_one(ucs_list_link_t *todo)
{
    np_rop_t *op = ucs_container_of(todo, np_rop_t, todo);

    np_rop_rest(op);
    if (!np_conn_goes_on(op->conn)) {
        return 0; /* it ends with the connection, or begins anew */
    }

    if ((op->super.kind == NP_OP_ONE) ? np_rone_run(op) : np_rput_run(op)) {
        np_rop_todo(op);
    }
    return 1;
}

/* The owner's, all of it */
static unsigned np_rop_work(np_vport_t *port)
{
    return port->is_thread ? 0 : np_work(&port->todo, np_rop_work_one);
}

static unsigned np_rop_owner_work(np_vport_t *port, unsigned ticks)
{
    np_rput_age(port, ticks);
    return np_flights_report(&port->flights);
}

static void np_rop_port_closed(np_vport_t *port)
{
    np_flights_cleanup(&port->flights);
}

void np_rop_hurry(np_flight_t *flight)
{
    np_rput_confirm(np_vlink_of(flight));
}

void np_rop_stopped(np_op_t *super)
{
    np_rop_t *op = (np_rop_t*)super;

    np_rop_release(op);
    np_rop_rest(op);
}

void np_rop_left(np_flight_t *flight)
{
    np_rput_cleanup(np_vlink_of(flight));
    np_runload_cleanup(np_vlink_of(flight));
}

/* np_vport_ops_t::acked */
static void np_rop_acked(np_vlink_t *link)
{
    np_runload_acked(link);
    if ((link->conn != NULL) && np_vlink_has_acked(link, link->flight.put)) {
        /* old numbers would seem new */
        link->flight.put = link->conn->tx_acked;
    }
    np_flight_check_flushes(&link->flight, UCS_OK);
}

/* np_vport_ops_t */
static void np_rop_lost(np_vlink_t *link)
{
    np_rop_t *op;

    link->flight.gate |= NP_GATE_REPLAY;
    ucs_list_for_each(op, &link->flight.ops, super.list) {
        if (op->super.kind == NP_OP_ONE) {
            np_rone_lost(op);
        } else if (op->super.kind == NP_OP_PUTS) {
            np_rput_lost(op);
        }
    }
}

static void np_rop_renumber(np_vlink_t *link, uint32_t taken, uint32_t seq)
{
    np_op_t *flush;

    np_runload_renumber(link, taken, seq);
    np_conn_renumber(&link->flight.put, taken, seq);
    ucs_list_for_each(flush, &link->flight.flushes, list) {
        np_conn_renumber(&flush->flush.put, taken, seq);
    }
}

static void np_rop_resumed(np_vlink_t *link)
{
    np_rop_t *op;

    link->flight.gate &= ~NP_GATE_REPLAY;
    ucs_list_for_each(op, &link->flight.ops, super.list) {
        if ((op->super.kind == NP_OP_ONE) || (op->super.kind == NP_OP_PUTS)) {
            np_rop_todo(op);
        }
    }
}

/* np_vport_ops_t::down: told in the next progress */
static void np_rop_down(np_vlink_t *link, ucs_status_t status)
{
    if (np_flight_end(&link->flight, status)) {
        np_flight_report(&link->flight);
    }
}

const np_vport_ops_t np_vlink_ops = {
    .ways       = &np_rop_ways,
    .max_asked  = NP_RASKED_MAX + NP_TRANSFERS_MAX,
    .put        = np_rserve_put,
    .atomic     = np_rserve_atomic,
    .answered   = np_rop_answered,
    .acked      = np_rop_acked,
    .moved      = np_rop_posted_done,
    .ended      = np_rop_stream_ended,
    .lost       = np_rop_lost,
    .renumber   = np_rop_renumber,
    .resumed    = np_rop_resumed,
    .down       = np_rop_down,
    .work       = np_rop_work,
    .owner_work = np_rop_owner_work,
    .arm        = np_rput_confirm_all,
    .closed     = np_rop_port_closed
};
