/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The handshake.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "hello.h"

#include "../../engine.h"
#include "../../proto/vop.h"

#include <string.h>

/* The first repetition; each later one waits twice as long, up to the last */
#define NP_HELLO_INTERVAL      ucs_time_from_msec(50)
#define NP_HELLO_INTERVAL_MAX  ucs_time_from_sec(1)

/* Links of this process, of all its ports: with the process's number, the name
 * of one */
static _Atomic uint32_t np_hello_links;


static struct ibv_ah *
np_hello_address(np_vport_t *port, const uint8_t *gid, uint16_t lid)
{
    struct ibv_ah_attr attr = {
        .is_global = port->nic->is_roce,
        .dlid      = lid,
        .port_num  = port->nic->port_num,
        .grh       = {
            .sgid_index = port->nic->gid_index,
            .hop_limit  = 64
        }
    };
    struct ibv_ah *ah;

    memcpy(attr.grh.dgid.raw, gid, 16);
    ah = ibv_create_ah(port->nic->pd, &attr);
    if (ah == NULL) {
        np_diag("%s: no way to a peer's address: %m", port->nic->name);
    }
    return ah;
}

/* Datagrams are lost without a word: whoever needs an answer repeats */
static void np_hello_send(np_vport_t *port, struct ibv_ah *ah, uint32_t qpn,
                          const np_hello_t *hello)
{
    struct ibv_send_wr wr, *bad;
    struct ibv_sge sge;
    void *buffer;

    if ((ah == NULL) || ((port->ud_tail - port->ud_head) == NP_UD_BUFFERS)) {
        return;
    }

    buffer = np_vport_buffer_get(port);
    if (buffer == NULL) {
        return;
    }

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
    if (ibv_post_send(port->ud, &wr, &bad) != 0) {
        np_vport_buffer_put(port, buffer);
        return;
    }

    /* they complete in order */
    port->ud_sent[port->ud_tail++ % NP_UD_BUFFERS] = buffer;
}

void np_hello_sent(np_vport_t *port)
{
    np_vport_buffer_put(port, port->ud_sent[port->ud_head++ % NP_UD_BUFFERS]);
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
        .qpn       = conn->qpn,
        .psn       = conn->psn,
        .ud_qpn    = conn->port->ud->qp_num,
        .lid       = nic->port.lid,
        .is_roce   = nic->is_roce,
        .mtu       = nic->mtu
    };
    memcpy(conn->hello.gid, nic->gid.raw, sizeof(conn->hello.gid));
}

void np_hello_begin(np_conn_t *conn, const np_vdev_addr_t *dev_addr,
                    const np_vport_addr_t *addr)
{
    np_vport_t *port = conn->port;

    conn->engine_id = np_engine.id;
    conn->link_id   = atomic_fetch_add(&np_hello_links, 1) + 1;
    conn->ud_qpn    = addr->qpn;
    conn->interval  = NP_HELLO_INTERVAL;
    conn->next_try  = ucs_get_time();
    conn->give_up   = conn->next_try +
                      ucs_time_from_sec(port->config.connect_timeout);
    conn->ah        = np_hello_address(port, dev_addr->gid, dev_addr->lid);
    np_hello_fill(conn, NP_HELLO_REQUEST, addr->cookie);
    np_hello_progress(port);
}

void np_hello_progress(np_vport_t *port)
{
    ucs_time_t now = ucs_get_time();
    np_conn_t *conn, *next;

    ucs_list_for_each_safe(conn, next, &port->connecting, list) {
        if (!conn->is_link) {
            continue;
        }

        if (now >= conn->give_up) {
            np_diag("%s: no answer from a peer within %.0f s: is it there, and "
                    "does its RNIC reach ours (ping its address)? "
                    "UCX_NPRDMA_CONNECT_TIMEOUT is how long to wait",
                    port->nic->name, port->config.connect_timeout);
            np_conn_fail(conn, UCS_ERR_ENDPOINT_TIMEOUT);
        } else if (now >= conn->next_try) {
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

static void np_hello_refuse(np_vport_t *port, const np_hello_t *hello,
                            ucs_status_t status)
{
    np_hello_t answer = *hello;
    struct ibv_ah *ah = np_hello_address(port, hello->gid, hello->lid);

    answer.kind    = NP_HELLO_REFUSE;
    answer.version = NP_VWIRE_VERSION;
    answer.status  = status;
    np_hello_send(port, ah, hello->ud_qpn, &answer);
    if (ah != NULL) {
        ibv_destroy_ah(ah); /* what was posted keeps what it needs of it */
    }
}

static void np_hello_requested(np_vport_t *port, const np_hello_t *hello)
{
    np_conn_t *conn;

    if (hello->version != NP_VWIRE_VERSION) {
        np_hello_refuse(port, hello, UCS_ERR_UNSUPPORTED);
        return;
    }

    if (hello->cookie != port->cookie) {
        np_hello_refuse(port, hello, UCS_ERR_UNREACHABLE);
        return;
    }

    conn = np_hello_find(port, hello);
    if (conn == NULL) {
        conn = np_conn_create(port, 0);
        if (conn == NULL) {
            np_hello_refuse(port, hello, UCS_ERR_NO_MEMORY);
            return;
        }

        conn->engine_id = hello->engine_id;
        conn->link_id   = hello->link_id;
        conn->ud_qpn    = hello->ud_qpn;
        conn->ah        = np_hello_address(port, hello->gid, hello->lid);
        np_hello_fill(conn, NP_HELLO_REPLY, hello->cookie);
        if (np_conn_activate(conn, hello) != UCS_OK) {
            np_conn_fail(conn, UCS_ERR_IO_ERROR);
            np_hello_refuse(port, hello, UCS_ERR_IO_ERROR);
            return;
        }
    } else if (conn->state == NP_CONN_DEAD) {
        return; /* the link will hear of it from its own queue pair */
    }

    np_hello_send(port, conn->ah, conn->ud_qpn, &conn->hello);
}

static void np_hello_answered(np_vport_t *port, const np_hello_t *hello)
{
    np_conn_t *conn;

    ucs_list_for_each(conn, &port->connecting, list) {
        if (!conn->is_link || (conn->engine_id != hello->engine_id) ||
            (conn->link_id != hello->link_id) ||
            (conn->hello.cookie != hello->cookie)) {
            continue;
        }

        if (hello->kind == NP_HELLO_REFUSE) {
            np_diag("%s: a peer refuses to connect: %s", port->nic->name,
                    ucs_status_string(hello->status));
            np_conn_fail(conn, (hello->status < 0) ? hello->status :
                         UCS_ERR_UNREACHABLE);
        } else if (np_conn_activate(conn, hello) != UCS_OK) {
            np_conn_fail(conn, UCS_ERR_IO_ERROR);
        } else {
            np_vlink_connected(conn->link);
        }
        return;
    }
    /* else a repeated answer */
}

void np_hello_received(np_vport_t *port, const void *data, size_t len)
{
    np_hello_t hello;

    if (len < sizeof(hello)) {
        return; /* a stranger's */
    }

    memcpy(&hello, data, sizeof(hello));
    if (hello.magic != NP_VWIRE_MAGIC) {
        return;
    }

    switch (hello.kind) {
    case NP_HELLO_REQUEST:
        np_hello_requested(port, &hello);
        break;
    case NP_HELLO_REPLY:
    case NP_HELLO_REFUSE:
        if (hello.engine_id == np_engine.id) {
            np_hello_answered(port, &hello);
        }
        break;
    default:
        break;
    }
}
