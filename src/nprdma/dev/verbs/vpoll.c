/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What happens to a port: completions, the time, and who deals with them. The
 * owner does in its progress; while it computes a service thread answers peers'
 * requests, and keeps for the owner what only that may handle: active messages,
 * and whatever is about the port's own links.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "conn.h"
#include "hello.h"

#include "../../clock.h"
#include "../../mem/prepare.h"
#include "../../proto/vput.h"
#include "../../proto/vremote.h"

#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* Progress calls between two looks at the time; the former while something is
 * connecting or ending */
#define NP_VPORT_TICKS_BUSY  64
#define NP_VPORT_TICKS       512

/* Between two looks at the send queues while they are not half full and no
 * operation waits for a completion: few are asked for */
#define NP_VPORT_SEND_TICKS  8

/* The longest tick of a kernel */
#define NP_VPORT_TICK_MSEC   10

/* Buffers are few when one in so many is left */
#define NP_VPORT_LOW         4

/* Time in which a program that is in progress would look at its port, us */
#define NP_VPORT_PATIENCE  20

/* Rounds in which a thread waits for room rather than to come again */
#define NP_VPORT_ROUNDS    256


void np_vport_forget(np_vport_t *port, const np_conn_t *conn)
{
    uint32_t i;

    for (i = port->kept_head; i != port->kept_tail; ++i) {
        if (port->kept[i % port->kept_size].conn == conn) {
            port->kept[i % port->kept_size].conn = NULL;
        }
    }
}

/* Leave it to the owner? */
static int np_vport_is_for_owner(np_vport_t *port, np_conn_t *conn,
                                 const struct ibv_wc *wc)
{
    const np_vmsg_t *msg = (const void*)np_vport_recv_buffer(port, wc->wr_id);

    if (conn->is_link) {
        return 1;
    }

    return (wc->opcode == IBV_WC_RECV) && (wc->byte_len >= sizeof(*msg)) &&
           ((msg->kind == NP_VMSG_AM) || (msg->kind == NP_VMSG_BYE));
}

static void np_vport_keep(np_vport_t *port, np_conn_t *conn,
                          const struct ibv_wc *wc)
{
    np_vkept_t *kept = &port->kept[port->kept_tail++ % port->kept_size];
    void *data       = np_vport_recv_buffer(port, wc->wr_id);

    kept->wc    = *wc;
    kept->conn  = conn;
    kept->bytes = NULL;
    if (!conn->is_link) {
        np_vserve_taken(conn, data);
    }

    if (port->kept_held >= (port->recv_buffers / 2)) {
        kept->bytes = malloc(ucs_max(wc->byte_len, 1u));
    }
    if (kept->bytes == NULL) {
        ++port->kept_held;
        return;
    }

    if (wc->opcode == IBV_WC_RECV) {
        memcpy(kept->bytes, data, wc->byte_len);
    }
    np_vport_post_recv(port, wc->wr_id);
}

static void np_vport_drop_kept(np_vport_t *port, np_vkept_t *kept)
{
    if (kept->bytes != NULL) {
        free(kept->bytes);
    } else {
        --port->kept_held;
        np_vport_post_recv(port, kept->wc.wr_id);
    }
}

void np_vport_drop_all_kept(np_vport_t *port)
{
    while (port->kept_head != port->kept_tail) {
        np_vport_drop_kept(port, &port->kept[port->kept_head++ %
                                             port->kept_size]);
    }
}

/* What a service thread has kept; returns how much */
static unsigned np_vport_take_kept(np_vport_t *port)
{
    unsigned count = 0;
    np_vkept_t kept;
    np_vmsg_t *msg;

    while (port->kept_head != port->kept_tail) {
        kept = port->kept[port->kept_head++ % port->kept_size];
        msg  = (kept.bytes != NULL) ? kept.bytes :
               (np_vmsg_t*)np_vport_recv_buffer(port, kept.wc.wr_id);
        if (kept.conn == NULL) {
            /* its connection has ended */
        } else if (kept.wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
            np_vserve_written(kept.conn, kept.wc.imm_data);
        } else if (!kept.conn->is_link && (msg->kind == NP_VMSG_AM)) {
            np_vserve_am(kept.conn, msg, kept.wc.byte_len);
        } else {
            np_vserve_message(kept.conn, msg, kept.wc.byte_len);
        }
        np_vport_drop_kept(port, &kept);
        ++count;
    }
    return count;
}

