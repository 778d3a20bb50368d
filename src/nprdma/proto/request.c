/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Control requests.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "request.h"

#include "atomic.h"
#include "fault.h"

#include "../engine.h"
#include "../pause.h"


np_op_t *np_request_begin(np_link_t *link, np_op_kind_t kind, void *comp,
                          np_slot_t **slot)
{
    np_op_t *op;

    np_assert(np_request_has_room(link));
    op = np_op_get(link->port, kind, comp);
    if (op == NULL) {
        return NULL;
    }

    op->is_waiting      = 0;
    op->retries         = 0;
    op->index           = ucs_ffs64(~(uint64_t)link->answers_used);
    link->answers_used |= UCS_BIT(op->index);
    *slot               = np_ring_tx_slot(&link->ctl);
    return op;
}

static void np_request_publish(np_link_t *link, np_op_t *op, np_slot_t *slot,
                               np_slot_kind_t kind)
{
    np_assert(link->answers_used & UCS_BIT(op->index));
    op->request = link->ctl.tail + 1; /* as the slot's word has it */
    np_ring_tx_publish(&link->ctl, slot, 0, kind, op->index);
    np_link_notify(link);
}

void np_request_send(np_link_t *link, np_op_t *op, np_slot_t *slot,
                     np_slot_kind_t kind)
{
    np_op_post(link, NP_QUEUE_REQUEST, op);
    np_request_publish(link, op, slot, kind);
}

/* The answer's word, 0 if it has not come */
static uint64_t np_request_answer(np_link_t *link, const np_op_t *op)
{
    uint64_t word;

    /* acquire: result and data are there */
    word = atomic_load_explicit(&link->shm->answers[op->index].word,
                                memory_order_acquire);
    return (np_answer_is_to(word, op->request) && !op->is_waiting) ? word : 0;
}

static np_op_t *np_request_next_answered(np_link_t *link, uint64_t *word)
{
    np_op_t *op;

    ucs_list_for_each(op, &link->queues[NP_QUEUE_REQUEST], list) {
        *word = np_request_answer(link, op);
        if (*word != 0) {
            return op;
        }
    }
    return NULL;
}

int np_request_is_answered(np_link_t *link)
{
    uint64_t word;

    return (link->waiting > 0) ||
           (np_request_next_answered(link, &word) != NULL);
}

/* The target could not do it, or not all of it: later again. Returns 0 if it
 * has ended. */
static int np_request_wait(np_link_t *link, np_op_t *op)
{
    if (!((op->kind == NP_OP_ATOMIC) ?
          (op->status == UCS_ERR_NO_RESOURCE) :
          np_fault_is_again(link, op))) {
        return 0;
    }

    NP_STATS_INC(link->port->stats, replays);
    op->status     = UCS_OK;
    op->retry_at   = np_request_retry_at(op->retries++);
    op->is_waiting = 1;
    ++link->waiting;
    return 1;
}

/* Send again what has waited long enough, as far as there is room. It has kept
 * its answer and its inline area. */
static void np_request_resend(np_link_t *link)
{
    const uint64_t now = np_clock();
    np_slot_t *slot;
    np_op_t *op;

    ucs_list_for_each(op, &link->queues[NP_QUEUE_REQUEST], list) {
        if (!op->is_waiting || (op->retry_at > now)) {
            continue;
        }

        if (!np_ring_tx_has_slot(&link->ctl)) {
            return;
        }

        slot           = np_ring_tx_slot(&link->ctl);
        np_assert(link->waiting > 0);
        op->is_waiting = 0;
        --link->waiting;
        if (op->kind == NP_OP_ATOMIC) {
            slot->atomic = op->atomic.request;
            np_request_publish(link, op, slot, NP_SLOT_ATOMIC);
        } else {
            np_fault_fill(link, op, slot);
            np_request_publish(link, op, slot, NP_SLOT_FAULT);
        }
    }
}

unsigned np_request_progress(np_link_t *link)
{
    unsigned count = 0;
    uint64_t word;
    np_op_t *op;

    /* From the beginning each time: what completes may begin and end others */
    while ((op = np_request_next_answered(link, &word)) != NULL) {
        NP_PAUSE(ANSWERED);
        if (op->status == UCS_OK) {
            op->status = np_answer_status(word);
        }

        if (ucs_unlikely(op->status != UCS_OK) && np_request_wait(link, op)) {
            continue;
        }

        if (op->kind == NP_OP_ATOMIC) {
            np_atomic_answered(link, op);
        } else {
            np_fault_answered(link, op);
        }

        np_op_unpost(link, op);
        link->answers_used &= ~UCS_BIT(op->index);
        if ((op->kind == NP_OP_FAULT) && (op->fault.copy != NULL)) {
            np_op_put(link->port, op); /* the copy completes for it */
        } else {
            np_op_finish(link, op);
        }
        ++count;
    }

    if (ucs_unlikely(link->waiting > 0)) {
        np_request_resend(link);
    }
    return count;
}

void np_request_ring_now(np_link_t *link)
{
    /* relaxed: only a hint, and progress comes again */
    if ((link->target == NULL) ||
        (atomic_load_explicit(link->ctl.head, memory_order_relaxed) ==
         link->ctl.tail) ||
        !atomic_load_explicit(&link->target->service_armed,
                              memory_order_relaxed)) {
        return;
    }

    /* seq_cst: the slots are seen by whoever is woken, or has just set it */
    if (atomic_exchange_explicit(&link->target->service_armed, 0,
                                 memory_order_seq_cst)) {
        NP_STATS_INC(link->port->stats, rings);
        np_link_ring(link);
    }
}

void np_request_ring_slow(np_link_t *link)
{
    uint32_t head = atomic_load_explicit(link->ctl.head, memory_order_relaxed);
    uint64_t now;

    if (head == link->ctl.tail) {
        link->stuck_since = 0;
        return;
    }

    now = np_clock();
    if ((link->stuck_since == 0) || (link->stuck_at != head)) {
        link->stuck_since = now;
        link->stuck_at    = head;
        if (np_engine.config.service != NP_SERVICE_EVENT) {
            return;
        }
    }

    if (((now - link->stuck_since) >= NP_REQUEST_PATIENCE_NS) ||
        (np_engine.config.service == NP_SERVICE_EVENT)) {
        np_request_ring_now(link);
    }
}
