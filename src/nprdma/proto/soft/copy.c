/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies in pieces.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "copy.h"

#include "due.h"
#include "fault.h"
#include "lend.h"
#include "piece.h"
#include "rma.h"
#include "sunload.h"

#include "../../mem/access.h"
#include "../../trace.h"

#include <stdlib.h>
#include <string.h>


void np_copy_init(np_copy_t *copy, np_dir_t dir, np_window_t *window,
                  void *window_addr, const np_iov_t *iov, size_t iovcnt,
                  size_t len, uint64_t addr)
{
    /* not all of it: the list of what is to do is long, and is empty */
    memset(copy, 0, offsetof(np_copy_t, chunks));
    copy->dir         = dir;
    copy->iovcnt      = iovcnt;
    copy->remote      = addr;
    copy->len         = len;
    copy->left        = SIZE_MAX;
    copy->window      = window;
    copy->window_addr = window_addr;
    copy->todo.count  = 0;
    memcpy(copy->iov, iov, iovcnt * sizeof(*iov));
    np_chunks_init(&copy->chunks, dir, copy->iov, iovcnt, addr, len);
}

np_sop_t *
np_copy_new(np_dir_t dir, np_link_t *link, np_key_t *key, void *direct,
            const np_iov_t *iov, size_t iovcnt, size_t len, uint64_t addr,
            void *comp)
{
    np_sop_t *op;

    op = np_sop_get(link->port, NP_OP_COPY, comp);
    if (op == NULL) {
        return NULL;
    }

    np_copy_init(&op->copy, dir,
                 (direct == NULL) ? NULL :
                 atomic_load_explicit(&key->window, memory_order_relaxed),
                 direct, iov, iovcnt, len, addr);
    op->super.begin = np_trace_begin();
    return op;
}

/* Move [offset, offset + len) of a copy, here and now; what has not arrived
 * goes into the list of what is to do */
static ucs_status_t
np_copy_move(np_link_t *link, np_copy_t *copy, size_t offset, size_t len)
{
    np_iov_t local[NP_MAX_IOV];
    np_piece_t piece = {
        .dir       = copy->dir,
        .iov       = local,
        .iovcnt    = np_iov_slice(copy->iov, copy->iovcnt, offset, len, local),
        .addr      = copy->remote + offset,
        .len       = len,
        .direct    = (copy->window == NULL) ? NULL :
                     UCS_PTR_BYTE_OFFSET(copy->window_addr, offset),
        .has_local = copy->own == NULL,
        .is_shared = np_chunks_is_shared(&copy->chunks)
    };
    const uint64_t begin = np_trace_begin();
    ucs_status_t status;
    np_ranges_t missing;
    unsigned i;

    status = np_piece_move(link, &piece, &missing);
    np_trace(NP_TRACE_MOVE, begin, piece.addr, len);
    if (ucs_unlikely(link->tlb != NULL)) {
        copy->misses = ucs_min(copy->misses + np_tlb_take(link->tlb),
                               (unsigned)UINT16_MAX);
    }
    if ((status != UCS_OK) && (status != UCS_ERR_UNSUPPORTED)) {
        return status;
    }

    for (i = 0; i < missing.count; ++i) {
        np_ranges_add(&copy->todo, offset + missing.range[i].offset,
                      missing.range[i].len);
    }
    return status;
}

/* Bytes from @a offset on that one piece may have */
static size_t
np_copy_piece_len(const np_copy_t *copy, size_t offset, size_t end)
{
    uint64_t addr = copy->remote + offset;

    return ucs_min(ucs_min(end - offset, NP_DMA_MAX), np_arena_left(addr));
}

/* Something is wrong: neither side begins another chunk */
static void np_copy_stop(np_sop_t *op, ucs_status_t status)
{
    op->super.status = status;
    np_chunks_stop(&op->copy.chunks);
}

/* What is to move now; returns 0 if nothing is */
static int
np_copy_next(np_link_t *link, np_sop_t *op, size_t *offset, size_t *len)
{
    ucs_status_t status;

    status = np_chunks_next(link, &op->copy.chunks, offset, len);
    if (ucs_unlikely((status != UCS_OK) && (status != UCS_INPROGRESS) &&
                     (status != UCS_ERR_NO_ELEM))) {
        np_copy_stop(op, status);
    }
    return status == UCS_OK;
}

