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


void np_vlink_close(np_flight_t *flight)
{
    np_vlink_t *link = np_vlink_of(flight);

    np_vlink_leave(link);
    np_flight_forget(flight);
    np_flight_cancel(flight, UCS_ERR_CANCELED);
    np_vput_cleanup(link);
    ucs_list_del(&flight->down);
}

ucs_status_t np_vlink_connect(np_flight_t *flight)
{
    np_vlink_t *link = np_vlink_of(flight);

    flight->gate &= ~NP_GATE_UNCONNECTED;
    if (!np_conn_connect(link)) {
        flight->gate |= NP_GATE_UNCONNECTED;
        np_vlink_down(link, UCS_ERR_NO_MEMORY);
        return UCS_ERR_NO_MEMORY;
    }

    return np_flight_is_down(flight) ? flight->status : UCS_ERR_NO_RESOURCE;
}

void np_vlink_ask(np_flight_t *flight)
{
    np_vlink_t *link = np_vlink_of(flight);

    np_vput_confirm(link);
    if ((link->conn != NULL) && (link->conn->state == NP_CONN_READY) &&
        !np_vlink_has_acked(link, flight->put)) {
        np_conn_want_ack(link->conn, flight->put);
    }
}

void np_vlink_acked(np_vlink_t *link)
{
    if ((link->conn != NULL) && np_vlink_has_acked(link, link->flight.put)) {
        /* old numbers would seem new */
        link->flight.put = link->conn->tx_acked;
    }
    np_flight_check_flushes(&link->flight, UCS_OK);
}

void np_vlink_down(np_vlink_t *link, ucs_status_t status)
{
    if (np_flight_end(&link->flight, status)) {
        np_flight_report(&link->flight);
    }
}

void np_vlink_stop(np_flight_t *flight)
{
    np_vlink_t *link = np_vlink_of(flight);
    np_vop_t *op;

    if (!np_vport_is_ours(link->port)) {
        return; /* the device knows it as our parent's */
    }

    if ((flight->outstanding > 0) && (link->conn != NULL)) {
        /* nothing is written any more to what its owner takes back */
        np_conn_kill(link->conn);
        link->conn = NULL;
    }

    ucs_list_for_each(op, &flight->ops, super.list) {
        np_vop_release(op);
        ucs_list_del(&op->todo);
        ucs_list_head_init(&op->todo);
    }
}

void np_vlink_end(np_flight_t *flight, ucs_status_t status)
{
    (void)np_flight_end(flight, status);
}

ucs_status_t np_vlink_check(np_flight_t *flight)
{
    if (np_flight_is_down(flight)) {
        return flight->status;
    }

    if (flight->gate & NP_GATE_UNCONNECTED) {
        np_vlink_connect(flight); /* that finds out as well */
    } else {
        np_conn_check(np_vlink_of(flight)->conn);
    }
    return UCS_OK;
}
