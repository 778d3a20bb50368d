/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What both ends of a stream are made of: private to stream.c,
 * stream_source.c and stream_sink.c.
 */

#ifndef NP_STREAM_ENDS_H_
#define NP_STREAM_ENDS_H_

#include "stream.h"

/** What there is to do for one; returns whether to come again */
int np_stream_source(np_stream_t *stream);
int np_stream_sink(np_stream_t *stream);

/** Link's: may a service thread go on with it? */
int np_stream_source_is_for_thread(np_stream_t *stream);

/** Do what there is to do; returns whether to come again */
int np_stream_run(np_stream_t *stream);

/** A source is told where it may write. As np_stream_asked. */
ucs_status_t np_stream_take_ready(np_stream_t *stream, const np_vbody_t *body);

/** Bytes have come for a sink, in a message; and by a write with immediate */
ucs_status_t
np_stream_take_data(np_stream_t *stream, const np_vbody_t *body,
                    const void *data, size_t len);
ucs_status_t np_stream_take_written(np_stream_t *stream);

/** The other side says that it moves nothing more; UCS_OK: of a link's, which
 *  is complete */
void np_stream_take_done(np_stream_t *stream, const np_vbody_t *body);

/** It has something to do in the next progress */
void np_stream_todo(np_stream_t *stream);

/**
 * Register the next chunk.
 *
 * @return UCS_ERR_NO_RESOURCE: later; stream->bring says whether its pages are
 *         the reason. UCS_ERR_EXCEEDS_LIMIT: not even a small one, or none at
 *         all, and it goes by messages.
 */
ucs_status_t
np_stream_register(np_stream_t *stream, np_stream_chunk_t **chunk_p);

/** The oldest chunk is not needed any more */
void np_stream_pop_chunk(np_stream_t *stream);

/** Bytes of ours to or from a message */
ucs_status_t np_stream_copy(np_stream_t *stream, size_t offset, void *data,
                            size_t len, int to_ours);

/** What is served goes on when the bytes from @a offset on are there */
void np_stream_want(np_stream_t *stream, size_t offset, size_t len);

/** A message about it, without data */
void
np_stream_fill(const np_stream_t *stream, np_vctl_t *ctl, np_vmsg_kind_t kind);

/** One that was served ends. Its queue pair must not use what it holds any
 *  more. */
void np_stream_put_served(np_stream_t *stream);

/** It is new, or has been reset: it may do something */
void np_stream_start(np_stream_t *stream);

/** A link's begins anew with what is not known to have moved */
void np_stream_reset(np_stream_t *stream);

/** It is complete, whichever side's it is */
void np_stream_complete(np_stream_t *stream);

/** A link's ends. Its registrations are given back when the program has been
 *  told (seed FRRWP: off the critical path). */
void np_stream_finish(np_stream_t *stream, ucs_status_t status);

/** Give back what it has registered */
void np_stream_release(np_stream_t *stream);


/** Is it a link's of ours? Else it is served for a peer. */
static UCS_F_ALWAYS_INLINE int np_stream_is_ours(const np_stream_t *stream)
{
    return stream->conn->is_link;
}

static UCS_F_ALWAYS_INLINE unsigned
np_stream_num_chunks(const np_stream_t *stream)
{
    return stream->chunk_tail - stream->chunk_head;
}

static UCS_F_ALWAYS_INLINE np_stream_chunk_t *
np_stream_chunk(np_stream_t *stream, uint32_t index)
{
    return &stream->chunks[index % NP_STREAM_DEPTH];
}

/** May it register no other chunk now? */
static UCS_F_ALWAYS_INLINE int np_stream_is_full(const np_stream_t *stream)
{
    return np_stream_num_chunks(stream) ==
           ucs_min(stream->conn->port->config.depth, (unsigned)NP_STREAM_DEPTH);
}

/** May a message be sent? */
static UCS_F_ALWAYS_INLINE int np_stream_has_room(const np_stream_t *stream)
{
    return np_conn_has_room(stream->conn) &&
           (!stream->conn->is_link || np_conn_has_credit(stream->conn));
}

static UCS_F_ALWAYS_INLINE uint8_t *
np_stream_local(const np_stream_t *stream, size_t offset)
{
    return UCS_PTR_BYTE_OFFSET(stream->iov[0].base, offset);
}

/** May what is done for it sleep in a page? What the program has posted sleeps
 *  in its own. */
static UCS_F_ALWAYS_INLINE int np_stream_may_sleep(const np_stream_t *stream)
{
    return np_stream_is_ours(stream) || stream->is_patient ||
           stream->conn->port->is_patient;
}

/** Does the other side move nothing more? */
static UCS_F_ALWAYS_INLINE int np_stream_is_over(const np_stream_t *stream)
{
    return stream->phase >= NP_STREAM_OVER;
}

#endif
