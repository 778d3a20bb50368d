/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies in pieces.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "copy.h"

#include "fault.h"
#include "pace.h"
#include "piece.h"
#include "rma.h"

#include "../mem/access.h"
#include "../trace.h"


/* Move [offset, offset + len) of a copy, here and now; what has not arrived is
 * to do */
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
        .has_local = 1,
        .is_shared = np_share_is_on(&copy->offer)
    };
    const uint64_t begin = np_trace_begin();
    ucs_status_t status;
    np_ranges_t missing;
    unsigned i;

    status = np_piece_move(link, &piece, &missing);
    np_trace(NP_TRACE_MOVE, begin, piece.addr, len);
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

/* Offer the copy to the target, if that may do a part of it */
static void np_copy_offer(np_link_t *link, np_copy_t *copy)
{
    const np_share_args_t args = {
        .initiator_va = (uintptr_t)copy->iov[0].base,
        .target_va    = copy->remote,
        .len          = copy->len,
        .chunk        = copy->chunk,
        .chunks       = copy->chunks,
        .dir          = copy->dir
    };

    if (copy->may_share && (copy->iovcnt == 1)) {
        np_share_offer(link, &copy->offer, &args);
    }
}

static void np_copy_start(np_link_t *link, np_sop_t *op)
{
    np_copy_t *copy = &op->copy;

    copy->is_started = 1;
    if (copy->by_rings) {
        copy->end = copy->len;
        return;
    }

    copy->chunks     = ucs_min(ucs_div_round_up(copy->len,
                                                (size_t)copy->chunk),
                               (size_t)UINT32_MAX);
    if (!np_pace_is_on(copy)) { /* an RNIC moves it, no CPU */
        np_copy_offer(link, copy);
    }
}

/* Our next chunks: returns how many of them */
static uint32_t np_copy_next(np_link_t *link, np_copy_t *copy, uint32_t *first)
{
    uint32_t count;

    if (np_share_is_on(&copy->offer)) {
        count = np_share_next(link, &copy->offer, copy->next, first);
    } else {
        count  = copy->chunks - copy->next;
        *first = copy->next;
    }

    if (count > 0) {
        copy->next = *first + count;
    }
    return count;
}

/* Something is wrong: nobody begins another chunk */
static void np_copy_stop(np_sop_t *op, ucs_status_t status)
{
    uint32_t first;

    op->super.status    = status;
    op->copy.is_claimed = 1;
    if (np_share_is_on(&op->copy.offer)) {
        np_share_rest(&op->copy.offer, &first);
    }
}

/* The kernel has refused to move more. What is left of this piece is asked for;
 * after it all that nobody has begun goes through the rings. */
static void np_copy_use_rings(np_link_t *link, np_sop_t *op, size_t len)
{
    np_copy_t *copy     = &op->copy;
    ucs_status_t status = np_link_vm_refused(link);
    uint32_t first, count;

    if (status != UCS_OK) {
        np_copy_stop(op, status);
        return;
    }

    copy->offset  += len;
    copy->by_rings = 1;
    if (!np_share_is_on(&copy->offer)) {
        copy->next = copy->chunks;
        copy->end  = copy->len;
        return;
    }

    count = np_share_rest(&copy->offer, &first);
    if (count > 0) {
        copy->next = first + count;
        copy->end  = ucs_min((size_t)copy->next * copy->chunk, copy->len);
    }
}

/* Copy our part, up to a quantum. What is missing is asked for before more is
 * claimed: others can bring it in meanwhile. */
static void np_copy_run(np_link_t *link, np_sop_t *op)
{
    np_copy_t *copy = &op->copy;
    size_t budget   = NP_COPY_QUANTUM, len;
    uint32_t first, count;
    ucs_status_t status;

    while ((budget > 0) && np_fault_send_todo(link, op)) {
        if (copy->offset == copy->end) {
            count = np_copy_next(link, copy, &first);
            if (count == 0) {
                copy->is_claimed = 1;
                return;
            }

            copy->offset = (size_t)first * copy->chunk;
            copy->end    = ucs_min(copy->offset + ((size_t)count * copy->chunk),
                                   copy->len);
            np_assertv(copy->offset < copy->end, "chunks %u..%u of %u", first,
                       first + count, copy->chunks);
        }

        len = np_copy_piece_len(copy, copy->offset, copy->end);
        len = np_pace_len(link, op, copy->offset, len);
        if (len == 0) {
            return;
        }

        status = np_copy_move(link, copy, copy->offset, len);
        if (ucs_unlikely(status == UCS_ERR_UNSUPPORTED)) {
            np_copy_use_rings(link, op, len);
            return;
        } else if (ucs_unlikely(status != UCS_OK)) {
            np_copy_stop(op, status);
            return;
        }

        np_pace_moved(copy, copy->offset, len);
        copy->offset += len;
        budget       -= ucs_min(budget, len);
    }
}

