/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations: beginning, completing, failure.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "op.h"

#include "copy.h"
#include "fault.h"
#include "order.h"
#include "request.h"
#include "rma.h"
#include "serve.h"

#include "../extension.h"
#include "../mem/overlap.h"
#include "../mem/prepare.h"

#include <stdlib.h>
#include <string.h>

#define NP_OP_BLOCK 16


/* Operations are made in blocks, which live as long as the port */
typedef struct np_op_block {
    struct np_op_block *next;
    np_op_t            ops[NP_OP_BLOCK];
} np_op_block_t;


static const np_user_t *np_op_user(np_port_t *port)
{
    return port->user;
}

static ucs_status_t np_op_add_block(np_port_t *port)
{
    np_op_block_t *block;
    unsigned i;

    block = calloc(1, sizeof(*block));
    if (block == NULL) {
        np_error("no memory for %d operations of %zu bytes", NP_OP_BLOCK,
                 sizeof(np_op_t));
        return UCS_ERR_NO_MEMORY;
    }

    block->next     = port->op_blocks;
    port->op_blocks = block;
    for (i = 0; i < NP_OP_BLOCK; ++i) {
        np_op_put(port, &block->ops[i]);
    }
    return UCS_OK;
}

np_op_t *np_op_get(np_port_t *port, np_op_kind_t kind, void *comp)
{
    np_op_t *op;

    if (ucs_unlikely(port->free_ops == NULL) &&
        (np_op_add_block(port) != UCS_OK)) {
        return NULL;
    }

    op             = port->free_ops;
    port->free_ops = op->next_free;
    op->kind       = kind;
    op->comp       = comp;
    op->status     = UCS_OK;
    op->is_ordered = 0;
    return op;
}

void np_op_put(np_port_t *port, np_op_t *op)
{
    op->next_free  = port->free_ops;
    port->free_ops = op;
}

/* The slots from the next operation of the data ring on must stay */
static void np_link_hold_next(np_link_t *link)
{
    ucs_list_link_t *queue = &link->queues[NP_QUEUE_DATA];

    np_carry_hold(link, ucs_list_is_empty(queue) ? NULL :
                        &ucs_list_head(queue, np_op_t, list)->rma.carry);
}

void np_op_post(np_link_t *link, np_link_queue_t queue, np_op_t *op)
{
    if (ucs_list_is_empty(&link->busy)) {
        ucs_list_add_tail(&link->port->busy_links, &link->busy);
    }

    op->sequence  = (queue == NP_QUEUE_FLUSH) ?
                    link->flight.sequence :
                    np_flight_begin(&link->flight, op->kind == NP_OP_ATOMIC);
    link->copies += (op->kind == NP_OP_COPY);
    np_assertv(link->copies <= NP_COPY_MAX, "%u copies", link->copies);
    ucs_list_add_tail(&link->queues[queue], &op->list);
    if (queue == NP_QUEUE_DATA) {
        np_link_hold_next(link);
    }

    if (ucs_unlikely(np_order_flags() & NPRDMA_ORDER_AFTER) &&
        (queue != NP_QUEUE_FLUSH)) {
        np_link_fence(link);
    }

    /* It went down after this operation had entered, when nothing was
     * outstanding that its user had to be told of */
    if (ucs_unlikely(np_flight_is_down(&link->flight))) {
        np_link_report(link);
    }
}

void np_op_unpost(np_link_t *link, np_op_t *op)
{
    ucs_list_del(&op->list);
    np_flight_end(&link->flight, op->kind == NP_OP_ATOMIC);
    link->copies -= (op->kind == NP_OP_COPY);
    if (op->is_ordered) {
        np_overlap_remove(&link->flight.overlap, &op->interval);
        op->is_ordered = 0;
    }
}

void np_op_complete(np_port_t *port, np_op_t *op)
{
    void *comp          = op->comp;
    ucs_status_t status = op->status;

    np_unit_assert_outside();
    np_op_put(port, op);
    if (comp != NULL) {
        np_op_user(port)->complete(comp, status);
    }
}

/* Does anything but its user rely on this operation? Nobody waits for it, or
 * what is behind a fence does: UCP's word to the peer that a put is there must
 * not go if it is not. */
