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

#include "../pause.h"


np_sop_t *np_request_begin(np_link_t *link, np_op_kind_t kind, void *comp,
                          np_slot_t **slot)
{
    np_sop_t *op;

    op = np_sop_get(link->port, kind, comp);
    if (op == NULL) {
        return NULL;
    }

    op->is_waiting = 0;
    op->retries    = 0;
    np_mail_begin(link, &op->ask);
    *slot          = np_mail_slot(link);
    return op;
}

void np_request_send(np_link_t *link, np_sop_t *op, np_slot_kind_t kind)
{
    np_sop_post(link, NP_QUEUE_REQUEST, op);
    np_mail_send(link, &op->ask, kind);
}

void np_request_drop(np_link_t *link, np_sop_t *op)
{
    np_mail_end(link, &op->ask);
    np_sop_put(link->port, op);
}

/* The next one whose answer is to be taken; NULL: none */
static np_sop_t *np_request_next_answered(np_link_t *link, ucs_status_t *status)
{
    np_sop_t *op;

    ucs_list_for_each(op, &link->queues[NP_QUEUE_REQUEST], queue) {
        if (!op->is_waiting && np_mail_is_answered(link, &op->ask, status)) {
            return op;
        }
    }
    return NULL;
}

int np_request_is_answered(np_link_t *link)
{
    return (link->waiting > 0) ||
           (np_request_next_answered(link, NULL) != NULL);
}

/* The target could not do it, or not all of it: later again. Returns 0 if it
 * has ended. */
static int np_request_wait(np_link_t *link, np_sop_t *op)
{
    if (!((op->super.kind == NP_OP_ATOMIC) ?
          (op->super.status == UCS_ERR_NO_RESOURCE) :
          np_fault_is_again(link, op))) {
        return 0;
    }

    NP_STATS_INC(link->port->stats, replays);
    op->super.status = UCS_OK;
    op->retry_at     = np_request_retry_at(op->retries++);
    op->is_waiting   = 1;
    ++link->waiting;
    return 1;
}

/* Send again what has waited long enough, as far as there is room. It has kept
 * its answer and its inline area. */
static void np_request_resend(np_link_t *link)
{
    const uint64_t now = np_clock();
    np_slot_t *slot;
    np_sop_t *op;

    ucs_list_for_each(op, &link->queues[NP_QUEUE_REQUEST], queue) {
        if (!op->is_waiting || (op->retry_at > now)) {
            continue;
        }

        if (!np_mail_has_slot(link)) {
            return;
        }

        slot           = np_mail_slot(link);
        np_assert(link->waiting > 0);
        op->is_waiting = 0;
        --link->waiting;
        if (op->super.kind == NP_OP_ATOMIC) {
            slot->atomic = op->atomic.request;
            np_mail_send(link, &op->ask, NP_SLOT_ATOMIC);
        } else {
            np_fault_fill(link, op, slot);
            np_mail_send(link, &op->ask, NP_SLOT_FAULT);
        }
    }
}

unsigned np_request_progress(np_link_t *link)
{
    unsigned count = 0;
    ucs_status_t status;
    np_sop_t *op;

    /* From the beginning each time: what completes may begin and end others */
    while ((op = np_request_next_answered(link, &status)) != NULL) {
        NP_PAUSE(ANSWERED);
        if (op->super.status == UCS_OK) {
            op->super.status = status;
        }

        if (ucs_unlikely(op->super.status != UCS_OK) &&
            np_request_wait(link, op)) {
            continue;
        }

        if (op->super.kind == NP_OP_ATOMIC) {
            np_atomic_answered(link, op);
        } else {
            np_fault_answered(link, op);
        }

        np_mail_end(link, &op->ask);
        if ((op->super.kind == NP_OP_FAULT) && (op->fault.copy != NULL)) {
            np_op_drop(&op->super); /* the copy completes for it */
        } else {
            np_op_finish(&op->super, op->super.status);
        }
        ++count;
    }

    if (ucs_unlikely(link->waiting > 0)) {
        np_request_resend(link);
    }
    return count;
}
