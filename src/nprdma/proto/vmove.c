/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Transfers of memory that is registered only while they last (design, section
 * 6; seed FRRWP). The request goes out at once; source and sink register chunk
 * after chunk at the same time, and a chunk moves as soon as both have it,
 * while they register the next. What cannot be registered is carried by
 * messages.
 *
 * Data flows in the order of offsets, by one queue pair: the sink's chunks are
 * written one after the other, the last write of each with immediate, which
 * tells the sink (the paper's write with immediate).
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vop.h"

#include "../iov.h"
#include "../mem/access.h"
#include "../mem/swapper.h"
#include "../pause.h"

#include <string.h>

/* A piece that the sink asks for by messages, when it can register nothing */
#define NP_VMOVE_BY_MESSAGES  (8 * NP_VSEG_DATA)

/* Largest chunk of a connection whose queue pair has failed once: a transfer
 * goes on from the last whole chunk, which must get through a network that
 * loses packets before the next queue pair fails */
#define NP_VMOVE_SMALL  NP_LEASE_SMALL

/* What is brought in at once for a peer's transfer, if there is so much */
#define NP_VMOVE_BRING  ((size_t)(1 * UCS_MBYTE))


static UCS_F_ALWAYS_INLINE unsigned np_vmove_chunks(const np_vmove_t *move)
{
    return move->chunk_tail - move->chunk_head;
}

static UCS_F_ALWAYS_INLINE unsigned np_vmove_depth(const np_vop_t *op)
{
    return ucs_min(op->port->config.depth, (unsigned)NP_VDEPTH_MAX);
}

/* May a message be sent? */
static int np_vmove_has_room(const np_vop_t *op)
{
    return np_conn_has_room(op->conn) &&
           (!op->conn->is_link || np_conn_has_credit(op->conn));
}

static uint8_t *np_vmove_local(const np_vmove_t *move, size_t offset)
{
    return UCS_PTR_BYTE_OFFSET(move->iov[0].base, offset);
}

void np_vmove_begin(np_vop_t *op)
{
    size_t chunk = np_lease_size(op->port, op->move.len);

    if (ucs_unlikely(op->conn->epoch > 0)) {
        chunk = ucs_min(chunk, NP_VMOVE_SMALL);
    }
    op->move.chunk = op->port->config.is_sequential ? op->move.len :
                     ucs_max(chunk, (size_t)NP_VPORT_CHUNK_MIN);
    if (op->move.iovcnt != 1) {
        op->move.no_register = 1; /* a list is gathered by messages */
    }
    np_vop_todo(op);
}

/* What an operation that is over has leased: given back when the other side and
 * the program have been told (seed FRRWP: off the critical path) */
static void np_vmove_spend(np_vop_t *op, np_leases_t *spent)
{
    np_vmove_t *move = &op->move;

    for (spent->count = 0; np_vmove_chunks(move) > 0; ++move->chunk_head) {
        np_lease_spend(op->conn, &move->chunks[move->chunk_head %
                                               NP_VDEPTH_MAX].lease, spent);
    }
}

static void np_vmove_pop_chunk(np_vop_t *op)
{
    np_lease_end(op->conn, &op->move.chunks[op->move.chunk_head++ %
                                            NP_VDEPTH_MAX].lease);
}

void np_vmove_release(np_vop_t *op)
{
    np_leases_t spent;

    np_vmove_spend(op, &spent);
    np_leases_end(&spent);
}

/* Bytes that need not move again */
static size_t np_vmove_done_bytes(const np_vmove_t *move)
{
    const np_vchunk_t *chunk;
    uint32_t i;

    if (!move->is_source) {
        return move->moved;
    }

    if (move->has_sent) {
        return 0; /* which were taken nobody has counted */
    }

    for (i = move->chunk_head; i != move->chunk_tail; ++i) {
        chunk = &move->chunks[i % NP_VDEPTH_MAX];
        if ((chunk->posted > 0) ||
            (move->moved < (chunk->offset + chunk->len))) {
            return chunk->offset;
        }
    }
    return ucs_min(move->moved, move->next);
}

void np_vmove_reset(np_vop_t *op)
{
    np_vmove_t *move = &op->move;
    size_t done      = np_vmove_done_bytes(move);
    np_iov_t rest[NP_MAX_IOV];

    np_vmove_release(op);
    if (!move->is_source || !move->no_keys) {
        /* not all of it: then it would be complete */
        done         = ucs_min(done, move->len - 1);
        move->iovcnt = np_iov_slice(move->iov, move->iovcnt, done,
                                    move->len - done, rest);
        memcpy(move->iov, rest, move->iovcnt * sizeof(*rest));
        move->len           -= done;
        move->remote        += done;
        move->moved          = 0;
        op->request.body.addr = move->remote;
        op->request.body.len  = move->len;
    } /* else its messages go again by themselves */
    move->posted      = 0;
    move->is_told     = 0;
    move->is_over     = 0;
    move->is_prepared = 0;
    move->next        = 0;
    move->ready_head  = 0;
    move->ready_tail  = 0;
    move->ready_next  = 0;
    move->has_sent    = 0;
}

/* May what is done for a transfer sleep in a page? What the program has posted
 * sleeps in its own. */
static int np_vmove_may_sleep(const np_vop_t *op)
{
    return (op->link != NULL) || op->move.is_patient || op->port->is_patient;
}

/* np_errand_t::retry */
static void np_vmove_brought(void *waiter)
{
    np_vop_t *op = waiter;

    op->bring = NULL;
    if ((op->conn->state == NP_CONN_READY) && np_vmove_run(op)) {
        np_vop_todo(op);
    }
}

/* What is served goes on when the bytes from @a offset on are there */
static void np_vmove_want(np_vop_t *op, size_t offset, size_t len)
{
    const np_vmove_t *move = &op->move;
    np_vabsent_t pages     = {(uintptr_t)np_vmove_local(move, offset), len,
                              !move->is_source};

    if (op->port->is_closing) {
        return;
    }

    if (!np_swap_range_touches(pages.va, len)) {
        pages.len = ucs_max(len, ucs_min(move->len - offset, NP_VMOVE_BRING));
    }
    op->bring = np_bring_begin(op->port, &pages, np_vmove_brought, op);
    if (op->bring == NULL) {
        op->move.is_patient = 1;
        np_vop_todo(op);
    }
}

/* Register the next piece. UCS_ERR_NO_RESOURCE: later; op->bring says if for
 * the sake of its pages. UCS_ERR_EXCEEDS_LIMIT: not even a small one, or none
 * at all, and it goes by messages. What the program swaps by itself it may need
 * back at any time, and would have to wait until a peer has made its part of
 * the transfer. What the kernel does not register may be there all the same,
 * such as a file that is mapped for reading (Linux 6.1): the copy finds out. */
static ucs_status_t np_vmove_register(np_vop_t *op, np_vchunk_t **chunk_p)
{
    np_vmove_t *move   = &op->move;
    np_vchunk_t *chunk = &move->chunks[move->chunk_tail % NP_VDEPTH_MAX];
    unsigned flags     = (move->is_source ? 0 : NP_LEASE_WRITE) |
                         ((op->link == NULL) ? NP_LEASE_PEERS : 0);
    ucs_status_t status;
    size_t len;

    for (;;) {
        len = np_lease_room(op->port,
                            ucs_min(move->chunk, move->len - move->next),
                            np_vmove_chunks(move) > 0);
        if (len == 0) {
            return UCS_ERR_NO_RESOURCE; /* until a piece of it is done */
        }

        if (np_swap_range_touches((uintptr_t)np_vmove_local(move, move->next),
                                  len)) {
            return UCS_ERR_EXCEEDS_LIMIT;
        }

        if (!np_vmove_may_sleep(op) &&
            !np_access_is_present((uintptr_t)np_vmove_local(move, move->next),
                                  len)) {
            np_vmove_want(op, move->next, len);
            return UCS_ERR_NO_RESOURCE;
        }

        status = np_lease_take(op->port, np_vmove_local(move, move->next), len,
                               flags, &chunk->lease);
        if ((status != UCS_ERR_EXCEEDS_LIMIT) ||
            (move->chunk <= NP_VPORT_CHUNK_MIN)) {
            break;
        }
        move->chunk = ucs_max(move->chunk / 2, (size_t)NP_VPORT_CHUNK_MIN);
    }

    if (status != UCS_OK) {
        return UCS_ERR_EXCEEDS_LIMIT;
    }

    chunk->offset = move->next;
    chunk->len    = len;
    chunk->posted = 0;
    move->next   += len;
    ++move->chunk_tail;
    *chunk_p      = chunk;
    return UCS_OK;
}

void np_vmove_prepare(np_vop_t *op)
{
    np_vchunk_t *chunk;

    /* should it fail it is tried again, and then goes by messages */
    op->move.is_prepared = np_vmove_register(op, &chunk) == UCS_OK;
}

/* Bytes of ours to or from a message */
static ucs_status_t
np_vmove_copy(np_vop_t *op, size_t offset, void *data, size_t len, int to_ours)
{
    np_vmove_t *move = &op->move;
    np_iov_t piece[NP_MAX_IOV];
    ucs_status_t status;
    size_t count;

    count  = np_iov_slice(move->iov, move->iovcnt, offset, len, piece);
    status = np_stage_copy(&op->port->stage, piece, count, data, to_ours,
                      np_vmove_may_sleep(op));
    if (ucs_unlikely(status == UCS_ERR_INVALID_ADDR) && (op->link != NULL)) {
        np_error("%zu bytes of local memory, from %p on, in %zu pieces, cannot "
                 "be %s: %s", len, piece[0].base, count,
                 to_ours ? "written" : "read", ucs_status_string(status));
    }
    return status;
}

/* May a thread touch these bytes, for the program that has posted them? It must
 * not sleep in a page: it has the port meanwhile. */
static int np_vmove_is_present(const np_vop_t *op, size_t offset, size_t end)
{
    const uint64_t va = (uintptr_t)np_vmove_local(&op->move, offset);

    return !np_swap_range_touches(va, end - offset) &&
           np_access_is_present(va, end - offset);
}

/* Where the next piece to be registered would end */
static size_t np_vmove_next_end(const np_vmove_t *move)
{
    return move->next + ucs_min(move->chunk, move->len - move->next);
}

/* Does the next byte of what the sink has asked for go by a message? */
static int
np_vmove_is_by_message(const np_vmove_t *move, const np_vready_t *ready)
{
    return (ready->rkey == 0) ||
           (move->no_register && (move->moved >= move->next));
}

/* Send up to @a end by messages; returns 0: no room for more */
static int np_vmove_send(np_vop_t *op, size_t end)
{
    np_vmove_t *move = &op->move;
    np_vctl_t *ctl;
    size_t len;

    while ((move->moved < end) && (op->super.status == UCS_OK)) {
        if (op->bring != NULL) {
            return 0;
        }

        ctl = np_vmove_has_room(op) ?
              (np_vctl_t*)np_conn_begin(op->conn, NP_VMSG_DATA) : NULL;
        if (ctl == NULL) {
            return 0;
        }

        len       = ucs_min(end - move->moved, NP_VSEG_DATA);
        ctl->body = (np_vbody_t){.op = op->super.name, .offset = move->moved};
        if (move->no_keys && (op->link != NULL)) {
            /* a put that needs no answer */
            ctl->msg.kind  = NP_VMSG_PUT;
            ctl->msg.flags = (move->is_absent ? NP_VMSG_ABSENT : 0) |
                             (((move->moved + len) == move->len) ?
                              NP_VMSG_ACK_NOW : 0);
            ctl->body.addr = move->remote + move->moved;
        }

        op->super.status = np_vmove_copy(op, move->moved, ctl + 1, len, 0);
        if (op->super.status != UCS_OK) {
            np_conn_drop(op->conn, &ctl->msg);
            if (op->super.status == UCS_ERR_NO_RESOURCE) {
                op->super.status = UCS_OK;
                if (!np_vmove_may_sleep(op)) {
                    np_vmove_want(op, move->moved, len);
                } /* else its swapper takes it away each time */
                return 0;
            }
            return 1;
        }

        np_conn_send(op->conn, &ctl->msg, sizeof(*ctl) + len);
        move->has_sent = 1;
        move->moved   += len;
    }
    return 1;
}

/* The chunk of ours that has the next byte; NULL: none yet */
static np_vchunk_t *np_vmove_next_chunk(np_vmove_t *move, uint32_t *index)
{
    np_vchunk_t *chunk;
    uint32_t i;

    for (i = move->chunk_head; i != move->chunk_tail; ++i) {
        chunk = &move->chunks[i % NP_VDEPTH_MAX];
        if (move->moved < (chunk->offset + chunk->len)) {
            *index = i;
            return chunk;
        }
    }
    return NULL;
}

/* Write as far as both sides are ready; returns 0: no room for more */
static int np_vmove_write(np_vop_t *op, const np_vready_t *ready)
{
    np_vmove_t *move = &op->move;
    size_t end       = ready->offset + ready->len, len;
    np_place_t to    = {.key = ready->rkey}, from;
    np_vchunk_t *chunk;
    uint32_t index;

    while (move->moved < end) {
        chunk = np_vmove_next_chunk(move, &index);
        if (chunk == NULL) {
            return 1;
        }

        if (!np_conn_has_room(op->conn)) {
            return 0;
        }

        /* a request has 32 bits for it, and a device may take less */
        len = ucs_min(ucs_min(chunk->offset + chunk->len, end) - move->moved,
                      (size_t)op->port->nic->max_write);
        ++chunk->posted;
        ++move->posted;
        to.addr      = ready->addr + (move->moved - ready->offset);
        from         = np_lease_place(&chunk->lease,
                                      np_vmove_local(move, move->moved));
        move->moved += len;
        np_conn_write_lease(op->conn, from, to, len, (move->moved == end) ?
                            &op->super.name : NULL, op, index);
    }
    return 1;
}

/* What has gone by messages meanwhile needs no registration: without this, all
 * that may be registered at a time would wait for writes that never come */
static void np_vmove_skip_sent(np_vop_t *op)
{
    np_vmove_t *move = &op->move;
    np_vchunk_t *chunk;

    while (np_vmove_chunks(move) > 0) {
        chunk = &move->chunks[move->chunk_head % NP_VDEPTH_MAX];
        if ((chunk->posted > 0) ||
            (move->moved < (chunk->offset + chunk->len))) {
            return;
        }
        np_vmove_pop_chunk(op);
    }
    move->next = ucs_max(move->next, move->moved);
}

/* Register the next piece while others move. Returns whether to come again. */
static int np_vmove_prepare_source(np_vop_t *op)
{
    np_vmove_t *move = &op->move;
    np_vchunk_t *chunk;
    ucs_status_t status;

    if (move->no_keys || move->no_register || (op->bring != NULL) ||
        (move->next == move->len) ||
        (np_vmove_chunks(move) == np_vmove_depth(op)) ||
        (op->port->config.is_sequential &&
         (move->ready_head == move->ready_tail))) {
        return 0;
    }

    if ((op->link != NULL) && ucs_unlikely(op->port->is_thread) &&
        !np_vmove_is_present(op, move->next, np_vmove_next_end(move))) {
        return 1; /* the owner */
    }

    status = np_vmove_register(op, &chunk);
    if (status == UCS_ERR_NO_RESOURCE) {
        return 0;
    }

    if (status == UCS_ERR_EXCEEDS_LIMIT) {
        move->no_register = 1;
    }
    return 1;
}

/* One of a link's is complete */
static void np_vmove_finish(np_vop_t *op)
{
    np_leases_t spent;

    np_vmove_spend(op, &spent);
    np_op_finish(&op->super, UCS_OK);
    np_leases_end(&spent);
}

static int np_vmove_is_sent(const np_vmove_t *move)
{
    return (move->moved == move->len) &&
           ((move->posted == 0) || NP_IS_MUTANT(LEASE_TOO_EARLY));
}

/* All that a source can do now; returns whether to come again */
static int np_vmove_source(np_vop_t *op)
{
    np_vmove_t *move = &op->move;
    np_vready_t *ready;
    int again, has_room = 1;

    again = np_vmove_prepare_source(op);
    if (move->no_keys) {
        has_room = np_vmove_send(op, move->len);
    }

    while (has_room && (move->ready_head != move->ready_tail) &&
           (op->super.status == UCS_OK)) {
        ready = &move->ready[move->ready_head % NP_VDEPTH_MAX];
        if (np_vmove_is_by_message(move, ready)) {
            if ((op->link != NULL) && ucs_unlikely(op->port->is_thread) &&
                !np_vmove_is_present(op, move->moved,
                                     ready->offset + ready->len)) {
                return 1; /* the owner */
            }
            has_room = np_vmove_send(op, ready->offset + ready->len);
            np_vmove_skip_sent(op);
        } else {
            has_room = np_vmove_write(op, ready);
        }

        if (move->moved == (ready->offset + ready->len)) {
            ++move->ready_head;
        } else if (!move->no_register || (ready->rkey == 0)) {
            break; /* else the rest of it goes by messages */
        }
    }

    if (op->super.status != UCS_OK) {
        return 1;
    }

    if (np_vmove_is_sent(move)) {
        if (move->is_over) {
            np_vmove_finish(op);
            return 0;
        }

        if (op->link == NULL) {
            np_vmove_release(op);
            np_vop_served(op);
            return 0;
        }

        if (move->no_keys && !move->has_last) {
            move->has_last = 1;
            move->last_seq = op->conn->tx_seq;
            np_conn_want_credit(op->conn);
        }
    }
    return again || (!has_room && (op->bring == NULL));
}

int np_vmove_is_for_thread(np_vop_t *op)
{
    np_vmove_t *move = &op->move;
    const np_vready_t *ready;
    uint32_t index;

    if ((op->super.kind != NP_OP_MOVE) || !move->is_source || move->no_keys ||
        move->is_over || (op->super.status != UCS_OK) ||
        (move->ready_head == move->ready_tail)) {
        return 0;
    }

    ready = &move->ready[move->ready_head % NP_VDEPTH_MAX];
    if (np_vmove_is_by_message(move, ready)) {
        return np_vmove_is_present(op, move->moved,
                                   ready->offset + ready->len);
    }
    return (np_vmove_next_chunk(move, &index) != NULL) ||
           np_vmove_is_present(op, move->next, np_vmove_next_end(move));
}

static void np_vmove_fill(np_vop_t *op, np_vctl_t *ctl, np_vmsg_kind_t kind)
{
    memset(ctl, 0, sizeof(*ctl));
    ctl->msg.kind    = kind;
    ctl->body.op     = op->super.name;
    ctl->body.status = op->super.status;
}

/* Tell where a piece may be written */
static void np_vmove_say_ready(np_vop_t *op, const np_vchunk_t *chunk)
{
    np_vctl_t ctl;

    np_vmove_fill(op, &ctl, NP_VMSG_READY);
    ctl.body.addr   = (uintptr_t)np_vmove_local(&op->move, chunk->offset);
    ctl.body.len    = chunk->len;
    ctl.body.offset = chunk->offset;
    ctl.body.rkey   = np_lease_rkey(&chunk->lease);
    np_conn_send_copied(op->conn, &ctl.msg, sizeof(ctl));
}

/* Let the next piece be written. Returns whether to come again. */
static int np_vmove_expose(np_vop_t *op)
{
    np_vmove_t *move = &op->move;
    np_vchunk_t *chunk;
    ucs_status_t status;

    if (!move->is_prepared && (move->no_keys || (op->bring != NULL) ||
                               (move->next == move->len) ||
                               (np_vmove_chunks(move) == np_vmove_depth(op)))) {
        return 0;
    }

    if (!np_vmove_has_room(op) || (op->port->free_send == NULL)) {
        return 1;
    }

    if (move->is_prepared) {
        move->is_prepared = 0;
        np_vmove_say_ready(op, &move->chunks[move->chunk_head % NP_VDEPTH_MAX]);
        return move->next < move->len;
    }

    status = move->no_register ? UCS_ERR_EXCEEDS_LIMIT :
             np_vmove_register(op, &chunk);
    if (status == UCS_ERR_NO_RESOURCE) {
        return 0;
    } else if (status == UCS_ERR_EXCEEDS_LIMIT) {
        if (np_vmove_chunks(move) > 0) {
            return 0; /* when one of them is done */
        }

        chunk         = &move->chunks[move->chunk_tail++ % NP_VDEPTH_MAX];
        chunk->lease  = (np_lease_t){0};
        chunk->posted = 0;
        chunk->offset = move->next;
        chunk->len    = ucs_min(move->len - move->next,
                                (size_t)NP_VMOVE_BY_MESSAGES);
        move->next   += chunk->len;
    }

    np_vmove_say_ready(op, chunk);
    return move->next < move->len;
}

static int np_vmove_sink(np_vop_t *op)
{
    np_vctl_t ctl;

    if (op->move.moved < op->move.len) {
        return np_vmove_expose(op);
    }

    if (op->link != NULL) {
        np_vmove_finish(op);
        return 0;
    }

    np_vmove_fill(op, &ctl, NP_VMSG_DONE);
    np_conn_reply(op->conn, &ctl);
    np_vmove_release(op);
    np_vop_served(op);
    return 0;
}

/* It has failed, here or there. What is exposed goes only when the other side
 * has said that it writes no more. */
static int np_vmove_fail(np_vop_t *op)
{
    np_vmove_t *move = &op->move;
    np_vctl_t ctl;

    if (move->posted > 0) {
        return 0; /* until they are done */
    }

    if (!move->is_told && (!move->no_keys || (op->link == NULL))) {
        if (!np_vmove_has_room(op)) {
            return 1;
        }

        np_vmove_fill(op, &ctl, NP_VMSG_DONE);
        if (!np_conn_send_copied(op->conn, &ctl.msg, sizeof(ctl))) {
            return 1;
        }
        move->is_told = 1;
    }

    /* The link's source and the target's source have told, and write no more;
     * a sink waits for that */
    if (!move->is_source && !move->is_over && !move->no_keys) {
        return 0;
    }

    np_vmove_release(op);
    if (op->link != NULL) {
        np_op_finish(&op->super, op->super.status);
    } else {
        np_vop_served(op);
    }
    return 0;
}

int np_vmove_run(np_vop_t *op)
{
    return (op->super.status != UCS_OK) ? np_vmove_fail(op) :
           op->move.is_source ? np_vmove_source(op) : np_vmove_sink(op);
}

void np_vmove_posted_done(np_vop_t *op, uint32_t index)
{
    np_vmove_t *move = &op->move;
    np_vchunk_t *chunk;

    --move->posted;
    --move->chunks[index % NP_VDEPTH_MAX].posted;
    while ((np_vmove_chunks(move) > 0) && (move->next < move->len)) {
        chunk = &move->chunks[move->chunk_head % NP_VDEPTH_MAX];
        if ((chunk->posted > 0) ||
            (move->moved < (chunk->offset + chunk->len))) {
            break;
        }
        np_vmove_pop_chunk(op);
    }
    np_vop_todo(op);
}

int np_vmove_awaits_write(const np_vop_t *op)
{
    return !op->move.is_source && !op->move.no_keys && !op->move.is_over &&
           (np_vmove_chunks(&op->move) > 0);
}

ucs_status_t np_vmove_ready(np_vop_t *op, const np_vbody_t *body)
{
    np_vmove_t *move = &op->move;

    if (!move->is_source || move->no_keys || (body->len == 0) ||
        (body->offset != move->ready_next) ||
        (body->len > (move->len - body->offset)) ||
        ((move->ready_tail - move->ready_head) == NP_VDEPTH_MAX)) {
        return UCS_ERR_INVALID_PARAM;
    }

    move->ready[move->ready_tail++ % NP_VDEPTH_MAX] = (np_vready_t){
        .offset = body->offset,
        .len    = body->len,
        .addr   = body->addr,
        .rkey   = body->rkey
    };
    move->ready_next += body->len;
    np_vop_todo(op);
    return UCS_OK;
}

/* Everything below @a upto is here */
static void np_vmove_arrived(np_vop_t *op, size_t upto)
{
    np_vmove_t *move = &op->move;
    np_vchunk_t *chunk;

    move->moved = upto;
    while ((np_vmove_chunks(move) > 0) && (upto < move->len)) {
        chunk = &move->chunks[move->chunk_head % NP_VDEPTH_MAX];
        if ((chunk->offset + chunk->len) > upto) {
            break;
        }
        np_vmove_pop_chunk(op);
    }
    np_vop_todo(op);
}

ucs_status_t np_vmove_data(np_vop_t *op, const np_vbody_t *body,
                           const void *data, size_t len)
{
    np_vmove_t *move = &op->move;
    size_t end       = move->no_keys ? move->len : move->next;

    /* what was written before, by the same queue pair, is there */
    if (move->is_source || (len == 0) || (body->offset < move->moved) ||
        (body->offset > end) || (len > (end - body->offset))) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (op->super.status == UCS_OK) {
        op->super.status = np_vmove_copy(op, body->offset, (void*)data, len, 1);
        if (ucs_unlikely(op->super.status == UCS_ERR_NO_RESOURCE)) {
            op->super.status = UCS_OK;
            np_bring_want(op->port,
                          (uintptr_t)np_vmove_local(move, body->offset),
                          np_vmove_may_sleep(op) ? 0 : len, 1);
            return UCS_ERR_NO_RESOURCE;
        }
        np_vmove_arrived(op, body->offset + len);
    }
    return UCS_OK;
}

ucs_status_t np_vmove_written(np_vop_t *op)
{
    np_vmove_t *move = &op->move;
    np_vchunk_t *chunk;

    if (move->is_source || (np_vmove_chunks(move) == 0)) {
        return UCS_ERR_INVALID_PARAM;
    }

    chunk = &move->chunks[move->chunk_head % NP_VDEPTH_MAX];
    np_vmove_arrived(op, chunk->offset + chunk->len);
    return UCS_OK;
}

void np_vmove_done(np_vop_t *op, const np_vbody_t *body)
{
    np_vmove_t *move = &op->move;

    if (body->status == UCS_OK) {
        if ((op->link != NULL) && (move->posted == 0)) {
            np_vmove_finish(op);
        } else if (op->link != NULL) {
            move->is_over = 1; /* their completions are on the way */
            np_vop_todo(op);
        }
        return;
    }

    move->is_over = 1;
    if (op->super.status == UCS_OK) {
        op->super.status = np_status_of_peer(body->status);
    }
    np_vop_todo(op);
}
