/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The handshake.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "hello.h"

#include "replay.h"

#include "../../engine.h"

#include <string.h>

/* The first repetition; each later one waits twice as long, up to the last */
#define NP_HELLO_INTERVAL      (50 * NP_CLOCK_MSEC)
#define NP_HELLO_INTERVAL_MAX  (1 * NP_CLOCK_SEC)

/* Links of this process, of all its ports: with the process's number, the name
 * of one */
static _Atomic uint32_t np_hello_links;


static void np_hello_post(np_vport_t *port, struct ibv_ah *ah, uint32_t qpn,
                          const np_hello_t *hello)
{
    struct ibv_send_wr wr, *bad;
    struct ibv_sge sge;
    void *buffer;

    if ((ah == NULL) || ((port->ud_tail - port->ud_head) == NP_UD_BUFFERS)) {
        return;
    }

    /* they complete in order */
    buffer = np_vport_hello_buffer(port, port->ud_tail % NP_UD_BUFFERS);
    memcpy(buffer, hello, sizeof(*hello));
    sge = (struct ibv_sge){
        .addr   = (uintptr_t)buffer,
        .length = sizeof(*hello),
        .lkey   = port->mr->lkey
    };
    memset(&wr, 0, sizeof(wr));
    wr.wr_id             = NP_UD_WR_ID;
    wr.sg_list           = &sge;
    wr.num_sge           = 1;
    wr.opcode            = IBV_WR_SEND;
    wr.send_flags        = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
    wr.wr.ud.ah          = ah;
    wr.wr.ud.remote_qpn  = qpn;
    wr.wr.ud.remote_qkey = NP_HELLO_QKEY;
    if (ibv_post_send(port->ud, &wr, &bad) == 0) {
        ++port->ud_tail;
    }
}

/* Datagrams are lost without a word: a sender that needs an answer repeats */
static void np_hello_send(np_vport_t *port, struct ibv_ah *ah, uint32_t qpn,
                          const np_hello_t *hello)
{
    unsigned mischief = port->config.mischief;

    if ((mischief & NP_HELLO_LOSE) && ((++port->ud_lost % 2) == 1)) {
        return;
    }
    np_hello_post(port, ah, qpn, hello);
    if (mischief & NP_HELLO_TWICE) {
        np_hello_post(port, ah, qpn, hello);
    }
}

void np_hello_sent(np_vport_t *port)
{
    ++port->ud_head;
}

static void np_hello_fill(np_conn_t *conn, np_hello_kind_t kind,
                          uint64_t cookie)
{
    np_nic_t *nic = conn->port->nic;

    conn->hello = (np_hello_t){
        .magic     = NP_VWIRE_MAGIC,
        .version   = NP_VWIRE_VERSION,
        .kind      = kind,
        .engine_id = conn->engine_id,
        .cookie    = cookie,
        .link_id   = conn->link_id,
        .epoch     = conn->epoch,
        .credits   = conn->is_link ? conn->port->config.credits :
                     ucs_max(conn->port->recv_buffers / 2, 1u),
        .taken     = conn->rx_seq,
        .status    = conn->put_status,
        .qpn       = conn->qpn,
        .psn       = conn->psn,
        .ud_qpn    = conn->port->ud->qp_num,
        .lid       = nic->port.lid,
        .is_roce   = nic->is_roce,
        .mtu       = nic->mtu,
        .reads     = np_conn_reads(nic->device.max_qp_rd_atom)
    };
    memcpy(conn->hello.gid, nic->gid.raw, sizeof(conn->hello.gid));
}

/* Where the other side is, and the way there */
static void np_hello_find_way(np_conn_t *conn, const uint8_t *gid, uint16_t lid)
{
    memcpy(conn->dev_addr.gid, gid, sizeof(conn->dev_addr.gid));
    conn->dev_addr.lid = lid;
    conn->ah           = np_nic_address(conn->port->nic, gid, lid);
}

