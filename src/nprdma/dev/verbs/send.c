/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What connections send: messages, with what each tells beside what it is for.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "post.h"
#include "stream.h"

#include "../../engine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

/* Looks after which something is sent to a side that is silent */
#define NP_CONN_PROBE  8

/* And to a link that asks for nothing: a minute */
#define NP_CONN_IDLE   (60000 / NP_VPORT_LOOK_MSEC)

/* Nanoseconds after which the key of a put counts as unused */
#define NP_CONN_KEY_NSEC    NP_CLOCK_MSEC

/* How long a target is given to answer by its progress before its service
 * thread is woken: at least this, twice as long after each time that its
 * progress has answered all the same, half as long after each time that the
 * thread has, and a little less after each answer in time. And then, until that
 * is done once more: twice as long each time. */
#define NP_CONN_RING_MIN    (20 * NP_CLOCK_USEC)
#define NP_CONN_RING_MAX    (64 * NP_CLOCK_MSEC)
#define NP_CONN_RING_DECAY  64
#define NP_CONN_RING_NEXT   (1 * NP_CLOCK_MSEC)
#define NP_CONN_RING_LAST   (64 * NP_CLOCK_MSEC)


int np_conn_expects(const np_conn_t *conn)
{
    return !conn->is_link ? (conn->num_served > 0) :
           (conn->tx_acked != conn->tx_seq) || conn->is_checked ||
           ((conn->link != NULL) && (conn->link->flight.outstanding > 0));
}

/* The longest silence: a probe is sent, and repeated by the device */
static uint64_t np_conn_patience(const np_conn_t *conn)
{
    const np_vport_config_t *config = &conn->port->config;

    return (NP_CONN_PROBE * NP_VPORT_LOOK) + np_clock_of_sec(
            1.25 * NP_VPORT_TICK_TIME * UCS_BIT(config->timeout) *
            (config->retry_count + 1));
}

/* Does what was posted complete? Returns 0 if the device should have given up
 * long ago (seen: Soft-RoCE that forgets to send again what it could not send
 * while its port was down). */
static int np_conn_sends(np_conn_t *conn)
{
    if ((conn->sq_head == conn->sq_tail) || (conn->sq_head != conn->sq_seen)) {
        conn->sq_seen = conn->sq_head;
        conn->stuck   = 0;
        return 1;
    }

    if (++conn->stuck == NP_CONN_PROBE) {
        np_conn_probe(conn); /* perhaps nothing has asked for a completion */
    }
    return (conn->stuck * NP_VPORT_LOOK) <= np_conn_patience(conn);
}

/* Is the other side there? */
static int np_conn_hears(np_conn_t *conn)
{
    if ((conn->heard != conn->heard_seen) || !np_conn_expects(conn)) {
        conn->heard_seen = conn->heard;
        conn->silent     = 0;
        return 1;
    }

    ++conn->silent;
    if (conn->is_link && (conn->silent == 1)) {
        np_conn_owe_ack(conn);
    } else if ((conn->silent % NP_CONN_PROBE) == 0) {
        np_conn_probe(conn);
    }
    return (conn->silent * NP_VPORT_LOOK) <= np_conn_patience(conn);
}

/* A write of no bytes: it takes no buffer of the link, whose program may be
 * computing, and fails if its queue pair is gone. (On Soft-RoCE it does
 * not.) */
static void np_conn_ping(np_conn_t *conn)
{
    const np_place_t nowhere = {0};

    if (np_conn_has_room(conn)) {
        np_conn_write_lease(conn, nowhere, nowhere, 0, NULL, NULL, 0);
    }
}

/* Answering side: a link whose process has died says nothing, ever */
static void np_conn_look_idle(np_conn_t *conn)
{
    if (conn->is_link || (conn->heard != conn->heard_seen)) {
        conn->idle = 0;
    } else if (++conn->idle == NP_CONN_IDLE) {
        conn->idle = 0;
        np_conn_ping(conn);
    }
}

void np_conn_look(np_conn_t *conn)
{
    np_conn_look_idle(conn);
    if (!np_conn_sends(conn) || !np_conn_hears(conn)) {
        np_conn_lost(conn, UCS_ERR_ENDPOINT_TIMEOUT);
    }
}

