/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The sink of a stream: it says where it is ready, and what has arrived.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "stream_ends.h"

#include "bring.h"

/* A chunk that is asked for by messages */
#define NP_STREAM_BY_MESSAGES  (NP_STREAM_MESSAGES * NP_VSEG_DATA)


/* Tell where a chunk may be written */
static void
np_stream_say_ready(np_stream_t *stream, const np_stream_chunk_t *chunk)
{
    np_vctl_t ctl;

    np_stream_fill(stream, &ctl, NP_VMSG_READY);
    ctl.body.addr   = (uintptr_t)np_stream_local(stream, chunk->offset);
    ctl.body.len    = chunk->len;
    ctl.body.offset = chunk->offset;
    ctl.body.rkey   = np_lease_rkey(&chunk->lease);
    np_conn_send_copied(stream->conn, &ctl.msg, sizeof(ctl));
}

/* The next chunk by messages; NULL: when all others are done */
static np_stream_chunk_t *np_stream_next_by_messages(np_stream_t *stream)
{
    np_stream_chunk_t *chunk;

    if (np_stream_num_chunks(stream) > 0) {
        return NULL;
    }

    chunk         = np_stream_chunk(stream, stream->chunk_tail++);
    chunk->lease  = (np_lease_t){0};
    chunk->posted = 0;
    chunk->offset = stream->next;
    chunk->len    = ucs_min(stream->len - stream->next,
                            (size_t)NP_STREAM_BY_MESSAGES);
    stream->next += chunk->len;
    return chunk;
}

/* Let the next chunk be written. Returns whether to come again. */
static int np_stream_expose(np_stream_t *stream)
{
    np_stream_chunk_t *chunk;
    ucs_status_t status;

    if (!stream->is_prepared &&
        (stream->no_keys || (stream->bring != NULL) ||
         (stream->next == stream->len) || np_stream_is_full(stream))) {
        return 0;
    }

    if (!np_stream_has_room(stream) ||
        (stream->conn->port->free_send == NULL)) {
        return 1;
    }

    if (stream->is_prepared) {
        stream->is_prepared = 0;
        np_stream_say_ready(stream,
                            np_stream_chunk(stream, stream->chunk_head));
        return stream->next < stream->len;
    }

    status = stream->no_register ? UCS_ERR_EXCEEDS_LIMIT :
             np_stream_register(stream, &chunk);
    if (status == UCS_ERR_NO_RESOURCE) {
        return 0;
    } else if (status == UCS_ERR_EXCEEDS_LIMIT) {
        chunk = np_stream_next_by_messages(stream);
        if (chunk == NULL) {
            return 0;
        }
    }

    np_stream_say_ready(stream, chunk);
    return stream->next < stream->len;
}

int np_stream_sink(np_stream_t *stream)
{
    if (stream->moved < stream->len) {
        return np_stream_expose(stream);
    }

    if (!np_stream_is_ours(stream)) {
        np_conn_answer(stream->conn, NP_VMSG_DONE, stream->name, UCS_OK, 0);
    }
    np_stream_complete(stream);
    return 0;
}

/* Everything below @a upto is here */
static void np_stream_arrived(np_stream_t *stream, size_t upto)
{
    np_stream_chunk_t *chunk;

    stream->moved = upto;
    while ((np_stream_num_chunks(stream) > 0) && (upto < stream->len)) {
        chunk = np_stream_chunk(stream, stream->chunk_head);
        if ((chunk->offset + chunk->len) > upto) {
            break;
        }
        np_stream_pop_chunk(stream);
    }
    np_stream_todo(stream);
}

ucs_status_t
np_stream_take_data(np_stream_t *stream, const np_vbody_t *body,
                    const void *data, size_t len)
{
    size_t end = stream->no_keys ? stream->len : stream->next;
    ucs_status_t status;

    /* what was written before, by the same queue pair, is there */
    if (stream->is_source || (len == 0) || (body->offset < stream->moved) ||
        (body->offset > end) || (len > (end - body->offset))) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (stream->status != UCS_OK) {
        return UCS_OK;
    }

    status = np_stream_copy(stream, body->offset, (void*)data, len, 1);
    if (ucs_unlikely(status == UCS_ERR_NO_RESOURCE)) {
        np_bring_want(stream->conn->port,
                      (uintptr_t)np_stream_local(stream, body->offset),
                      np_stream_may_sleep(stream) ? 0 : len, 1);
        return UCS_ERR_NO_RESOURCE;
    }

    stream->status = status;
    np_stream_arrived(stream, body->offset + len);
    return UCS_OK;
}

ucs_status_t np_stream_take_written(np_stream_t *stream)
{
    np_stream_chunk_t *chunk;

    if (stream->is_source || (np_stream_num_chunks(stream) == 0)) {
        return UCS_ERR_INVALID_PARAM;
    }

    chunk = np_stream_chunk(stream, stream->chunk_head);
    np_stream_arrived(stream, chunk->offset + chunk->len);
    return UCS_OK;
}