/* Ask for a connection */
static void np_hello_begin(np_conn_t *conn, const np_vdev_addr_t *dev_addr,
                           const np_vport_addr_t *addr)
{
    np_vport_t *port = conn->port;

    conn->engine_id = np_engine.id;
    conn->link_id   = atomic_fetch_add(&np_hello_links, 1) + 1;
    conn->ud_qpn    = addr->qpn;
    conn->interval  = NP_HELLO_INTERVAL;
    conn->next_try  = np_clock();
    conn->give_up   = conn->next_try +
                      np_clock_of_sec(port->config.connect_timeout);
    np_hello_find_way(conn, dev_addr->gid, dev_addr->lid);
    np_hello_fill(conn, NP_HELLO_REQUEST, addr->cookie);
    np_hello_progress(port);
}

int np_conn_connect(np_vlink_t *link)
{
    np_conn_t *conn = np_conn_create(link->port, 1);

    link->conn = conn;
    if (conn == NULL) {
        return 0;
    }

    conn->link = link;
    np_hello_begin(conn, &link->dev_addr, &link->addr);
    return 1;
}

void np_hello_again(np_conn_t *conn)
{
    conn->interval = NP_HELLO_INTERVAL;
    conn->next_try = np_clock();
    np_hello_fill(conn, NP_HELLO_REQUEST, conn->hello.cookie);
}

static void np_hello_tell(np_conn_t *conn, np_hello_kind_t kind)
{
    np_hello_t hello = conn->hello;

    hello.kind = kind;
    np_hello_send(conn->port, conn->ah, conn->ud_qpn, &hello);
}

void np_hello_reset(np_conn_t *conn)
{
    np_hello_tell(conn, NP_HELLO_RESET);
}

void np_hello_gone(np_conn_t *conn)
{
    np_hello_tell(conn, NP_HELLO_GONE);
}

static void np_hello_give_up(np_conn_t *conn)
{
    np_vport_t *port = conn->port;

    if (!conn->is_link) {
        np_conn_fail(conn, conn->status); /* the link has not come back */
    } else if (conn->epoch > 0) {
        np_diag("%s: a queue pair has failed (%s), and the peer does not answer "
                "for %.1f s: is it there? UCX_NPRDMA_VERBS_RECONNECT is how "
                "long to try", port->nic->name,
                ucs_status_string(conn->status),
                port->config.reconnect_timeout);
        np_conn_fail(conn, conn->status);
    } else {
        np_diag("%s: no answer from a peer within %.0f s: is it there, and "
                "does its RNIC reach ours (ping its address)? "
                "UCX_NPRDMA_CONNECT_TIMEOUT is how long to wait",
                port->nic->name, port->config.connect_timeout);
        np_conn_fail(conn, UCS_ERR_ENDPOINT_TIMEOUT);
    }
}

void np_hello_progress(np_vport_t *port)
{
    const uint64_t now = np_clock();
    np_conn_t *conn, *next;

    ucs_list_for_each_safe(conn, next, &port->connecting, list) {
        if (np_nic_is_down(port->nic) && conn->is_link && (conn->epoch > 0)) {
            /* our own port's fault: wait, within bounds */
            conn->give_up = ucs_min(conn->give_up_last, now + np_clock_of_sec(
                    port->config.reconnect_timeout));
        }

        if (now >= conn->give_up) {
            np_hello_give_up(conn);
        } else if (conn->is_link && (now >= conn->next_try)) {
            np_hello_send(port, conn->ah, conn->ud_qpn, &conn->hello);
            conn->next_try = now + conn->interval;
            conn->interval = ucs_min(2 * conn->interval,
                                     NP_HELLO_INTERVAL_MAX);
        }
    }
}

/* The answering side's connection of this link, if it was asked for before */
static np_conn_t *np_hello_find(np_vport_t *port, const np_hello_t *hello)
{
    np_conn_t *conn;

    kh_foreach_value(&port->conns, conn,
        if (!conn->is_link && (conn->engine_id == hello->engine_id) &&
            (conn->link_id == hello->link_id)) {
            return conn;
        }
    );
    return NULL;
}

static void np_hello_answer_no(np_vport_t *port, const np_hello_t *hello,
                               struct ibv_ah *ah, ucs_status_t status)
{
    np_hello_t answer = *hello;

    answer.kind    = NP_HELLO_REFUSE;
    answer.version = NP_VWIRE_VERSION;
    answer.status  = status;
    np_hello_send(port, ah, hello->ud_qpn, &answer);
}