/* Ask for a completion now and then, more often if buffers are short; neither
 * the queue nor what all queues share may fill up without one, however many
 * requests of other queues ask for none */
static int np_conn_is_signaled(np_conn_t *conn, int has_buffer)
{
    np_vport_t *port = conn->port;

    if ((++conn->unsignaled >= NP_CONN_MODERATION) ||
        (conn->unsignaled > (conn->sq_mask / 2)) ||
        ucs_unlikely(port->posted >= (port->send_cqe / 2)) ||
        (has_buffer && (port->num_free_send < (port->send_buffers / 2)) &&
         ((conn->unsignaled > (port->send_buffers / 16)) ||
          (port->num_free_send < (port->send_buffers / 4))))) {
        conn->unsignaled = 0;
        return 1;
    }
    return 0;
}

__attribute__((noinline)) void
np_conn_refused(np_conn_t *conn, int error, const np_sq_entry_t *entry)
{
    np_error("%s: queue pair %u takes no request: %s", conn->port->nic->name,
             conn->qpn, strerror(error));
    if ((entry->buffer != NULL) && !(entry->flags & NP_SQ_KEPT)) {
        np_vport_buffer_put(conn->port, entry->buffer);
    }
    np_conn_fail(conn, UCS_ERR_IO_ERROR);
}

np_vmsg_t *np_conn_begin(np_conn_t *conn, np_vmsg_kind_t kind)
{
    np_vmsg_t *msg;

    if (!np_conn_has_room(conn)) {
        return NULL;
    }

    msg = np_vport_buffer_get(conn->port);
    if (msg != NULL) {
        *msg = (np_vmsg_t){.kind = kind};
    }
    return msg;
}

/* Link: from now on an answer is waited for */
static UCS_F_ALWAYS_INLINE void np_conn_await(np_conn_t *conn)
{
    if (ucs_list_is_empty(&conn->asking)) {
        conn->ring_at   = 0;
        conn->ring_next = 0;
        ucs_list_add_tail(&conn->port->asking, &conn->asking);
    }
}

/* Answering side: it has given out a key. If both programs compute, or sleep, a
 * service thread of ours rings: it need not be awake now. */
static void np_conn_await_write(np_conn_t *conn)
{
    const struct itimerspec spec = {
        .it_value.tv_nsec = NP_CONN_KEY_NSEC
    };
    np_vport_t *port = conn->port;

    np_conn_await(conn);
    if (!atomic_load_explicit(&port->has_keys, memory_order_relaxed)) {
        atomic_store_explicit(&port->has_keys, 1, memory_order_relaxed);
        if (!port->is_thread) { /* else it comes again by itself */
            timerfd_settime(port->keys_fd, 0, &spec, NULL);
        }
    }
}

static UCS_F_ALWAYS_INLINE void np_conn_asks(np_conn_t *conn, np_vmsg_t *msg)
{
    if (ucs_unlikely(conn->is_distant) ||
        (np_engine.config.service == NP_SERVICE_EVENT)) {
        msg->flags |= NP_VMSG_WAKE;
    }
    np_conn_await(conn);
}

void np_conn_want_credit(np_conn_t *conn)
{
    if ((int32_t)(conn->tx_flagged - conn->tx_acked) > 0) {
        conn->tx_wanted = conn->tx_flagged; /* a message has asked for it */
        np_conn_await(conn);
    } else if ((int32_t)(conn->tx_seq - conn->tx_wanted) > 0) {
        np_conn_owe_ack(conn);
    }
}

static int np_conn_is_waiting(const np_conn_t *conn)
{
    if (!conn->is_link) {
        /* for a link that computes while it has the key of its put */
        return (conn->state == NP_CONN_READY) &&
               np_stream_awaits_write(conn);
    }

    return (conn->state == NP_CONN_READY) && (conn->link != NULL) &&
           ((np_flight_asking(&conn->link->flight) > 0) ||
            ((int32_t)(conn->tx_wanted - conn->tx_acked) > 0));
}

