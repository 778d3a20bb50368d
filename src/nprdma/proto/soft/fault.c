/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * FAULT, the initiator's part.
 *
 * A FAULT is sent only after the optimistic attempt has returned: what the
 * target does about it is never undone by a late write of ours.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "fault.h"

#include "copy.h"
#include "due.h"
#include "../judge.h"
#include "sop.h"
#include "piece.h"
#include "rma.h"
#include "sunload.h"

#include "../../engine.h"
#include "../../mem/access.h"
#include "../../mem/mapper.h"
#include "../../mem/stage.h"
#include "../../pause.h"
#include "../../trace.h"
#include "../../seldom.h"

#include <string.h>


static np_sop_t *np_fault_begin(np_link_t *link, void *comp, size_t len,
                                uint64_t addr, uint32_t flags)
{
    np_sop_t *op;

    op = np_sop_ask(link, NP_OP_FAULT, comp);
    if (op == NULL) {
        return NULL;
    }

    np_assertv((len > 0) && (len <= ((flags & NP_FAULT_INLINE) ?
                                     NP_INLINE_SIZE : NP_FAULT_MAX)),
               "a FAULT of %zu bytes, flags %#x", len, flags);
    op->fault     = (np_fault_t){0};
    op->ask.fault = (np_slot_fault_t){
        .remote = addr,
        .len    = len,
        .flags  = flags
    };
    return op;
}

/* Not before this time; np_clock() */
static void np_fault_send_at(np_link_t *link, np_sop_t *op, uint64_t send_at)
{
    op->ask.retry_at = send_at;
    np_sop_post(link, op);
    np_mail_keep(link, &op->ask);
    np_mail_resend(link); /* it may be time */
}

static void np_fault_send(np_link_t *link, np_sop_t *op)
{
    const uint32_t flags = op->ask.fault.flags;

    NP_STATS_INC(link->port->flights.stats, remote_faults);
    if (flags & NP_FAULT_COPY) {
        NP_STATS_INC(link->port->flights.stats, copies);
    } else if (flags & NP_FAULT_INLINE) {
        NP_STATS_INC(link->port->flights.stats, inlines);
    } else if (!(flags & NP_FAULT_RETRY)) {
        NP_STATS_INC(link->port->flights.stats, reverses);
    }

    op->super.begin = np_trace_begin();
    NP_PAUSE(FAULT_SEND);
    if (ucs_unlikely(link->tlb != NULL)) {
        /* when the device has tried it, and the message would have arrived */
        np_fault_send_at(link, op,
                         np_tlb_due(link->tlb, np_clock(),
                                    np_tlb_take(link->tlb)) + link->tlb->wire);
    } else {
        np_sop_send(link, op);
    }
}

/* Inside the message. The views move what lies in one arena. */
static uint32_t np_fault_inline(uint64_t addr, size_t len)
{
    return NP_FAULT_INLINE | (np_arena_has(addr, len) ? 0 : NP_FAULT_COPY);
}

ucs_status_t np_fault_put(np_link_t *link, const void *data, size_t len,
                          uint64_t addr)
{
    np_sop_t *op;

    op = np_fault_begin(link, NULL, len, addr,
                        NP_FAULT_PUT | np_fault_inline(addr, len));
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    memcpy(np_mail_area(link, &op->ask), data, len);
    np_op_order(&link->flight, &op->super, addr, len, 1);
    np_fault_send(link, op);
    np_sunload_posted(link, op, addr, len);
    return UCS_OK;
}

/* Copy between a message and our own memory, which may have gone, and whose
 * registration may have ended. As np_stage_copy. */
static ucs_status_t
np_fault_move_local(np_dir_t dir, uint8_t *area, const np_iov_t *iov,
                    size_t iovcnt)
{
    return (np_access_refused(iov, iovcnt) != NULL) ? UCS_ERR_INVALID_ADDR :
           np_stage_copy(NULL, iov, iovcnt, area, dir == NP_DIR_PUT, 1);
}

