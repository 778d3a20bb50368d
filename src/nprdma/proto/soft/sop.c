/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * soft0's operations: what may start, completing, failure.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "sop.h"

#include "copy.h"
#include "due.h"
#include "fault.h"
#include "lend.h"
#include "rma.h"
#include "serve.h"
#include "sunload.h"

#include "../../dev/soft/fast.h"

#include "../../mem/bypass.h"
#include "../../mem/stage.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>


void np_sop_post(np_link_t *link, np_sop_t *op)
{
    np_op_post(&link->flight, &op->super);
    /* those of users, and those that were lent and left */
    np_assert(link->flight.count[NP_OP_COPY] <= (2 * NP_TRANSFERS_MAX));
    np_flight_begun(&link->flight);
}

np_sop_t *np_sop_ask(np_link_t *link, np_op_kind_t kind, void *comp)
{
    np_sop_t *op;

    op = np_sop_get(link->port, kind, comp);
    if (op == NULL) {
        return NULL;
    }

    np_mail_begin(link, &op->ask);
    op->ask.kind = (kind == NP_OP_ATOMIC) ? NP_SLOT_ATOMIC : NP_SLOT_FAULT;
    return op;
}

void np_sop_send(np_link_t *link, np_sop_t *op)
{
    np_sop_post(link, op);
    np_mail_send(link, &op->ask);
}

void np_sop_take_back(np_link_t *link, np_sop_t *op)
{
    np_mail_end(link, &op->ask);
    np_sop_put(link->port, op);
}

/* np_way_ops_t::ended */
static void np_sop_ended(np_op_t *super)
{
    np_sop_t *op = (np_sop_t*)super;

    switch (super->kind) {
    case NP_OP_PUT:
    case NP_OP_GET:
        np_carry_end(&op->rma.carry);
        if (op->rma.carry.is_lent && (op->rma.copy == NULL)) {
            np_lend_end_one(np_link_of(super->flight), op,
                            super->status == UCS_OK);
        }
        break;
    case NP_OP_COPY:
        ucs_list_del(&op->queue);
        np_link_of(super->flight)->num_dues -= op->copy.is_due;
        if (op->copy.is_lent) {
            np_lend_end(np_link_of(super->flight), 1, super->status == UCS_OK);
        }
        free(op->copy.own);
        break;
    default:
        np_mail_end(np_link_of(super->flight), &op->ask);
    }
}

/* np_way_ops_t::atomic_now */
static ucs_status_t
np_sop_atomic_now(np_flight_t *flight, np_key_t *key,
                  const np_atomic_t *request, uint64_t *old)
{
    np_link_t *link = np_link_of(flight);
    void *ptr       = np_fast_direct(link, key, request->addr);

    return (ptr == NULL) ? UCS_ERR_NO_PROGRESS :
           np_fast_atomic(link, ptr, request, old);
}

/* np_port_ops_t::may_send */
static int np_sop_may_send(np_link_t *link, const np_ask_t *ask)
{
    return np_flight_has_completed(&link->flight, ask->after,
                                   link->flight.put);
}

/* np_way_ops_t::atomic: let the target's CPU do it. An atomic is its request,
 * and so can be kept until what comes before a fence is complete. */
static ucs_status_t np_sop_atomic(np_flight_t *flight,
                                  const np_atomic_t *request, void *result,
                                  void *comp)
{
    np_link_t *link = np_link_of(flight);
    np_sop_t *op;

    if (ucs_unlikely(link->waiting > 0)) {
        np_mail_resend(link); /* those that were kept go before this one */
    }

    if (!np_mail_has_room(link)) {
        return np_mail_no_room(link);
    }

    op = np_sop_ask(link, NP_OP_ATOMIC, comp);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    op->ask.atomic          = *request;
    op->super.atomic.result = result;
    op->super.atomic.size   = request->size;
    np_op_order(flight, &op->super, request->addr, request->size, 1);
    if (ucs_unlikely(flight->gate & NP_GATE_FENCED)) {
        op->ask.after = flight->fence; /* before it is one of those itself */
        np_sop_post(link, op);
        np_mail_keep(link, &op->ask);
    } else {
        np_sop_send(link, op);
    }
    return UCS_INPROGRESS;
}

/* np_port_ops_t::answered */
static int np_sop_answered(np_link_t *link, np_ask_t *ask, ucs_status_t status)
{
    np_sop_t *op        = ucs_container_of(ask, np_sop_t, ask);
    const int is_atomic = op->super.kind == NP_OP_ATOMIC;

    if (ucs_unlikely(status != UCS_OK) &&
        (is_atomic ? (status == UCS_ERR_NO_RESOURCE) :
                     np_fault_is_again(link, op, status))) {
        return 1;
    }

    op->super.status = status;
    np_sunload_ended(link, op);
    if (is_atomic) {
        if (status == UCS_OK) {
            np_op_store(&op->super, &np_mail_answer(link, ask)->result);
        }
    } else {
        np_fault_answered(link, op);
        if (op->fault.copy != NULL) {
            np_op_drop(&op->super); /* the copy completes for it */
            return 0;
        }
    }

    np_op_finish(&op->super, op->super.status);
    return 0;
}

