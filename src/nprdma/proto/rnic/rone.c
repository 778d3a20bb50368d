/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One-sided transfers over queue pairs, between views of memory that is not
 * pinned (design, section 4). They are made as if all pages were there, and
 * confirmed:
 *
 * read   RDMA Read from the target's read view into our write view. Right if no
 *        DMA unit holds the signature, and no page of ours has changed.
 * write  with the target's entries known, and all writable: RDMA Write from our
 *        read view into its write view, and a Read of the entries after it.
 *        Right if no entry and no page of ours has changed. RC executes
 *        requests in order, and an entry changes before its page goes.
 *
 * What cannot be confirmed is finished two-sided, from the first piece on that
 * was not; and the target is asked to bring its pages in, for the next time.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "rop.h"

#include "runload.h"

#include "../judge.h"

/* Bytes that are confirmed together: their entries fit one buffer of ours */
#define NP_RPIECE_SIZE  (1ul << 20)

/* Reads of at least this size look at the entries first, if these are not known
 * to say that the pages are there: it costs a round trip, but does not move
 * what is not there */
#define NP_RLOOK_MIN    (64ul << 10)

/* Smallest unit in which a device may see a page come or go */
#define NP_RONE_UNIT    64

/* Attempts to write a piece, and times that a page of ours is brought in, if it
 * goes meanwhile */
#define NP_RONE_ROUNDS  3

typedef enum np_rpost {
    NP_RPOST_DONE,
    NP_RPOST_NO_ROOM,
    NP_RPOST_NOT      /* not one-sided */
} np_rpost_t;

_Static_assert((((NP_RPIECE_SIZE >> NP_PAGE_SHIFT) + 1) * sizeof(uint32_t)) <=
               NP_VSEG_SIZE, "the entries of a piece fit a buffer");


int np_rone_is_possible(np_vlink_t *link, np_dir_t dir, const np_iov_t *iov,
                        size_t iovcnt, uint64_t addr)
{
    np_vport_t *port = link->port;
    np_view_t own;
    int is_there;

    if (iovcnt != 1) {
        return 0;
    }

    is_there = np_vport_view(port, (uintptr_t)iov[0].base, 1,
                             dir == NP_DIR_GET, &own);
    return (np_vremote_get(link, addr, 1) != NULL) && is_there;
}

int np_rone_is_copyable(np_vlink_t *link, uint64_t addr, size_t len)
{
    return np_vremote_get(link, addr, len) != NULL; /* in one piece */
}

static void np_rpiece_release(np_rop_t *op, np_rpiece_t *piece)
{
    if ((piece->scratch != NULL) && (piece->scratch != op->copy)) {
        np_vport_buffer_put(op->port, piece->scratch);
    }
    piece->scratch = NULL;
}

void np_rone_release(np_rop_t *op)
{
    np_rone_t *one = &op->one;

    for (; one->head != one->tail; ++one->head) {
        np_rpiece_release(op, &one->pieces[one->head % NP_RONE_DEPTH]);
    }
}

void np_rone_lost(np_rop_t *op)
{
    op->one.next = (op->one.head == op->one.tail) ? op->one.next :
                   op->one.pieces[op->one.head % NP_RONE_DEPTH].offset;
    np_rone_release(op);
    op->one.posted    = 0;
    op->one.is_failed = 1; /* the reason may be a page without a translation */
}

static uint64_t np_rpiece_local(const np_rop_t *op, const np_rpiece_t *piece)
{
    return (uintptr_t)op->one.base + piece->offset;
}

static uint64_t np_rpiece_remote(const np_rop_t *op, const np_rpiece_t *piece)
{
    return op->one.remote + piece->offset;
}

/* Map our pages; piece->ours tells later whether they stayed so. 0: they are
 * not mapped */
static int np_rpiece_bring_in(np_rop_t *op, np_rpiece_t *piece,
                              const np_kmod_region_t *region)
{
    const uint64_t va = np_rpiece_local(op, piece);
    unsigned round;

    for (round = 0;; ++round) {
        piece->ours = np_kmod_entries(region, va, piece->len);
        if (np_entries_have(&piece->ours, np_judge_our_bits(op->one.dir, 0))) {
            return 1;
        }

        NP_STATS_INC(op->port->flights.stats, local_faults);
        if ((round == NP_RONE_ROUNDS) ||
            (np_kmod_fault_in(region, va, piece->len,
                              op->one.dir == NP_DIR_GET) != UCS_OK)) {
            return 0;
        }
    }
}

