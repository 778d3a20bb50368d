/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Links over queue pairs: their beginning and end, and that of their
 * operations.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vlink.h"

#include "vput.h"
#include "vremote.h"

#include "../dev/verbs/hello.h"

#include <string.h>


void np_vlink_init(np_vlink_t *link, np_vport_t *port,
                   const np_vdev_addr_t *dev_addr, const np_vport_addr_t *addr)
{
    NP_TURN_WAIT(&port->turn);

    memset(link, 0, sizeof(*link));
    np_flight_init(&link->flight);
    link->port     = port;
    link->dev_addr = *dev_addr;
    link->addr     = *addr;
    ucs_list_head_init(&link->ops);
    ucs_list_head_init(&link->flushes);
    ucs_list_head_init(&link->blocks);
    ucs_list_add_tail(&port->links, &link->list);
}

static void np_vlink_drop(ucs_list_link_t *ops)
{
    np_vop_t *op;

    while (!ucs_list_is_empty(ops)) {
        op = ucs_list_extract_head(ops, np_vop_t, list);
        np_vop_release(op);
        np_vop_put(op);
    }
}

/* Its own are forgotten, those of the port wait for others, too */
static void np_vlink_drop_flushes(np_vlink_t *link)
{
    np_vop_t *flush;

    while (!ucs_list_is_empty(&link->flushes)) {
        flush = ucs_list_head(&link->flushes, np_vop_t, list);
        if (flush->flush.group == NULL) {
            flush->comp = NULL;
        }
        np_vlink_end_flush(flush, UCS_ERR_CANCELED);
    }
}

static void np_vlink_end(np_vlink_t *link)
{
    NP_TURN_WAIT(&link->port->turn);
    np_conn_t *conn = link->conn;

    link->conn = NULL;
    if (conn != NULL) {
        if (link->flight.outstanding > 0) {
            np_conn_kill(conn);
        } else {
            np_conn_close(conn);
        }
    }

    np_vlink_drop(&link->ops);
    np_vlink_drop_flushes(link);
    np_vput_cleanup(link);
    np_vremote_cleanup(link);
    ucs_list_del(&link->list);
    ucs_list_del(&link->flight.down);
}

void np_vlink_close(np_vlink_t *link)
{
    if (np_vport_is_ours(link->port)) {
        np_vlink_end(link);
    }
}

void np_vlink_connect(np_vlink_t *link)
{
    link->conn = np_conn_create(link->port, 1);
    if (link->conn == NULL) {
        np_vlink_down(link, UCS_ERR_NO_MEMORY);
        return;
    }

    link->conn->link   = link;
    link->flight.gate &= ~NP_GATE_UNCONNECTED;
    np_hello_begin(link->conn, &link->dev_addr, &link->addr);
}

void np_vlink_acked(np_vlink_t *link)
{
    np_vop_t *op, *next;

    if ((link->conn != NULL) && np_vlink_has_acked(link, link->put_seq)) {
        link->put_seq = link->conn->tx_acked; /* old numbers would seem new */
    }
    ucs_list_for_each_safe(op, next, &link->ops, list) {
        if ((op->kind == NP_VOP_MOVE) && op->move.no_keys &&
            op->move.is_source && op->move.has_last &&
            (op->status == UCS_OK) &&
            np_vlink_has_acked(link, op->move.last_seq)) {
            np_vop_finish(op, UCS_OK);
        }
    }
    np_vlink_check_flushes(link, UCS_OK);
}

void np_vlink_down(np_vlink_t *link, ucs_status_t status)
{
    if (np_flight_is_down(&link->flight)) {
        return;
    }

    link->flight.gate  |= NP_GATE_DOWN;
    link->flight.status = status;
    ucs_list_add_tail(&link->port->down, &link->flight.down);
}

static void np_vlink_cancel_all(np_vlink_t *link, ucs_status_t status)
{
    NP_TURN_WAIT(&link->port->turn);
    np_vop_t *op;
    void *comp;

    if (link->flight.outstanding > 0) {
        /* nothing is written any more to what its owner takes back */
        np_conn_kill(link->conn);
        link->conn               = NULL;
        link->flight.gate       |= NP_GATE_UNCONNECTED | NP_GATE_DOWN;
        link->flight.is_reported = 1;
        link->flight.status      = status;
    }

    /* before the program is told: should it go on in there, the connection may
     * be freed */
    ucs_list_for_each(op, &link->ops, list) {
        np_vop_release(op);
        ucs_list_del(&op->todo);
        ucs_list_head_init(&op->todo);
    }
    while (!ucs_list_is_empty(&link->ops)) {
        op   = ucs_list_head(&link->ops, np_vop_t, list);
        comp = op->comp;
        np_vop_unpost(op);
        np_vlink_complete(link->port, comp, status);
    }
    np_vlink_check_flushes(link, status);
}

void np_vlink_cancel(np_vlink_t *link, ucs_status_t status)
{
    if (np_vport_is_ours(link->port)) {
        np_vlink_cancel_all(link, status);
    }
}

void np_vlink_set_pending(np_vlink_t *link, int has_pending)
{
    if (np_vport_is_ours(link->port)) { /* a child may find a turn taken */
        NP_TURN_WAIT(&link->port->turn); /* a thread's changes the gate, too */
        np_flight_set_pending(&link->flight, has_pending);
    }
}

unsigned np_vlink_report(np_vport_t *port)
{
    unsigned count = 0;
    np_vlink_t *link;

    while (!ucs_list_is_empty(&port->down)) {
        link = ucs_list_extract_head(&port->down, np_vlink_t, flight.down);
        ucs_list_head_init(&link->flight.down);
        if (!link->flight.is_reported) {
            link->flight.is_reported = 1;
            np_vlink_cancel(link, link->flight.status);
            port->user.link_down(link, link->flight.status); /* may end it */
            ++count;
        }
    }
    return count;
}

ucs_status_t np_vlink_check(np_vlink_t *link)
{
    NP_TURN_WAIT(&link->port->turn);
    if (np_flight_is_down(&link->flight)) {
        return link->flight.status;
    }

    if (link->flight.gate & NP_GATE_UNCONNECTED) {
        np_vlink_connect(link); /* that finds out as well */
    } else {
        /* the queue pair may just be replaced, or be when the probe is lost */
        link->conn->is_checked = 1;
        if (np_conn_has_room(link->conn)) {
            np_conn_probe(link->conn);
        }
    }
    return UCS_OK;
}