/* Refuse a peer that knows our cookie */
static void np_hello_refuse(np_vport_t *port, const np_hello_t *hello,
                            ucs_status_t status)
{
    struct ibv_ah *ah = np_nic_address(port->nic, hello->gid, hello->lid);

    np_hello_answer_no(port, hello, ah, status);
    if (ah != NULL) {
        ibv_destroy_ah(ah); /* what was posted keeps what it needs of it */
    }
}

/* Refuse a stranger, which may have named any address: to make a way to one may
 * take seconds, in which the kernel asks the network. So only a stranger that
 * is where a peer of ours is hears of it; others give up by themselves. */
static void np_hello_refuse_stranger(np_vport_t *port, const np_hello_t *hello,
                                     ucs_status_t status)
{
    np_conn_t *conn;

    kh_foreach_value(&port->conns, conn,
        if ((conn->ah != NULL) && (conn->dev_addr.lid == hello->lid) &&
            (memcmp(conn->dev_addr.gid, hello->gid, sizeof(hello->gid)) ==
             0)) {
            np_hello_answer_no(port, hello, conn->ah, status);
            return;
        }
    );
    ucs_debug("nprdma: %s: a stranger's request to connect is dropped",
              port->nic->name);
}

/* A link's first queue pair, or another one; NULL: it cannot be */
static np_conn_t *
np_hello_accept(np_vport_t *port, np_conn_t *conn, const np_hello_t *hello)
{
    if (conn == NULL) {
        conn = np_conn_create(port, 0);
        if (conn == NULL) {
            return NULL;
        }

        conn->engine_id = hello->engine_id;
        conn->link_id   = hello->link_id;
        conn->credits   = hello->credits;
        conn->ud_qpn    = hello->ud_qpn;
        np_hello_find_way(conn, hello->gid, hello->lid);
    } else if ((conn->state == NP_CONN_READY) &&
               (np_conn_renew(conn) != UCS_OK)) {
        np_conn_fail(conn, UCS_ERR_NO_MEMORY);
        return NULL;
    }

    conn->epoch = hello->epoch;
    np_hello_fill(conn, NP_HELLO_REPLY, hello->cookie);
    if (np_conn_activate(conn, hello) != UCS_OK) {
        np_conn_fail(conn, UCS_ERR_IO_ERROR);
        return NULL;
    }
    return conn;
}

static void np_hello_requested(np_vport_t *port, const np_hello_t *hello)
{
    np_conn_t *conn;

    if (hello->version != NP_VWIRE_VERSION) {
        np_hello_refuse_stranger(port, hello, UCS_ERR_UNSUPPORTED);
        return;
    }

    if (hello->cookie != port->cookie) {
        np_hello_refuse_stranger(port, hello, UCS_ERR_UNREACHABLE);
        return;
    }

    conn = np_hello_find(port, hello);
    if ((conn != NULL) && (hello->epoch < conn->epoch)) {
        return; /* late */
    }

    if ((conn == NULL) ? (hello->epoch > 0) : (conn->state == NP_CONN_DEAD)) {
        np_hello_refuse(port, hello, UCS_ERR_CONNECTION_RESET);
        return;
    }

    if ((conn == NULL) || (hello->epoch > conn->epoch) ||
        (conn->state == NP_CONN_CONNECTING)) {
        conn = np_hello_accept(port, conn, hello);
        if (conn == NULL) {
            np_hello_refuse(port, hello, UCS_ERR_NO_MEMORY);
            return;
        }
    }

    np_hello_send(port, conn->ah, conn->ud_qpn, &conn->hello);
}

static void np_hello_replied(np_conn_t *conn, const np_hello_t *hello)
{
    conn->credits = ucs_max(ucs_min(conn->port->config.credits,
                                    hello->credits), 1u);
    if (np_conn_activate(conn, hello) != UCS_OK) {
        np_conn_fail(conn, UCS_ERR_IO_ERROR);
    } else if (hello->status != UCS_OK) {
        np_conn_fail(conn, np_status_of_peer(hello->status));
    } else if (conn->epoch == 0) {
        /* what waits is tried in each progress */
        np_debug("%s: connected by queue pair %u", conn->port->nic->name,
                 conn->qpn);
    } else {
        np_replay_begin(conn, hello->taken);
    }
}

