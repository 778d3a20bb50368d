/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Streams of a connection: which of them a message is about, those that are
 * served for a peer, and what becomes of a link's streams with another queue
 * pair. A peer is trusted with what it was given: every length and address is
 * checked.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "stream_ends.h"

#include "bring.h"

#include "../../mem/space.h"
#include "../../trace.h"
#include "../../work.h"

#include <stdlib.h>
#include <string.h>

/* Those for peers are made in blocks, which live as long as the port */
#define NP_STREAM_BLOCK  16u

typedef struct np_stream_block {
    struct np_stream_block *next;
    np_stream_t            streams[NP_STREAM_BLOCK];
} np_stream_block_t;


np_stream_t *np_stream_find(const np_conn_t *conn, uint32_t name)
{
    np_stream_t *stream;

    ucs_list_for_each(stream, &conn->streams, list) {
        if (stream->name == name) {
            return stream;
        }
    }
    return NULL;
}

/* One more block, whose streams are free */
static int np_stream_grow(np_vport_t *port)
{
    np_stream_block_t *block = calloc(1, sizeof(*block));
    unsigned i;

    if (block == NULL) {
        return 0;
    }

    block->next         = port->stream_blocks;
    port->stream_blocks = block;
    for (i = 0; i < NP_STREAM_BLOCK; ++i) {
        block->streams[i].next_free = port->free_streams;
        port->free_streams          = &block->streams[i];
    }
    return 1;
}

void np_streams_cleanup(np_vport_t *port)
{
    np_stream_block_t *block;

    while ((block = port->stream_blocks) != NULL) {
        port->stream_blocks = block->next;
        free(block);
    }
}

/* Work on one of the peer's. UCS_ERR_NO_RESOURCE: it has as many as it may. */
static ucs_status_t
np_stream_serve(np_conn_t *conn, const np_vctl_t *ctl, uint64_t va)
{
    const np_vbody_t *body = &ctl->body;
    np_vport_t *port       = conn->port;
    np_stream_t *stream;

    if (conn->num_served >= NP_STREAM_SERVED_MAX) {
        return UCS_ERR_NO_RESOURCE;
    }

    if ((port->free_streams == NULL) && !np_stream_grow(port)) {
        return UCS_ERR_NO_MEMORY;
    }

    stream             = port->free_streams;
    port->free_streams = stream->next_free;
    memset(stream, 0, sizeof(*stream));
    stream->conn      = conn;
    stream->name      = body->op;
    stream->is_absent = !!(ctl->msg.flags & NP_VMSG_ABSENT);
    stream->is_source = ctl->msg.kind == NP_VMSG_READ;
    stream->no_keys   = !!(ctl->msg.flags & NP_VMSG_NO_KEYS);
    stream->iov[0]    = (np_iov_t){(void*)va, body->len};
    stream->iovcnt    = 1;
    stream->len       = body->len;
    stream->begin     = np_trace_begin();
    ucs_list_head_init(&stream->todo);
    ucs_list_head_init(&stream->asked.list);
    ucs_list_add_tail(&conn->streams, &stream->list);
    ++conn->num_served;
    ++port->num_served;
    np_stream_start(stream);
    return UCS_OK;
}

void np_stream_put_served(np_stream_t *stream)
{
    np_conn_t *conn   = stream->conn;
    np_vport_t *port  = conn->port;
    const uint64_t va = (uintptr_t)np_stream_local(stream, 0);

    np_stream_drop(stream);
    np_trace(NP_TRACE_SERVE, stream->begin, va, stream->len);
    if (stream->is_absent) {
        np_bring_later(port, va, stream->len, !stream->is_source);
    }

    np_assert((conn->num_served > 0) && (port->num_served > 0));
    --conn->num_served;
    --port->num_served;
    stream->next_free  = port->free_streams;
    port->free_streams = stream;
}

void np_streams_end_served(np_conn_t *conn)
{
    while (conn->num_served > 0) {
        np_stream_put_served(ucs_list_head(&conn->streams, np_stream_t, list));
    }
}

/* A link asks for one */
static ucs_status_t np_stream_begin_asked(np_conn_t *conn, const np_vctl_t *ctl)
{
    const np_vbody_t *body = &ctl->body;
    const unsigned rights  = (ctl->msg.kind == NP_VMSG_READ) ? NP_RIGHT_READ :
                             NP_RIGHT_WRITE;
    ucs_status_t status;
    uint64_t va;

    if ((body->len == 0) || (np_stream_find(conn, body->op) != NULL)) {
        return UCS_ERR_INVALID_PARAM;
    }

    status = np_space_resolve(body->addr, body->len, rights, &va);
    if (status == UCS_OK) {
        status = np_stream_serve(conn, ctl, va);
    }
    if (status != UCS_OK) {
        np_conn_answer(conn, NP_VMSG_DONE, body->op, status, 0);
    }
    return UCS_OK;
}

