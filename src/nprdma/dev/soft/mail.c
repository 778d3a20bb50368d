/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Mail.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "mail.h"

#include "../../engine.h"
#include "../../pause.h"

#include <string.h>


void np_mail_begin(np_link_t *link, np_ask_t *ask)
{
    np_assert(np_mail_has_room(link));
    ask->index          = ucs_ffs64(~(uint64_t)link->answers_used);
    link->answers_used |= UCS_BIT(ask->index);
    ask->after          = 0;
    ask->is_waiting     = 0;
    ask->retries        = 0;
    ask->retry_at       = 0;
    ucs_list_head_init(&ask->list);
}

static void np_mail_publish(np_link_t *link, np_ask_t *ask)
{
    np_slot_t *slot = np_mail_slot(link);

    np_assert(link->answers_used & UCS_BIT(ask->index));
    switch (ask->kind) {
    case NP_SLOT_ATOMIC:
        slot->atomic      = ask->atomic;
        break;
    case NP_SLOT_WHEN:
        slot->when        = ask->when;
        break;
    default:
        slot->fault       = ask->fault;
        slot->fault.epoch = np_link_epoch(link);
    }

    ask->sequence = link->ctl.tail + 1; /* as the slot's word has it */
    np_ring_tx_publish(&link->ctl, slot, 0, ask->kind, ask->index);
    np_link_notify(link);
}

void np_mail_send(np_link_t *link, np_ask_t *ask)
{
    ucs_list_add_tail(&link->asks, &ask->list);
    np_mail_publish(link, ask);
}

void np_mail_keep(np_link_t *link, np_ask_t *ask)
{
    ucs_list_add_tail(&link->asks, &ask->list);
    ask->is_waiting = 1;
    ++link->waiting;
}

void np_mail_send_own(np_link_t *link, np_ask_t *ask)
{
    np_mail_publish(link, ask);
}

void np_mail_end(np_link_t *link, np_ask_t *ask)
{
    np_assert(link->answers_used & UCS_BIT(ask->index));
    link->answers_used &= ~UCS_BIT(ask->index);
    link->waiting      -= ask->is_waiting;
    ucs_list_del(&ask->list);
}

int np_mail_is_answered(np_link_t *link, const np_ask_t *ask,
                        ucs_status_t *status)
{
    uint64_t word;

    /* acquire: result and data are there */
    word = atomic_load_explicit(&np_mail_answer(link, ask)->word,
                                memory_order_acquire);
    if (!np_answer_is_to(word, ask->sequence)) {
        return 0;
    }

    if (status != NULL) {
        *status = np_answer_status(word);
    }
    return 1;
}

/* The next one whose answer is to be taken; NULL: none */
static np_ask_t *np_mail_next_answered(np_link_t *link, ucs_status_t *status)
{
    np_ask_t *ask;

    ucs_list_for_each(ask, &link->asks, list) {
        if (!ask->is_waiting && np_mail_is_answered(link, ask, status)) {
            return ask;
        }
    }
    return NULL;
}

static int np_mail_may_send(np_link_t *link, const np_ask_t *ask)
{
    return ask->is_waiting && link->port->ops->may_send(link, ask);
}

/* One that is kept for others waits with these */
int np_mail_has_news(np_link_t *link)
{
    np_ask_t *ask;

    if (link->waiting > 0) {
        ucs_list_for_each(ask, &link->asks, list) {
            if (np_mail_may_send(link, ask)) {
                return 1;
            }
        }
    }
    return np_mail_next_answered(link, NULL) != NULL;
}

/* The target could not do it, or not all of it: later again */
static void np_mail_wait(np_link_t *link, np_ask_t *ask)
{
    NP_STATS_INC(link->port->flights.stats, replays);
    ask->retry_at   = np_mail_retry_at(ask->retries++);
    ask->is_waiting = 1;
    ++link->waiting;
}

/* It has kept its answer and its inline area */
void np_mail_resend(np_link_t *link)
{
    const uint64_t now = np_clock();
    np_ask_t *ask;

    ucs_list_for_each(ask, &link->asks, list) {
        if (!np_mail_may_send(link, ask) || (ask->retry_at > now)) {
            continue;
        }

        if (!np_mail_has_slot(link)) {
            return;
        }

        np_assert(link->waiting > 0);
        ask->is_waiting = 0;
        --link->waiting;
        np_mail_publish(link, ask);
    }
}

unsigned np_mail_progress(np_link_t *link)
{
    unsigned count = 0;
    ucs_status_t status;
    np_ask_t *ask;

    /* From the beginning each time: an ask that completes may begin and end
     * others */
    while ((ask = np_mail_next_answered(link, &status)) != NULL) {
        NP_PAUSE(ANSWERED);
        if (link->port->ops->answered(link, ask, status)) {
            np_mail_wait(link, ask);
        } else {
            ++count;
        }
    }

    if (ucs_unlikely(link->waiting > 0)) {
        np_mail_resend(link);
    }
    return count;
}

int np_mail_tell(np_link_t *link, const np_slot_t *slot, np_slot_kind_t kind)
{
    np_slot_t *next;

    if (!np_ring_tx_has_slots(&link->ctl, 1)) {
        return 0;
    }

    next = np_mail_slot(link);
    memcpy(next->data, slot->data, sizeof(next->data));
    np_ring_tx_publish(&link->ctl, next, 0, kind, 0);
    np_link_notify(link);
    return 1;
}

void np_mail_drop(np_link_t *link)
{
    atomic_fetch_add_explicit(&link->shm->epoch, 1, memory_order_relaxed);
    np_drain_target(&link->drain);
}

void np_mail_ring_now(np_link_t *link)
{
    /* relaxed: only a hint, and progress comes again */
    if ((link->target == NULL) ||
        (atomic_load_explicit(link->ctl.head, memory_order_relaxed) ==
         link->ctl.tail) ||
        !atomic_load_explicit(&link->target->service_armed,
                              memory_order_relaxed)) {
        return;
    }

    /* seq_cst: the slots are seen by the thread that is woken, or has just set
     * it */
    if (atomic_exchange_explicit(&link->target->service_armed, 0,
                                 memory_order_seq_cst)) {
        NP_STATS_INC(link->port->flights.stats, rings);
        np_link_ring(link);
    }
}

/* Has the oldest request waited too long? relaxed: only a hint */
static int np_mail_is_late(const np_link_t *link, uint64_t ns)
{
    return (ns >= NP_MAIL_PATIENCE_NS) &&
           ((ns >= NP_MAIL_PATIENCE_BUSY_NS) || (link->target == NULL) ||
            !atomic_load_explicit(&link->target->is_attended,
                                  memory_order_relaxed));
}

void np_mail_ring_slow(np_link_t *link)
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

    if ((np_engine.config.service == NP_SERVICE_EVENT) ||
        np_mail_is_late(link, now - link->stuck_since)) {
        np_mail_ring_now(link);
    }
}

ucs_status_t np_mail_no_room(np_link_t *link)
{
    NP_PAUSE(REFUSED);
    link->flight.is_full    = 0;
    link->flight.is_refused = np_mail_is_full(link);
    np_mail_ring_slow(link); /* notes, never answered, may have it all */
    return UCS_ERR_NO_RESOURCE;
}
