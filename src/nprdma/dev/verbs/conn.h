/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Connections: one reliable queue pair each, made by a link's side. The link
 * sends requests and active messages, the other side answers on the same queue
 * pair; so simultaneous connects need no rule.
 */

#ifndef NP_CONN_H_
#define NP_CONN_H_

#include "bring.h"
#include "lease.h"
#include "vport.h"

/** Every so many work requests ask for a completion */
#define NP_CONN_MODERATION  64

/** RDMA Reads of one queue pair that may be under way, at most */
#define NP_CONN_READS       16

/** A message that may go in the work request itself */
#define NP_CONN_INLINE      256u

typedef enum np_conn_state {
    NP_CONN_CONNECTING,  /**< link: REQUEST was sent, or is to be; answering
                              side: waits for one, its queue pair has failed */
    NP_CONN_READY,
    NP_CONN_CLOSING,     /**< BYE was sent */
    NP_CONN_DEAD         /**< in error: what was posted comes back */
} np_conn_state_t;

enum {
    NP_SQ_KEPT   = 1u << 0, /**< its buffer is given back with the
                                 acknowledgement */
    NP_SQ_STREAM = 1u << 1  /**< a stream waits for it */
};

/** A work request that was posted */
typedef struct np_sq_entry {
    void     *buffer;    /**< to be given back, or NULL */
    union {
        void        *waiter; /**< for its completion; NULL: none */
        np_rop_t    *op;
        np_stream_t *stream; /**< NP_SQ_STREAM */
    };
    union {
        uint32_t number; /**< for @a waiter */
        uint32_t seq;    /**< link: of the message in @a buffer */
    };
    unsigned flags;      /**< NP_SQ_... */
} np_sq_entry_t;

/** Link: a message that the target has not acknowledged yet. If the queue pair
 *  fails, it goes again over the next one. */
typedef struct np_vsent {
    uint32_t len;        /**< with its header; 0: nothing of it goes again */
    uint32_t op;         /**< the request of this operation, or 0 */
    void     *buffer;    /**< of the port's; NULL: its bytes are in spilled, or
                              at its place in conn->small */
    void     *spilled;   /**< allocated, or NULL */
} np_vsent_t;

/** Owner: its port. */
struct np_conn {
    ucs_list_link_t list;
    ucs_list_link_t due;         /**< of port->replies, or alone */
    ucs_list_link_t asking;      /**< link: of port->asking, or alone */
    ucs_list_link_t replaying;   /**< link: of port->replaying, or alone */
    ucs_list_link_t retry;       /**< of port->late, or alone */
    np_vport_t      *port;
    np_vlink_t      *link;       /**< NULL: the answering side, or closed */
    int             is_link;
    np_conn_state_t state;
    ucs_status_t    status;      /**< why it is dead */
    struct ibv_qp   *qp;         /**< NULL: dead, and there is none */
    int             is_broken;   /**< by ourselves: it is in error */
    struct np_kept_lease *kept_leases; /**< see np_lease_end */
    uint32_t        qpn;
    uint32_t        generation;  /**< of the queue pair, in this port */
    uint32_t        epoch;       /**< queue pairs that it had before */
    uint32_t        psn;

    np_sq_entry_t   *sq;
    uint32_t        sq_mask;
    uint32_t        sq_tail;     /**< posted */
    uint32_t        sq_head;     /**< completed */
    unsigned        unsignaled;
    uint32_t        num_posted;  /**< messages, see
                                      np_vport_config_t::break_every */
    int             break_due;   /**< by it */

    np_vsent_t      *sent;       /**< link: by number, the last sent_mask + 1 */
    uint8_t         *small;      /**< NP_CONN_INLINE bytes for each */
    uint32_t        sent_mask;
    unsigned        num_kept;    /**< of these, buffers and spilled ones */
    np_replay_t     *replay;     /**< what goes again, or NULL */
    ucs_list_link_t asks;        /**< link: what it has asked for (ask.h) */
    struct np_vresults *results; /**< answering side: what the last atomics
                                      gave (vserve.h), or NULL */
    uint32_t        credits;     /**< answering side: of the link; link:
                                      messages that may be under way */