/* The kernel has refused to move more. What is left of this piece is asked for;
 * after it, all that neither side has begun goes through the rings. */
static void np_copy_use_rings(np_link_t *link, np_sop_t *op, size_t len)
{
    ucs_status_t status;

    status = np_link_vm_refused(link);
    if (status != UCS_OK) {
        np_copy_stop(op, status);
        return;
    }

    op->copy.by_rings = 1;
    np_chunks_rest(&op->copy.chunks);
    np_chunks_moved(&op->copy.chunks, len);
}

/* Copy our part, up to a quantum. What is missing is asked for before more is
 * claimed: others can bring it in meanwhile. */
static void np_copy_run(np_link_t *link, np_sop_t *op)
{
    np_copy_t *copy = &op->copy;
    size_t budget   = NP_COPY_QUANTUM;
    size_t offset, len;
    ucs_status_t status;

    while ((budget > 0) && np_fault_send_todo(link, op) &&
           np_copy_next(link, op, &offset, &len)) {
        len    = np_copy_piece_len(copy, offset, offset + len);
        status = np_copy_move(link, copy, offset, len);
        if (ucs_unlikely(status == UCS_ERR_UNSUPPORTED)) {
            np_copy_use_rings(link, op, len);
            return;
        } else if (ucs_unlikely(status != UCS_OK)) {
            np_copy_stop(op, status);
            return;
        }

        np_chunks_moved(&copy->chunks, len);
        budget -= ucs_min(budget, len);
        ++link->port->taken;
    }
}

/* Send our next pieces through the ring, as many as there is room for */
static void np_copy_run_rings(np_link_t *link, np_sop_t *op)
{
    np_copy_t *copy = &op->copy;
    np_iov_t piece[NP_MAX_IOV];
    ucs_status_t status;
    size_t offset, len, count;
    np_sop_t *request;

    if (copy->is_lent && np_lend_is_left(link)) {
        return;
    }

    while (np_copy_next(link, op, &offset, &len)) {
        if (np_link_is_busy(link) && !np_link_busy_request(link) &&
            copy->is_lent) {
            return;
        }

        len = ucs_min(np_rma_ring_piece(link), len);
        if (copy->is_lent && !np_carry_has_room_beside(link, len)) {
            return;
        }

        count  = np_iov_slice(copy->iov, copy->iovcnt, offset, len, piece);
        status = !np_copy_may_touch(op, piece, count) ? UCS_ERR_INVALID_ADDR :
                 np_rma_send(link,
                             (copy->dir == NP_DIR_PUT) ? NP_OP_PUT : NP_OP_GET,
                             piece, count, len, copy->remote + offset,
                             copy->is_lent ? NP_CARRY_LENT : 0, &request, NULL);
        if (status != UCS_OK) {
            if (status != UCS_ERR_NO_RESOURCE) {
                np_copy_stop(op, status);
            }
            return;
        }

        request->rma.copy   = op;
        request->rma.offset = offset;
        np_chunks_moved(&copy->chunks, len);
        ++copy->pending;
    }
}

int np_copy_may_touch(const np_sop_t *copy_op, const np_iov_t *iov,
                      size_t iovcnt)
{
    return (copy_op->super.comp == NULL) ||
           (np_access_refused(iov, iovcnt) == NULL);
}

void np_copy_piece_done(np_sop_t *copy_op, ucs_status_t status)
{
    np_assert((copy_op->super.kind == NP_OP_COPY) &&
              (copy_op->copy.pending > 0));
    --copy_op->copy.pending;
    if (copy_op->copy.is_lent) {
        np_link_of(copy_op->super.flight)->lent_since = 0;
    }
    if ((status != UCS_OK) && (copy_op->super.status == UCS_OK)) {
        np_copy_stop(copy_op, status);
    }
}

/* All of it has moved: has it taken as long as it would have? Only what the
 * device has moved alone is told by the model. */
