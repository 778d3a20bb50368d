/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a link has sent, and keeps until the target has taken it.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "conn.h"

#include <stdlib.h>
#include <string.h>


int np_conn_create_sent(np_conn_t *conn)
{
    uint32_t credits = conn->port->config.credits;

    if (!conn->is_link || !(conn->port->config.reconnect_timeout > 0)) {
        return 1;
    }

    conn->sent_mask = ucs_roundup_pow2(credits) - 1;
    conn->sent      = calloc(conn->sent_mask + 1, sizeof(*conn->sent));
    conn->small     = malloc((conn->sent_mask + 1) * (size_t)NP_CONN_INLINE);
    return (conn->sent != NULL) && (conn->small != NULL);
}

const void *np_conn_sent_bytes(const np_conn_t *conn, uint32_t seq)
{
    const np_vsent_t *sent = &conn->sent[seq & conn->sent_mask];

    return (sent->buffer != NULL) ? sent->buffer :
           (sent->spilled != NULL) ? sent->spilled :
           &conn->small[(seq & conn->sent_mask) * (size_t)NP_CONN_INLINE];
}

void np_conn_acked(np_conn_t *conn, uint32_t seq)
{
    np_vsent_t *sent;

    for (; (conn->num_kept > 0) && (conn->tx_acked != seq);) {
        sent = &conn->sent[++conn->tx_acked & conn->sent_mask];
        if (sent->buffer != NULL) {
            np_vport_buffer_put(conn->port, sent->buffer);
            sent->buffer = NULL;
            --conn->num_kept;
        } else if (sent->spilled != NULL) {
            free(sent->spilled);
            sent->spilled = NULL;
            --conn->num_kept;
        }
    }
    conn->tx_acked = seq;
}

void np_conn_want_ack(np_conn_t *conn, uint32_t seq)
{
    if ((int32_t)(seq - conn->tx_wanted) > 0) {
        np_conn_owe_ack(conn);
    }
}

void np_conn_spill(np_conn_t *conn, const np_sq_entry_t *entry)
{
    np_vport_t *port = conn->port;
    np_vsent_t *sent = &conn->sent[entry->seq & conn->sent_mask];

    if ((sent->buffer != entry->buffer) ||
        ((int32_t)(entry->seq - conn->tx_acked) <= 0) ||
        (port->num_free_send >= (port->send_buffers / 2))) {
        return;
    }

    sent->spilled = malloc(sent->len);
    if (sent->spilled != NULL) {
        memcpy(sent->spilled, sent->buffer, sent->len);
        sent->buffer = NULL;
        np_vport_buffer_put(port, entry->buffer);
    }
}