static void np_vport_recv_done(np_vport_t *port, const struct ibv_wc *wc)
{
    np_conn_t *conn;
    uint8_t *data;

    if (wc->qp_num == port->ud->qp_num) {
        if ((wc->status == IBV_WC_SUCCESS) && (wc->byte_len > 40)) {
            data = np_vport_ud_buffer(port, wc->wr_id);
            np_hello_received(port, data + 40, wc->byte_len - 40);
        }
        np_vport_post_ud(port, wc->wr_id);
        return;
    }

    conn = np_conn_find(port, wc->qp_num);
    if (ucs_likely((conn != NULL) && (conn->state != NP_CONN_DEAD))) {
        if (ucs_unlikely(wc->status != IBV_WC_SUCCESS)) {
            np_conn_lost(conn, UCS_ERR_IO_ERROR);
        } else if (ucs_unlikely(port->is_thread) &&
                   np_vport_is_for_owner(port, conn, wc)) {
            np_vport_keep(port, conn, wc);
            return; /* with its buffer */
        } else if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
            np_vserve_written(conn, wc->imm_data);
        } else {
            np_vserve_message(conn, (np_vmsg_t*)
                              np_vport_recv_buffer(port, wc->wr_id),
                              wc->byte_len);
        }
    }
    np_vport_post_recv(port, wc->wr_id);
}

static void np_vport_send_done(np_vport_t *port, const struct ibv_wc *wc)
{
    np_conn_t *conn;

    if (wc->wr_id == NP_UD_WR_ID) {
        port->is_ud_broken |= wc->status != IBV_WC_SUCCESS; /* no route */
        np_hello_sent(port);
        return;
    }

    conn = np_conn_find(port, wc->qp_num);
    if (ucs_likely((conn != NULL) &&
                   (conn->generation == (uint32_t)(wc->wr_id >> 32)))) {
        np_conn_completed(conn, wc);
    }
}

/* Completions that may be taken now: what a thread has no place to keep stays in
 * the queue until the owner comes */
static int np_vport_max_poll(const np_vport_t *port)
{
    return ucs_likely(!port->is_thread) ? NP_VPORT_BATCH :
           (int)ucs_min(port->kept_size - (port->kept_tail - port->kept_head),
                        (uint32_t)NP_VPORT_BATCH);
}

unsigned np_vport_poll_recv(np_vport_t *port)
{
    struct ibv_wc wc[NP_VPORT_BATCH];
    unsigned kept = 0;
    int i, count;

    if (ucs_unlikely(port->kept_head != port->kept_tail) && !port->is_thread) {
        kept = np_vport_take_kept(port);
    }

    if (ucs_unlikely(port->num_stash > 0)) {
        if (port->is_thread) {
            return 0; /* the owner has found them, and is about to come */
        }
        count           = port->num_stash;
        port->num_stash = 0;
        memcpy(wc, port->stash, count * sizeof(*wc));
    } else {
        count = ibv_poll_cq(port->recv_cq, np_vport_max_poll(port), wc);
    }

    for (i = 0; i < count; ++i) {
        np_vport_recv_done(port, &wc[i]);
    }
    return kept + ucs_max(count, 0);
}

unsigned np_vport_poll_send(np_vport_t *port)
{
    struct ibv_wc wc[NP_VPORT_BATCH];
    int i, count;

    count = ibv_poll_cq(port->send_cq, NP_VPORT_BATCH, wc);
    for (i = 0; i < count; ++i) {
        np_vport_send_done(port, &wc[i]);
    }
    return ucs_max(count, 0);
}