ucs_status_t np_fault_put_later(np_link_t *link, const np_iov_t *iov,
                                size_t iovcnt, size_t len, uint64_t addr,
                                int is_program, uint64_t send_at, void *comp,
                                np_sop_t **op_p)
{
    ucs_status_t status;
    uint8_t *area;
    np_sop_t *op;

    op = np_fault_begin(link, comp, len, addr,
                        NP_FAULT_PUT | np_fault_inline(addr, len));
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    area   = np_mail_area(link, &op->ask);
    status = is_program ? np_fault_move_local(NP_DIR_GET, area, iov, iovcnt) :
             np_stage_own(iov, iovcnt, area, NP_STAGE_OUT);
    if (status != UCS_OK) {
        np_sop_take_back(link, op);
        return status;
    }

    np_op_order(&link->flight, &op->super, addr, len, 1);
    op->super.begin = np_trace_begin();
    np_fault_send_at(link, op, send_at);
    *op_p = op;
    return UCS_OK;
}

ucs_status_t np_fault_get(np_link_t *link, void *buffer, np_unpack_t unpack,
                          void *arg, size_t len, uint64_t addr, void *comp)
{
    np_sop_t *op;

    if (!np_mail_has_room(link)) {
        return np_mail_no_room(link);
    }

    op = np_fault_begin(link, comp, len, addr, np_fault_inline(addr, len));
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    op->fault.buffer = buffer;
    op->fault.unpack = unpack;
    op->fault.arg    = arg;
    np_op_order(&link->flight, &op->super, addr, len, 0);
    np_fault_send(link, op);
    return UCS_INPROGRESS;
}

ucs_status_t np_fault_fetch(np_link_t *link, size_t len, uint64_t addr)
{
    np_sop_t *op;

    if (!np_mail_has_room(link)) {
        return np_mail_no_room(link);
    }

    op = np_fault_begin(link, NULL, len, addr, NP_FAULT_RETRY);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    /* a call that tries again before the answer waits, without asking again */
    np_op_order(&link->flight, &op->super, addr, len, 1);
    np_fault_send(link, op);
    return np_flight_refuse(&link->flight);
}

/* How the next piece of a copy is to move, and how much of it */
static uint32_t np_fault_plan(np_link_t *link, const np_copy_t *copy,
                              const np_iov_t *local, uint64_t addr, size_t *len)
{
    uint32_t flags = (copy->dir == NP_DIR_PUT) ? NP_FAULT_PUT : 0;

    *len = ucs_min(*len, np_arena_left(addr));
    if (copy->rounds >= NP_FAULT_ROUNDS) {
        *len = ucs_min(*len, (size_t)NP_INLINE_SIZE);
        return flags | NP_FAULT_INLINE | NP_FAULT_COPY;
    }

    if (np_engine.config.fault_mode == NP_FAULT_MODE_RETRY) {
        *len = ucs_min(*len, NP_DMA_MAX);
        return flags | NP_FAULT_RETRY;
    }

    /* a word: it must not show the signature, which the target may find here */
    if ((*len <= ucs_max(np_engine.config.inline_max, NP_PIECE_ONCE)) ||
        link->no_reverse || !np_link_has_vm(link)) {
        *len = ucs_min(*len, (size_t)NP_INLINE_SIZE);
        return flags | NP_FAULT_INLINE;
    }

    /* the target reaches one piece of our memory at a time, */
    *len = ucs_min(*len, ucs_min(local->len, (size_t)NP_FAULT_MAX));
    /* and no page that others share */
    if (!np_regions_share((uintptr_t)local->base, 1)) {
        *len = ucs_min(*len, (size_t)(NP_PAGE_SIZE - ((uintptr_t)local->base %
                                                      NP_PAGE_SIZE)));
        return flags | NP_FAULT_INLINE;
    } else if (np_region_guards((uintptr_t)local->base)) {
        *len = ucs_min(*len,
                       np_regions_whole((uintptr_t)local->base,
                                        (uintptr_t)local->base + *len) -
                       (uintptr_t)local->base);
    }

    if ((copy->dir == NP_DIR_GET) && (copy->rounds == 0) &&
        !np_mapper_is_mapped((uintptr_t)local->base, *len, 1)) {
        /* while the target brings in its own, np_fault_prepare_meanwhile */
        *len = ucs_min(*len, NP_DMA_MAX);
        return flags | NP_FAULT_RETRY;
    }
    return flags;
}