/* Have pages of ours changed since? */
static int np_rpiece_is_ours(np_rop_t *op, const np_rpiece_t *piece)
{
    const np_rone_t *one = &op->one;
    np_entries_t now;

    if ((one->unpack != NULL) || (op->copy != NULL)) {
        return 1;
    }

    now = np_kmod_entries(piece->region, np_rpiece_local(op, piece),
                          piece->len);
    return np_judge_ours(one->dir, 0, &piece->ours, &now);
}

/* The target's entries, into scratch */
static void np_rpiece_look(np_rop_t *op, np_rpiece_t *piece, uint32_t index)
{
    np_vremote_look(piece->remote, np_rpiece_remote(op, piece), piece->len,
                    piece->scratch, op, index);
}

/* Where the bytes are: in our view, or in a buffer */
static int
np_rpiece_choose(np_rop_t *op, np_rpiece_t *piece, np_place_t *ours)
{
    const np_rone_t *one = &op->one;
    const uint64_t va    = np_rpiece_local(op, piece);
    np_view_t own;

    if (one->unpack != NULL) {
        *ours = np_vport_place(op->port, piece->scratch);
        return 1;
    }

    if (op->copy != NULL) {
        *ours = np_vport_place(op->port, (void*)va);
        return 1;
    }

    if (!np_vport_view(op->port, va, piece->len, one->dir == NP_DIR_GET,
                       &own) ||
        !np_rpiece_bring_in(op, piece, own.region)) {
        return 0;
    }

    piece->region = own.region;
    *ours         = own.place;
    return 1;
}

static void np_rpiece_move(np_rop_t *op, np_rpiece_t *piece, np_place_t ours,
                           uint32_t index)
{
    const int is_put        = op->one.dir == NP_DIR_PUT;
    const np_place_t theirs = np_vremote_place(
            piece->remote, np_rpiece_remote(op, piece), is_put);

    if (!is_put) {
        np_conn_read(op->conn, ours, theirs, piece->len, op, index);
    } else {
        np_conn_write(op->conn, ours, theirs, piece->len);
        np_rpiece_look(op, piece, index);
        piece->has_looked = 1;
    }
}

/* The next step of a piece */
static np_rpost_t np_rpiece_post(np_rop_t *op, uint32_t index)
{
    np_rone_t *one     = &op->one;
    np_rpiece_t *piece = &one->pieces[index % NP_RONE_DEPTH];
    uint64_t va        = np_rpiece_remote(op, piece);
    int is_put         = one->dir == NP_DIR_PUT, is_known;
    np_place_t ours;

    piece->remote = np_vremote_get(op->link, va, piece->len);
    if (piece->remote == NULL) {
        return NP_RPOST_NOT;
    }

    if (!np_conn_has_rooms(op->conn, 2)) {
        return NP_RPOST_NO_ROOM;
    }

    is_known = !is_put && (piece->len < NP_RLOOK_MIN);
    if (!is_known) {
        piece->theirs = np_vremote_entries(piece->remote, va, piece->len);
        is_known      = np_entries_have(&piece->theirs,
                                        np_judge_their_bits(one->dir));
    }
    if (!is_known && piece->has_looked) {
        return NP_RPOST_NOT;
    }

    if (op->copy != NULL) {
        piece->scratch = op->copy; /* entries, where its header would be */
    } else if ((piece->scratch == NULL) &&
               (is_put || !is_known || (one->unpack != NULL))) {
        piece->scratch = np_vport_buffer_get(op->port);
        if (piece->scratch == NULL) {
            return NP_RPOST_NO_ROOM;
        }
    }

    if (is_known) {
        if (!np_rpiece_choose(op, piece, &ours)) {
            return NP_RPOST_NOT;
        }
        piece->step = NP_RPIECE_MOVES;
        np_rpiece_move(op, piece, ours, index);
    } else {
        piece->has_looked = 1;
        piece->step       = NP_RPIECE_LOOKS;
        np_rpiece_look(op, piece, index);
    }
    piece->is_back = 0;
    ++one->posted;
    return NP_RPOST_DONE;
}