static unsigned np_vport_send_due(np_vport_t *port)
{
    np_conn_t *conn, *next;
    unsigned count = 0;

    ucs_list_for_each_safe(conn, next, &port->replies, due) {
        if (conn->state == NP_CONN_READY) {
            count += np_conn_send_due(conn);
        } else {
            ucs_list_del(&conn->due);
            ucs_list_head_init(&conn->due);
        }
    }
    return count;
}

/* The device is not there any more */
static void np_vport_fail_all(ucs_list_link_t *list)
{
    np_conn_t *conn, *next;

    ucs_list_for_each_safe(conn, next, list, list) {
        np_conn_fail(conn, UCS_ERR_IO_ERROR);
    }
}

void np_vport_arm_low(np_vport_t *port)
{
    struct ibv_srq_attr attr = {
        .srq_limit = ucs_max(port->recv_buffers / NP_VPORT_LOW, 1u)
    };
    int ret;

    ret = ibv_modify_srq(port->srq, &attr, IBV_SRQ_LIMIT);
    if (ret != 0) {
        ucs_debug("nprdma: %s: nobody will say when receive buffers are few: "
                  "%s", port->nic->name, strerror(ret));
    }
}

static void np_vport_take_low(np_vport_t *port)
{
    if (atomic_exchange_explicit(&port->is_low, 0, memory_order_relaxed)) {
        np_vport_arm_low(port);
    }
}

/* What needs no look each time */
static void np_vport_housekeep(np_vport_t *port)
{
    uint64_t now;
    np_conn_t *conn, *next;

    if (port->is_ud_broken) {
        np_vport_restart_ud(port);
    }
    if (!ucs_list_is_empty(&port->connecting)) {
        np_hello_progress(port);
    }
    if (!ucs_list_is_empty(&port->dying)) {
        np_vport_reap(port);
    }

    now = np_clock_coarse() / 1000000;
    if (now < port->next_look) {
        return;
    }

    port->next_look = now + NP_VPORT_LOOK_MSEC;
    ucs_list_for_each_safe(conn, next, &port->ready, list) {
        np_conn_look(conn);
    }

    np_nic_take_events(port->nic);
    np_vport_take_low(port);
    if (np_nic_is_removed(port->nic)) {
        np_vport_fail_all(&port->connecting);
        np_vport_fail_all(&port->ready);
    }
}

/* All that both the owner and a thread do; returns how much it was */
static UCS_F_ALWAYS_INLINE unsigned
np_vport_work(np_vport_t *port, int is_send_due)
{
    unsigned count;

    count = np_vport_poll_recv(port);
    if (is_send_due) {
        count += np_vport_poll_send(port);
    }
    if (ucs_unlikely(!ucs_list_is_empty(&port->replies))) {
        count += np_vport_send_due(port);
    }
    if (ucs_unlikely(!ucs_list_is_empty(&port->todo))) {
        count += np_vop_progress(port);
    }
    if (ucs_unlikely(!ucs_list_is_empty(&port->asked))) {
        count += np_vremote_answer(port);
    }
    if (ucs_unlikely((port->num_absent > 0) && (count == 0))) {
        np_vserve_bring_in(port);
    }
    return count;
}

unsigned np_vport_progress(np_vport_t *port)
{
    NP_TURN_OR_RETURN(&port->turn, 0);
    unsigned count, ticks;
    int is_eighth;

    ticks = atomic_load_explicit(&port->ticks, memory_order_relaxed) + 1;
    atomic_store_explicit(&port->ticks, ticks, memory_order_relaxed);
    is_eighth      = (ticks % NP_VPORT_SEND_TICKS) == 0;
    if (is_eighth && !ucs_list_is_empty(&port->open_puts)) {
        np_vput_age(port, ticks);
    }
    port->is_armed = 0;
    count          = np_vport_work(port, is_eighth || (port->awaited > 0) ||
                                   (port->posted >= port->config.sq_size / 2));
    if (ucs_unlikely(!ucs_list_is_empty(&port->down))) {
        count += np_vlink_report(port);
    }
    if (ucs_unlikely(!ucs_list_is_empty(&port->replaying))) {
        count += np_vreplay_progress(port);
    }
    if (is_eighth && (count == 0) && !ucs_list_is_empty(&port->asking)) {
        np_conn_ring_late(port);
    }
    if (ucs_unlikely((ticks % NP_VPORT_TICKS_BUSY) == 0) &&
        (((ticks % NP_VPORT_TICKS) == 0) ||
         !ucs_list_is_empty(&port->connecting) ||
         !ucs_list_is_empty(&port->dying))) {
        np_vport_housekeep(port);
    }
    return count;
}