    uint32_t        tx_seq;      /**< link: messages sent */
    uint32_t        tx_acked;    /**< link: of these, taken by the target */
    uint32_t        tx_seen;     /**< link: of these, as the newest message said
                                      that we have, kept ones included */
    uint32_t        tx_wanted;   /**< link: acks up to here are waited for */
    uint32_t        tx_flagged;  /**< link: the last message that asks for
                                      one */
    int             is_distant;  /**< link: a service thread answered the last
                                      request: wake it for the next one */
    int             is_computing; /**< link: a service thread took the last key
                                      of a put; answering side: the link said
                                      so, or had to be rung: wake it with each
                                      key */
    uint64_t        ring_at;     /**< link: when to wake it; 0: not known yet */
    uint64_t        ring_first;  /**< link: how long an answer may take
                                      before */
    int             has_rung;    /**< link: for what is not answered yet */
    uint64_t        ring_next;   /**< link: how long to wait then */
    uint32_t        rx_seq;      /**< answering side: messages taken */
    ucs_queue_head_t late;       /**< messages that wait (late.h), in order */
    unsigned        num_late;
    struct np_errand *bring;      /**< pages that the first of them waits for,
                                      or NULL: it is tried in each turn */
    int             is_patient;  /**< they are not brought in, but touched */
    int             late_ack;    /**< an ACK has come while they waited */
    uint32_t        rx_told;     /**< of these, those that an ack may cover: not
                                      while an error of one waits for room */
    int             ack_due;     /**< answering side: say how far; link: ask */
    ucs_queue_head_t replies;    /**< np_vreply_t that found no room */
    ucs_status_t    put_status;  /**< answering side: a put that has failed */
    uint32_t        heard;       /**< signs of life of the other side */
    int             is_checked;  /**< link: its user asks whether the other side
                                      is there, which has said nothing since */
    uint32_t        heard_seen;  /**< heard at the last look */
    unsigned        silent;      /**< looks since, while the other side is
                                      waited for */
    unsigned        idle;        /**< answering side: looks since, while it is
                                      not */
    uint32_t        sq_seen;     /**< sq_head at the last look */
    unsigned        stuck;       /**< looks since */
    unsigned        replaced;    /**< queue pairs since the last that worked */
    int             is_gone;     /**< link: the target has left its port */
    int             is_closing;  /**< link: closed by its user; it ends when
                                      what was sent has been taken */
    ucs_list_link_t streams;     /**< link: of its operations; answering side:
                                      that are served */
    unsigned        num_served;  /**< answering side: of streams */

    /* handshake */
    uint64_t        engine_id;   /**< of the link's process */
    uint32_t        link_id;
    np_hello_t      hello;       /**< what we have said */
    np_vdev_addr_t  dev_addr;    /**< where the other side is */
    uint32_t        ud_qpn;
    struct ibv_ah   *ah;
    uint64_t        next_try;
    uint64_t        give_up;
    uint64_t        give_up_last; /**< not later, even if our port is down */
    uint64_t        interval;
};

/** An answer that waits for room */
typedef struct np_vreply {
    ucs_queue_elem_t queue;
    np_vctl_t        ctl;
} np_vreply_t;

/** A queue pair in state INIT, and its record; NULL: logged */
np_conn_t *np_conn_create(np_vport_t *port, int is_link);

/** Begin to connect a link, which may be down when this returns; 0: no
 *  memory */
int np_conn_connect(np_vlink_t *link);

/** Let one of the link's queue pairs hear of the other's numbers: RTR and RTS.
 *  UCS_ERR_IO_ERROR: logged. */
ucs_status_t np_conn_activate(np_conn_t *conn, const np_hello_t *peer);

/** It does not work any more; its link is told */
void np_conn_fail(np_conn_t *conn, ucs_status_t status);

/**
 * Its queue pair has failed. It gets a new one; a link asks the other side to
 * do the same, the answering side waits to be asked. If that is not wanted, or
 * has been in vain: np_conn_fail.
 */
void np_conn_lost(np_conn_t *conn, ucs_status_t status);

/** Another queue pair in place of the present one, which moves nothing and
 *  holds no memory any more when this returns. UCS_ERR_NO_MEMORY: logged, and
 *  the present one is in error. */
ucs_status_t np_conn_renew(np_conn_t *conn);

/** Put its queue pair into error; alone, in tests, this is a broken cable */
void np_conn_break(np_conn_t *conn);

/** Its link ends it at once, whatever is under way. Its queue pair is no
 *  more. */
void np_conn_kill(np_conn_t *conn);

/** It is not used any more: end it when all is sent. If its queue pair fails
 *  before, or has failed, what was sent goes again first. */
void np_conn_close(np_conn_t *conn);

/** Free what is dead and drained; returns how many are left */
unsigned np_vport_reap(np_vport_t *port);

/** Free it at once; nothing of it may be in progress */
void np_conn_destroy(np_conn_t *conn);

np_conn_t *np_conn_find(np_vport_t *port, uint32_t qpn);