static int np_op_is_relied_on(const np_link_t *link, const np_op_t *op)
{
    return (op->comp == NULL) ||
           np_flight_is_relied_on(&link->flight, op->sequence);
}

void np_op_finish(np_link_t *link, np_op_t *op)
{
    if (ucs_unlikely((op->status != UCS_OK) && np_op_is_relied_on(link, op))) {
        /* as on any RDMA device, the end of the connection */
        np_error("a request to process %d has failed: %s", link->process.pid,
                 ucs_status_string(op->status));
        np_link_down(link, op->status);
        np_link_report(link);
    }

    np_op_complete(link->port, op);
}

/* UCS_ERR_NO_RESOURCE: our own memory goes each time: later */
static ucs_status_t
np_op_take_get(np_link_t *link, np_op_t *op)
{
    uint8_t *data = np_carry_bytes(link, &op->rma.carry);
    np_iov_t piece[NP_MAX_IOV];
    size_t count;

    np_unit_assert_outside();
    if (op->rma.copy != NULL) {
        count = np_iov_slice(op->rma.copy->copy.iov, op->rma.copy->copy.iovcnt,
                             op->rma.offset, op->rma.len, piece);
        return !np_copy_may_touch(op->rma.copy, piece, count) ?
               UCS_ERR_INVALID_ADDR :
               np_fault_copy_local(link, NP_DIR_PUT, data, piece, count);
    } else if (op->rma.buffer != NULL) {
        memcpy(op->rma.buffer, data, op->rma.len);
    } else {
        op->rma.unpack(op->rma.arg, data, op->rma.len);
    }
    return UCS_OK;
}

/* The target has passed this operation's slot. Returns 0 if what it says cannot
 * be taken yet. */
static int np_op_slot_done(np_link_t *link, np_op_t *op)
{
    ucs_status_t status;

    if (op->status == UCS_OK) {
        status = np_carry_status(link, &op->rma.carry);
        if ((op->kind == NP_OP_GET) && (status == UCS_OK)) {
            status = np_op_take_get(link, op);
            if (status == UCS_ERR_NO_RESOURCE) {
                return 0;
            }
        }
        op->status = status;
    }

    np_op_unpost(link, op);
    if (op->rma.copy != NULL) {
        np_copy_piece_done(op->rma.copy, op->status);
        np_op_put(link->port, op);
    } else {
        np_op_finish(link, op);
    }
    return 1;
}

static unsigned np_link_complete_slots(np_link_t *link)
{
    ucs_list_link_t *queue = &link->queues[NP_QUEUE_DATA];
    unsigned count         = 0;
    np_op_t *op;

    if (ucs_list_is_empty(queue)) {
        return 0;
    }

    do {
        op = ucs_list_head(queue, np_op_t, list);
        if (!np_carry_is_done(link, &op->rma.carry) ||
            !np_op_slot_done(link, op)) {
            break;
        }
        ++count;
    } while (!ucs_list_is_empty(queue));

    np_link_hold_next(link);
    return count;
}

static unsigned np_link_progress(np_link_t *link)
{
    unsigned count = 0;

    count += np_link_complete_slots(link);
    count += np_request_progress(link);
    count += np_copy_progress(link);
    count += np_link_complete_flushes(link);
    np_mail_ring(link);

    if ((link->flight.outstanding == 0) &&
        ucs_list_is_empty(&link->queues[NP_QUEUE_FLUSH])) {
        ucs_list_del(&link->busy);
        ucs_list_head_init(&link->busy);
    }

    return count;
}

static void
np_link_cancel_queue(np_link_t *link, np_link_queue_t queue,
                     ucs_status_t status)
{
    np_op_t *op;

    while (!ucs_list_is_empty(&link->queues[queue])) {
        op         = ucs_list_head(&link->queues[queue], np_op_t, list);
        op->status = status;
        if (queue == NP_QUEUE_FLUSH) {
            ucs_list_del(&op->list);
            np_op_flush_done(link->port, op);
            continue;
        }

        np_op_unpost(link, op);
        if (((op->kind == NP_OP_FAULT) && (op->fault.copy != NULL)) ||
            ((queue == NP_QUEUE_DATA) && (op->rma.copy != NULL))) {
            np_op_put(link->port, op); /* the copy itself comes later */
        } else {
            if ((op->kind == NP_OP_COPY) && np_port_is_ours(link->port)) {
                np_copy_abort(link, op);
            }
            np_op_complete(link->port, op);
        }
    }
}

