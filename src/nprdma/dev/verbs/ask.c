/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a link asks for, and its answers. A peer is trusted with what it was
 * given: an answer must fit what was asked.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "ask.h"


int np_conn_ask_again(np_conn_t *conn, np_asked_t *asked)
{
    np_vctl_t ctl = asked->ctl;

    if (!np_conn_has_credit(conn)) {
        np_conn_want_credit(conn);
        return 0;
    }

    if (!np_conn_send_copied(conn, &ctl.msg, sizeof(ctl))) {
        return 0;
    }

    asked->seq = conn->tx_seq;
    return 1;
}

int np_conn_ask(np_conn_t *conn, np_asked_t *asked)
{
    ucs_list_head_init(&asked->list);
    if (!np_conn_ask_again(conn, asked)) {
        return 0;
    }

    ucs_list_add_tail(&conn->asks, &asked->list);
    return 1;
}

np_asked_t *np_ask_find(const np_conn_t *conn, uint32_t name)
{
    np_asked_t *asked;

    ucs_list_for_each(asked, &conn->asks, list) {
        if (asked->ctl.body.op == name) {
            return asked;
        }
    }
    return NULL;
}

/* Of an atomic, or of a read whose bytes are to come in a message */
static int
np_ask_fits(const np_asked_t *asked, const np_vctl_t *ctl, size_t len)
{
    if (asked->ctl.msg.kind == NP_VMSG_ATOMIC) {
        return ctl->msg.kind == NP_VMSG_RESULT;
    }

    if (ctl->msg.kind == NP_VMSG_DATA) {
#ifndef NP_FUZZ_MUTANT /* the deliberate fault that fuzzing must find */
        return len == asked->ctl.body.len;
#else
        return 1;
#endif
    }
    return (ctl->msg.kind == NP_VMSG_DONE) && (ctl->body.status != UCS_OK);
}

/* An answer to no request: a put by a message has failed */
static ucs_status_t np_ask_put_failed(np_conn_t *conn, ucs_status_t status)
{
    if (status == UCS_OK) {
        return UCS_ERR_INVALID_PARAM;
    }

    np_diag("a put has failed at the target: %s", ucs_status_string(status));
    np_conn_fail(conn, status);
    return UCS_OK;
}

ucs_status_t
np_ask_answered(np_conn_t *conn, const np_vctl_t *ctl, size_t len)
{
    const np_vmsg_kind_t kind = ctl->msg.kind;
    const np_vbody_t *body    = &ctl->body;
    np_asked_t *asked;

    if ((body->op == 0) && (kind == NP_VMSG_DONE)) {
        return np_ask_put_failed(conn, np_status_of_peer(body->status));
    }

    asked = np_ask_find(conn, body->op);
    if (asked == NULL) {
        return UCS_OK; /* it was cancelled, or has failed here */
    }

    if (asked->is_stream || !np_ask_fits(asked, ctl, len)) {
        return UCS_ERR_INVALID_PARAM;
    }

    np_ask_end(asked);
    if (kind == NP_VMSG_DATA) {
        conn->port->ops->answered(asked, UCS_OK, ctl + 1, len);
    } else {
        conn->port->ops->answered(asked, np_status_of_peer(body->status),
                                  &body->offset, sizeof(body->offset));
    }
    return UCS_OK;
}
