/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages that wait.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "late.h"

#include "stream.h"

#include "../../work.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A message that waits. Owner: its connection. */
typedef struct np_late {
    ucs_queue_elem_t queue;
    np_vkept_t       kept;    /* with bytes of its own */
} np_late_t;


static UCS_F_ALWAYS_INLINE int np_late_any(const np_conn_t *conn)
{
    return ucs_unlikely(!ucs_queue_is_empty(&conn->late));
}

/* Messages that the other side may have under way, and writes of what is
 * served */
static unsigned np_late_max(const np_conn_t *conn)
{
    const unsigned asked = conn->port->ops->max_asked;

    return (conn->is_link ? asked * NP_STREAM_DEPTH * NP_STREAM_MESSAGES :
            2 * conn->hello.credits) + (NP_STREAM_SERVED_MAX * NP_STREAM_DEPTH);
}

static void np_late_retry(void *waiter);

static void np_late_stop(np_conn_t *conn)
{
    ucs_list_del(&conn->retry);
    ucs_list_head_init(&conn->retry);
}

/* The first one was put off just now: until its pages are there, or to the next
 * turn */
static void np_late_wait(np_conn_t *conn)
{
    np_vport_t *port = conn->port;

    np_assert(conn->bring == NULL);
    np_late_stop(conn);
    if (port->wanted.len > 0) {
        if (port->is_closing) {
            return; /* it is dropped with the connection */
        }

        conn->bring      = np_bring_begin(port, &port->wanted, np_late_retry,
                                          conn);
        conn->is_patient = conn->bring == NULL;
    }
    if (conn->bring == NULL) {
        ucs_list_add_tail(&port->late, &conn->retry);
    }
}

/* What only the owner may handle */
static int np_late_is_for_owner(const np_conn_t *conn, const struct ibv_wc *wc,
                                 const void *data)
{
    const np_vmsg_t *msg = data;

    if (conn->is_link) {
        return 1;
    }

    return (wc->opcode == IBV_WC_RECV) && (wc->byte_len >= sizeof(*msg)) &&
           ((msg->kind == NP_VMSG_AM) || (msg->kind == NP_VMSG_BYE));
}

/* Returns 0: not now, and nothing of it was done */
static UCS_F_ALWAYS_INLINE int
np_late_handle(np_conn_t *conn, const struct ibv_wc *wc, void *data,
                int is_first)
{
    if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        np_conn_written(conn, wc->imm_data);
        return 1;
    }
    return is_first ? np_conn_received(conn, data, wc->byte_len) :
           np_conn_again(conn, data, wc->byte_len);
}

/* A message that only says how far its sender is: it need not wait, and a
 * sender that asks must hear that we are there */
static void np_late_ack(np_conn_t *conn, const np_vmsg_t *msg)
{
    np_conn_heard(conn, msg->flags);
    conn->late_ack = 1; /* once more, when nothing waits */
    if (!conn->is_link && (msg->flags & NP_VMSG_ACK_NOW)) {
        np_conn_owe_ack(conn);
    }
}

/* Let one more wait: @a data is copied. If these are more than the other side
 * may have under way, or there is no memory, the connection ends. */
static void
np_late_add(np_conn_t *conn, const struct ibv_wc *wc, const void *data)
{
    const np_vmsg_t *msg  = data;
    const int has_message = (wc->opcode == IBV_WC_RECV) &&
                            (wc->byte_len >= sizeof(*msg));
    np_late_t *late;

    if (np_late_any(conn) && has_message && (msg->kind == NP_VMSG_ACK)) {
        np_late_ack(conn, msg);
        return;
    }

    if (conn->num_late >= np_late_max(conn)) {
        np_error("a peer has sent more messages than it may: its connection "
                 "ends");
        np_conn_fail(conn, UCS_ERR_CONNECTION_RESET);
        return;
    }

    late = malloc(sizeof(*late));
    if (late != NULL) {
        late->kept = (np_vkept_t){.wc = *wc, .conn = conn};
        late->kept.bytes = malloc(ucs_max(wc->byte_len, 1u));
    }
    if ((late == NULL) || (late->kept.bytes == NULL)) {
        free(late);
        np_error("no memory for a message that waits for its page");
        np_conn_fail(conn, UCS_ERR_NO_MEMORY);
        return;
    }

    if (np_late_any(conn) && has_message) {
        np_conn_heard(conn, msg->flags); /* else it was */
    }
    if (wc->opcode == IBV_WC_RECV) {
        memcpy(late->kept.bytes, data, wc->byte_len);
    }
    ucs_queue_push(&conn->late, &late->queue);
    if (++conn->num_late == 1) {
        np_late_wait(conn);
    }
}

