/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Links over an RNIC's queue pairs: their beginning and end.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vremote.h"

#include <string.h>


void np_vlink_init(np_vlink_t *link, np_vport_t *port,
                   const np_vdev_addr_t *dev_addr, const np_vport_addr_t *addr)
{
    NP_TURN_WAIT(&port->turn);

    memset(link, 0, sizeof(*link));
    np_flight_init(&link->flight, &port->flights, addr->engine_id);
    link->port     = port;
    link->dev_addr = *dev_addr;
    link->addr     = *addr;
    ucs_list_head_init(&link->blocks);
}

static void np_vlink_leave(np_flight_t *flight)
{
    np_vlink_t *link = np_vlink_of(flight);
    np_conn_t *conn  = link->conn;

    link->conn = NULL;
    if (conn != NULL) {
        if (link->flight.outstanding > 0) {
            np_conn_kill(conn);
        } else {
            np_conn_close(conn);
        }
    }
    np_vremote_cleanup(link);
}

static ucs_status_t np_vlink_connect(np_flight_t *flight)
{
    flight->gate &= ~NP_GATE_UNCONNECTED;
    if (!np_conn_connect(np_vlink_of(flight))) {
        flight->gate |= NP_GATE_UNCONNECTED;
        (void)np_flight_end(flight, UCS_ERR_NO_MEMORY);
    }
    return np_flight_is_down(flight) ? flight->status : UCS_ERR_NO_RESOURCE;
}

static int np_vlink_has_room(np_flight_t *flight)
{
    np_vlink_t *link = np_vlink_of(flight);

    if (flight->gate & NP_GATE_UNCONNECTED) {
        (void)np_vlink_connect(flight);
        return np_flight_is_down(flight); /* an attempt learns that */
    }

    if ((flight->gate & NP_GATE_REPLAY) ||
        (link->conn->state != NP_CONN_READY)) {
        return 0;
    }

    if (!np_conn_has_credit(link->conn)) {
        np_conn_want_credit(link->conn);
        return 0;
    }

    return (link->port->free_send != NULL) &&
           (link->port->has_views ?
            np_conn_has_rooms(link->conn, NP_VLINK_ROOMS) :
            np_conn_has_room(link->conn));
}

static int np_vlink_has_taken(np_flight_t *flight, uint32_t put)
{
    return np_vlink_has_acked(np_vlink_of(flight), put);
}

static void np_vlink_want_taken(np_flight_t *flight)
{
    np_vlink_t *link = np_vlink_of(flight);

    if ((link->conn != NULL) && (link->conn->state == NP_CONN_READY) &&
        !np_vlink_has_acked(link, flight->put)) {
        np_conn_want_ack(link->conn, flight->put);
    }
}

static void np_vlink_fail(np_flight_t *flight, ucs_status_t status)
{
    np_conn_fail(np_vlink_of(flight)->conn, status);
}

static void np_vlink_end(np_flight_t *flight, ucs_status_t status)
{
    (void)np_flight_end(flight, status);
}

static void np_vlink_stop(np_flight_t *flight)
{
    np_vlink_t *link = np_vlink_of(flight);

    if ((flight->outstanding > 0) && (link->conn != NULL) &&
        np_flights_are_ours(&link->port->flights)) {
        /* nothing is written any more to what its owner takes back */
        np_conn_kill(link->conn);
        link->conn = NULL;
    }
}

static ucs_status_t np_vlink_check(np_flight_t *flight)
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

const np_dev_ops_t np_verbs_ops = {
    .connect    = np_vlink_connect,
    .has_room   = np_vlink_has_room,
    .has_taken  = np_vlink_has_taken,
    .want_taken = np_vlink_want_taken,
    .fail       = np_vlink_fail,
    .end        = np_vlink_end,
    .stop       = np_vlink_stop,
    .leave      = np_vlink_leave,
    .check      = np_vlink_check
};