void np_link_cancel(np_link_t *link, ucs_status_t status)
{
    unsigned i;

    /* The target may be in the middle of a reverse transfer, in memory that is
     * the program's again after this. What a forked child has inherited goes on
     * for its parent. */
    if ((link->shm != NULL) && np_port_is_ours(link->port) &&
        !ucs_list_is_empty(&link->queues[NP_QUEUE_REQUEST])) {
        np_mail_drop(link);
        link->waiting = 0;
    }

    np_carry_hold(link, NULL);
    for (i = 0; i < NP_QUEUE_LAST; ++i) {
        np_link_cancel_queue(link, i, status);
    }

    ucs_list_del(&link->busy);
    ucs_list_head_init(&link->busy);
}

/* dev tells: the link is down. A target that has closed its port in peace is no
 * failure, if nobody waits for it: peers finish at different times. */
static void np_op_link_down(np_link_t *link)
{
    if ((link->flight.outstanding > 0) ||
        !ucs_list_is_empty(&link->queues[NP_QUEUE_FLUSH]) ||
        np_link_has_lost(link)) {
        np_link_report(link);
    }
}

void np_link_report(np_link_t *link)
{
    if (!link->flight.is_reported && ucs_list_is_empty(&link->flight.down)) {
        ucs_list_add_tail(&link->port->down_links, &link->flight.down);
    }
}

unsigned np_port_work_slow(np_port_t *port)
{
    unsigned count = 0;
    unsigned turns = ucs_list_length(&port->busy_links);
    np_link_t *link;

    /* Each in turn; what completes may begin and end others */
    for (; (turns > 0) && !ucs_list_is_empty(&port->busy_links); --turns) {
        link = ucs_list_head(&port->busy_links, np_link_t, busy);
        ucs_list_del(&link->busy);
        ucs_list_add_tail(&port->busy_links, &link->busy);
        if (!np_flight_is_down(&link->flight)) {
            count += np_link_progress(link);
        }
    }

    while (!ucs_list_is_empty(&port->down_links)) {
        link = ucs_list_head(&port->down_links, np_link_t, flight.down);
        ucs_list_del(&link->flight.down);
        ucs_list_head_init(&link->flight.down);
        link->flight.is_reported = 1;
        np_link_cancel(link, link->flight.status);
        np_unit_assert_outside();
        np_op_user(port)->link_down(link, link->flight.status);
        ++count;
    }

    return count;
}

static int np_op_has_work(np_port_t *port)
{
    np_link_t *link;
    np_op_t *op;

    ucs_list_for_each(link, &port->busy_links, busy) {
        if (np_copy_has_work(link) || np_request_is_answered(link)) {
            return 1;
        }
        np_mail_ring_now(link); /* we shall not be there to do it later */

        if (!ucs_list_is_empty(&link->queues[NP_QUEUE_DATA])) {
            op = ucs_list_head(&link->queues[NP_QUEUE_DATA], np_op_t, list);
            if (np_carry_is_done(link, &op->rma.carry)) {
                return 1;
            }
        }
    }

    return !ucs_list_is_empty(&port->down_links) || np_prepare_has_work();
}

const np_port_ops_t np_proto_ops = {
    .serve     = np_serve_carried,
    .execute   = np_serve_job,
    .has_work  = np_op_has_work,
    .link_down = np_op_link_down
};

ucs_status_t np_proto_open(const np_port_config_t *config,
                           const np_user_t *user, np_port_t **port_p)
{
    return np_port_open(config, &np_proto_ops, (void*)user, port_p);
}

void np_proto_close_link(np_link_t *link)
{
    np_link_cancel(link, UCS_ERR_CANCELED);
    ucs_list_del(&link->flight.down);
    np_link_close(link);
}

void np_proto_close(np_port_t *port)
{
    np_op_block_t *block;

    while ((block = port->op_blocks) != NULL) {
        port->op_blocks = block->next;
        free(block);
    }
    free(port->bounce);
    np_port_close(port);
}
