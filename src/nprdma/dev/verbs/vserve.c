/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts and atomics that links ask for by messages.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vserve.h"

#include "../../pause.h"

#include <stdlib.h>

/* Answers that are kept for a link */
#define NP_VRESULTS_MAX  32768u

/* What an atomic gave */
typedef struct np_vresult {
    uint32_t op;
    int32_t  status;
    uint64_t value;
} np_vresult_t;

/* The last ones of a link. Owner: its connection. */
struct np_vresults {
    uint32_t     mask;     /* number of places - 1 */
    uint32_t     count;    /* that there were */
    np_vresult_t results[];
};

_Static_assert(NP_STAGE_SIZE >= NP_VSEG_DATA, "all of a message fits");


void np_vserve_cleanup(np_conn_t *conn)
{
    free(conn->results);
    conn->results = NULL;
}

static ucs_status_t
np_vserve_put(np_conn_t *conn, const np_vctl_t *ctl, size_t len)
{
    np_vport_t *port = conn->port;
    uint64_t va      = 0;
    ucs_status_t status;

    status = port->ops->put(&port->stage, ctl->body.addr, ctl + 1, len,
                            port->is_patient, &va);
    if (ucs_unlikely(status == UCS_ERR_NO_RESOURCE)) {
        np_bring_want(port, va, len, 1);
        return status;
    }

    if ((ctl->msg.flags & NP_VMSG_ABSENT) && (va != 0)) {
        np_bring_later(port, va, len, 1);
    }
    if (ucs_unlikely(status != UCS_OK)) {
        conn->put_status = status;
        np_conn_answer(conn, NP_VMSG_DONE, ctl->body.op, status, 0);
    }
    return UCS_OK;
}

/* As many as the link may be waiting for */
static void np_vserve_keep_result(np_conn_t *conn, uint32_t op,
                                  ucs_status_t status, uint64_t value)
{
    struct np_vresults *kept = conn->results;
    uint32_t count = ucs_min(ucs_max(conn->credits, 1u), NP_VRESULTS_MAX);

    if (kept == NULL) {
        count = ucs_roundup_pow2(count);
        kept  = calloc(1, sizeof(*kept) + (count * sizeof(*kept->results)));
        if (kept == NULL) {
            return; /* asked for again, it will be an error */
        }
        kept->mask    = count - 1;
        conn->results = kept;
    }

    kept->results[kept->count++ & kept->mask] = (np_vresult_t){
        .op     = op,
        .status = status,
        .value  = value
    };
}

/* An atomic that was executed over a queue pair that has failed since */
static void np_vserve_atomic_again(np_conn_t *conn, uint32_t op)
{
    const struct np_vresults *kept = conn->results;
    uint32_t i;

    for (i = 0; (kept != NULL) && (i <= kept->mask); ++i) {
        if (kept->results[i].op == op) {
            np_conn_answer(conn, NP_VMSG_RESULT, op, kept->results[i].status,
                           kept->results[i].value);
            return;
        }
    }
    np_conn_answer(conn, NP_VMSG_RESULT, op, UCS_ERR_IO_ERROR, 0);
}

static ucs_status_t np_vserve_atomic(np_conn_t *conn, const np_vctl_t *ctl)
{
    const np_vbody_t *body    = &ctl->body;
    const np_atomic_t request = {
        .addr    = body->addr,
        .value   = body->offset,
        .compare = body->compare,
        .op      = ctl->msg.id,
        .size    = ctl->msg.size
    };
    uint64_t result = 0, va = 0;
    ucs_status_t status;

    if ((ctl->msg.flags & NP_VMSG_AGAIN) && !NP_IS_MUTANT(ATOMIC_AGAIN)) {
        np_vserve_atomic_again(conn, body->op);
        return UCS_OK;
    }

    status = conn->port->ops->atomic(&request, conn->port->is_patient, &result,
                                     &va);
    if (ucs_unlikely(status == UCS_ERR_NO_RESOURCE)) {
        np_bring_want(conn->port, va, (va == 0) ? 0 : request.size, 1);
        return status;
    }

    np_vserve_keep_result(conn, body->op, status, result);
    np_conn_answer(conn, NP_VMSG_RESULT, body->op, status, result);
    return UCS_OK;
}

ucs_status_t np_vserve_asked(np_conn_t *conn, const np_vctl_t *ctl, size_t len)
{
    switch (ctl->msg.kind) {
    case NP_VMSG_PUT:
        return np_vserve_put(conn, ctl, len);
    case NP_VMSG_ATOMIC:
        return np_vserve_atomic(conn, ctl);
    default:
        return UCS_ERR_INVALID_PARAM;
    }
}
