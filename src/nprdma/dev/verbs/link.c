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
    np_flight_init(&link->flight, &port->flights);
    link->port     = port;
    link->dev_addr = *dev_addr;
    link->addr     = *addr;
    ucs_list_head_init(&link->blocks);
}

void np_vlink_leave(np_vlink_t *link)
{
    np_conn_t *conn = link->conn;

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
