/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ports of an RNIC: completion queues, buffers and connections of one
 * interface. Receive buffers are shared by all peers, so what is pinned does
 * not grow with them.
 */

#ifndef NP_VPORT_H_
#define NP_VPORT_H_

#include "link.h"
#include "nic.h"
#include "vwire.h"

#include "../../clock.h"
#include "../../mem/stage.h"
#include "../../stats.h"
#include "../../svc/service.h"
#include "../../svc/turn.h"
#include "../../yield.h"

#include <ucs/datastruct/khash.h>

typedef struct np_conn np_conn_t;
typedef struct np_rop np_rop_t;
typedef struct np_stream np_stream_t;
typedef struct np_asked np_asked_t;
typedef struct np_replay np_replay_t;

/** For tests: what happens to the handshake's datagrams */
enum {
    NP_HELLO_LOSE  = 1u << 0,     /**< every other one is lost */
    NP_HELLO_TWICE = 1u << 1      /**< each is sent twice */
};

/** Seconds that a queue pair's timeout counts in */
#define NP_VPORT_TICK_TIME  4.096e-6

/** Bytes of the smallest chunk that is registered: what is less goes by
 *  messages */
#define NP_VPORT_CHUNK_MIN  16384u

typedef struct np_vport_config {
    const char *device;       /**< as np_nic_list names it */
    int        gid_index;     /**< -1: choose */
    unsigned   recv_buffers;  /**< for all peers together */
    unsigned   send_buffers;
    unsigned   sq_size;       /**< work requests of a queue pair */
    unsigned   credits;       /**< messages under way to one peer */
    size_t     direct_min;    /**< bytes from which a transfer is registered; 0:
                                    as np_nic_direct_min says */
    size_t     chunk;         /**< bytes that are registered at once, at least
                                    NP_VPORT_CHUNK_MIN; 0: as np_nic_chunk
                                    says */
    unsigned   depth;         /**< chunks of a transfer at a time, each side */
    size_t     pin_max;       /**< bytes that all transfers have registered, but
                                    for a small chunk of those that find none
                                    left */
    size_t     put_once;      /**< bytes of the largest put that is executed
                                    exactly once, whatever pages do: by a
                                    message */
    int        unload;        /**< np_unload_policy_t: which others are messages
                                    as well */
    size_t     unload_max;    /**< of puts of at most so many bytes; if it is
                                    off, 0 */
    double     connect_timeout; /**< seconds */
    double     reconnect_timeout; /**< seconds for another queue pair; 0: a
                                    link ends with its queue pair */
    unsigned   break_every;   /**< for tests: messages after which each queue
                                    pair fails; 0: never */
    unsigned   mischief;      /**< for tests: NP_HELLO_LOSE, ... */
    int        is_sequential; /**< to compare: one side registers after the
                                    other, each all at once */
    unsigned   timeout;       /**< of the queue pair: 4.096 us * 2^timeout */
    unsigned   retry_count;   /**< at most 6: Soft-RoCE takes 7 for "for
                                   ever" */
} np_vport_config_t;

/** What a port's user provides. Everything runs in np_vport_progress. */
typedef struct np_vuser {
    /** An active message; its bytes are gone afterwards */
    void (*am)(void *arg, uint8_t id, void *data, unsigned len);
    void *arg;
    /** An operation that returned UCS_INPROGRESS is complete */
    void (*complete)(void *comp, ucs_status_t status);
    /** The link does not work any more; once a link */
    void (*link_down)(np_flight_t *flight, ucs_status_t status);
} np_vuser_t;

typedef struct np_vport_attr {
    size_t max_message;  /**< largest active message, put_copied, get_unpack */
    double bandwidth;    /**< bytes/s */
    double latency;      /**< seconds */
    size_t pinned;       /**< bytes of buffers, whatever number of peers */
} np_vport_attr_t;

/** What a port tells the layers above it. In a turn of the port, the owner's or
 *  a service thread's (is_thread) where it does not say whose; what runs in it
 *  may send, and may end the connection. */
