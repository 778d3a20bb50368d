/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams: their beginning and end, what they have registered, and how far they
 * are.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "stream_ends.h"

#include "bring.h"

#include "../../iov.h"
#include "../../mem/access.h"
#include "../../mem/swapper.h"
#include "../../svc/service.h"

#include <string.h>

/* Largest chunk of a connection whose queue pair has failed once: a stream goes
 * on from the last whole chunk, which must get through a network that loses
 * packets before the next queue pair fails */
#define NP_STREAM_SMALL  NP_LEASE_SMALL

/* What is brought in at once for a peer's stream, if there is so much */
#define NP_STREAM_BRING  ((size_t)(1 * UCS_MBYTE))


void np_stream_todo(np_stream_t *stream)
{
    if (ucs_list_is_empty(&stream->todo)) {
        ucs_list_add_tail(&stream->conn->port->streams, &stream->todo);
    }
}

void np_stream_start(np_stream_t *stream)
{
    np_conn_t *conn = stream->conn;
    size_t chunk    = np_lease_size(conn->port, stream->len);

    if (ucs_unlikely(conn->epoch > 0)) {
        chunk = ucs_min(chunk, NP_STREAM_SMALL);
    }
    stream->chunk = conn->port->config.is_sequential ? stream->len :
                    ucs_max(chunk, (size_t)NP_VPORT_CHUNK_MIN);
    if ((stream->iovcnt != 1) ||
        np_file_has((uintptr_t)np_stream_local(stream, 0))) {
        stream->no_register = 1; /* a list, and a file, goes by messages */
    }
    np_stream_todo(stream);
}

/* In the sequential order: register before asking for it. If that fails, it is
 * tried again, and then goes by messages. */
static void np_stream_prepare(np_stream_t *stream)
{
    np_stream_chunk_t *chunk;

    stream->is_prepared = np_stream_register(stream, &chunk) == UCS_OK;
}

/* Ask the target for it; returns 0: no room */
static int np_stream_ask(np_stream_t *stream)
{
    np_vctl_t *ctl = &stream->asked.ctl;

    np_stream_fill(stream, ctl, stream->is_source ? NP_VMSG_WRITE :
                   NP_VMSG_READ);
    ctl->msg.flags = (stream->no_keys ? NP_VMSG_NO_KEYS : 0) |
                     (stream->is_absent ? NP_VMSG_ABSENT : 0);
    ctl->body.addr = stream->remote;
    ctl->body.len  = stream->len;

    stream->asked.is_stream = 1;
    return np_conn_ask(stream->conn, &stream->asked);
}

/* One of a link's, with nothing in it yet */
static void np_stream_init(np_stream_t *stream, np_conn_t *conn, uint32_t name,
                           size_t len, uint64_t addr)
{
    memset(stream, 0, sizeof(*stream));
    stream->conn      = conn;
    stream->name      = name;
    stream->is_absent = conn->port->has_views;
    stream->len       = len;
    stream->remote    = addr;
    ucs_list_head_init(&stream->todo);
    ucs_list_head_init(&stream->asked.list);
    ucs_list_add_tail(&conn->streams, &stream->list);
}

int np_stream_begin(np_stream_t *stream, np_conn_t *conn, uint32_t name,
                    np_dir_t dir, const np_iov_t *iov, size_t iovcnt,
                    uint64_t addr)
{
    const np_vport_config_t *config = &conn->port->config;

    np_stream_init(stream, conn, name, np_iov_length(iov, iovcnt), addr);
    stream->is_source = dir == NP_DIR_PUT;
    stream->no_keys   = (iovcnt != 1) || (stream->len < config->direct_min);
    stream->iovcnt    = iovcnt;
    memcpy(stream->iov, iov, iovcnt * sizeof(*iov));
    np_stream_start(stream);
    if (stream->is_source && !stream->no_keys) {
        np_service_start(); /* they take its key while the program computes */
    }
    if (ucs_unlikely(config->is_sequential) && !stream->no_keys &&
        !stream->no_register) {
        np_stream_prepare(stream);
    }

    if ((!stream->is_source || !stream->no_keys) && !np_stream_ask(stream)) {
        np_stream_drop(stream);
        return 0;
    }
    return 1;
}