static void np_hello_refused(np_conn_t *conn, const np_hello_t *hello)
{
    ucs_status_t status = np_status_of_peer(hello->status);

    np_diag("%s: a peer refuses to connect%s: %s", conn->port->nic->name,
            (conn->epoch > 0) ? " again" : "", ucs_status_string(status));
    np_conn_fail(conn, (status != UCS_OK) ? status : UCS_ERR_UNREACHABLE);
}

/* About a link of ours */
static void np_hello_answered(np_conn_t *conn, const np_hello_t *hello)
{
    int is_waiting = conn->state == NP_CONN_CONNECTING;

    switch (hello->kind) {
    case NP_HELLO_REPLY:
        if (is_waiting) { /* else it is a repeated answer */
            np_hello_replied(conn, hello);
        }
        break;
    case NP_HELLO_REFUSE:
        if (is_waiting) {
            np_hello_refused(conn, hello);
        }
        break;
    case NP_HELLO_RESET:
        np_conn_lost(conn, UCS_ERR_CONNECTION_RESET);
        break;
    default:
        conn->is_gone = 1; /* an error only for what still wants it */
        if (is_waiting) {
            np_conn_fail(conn, (conn->status != UCS_OK) ? conn->status :
                         UCS_ERR_CONNECTION_RESET);
        }
        break;
    }
}

/* The link of ours that a datagram is about; NULL: none */
static np_conn_t *np_hello_find_link(np_vport_t *port, const np_hello_t *hello)
{
    np_conn_t *conn;

    if (hello->engine_id != np_engine.id) {
        return NULL;
    }

    kh_foreach_value(&port->conns, conn,
        if (conn->is_link && ((conn->link != NULL) || conn->is_closing) &&
            (conn->link_id == hello->link_id) &&
            (conn->epoch == hello->epoch) &&
            (conn->hello.cookie == hello->cookie)) {
            return conn;
        }
    );
    return NULL;
}

void np_hello_received(np_vport_t *port, const void *data, size_t len)
{
    np_hello_t hello;
    np_conn_t *conn;

    if (len < sizeof(hello)) {
        return; /* a stranger's */
    }

    memcpy(&hello, data, sizeof(hello));
    if (hello.magic != NP_VWIRE_MAGIC) {
        return;
    }

    if (hello.kind == NP_HELLO_REQUEST) {
        np_hello_requested(port, &hello);
    } else if (hello.kind <= NP_HELLO_GONE) {
        conn = np_hello_find_link(port, &hello);
        if (conn != NULL) {
            np_hello_answered(conn, &hello);
        }
    }
}

void np_vport_post_ud(np_vport_t *port, uint64_t index)
{
    struct ibv_sge sge     = {
        .addr   = (uintptr_t)np_vport_ud_buffer(port, index),
        .length = NP_UD_SIZE,
        .lkey   = port->mr->lkey
    };
    struct ibv_recv_wr wr  = {
        .wr_id   = index,
        .sg_list = &sge,
        .num_sge = 1
    };
    struct ibv_recv_wr *bad;

    if (port->is_ud_broken) {
        return; /* all are posted when it is started again */
    }

    if (ibv_post_recv(port->ud, &wr, &bad) != 0) {
        np_error("%s: a buffer of the handshake is lost", port->nic->name);
    }
}

void np_vport_restart_ud(np_vport_t *port)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    unsigned i;

    if (ibv_modify_qp(port->ud, &attr, IBV_QP_STATE) != 0) {
        return; /* later */
    }

    /* whatever it has completed was before that */
    while ((np_vport_poll_recv(port) > 0) || (np_vport_poll_send(port) > 0)) {
    }
    while (port->ud_head != port->ud_tail) {
        np_hello_sent(port);
    }

    if (np_nic_start_ud(port->nic, port->ud, NP_HELLO_QKEY) != UCS_OK) {
        return;
    }
    port->is_ud_broken = 0;
    for (i = 0; i < NP_UD_BUFFERS; ++i) {
        np_vport_post_ud(port, i);
    }
}