typedef struct np_vport_ops {
    const np_way_ops_t *ways;
    unsigned max_asked;       /**< operations of a link that its target may have
                                   to answer, at a time */

    /** A put of a link's has come in a message, or an atomic. If it is not to
     *  wait (is_patient) for a page that is not there: UCS_ERR_NO_RESOURCE, and
     *  nothing of it was done; it comes again when that is. Of any other error
     *  its link is told.
     *
     *  @param [out] va  Where it is in our memory; 0, as it was: not known. */
    ucs_status_t (*put)(np_stage_t *stage, uint64_t addr, const void *data,
                        size_t len, int is_patient, uint64_t *va);
    ucs_status_t (*atomic)(const np_atomic_t *request, int is_patient,
                           uint64_t *result, uint64_t *va);
    /** What a link has asked for has been answered, and is its owner's again:
     *  the bytes of a read, or the 8 of what was there before an atomic, which
     *  are gone afterwards; or why not. A stream's end is told by ended. */
    void (*answered)(np_asked_t *asked, ucs_status_t status, const void *data,
                     size_t len);
    /** The target has taken more of a link's messages */
    void (*acked)(np_vlink_t *link);

    /** What a work request was posted for is done */
    void (*moved)(np_rop_t *op, uint32_t number);
    /** A stream of a link's has ended, and is its owner's again */
    void (*ended)(np_stream_t *stream, ucs_status_t status);

    /** A link's: it is not connected yet, and it is not known what has come of
     *  what was sent */
    void (*lost)(np_vlink_t *link);
    /** It is, and messages after @a taken have this number from now on: what
     *  waits for the acknowledgement of such a message waits for that of this
     *  number */
    void (*renumber)(np_vlink_t *link, uint32_t taken, uint32_t seq);
    /** All has gone again: what waits may begin */
    void (*resumed)(np_vlink_t *link);
    /** The link does not work any more */
    void (*down)(np_vlink_t *link, ucs_status_t status);

    /** Do what there is to do (np_vport_t::todo); returns how much */
    unsigned (*work)(np_vport_t *port);
    /** The owner's: do what only the owner may, in the progress call of this
     *  number; there are links to report, or with open puts */
    unsigned (*owner_work)(np_vport_t *port, unsigned ticks);
    /** The owner is about to sleep */
    void (*arm)(np_vport_t *port);
    /** The port ends; no connection is left */
    void (*closed)(np_vport_t *port);
} np_vport_ops_t;

KHASH_MAP_INIT_INT(np_conns, np_conn_t*)

/** Buffers for datagrams of the handshake, beside its 40 bytes of GRH */
#define NP_UD_BUFFERS   16
#define NP_UD_SIZE      (40 + sizeof(np_hello_t))

/** wr_id of what no connection has sent */
#define NP_UD_WR_ID     UINT64_MAX

/** Time between two looks for those that are silent */
#define NP_VPORT_LOOK_MSEC  250u
#define NP_VPORT_LOOK       (NP_VPORT_LOOK_MSEC * NP_CLOCK_MSEC)

/** Completions that one poll takes */
#define NP_VPORT_BATCH  32

/** Receive buffers that are given to the device at once */
#define NP_VPORT_RECV_BATCH  16

/** A message that a service thread has taken and the owner must handle */
typedef struct np_vkept {
    struct ibv_wc wc;
    np_conn_t     *conn;    /**< NULL: it is not there any more */
    void          *bytes;   /**< allocated; NULL: in its receive buffer, which
                                 is in use until then */
} np_vkept_t;

/** Ranges that peers have missed in our views */
#define NP_VPORT_ABSENT  16u

/** Pages that are not there */
typedef struct np_vabsent {
    uint64_t va;
    uint64_t len;
    int      write;
} np_vabsent_t;

/** Memory of ours that an RNIC reaches without registering it */
typedef struct np_view {
    np_place_t                  place;
    const struct np_kmod_region *region; /**< whose entries tell what is
                                              there */
} np_view_t;

/** Messages that service threads keep at least */
#define NP_VPORT_KEPT   256u

/** Owner: np_vport_open's caller. Everything but what is constant belongs to
 *  the thread that has the turn: the owner, or a service thread. */
struct np_vport {
    np_turn_t               turn;
    np_service_client_t     service;
    int                     is_thread;  /**< a thread of ours has the turn */
    unsigned                calls;      /**< of progress since the last turn to
                                             give way; the owner's alone, as: */
    unsigned                found;      /**< by all of them */
    np_yield_t              yield;
    int                     is_closing; /**< nothing more is brought in */
    _Atomic int             is_armed;   /**< the owner sleeps, or is about to;
                                             set and cleared in a turn, read
                                             without */
    np_vport_config_t       config;
    const np_vport_ops_t    *ops;
    np_vuser_t              user;
    np_nic_t                *nic;
    uint64_t                cookie;
    struct ibv_comp_channel *channel;
    struct ibv_cq           *send_cq;
    struct ibv_cq           *recv_cq;
    struct ibv_srq          *srq;
    struct ibv_qp           *ud;
    int                     is_ud_broken; /**< its queue pair is in error */
    unsigned                ud_lost;    /**< see np_vport_config_t::mischief */
    uint32_t                ud_tail;
    uint32_t                ud_head;
    unsigned                send_cqe;   /**< completions that send_cq can
                                             hold */
    unsigned                posted;     /**< work requests that may need one */
    unsigned                awaited;    /**< those of them that an operation
                                             waits for */
    unsigned                max_inline; /**< bytes: what all queue pairs take */
    struct ibv_send_wr      wr;         /**< what is posted next, of sge
                                             alone */
    struct ibv_sge          sge;