void np_stream_begin_sent(np_stream_t *stream, np_conn_t *conn, uint32_t name,
                          size_t len, uint64_t addr)
{
    np_stream_init(stream, conn, name, len, addr);
    stream->is_source = 1;
    stream->no_keys   = 1;
    stream->has_sent  = 1;
    stream->moved     = len;
    stream->phase     = NP_STREAM_SENT;
    stream->last_seq  = conn->tx_seq;
    np_conn_want_credit(conn);
}

/* What one that is over has registered: given back when the other side and the
 * program have been told (seed FRRWP: off the critical path) */
static void np_stream_spend(np_stream_t *stream, np_leases_t *spent)
{
    for (spent->count = 0; np_stream_num_chunks(stream) > 0;
         ++stream->chunk_head) {
        np_lease_spend(stream->conn, &np_stream_chunk(
                stream, stream->chunk_head)->lease, spent);
    }
}

void np_stream_release(np_stream_t *stream)
{
    np_leases_t spent;

    np_stream_spend(stream, &spent);
    np_leases_end(&spent);
}

/* It is in no list any more, and waits for nothing */
static void np_stream_leave(np_stream_t *stream)
{
    np_bring_end(&stream->bring);
    np_ask_end(&stream->asked);
    ucs_list_del(&stream->list);
    ucs_list_head_init(&stream->list);
    ucs_list_del(&stream->todo);
    ucs_list_head_init(&stream->todo);
}

void np_stream_drop(np_stream_t *stream)
{
    np_stream_release(stream);
    np_stream_leave(stream);
}

void np_stream_finish(np_stream_t *stream, ucs_status_t status)
{
    np_leases_t spent;

    np_stream_spend(stream, &spent);
    np_stream_leave(stream);
    stream->conn->port->ops->ended(stream, status); /* it may be another one */
    np_leases_end(&spent);
}

void np_stream_complete(np_stream_t *stream)
{
    if (np_stream_is_ours(stream)) {
        np_stream_finish(stream, UCS_OK);
    } else {
        np_stream_put_served(stream);
    }
}

void np_stream_pop_chunk(np_stream_t *stream)
{
    np_lease_end(stream->conn,
                 &np_stream_chunk(stream, stream->chunk_head++)->lease);
}

/* Bytes that need not move again */
static size_t np_stream_done_bytes(np_stream_t *stream)
{
    const np_stream_chunk_t *chunk;
    uint32_t i;

    if (!stream->is_source) {
        return stream->moved;
    }

    if (stream->has_sent) {
        return 0; /* those that were taken are not counted */
    }

    for (i = stream->chunk_head; i != stream->chunk_tail; ++i) {
        chunk = np_stream_chunk(stream, i);
        if ((chunk->posted > 0) ||
            (stream->moved < (chunk->offset + chunk->len))) {
            return chunk->offset;
        }
    }
    return ucs_min(stream->moved, stream->next);
}

/* It is one of the rest alone */
static void np_stream_cut(np_stream_t *stream, size_t done)
{
    np_iov_t rest[NP_MAX_IOV];

    stream->iovcnt = np_iov_slice(stream->iov, stream->iovcnt, done,
                                  stream->len - done, rest);
    memcpy(stream->iov, rest, stream->iovcnt * sizeof(*rest));
    stream->len                -= done;
    stream->remote             += done;
    stream->moved               = 0;
    stream->asked.ctl.body.addr = stream->remote;
    stream->asked.ctl.body.len  = stream->len;
}

void np_stream_reset(np_stream_t *stream)
{
    size_t done = np_stream_done_bytes(stream);

    np_stream_release(stream);
    if (!stream->is_source || !stream->no_keys) {
        /* not all of it: then it would be complete */
        np_stream_cut(stream, ucs_min(done, stream->len - 1));
    } /* else its messages go again by themselves */
    if (stream->phase != NP_STREAM_SENT) {
        stream->phase = NP_STREAM_MOVES;
    }
    stream->posted      = 0;
    stream->is_prepared = 0;
    stream->next        = 0;
    stream->ready_head  = 0;
    stream->ready_tail  = 0;
    stream->ready_next  = 0;
    stream->has_sent    = 0;
}

