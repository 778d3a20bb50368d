/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Connections.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "hello.h"
#include "late.h"
#include "replay.h"
#include "stream.h"
#include "vremote.h"
#include "vserve.h"

#include "../../pause.h"

#include <stdlib.h>
#include <string.h>

/* Of the responder, in 10 us steps as the specification encodes them: 0.64
 * ms */
#define NP_CONN_RNR_TIMER   12
#define NP_CONN_RNR_FOREVER 7

/* Queue pairs in a row over which nothing came */
#define NP_CONN_REPLACE_MAX 8


static int np_conn_modify(np_conn_t *conn, struct ibv_qp_attr *attr, int mask,
                          const char *name)
{
    int ret = ibv_modify_qp(conn->qp, attr, mask);

    if (ret != 0) {
        np_error("%s: queue pair %u cannot become %s: %s",
                 conn->port->nic->name, conn->qpn, name, strerror(ret));
    }
    return ret;
}

/* Inline sends of as much as the device grants, but not more than wanted */
static struct ibv_qp *np_conn_create_qp(np_vport_t *port, np_conn_t *conn)
{
    static const unsigned inlines[] = {NP_CONN_INLINE, 128, 64, 0};
    struct ibv_qp_init_attr attr;
    struct ibv_qp *qp = NULL;
    unsigned i;

    for (i = 0; (qp == NULL) && (i < ucs_static_array_size(inlines)); ++i) {
        memset(&attr, 0, sizeof(attr));
        attr.qp_context          = conn;
        attr.send_cq             = port->send_cq;
        attr.recv_cq             = port->recv_cq;
        attr.srq                 = port->srq;
        attr.qp_type             = IBV_QPT_RC;
        attr.cap.max_send_wr     = conn->sq_mask + 1;
        attr.cap.max_send_sge    = 1;
        attr.cap.max_inline_data = inlines[i];
        qp                       = ibv_create_qp(port->nic->pd, &attr);
    }

    if (qp == NULL) {
        np_error("%s: no queue pair of %u requests: %m. Check 'ulimit -l', or "
                 "lower UCX_NPRDMA_VERBS_QUEUE", port->nic->name,
                 conn->sq_mask + 1);
        return NULL;
    }

    /* that of all: it never grows again */
    port->max_inline = ucs_min(attr.cap.max_inline_data, port->max_inline);
    return qp;
}