void np_vport_prepare(np_vport_t *port)
{
    np_prepare_progress_slow(port->stats);
}

int np_vport_event_fd(np_vport_t *port)
{
    return port->event_fd;
}

static int np_vport_drain_channel(np_vport_t *port)
{
    struct ibv_cq *cq;
    void *context;
    int any = 0;

    while (ibv_get_cq_event(port->channel, &cq, &context) == 0) {
        ibv_ack_cq_events(cq, 1);
        any = 1;
    }
    return any;
}

/* Events that have come for the owner; returns whether there were any */
static int np_vport_take_events(np_vport_t *port)
{
    int any = np_vport_drain_channel(port);
    uint64_t times;

    any |= read(port->timer_fd, &times, sizeof(times)) > 0;
    any |= read(port->bell_fd, &times, sizeof(times)) > 0;
    np_nic_take_events(port->nic);
    return any;
}

/* Does anything wait that nobody may ever complete? */
static int np_vport_expects(np_vport_t *port)
{
    np_conn_t *conn;

    ucs_list_for_each(conn, &port->ready, list) {
        if (np_conn_expects(conn) || (conn->sq_head != conn->sq_tail)) {
            return 1;
        }
    }
    return 0;
}

/* Time must pass for what waits for others, or for room */
static void np_vport_set_timer(np_vport_t *port)
{
    struct itimerspec spec = {};

    if (!ucs_list_is_empty(&port->connecting) ||
        !ucs_list_is_empty(&port->dying) || np_nic_is_removed(port->nic)) {
        spec.it_value.tv_nsec = 20000000;
    } else if (np_vport_expects(port)) {
        spec.it_value.tv_nsec = (NP_VPORT_LOOK_MSEC + NP_VPORT_TICK_MSEC) *
                                1000000;
    } else {
        return;
    }

    timerfd_settime(port->timer_fd, 0, &spec, NULL);
    atomic_store_explicit(&port->ticks, NP_VPORT_TICKS - 1,
                          memory_order_relaxed); /* look at the time next */
}

static int np_vport_notify(np_vport_t *port, struct ibv_cq *cq, int solicited)
{
    int ret = ibv_req_notify_cq(cq, solicited);

    if (ret != 0) {
        np_error("%s: no notification: %s", port->nic->name, strerror(ret));
    }
    return ret;
}

int np_vport_arm_service(np_vport_t *port)
{
    return np_vport_notify(port, port->recv_cq, 1);
}

ucs_status_t np_vport_arm(np_vport_t *port)
{
    NP_TURN_OR_RETURN(&port->turn, UCS_ERR_BUSY);

    if (np_vport_take_events(port)) {
        (void)np_vport_arm_service(port); /* it was theirs, too */
        return UCS_ERR_BUSY;
    }

    np_vput_confirm_all(port);
    if ((port->num_stash > 0) || (port->kept_head != port->kept_tail) ||
        !ucs_list_is_empty(&port->todo) || !ucs_list_is_empty(&port->replies) ||
        !ucs_list_is_empty(&port->down) ||
        !ucs_list_is_empty(&port->replaying) || np_prepare_has_work()) {
        return UCS_ERR_BUSY;
    }

    if ((np_vport_notify(port, port->send_cq, 0) != 0) ||
        (np_vport_notify(port, port->recv_cq, 0) != 0)) {
        return UCS_ERR_IO_ERROR;
    }

    /* What came before that tells nobody */
    port->num_stash = ucs_max(ibv_poll_cq(port->recv_cq, NP_VPORT_BATCH,
                                          port->stash), 0);
    if ((port->num_stash > 0) || (np_vport_poll_send(port) > 0)) {
        return UCS_ERR_BUSY;
    }

    np_conn_ring_all(port); /* nobody will look at the time meanwhile */
    np_vport_set_timer(port);
    port->is_armed = 1;
    return UCS_OK;
}

