/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The source of a stream: it writes where the sink is ready.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "stream_ends.h"

#include "../../mem/access.h"
#include "../../mem/swapper.h"
#include "../../pause.h"


/* May a thread touch these bytes, for the program that has posted them? It must
 * not sleep in a page: it has the port meanwhile. */
static int
np_stream_is_present(const np_stream_t *stream, size_t offset, size_t end)
{
    const uint64_t va = (uintptr_t)np_stream_local(stream, offset);

    return !np_swap_range_touches(va, end - offset) &&
           np_access_is_present(va, end - offset);
}

/* Is it a thread that must not touch these bytes? They are the owner's. */
static int
np_stream_is_for_owner(const np_stream_t *stream, size_t offset, size_t end)
{
    return np_stream_is_ours(stream) &&
           ucs_unlikely(stream->conn->port->is_thread) &&
           !np_stream_is_present(stream, offset, end);
}

/* Where the next chunk to be registered would end */
static size_t np_stream_next_end(const np_stream_t *stream)
{
    return stream->next + ucs_min(stream->chunk, stream->len - stream->next);
}

static UCS_F_ALWAYS_INLINE int np_stream_has_key(const np_stream_t *stream)
{
    return stream->ready_head != stream->ready_tail;
}

/* Does the next byte of what the sink has asked for go by a message? */
static int np_stream_is_by_message(const np_stream_t *stream,
                                   const np_stream_ready_t *ready)
{
    return (ready->rkey == 0) ||
           (stream->no_register && (stream->moved >= stream->next));
}

/* A message with the next @a len bytes; NULL: no room */
static np_vctl_t *np_stream_begin_data(np_stream_t *stream, size_t len)
{
    np_vctl_t *ctl = np_stream_has_room(stream) ?
                     (np_vctl_t*)np_conn_begin(stream->conn, NP_VMSG_DATA) :
                     NULL;

    if (ctl == NULL) {
        return NULL;
    }

    ctl->body = (np_vbody_t){.op = stream->name, .offset = stream->moved};
    if (stream->no_keys && np_stream_is_ours(stream)) {
        /* a put that needs no answer */
        ctl->msg.kind  = NP_VMSG_PUT;
        ctl->msg.flags = (stream->is_absent ? NP_VMSG_ABSENT : 0) |
                         (((stream->moved + len) == stream->len) ?
                          NP_VMSG_ACK_NOW : 0);
        ctl->body.addr = stream->remote + stream->moved;
    }
    return ctl;
}

/* Send up to @a end by messages; returns 0: no room for more */
static int np_stream_send(np_stream_t *stream, size_t end)
{
    ucs_status_t status;
    np_vctl_t *ctl;
    size_t len;

    while ((stream->moved < end) && (stream->status == UCS_OK)) {
        if (stream->bring != NULL) {
            return 0;
        }

        len = ucs_min(end - stream->moved, NP_VSEG_DATA);
        ctl = np_stream_begin_data(stream, len);
        if (ctl == NULL) {
            return 0;
        }

        status = np_stream_copy(stream, stream->moved, ctl + 1, len, 0);
        if (status == UCS_ERR_NO_RESOURCE) {
            np_conn_drop(stream->conn, &ctl->msg);
            if (!np_stream_may_sleep(stream)) {
                np_stream_want(stream, stream->moved, len);
            } /* else its swapper takes it away each time */
            return 0;
        }

        if (status != UCS_OK) {
            np_conn_drop(stream->conn, &ctl->msg);
            stream->status = status;
            return 1;
        }

        np_conn_send(stream->conn, &ctl->msg, sizeof(*ctl) + len);
        stream->has_sent = 1;
        stream->moved   += len;
    }
    return 1;
}

/* The chunk of ours that has the next byte; NULL: none yet */
static np_stream_chunk_t *
np_stream_next_chunk(np_stream_t *stream, uint32_t *index)
{
    np_stream_chunk_t *chunk;
    uint32_t i;

    for (i = stream->chunk_head; i != stream->chunk_tail; ++i) {
        chunk = np_stream_chunk(stream, i);
        if (stream->moved < (chunk->offset + chunk->len)) {
            *index = i;
            return chunk;
        }
    }
    return NULL;
}

/* Write as far as both sides are ready; returns 0: no room for more */
static int
np_stream_write(np_stream_t *stream, const np_stream_ready_t *ready)
{
    size_t end    = ready->offset + ready->len, len;
    np_place_t to = {.key = ready->rkey}, from;
    np_stream_chunk_t *chunk;
    uint32_t index;

    while (stream->moved < end) {
        chunk = np_stream_next_chunk(stream, &index);
        if (chunk == NULL) {
            return 1;
        }

        if (!np_conn_has_room(stream->conn)) {
            return 0;
        }

        /* a request has 32 bits for it, and a device may take less */
        len = ucs_min(ucs_min(chunk->offset + chunk->len, end) - stream->moved,
                      (size_t)stream->conn->port->nic->max_write);
        ++chunk->posted;
        ++stream->posted;
        to.addr        = ready->addr + (stream->moved - ready->offset);
        from           = np_lease_place(&chunk->lease, np_stream_local(
                stream, stream->moved));
        stream->moved += len;
        np_conn_write_lease(stream->conn, from, to, len,
                            (stream->moved == end) ? &stream->name : NULL,
                            stream, index);
    }
    return 1;
}