/* Note the entries that have arrived; without any nothing is known any more */
static void np_rpiece_learn(np_rop_t *op, const np_rpiece_t *piece, int is_read)
{
    np_vremote_learn(piece->remote, np_rpiece_remote(op, piece), piece->len,
                     is_read ? piece->scratch : NULL);
}

/* Has it arrived for certain? */
static int np_rpiece_is_right(np_rop_t *op, np_rpiece_t *piece)
{
    const uint64_t remote = np_rpiece_remote(op, piece);
    const np_iov_t read   = {(op->one.unpack != NULL) ? piece->scratch :
                             (void*)np_rpiece_local(op, piece), piece->len};
    np_ranges_t missing;
    np_entries_t now;

    if (op->one.dir == NP_DIR_GET) {
        missing.count = 0;
        np_judge_read(&read, 1, remote, NP_RONE_UNIT, &missing);
        return (missing.count == 0) && np_rpiece_is_ours(op, piece);
    }

    np_rpiece_learn(op, piece, 1);
    now = np_vremote_entries(piece->remote, remote, piece->len);
    return np_judge_theirs(NP_DIR_PUT, &piece->theirs, &now) &&
           np_rpiece_is_ours(op, piece);
}

/* Look at what a piece has brought. Returns 0: no room for its next step. */
static int np_rpiece_advance(np_rop_t *op, uint32_t index)
{
    np_rone_t *one     = &op->one;
    np_rpiece_t *piece = &one->pieces[index % NP_RONE_DEPTH];
    np_rpost_t posted;

    if ((piece->step == NP_RPIECE_MOVES) && np_rpiece_is_right(op, piece)) {
        piece->step = NP_RPIECE_DONE;
        return 1;
    }

    if (piece->step == NP_RPIECE_MOVES) {
        if ((one->dir == NP_DIR_GET) || (++piece->rounds == NP_RONE_ROUNDS)) {
            np_rpiece_learn(op, piece, 0);
            one->is_failed = 1;
            return 1;
        }
    } else if (piece->step == NP_RPIECE_LOOKS) {
        np_rpiece_learn(op, piece, 1);
    }

    piece->step    = NP_RPIECE_WAITS;
    posted         = np_rpiece_post(op, index);
    one->is_failed |= posted == NP_RPOST_NOT;
    return posted != NP_RPOST_NO_ROOM;
}

/* The next piece: none crosses the end of a memory region of a view (so none
 * crosses the end of an arena), on either side */
static void np_rone_cut(np_rop_t *op)
{
    np_rone_t *one     = &op->one;
    np_rpiece_t *piece = &one->pieces[one->tail % NP_RONE_DEPTH];
    uint64_t remote    = one->remote + one->next;
    uint64_t local     = (uintptr_t)one->base + one->next;
    np_vremote_t *row  = np_vremote_get(op->link, remote, 1);
    uint64_t size      = (row == NULL) ? NP_ARENA_SIZE :
                         (UINT64_C(1) << row->shift);

    *piece = (np_rpiece_t){
        .offset = one->next,
        .len    = ucs_min(one->len - one->next, NP_RPIECE_SIZE)
    };
    piece->len = ucs_min(piece->len, size - (remote & (size - 1)));
    if ((one->unpack == NULL) && (op->copy == NULL)) {
        piece->len = ucs_min(piece->len, np_vport_view_room(op->port, local));
    }
}

/* Begin pieces; returns 0: no room for more */
static int np_rone_post(np_rop_t *op)
{
    np_rone_t *one = &op->one;
    np_rpost_t posted;

    while (!one->is_failed && (one->next < one->len) &&
           ((one->tail - one->head) < NP_RONE_DEPTH)) {
        np_rone_cut(op);
        posted = np_rpiece_post(op, one->tail);
        if (posted != NP_RPOST_DONE) {
            np_rpiece_release(op, &one->pieces[one->tail % NP_RONE_DEPTH]);
            one->is_failed = posted == NP_RPOST_NOT;
            return one->is_failed;
        }
        one->next += one->pieces[one->tail++ % NP_RONE_DEPTH].len;
    }
    return 1;
}

/* Send a copied put as a message after all, in its own buffer: all others may
 * be in use in the same way. Returns whether to come again: no room. */
