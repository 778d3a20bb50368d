/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What happens to a port: completions, and the time. Its owner deals with them
 * in its progress; while that computes a service thread answers peers' requests
 * (vwait.c), and keeps for the owner what only that may handle: active
 * messages, and whatever is about the port's own links.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "conn.h"
#include "hello.h"
#include "late.h"
#include "replay.h"
#include "stream.h"

#include "../../mem/prepare.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Progress calls between two looks at the time; the former while something is
 * connecting or ending */
#define NP_VPORT_TICKS_BUSY  64
#define NP_VPORT_TICKS       512

/* Between two looks at the send queues while they are not half full and no
 * operation waits for a completion: few are asked for */
#define NP_VPORT_SEND_TICKS  8

/* Progress calls between two turns to give way (yield.h) */
#define NP_VPORT_GIVE_WAY    16

/* Buffers are few when one in so many is left */
#define NP_VPORT_LOW         4


void np_vport_forget(np_vport_t *port, const np_conn_t *conn)
{
    uint32_t i;

    for (i = port->kept_head; i != port->kept_tail; ++i) {
        if (port->kept[i % port->kept_size].conn == conn) {
            port->kept[i % port->kept_size].conn = NULL;
        }
    }
}

static void np_vport_keep(np_vport_t *port, np_conn_t *conn,
                          const struct ibv_wc *wc)
{
    np_vkept_t *kept = &port->kept[port->kept_tail++ % port->kept_size];
    void *data       = np_vport_recv_buffer(port, wc->wr_id);

    kept->wc    = *wc;
    kept->conn  = conn;
    kept->bytes = NULL;
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

int np_vport_keep_late(np_vport_t *port, const np_vkept_t *late)
{
    if ((port->kept_tail - port->kept_head) == port->kept_size) {
        return 0;
    }

    port->kept[port->kept_tail++ % port->kept_size] = *late;
    return 1;
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
    void *msg;

    while (port->kept_head != port->kept_tail) {
        kept = port->kept[port->kept_head++ % port->kept_size];
        msg  = (kept.bytes != NULL) ? kept.bytes :
               np_vport_recv_buffer(port, kept.wc.wr_id);
        if (kept.conn != NULL) { /* else its connection has ended */
            np_late_resume(kept.conn, &kept.wc, msg);
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

    data = np_vport_recv_buffer(port, wc->wr_id);
    conn = np_conn_find(port, wc->qp_num);
    if (ucs_likely((conn != NULL) && (conn->state != NP_CONN_DEAD))) {
        if (ucs_unlikely(wc->status != IBV_WC_SUCCESS)) {
            np_conn_lost(conn, UCS_ERR_IO_ERROR);
        } else if (ucs_unlikely(np_late_arrived(conn, wc, data))) {
            np_vport_keep(port, conn, wc);
            return; /* with its buffer */
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

/* Completions that may be taken now: what a thread has no place to keep stays
 * in the queue until the owner comes */
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

unsigned np_vport_send_due(np_vport_t *port)
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

void np_vport_take_low(np_vport_t *port)
{
    if (atomic_exchange_explicit(&port->is_low, 0, memory_order_relaxed)) {
        np_vport_arm_low(port);
    }
}

void np_vport_break_due(np_vport_t *port)
{
    np_conn_t *conn;

    if (ucs_likely(port->config.break_every == 0)) {
        return;
    }

    ucs_list_for_each(conn, &port->ready, list) {
        if (conn->break_due) {
            conn->break_due = 0;
            np_conn_break(conn);
        }
    }
}

/* What needs no look each time */
static void np_vport_housekeep(np_vport_t *port)
{
    uint64_t now;
    np_conn_t *conn, *next;

    np_vport_break_due(port);
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
    /* before work, which may take all the room there is each time */
    if (ucs_unlikely(!ucs_list_is_empty(&port->replies))) {
        count += np_vport_send_due(port);
    }
    if (ucs_unlikely(np_vport_has_work(port))) {
        count += np_late_progress(port);
        count += np_stream_progress(port);
        count += port->ops->work(port);
        count += np_vport_tell_views(port);
    }
    if (ucs_unlikely((port->num_absent > 0) && (count == 0))) {
        np_bring_missed(port);
    }
    return count;
}

unsigned np_vport_serve_some(np_vport_t *port)
{
    return np_vport_work(port, 1);
}

void np_vport_look_next(np_vport_t *port)
{
    atomic_store_explicit(&port->ticks, NP_VPORT_TICKS - 1,
                          memory_order_relaxed);
}

static unsigned np_vport_progress_turn(np_vport_t *port)
{
    NP_TURN_OR_RETURN(&port->turn, 0);
    unsigned count, ticks;
    int is_eighth;

    ticks = atomic_load_explicit(&port->ticks, memory_order_relaxed) + 1;
    atomic_store_explicit(&port->ticks, ticks, memory_order_relaxed);
    is_eighth      = (ticks % NP_VPORT_SEND_TICKS) == 0;
    /* relaxed: a thread that still sees it set takes the turn for nothing */
    atomic_store_explicit(&port->is_armed, 0, memory_order_relaxed);
    count          = np_vport_work(port, is_eighth || (port->awaited > 0) ||
                                   (port->posted >= port->config.sq_size / 2));
    if (ucs_unlikely((is_eighth && !ucs_list_is_empty(&port->open_puts)) ||
                     np_flights_have_news(&port->flights) ||
                     !ucs_list_is_empty(&port->replaying))) {
        count += port->ops->owner_work(port, ticks);
        count += np_replay_progress(port);
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

/* Without the turn, which a service thread may want */
static void np_vport_give_way(np_vport_t *port)
{
    port->calls = 0;
    if (np_yield_is_wanted(&port->yield, np_clock_coarse()) &&
        np_yield_turn(&port->yield) && !np_prepare_has_work()) {
        NP_STATS_INC(port->flights.stats, yields);
        sched_yield();
    }
}

unsigned np_vport_progress(np_vport_t *port)
{
    const unsigned count = np_vport_progress_turn(port);

    port->found += count;
    if (ucs_unlikely(++port->calls >= NP_VPORT_GIVE_WAY)) {
        np_vport_give_way(port);
    }
    return count;
}

void np_vport_prepare(np_vport_t *port)
{
    np_prepare_progress_slow(port->flights.stats);
}