/* UCS_ERR_NO_RESOURCE: our own memory goes each time: try later */
static ucs_status_t
np_sop_take_get(np_sop_t *op)
{
    uint8_t *data = op->rma.carry.bytes;
    np_sop_t *user_op  = (op->rma.copy != NULL) ? op->rma.copy : op;
    np_stage_way_t way = NP_STAGE_IN;
    np_iov_t piece[NP_MAX_IOV];
    size_t count = 1;

    np_unit_assert_outside();
    if (op->rma.copy != NULL) {
        count = np_iov_slice(user_op->copy.iov, user_op->copy.iovcnt,
                             op->rma.offset, op->rma.len, piece);
        if (user_op->copy.chunks.len >= np_bypass_min) {
            way = NP_STAGE_IN_PAST;
        }
    } else if (op->rma.buffer != NULL) {
        piece[0] = (np_iov_t){op->rma.buffer, op->rma.len};
    } else {
        op->rma.unpack(op->rma.arg, data, op->rma.len);
        return UCS_OK;
    }

    return !np_copy_may_touch(user_op, piece, count) ? UCS_ERR_INVALID_ADDR :
           np_stage_own(piece, count, data, way);
}

/* np_port_ops_t::carried */
static int
np_sop_carried(np_link_t *link, np_carry_t *carry, ucs_status_t status)
{
    np_sop_t *op = ucs_container_of(carry, np_sop_t, rma.carry);

    if ((op->super.kind == NP_OP_GET) && (status == UCS_OK)) {
        status = np_sop_take_get(op);
        if (status == UCS_ERR_NO_RESOURCE) {
            return 0;
        }
        if (carry->is_lent) {
            np_fill_count(&link->fill, op->rma.len);
        }
    }

    if (op->rma.carry.is_lent && (status == UCS_ERR_NO_PROGRESS)) {
        np_lend_refused(link, op);
    } else if (op->rma.copy != NULL) {
        np_copy_piece_done(op->rma.copy, status);
        np_op_drop(&op->super);
    } else {
        np_sunload_ended(link, op);
        np_op_finish(&op->super, status);
    }
    return 1;
}

/* np_way_ops_t::left */
static void np_sop_left(np_flight_t *flight)
{
    np_sunload_cleanup(np_link_of(flight));
}

/* np_way_ops_t::stopped */
static void np_sop_stopped(np_op_t *super)
{
    np_sop_t *op = (np_sop_t*)super;

    if ((super->kind == NP_OP_COPY) &&
        np_flights_are_ours(super->flight->all)) {
        np_chunks_abort(np_link_of(super->flight), &op->copy.chunks);
    }
}

/* The device tells that the link is down. A target that has closed its port in
 * peace is no failure if no operation waits for it but what it has executed:
 * peers finish at different times. */
static void np_sop_link_down(np_link_t *link)
{
    if ((link->flight.outstanding > np_carry_passed(link) + link->num_dues) ||
        !ucs_list_is_empty(&link->flight.flushes) ||
        np_link_has_lost(link)) {
        np_flight_report(&link->flight);
    }
}

unsigned np_port_work_slow(np_port_t *port)
{
    unsigned count;

    count        = np_flow_progress(port);
    count       += np_flights_report(&port->flights);
    port->taken += count;
    return count;
}

static const np_way_ops_t np_sop_ways = {
    .op_size       = sizeof(np_sop_t),
    .max_ops       = UINT_MAX,
    .stopped       = np_sop_stopped,
    .ended         = np_sop_ended,
    .left          = np_sop_left,
    .move          = np_rma_move,
    .put_copied    = np_rma_put_copied,
    .put_packed    = np_rma_put_packed,
    .get_unpack    = np_rma_get_unpack,
    .atomic_now    = np_sop_atomic_now,
    .atomic        = np_sop_atomic,
    .keeps_atomics = 1
};

const np_port_ops_t np_proto_ops = {
    .ways      = &np_sop_ways,
    .serve     = np_serve_carried,
    .lend      = np_serve_lent,
    .execute   = np_serve_job,
    .may_send  = np_sop_may_send,
    .answered  = np_sop_answered,
    .carried   = np_sop_carried,
    .progress  = np_copy_progress,
    .has_work  = np_copy_has_work,
    .passed    = np_due_work,
    .link_down = np_sop_link_down
};

void np_proto_close(np_port_t *port)
{
    np_flights_cleanup(&port->flights);
    free(port->bounce);
    np_port_close(port);
}
