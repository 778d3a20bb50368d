/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ports of an RNIC: completion queues, buffers and connections of one
 * interface. Receive buffers are shared by all peers, so what is pinned does
 * not grow with them.
 */

#ifndef NP_VPORT_H_
#define NP_VPORT_H_

#include "vwire.h"

#include "../../proto/vlink.h"

#include <ucs/datastruct/khash.h>
#include <ucs/time/time.h>

typedef struct np_conn np_conn_t;
typedef struct np_vop np_vop_t;

KHASH_MAP_INIT_INT(np_conns, np_conn_t*)

/** Buffers for datagrams of the handshake, beside its 40 bytes of GRH */
#define NP_UD_BUFFERS   16
#define NP_UD_SIZE      (40 + sizeof(np_hello_t))

/** wr_id of what no connection has sent */
#define NP_UD_WR_ID     UINT64_MAX

/** Completions that one poll takes */
#define NP_VPORT_BATCH  32

/** Owner: np_vport_open's caller, whose thread all of it is used by. */
struct np_vport {
    np_vport_config_t       config;
    np_vuser_t              user;
    np_nic_t                *nic;
    uint64_t                cookie;
    struct ibv_comp_channel *channel;
    struct ibv_cq           *send_cq;
    struct ibv_cq           *recv_cq;
    struct ibv_srq          *srq;
    struct ibv_qp           *ud;
    void                    *ud_sent[NP_UD_BUFFERS];
    uint32_t                ud_tail;
    uint32_t                ud_head;
    unsigned                send_cqe;   /**< completions that send_cq can hold */
    unsigned                posted;     /**< work requests that may need one */
    unsigned                max_inline;

    uint8_t                 *slab;      /**< receive, send, datagram buffers */
    size_t                  slab_size;
    struct ibv_mr           *mr;
    unsigned                recv_buffers;
    unsigned                send_buffers;
    void                    *free_send; /**< linked by their first word */
    unsigned                num_free_send;

    khash_t(np_conns)       conns;      /**< by queue pair number */
    uint32_t                generation; /**< of connections */
    ucs_list_link_t         connecting; /**< conn->list */
    ucs_list_link_t         ready;      /**< conn->list */
    ucs_list_link_t         dying;      /**< conn->list: in error, or closing */
    ucs_list_link_t         links;
    ucs_list_link_t         todo;       /**< op->todo: have something to do */
    ucs_list_link_t         replies;    /**< conn->due: owe an answer */
    ucs_list_link_t         down;       /**< link->down: to be reported */

    np_vop_t                **ops;      /**< by name, see np_vop_find */
    unsigned                num_ops;
    np_vop_t                *free_ops;
    ucs_list_link_t         groups;     /**< flushes of the whole port */

    int                     event_fd;   /**< epoll: channel and timer */
    int                     timer_fd;
    unsigned                ticks;
    ucs_time_t              next_look;  /**< for messages that nobody takes */
    struct ibv_wc           stash[NP_VPORT_BATCH]; /**< found when arming */
    int                     num_stash;
};

/** A send buffer of NP_VSEG_SIZE bytes; NULL: none is free now */
static UCS_F_ALWAYS_INLINE void *np_vport_buffer_get(np_vport_t *port)
{
    void *buffer = port->free_send;

    if (ucs_likely(buffer != NULL)) {
        port->free_send = *(void**)buffer;
        --port->num_free_send;
    }
    return buffer;
}

static UCS_F_ALWAYS_INLINE void
np_vport_buffer_put(np_vport_t *port, void *buffer)
{
    *(void**)buffer = port->free_send;
    port->free_send = buffer;
    ++port->num_free_send;
}

#endif
