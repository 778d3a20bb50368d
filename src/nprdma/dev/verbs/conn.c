/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Connections.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "conn.h"

#include "../../engine.h"
#include "../../proto/vop.h"

#include <stdlib.h>
#include <string.h>

/* Every so many work requests ask for a completion */
#define NP_CONN_MODERATION  16

/* Of the responder, in 10 us steps as the specification encodes them: 0.64 ms */
#define NP_CONN_RNR_TIMER   12
#define NP_CONN_RNR_FOREVER 7

/* How long a target is given to answer by its progress before its service thread
 * is woken; and then, until that is done once more: twice as long each time */
#define NP_CONN_RING_FIRST  ucs_time_from_usec(20)
#define NP_CONN_RING_NEXT   ucs_time_from_msec(1)
#define NP_CONN_RING_LAST   ucs_time_from_msec(64)


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
    static const unsigned inlines[] = {256, 128, 64, 0};
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

    port->max_inline = ucs_min(attr.cap.max_inline_data, 256u);
    return qp;
}

np_conn_t *np_conn_create(np_vport_t *port, int is_link)
{
    struct ibv_qp_attr attr = {
        .qp_state        = IBV_QPS_INIT,
        .port_num        = port->nic->port_num,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE
    };
    np_conn_t *conn;
    khiter_t iter;
    int ret;

    conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        goto err;
    }

    conn->port       = port;
    conn->is_link    = is_link;
    conn->state      = NP_CONN_CONNECTING;
    conn->generation = ++port->generation;
    conn->psn        = (uint32_t)ucs_get_time() & 0xffffff;
    conn->sq_mask    = ucs_roundup_pow2(port->config.sq_size) - 1;
    conn->sq         = calloc(conn->sq_mask + 1, sizeof(*conn->sq));
    ucs_list_head_init(&conn->served);
    ucs_list_head_init(&conn->due);
    ucs_list_head_init(&conn->asking);
    ucs_queue_head_init(&conn->replies);
    if (conn->sq == NULL) {
        goto err_free;
    }

    conn->qp = np_conn_create_qp(port, conn);
    if (conn->qp == NULL) {
        goto err_sq;
    }

    conn->qpn = conn->qp->qp_num;
    if (np_conn_modify(conn, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                       IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT") != 0) {
        goto err_qp;
    }

    iter = kh_put(np_conns, &port->conns, conn->qpn, &ret);
    if (ret < 0) {
        goto err_qp;
    }

    kh_value(&port->conns, iter) = conn;
    ucs_list_add_tail(&port->connecting, &conn->list);
    return conn;

err_qp:
    ibv_destroy_qp(conn->qp);
err_sq:
    free(conn->sq);
err_free:
    free(conn);
err:
    np_error("%s: no connection could be made", port->nic->name);
    return NULL;
}

np_conn_t *np_conn_find(np_vport_t *port, uint32_t qpn)
{
    khiter_t iter = kh_get(np_conns, &port->conns, qpn);

    return (iter == kh_end(&port->conns)) ? NULL :
           kh_value(&port->conns, iter);
}