/* What the target needs to know of our memory. UCS_ERR_NO_RESOURCE: later */
static ucs_status_t
np_fault_prepare(np_link_t *link, np_sop_t *op, np_dir_t dir,
                 const np_iov_t *local, size_t count)
{
    np_slot_fault_t *request = &op->ask.fault;
    ucs_status_t status;

    if (request->flags & NP_FAULT_RETRY) {
        return UCS_OK;
    }

    if (request->flags & NP_FAULT_INLINE) {
        return (dir == NP_DIR_GET) ? UCS_OK :
               np_fault_move_local(NP_DIR_GET, np_mail_area(link, &op->ask),
                                   local, count);
    }

    /* what has no entries, or loses them, is found out with the answer */
    request->local = (uintptr_t)local[0].base;
    status         = np_access_fault_in(request->local, request->len,
                                        dir == NP_DIR_GET, NULL);
    op->fault.ours = np_entries_of_iov(local, 1);
    return (status == UCS_ERR_INVALID_ADDR) ? status : UCS_OK;
}

/* A get into memory that is absent as well: both sides bring in theirs at the
 * same time. What cannot be brought in is found out by the second attempt. */
static void np_fault_prepare_meanwhile(np_link_t *link, const np_sop_t *op,
                                       const np_iov_t *local)
{
    const size_t len = ucs_min(local->len, (size_t)op->ask.fault.len);

    if ((op->ask.fault.flags & NP_FAULT_RETRY) &&
        (op->fault.copy->copy.dir == NP_DIR_GET) &&
        !np_mapper_is_mapped((uintptr_t)local->base, len, 1)) {
        NP_STATS_INC(link->port->flights.stats, local_faults);
        (void)np_access_fault_in((uintptr_t)local->base, len, 1, NULL);
    }
}

/* Ask for the beginning of a range, for which there is room. Returns the bytes
 * asked for; 0: no memory, or an error (the copy's status) */
static size_t np_fault_send_piece(np_link_t *link, np_sop_t *copy_op,
                                  size_t offset, size_t len)
{
    np_copy_t *copy = &copy_op->copy;
    uint64_t addr   = copy->remote + offset;
    np_iov_t local[NP_MAX_IOV];
    ucs_status_t status;
    size_t count;
    uint32_t flags;
    np_sop_t *op;

    np_assert((len > 0) && (offset + len <= copy->len));
    np_iov_slice(copy->iov, copy->iovcnt, offset, len, local);
    flags = np_fault_plan(link, copy, &local[0], addr, &len);
    count = np_iov_slice(copy->iov, copy->iovcnt, offset, len, local);
    op    = np_fault_begin(link, NULL, len, addr, flags);
    if (op == NULL) {
        return 0;
    }

    op->fault.copy   = copy_op;
    op->fault.offset = offset;
    status           = np_fault_prepare(link, op, copy->dir, local, count);
    if (ucs_unlikely(status != UCS_OK)) {
        np_sop_take_back(link, op);
        if (status != UCS_ERR_NO_RESOURCE) {
            copy_op->super.status = status;
        }
        return 0;
    }

    ++copy->pending;
    copy->has_asked = 1;
    np_fault_send(link, op);
    np_fault_prepare_meanwhile(link, op, local);
    return len;
}

/* Each piece that is asked for may come back, and then has a place in the list:
 * nothing that was written is in a range that had to be joined to another. If
 * only one is out, it is the beginning of a range, and joins that. */
int np_fault_has_room(np_link_t *link, const np_copy_t *copy)
{
    return np_mail_has_room(link) &&
           ((copy->pending == 0) ||
            ((copy->todo.count - copy->todo_next + copy->pending) <
             NP_RANGES_MAX));
}

int np_fault_send_todo(np_link_t *link, np_sop_t *copy_op)
{
    np_copy_t *copy = &copy_op->copy;
    np_ranges_t *todo = &copy->todo;
    size_t sent;

    if (ucs_unlikely(copy->todo_next < todo->count) && (copy->retry_at != 0)) {
        if (copy->retry_at > np_clock()) {
            return 0;
        }
        copy->retry_at = 0;
    }

    while (copy->todo_next < todo->count) {
        if (!np_fault_has_room(link, copy)) {
            return 0;
        }

        sent = np_fault_send_piece(link, copy_op,
                                   todo->range[copy->todo_next].offset,
                                   todo->range[copy->todo_next].len);
        if (sent == 0) {
            return 0;
        }

        np_assert(sent <= todo->range[copy->todo_next].len);
        todo->range[copy->todo_next].offset += sent;
        todo->range[copy->todo_next].len    -= sent;
        if (todo->range[copy->todo_next].len == 0) {
            ++copy->todo_next;
        }
    }

    todo->count     = 0;
    copy->todo_next = 0;
    return 1;
}