/* Send our next pieces through the ring, as many as there is room for */
static void np_copy_run_rings(np_link_t *link, np_sop_t *op)
{
    const size_t max = np_rma_ring_piece(&link->port->config);
    np_copy_t *copy  = &op->copy;
    np_iov_t piece[NP_MAX_IOV];
    ucs_status_t status;
    size_t len, count;
    np_sop_t *request;

    while (copy->offset < copy->end) {
        len    = ucs_min(max, copy->end - copy->offset);
        count  = np_iov_slice(copy->iov, copy->iovcnt, copy->offset, len,
                              piece);
        status = !np_copy_may_touch(op, piece, count) ? UCS_ERR_INVALID_ADDR :
                 np_rma_send(link,
                             (copy->dir == NP_DIR_PUT) ? NP_OP_PUT : NP_OP_GET,
                             piece, count, len, copy->remote + copy->offset,
                             &request, NULL);
        if (status != UCS_OK) {
            if (status != UCS_ERR_NO_RESOURCE) {
                np_copy_stop(op, status);
            }
            return;
        }

        request->rma.copy   = op;
        request->rma.offset = copy->offset;
        copy->offset       += len;
        ++copy->pending;
    }

    copy->is_claimed = 1;
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
    if ((status != UCS_OK) && (copy_op->super.status == UCS_OK)) {
        np_copy_stop(copy_op, status);
    }
}

/* All chunks are claimed: are those of the target there? */
static int np_copy_is_shared_done(np_link_t *link, np_sop_t *op)
{
    np_copy_t *copy = &op->copy;
    ucs_status_t status;
    size_t begin, end;

    status = np_share_look(link, &copy->offer, op->super.status == UCS_OK,
                           &begin, &end);
    if (status == UCS_ERR_NO_PROGRESS) {
        copy->next       = copy->chunks;
        copy->offset     = begin;
        copy->end        = end;
        copy->is_claimed = 0;
    }
    return status == UCS_OK;
}

/* Work on one copy; returns whether it is complete */
static int np_copy_advance(np_link_t *link, np_sop_t *op)
{
    np_copy_t *copy = &op->copy;

    if (!copy->is_started) {
        np_copy_start(link, op);
    }

    if (np_pace_is_on(copy) && (op->super.status != UCS_OK)) {
        np_copy_stop(op, op->super.status); /* and nothing is waited for */
    }

    if (!copy->is_claimed) {
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

    if (!np_fault_send_todo(link, op) || !copy->is_claimed ||
        (copy->pending > 0) || !np_copy_is_shared_done(link, op) ||
        ((op->super.status == UCS_OK) && !np_pace_is_over(copy))) {
        return 0;
    }

    return 1;
}

static void np_copy_count(np_link_t *link, const np_sop_t *op)
{
    if ((op->super.status == UCS_OK) && !op->copy.has_asked &&
        !op->copy.by_rings) {
        np_stats_moved(link->port->stats, op->copy.dir, op->copy.len);
    }
}

ucs_status_t np_copy_post(np_link_t *link, np_sop_t *op)
{
    ucs_status_t status;

    np_op_order(&link->flight, &op->super, op->copy.remote, op->copy.len,
                op->copy.dir == NP_DIR_PUT);

    /* The first one begins at once, and may be done at once */
    if (ucs_list_is_empty(&link->copies) && !op->copy.by_rings &&
        np_copy_advance(link, op)) {
        np_copy_count(link, op);
        np_op_trace(&op->super);
        status = op->super.status;
        np_overlap_remove(&link->flight.overlap, &op->super.interval);
        np_sop_put(link->port, op);
        return status;
    }

    ucs_list_add_tail(&link->copies, &op->queue);
    np_sop_post(link, op);
    return UCS_INPROGRESS;
}

/* Is there anything to do about it but to wait for others? */
static int np_copy_is_ready(np_link_t *link, const np_copy_t *copy)
{
    if (copy->todo.count > 0) {
        return np_fault_has_room(link, copy);
    }
    return !copy->is_claimed || (copy->pending == 0);
}

int np_copy_has_work(np_link_t *link)
{
    np_sop_t *op;

    ucs_list_for_each(op, &link->copies, queue) {
        if (np_copy_is_ready(link, &op->copy)) {
            return 1;
        }
    }
    return 0;
}

/* Has it only waited to ask for one range that it has not found? Of several,
 * each may come back in pieces, and then have no place of its own in the
 * list. */
static int np_copy_has_waited(const np_copy_t *copy)
{
    return (copy->todo.count == 1) && copy->is_claimed && !copy->has_asked &&
           !copy->by_rings;
}

/* Others have asked meanwhile: what is there by now is not asked for again */
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
    if (ucs_unlikely(status != UCS_OK)) {
        np_copy_stop(op, status);
    }
}

unsigned np_copy_progress(np_link_t *link)
{
    ucs_list_link_t *queue = &link->copies;
    unsigned count         = 0;
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
                    np_copy_count(link, op);
                    np_op_finish(&op->super, op->super.status);
                    ++count; /* and that may have changed the list */
                    break;
                }

                if (!op->copy.is_claimed && !np_pace_is_on(&op->copy)) {
                    break; /* one after the other; those that wait for pages
                              hold back nobody */
                }
            }
        }
    } while (is_done);

    return count;
}