ucs_status_t np_conn_activate(np_conn_t *conn, const np_hello_t *peer)
{
    np_vport_t *port        = conn->port;
    struct ibv_qp_attr attr = {
        .qp_state           = IBV_QPS_RTR,
        .path_mtu           = ucs_min(port->nic->mtu, (enum ibv_mtu)peer->mtu),
        .dest_qp_num        = peer->qpn,
        .rq_psn             = peer->psn,
        .max_dest_rd_atomic = 1,
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
    attr.max_rd_atomic = 1;
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

static void np_conn_die(np_conn_t *conn, ucs_status_t status)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    uint32_t i;

    if (conn->state == NP_CONN_DEAD) {
        return;
    }

    for (i = conn->sq_head; i != conn->sq_tail; ++i) {
        conn->sq[i & conn->sq_mask].op = NULL; /* operations end before */
    }

    conn->state  = NP_CONN_DEAD;
    conn->status = status;
    (void)ibv_modify_qp(conn->qp, &attr, IBV_QP_STATE);
    ucs_list_del(&conn->list);
    ucs_list_add_tail(&conn->port->dying, &conn->list);
}

void np_conn_kill(np_conn_t *conn)
{
    conn->link = NULL;
    np_conn_die(conn, UCS_ERR_CANCELED);
}

void np_conn_fail(np_conn_t *conn, ucs_status_t status)
{
    np_vlink_t *link = conn->link;

    np_conn_die(conn, status);
    if (link != NULL) {
        np_vlink_down(link, status);
    }
}

void np_conn_close(np_conn_t *conn)
{
    np_vmsg_t bye = {.kind = NP_VMSG_BYE};

    conn->link = NULL;
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

static void np_conn_free_replies(np_conn_t *conn)
{
    np_vreply_t *reply;

    while (!ucs_queue_is_empty(&conn->replies)) {
        reply = ucs_queue_pull_elem_non_empty(&conn->replies, np_vreply_t,
                                              queue);
        free(reply);
    }
}

void np_conn_destroy(np_conn_t *conn)
{
    np_vport_t *port = conn->port;
    uint32_t i;
    khiter_t iter;

    np_vop_end_served(conn);
    for (i = conn->sq_head; i != conn->sq_tail; ++i) {
        if (conn->sq[i & conn->sq_mask].buffer != NULL) {
            np_vport_buffer_put(port, conn->sq[i & conn->sq_mask].buffer);
        }
    }
    port->posted -= conn->sq_tail - conn->sq_head;
    np_conn_free_replies(conn);

    iter = kh_get(np_conns, &port->conns, conn->qpn);
    if (iter != kh_end(&port->conns)) {
        kh_del(np_conns, &port->conns, iter);
    }

    if (conn->ah != NULL) {
        ibv_destroy_ah(conn->ah);
    }
    ibv_destroy_qp(conn->qp);
    np_vport_forget(port, conn);
    ucs_list_del(&conn->list);
    ucs_list_del(&conn->due);
    ucs_list_del(&conn->asking);
    free(conn->sq);
    free(conn);
}

unsigned np_vport_reap(np_vport_t *port)
{
    np_conn_t *conn, *next;
    unsigned left = 0;

    ucs_list_for_each_safe(conn, next, &port->dying, list) {
        if ((conn->sq_head != conn->sq_tail) || (conn->link != NULL)) {
            ++left; /* a link that is down keeps it until it is closed */
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
        if (entry->buffer != NULL) {
            np_vport_buffer_put(conn->port, entry->buffer);
            entry->buffer = NULL;
        }
        --conn->port->posted;
        if (entry->op != NULL) {
            np_vmove_posted_done(entry->op, entry->chunk);
            entry->op = NULL;
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

void np_conn_completed(np_conn_t *conn, const struct ibv_wc *wc)
{
    uint32_t upto = (uint32_t)wc->wr_id + 1;

    if (ucs_unlikely(wc->status != IBV_WC_SUCCESS)) {
        if (wc->status != IBV_WC_WR_FLUSH_ERR) {
            np_diag("%s: queue pair %u: %s", conn->port->nic->name, conn->qpn,
                    ibv_wc_status_str(wc->status));
        }
        np_conn_fail(conn, np_conn_wc_status(wc->status));
    }

    if ((upto - conn->sq_head) <= (conn->sq_tail - conn->sq_head)) {
        np_conn_release(conn, upto);
    }
}

void np_conn_look(np_conn_t *conn)
{
    if ((conn->tx_acked != conn->tx_seen) || (conn->tx_acked == conn->tx_seq)) {
        conn->tx_seen  = conn->tx_acked;
        conn->is_asked = 0;
    } else if (!conn->is_asked) {
        conn->is_asked = 1;
        np_conn_owe_ack(conn);
    }
}

/* Ask for a completion now and then, and whenever something is short */
static int np_conn_is_signaled(np_conn_t *conn, int has_buffer)
{
    np_vport_t *port = conn->port;

    if ((++conn->unsignaled >= NP_CONN_MODERATION) ||
        (has_buffer && (port->num_free_send < (port->send_buffers / 2))) ||
        ((conn->sq_tail - conn->sq_head) >= (conn->sq_mask / 2))) {
        conn->unsignaled = 0;
        return 1;
    }
    return 0;
}

static void np_conn_post(np_conn_t *conn, struct ibv_send_wr *wr, void *buffer,
                         np_vop_t *op, uint32_t chunk)
{
    np_sq_entry_t *entry = &conn->sq[conn->sq_tail & conn->sq_mask];
    struct ibv_send_wr *bad;
    int ret;

    wr->wr_id = ((uint64_t)conn->generation << 32) | conn->sq_tail;
    entry->buffer = buffer;
    entry->op     = op;
    entry->chunk  = chunk;
    ret           = ibv_post_send(conn->qp, wr, &bad);
    if (ucs_unlikely(ret != 0)) {
        np_error("%s: queue pair %u takes no request: %s",
                 conn->port->nic->name, conn->qpn, strerror(ret));
        if (buffer != NULL) {
            np_vport_buffer_put(conn->port, buffer);
        }
        entry->buffer = NULL;
        entry->op     = NULL;
        np_conn_fail(conn, UCS_ERR_IO_ERROR);
        return;
    }

    ++conn->sq_tail;
    ++conn->port->posted;
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

/* Link: from now on somebody waits for an answer */
static UCS_F_ALWAYS_INLINE void np_conn_asks(np_conn_t *conn, np_vmsg_t *msg)
{
    if (ucs_unlikely(conn->is_distant) ||
        (np_engine.config.service == NP_SERVICE_EVENT)) {
        msg->flags |= NP_VMSG_WAKE;
    }
    if (ucs_list_is_empty(&conn->asking)) {
        conn->ring_at   = 0;
        conn->ring_next = NP_CONN_RING_NEXT;
        ucs_list_add_tail(&conn->port->asking, &conn->asking);
    }
}

static int np_conn_is_waiting(const np_conn_t *conn)
{
    return (conn->state == NP_CONN_READY) && (conn->link != NULL) &&
           ((conn->link->outstanding > 0) ||
            ((int32_t)(conn->tx_wanted - conn->tx_acked) > 0));
}

static void np_conn_ring(np_conn_t *conn)
{
    np_vmsg_t ack = {.kind = NP_VMSG_ACK, .flags = NP_VMSG_ACK_NOW |
                                                   NP_VMSG_WAKE};

    (void)np_conn_send_copied(conn, &ack, sizeof(ack));
}

static void np_conn_stop_asking(np_conn_t *conn)
{
    ucs_list_del(&conn->asking);
    ucs_list_head_init(&conn->asking);
}

void np_conn_ring_late(np_vport_t *port)
{
    ucs_time_t now = ucs_get_time();
    np_conn_t *conn, *next;

    ucs_list_for_each_safe(conn, next, &port->asking, asking) {
        if (!np_conn_is_waiting(conn)) {
            np_conn_stop_asking(conn);
        } else if (conn->ring_at == 0) {
            conn->ring_at = now + NP_CONN_RING_FIRST;
        } else if (now >= conn->ring_at) {
            conn->ring_at   = now + conn->ring_next;
            conn->ring_next = ucs_min(2 * conn->ring_next, NP_CONN_RING_LAST);
            np_conn_ring(conn);
        }
    }
}

void np_conn_ring_all(np_vport_t *port)
{
    np_conn_t *conn, *next;

    ucs_list_for_each_safe(conn, next, &port->asking, asking) {
        if (np_conn_is_waiting(conn)) {
            np_conn_ring(conn);
        }
        np_conn_stop_asking(conn);
    }
}

void np_conn_heard(np_conn_t *conn, unsigned flags)
{
    conn->is_distant = !!(flags & NP_VMSG_DISTANT);
    conn->ring_at    = 0;
    conn->ring_next  = NP_CONN_RING_NEXT;
}

/* What every message tells beside what it is for */
static UCS_F_ALWAYS_INLINE void np_conn_fill(np_conn_t *conn, np_vmsg_t *msg)
{
    unsigned half = ucs_max(conn->port->config.credits / 2, 1u);

    if (!conn->is_link) {
        if (ucs_queue_is_empty(&conn->replies)) {
            conn->rx_told = conn->rx_seq;
            conn->ack_due = 0;
        }
        msg->ack = conn->rx_told;
        if (ucs_unlikely(conn->port->is_thread)) {
            msg->flags |= NP_VMSG_DISTANT;
        }
        return;
    }

    if ((msg->kind != NP_VMSG_ACK) && (msg->kind != NP_VMSG_BYE) &&
        ((++conn->tx_seq % half) == 0)) {
        msg->flags |= NP_VMSG_ACK_NOW;
    }
    if ((msg->kind != NP_VMSG_AM) && (msg->kind != NP_VMSG_PUT)) {
        np_conn_asks(conn, msg);
    }
}

static void np_conn_post_message(np_conn_t *conn, void *msg, size_t len,
                                 void *buffer)
{
    struct ibv_sge sge = {
        .addr   = (uintptr_t)msg,
        .length = len,
        .lkey   = conn->port->mr->lkey
    };
    struct ibv_send_wr wr = {
        .sg_list    = &sge,
        .num_sge    = 1,
        .opcode     = IBV_WR_SEND,
        .send_flags = (buffer == NULL) ? IBV_SEND_INLINE : 0
    };

    if (np_conn_is_signaled(conn, buffer != NULL)) {
        wr.send_flags |= IBV_SEND_SIGNALED;
    }
    if (ucs_unlikely(((const np_vmsg_t*)msg)->flags & NP_VMSG_WAKE)) {
        wr.send_flags |= IBV_SEND_SOLICITED;
    }
    np_conn_post(conn, &wr, buffer, NULL, 0);
}

void np_conn_send(np_conn_t *conn, np_vmsg_t *msg, size_t len)
{
    np_conn_fill(conn, msg);
    if (len <= conn->port->max_inline) {
        np_conn_post_message(conn, msg, len, NULL);
        np_vport_buffer_put(conn->port, msg);
    } else {
        np_conn_post_message(conn, msg, len, msg);
    }
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
        np_conn_post_message(conn, msg, len, NULL);
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

void np_conn_write(np_conn_t *conn, const void *local, uint32_t lkey,
                   uint64_t remote, uint32_t rkey, size_t len,
                   const uint32_t *imm, np_vop_t *op, uint32_t chunk)
{
    struct ibv_sge sge    = {
        .addr   = (uintptr_t)local,
        .length = len,
        .lkey   = lkey
    };
    struct ibv_send_wr wr = {
        .sg_list    = &sge,
        .num_sge    = 1,
        .opcode     = (imm == NULL) ? IBV_WR_RDMA_WRITE :
                      IBV_WR_RDMA_WRITE_WITH_IMM,
        .send_flags = IBV_SEND_SIGNALED,
        .imm_data   = (imm == NULL) ? 0 : *imm,
        .wr.rdma    = {
            .remote_addr = remote,
            .rkey        = rkey
        }
    };

    if ((imm != NULL) && conn->is_distant) {
        wr.send_flags |= IBV_SEND_SOLICITED;
    }
    conn->unsignaled = 0;
    np_conn_post(conn, &wr, NULL, op, chunk);
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
