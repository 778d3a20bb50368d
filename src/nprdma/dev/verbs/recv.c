/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What connections receive: what every message tells beside what it is for,
 * active messages, keys of views, and where the rest goes. A peer is trusted
 * with what it was given: what makes no sense ends its connection.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "ask.h"
#include "stream.h"
#include "vremote.h"
#include "vserve.h"


static void np_conn_malformed(np_conn_t *conn, const np_vmsg_t *msg, size_t len)
{
    np_error("a peer sent a malformed message of kind %u and %zu bytes: its "
             "connection ends", msg->kind, len);
    np_conn_fail(conn, UCS_ERR_CONNECTION_RESET);
}

void np_conn_am(np_conn_t *conn, const np_vmsg_t *msg, size_t len)
{
    conn->port->user.am(conn->port->user.arg, msg->id, (void*)(msg + 1),
                        len - sizeof(*msg));
}

/* What its header says, whether it is handled now or later */
static UCS_F_ALWAYS_INLINE void
np_conn_header(np_conn_t *conn, const np_vmsg_t *msg)
{
    np_conn_heard(conn, msg->flags);
    if (ucs_unlikely(msg->flags & NP_VMSG_ACK_NOW) && !conn->is_link) {
        np_conn_owe_ack(conn); /* also if it is not taken yet: we are there */
    }
}

void np_conn_taken(np_conn_t *conn, const np_vmsg_t *msg)
{
    np_conn_header(conn, msg);
    if (msg->kind == NP_VMSG_AM) {
        ++conn->rx_seq;
    }
}

void np_conn_take_key(np_conn_t *conn, np_vmsg_t *msg, size_t len)
{
    const np_vctl_t *ctl = (const np_vctl_t*)msg;

    if ((len == sizeof(*ctl)) && (msg->kind == NP_VMSG_READY) &&
        np_stream_take_key(conn, ctl)) {
        msg->kind          = NP_VMSG_ACK;
        conn->is_computing = 1;
    } /* else the owner finds out the same */
}

/* What a link sends */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_conn_asked(np_conn_t *conn, const np_vmsg_t *msg, size_t len)
{
    const np_vctl_t *ctl = (const np_vctl_t*)msg;

    if (ucs_likely(msg->kind == NP_VMSG_AM)) {
        np_conn_am(conn, msg, len);
        return UCS_OK;
    }

    if (len < sizeof(*ctl)) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (msg->kind == NP_VMSG_VIEWS) {
        np_conn_tell_views(conn, ctl->views.addr);
        return UCS_OK;
    }

    if (msg->kind == NP_VMSG_WRITE) {
        conn->is_computing = !!(msg->flags & NP_VMSG_DISTANT);
    }
    len -= sizeof(*ctl);
    return np_stream_is_about(msg) ? np_stream_asked(conn, ctl, len) :
           np_vserve_asked(conn, ctl, len);
}

/* Returns 0: not now, and nothing of it was done */
static UCS_F_ALWAYS_INLINE int
np_conn_request(np_conn_t *conn, const np_vmsg_t *msg, size_t len)
{
    ucs_status_t status;

    if (ucs_unlikely(msg->kind == NP_VMSG_BYE)) {
        np_conn_kill(conn);
        return 1;
    }

    if (msg->kind == NP_VMSG_ACK) {
        return 1;
    }

    ++conn->rx_seq; /* its answer says so */
    status = np_conn_asked(conn, msg, len);
    if (ucs_unlikely(status == UCS_ERR_NO_RESOURCE)) {
        --conn->rx_seq; /* nothing was sent meanwhile */
        return 0;
    }

    if (ucs_unlikely(status != UCS_OK)) {
        np_conn_malformed(conn, msg, len);
    }
    return 1;
}

/* What a link is answered */
static ucs_status_t
np_conn_answered(np_conn_t *conn, const np_vmsg_t *msg, size_t len)
{
    const np_vctl_t *ctl = (const np_vctl_t*)msg;
    np_stream_t *stream;

    if (msg->kind == NP_VMSG_ACK) {
        return UCS_OK;
    }

    if (len < sizeof(*ctl)) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (msg->kind == NP_VMSG_VIEWS) {
        return (conn->link == NULL) ? UCS_OK :
               np_vremote_told(conn->link, &ctl->views);
    }

    if (msg->kind == NP_VMSG_READY) {
        conn->is_computing = 0; /* no thread has taken it */
    }
    len   -= sizeof(*ctl);
    stream = np_stream_is_about(msg) ? np_stream_find(conn, ctl->body.op) :
             NULL;
    return (stream != NULL) ? np_stream_told(stream, ctl, len) :
           np_ask_answered(conn, ctl, len);
}

/* As np_conn_request */
static int np_conn_response(np_conn_t *conn, const np_vmsg_t *msg, size_t len)
{
    const uint32_t ack = msg->ack;
    ucs_status_t status;

    conn->tx_seen = ack;
    status        = np_conn_answered(conn, msg, len);
    if (ucs_unlikely(status == UCS_ERR_NO_RESOURCE)) {
        return 0;
    }

    /* after its contents: a put that has failed is not complete */
    if ((ack - conn->tx_acked) <= (conn->tx_seq - conn->tx_acked)) {
        np_conn_acked(conn, ack);
        np_streams_acked(conn);
        if (conn->link != NULL) {
            conn->port->ops->acked(conn->link);
        }
    }

    if (ucs_unlikely(status != UCS_OK)) {
        np_conn_malformed(conn, msg, len);
    }
    return 1;
}

int np_conn_again(np_conn_t *conn, np_vmsg_t *msg, size_t len)
{
    return conn->is_link ? np_conn_response(conn, msg, len) :
           np_conn_request(conn, msg, len);
}

int np_conn_received(np_conn_t *conn, np_vmsg_t *msg, size_t len)
{
    if (ucs_unlikely((len < sizeof(*msg)) || (len > NP_VSEG_SIZE))) {
        np_conn_fail(conn, UCS_ERR_CONNECTION_RESET);
        return 1;
    }

    np_conn_header(conn, msg);
    return np_conn_again(conn, msg, len);
}

void np_conn_written(np_conn_t *conn, uint32_t name)
{
    np_conn_heard_write(conn);
    if (np_stream_written(conn, name) != UCS_OK) {
        np_error("a peer has written what nobody asked for: its connection "
                 "ends");
        np_conn_fail(conn, UCS_ERR_CONNECTION_RESET);
    }
}