    uint8_t                 *slab;      /**< receive, send, datagram buffers */
    size_t                  slab_size;
    struct ibv_mr           *mr;
    unsigned                recv_buffers;
    unsigned                recv_batch; /**< of these, given back at once */
    unsigned                num_spare;  /**< in spare, not the device's yet */
    uint32_t                spare[NP_VPORT_RECV_BATCH];
    unsigned                send_buffers;
    void                    *free_send; /**< linked by their first word */
    unsigned                num_free_send;

    khash_t(np_conns)       conns;      /**< by queue pair number */
    uint32_t                generation; /**< of connections */
    ucs_list_link_t         connecting; /**< conn->list */
    ucs_list_link_t         ready;      /**< conn->list */
    ucs_list_link_t         dying;      /**< conn->list: in error, or closing */
    ucs_list_link_t         replies;    /**< conn->due: owe an answer */
    ucs_list_link_t         asking;     /**< conn->asking: wait for an answer */
    size_t                  registered; /**< bytes of leases; see pin_max */
    int                     has_views;  /**< memory may move one-sided */
    struct np_nic_views     *own;       /**< the last that were used, or NULL */
    ucs_list_link_t         asked;      /**< peers that wait for views */
    int                     event_fd;   /**< epoll: channel, timer, bell */
    int                     timer_fd;
    int                     bell_fd;    /**< threads wake the owner */
    int                     service_fd; /**< epoll, for the service threads:
                                             channel, events of the device,
                                             keys, and what was brought in */
    int                     keys_fd;    /**< timer: keys that were given out may
                                             be unused; once for each time that
                                             has_keys was set */
    _Atomic int             has_keys;   /**< links may have such; written in a
                                             turn, read by threads before
                                             theirs */
    int                     brought_fd; /**< a bringer has left something to
                                             do */
    _Atomic int             is_low;     /**< the device has few receive buffers
                                             left, and will not say so again */
    _Atomic unsigned        ticks;      /**< the owner's progress calls; written
                                             by it alone */
    _Atomic unsigned        ticks_seen; /**< by the service threads */
    uint64_t                next_look;  /**< for messages that no thread takes,
                                             ms */
    struct ibv_wc           stash[NP_VPORT_BATCH]; /**< found when arming */
    int                     num_stash;
    np_vkept_t              *kept;      /**< ring */
    uint32_t                kept_size;
    uint32_t                kept_held;  /**< receive buffers of these */
    uint32_t                kept_tail;
    uint32_t                kept_head;

    int                     is_patient; /**< what is absent is touched all the
                                             same */
    struct np_errand         *retrying;  /**< what waited for it is tried again,
                                             by a bringer in its turn; or
                                             NULL */
    ucs_list_link_t         replaying;  /**< conn->replaying */
    ucs_list_link_t         late;       /**< conn->retry: messages that wait are
                                             tried again */
    np_vabsent_t            wanted;     /**< what the message must have that has
                                             just been put off; len 0: nothing,
                                             it is to be tried again */
    unsigned                num_absent;
    np_vabsent_t            absent[NP_VPORT_ABSENT]; /**< np_bring_later */
    np_stage_t              stage;      /**< for what messages carry */
    ucs_list_link_t         streams;    /**< np_stream_t::todo */
    np_stream_t             *free_streams; /**< to serve peers */
    struct np_stream_block  *stream_blocks; /**< of these */
    unsigned                num_served; /**< streams of peers in work */

    /* owned by the layers above */
    np_flights_t            flights;
    ucs_list_link_t         todo;       /**< op->todo: have something to do */
    ucs_list_link_t         open_puts;  /**< of links: small puts whose Read of
                                             the target's entries is not
                                             posted */
};

ucs_status_t np_vport_open(const np_vport_config_t *config,
                           const np_vport_ops_t *ops, const np_vuser_t *user,
                           np_vport_t **port_p);
void np_vport_close(np_vport_t *port);
void np_vport_query(np_vport_t *port, np_vport_attr_t *attr);
void np_vport_get_dev_addr(np_vport_t *port, np_vdev_addr_t *addr);
void np_vport_get_addr(np_vport_t *port, np_vport_addr_t *addr);

/** By this device? Not a peer that soft0 reaches, unless the user wants
 *  that. */
int np_vport_is_reachable(np_vport_t *port, const np_vdev_addr_t *addr);