ucs_status_t np_stream_asked(np_conn_t *conn, const np_vctl_t *ctl, size_t len)
{
    const np_vmsg_kind_t kind = ctl->msg.kind;
    const np_vbody_t *body    = &ctl->body;
    np_stream_t *stream;

    if ((kind == NP_VMSG_READ) || (kind == NP_VMSG_WRITE)) {
        return np_stream_begin_asked(conn, ctl);
    }

    stream = np_stream_find(conn, body->op);
    if (stream == NULL) {
        /* it is over here: nothing more will be moved */
        if ((kind == NP_VMSG_DONE) && (body->status != UCS_OK)) {
            np_conn_answer(conn, NP_VMSG_DONE, body->op, UCS_ERR_CANCELED, 0);
        }
        return UCS_OK;
    }

    if ((kind == NP_VMSG_DONE) && (body->status == UCS_OK)) {
        return UCS_ERR_INVALID_PARAM; /* we are to say so */
    }
    return np_stream_told(stream, ctl, len);
}

ucs_status_t
np_stream_told(np_stream_t *stream, const np_vctl_t *ctl, size_t len)
{
    switch (ctl->msg.kind) {
    case NP_VMSG_READY:
        return np_stream_take_ready(stream, &ctl->body);
    case NP_VMSG_DATA:
        return np_stream_take_data(stream, &ctl->body, ctl + 1, len);
    case NP_VMSG_DONE:
        np_stream_take_done(stream, &ctl->body);
        return UCS_OK;
    default:
        return UCS_ERR_INVALID_PARAM;
    }
}

int np_stream_take_key(np_conn_t *conn, const np_vctl_t *ctl)
{
    np_stream_t *stream = np_stream_find(conn, ctl->body.op);

    return (stream != NULL) &&
           (np_stream_take_ready(stream, &ctl->body) == UCS_OK);
}

ucs_status_t np_stream_written(np_conn_t *conn, uint32_t name)
{
    np_stream_t *stream = np_stream_find(conn, name);

    return (stream == NULL) ? UCS_OK : np_stream_take_written(stream);
}

int np_stream_awaits_write(const np_conn_t *conn)
{
    const np_stream_t *stream;

    ucs_list_for_each(stream, &conn->streams, list) {
        if (!stream->is_source && !stream->no_keys &&
            !np_stream_is_over(stream) && (np_stream_num_chunks(stream) > 0)) {
            return 1;
        }
    }
    return 0;
}

static int np_stream_is_for_thread(np_stream_t *stream)
{
    return !np_stream_is_ours(stream) || np_stream_source_is_for_thread(stream);
}

int np_stream_has_thread_work(const np_vport_t *port)
{
    np_stream_t *stream;

    ucs_list_for_each(stream, &port->streams, todo) {
        if (np_stream_is_for_thread(stream)) {
            return 1;
        }
    }
    return 0;
}

static unsigned np_stream_work_one(ucs_list_link_t *todo)
{
    np_stream_t *stream   = ucs_container_of(todo, np_stream_t, todo);
    const np_conn_t *conn = stream->conn;

    if (!np_conn_goes_on(conn)) {
        ucs_list_del(todo); /* it ends with the connection, or begins anew */
        ucs_list_head_init(todo);
        return 0;
    }

    if (conn->port->is_thread && !np_stream_is_for_thread(stream)) {
        return 0; /* the owner */
    }

    ucs_list_del(todo);
    ucs_list_head_init(todo);
    if (np_stream_run(stream)) {
        np_stream_todo(stream);
    }
    return 1;
}

unsigned np_stream_progress(np_vport_t *port)
{
    return np_work(&port->streams, np_stream_work_one);
}

int np_stream_ask_again(np_asked_t *asked)
{
    np_stream_t *stream = ucs_container_of(asked, np_stream_t, asked);

    if (stream->status != UCS_OK) {
        /* it is not written to any more */
        np_stream_finish(stream, stream->status);
        return 1;
    }
    return np_conn_ask_again(stream->conn, asked);
}

void np_streams_lost(np_conn_t *conn)
{
    np_stream_t *stream;

    ucs_list_for_each(stream, &conn->streams, list) {
        np_stream_reset(stream);
    }
}

void np_streams_resumed(np_conn_t *conn)
{
    np_stream_t *stream;

    ucs_list_for_each(stream, &conn->streams, list) {
        np_stream_start(stream);
    }
}

void np_streams_renumber(np_conn_t *conn, uint32_t taken, uint32_t seq)
{
    np_stream_t *stream;

    ucs_list_for_each(stream, &conn->streams, list) {
        np_conn_renumber(&stream->last_seq, taken, seq);
    }
}

/* A put by messages that ends when all of them are taken, and they are; NULL:
 * none */
static np_stream_t *np_stream_next_acked(np_conn_t *conn)
{
    np_stream_t *stream;

    ucs_list_for_each(stream, &conn->streams, list) {
        if ((stream->phase == NP_STREAM_SENT) && (stream->status == UCS_OK) &&
            np_conn_has_acked(conn, stream->last_seq)) {
            return stream;
        }
    }
    return NULL;
}

void np_streams_acked(np_conn_t *conn)
{
    np_stream_t *stream;

    /* From the beginning each time: what completes may cancel the others */
    while ((stream = np_stream_next_acked(conn)) != NULL) {
        np_stream_finish(stream, UCS_OK);
    }
}