/* Once more, by the next round */
static void np_fault_again(np_link_t *link, np_copy_t *copy, size_t offset,
                           size_t len)
{
    np_ranges_t *todo = &copy->todo;
    unsigned i;

    NP_STATS_INC(link->port->flights.stats, replays);
    ++copy->rounds;

    todo->count -= copy->todo_next;
    for (i = 0; i < todo->count; ++i) {
        todo->range[i] = todo->range[copy->todo_next + i];
    }
    copy->todo_next = 0;

    for (i = 0; i < todo->count; ++i) {
        if ((offset + len) == todo->range[i].offset) {
            todo->range[i].offset = offset;
            todo->range[i].len   += len;
            return;
        }
    }
    np_ranges_add(todo, offset, len);
}

/* Bytes from the beginning that are done of a FAULT that was not completed */
static size_t np_fault_done(np_link_t *link, const np_sop_t *op)
{
    const np_slot_fault_t *asked = &op->ask.fault;
    const int is_put             = !!(asked->flags & NP_FAULT_PUT);

    /* a message that brings nothing is not looked at */
    return (is_put || !(asked->flags & NP_FAULT_INLINE)) ?
           ucs_min(np_mail_answer(link, &op->ask)->result, asked->len) : 0;
}

int np_fault_is_again(np_link_t *link, np_sop_t *op, ucs_status_t status)
{
    np_slot_fault_t *asked = &op->ask.fault;
    uint8_t *area          = np_mail_area(link, &op->ask);
    size_t done;

    if ((op->fault.copy != NULL) || (asked->flags & NP_FAULT_RETRY) ||
        ((status != UCS_ERR_NO_RESOURCE) && (status != UCS_ERR_NO_PROGRESS))) {
        return 0;
    }

    done              = np_fault_done(link, op);
    np_assert(done <= asked->len);
    asked->remote += done;
    asked->len    -= done;
    asked->flags  |= NP_FAULT_COPY;
    if (asked->flags & NP_FAULT_PUT) {
        memmove(area, area + done, asked->len);
    }
    return asked->len > 0;
}

/* READY: the target has brought the piece in. Try again, judged by entries. */
static void np_fault_retry(np_link_t *link, np_sop_t *op)
{
    const np_slot_fault_t *asked = &op->ask.fault;
    np_copy_t *copy              = &op->fault.copy->copy;
    np_iov_t local[NP_MAX_IOV];
    np_piece_t piece = {
        .dir        = copy->dir,
        .iov        = local,
        .iovcnt     = np_iov_slice(copy->iov, copy->iovcnt, op->fault.offset,
                                   asked->len, local),
        .addr       = asked->remote,
        .len        = asked->len,
        .direct     = (copy->window == NULL) ? NULL :
                      UCS_PTR_BYTE_OFFSET(copy->window_addr, op->fault.offset),
        .has_local  = 1,
        .is_prefix  = 1,
        .by_entries = 1
    };
    np_ranges_t missing;
    unsigned i;

    NP_STATS_INC(link->port->flights.stats, retries);
    op->super.status = np_piece_move(link, &piece, &missing);
    np_due_begin(link); /* what it has missed was charged with the FAULT */
    if (ucs_unlikely(op->super.status == UCS_ERR_UNSUPPORTED)) {
        op->super.status = np_link_vm_refused(link);
        copy->rounds     = NP_FAULT_ROUNDS; /* inside messages, then */
    }
    for (i = 0; (op->super.status == UCS_OK) && (i < missing.count); ++i) {
        np_fault_again(link, copy, op->fault.offset + missing.range[i].offset,
                       missing.range[i].len);
    }
}

static int np_fault_is_reverse(const np_sop_t *op)
{
    return !(op->ask.fault.flags & (NP_FAULT_INLINE | NP_FAULT_RETRY));
}

/* NAK of a transfer, or of a part of it: a line, but not for each of many. UCP
 * may forget to tell its user (its newer protocols forget it for a read). */