/* Only what peers asked for is a thread's */
static int np_vport_has_served_todo(np_vport_t *port)
{
    np_vop_t *op;

    ucs_list_for_each(op, &port->todo, todo) {
        if (op->link == NULL) {
            return 1;
        }
    }
    return 0;
}

static void np_vport_wake_owner(np_vport_t *port)
{
    const uint64_t one = 1;

    if (port->is_armed && ((port->kept_head != port->kept_tail) ||
                           !ucs_list_is_empty(&port->todo) ||
                           !ucs_list_is_empty(&port->down) ||
                           !ucs_list_is_empty(&port->replaying))) {
        port->is_armed = 0;
        if (write(port->bell_fd, &one, sizeof(one)) != sizeof(one)) {
            np_error("%s: the program cannot be woken: %m", port->nic->name);
        }
    }
}

/* Told again of what comes: of requests, and of whatever the owner waits for */
static void np_vport_arm_thread(np_vport_t *port)
{
    (void)np_vport_notify(port, port->recv_cq, !port->is_armed);
    if (port->is_armed || (port->num_served > 0)) {
        (void)np_vport_notify(port, port->send_cq, 0);
    }
}

static int np_vport_serve_turn(np_vport_t *port)
{
    unsigned rounds = 0, count;

    np_vport_drain_channel(port);
    do {
        while (!np_turn_is_wanted(&port->turn) &&
               (np_vport_work(port, 1) > 0) && (++rounds < NP_VPORT_ROUNDS)) {
        }
        np_vport_wake_owner(port);
        np_vport_arm_thread(port);
        /* what came before that tells nobody */
        count = np_vport_poll_recv(port) + np_vport_poll_send(port);
    } while ((count > 0) && !np_turn_is_wanted(&port->turn) &&
             (++rounds < NP_VPORT_ROUNDS));

    np_vport_wake_owner(port);
    return (count > 0) || np_turn_is_wanted(&port->turn) ||
           np_vport_has_served_todo(port) ||
           !ucs_list_is_empty(&port->asked) ||
           !ucs_list_is_empty(&port->replies);
}

/* Does the owner look at its port? Only then it is given time to. No turn. */
static int np_vport_is_attended(np_vport_t *port)
{
    const struct timespec patience = {.tv_nsec = NP_VPORT_PATIENCE * 1000};
    unsigned ticks;

    ticks = atomic_load_explicit(&port->ticks, memory_order_relaxed);
    if (ticks == port->ticks_seen) {
        return 0; /* not since we have looked last */
    }

    nanosleep(&patience, NULL);
    port->ticks_seen = atomic_load_explicit(&port->ticks,
                                            memory_order_relaxed);
    return port->ticks_seen != ticks;
}

/* A program that waits in a loop sees to everything, and would only be disturbed:
 * be told of the next request that waits too long. That may have been this one, if
 * the program has just left: its sender rings again. */
static void np_vport_leave_alone(np_vport_t *port)
{
    np_vport_drain_channel(port);
    (void)np_vport_arm_service(port);
}

int np_vport_serve(np_service_client_t *client)
{
    np_vport_t *port = ucs_container_of(client, np_vport_t, service);
    int is_again;

    np_nic_take_events(port->nic);
    if (np_vport_is_attended(port)) {
        np_vport_leave_alone(port);
        /* until the program has seen that buffers were few, or has left */
        return atomic_load_explicit(&port->is_low, memory_order_relaxed);
    }

    if (!np_turn_take(&port->turn)) {
        return 1;
    }

    port->is_thread = 1;
    is_again        = np_vport_serve_turn(port);
    port->is_thread = 0;
    np_vport_take_low(port);
    np_turn_give(&port->turn);
    return is_again;
}