/* np_errand_t::retry */
static void np_stream_brought(void *waiter)
{
    np_stream_t *stream = waiter;

    stream->bring = NULL;
    if ((stream->conn->state == NP_CONN_READY) && np_stream_run(stream)) {
        np_stream_todo(stream);
    }
}

void np_stream_want(np_stream_t *stream, size_t offset, size_t len)
{
    np_vport_t *port   = stream->conn->port;
    np_vabsent_t pages = {(uintptr_t)np_stream_local(stream, offset), len,
                          !stream->is_source};

    if (port->is_closing) {
        return;
    }

    if (!np_swap_range_touches(pages.va, len)) {
        pages.len = ucs_max(len, ucs_min(stream->len - offset,
                                         NP_STREAM_BRING));
    }
    stream->bring = np_bring_begin(port, &pages, np_stream_brought, stream);
    if (stream->bring == NULL) {
        stream->is_patient = 1;
        np_stream_todo(stream);
    }
}

/* Memory that the program swaps by itself may be needed back by it at any time,
 * and the program would have to wait for a peer's part of the stream. What the
 * kernel does not register may be there all the same, such as a file that is
 * mapped for reading (Linux 6.1): the copy finds out. */
ucs_status_t
np_stream_register(np_stream_t *stream, np_stream_chunk_t **chunk_p)
{
    np_vport_t *port         = stream->conn->port;
    np_stream_chunk_t *chunk = np_stream_chunk(stream, stream->chunk_tail);
    uint8_t *base            = np_stream_local(stream, stream->next);
    unsigned flags           = (stream->is_source ? 0 : NP_LEASE_WRITE) |
                               (np_stream_is_ours(stream) ? 0 :
                                NP_LEASE_PEERS);
    ucs_status_t status;
    size_t len;

    for (;;) {
        len = np_lease_room(port,
                            ucs_min(stream->chunk, stream->len - stream->next),
                            np_stream_num_chunks(stream) > 0);
        if (len == 0) {
            return UCS_ERR_NO_RESOURCE; /* until a chunk of it is done */
        }

        if (np_swap_range_touches((uintptr_t)base, len)) {
            return UCS_ERR_EXCEEDS_LIMIT;
        }

        if (!np_stream_may_sleep(stream) &&
            !np_access_is_present((uintptr_t)base, len)) {
            np_stream_want(stream, stream->next, len);
            return UCS_ERR_NO_RESOURCE;
        }

        status = np_lease_take(port, base, len, flags, &chunk->lease);
        if ((status != UCS_ERR_EXCEEDS_LIMIT) ||
            (stream->chunk <= NP_VPORT_CHUNK_MIN)) {
            break;
        }
        stream->chunk = ucs_max(stream->chunk / 2, (size_t)NP_VPORT_CHUNK_MIN);
    }

    if (status != UCS_OK) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    chunk->offset = stream->next;
    chunk->len    = len;
    chunk->posted = 0;
    stream->next += len;
    ++stream->chunk_tail;
    *chunk_p      = chunk;
    return UCS_OK;
}

ucs_status_t np_stream_copy(np_stream_t *stream, size_t offset, void *data,
                            size_t len, int to_ours)
{
    np_iov_t piece[NP_MAX_IOV];
    ucs_status_t status;
    size_t count;

    count  = np_iov_slice(stream->iov, stream->iovcnt, offset, len, piece);
    status = np_stage_copy(&stream->conn->port->stage, piece, count, data,
                           to_ours, np_stream_may_sleep(stream));
    if (ucs_unlikely(status == UCS_ERR_INVALID_ADDR) &&
        np_stream_is_ours(stream)) {
        np_error("%zu bytes of local memory, from %p on, in %zu pieces, cannot "
                 "be %s: %s", len, piece[0].base, count,
                 to_ours ? "written" : "read", ucs_status_string(status));
    }
    return status;
}

