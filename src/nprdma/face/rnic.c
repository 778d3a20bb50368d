/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Active messages over an RNIC's queue pairs.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "rnic.h"


ucs_status_t np_vlink_am_short(np_vlink_t *link, uint8_t id, uint64_t header,
                               const void *payload, unsigned len)
{
    NP_TURN_OR_RETURN(&link->port->turn, UCS_ERR_NO_RESOURCE);
    ucs_status_t status = np_rpost_enter(link);

    return ucs_likely(status == UCS_OK) ?
           np_conn_am_short(link->conn, id, header, payload, len) : status;
}

ssize_t np_vlink_am_bcopy(np_vlink_t *link, uint8_t id, np_pack_t pack,
                          void *arg)
{
    NP_TURN_OR_RETURN(&link->port->turn, UCS_ERR_NO_RESOURCE);
    ucs_status_t status = np_rpost_enter(link);

    return ucs_likely(status == UCS_OK) ?
           np_conn_am_bcopy(link->conn, id, pack, arg) : (ssize_t)status;
}

ucs_status_t np_vlink_am_iov(np_vlink_t *link, uint8_t id, const void *header,
                             unsigned header_len, const np_iov_t *iov,
                             size_t iovcnt)
{
    NP_TURN_OR_RETURN(&link->port->turn, UCS_ERR_NO_RESOURCE);
    ucs_status_t status = np_rpost_enter(link);

    return ucs_likely(status == UCS_OK) ?
           np_conn_am_iov(link->conn, id, header, header_len, iov, iovcnt) :
           status;
}