/* What has gone by messages meanwhile needs no registration: without this, all
 * that may be registered at a time would wait for writes that never come */
static void np_stream_skip_sent(np_stream_t *stream)
{
    np_stream_chunk_t *chunk;

    while (np_stream_num_chunks(stream) > 0) {
        chunk = np_stream_chunk(stream, stream->chunk_head);
        if ((chunk->posted > 0) ||
            (stream->moved < (chunk->offset + chunk->len))) {
            return;
        }
        np_stream_pop_chunk(stream);
    }
    stream->next = ucs_max(stream->next, stream->moved);
}

/* Register the next chunk while others move. Returns whether to come again. */
static int np_stream_prepare_source(np_stream_t *stream)
{
    np_stream_chunk_t *chunk;
    ucs_status_t status;

    if (stream->no_keys || stream->no_register || (stream->bring != NULL) ||
        (stream->next == stream->len) || np_stream_is_full(stream) ||
        (stream->conn->port->config.is_sequential &&
         !np_stream_has_key(stream))) {
        return 0;
    }

    if (np_stream_is_for_owner(stream, stream->next,
                               np_stream_next_end(stream))) {
        return 1;
    }

    status = np_stream_register(stream, &chunk);
    if (status == UCS_ERR_NO_RESOURCE) {
        return 0;
    }

    if (status == UCS_ERR_EXCEEDS_LIMIT) {
        stream->no_register = 1;
    }
    return 1;
}

static int np_stream_is_sent(const np_stream_t *stream)
{
    return (stream->moved == stream->len) &&
           ((stream->posted == 0) || NP_IS_MUTANT(LEASE_TOO_EARLY));
}

/* What the sink has asked for. Returns 0: no room for more; @a is_again: the
 * owner must go on. */
static int np_stream_follow(np_stream_t *stream, int *is_again)
{
    int has_room = 1;
    const np_stream_ready_t *ready;
    size_t end;

    while (has_room && np_stream_has_key(stream) &&
           (stream->status == UCS_OK)) {
        ready = &stream->ready[stream->ready_head % NP_STREAM_DEPTH];
        end   = ready->offset + ready->len;
        if (np_stream_is_by_message(stream, ready)) {
            if (np_stream_is_for_owner(stream, stream->moved, end)) {
                *is_again = 1;
                return 1;
            }
            has_room = np_stream_send(stream, end);
            np_stream_skip_sent(stream);
        } else {
            has_room = np_stream_write(stream, ready);
        }

        if (stream->moved == end) {
            ++stream->ready_head;
        } else if (!stream->no_register || (ready->rkey == 0)) {
            break; /* else the rest of it goes by messages */
        }
    }
    return has_room;
}

int np_stream_source(np_stream_t *stream)
{
    int is_again = np_stream_prepare_source(stream), has_room = 1;

    if (stream->no_keys) {
        has_room = np_stream_send(stream, stream->len);
    }
    if (has_room) {
        has_room = np_stream_follow(stream, &is_again);
    }

    if (stream->status != UCS_OK) {
        return 1;
    }

    if (np_stream_is_sent(stream)) {
        if (np_stream_is_over(stream) || !np_stream_is_ours(stream)) {
            np_stream_complete(stream);
            return 0;
        }

        if (stream->no_keys && (stream->phase != NP_STREAM_SENT)) {
            stream->phase    = NP_STREAM_SENT;
            stream->last_seq = stream->conn->tx_seq;
            np_conn_want_credit(stream->conn);
        }
    }
    return is_again || (!has_room && (stream->bring == NULL));
}

int np_stream_source_is_for_thread(np_stream_t *stream)
{
    const np_stream_ready_t *ready;
    uint32_t index;

    if (!stream->is_source || stream->no_keys || np_stream_is_over(stream) ||
        (stream->status != UCS_OK) || !np_stream_has_key(stream)) {
        return 0;
    }

    ready = &stream->ready[stream->ready_head % NP_STREAM_DEPTH];
    if (np_stream_is_by_message(stream, ready)) {
        return np_stream_is_present(stream, stream->moved,
                                    ready->offset + ready->len);
    }
    return (np_stream_next_chunk(stream, &index) != NULL) ||
           np_stream_is_present(stream, stream->next,
                                np_stream_next_end(stream));
}