void
np_stream_fill(const np_stream_t *stream, np_vctl_t *ctl, np_vmsg_kind_t kind)
{
    memset(ctl, 0, sizeof(*ctl));
    ctl->msg.kind    = kind;
    ctl->body.op     = stream->name;
    ctl->body.status = stream->status;
}

/* Tell the other side that it has failed; returns 0: no room */
static int np_stream_tell(np_stream_t *stream)
{
    np_vctl_t ctl;

    if (!np_stream_has_room(stream)) {
        return 0;
    }

    np_stream_fill(stream, &ctl, NP_VMSG_DONE);
    if (!np_conn_send_copied(stream->conn, &ctl.msg, sizeof(ctl))) {
        return 0;
    }

    stream->phase = np_stream_is_over(stream) ? NP_STREAM_CLOSED :
                    NP_STREAM_TOLD;
    return 1;
}

/* It has failed, here or there. What is exposed goes only when the other side
 * has said that it writes no more. */
static int np_stream_fail(np_stream_t *stream)
{
    if (stream->posted > 0) {
        return 0; /* until they are done */
    }

    if ((stream->phase != NP_STREAM_TOLD) &&
        (stream->phase != NP_STREAM_CLOSED) &&
        (!stream->no_keys || !np_stream_is_ours(stream)) &&
        !np_stream_tell(stream)) {
        return 1;
    }

    /* The link's source and the target's source have told, and write no more;
     * a sink waits for that */
    if (!stream->is_source && !np_stream_is_over(stream) && !stream->no_keys) {
        return 0;
    }

    np_stream_release(stream);
    if (np_stream_is_ours(stream)) {
        np_stream_finish(stream, stream->status);
    } else {
        np_stream_put_served(stream);
    }
    return 0;
}

int np_stream_run(np_stream_t *stream)
{
    return (stream->status != UCS_OK) ? np_stream_fail(stream) :
           stream->is_source ? np_stream_source(stream) :
           np_stream_sink(stream);
}

void np_stream_moved(np_stream_t *stream, uint32_t index)
{
    np_stream_chunk_t *chunk;

    --stream->posted;
    --np_stream_chunk(stream, index)->posted;
    while ((np_stream_num_chunks(stream) > 0) && (stream->next < stream->len)) {
        chunk = np_stream_chunk(stream, stream->chunk_head);
        if ((chunk->posted > 0) ||
            (stream->moved < (chunk->offset + chunk->len))) {
            break;
        }
        np_stream_pop_chunk(stream);
    }
    np_stream_todo(stream);
}

ucs_status_t np_stream_take_ready(np_stream_t *stream, const np_vbody_t *body)
{
    if (!stream->is_source || stream->no_keys || (body->len == 0) ||
        (body->offset != stream->ready_next) ||
        (body->len > (stream->len - body->offset)) ||
        ((stream->ready_tail - stream->ready_head) == NP_STREAM_DEPTH)) {
        return UCS_ERR_INVALID_PARAM;
    }

    stream->ready[stream->ready_tail++ % NP_STREAM_DEPTH] =
            (np_stream_ready_t){
        .offset = body->offset,
        .len    = body->len,
        .addr   = body->addr,
        .rkey   = body->rkey
    };
    stream->ready_next += body->len;
    np_stream_todo(stream);
    return UCS_OK;
}

void np_stream_take_done(np_stream_t *stream, const np_vbody_t *body)
{
    if ((body->status == UCS_OK) && (stream->posted == 0)) {
        np_stream_finish(stream, UCS_OK);
        return;
    }

    if ((body->status != UCS_OK) && (stream->status == UCS_OK)) {
        stream->status = np_status_of_peer(body->status);
    }

    /* what it has not completed yet is on the way */
    stream->phase = (stream->phase == NP_STREAM_TOLD) ? NP_STREAM_CLOSED :
                    ucs_max(stream->phase, NP_STREAM_OVER);
    np_stream_todo(stream);
}