static void np_conn_ring(np_conn_t *conn)
{
    np_vmsg_t ack = {
        .kind  = NP_VMSG_ACK,
        .flags = NP_VMSG_WAKE | (conn->is_link ? NP_VMSG_ACK_NOW : 0)
    };

    (void)np_conn_send_copied(conn, &ack, sizeof(ack));
}

static void np_conn_stop_asking(np_conn_t *conn)
{
    ucs_list_del(&conn->asking);
    ucs_list_head_init(&conn->asking);
}

/* Ring if its time has come; it is waiting */
static void np_conn_ring_due(np_conn_t *conn, uint64_t now)
{
    if (conn->ring_at == 0) {
        conn->ring_at = now + (!conn->is_link ? NP_CONN_KEY_NSEC :
                               ucs_max(conn->ring_first, NP_CONN_RING_MIN));
    } else if (now >= conn->ring_at) {
        conn->ring_next = (conn->ring_next == 0) ? NP_CONN_RING_NEXT :
                          ucs_min(2 * conn->ring_next, NP_CONN_RING_LAST);
        conn->ring_at   = now + conn->ring_next;
        conn->has_rung  = 1;
        np_conn_ring(conn);
    }
}

void np_conn_ring_late(np_vport_t *port)
{
    const uint64_t now = np_clock();
    np_conn_t *conn, *next;

    ucs_list_for_each_safe(conn, next, &port->asking, asking) {
        if (np_conn_is_waiting(conn)) {
            np_conn_ring_due(conn, now);
        } else {
            np_conn_stop_asking(conn);
        }
    }
}

int np_conn_ring_links(np_vport_t *port)
{
    const uint64_t now = np_clock();
    int count          = 0;
    np_conn_t *conn;

    ucs_list_for_each(conn, &port->asking, asking) {
        if (!conn->is_link && np_conn_is_waiting(conn)) {
            np_conn_ring_due(conn, now);
            ++count;
        }
    }
    atomic_store_explicit(&port->has_keys, count > 0, memory_order_relaxed);
    return count > 0;
}

void np_conn_ring_all(np_vport_t *port)
{
    np_conn_t *conn, *next;

    ucs_list_for_each_safe(conn, next, &port->asking, asking) {
        if (np_conn_is_waiting(conn)) {
            np_conn_ring(conn);
            if (!conn->is_link) {
                continue; /* a service thread of ours rings again */
            }
        }
        np_conn_stop_asking(conn);
    }
}

/* A sign of life: there is no need to look for one, or to ring */
static UCS_F_ALWAYS_INLINE void np_conn_lives(np_conn_t *conn)
{
    ++conn->heard;
    conn->is_checked = 0;
    conn->replaced   = 0;
    conn->ring_at    = 0;
    conn->ring_next  = 0;
}

void np_conn_heard(np_conn_t *conn, unsigned flags)
{
    np_conn_lives(conn);
    if (!conn->is_link) {
        conn->has_rung = 0;
        return;
    }

    conn->is_distant = !!(flags & NP_VMSG_DISTANT);
    if (ucs_unlikely(conn->has_rung)) {
        conn->has_rung   = 0;
        conn->ring_first = conn->is_distant ? (conn->ring_first / 2) :
                           ucs_min(2 * ucs_max(conn->ring_first,
                                               NP_CONN_RING_MIN),
                                   NP_CONN_RING_MAX);
    } else {
        conn->ring_first -= conn->ring_first / NP_CONN_RING_DECAY;
    }
}

void np_conn_heard_write(np_conn_t *conn)
{
    np_conn_lives(conn);
    if (!conn->is_link && ucs_unlikely(conn->has_rung)) {
        conn->has_rung     = 0;
        conn->is_computing = 1; /* until it says otherwise with its next put */
    }
}

/* Keep what must go again if the queue pair fails. Returns whether the buffer
 * is needed for that: NP_SQ_KEPT, or 0. */
