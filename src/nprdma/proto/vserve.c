/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What messages over a queue pair mean. A peer is trusted with what it was
 * given: every length and address is checked.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vop.h"

#include "../mem/atomic.h"
#include "../mem/space.h"
#include "../pause.h"

#include <stdlib.h>
#include <string.h>

/* Answers that are kept for a link */
#define NP_VRESULTS_MAX  32768u

_Static_assert(NP_STAGE_SIZE >= NP_VSEG_DATA, "all of a message fits");


/* UCS_OK, also if the peer has been told of an error; UCS_ERR_NO_RESOURCE:
 * later */
static ucs_status_t
np_vserve_put(np_conn_t *conn, const np_vmsg_t *msg, const np_vbody_t *body,
              const void *data, size_t len)
{
    np_iov_t memory = {.len = len};
    ucs_status_t status;
    uint64_t va;

    status = np_space_resolve(NP_SPACE_MEMORY, body->addr, len, NP_RIGHT_WRITE,
                              &va);
    if (ucs_likely(status == UCS_OK)) {
        memory.base = (void*)va;
        status      = np_stage_copy(&conn->port->stage, &memory, 1,
                                    (void*)data, 1, conn->port->is_patient);
        if (ucs_unlikely(status == UCS_ERR_NO_RESOURCE)) {
            np_bring_want(conn->port, va, len, 1);
            return status;
        }
        if (msg->flags & NP_VMSG_ABSENT) {
            np_bring_later(conn->port, va, len, 1);
        }
    }
    if (ucs_unlikely(status != UCS_OK)) {
        conn->put_status = status;
        np_conn_answer(conn, NP_VMSG_DONE, body->op, status, 0);
    }
    return UCS_OK;
}

/* Keep what an atomic gave: as many as the link may be waiting for */
static void np_vserve_keep_result(np_conn_t *conn, uint32_t op,
                                  ucs_status_t status, uint64_t value)
{
    uint32_t count = ucs_min(ucs_max(conn->credits, 1u), NP_VRESULTS_MAX);

    if (conn->results == NULL) {
        count             = ucs_roundup_pow2(count);
        conn->results     = calloc(count, sizeof(*conn->results));
        conn->result_mask = count - 1;
        if (conn->results == NULL) {
            return; /* asked for again, it will be an error */
        }
    }

    conn->results[conn->num_results++ & conn->result_mask] = (np_vresult_t){
        .op     = op,
        .status = status,
        .value  = value
    };
}

/* An atomic that was executed over a queue pair that has failed since */
static void np_vserve_atomic_again(np_conn_t *conn, uint32_t op)
{
    uint32_t i;

    for (i = 0; (conn->results != NULL) && (i <= conn->result_mask); ++i) {
        if (conn->results[i].op == op) {
            np_conn_answer(conn, NP_VMSG_RESULT, op, conn->results[i].status,
                           conn->results[i].value);
            return;
        }
    }
    np_conn_answer(conn, NP_VMSG_RESULT, op, UCS_ERR_IO_ERROR, 0);
}

/* As np_vserve_put: UCS_ERR_NO_RESOURCE says that it was not executed */
static ucs_status_t np_vserve_atomic(np_conn_t *conn, const np_vmsg_t *msg,
                                     const np_vbody_t *body)
{
    const np_atomic_t request = {
        .addr    = body->addr,
        .value   = body->offset,
        .compare = body->compare,
        .op      = msg->id,
        .size    = msg->size
    };
    uint64_t result = 0, va;
    ucs_status_t status;

    if ((msg->flags & NP_VMSG_AGAIN) && !NP_IS_MUTANT(ATOMIC_AGAIN)) {
        np_vserve_atomic_again(conn, body->op);
        return UCS_OK;
    }

    status = np_atomic_execute(&request, NULL, conn->port->is_patient,
                               &result);
    if (ucs_unlikely(status == UCS_ERR_NO_RESOURCE)) {
        /* if it may not be reached any more, the next turn finds that out */
        if (np_space_resolve(NP_SPACE_MEMORY, body->addr, msg->size,
                             NP_RIGHT_BOTH, &va) == UCS_OK) {
            np_bring_want(conn->port, va, msg->size, 1);
        } else {
            np_bring_want(conn->port, 0, 0, 1);
        }
        return status;
    }

    np_vserve_keep_result(conn, body->op, status, result);
    np_conn_answer(conn, NP_VMSG_RESULT, body->op, status, result);
    return UCS_OK;
}

ucs_status_t np_vserve_asked(np_conn_t *conn, const np_vctl_t *ctl, size_t len)
{
    const np_vmsg_t *msg   = &ctl->msg;
    const np_vbody_t *body = &ctl->body;

    switch (msg->kind) {
    case NP_VMSG_PUT:
        return np_vserve_put(conn, msg, body, ctl + 1, len);
    case NP_VMSG_ATOMIC:
        return np_vserve_atomic(conn, msg, body);
    default:
        return UCS_ERR_INVALID_PARAM;
    }
}
