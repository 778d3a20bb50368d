/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Connections: one reliable queue pair each, made by a link's side. The link
 * sends requests and active messages, the other side answers on the same queue
 * pair; so simultaneous connects need no rule.
 */

#ifndef NP_CONN_H_
#define NP_CONN_H_

#include "vport.h"

typedef enum np_conn_state {
    NP_CONN_CONNECTING,  /**< REQUEST was sent, or is to be */
    NP_CONN_READY,
    NP_CONN_CLOSING,     /**< BYE was sent */
    NP_CONN_DEAD         /**< in error: what was posted comes back */
} np_conn_state_t;

/** A work request that was posted */
typedef struct np_sq_entry {
    void     *buffer;    /**< to be given back, or NULL */
    np_vop_t *op;        /**< a write of it, or NULL */
    uint32_t chunk;      /**< which of its chunks */
} np_sq_entry_t;

/** Owner: its port. */
struct np_conn {
    ucs_list_link_t list;
    ucs_list_link_t due;         /**< of port->replies, or alone */
    ucs_list_link_t asking;      /**< link: of port->asking, or alone */
    np_vport_t      *port;
    np_vlink_t      *link;       /**< NULL: the answering side, or closed */
    int             is_link;
    np_conn_state_t state;
    ucs_status_t    status;      /**< why it is dead */
    struct ibv_qp   *qp;
    uint32_t        qpn;
    uint32_t        generation;
    uint32_t        psn;

    np_sq_entry_t   *sq;
    uint32_t        sq_mask;
    uint32_t        sq_tail;     /**< posted */
    uint32_t        sq_head;     /**< completed */
    unsigned        unsignaled;

    uint32_t        tx_seq;      /**< link: messages sent */
    uint32_t        tx_acked;    /**< link: of these, taken by the target */
    uint32_t        tx_seen;     /**< tx_acked at the last look */
    int             is_asked;    /**< link: an ack was asked for since */
    uint32_t        tx_wanted;   /**< link: up to here somebody waits for acks */
    int             is_distant;  /**< link: a service thread answered the last
                                      request: wake it for the next one */
    ucs_time_t      ring_at;     /**< link: when to wake it; 0: not known yet */
    ucs_time_t      ring_next;   /**< link: how long to wait then */
    uint32_t        rx_seq;      /**< answering side: messages taken */
    uint32_t        rx_told;     /**< of these, those that an ack may cover: not
                                      while an error of one waits for room */
    int             ack_due;     /**< answering side: say how far; link: ask */
    ucs_queue_head_t replies;    /**< np_vreply_t that found no room */
    ucs_list_link_t served;      /**< answering side: np_vop_t in work */
    unsigned        num_served;

    /* handshake */
    uint64_t        engine_id;   /**< of the link's process */
    uint32_t        link_id;
    np_hello_t      hello;       /**< what we have said */
    np_vdev_addr_t  dev_addr;    /**< where the other side is */
    uint32_t        ud_qpn;
    struct ibv_ah   *ah;
    ucs_time_t      next_try;
    ucs_time_t      give_up;
    ucs_time_t      interval;
};

/** An answer that waits for room */
typedef struct np_vreply {
    ucs_queue_elem_t queue;
    np_vctl_t        ctl;
} np_vreply_t;

/** A queue pair in state INIT, and its record; NULL: logged */
np_conn_t *np_conn_create(np_vport_t *port, int is_link);

/** To RTR and RTS. UCS_ERR_IO_ERROR: logged. */
ucs_status_t np_conn_activate(np_conn_t *conn, const np_hello_t *peer);

/** It does not work any more; its link is told */
void np_conn_fail(np_conn_t *conn, ucs_status_t status);

/** Its link ends it at once, whatever is under way */
void np_conn_kill(np_conn_t *conn);

/** Nobody uses it: end it when all is sent */
void np_conn_close(np_conn_t *conn);

/** Free what is dead and drained; returns how many are left */
unsigned np_vport_reap(np_vport_t *port);

/** Free it at once; nothing of it may be in progress */
void np_conn_destroy(np_conn_t *conn);

np_conn_t *np_conn_find(np_vport_t *port, uint32_t qpn);

/** A completion of its send queue */
void np_conn_completed(np_conn_t *conn, const struct ibv_wc *wc);

/** Begin a message in a buffer; NULL: no room */
np_vmsg_t *np_conn_begin(np_conn_t *conn, np_vmsg_kind_t kind);

/** Send it, @a len bytes with the header; the buffer is not the caller's any
 *  more */
void np_conn_send(np_conn_t *conn, np_vmsg_t *msg, size_t len);

/** Give it back unsent */
void np_conn_drop(np_conn_t *conn, np_vmsg_t *msg);

/** Send a message that is copied at once; returns 0: no room */
int np_conn_send_copied(np_conn_t *conn, np_vmsg_t *msg, size_t len);

/** Send it now, or as soon as there is room. Answering side. */
void np_conn_reply(np_conn_t *conn, const np_vctl_t *ctl);

/** Answering side: tell how many messages were taken; link: ask for that */
void np_conn_owe_ack(np_conn_t *conn);

/** Links that have waited for an answer too long wake the other side's service
 *  thread */
void np_conn_ring_late(np_vport_t *port);

/** All that wait do so now */
void np_conn_ring_all(np_vport_t *port);

/** Link: the other side has spoken; @a flags of its message */
void np_conn_heard(np_conn_t *conn, unsigned flags);

/** Now and then: a link whose messages nobody has taken since the last look asks
 *  once, which fails if nobody is there any more */
void np_conn_look(np_conn_t *conn);

/** Answers and acknowledgements that were owed; returns how many */
unsigned np_conn_send_due(np_conn_t *conn);

/** RDMA Write; @a imm NULL: without immediate. There must be room. */
void np_conn_write(np_conn_t *conn, const void *local, uint32_t lkey,
                   uint64_t remote, uint32_t rkey, size_t len,
                   const uint32_t *imm, np_vop_t *op, uint32_t chunk);

/** A message that fails if nobody is there. (A write of no bytes would do, but is
 *  not noticed to fail on Soft-RoCE.) */
void np_conn_probe(np_conn_t *conn);


/** Is there room in the send queue? */
static UCS_F_ALWAYS_INLINE int np_conn_has_room(const np_conn_t *conn)
{
    return ucs_likely((conn->state == NP_CONN_READY) &&
                      ((conn->sq_tail - conn->sq_head) < conn->sq_mask) &&
                      (conn->port->posted < conn->port->send_cqe));
}

/** May the link send one more message? */
static UCS_F_ALWAYS_INLINE int np_conn_has_credit(const np_conn_t *conn)
{
    return (conn->tx_seq - conn->tx_acked) < conn->port->config.credits;
}

#endif