static UCS_F_ALWAYS_INLINE unsigned
np_conn_keep(np_conn_t *conn, const np_vmsg_t *msg, size_t len, void *buffer)
{
    np_vsent_t *sent;

    if (!conn->is_link || (conn->sent == NULL) ||
        (msg->kind == NP_VMSG_ACK) || (msg->kind == NP_VMSG_BYE)) {
        return 0;
    }

    sent  = &conn->sent[conn->tx_seq & conn->sent_mask];
    *sent = (np_vsent_t){0};
    if ((msg->kind == NP_VMSG_READ) || (msg->kind == NP_VMSG_WRITE) ||
        (msg->kind == NP_VMSG_ATOMIC)) {
        sent->op = ((const np_vctl_t*)msg)->body.op;
        return 0;
    }

    if ((msg->kind != NP_VMSG_AM) && (msg->kind != NP_VMSG_PUT)) {
        return 0; /* its transfer begins anew */
    }

    sent->len = len;
    if (buffer != NULL) {
        sent->buffer = buffer;
        ++conn->num_kept;
        return NP_SQ_KEPT;
    }

    memcpy(&conn->small[(conn->tx_seq & conn->sent_mask) *
                        (size_t)NP_CONN_INLINE], msg, len);
    return 0;
}

/* Link: it counts, and asks how far the target is at every half of the
 * credits */
static UCS_F_ALWAYS_INLINE void np_conn_number(np_conn_t *conn, np_vmsg_t *msg)
{
    if (((++conn->tx_seq - conn->tx_flagged) >=
         ucs_max(conn->credits / 2, 1u)) ||
        ucs_unlikely(msg->flags & NP_VMSG_ACK_NOW)) {
        msg->flags      |= NP_VMSG_ACK_NOW;
        conn->tx_flagged = conn->tx_seq;
    }
}

/* What every message tells beside what it is for */
static UCS_F_ALWAYS_INLINE void np_conn_fill(np_conn_t *conn, np_vmsg_t *msg)
{
    if (!conn->is_link) {
        if (ucs_queue_is_empty(&conn->replies)) {
            conn->rx_told = conn->rx_seq;
            conn->ack_due = 0;
        }
        msg->ack = conn->rx_told;
        if (ucs_unlikely(conn->port->is_thread)) {
            msg->flags |= NP_VMSG_DISTANT;
        }
        if (msg->kind == NP_VMSG_READY) {
            msg->flags |= conn->is_computing ? NP_VMSG_WAKE : 0;
            np_conn_await_write(conn);
        }
        return;
    }

    if ((msg->kind != NP_VMSG_ACK) && (msg->kind != NP_VMSG_BYE)) {
        np_conn_number(conn, msg);
    }
    if ((msg->kind == NP_VMSG_WRITE) && ucs_unlikely(conn->is_computing)) {
        msg->flags |= NP_VMSG_DISTANT;
    }
    if ((msg->kind != NP_VMSG_AM) && (msg->kind != NP_VMSG_PUT)) {
        np_conn_asks(conn, msg);
    } else if (ucs_unlikely(conn->is_distant)) {
        msg->flags |= NP_VMSG_WAKE; /* or they fill all buffers of a target that
                                       computes */
    }
}

static UCS_F_ALWAYS_INLINE void
np_conn_post_message(np_conn_t *conn, np_vmsg_t *msg, size_t len, void *buffer,
                     unsigned kept)
{
    unsigned flags = (buffer == NULL) ? IBV_SEND_INLINE : 0;

    if (np_conn_is_signaled(conn, buffer != NULL)) {
        flags |= IBV_SEND_SIGNALED;
    }
    if (ucs_unlikely(msg->flags & NP_VMSG_WAKE)) {
        flags |= IBV_SEND_SOLICITED;
    }
    np_conn_post(conn, np_conn_request(conn, np_vport_place(conn->port, msg),
                                       len, IBV_WR_SEND, flags),
                 buffer, kept, NULL, conn->tx_seq);
    np_conn_count(conn);
}

void np_conn_send(np_conn_t *conn, np_vmsg_t *msg, size_t len)
{
    np_assertv(len <= NP_VSEG_SIZE, "a message of %zu bytes", len);
    np_conn_fill(conn, msg);
    if (len <= conn->port->max_inline) {
        np_conn_keep(conn, msg, len, NULL);
        np_conn_post_message(conn, msg, len, NULL, 0);
        np_vport_buffer_put(conn->port, msg);
    } else {
        np_conn_post_message(conn, msg, len, msg,
                             np_conn_keep(conn, msg, len, msg));
    }
}