/**
 * The local view of [@a va, @a va + @a len), at least 1 byte. Views are made at
 * first use.
 *
 * @param [in] to_write  To read from a peer into it; else it is sent from.
 *
 * @return 0: not yet, or never; or no part of a view's row has all of it.
 */
int np_vport_view(np_vport_t *port, uint64_t va, uint64_t len, int to_write,
                  np_view_t *view);

/** Tell peers that have waited for views of ours which have been built since;
 *  returns how many */
unsigned np_vport_tell_views(np_vport_t *port);

/** Forget peers that wait for views */
void np_vport_drop_asked(np_vport_t *port);

/** Returns how much was done */
unsigned np_vport_progress(np_vport_t *port);

/** Progress has found nothing to do: bring in some of what waits
 *  (mem/prepare.h) */
void np_vport_prepare(np_vport_t *port);

/** Readable when there is something to progress, once armed */
int np_vport_event_fd(np_vport_t *port);

/** @return UCS_OK; UCS_ERR_BUSY: progress first */
ucs_status_t np_vport_arm(np_vport_t *port);

/** What progress and waiting (vwait.c) are made of */
unsigned np_vport_poll_recv(np_vport_t *port);
unsigned np_vport_poll_send(np_vport_t *port);
unsigned np_vport_send_due(np_vport_t *port);

/** All that a service thread does for peers, once; returns how much. Its
 *  turn. */
unsigned np_vport_serve_some(np_vport_t *port);

/** The owner looks at the time in its next progress */
void np_vport_look_next(np_vport_t *port);

/** If the device has said that receive buffers are few: let it say so again */
void np_vport_take_low(np_vport_t *port);

/** For tests, see np_vport_config_t::break_every. Not in the middle of serving
 *  a write that has just come: the registration that it used is given back
 *  then, and Soft-RoCE of 6.1 does not let go of it if an error overtakes the
 *  write. */
void np_vport_break_due(np_vport_t *port);

/** The datagram queue pair works again. Owner's turn. */
void np_vport_restart_ud(np_vport_t *port);

/** A receive buffer is the device's again, with the next few */
void np_vport_post_recv(np_vport_t *port, uint64_t index);
void np_vport_post_ud(np_vport_t *port, uint64_t index);

/** The next solicited message tells the service threads */
int np_vport_arm_service(np_vport_t *port);

/** Be told when receive buffers get few: messages that are not waited for wake
 *  no thread, and those that would find no buffer */
void np_vport_arm_low(np_vport_t *port);


/** A bringer has tried again what waited for its pages: what that has made to
 *  do is for others. Its turn. */
void np_vport_brought(np_vport_t *port);

/** np_service_ops_t::serve */
int np_vport_serve(np_service_client_t *client);

/** Keep for the owner what has waited, with its allocated bytes. A thread's
 *  turn. Returns 0: there is no room. */
int np_vport_keep_late(np_vport_t *port, const np_vkept_t *late);

/** Nothing is kept for the owner any more */
void np_vport_drop_all_kept(np_vport_t *port);

/** Nothing that was kept for the owner is about @a conn any more */
void np_vport_forget(np_vport_t *port, const np_conn_t *conn);

/** Bytes from @a va on of which one view of ours may have all */
static UCS_F_ALWAYS_INLINE uint64_t
np_vport_view_room(const np_vport_t *port, uint64_t va)
{
    const uint64_t size = np_nic_view_size(port->nic);

    return size - (va & (size - 1));
}

/** Is there something to do for the layers above, or for peers that have asked
 *  for views? */
static UCS_F_ALWAYS_INLINE int np_vport_has_work(np_vport_t *port)
{
    return !ucs_list_is_empty(&port->late) ||
           !ucs_list_is_empty(&port->streams) ||
           !ucs_list_is_empty(&port->todo) || !ucs_list_is_empty(&port->asked);
}

static inline uint8_t *np_vport_recv_buffer(np_vport_t *port, uint64_t index)
{
    return port->slab + (index * NP_VSEG_SIZE);
}

static inline uint8_t *np_vport_ud_buffer(np_vport_t *port, uint64_t index)
{
    return np_vport_recv_buffer(port, port->recv_buffers +
                                port->send_buffers) + (index * NP_UD_SIZE);
}

/** Datagrams have buffers of their own: a link whose queue pair has failed may
 *  hold all others */
static inline uint8_t *np_vport_hello_buffer(np_vport_t *port, uint64_t index)
{
    return np_vport_ud_buffer(port, NP_UD_BUFFERS) +
           (index * sizeof(np_hello_t));
}

/** Bytes of a buffer of the port's */
static UCS_F_ALWAYS_INLINE np_place_t
np_vport_place(const np_vport_t *port, const void *buffer)
{
    return (np_place_t){(uintptr_t)buffer, port->mr->lkey};
}

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