/* A queue pair in state INIT, by whose number the connection is found */
static int np_conn_start_qp(np_conn_t *conn)
{
    np_vport_t *port        = conn->port;
    struct ibv_qp_attr attr = {
        .qp_state        = IBV_QPS_INIT,
        .port_num        = port->nic->port_num,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
    };
    khiter_t iter;
    int ret;

    conn->qp = np_conn_create_qp(port, conn);
    if (conn->qp == NULL) {
        return 0;
    }

    conn->qpn        = conn->qp->qp_num;
    conn->generation = ++port->generation;
    conn->psn        = (uint32_t)np_clock() & 0xffffff;
    if (np_conn_modify(conn, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                       IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT") != 0) {
        goto err;
    }

    iter = kh_put(np_conns, &port->conns, conn->qpn, &ret);
    if (ret < 0) {
        goto err;
    }

    kh_value(&port->conns, iter) = conn;
    return 1;

err:
    ibv_destroy_qp(conn->qp);
    return 0;
}

np_conn_t *np_conn_create(np_vport_t *port, int is_link)
{
    np_conn_t *conn = calloc(1, sizeof(*conn));

    if (conn == NULL) {
        goto err;
    }

    conn->port    = port;
    conn->is_link = is_link;
    conn->state   = NP_CONN_CONNECTING;
    conn->sq_mask = ucs_roundup_pow2(port->config.sq_size) - 1;
    conn->sq      = calloc(conn->sq_mask + 1, sizeof(*conn->sq));
    ucs_list_head_init(&conn->streams);
    ucs_list_head_init(&conn->asks);
    ucs_list_head_init(&conn->due);
    ucs_list_head_init(&conn->asking);
    ucs_list_head_init(&conn->replaying);
    ucs_list_head_init(&conn->retry);
    ucs_queue_head_init(&conn->replies);
    ucs_queue_head_init(&conn->late);
    if ((conn->sq == NULL) || !np_conn_create_sent(conn) ||
        !np_conn_start_qp(conn)) {
        goto err_free;
    }

    ucs_list_add_tail(&port->connecting, &conn->list);
    return conn;

err_free:
    free(conn->small);
    free(conn->sent);
    free(conn->sq);
    free(conn);
err:
    np_error("%s: no connection could be made", port->nic->name);
    return NULL;
}

np_conn_t *np_conn_find(np_vport_t *port, uint32_t qpn)
{
    khiter_t iter = kh_get(np_conns, &port->conns, qpn);

    return (iter == kh_end(&port->conns)) ? NULL : kh_value(&port->conns, iter);
}

ucs_status_t np_conn_activate(np_conn_t *conn, const np_hello_t *peer)
{
    np_vport_t *port        = conn->port;
    struct ibv_qp_attr attr = {
        .qp_state           = IBV_QPS_RTR,
        .path_mtu           = ucs_min(port->nic->mtu, (enum ibv_mtu)peer->mtu),
        .dest_qp_num        = peer->qpn,
        .rq_psn             = peer->psn,
        .max_dest_rd_atomic = np_conn_reads(port->nic->device.max_qp_rd_atom),
        .min_rnr_timer      = NP_CONN_RNR_TIMER,
        .ah_attr            = {
            .is_global = port->nic->is_roce,
            .dlid      = peer->lid,
            .port_num  = port->nic->port_num,
            .grh       = {
                .sgid_index = port->nic->gid_index,
                .hop_limit  = 64
            }
        }
    };

    memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
    if (np_conn_modify(conn, &attr, IBV_QP_STATE | IBV_QP_AV |
                       IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                       "RTR") != 0) {
        return UCS_ERR_IO_ERROR;
    }

    memset(&attr, 0, sizeof(attr));
    attr.qp_state      = IBV_QPS_RTS;
    attr.timeout       = port->config.timeout;
    attr.retry_cnt     = port->config.retry_count;
    attr.rnr_retry     = NP_CONN_RNR_FOREVER;
    attr.sq_psn        = conn->psn;
    attr.max_rd_atomic = ucs_min(
            np_conn_reads(port->nic->device.max_qp_init_rd_atom),
            np_conn_reads(peer->reads));
    if (np_conn_modify(conn, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT |
                       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                       IBV_QP_MAX_QP_RD_ATOMIC, "RTS") != 0) {
        return UCS_ERR_IO_ERROR;
    }

    conn->state = NP_CONN_READY;
    ucs_list_del(&conn->list);
    ucs_list_add_tail(&port->ready, &conn->list);
    return UCS_OK;
}

void np_conn_break(np_conn_t *conn)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    if (conn->state != NP_CONN_CONNECTING) { /* else it was never used */
        (void)ibv_modify_qp(conn->qp, &attr, IBV_QP_STATE);
        conn->is_broken = 1;
    }
}

/* Nothing of its queue pair moves any more. Operations see to themselves. */
static void np_conn_stop(np_conn_t *conn)
{
    np_sq_entry_t *entry;
    uint32_t i;

    for (i = conn->sq_head; i != conn->sq_tail; ++i) {
        entry = &conn->sq[i & conn->sq_mask];
        if (entry->waiter != NULL) {
            --conn->port->awaited;
            entry->waiter = NULL;
        }
    }
    np_conn_break(conn);
}

static void np_conn_free_replies(np_conn_t *conn)
{
    np_vreply_t *reply;

    while (!ucs_queue_is_empty(&conn->replies)) {
        reply = ucs_queue_pull_elem_non_empty(&conn->replies, np_vreply_t,
                                              queue);
        free(reply);
    }
}

/* What was posted will not complete any more */
static void np_conn_drop_posted(np_conn_t *conn)
{
    np_sq_entry_t *entry;

    for (; conn->sq_head != conn->sq_tail; ++conn->sq_head) {
        entry = &conn->sq[conn->sq_head & conn->sq_mask];
        if ((entry->buffer != NULL) && !(entry->flags & NP_SQ_KEPT)) {
            np_vport_buffer_put(conn->port, entry->buffer);
        }
        entry->buffer = NULL;
        --conn->port->posted;
    }
    conn->unsignaled = 0;
}

/* From now on its completions belong to no connection, and the device needs
 * neither buffers nor registrations for it. Not before: one that is merely in
 * error may hold a registration until it is destroyed (Soft-RoCE of 6.1, by a
 * write that the error overtakes), and to give that back would take 50 s. */
static void np_conn_end_qp(np_conn_t *conn, struct ibv_qp *qp)
{
    khiter_t iter;

    if (qp == NULL) {
        return;
    }

    iter = kh_get(np_conns, &conn->port->conns, qp->qp_num);
    if (!NP_IS_MUTANT(ANSWER_OF_ANOTHER) &&
        (iter != kh_end(&conn->port->conns))) {
        kh_del(np_conns, &conn->port->conns, iter);
    }
    ibv_destroy_qp(qp);
    conn->is_broken = 0;
    np_lease_end_kept(conn);
    np_conn_drop_posted(conn);
}

