/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams: how the bytes of a transfer are carried when an RNIC may not simply
 * reach the other side's memory. Memory is registered only while they last
 * (design, section 6; seed FRRWP). The request goes out at once; source and
 * sink register chunk after chunk at the same time, and a chunk moves as soon
 * as both have it, while they register the next. What cannot be registered is
 * carried by messages.
 *
 * Data flows in the order of offsets, by one queue pair: the sink's chunks are
 * written one after the other, the last write of each with immediate, which
 * tells the sink (the paper's write with immediate).
 *
 * A link's stream is part of what the layers above have outstanding, and they
 * are told of its end (np_vport_ops_t::ended). What is served for a peer is the
 * device's own. Both sides know a stream by the name that the link's side gave
 * it.
 */

#ifndef NP_STREAM_H_
#define NP_STREAM_H_

#include "ask.h"

/** Chunks of a stream that one side may have registered */
#define NP_STREAM_DEPTH       NP_LEASES_MAX

/** Streams that a peer may have in work here */
#define NP_STREAM_SERVED_MAX  256u

/** Messages of a chunk that the sink asks for by messages, when it can register
 *  nothing */
#define NP_STREAM_MESSAGES    8u

/** A chunk that is registered */
typedef struct np_stream_chunk {
    size_t     offset;      /**< in the stream */
    size_t     len;
    np_lease_t lease;       /**< none: by messages */
    unsigned   posted;      /**< writes of it that are under way */
} np_stream_chunk_t;

/** A chunk of the sink that may be written */
typedef struct np_stream_ready {
    size_t   offset;
    size_t   len;
    uint64_t addr;
    uint32_t rkey;          /**< 0: by messages */
} np_stream_ready_t;

typedef enum np_stream_phase {
    NP_STREAM_MOVES,        /**< or has failed, which is not yet told */
    NP_STREAM_SENT,         /**< a put by messages: all are sent */
    NP_STREAM_TOLD,         /**< it has failed, and the other side knows */
    NP_STREAM_OVER,         /**< the other side moves nothing more */
    NP_STREAM_CLOSED        /**< both */
} np_stream_phase_t;

/** The source writes, the sink says where to: in the order of offsets, so that
 *  one number tells how far it is. Guarded as its port is. */
struct np_stream {
    ucs_list_link_t   list;        /**< of conn->streams, or alone */
    ucs_list_link_t   todo;        /**< of port->streams, or alone */
    np_conn_t         *conn;
    np_stream_t       *next_free;  /**< served: of port->free_streams */
    uint32_t          name;
    ucs_status_t      status;      /**< of what is done so far */
    np_stream_phase_t phase;
    int               is_source;
    int               no_keys;     /**< all of it by messages */
    int               no_register; /**< source: registering has failed */
    int               is_patient;  /**< served: pages are not brought in: they
                                        are touched */
    int               is_prepared; /**< the one chunk is registered, not
                                        READY */
    int               has_sent;    /**< some of it went by messages */
    int               is_absent;   /**< the target's pages were not in its
                                        views; it is to bring them in there,
                                        too */
    np_iov_t          iov[NP_MAX_IOV]; /**< ours */
    size_t            iovcnt;
    size_t            len;
    uint64_t          remote;      /**< link's side: the target's address */
    size_t            chunk;       /**< bytes to register next */
    size_t            next;        /**< offset after what was registered */
    np_stream_chunk_t chunks[NP_STREAM_DEPTH];
    uint32_t          chunk_head;
    uint32_t          chunk_tail;
    np_stream_ready_t ready[NP_STREAM_DEPTH];
    uint32_t          ready_head;
    uint32_t          ready_tail;
    size_t            ready_next;  /**< where the next one must begin */
    size_t            moved;       /**< source: posted; sink: arrived */
    unsigned          posted;      /**< writes under way */
    uint32_t          last_seq;    /**< NP_STREAM_SENT: by which message */
    np_asked_t        asked;       /**< link */
    struct np_errand  *bring;      /**< served: pages that it waits for, or
                                        NULL */
    uint64_t          begin;       /**< served: np_trace_begin() */
};

/**
 * Begin one of a link's, and ask the target for it.
 *
 * @param [in] iov  Of the program's memory, which stays its own until the end.
 *
 * @return 0: there is no room for that, and it has not begun.
 */
int np_stream_begin(np_stream_t *stream, np_conn_t *conn, uint32_t name,
                    np_dir_t dir, const np_iov_t *iov, size_t iovcnt,
                    uint64_t addr);

/** One that the link's last message has carried, to @a addr: it ends when that
 *  is acknowledged */
void np_stream_begin_sent(np_stream_t *stream, np_conn_t *conn, uint32_t name,
                          size_t len, uint64_t addr);

/** Its end is not wanted any more, or has come: what it holds is given back.
 *  Its queue pair must not use that any more. */
void np_stream_drop(np_stream_t *stream);

/** Ask for it again, in its turn; returns 0: no room */
int np_stream_ask_again(np_asked_t *asked);

/** The stream of this name; NULL: it is over, or it is none */
np_stream_t *np_stream_find(const np_conn_t *conn, uint32_t name);

/** May a message be about a stream? What a link asks is, then. */
static UCS_F_ALWAYS_INLINE int np_stream_is_about(const np_vmsg_t *msg)
{
    return (msg->kind >= NP_VMSG_READ) && (msg->kind <= NP_VMSG_DONE);
}

_Static_assert((NP_VMSG_WRITE == (NP_VMSG_READ + 1)) &&
               (NP_VMSG_READY == (NP_VMSG_READ + 2)) &&
               (NP_VMSG_DATA == (NP_VMSG_READ + 3)) &&
               (NP_VMSG_DONE == (NP_VMSG_READ + 4)),
               "messages about streams are in a row");

/** As np_vserve_asked: a link asks for one, or says something about one
 *  that is served for it */
ucs_status_t np_stream_asked(np_conn_t *conn, const np_vctl_t *ctl, size_t len);

/** As np_ask_answered: the other side says something about one */
ucs_status_t
np_stream_told(np_stream_t *stream, const np_vctl_t *ctl, size_t len);

/** A service thread's turn: READY has come. Returns whether it was taken; else
 *  the owner is told. */
int np_stream_take_key(np_conn_t *conn, const np_vctl_t *ctl);

/** The other side has written what it had the key for: the oldest of those of
 *  this name. UCS_ERR_INVALID_PARAM: it had none. */
ucs_status_t np_stream_written(np_conn_t *conn, uint32_t name);

/** A write of ours, of this chunk, has been done */
void np_stream_moved(np_stream_t *stream, uint32_t chunk);

/** Answering side: does any wait for the link to write where it was told
 *  READY? */
int np_stream_awaits_write(const np_conn_t *conn);

/** Do what can be done for those that have something to do; returns how much
 *  that was. A service thread does it for peers, and for puts of a program that
 *  computes whose key has come: the program is told nothing of these before
 *  their end. */
unsigned np_stream_progress(np_vport_t *port);

/** Is there something to do for a service thread, of which no event tells? */
int np_stream_has_thread_work(const np_vport_t *port);

/* All of a connection's: */

/** Forget what is served: the link asks for it anew. Its queue pair does not
 *  use it any more. */
void np_streams_end_served(np_conn_t *conn);

/** A link's queue pair has failed. What has not moved for certain begins anew
 *  over the next one: they are streams of that alone from now on. */
void np_streams_lost(np_conn_t *conn);

/** There is another one, over which all has gone again */
void np_streams_resumed(np_conn_t *conn);

/** As np_vport_ops_t::renumber */
void np_streams_renumber(np_conn_t *conn, uint32_t taken, uint32_t seq);

/** A link's target has taken more of its messages: puts by these end. What that
 *  tells the program may end the link. */
void np_streams_acked(np_conn_t *conn);

/** The port ends: free those that were served */
void np_streams_cleanup(np_vport_t *port);

#endif