/* The first one; returns 0: it waits still, or the owner must do it */
static int np_late_one(np_conn_t *conn, np_late_t *late)
{
    np_vport_t *port       = conn->port;
    const int  was_patient = port->is_patient;
    np_vkept_t *kept       = &late->kept;
    int is_handled;

    port->wanted.len = 0;
    if (port->is_thread &&
        np_late_is_for_owner(conn, &kept->wc, kept->bytes)) {
        if (conn->is_link || !np_vport_keep_late(port, kept)) {
            return 0;
        }
        np_conn_taken(conn, kept->bytes);
        return 1;
    }

    port->is_patient |= conn->is_patient;
    conn->is_patient  = 0;
    is_handled        = np_late_handle(conn, &kept->wc, kept->bytes, 0);
    port->is_patient  = was_patient;
    if (is_handled) {
        free(kept->bytes);
    }
    return is_handled;
}

/* Handle at most so many; returns how many were. Whether the rest waits for
 * pages or for the next turn has been seen to. */
static unsigned np_late_run(np_conn_t *conn, unsigned max)
{
    unsigned count = 0;
    np_late_t *late;

    while (np_late_any(conn) && (count < max)) {
        /* it may end the connection, and forget all that waits */
        late = ucs_queue_pull_elem_non_empty(&conn->late, np_late_t, queue);
        --conn->num_late;
        if (!np_late_one(conn, late)) {
            ucs_queue_push_head(&conn->late, &late->queue);
            ++conn->num_late;
            np_late_wait(conn);
            return count;
        }
        free(late);
        ++count;
    }

    np_late_stop(conn);
    if (np_late_any(conn)) {
        ucs_list_add_tail(&conn->port->late, &conn->retry);
        return count;
    }

    if (conn->late_ack && (conn->state == NP_CONN_READY)) {
        np_conn_owe_ack(conn);
    }
    conn->late_ack = 0;
    return count;
}

/* np_errand_t::retry: other messages may need some of the pages that are
 * held */
static void np_late_retry(void *waiter)
{
    np_conn_t *conn = waiter;

    conn->bring = NULL;
    (void)np_late_run(conn, 1);
}

static unsigned np_late_run_all(ucs_list_link_t *retry)
{
    return np_late_run(ucs_container_of(retry, np_conn_t, retry), UINT_MAX);
}

unsigned np_late_progress(np_vport_t *port)
{
    return np_work(&port->late, np_late_run_all);
}

void np_late_drop(np_conn_t *conn)
{
    np_late_t *late;

    while (np_late_any(conn)) {
        late = ucs_queue_pull_elem_non_empty(&conn->late, np_late_t, queue);
        free(late->kept.bytes);
        free(late);
    }
    np_late_stop(conn);
    np_bring_end(&conn->bring);
    conn->num_late   = 0;
    conn->late_ack   = 0;
    conn->is_patient = 0;
}

/* A ring, or an answer to one, tells nothing that is not here or kept: there is
 * no limit to how many come while a program computes */
static int np_late_is_known(np_conn_t *conn, const struct ibv_wc *wc,
                             const np_vmsg_t *msg)
{
    if (!conn->is_link || (wc->opcode != IBV_WC_RECV) ||
        (wc->byte_len < sizeof(*msg))) {
        return 0;
    }

    if ((msg->kind == NP_VMSG_ACK) && (msg->ack == conn->tx_seen)) {
        np_conn_heard(conn, msg->flags);
        return 1;
    }
    conn->tx_seen = msg->ack;
    return 0;
}

/* A thread leaves it to the owner, but for what must not wait */
static int
np_late_leave(np_conn_t *conn, const struct ibv_wc *wc, void *data)
{
    if (np_late_is_known(conn, wc, data)) {
        return 0;
    }

    if (!conn->is_link) {
        np_conn_taken(conn, data);
    } else if (wc->opcode == IBV_WC_RECV) {
        np_conn_take_key(conn, data, wc->byte_len);
    }
    return 1;
}

int np_late_arrived(np_conn_t *conn, const struct ibv_wc *wc, void *data)
{
    if (ucs_unlikely(conn->port->is_thread) &&
        (conn->is_link || !np_late_any(conn)) &&
        np_late_is_for_owner(conn, wc, data)) {
        return np_late_leave(conn, wc, data);
    }

    if (np_late_any(conn) ||
        ucs_unlikely(!np_late_handle(conn, wc, data, 1))) {
        np_late_add(conn, wc, data);
    }
    return 0;
}

void np_late_resume(np_conn_t *conn, const struct ibv_wc *wc, void *data)
{
    const np_vmsg_t *msg = data;

    if (!conn->is_link && (wc->opcode == IBV_WC_RECV) &&
        (msg->kind == NP_VMSG_AM)) {
        np_conn_am(conn, msg, wc->byte_len); /* taken before */
    } else if ((conn->is_link && np_late_any(conn)) ||
               !np_late_handle(conn, wc, data, 1)) {
        np_late_add(conn, wc, data);
    }
}