static int np_rone_send_copy(np_rop_t *op)
{
    np_vctl_t *ctl      = op->copy;
    const uint64_t addr = op->one.remote;
    const size_t len    = op->one.len;

    if (!np_conn_has_room(op->conn) || !np_conn_has_credit(op->conn)) {
        return 1;
    }

    *ctl = (np_vctl_t){
        .msg  = {
            .kind  = NP_VMSG_PUT,
            .flags = NP_VMSG_ABSENT | NP_VMSG_ACK_NOW
        },
        .body = {.addr = addr}
    };
    op->copy = NULL;
    np_conn_send(op->conn, &ctl->msg, sizeof(*ctl) + len);
    np_op_turn(&op->super, NP_OP_MOVE);
    np_stream_begin_sent(&op->stream, op->conn, op->super.name, len, addr);
    NP_STATS_INC(op->port->flights.stats, remote_faults);
    return 0;
}

/* Do what is not confirmed two-sided; returns whether to come again: no room */
static int np_rone_fall_back(np_rop_t *op)
{
    np_rone_t one = op->one;
    size_t done   = (one.head == one.tail) ? one.next :
                    one.pieces[one.head % NP_RONE_DEPTH].offset;
    np_iov_t rest = {UCS_PTR_BYTE_OFFSET(one.base, done), one.len - done};
    int is_begun;

    np_rone_release(op);
    if (op->copy != NULL) {
        return np_rone_send_copy(op);
    }

    if (!np_rpost_may_ask(op->link)) {
        op->one.next = done;
        return 1;
    }

    is_begun = (one.unpack != NULL) ?
               np_rpost_begin_unpack(op, one.unpack, one.arg, one.len,
                                     one.remote) :
               np_rpost_begin_move(op, one.dir, &rest, 1, one.remote + done);
    if (!is_begun) {
        np_op_turn(&op->super, NP_OP_ONE);
        op->one      = one;
        op->one.next = done;
        op->one.head = op->one.tail;
        return 1;
    }
    NP_STATS_INC(op->port->flights.stats, remote_faults);
    return 0;
}

static void np_rone_finish(np_rop_t *op)
{
    np_rone_t *one = &op->one;

    np_runload_ended(op, 1);
    np_stats_moved(op->port->flights.stats, one->dir, one->len);
    if (one->unpack != NULL) {
        np_unit_assert_outside();
        one->unpack(one->arg, one->pieces[0].scratch, one->len);
    }
    np_rone_release(op);
    np_op_finish(&op->super, UCS_OK);
}

/* Confirmed from the beginning on */
static void np_rone_pop(np_rop_t *op)
{
    np_rone_t *one = &op->one;
    np_rpiece_t *piece;

    while (one->head != one->tail) {
        piece = &one->pieces[one->head % NP_RONE_DEPTH];
        if ((piece->step != NP_RPIECE_DONE) || (one->unpack != NULL)) {
            return;
        }
        np_rpiece_release(op, piece);
        ++one->head;
    }
}

static int np_rone_is_complete(const np_rone_t *one)
{
    return (one->next == one->len) &&
           ((one->head == one->tail) ||
            ((one->unpack != NULL) &&
             (one->pieces[0].step == NP_RPIECE_DONE)));
}

int np_rone_run(np_rop_t *op)
{
    np_rone_t *one = &op->one;
    int has_room   = 1;
    np_rpiece_t *piece;
    uint32_t i;

    for (i = one->head; (i != one->tail) && !one->is_failed; ++i) {
        piece = &one->pieces[i % NP_RONE_DEPTH];
        if (piece->is_back && (piece->step != NP_RPIECE_DONE)) {
            has_room &= np_rpiece_advance(op, i);
        }
    }

    np_rone_pop(op);
    has_room &= np_rone_post(op);
    if (one->is_failed) {
        return (one->posted == 0) && np_rone_fall_back(op);
    }

    if (np_rone_is_complete(one)) {
        np_rone_finish(op);
        return 0;
    }
    return !has_room;
}

void np_rone_posted_done(np_rop_t *op, uint32_t index)
{
    --op->one.posted;
    op->one.pieces[index % NP_RONE_DEPTH].is_back = 1;
    np_rop_todo(op);
}