/* The link will ask anew for what it was not answered */
static void np_conn_end_answers(np_conn_t *conn)
{
    np_conn_free_replies(conn);
    ucs_list_del(&conn->due);
    ucs_list_head_init(&conn->due);
    conn->ack_due = 0;
    conn->rx_told = conn->rx_seq;
}

ucs_status_t np_conn_renew(np_conn_t *conn)
{
    struct ibv_qp *old = conn->qp;

    np_conn_stop(conn);
    if (!np_conn_start_qp(conn)) {
        conn->qp = old;
        return UCS_ERR_NO_MEMORY;
    }

    np_conn_end_qp(conn, old); /* afterwards: their numbers differ */
    np_late_drop(conn);
    if (!conn->is_link) {
        np_streams_end_served(conn);
        np_conn_end_answers(conn);
    }
    return UCS_OK;
}

static void np_conn_die(np_conn_t *conn, ucs_status_t status)
{
    np_assert(status != UCS_OK);
    if (conn->state == NP_CONN_DEAD) {
        return;
    }

    np_conn_stop(conn);
    np_conn_acked(conn, conn->tx_seq); /* nothing goes again */
    np_late_drop(conn);
    np_replay_drop(conn);
    conn->state  = NP_CONN_DEAD;
    conn->status = status;
    ucs_list_del(&conn->list);
    ucs_list_add_tail(&conn->port->dying, &conn->list);
}

void np_conn_kill(np_conn_t *conn)
{
    conn->link = NULL;
    np_conn_die(conn, UCS_ERR_CANCELED);
    np_conn_end_qp(conn, conn->qp);
    conn->qp = NULL;
}

void np_conn_fail(np_conn_t *conn, ucs_status_t status)
{
    np_vlink_t *link = conn->link;

    if (status == UCS_ERR_NO_RESOURCE) {
        status = UCS_ERR_IO_ERROR; /* for a link that would mean: try again */
    }
    np_conn_die(conn, status);
    if (link != NULL) {
        conn->port->ops->down(link, status);
    }
}

static void np_conn_wait(np_conn_t *conn)
{
    const np_vport_config_t *config = &conn->port->config;
    const uint64_t now              = np_clock();

    conn->state        = NP_CONN_CONNECTING;
    conn->give_up_last = now + np_clock_of_sec(
            ucs_max(config->connect_timeout, config->reconnect_timeout));
    /* a link may notice later than its target */
    conn->give_up      = conn->is_link ?
                         now + np_clock_of_sec(config->reconnect_timeout) :
                         conn->give_up_last;
    ucs_list_del(&conn->list);
    ucs_list_add_tail(&conn->port->connecting, &conn->list);
}

/* Is another queue pair of any use? */
static int np_conn_is_wanted(const np_conn_t *conn)
{
    if (!conn->is_link) {
        return conn->state == NP_CONN_READY;
    }

    return !conn->is_gone &&
           ((conn->link != NULL) || (conn->tx_acked != conn->tx_seq));
}

void np_conn_lost(np_conn_t *conn, ucs_status_t status)
{
    ucs_status_t renewed;

    if ((conn->state == NP_CONN_CONNECTING) || (conn->state == NP_CONN_DEAD)) {
        return; /* it is known */
    }

    if (!np_conn_is_wanted(conn) ||
        !(conn->port->config.reconnect_timeout > 0) ||
        (++conn->replaced > NP_CONN_REPLACE_MAX)) {
        np_conn_fail(conn, status);
        return;
    }

    conn->is_closing = conn->is_link && (conn->link == NULL);
    ucs_debug("nprdma: %s: queue pair %u has failed: %s",
              conn->port->nic->name, conn->qpn, ucs_status_string(status));
    conn->status = status;
    renewed      = np_conn_renew(conn);
    np_conn_wait(conn);
    if (conn->is_link) {
        np_vport_forget(conn->port, conn);
        conn->tx_seen = conn->tx_acked;
        np_replay_pause(conn);
        np_streams_lost(conn);
        if (conn->link != NULL) { /* else only messages are left */
            conn->port->ops->lost(conn->link);
            np_vremote_lost(conn->link);
        }
    }

    if (renewed != UCS_OK) {
        np_conn_fail(conn, status);
    } else if (conn->is_link) {
        ++conn->epoch;
        np_hello_again(conn);
    } else {
        np_hello_reset(conn);
    }
}

void np_conn_check(np_conn_t *conn)
{
    /* the queue pair may be replaced just now, or when the probe is lost */
    conn->is_checked = 1;
    if (np_conn_has_room(conn)) {
        np_conn_probe(conn);
    }
}