static void
np_fault_refused(np_link_t *link, const np_sop_t *op, int is_first)
{
    const np_slot_fault_t *asked = &op->ask.fault;

    NP_STATS_INC(link->port->flights.stats, naks);
    if (!is_first) {
        return;
    }
    np_error_seldom("process %d has no memory to %s at %#lx..%#lx: %s",
                    link->process.pid,
                    (asked->flags & NP_FAULT_PUT) ? "write" : "read",
                    asked->remote, asked->remote + asked->len,
                    ucs_status_string(op->super.status));
}

/* A piece of a copy */
static void np_fault_piece_answered(np_link_t *link, np_sop_t *op)
{
    const np_slot_fault_t *asked = &op->ask.fault;
    np_sop_t *copy_op            = op->fault.copy;
    np_copy_t *copy              = &copy_op->copy;
    np_iov_t local[NP_MAX_IOV];
    size_t count, done;
    np_entries_t ours;

    count = np_iov_slice(copy->iov, copy->iovcnt, op->fault.offset,
                         asked->len, local);
    if ((op->super.status == UCS_OK) && (asked->flags & NP_FAULT_INLINE) &&
        (copy->dir == NP_DIR_GET)) {
        op->super.status = np_fault_move_local(NP_DIR_PUT,
                                               np_mail_area(link, &op->ask),
                                               local, count);
    }

    if (op->super.status == UCS_ERR_UNSUPPORTED) {
        if (np_fault_is_reverse(op)) {
            link->no_reverse = 1;
        } else if (!(asked->flags & NP_FAULT_RETRY) ||
                   (np_engine.config.fault_mode == NP_FAULT_MODE_RETRY)) {
            copy->rounds = NP_FAULT_ROUNDS; /* inside the message, then */
        }
        op->super.status = UCS_ERR_NO_PROGRESS;
    } else if (op->super.status == UCS_ERR_NO_RESOURCE) {
        /* a swapper takes its pages away each time: give it some time */
        copy->retry_at = np_mail_retry_at(
                copy->rounds - ucs_min(copy->rounds, NP_FAULT_ROUNDS));
        op->super.status = UCS_ERR_NO_PROGRESS;
    }

    if (op->super.status == UCS_ERR_NO_PROGRESS) {
        /* our page was absent when the data came, or when the target moved
         * it */
        op->super.status = UCS_OK;
        done             = np_fault_done(link, op);
        if (done < asked->len) {
            np_fault_again(link, copy, op->fault.offset + done,
                           asked->len - done);
        }
    } else if (op->super.status != UCS_OK) {
        np_fault_refused(link, op, copy_op->super.status == UCS_OK);
    } else if (asked->flags & NP_FAULT_RETRY) {
        np_fault_retry(link, op);
    } else if (np_fault_is_reverse(op) && (copy->dir == NP_DIR_GET)) {
        /* A write that the target calls done is done: it has seen no page of
         * ours absent. It must not be repeated. */
        ours = np_entries_of_iov(local, count);
        if (!np_judge_ours(NP_DIR_GET, 1, &op->fault.ours, &ours)) {
            np_fault_again(link, copy, op->fault.offset, asked->len);
        }
    }

    np_copy_piece_done(copy_op, op->super.status);
}

void np_fault_answered(np_link_t *link, np_sop_t *op)
{
    const np_slot_fault_t *asked = &op->ask.fault;
    const uint8_t *area          = np_mail_area(link, &op->ask);

    np_trace(NP_TRACE_FAULT, op->super.begin, asked->remote, asked->len);
    if (op->fault.copy != NULL) {
        np_fault_piece_answered(link, op);
    } else if ((asked->flags & NP_FAULT_RETRY) &&
               ((op->super.status == UCS_ERR_NO_RESOURCE) ||
                (op->super.status == UCS_ERR_NO_PROGRESS))) {
        op->super.status = UCS_OK; /* the caller asks again */
    } else if ((asked->flags & NP_FAULT_RETRY) &&
               (op->super.status == UCS_ERR_UNSUPPORTED)) {
        op->super.status = UCS_OK;
        link->no_fetch   = np_fault_page(asked->remote);
    } else if (op->super.status != UCS_OK) {
        np_fault_refused(link, op, 1);
    } else if (asked->flags & (NP_FAULT_RETRY | NP_FAULT_PUT)) {
        /* nothing to take */
    } else if (op->fault.buffer != NULL) {
        memcpy(op->fault.buffer, area, asked->len);
    } else {
        np_unit_assert_outside();
        op->fault.unpack(op->fault.arg, area, asked->len);
    }
}