void np_conn_send_small(np_conn_t *conn, np_vmsg_t *msg, size_t len)
{
    np_conn_number(conn, msg);
    if (ucs_unlikely(conn->is_distant)) {
        msg->flags |= NP_VMSG_WAKE; /* as np_conn_fill */
    }
    if (ucs_likely(conn->sent != NULL)) {
        conn->sent[conn->tx_seq & conn->sent_mask] = (np_vsent_t){.len = len};
    }
    np_conn_post_message(conn, msg, len, NULL, 0);
}

void np_conn_drop(np_conn_t *conn, np_vmsg_t *msg)
{
    np_vport_buffer_put(conn->port, msg);
}

int np_conn_send_copied(np_conn_t *conn, np_vmsg_t *msg, size_t len)
{
    np_vmsg_t *copy;

    if (!np_conn_has_room(conn)) {
        return 0;
    }

    if (ucs_likely(len <= conn->port->max_inline)) {
        np_conn_fill(conn, msg);
        np_conn_keep(conn, msg, len, NULL);
        np_conn_post_message(conn, msg, len, NULL, 0);
        return 1;
    }

    copy = np_vport_buffer_get(conn->port);
    if (copy == NULL) {
        return 0;
    }

    memcpy(copy, msg, len);
    np_conn_send(conn, copy, len);
    return 1;
}

static void np_conn_owes(np_conn_t *conn)
{
    if (ucs_list_is_empty(&conn->due)) {
        ucs_list_add_tail(&conn->port->replies, &conn->due);
    }
}

void np_conn_owe_ack(np_conn_t *conn)
{
    if (conn->is_link) {
        conn->tx_wanted = conn->tx_seq;
    }
    conn->ack_due = 1;
    np_conn_owes(conn);
}

void np_conn_reply(np_conn_t *conn, const np_vctl_t *ctl)
{
    np_vctl_t copy = *ctl;
    np_vreply_t *reply;

    if (ucs_queue_is_empty(&conn->replies) &&
        np_conn_send_copied(conn, &copy.msg, sizeof(copy))) {
        return;
    }

    reply = malloc(sizeof(*reply));
    if (reply == NULL) {
        np_conn_fail(conn, UCS_ERR_NO_MEMORY);
        return;
    }

    reply->ctl = *ctl;
    ucs_queue_push(&conn->replies, &reply->queue);
    np_conn_owes(conn);
}

void np_conn_answer(np_conn_t *conn, np_vmsg_kind_t kind, uint32_t name,
                    ucs_status_t status, uint64_t value)
{
    np_vctl_t ctl = {.msg = {.kind = kind}};

    ctl.body.op     = name;
    ctl.body.status = status;
    ctl.body.offset = value;
    np_conn_reply(conn, &ctl);
}

unsigned np_conn_send_due(np_conn_t *conn)
{
    np_vmsg_t ack  = {.kind = NP_VMSG_ACK};
    unsigned count = 0;
    np_vreply_t *reply;

    while (!ucs_queue_is_empty(&conn->replies)) {
        reply = ucs_queue_head_elem_non_empty(&conn->replies, np_vreply_t,
                                              queue);
        if (!np_conn_send_copied(conn, &reply->ctl.msg, sizeof(reply->ctl))) {
            return count;
        }
        ucs_queue_pull_non_empty(&conn->replies);
        free(reply);
        conn->ack_due = !conn->is_link;
        ++count;
    }

    if (conn->ack_due) {
        if (conn->is_link) {
            ack.flags = NP_VMSG_ACK_NOW;
        }
        if (!np_conn_send_copied(conn, &ack, sizeof(ack))) {
            return count;
        }
        conn->ack_due = 0;
        ++count;
    }

    ucs_list_del(&conn->due);
    ucs_list_head_init(&conn->due);
    return count;
}

void np_conn_probe(np_conn_t *conn)
{
    np_vmsg_t ack = {.kind = NP_VMSG_ACK};

    if (conn->is_link) {
        ack.flags = NP_VMSG_ACK_NOW;
    }
    conn->unsignaled = NP_CONN_MODERATION;
    (void)np_conn_send_copied(conn, &ack, sizeof(ack));
}