void np_conn_close(np_conn_t *conn)
{
    np_vmsg_t bye = {.kind = NP_VMSG_BYE};

    conn->link = NULL;
    if ((conn->replay != NULL) ||
        ((conn->state == NP_CONN_CONNECTING) && (conn->epoch > 0))) {
        conn->is_closing = 1;
        return;
    }

    if (conn->state != NP_CONN_READY) {
        np_conn_die(conn, UCS_ERR_CANCELED);
        return;
    }

    conn->unsignaled = NP_CONN_MODERATION; /* tell when it has gone */
    if (!np_conn_has_room(conn) ||
        !np_conn_send_copied(conn, &bye, sizeof(bye))) {
        np_conn_die(conn, UCS_ERR_CANCELED);
        return;
    }

    conn->state = NP_CONN_CLOSING;
    ucs_list_del(&conn->list);
    ucs_list_add_tail(&conn->port->dying, &conn->list);
}

void np_conn_destroy(np_conn_t *conn)
{
    np_vport_t *port = conn->port;

    np_conn_end_qp(conn, conn->qp);
    np_conn_acked(conn, conn->tx_seq);
    np_late_drop(conn);
    np_replay_drop(conn);
    np_streams_end_served(conn);
    np_conn_free_replies(conn);
    if (conn->ah != NULL) {
        ibv_destroy_ah(conn->ah);
    }
    np_vport_forget(port, conn);
    ucs_list_del(&conn->list);
    ucs_list_del(&conn->due);
    ucs_list_del(&conn->asking);
    np_vserve_cleanup(conn);
    free(conn->small);
    free(conn->sent);
    free(conn->sq);
    free(conn);
}

unsigned np_vport_reap(np_vport_t *port)
{
    np_conn_t *conn, *next;
    unsigned left = 0;

    ucs_list_for_each_safe(conn, next, &port->dying, list) {
        /* a link that is down keeps it until it is closed. Over one in error
         * nothing goes any more, and what was sent before without asking for a
         * completion has none. */
        if ((conn->link != NULL) || ((conn->state != NP_CONN_DEAD) &&
                                     (conn->sq_head != conn->sq_tail))) {
            ++left;
        } else {
            np_conn_destroy(conn);
        }
    }
    return left;
}

/* Everything up to this one has been done */
static void np_conn_release(np_conn_t *conn, uint32_t upto)
{
    np_sq_entry_t *entry;

    for (; conn->sq_head != upto; ++conn->sq_head) {
        entry = &conn->sq[conn->sq_head & conn->sq_mask];
        if (ucs_unlikely(entry->flags & NP_SQ_KEPT)) {
            np_conn_spill(conn, entry);
        } else if (entry->buffer != NULL) {
            np_vport_buffer_put(conn->port, entry->buffer);
        }
        entry->buffer = NULL;
        --conn->port->posted;
        if (entry->waiter != NULL) {
            --conn->port->awaited;
            if (entry->flags & NP_SQ_STREAM) {
                np_stream_moved(entry->stream, entry->number);
            } else {
                conn->port->ops->moved(entry->op, entry->number);
            }
            entry->waiter = NULL;
        }
    }
}

static ucs_status_t np_conn_wc_status(enum ibv_wc_status status)
{
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
        return UCS_ERR_ENDPOINT_TIMEOUT;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
        return UCS_ERR_CONNECTION_RESET;
    default:
        return UCS_ERR_IO_ERROR;
    }
}

/* Would another queue pair do better? */
static int np_conn_is_hopeless(enum ibv_wc_status status)
{
    return (status == IBV_WC_LOC_LEN_ERR) || (status == IBV_WC_LOC_PROT_ERR);
}

void np_conn_completed(np_conn_t *conn, const struct ibv_wc *wc)
{
    uint32_t upto = (uint32_t)wc->wr_id + 1;

    if (ucs_unlikely(wc->status != IBV_WC_SUCCESS)) {
        if (wc->status != IBV_WC_WR_FLUSH_ERR) {
            ucs_debug("nprdma: %s: queue pair %u: %s", conn->port->nic->name,
                      conn->qpn, ibv_wc_status_str(wc->status));
        }
        if (np_conn_is_hopeless(wc->status)) {
            np_conn_fail(conn, UCS_ERR_IO_ERROR);
        } else {
            np_conn_lost(conn, np_conn_wc_status(wc->status));
        }
        return;
    }

    ++conn->heard;
    if ((upto - conn->sq_head) <= (conn->sq_tail - conn->sq_head)) {
        np_conn_release(conn, upto);
    }
}
