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