static int np_copy_is_due(np_link_t *link, np_sop_t *op)
{
    np_copy_t *copy = &op->copy;

    if (ucs_likely(link->tlb == NULL) || copy->by_rings || copy->has_asked ||
        (op->super.status != UCS_OK)) {
        return 1;
    }

    if (copy->retry_at == 0) {
        copy->retry_at = np_tlb_due(link->tlb, np_clock(), copy->misses);
    }
    return copy->retry_at <= np_clock();
}

/* Work on one copy; returns whether it is complete */
static int np_copy_advance(np_link_t *link, np_sop_t *op)
{
    np_copy_t *copy = &op->copy;

    if (np_chunks_is_timed(&copy->chunks) && (op->super.status != UCS_OK)) {
        np_copy_stop(op, op->super.status); /* and nothing is waited for */
    }

    if (!np_chunks_is_claimed(&copy->chunks)) {
        if (copy->by_rings) {
            np_copy_run_rings(link, op);
        } else {
            np_copy_run(link, op);
        }
    }

    if (op->super.status != UCS_OK) {
        copy->todo.count = 0; /* nothing more is asked for */
        copy->todo_next  = 0;
    }

    return np_fault_send_todo(link, op) &&
           np_chunks_is_claimed(&copy->chunks) && (copy->pending == 0) &&
           np_copy_is_due(link, op) &&
           np_chunks_is_over(link, &copy->chunks, op->super.status == UCS_OK);
}

static void np_copy_count(np_link_t *link, const np_sop_t *op)
{
    if ((op->super.status == UCS_OK) && !op->copy.has_asked &&
        !op->copy.by_rings) {
        np_stats_moved(link->port->flights.stats, op->copy.dir, op->copy.len);
    }
}

void np_copy_turn(np_link_t *link, np_sop_t *op)
{
    const np_dir_t dir     = (op->super.kind == NP_OP_PUT) ? NP_DIR_PUT :
                             NP_DIR_GET;
    const size_t len       = op->rma.len;
    const uint64_t addr    = op->rma.addr;
    const np_unpack_t unpack = op->rma.unpack;
    void *const arg        = op->rma.arg;
    const int has_own      = op->rma.buffer == NULL;
    const np_iov_t iov     = {has_own ? malloc(len) : op->rma.buffer, len};

    if (has_own && (iov.base != NULL) && (dir == NP_DIR_PUT)) {
        memcpy(iov.base, op->rma.carry.bytes, len);
    }
    np_carry_leave(link, &op->rma.carry);

    /* here what it was is gone */
    np_op_turn(&op->super, NP_OP_COPY);
    np_copy_init(&op->copy, dir, NULL, NULL, &iov, 1, len, addr);
    op->copy.own    = has_own ? iov.base : NULL;
    op->copy.unpack = (has_own && (dir == NP_DIR_GET)) ? unpack : NULL;
    op->copy.arg    = arg;
    ucs_list_add_head(&link->copies, &op->queue); /* before any large one */
    if (iov.base == NULL) {
        np_error("no memory for %zu bytes of a transfer that the target has "
                 "not come to", len);
        np_copy_stop(op, UCS_ERR_NO_MEMORY);
    } else {
        np_chunks_plan(&op->copy.chunks);
    }
}

void np_copy_leave_rings(np_sop_t *op)
{
    np_copy_t *copy = &op->copy;

    np_assertv(copy->by_rings && (copy->pending == 0),
               "%u pieces are in the ring", copy->pending);
    copy->by_rings = 0;
    copy->is_lent  = 0;
    if (op->super.status == UCS_OK) {
        np_chunks_again(&copy->chunks, ucs_min(copy->chunks.offset,
                                               copy->left));
    }
}

void np_copy_finish(np_link_t *link, np_sop_t *op)
{
    np_copy_count(link, op);
    np_sunload_ended(link, op);
    if ((op->copy.unpack != NULL) && (op->super.status == UCS_OK)) {
        np_unit_assert_outside();
        op->copy.unpack(op->copy.arg, op->copy.own, op->copy.len);
    }
    np_op_finish(&op->super, op->super.status);
}