/** A completion of its send queue */
void np_conn_completed(np_conn_t *conn, const struct ibv_wc *wc);

/** Room for what a link must be able to send again; returns 0: no memory */
int np_conn_create_sent(np_conn_t *conn);

/** A message has gone: should others need its buffer, it is kept elsewhere */
void np_conn_spill(np_conn_t *conn, const np_sq_entry_t *entry);

/** Link: the target has taken messages up to this one */
void np_conn_acked(np_conn_t *conn, uint32_t seq);

/** The bytes of a message that goes again */
const void *np_conn_sent_bytes(const np_conn_t *conn, uint32_t seq);

/** Begin a message in a buffer; NULL: no room */
np_vmsg_t *np_conn_begin(np_conn_t *conn, np_vmsg_kind_t kind);

/** Send it, @a len bytes with the header; the buffer is not the caller's any
 *  more */
void np_conn_send(np_conn_t *conn, np_vmsg_t *msg, size_t len);

/** Link: send an active message of at most port->max_inline bytes from its
 *  place. There must be room and credit. */
void np_conn_send_small(np_conn_t *conn, np_vmsg_t *msg, size_t len);

/** Give it back unsent */
void np_conn_drop(np_conn_t *conn, np_vmsg_t *msg);

/** Send a message that is copied at once; returns 0: no room */
int np_conn_send_copied(np_conn_t *conn, np_vmsg_t *msg, size_t len);

/** Send it now, or as soon as there is room. Answering side. */
void np_conn_reply(np_conn_t *conn, const np_vctl_t *ctl);

/** The same: what there is to say about the operation of this name */
void np_conn_answer(np_conn_t *conn, np_vmsg_kind_t kind, uint32_t name,
                    ucs_status_t status, uint64_t value);

/** Answering side: tell how many messages were taken; link: ask for that */
void np_conn_owe_ack(np_conn_t *conn);

/** Links that have waited for an answer too long wake the other side's service
 *  thread, and so do those that have given a link a key that it does not use */
void np_conn_ring_late(np_vport_t *port);

/** The same, but only for those that wait for a link to use its keys; returns
 *  whether there are any. A service thread, which comes again then. */
int np_conn_ring_links(np_vport_t *port);

/** All that wait do so now */
void np_conn_ring_all(np_vport_t *port);

/** A message has come. Returns 0: not now, and nothing of it has been done:
 *  call np_conn_again when the pages that it wants are there
 *  (np_vport_t::wanted) */
int np_conn_received(np_conn_t *conn, np_vmsg_t *msg, size_t len);
int np_conn_again(np_conn_t *conn, np_vmsg_t *msg, size_t len);

/** A service thread has taken a message that its owner will handle: the same
 *  but for what it says */
void np_conn_taken(np_conn_t *conn, const np_vmsg_t *msg);

/** And now the owner does: an active message */
void np_conn_am(np_conn_t *conn, const np_vmsg_t *msg, size_t len);

/** A service thread has taken a message for a link of ours: if it brings the
 *  key of a put it is taken (seed 004: no trip through the program), and what
 *  else it says is left, as an ACK */
void np_conn_take_key(np_conn_t *conn, np_vmsg_t *msg, size_t len);

/** A write with immediate has come, of this name */
void np_conn_written(np_conn_t *conn, uint32_t name);

/** The other side has spoken; @a flags of its message */
void np_conn_heard(np_conn_t *conn, unsigned flags);

/** The other side has written, or its device has */
void np_conn_heard_write(np_conn_t *conn);

/** Is the other side waited for? */
int np_conn_expects(const np_conn_t *conn);

/** Link: the target's word on messages up to this one is waited for: ask for
 *  it, once */
void np_conn_want_ack(np_conn_t *conn, uint32_t seq);

/** Link: its user asks whether the other side is there: it fails if not */
void np_conn_check(np_conn_t *conn);

/** Link: an operation waits until the link may send more */
void np_conn_want_credit(np_conn_t *conn);

/** Now and then: a connection that waits for the other side, and has not heard
 *  of it since the last look, sends something that fails if the other side has
 *  gone */
void np_conn_look(np_conn_t *conn);

/** Answers and acknowledgements that were owed; returns how many */
unsigned np_conn_send_due(np_conn_t *conn);

/** A peer asks for the keys of our views at @a addr: it is told now, or when
 *  they have been built */
void np_conn_tell_views(np_conn_t *conn, uint64_t addr);

/* The movers. There must be room for each; what has an operation is told of its
 * completion (np_vport_ops_t::moved), with the number. */