ucs_status_t np_copy_post(np_link_t *link, np_sop_t *op)
{
    const int is_first = ucs_list_is_empty(&link->copies);
    ucs_status_t status;

    np_op_order(&link->flight, &op->super, op->copy.remote, op->copy.len,
                op->copy.dir == NP_DIR_PUT);

    /* The first one begins at once, and may be done at once */
    if (is_first && !op->copy.by_rings && np_copy_advance(link, op)) {
        np_copy_count(link, op);
        np_op_trace(&op->super);
        status = op->super.status;
        if ((op->copy.dir == NP_DIR_PUT) && (status == UCS_OK)) {
            np_sunload_done(link, op->copy.remote, op->copy.len);
        }
        np_overlap_remove(&link->flight.overlap, &op->super.interval);
        np_sop_put(link->port, op);
        return status;
    }

    if (op->copy.is_lent) {
        np_lend_begin(link, 1);
    }
    ucs_list_add_tail(&link->copies, &op->queue);
    np_sop_post(link, op);
    if (op->copy.dir == NP_DIR_PUT) {
        np_sunload_posted(link, op, op->copy.remote, op->copy.len);
    }
    if (is_first && op->copy.by_rings) {
        np_copy_run_rings(link, op); /* its end is for progress to tell */
    }
    return UCS_INPROGRESS;
}

/* Is there anything to do for it but to wait for others? */
static int np_copy_is_ready(np_link_t *link, const np_copy_t *copy)
{
    if (copy->todo.count > 0) {
        return np_fault_has_room(link, copy);
    }
    return !np_chunks_is_claimed(&copy->chunks) || (copy->pending == 0);
}

int np_copy_has_work(np_link_t *link)
{
    np_sop_t *op;

    ucs_list_for_each(op, &link->copies, queue) {
        if (np_copy_is_ready(link, &op->copy)) {
            return 1;
        }
    }
    /* nothing wakes us when that is late, or due */
    return (link->lent_count > 0) || (link->num_dues > 0);
}

/* Has it only waited to ask for one range that it has not found? If there were
 * several, each might come back in pieces, and these would have no place in the
 * list. */
static int np_copy_has_waited(const np_copy_t *copy)
{
    return (copy->todo.count == 1) && np_chunks_is_claimed(&copy->chunks) &&
           !copy->has_asked && !copy->by_rings;
}

/* Others may have asked: what is there by now is not asked for again */
static void np_copy_look_again(np_link_t *link, np_sop_t *op)
{
    np_copy_t *copy     = &op->copy;
    const size_t offset = copy->todo.range[0].offset;
    const size_t len    = copy->todo.range[0].len;
    const uint64_t addr = copy->remote + offset;
    const unsigned bit  = (copy->dir == NP_DIR_GET) ? NP_ENTRY_READ :
                          NP_ENTRY_WRITE;
    const np_table_t *table;
    ucs_status_t status;

    if (np_copy_piece_len(copy, offset, offset + len) < len) {
        return;
    }

    table = np_link_table(link, addr);
    if ((table == NULL) || !(np_entries_of(table, addr, len).bits & bit)) {
        return;
    }

    copy->todo.count = 0;
    status           = np_copy_move(link, copy, offset, len);
    if (ucs_unlikely(status == UCS_ERR_UNSUPPORTED)) {
        status = np_link_vm_refused(link); /* what it lacks is asked for */
    }
    if (ucs_unlikely(status != UCS_OK)) {
        np_copy_stop(op, status);
    }
}

unsigned np_copy_progress(np_link_t *link)
{
    ucs_list_link_t *queue = &link->copies;
    unsigned count         = np_lend_progress(link) + np_due_progress(link);
    np_sop_t *op, *next;
    int is_done;

    do {
        is_done = 0;
        ucs_list_for_each_safe(op, next, queue, queue) {
            if (np_copy_is_ready(link, &op->copy)) {
                if (np_copy_has_waited(&op->copy)) {
                    np_copy_look_again(link, op);
                }
                is_done = np_copy_advance(link, op);
                if (is_done) {
                    np_copy_finish(link, op);
                    ++count; /* and that may have changed the list */
                    break;
                }

                if (!np_chunks_is_claimed(&op->copy.chunks) &&
                    !np_chunks_is_timed(&op->copy.chunks)) {
                    break; /* one after the other; those that wait for pages do
                              not hold back others */
                }
            }
        }
    } while (is_done);

    return count;
}