/** Write a part of a chunk of @a stream to where the peer has a lease.
 *
 * @param [in] imm  What the peer is told when all up to here has come; NULL:
 *                  nothing.
 * @param [in] stream  Is told (np_stream_moved) of its completion; or NULL. */
void np_conn_write_lease(np_conn_t *conn, np_place_t from, np_place_t to,
                         size_t len, const uint32_t *imm, np_stream_t *stream,
                         uint32_t chunk);

/** Write into a view; a Read follows, whose completion is that of both. Up to
 *  port->max_inline bytes may be anywhere, and need not stay. */
void np_conn_write(np_conn_t *conn, np_place_t from, np_place_t to, size_t len);

/** Read from a view */
void np_conn_read(np_conn_t *conn, np_place_t to, np_place_t from, size_t len,
                  np_rop_t *op, uint32_t number);

/** Look: read the entries of the pages of [@a pages, @a pages + @a len), with
 *  the key of their table, into a buffer of the port's, in order after what was
 *  posted */
void np_conn_read_entries(np_conn_t *conn, void *buffer, np_place_t pages,
                          size_t len, np_rop_t *op, uint32_t number);

/** A message that fails if the other side has gone. (A write of no bytes would
 *  do, but is not noticed to fail on Soft-RoCE.) */
void np_conn_probe(np_conn_t *conn);


/** Is there room in the send queue? */
static UCS_F_ALWAYS_INLINE int np_conn_has_room(const np_conn_t *conn)
{
    return ucs_likely((conn->state == NP_CONN_READY) &&
                      ((conn->sq_tail - conn->sq_head) < conn->sq_mask) &&
                      (conn->port->posted < conn->port->send_cqe));
}

/** Link: the place of the next small message, where it stays until the target
 *  has taken it; @a other if nothing is kept */
static UCS_F_ALWAYS_INLINE void *
np_conn_small_place(const np_conn_t *conn, void *other)
{
    return ucs_unlikely(conn->sent == NULL) ? other :
           &conn->small[((conn->tx_seq + 1) & conn->sent_mask) *
                        (size_t)NP_CONN_INLINE];
}

/** Is there room in the send queue for so many requests? */
static UCS_F_ALWAYS_INLINE int
np_conn_has_rooms(const np_conn_t *conn, unsigned count)
{
    return (conn->state == NP_CONN_READY) &&
           ((conn->sq_tail - conn->sq_head + count) <= conn->sq_mask) &&
           ((conn->port->posted + count) <= conn->port->send_cqe);
}

/** How many RDMA Reads, of those that a device can have under way */
static inline unsigned np_conn_reads(int of_device)
{
    return ucs_min((unsigned)ucs_max(of_device, 1), NP_CONN_READS);
}

/** Does what is to be done over it go on? Else it begins anew over the next
 *  queue pair, or ends. */
static UCS_F_ALWAYS_INLINE int np_conn_goes_on(const np_conn_t *conn)
{
    return (conn->state == NP_CONN_READY) && (conn->replay == NULL);
}

/** Link: has the target taken the message of this number? */
static UCS_F_ALWAYS_INLINE int
np_conn_has_acked(const np_conn_t *conn, uint32_t seq)
{
    return (int32_t)(conn->tx_acked - seq) >= 0;
}

/** The number of a message, which is another one if it is after @a taken
 *  (np_vport_ops_t::renumber) */
static inline void
np_conn_renumber(uint32_t *number, uint32_t taken, uint32_t seq)
{
    if ((int32_t)(*number - taken) > 0) {
        *number = seq;
    }
}

/** May the link send so many more messages? */
static UCS_F_ALWAYS_INLINE int
np_conn_has_credits(const np_conn_t *conn, uint32_t count)
{
    return (conn->tx_seq - conn->tx_acked + count) <= conn->credits;
}

/** May the link send one more message? */
static UCS_F_ALWAYS_INLINE int np_conn_has_credit(const np_conn_t *conn)
{
    return np_conn_has_credits(conn, 1);
}

static UCS_F_ALWAYS_INLINE np_vlink_t *np_vlink_of(np_flight_t *flight)
{
    return ucs_container_of(flight, np_vlink_t, flight);
}

/** Has the target taken the message of this number? */
static UCS_F_ALWAYS_INLINE int
np_vlink_has_acked(const np_vlink_t *link, uint32_t seq)
{
    return (link->conn == NULL) || np_conn_has_acked(link->conn, seq);
}

/** Requests of a send queue that an operation may need at a time, where memory
 *  may move one-sided: a small put, with the Reads of two batches */
#define NP_VLINK_ROOMS  3u

/** What an RNIC does for the layers above */
extern const np_dev_ops_t np_verbs_ops;

#endif
