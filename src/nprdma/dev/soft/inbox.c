/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Inbox: taking requests, and answering them.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "inbox.h"

#include "help.h"
#include "pace.h"
#include "peer.h"
#include "segments.h"
#include "wide.h"

#include <string.h>


/* Is it one of those that the protocol answers? */
static int np_inbox_wants_answer(uint64_t word)
{
    return (np_word_kind(word) == NP_SLOT_ATOMIC) ||
           (np_word_kind(word) == NP_SLOT_FAULT);
}

/* May such a request be answered? Else it is malformed. */
static int np_inbox_can_answer(uint64_t word)
{
    return np_word_id(word) < NP_CTL_SLOTS;
}

int np_inbox_is_answered(const np_job_t *job)
{
    return np_inbox_wants_answer(job->word) && np_inbox_can_answer(job->word);
}

int np_inbox_may_sleep(const np_job_t *job)
{
    return np_inbox_is_answered(job) ||
           (np_word_kind(job->word) == NP_SLOT_WHEN);
}

int np_inbox_note(const np_job_t *job)
{
    switch (np_word_kind(job->word)) {
    case NP_SLOT_SHARE:
        return np_help_begin(job->peer, &job->slot.share);
    case NP_SLOT_SEGMENT:
        np_segments_send(job->peer, job->slot.segment.id);
        return 1;
    case NP_SLOT_WIDE:
        np_wide_answer(job->peer);
        return 1;
    case NP_SLOT_WHEN:
        if (!np_inbox_can_answer(job->word)) {
            return 0;
        }
        np_pace_serve(job);
        return 1;
    default:
        return 0;
    }
}

uint8_t *np_inbox_area(const np_job_t *job)
{
    return job->peer->inline_areas +
           ((size_t)np_word_id(job->word) * NP_INLINE_SIZE);
}

void np_inbox_answer(const np_job_t *job, ucs_status_t status, uint64_t result,
                     uint64_t last)
{
    np_peer_t *peer     = job->peer;
    np_answer_t *answer = &peer->shm->answers[np_word_id(job->word)];

    if (np_word_kind(job->word) == NP_SLOT_ATOMIC) {
        np_assert(atomic_load_explicit(&peer->has_atomic,
                                       memory_order_relaxed));
        /* release: the next one finds what this one has stored */
        atomic_store_explicit(&peer->has_atomic, 0, memory_order_release);
    }

    answer->result = result;
    answer->last   = last;
    /* release: result and data are there */
    atomic_store_explicit(&answer->word,
                          np_answer_word((uint32_t)job->word, status),
                          memory_order_release);
    np_peer_wake_armed(peer);
}

/* Atomics are executed in order, whichever threads take them: one at a time.
 * Its executor looks for the next. */
static int np_inbox_may_take(np_peer_t *peer, uint64_t word)
{
    if ((np_word_kind(word) != NP_SLOT_ATOMIC) || !np_inbox_can_answer(word)) {
        return word != 0; /* 0: of a slot that was never written */
    }

    if (atomic_load_explicit(&peer->has_atomic, memory_order_acquire)) {
        return 0;
    }

    atomic_store_explicit(&peer->has_atomic, 1, memory_order_relaxed);
    return 1;
}

int np_inbox_take(np_peer_t *peer, np_job_t *job)
{
    int is_taken = 0;

    if (!ucs_spin_try_lock(&peer->ctl_lock)) {
        return 0; /* another thread is at it */
    }

    if (np_ring_rx_is_ready(&peer->ctl, &job->word) &&
        np_inbox_may_take(peer, job->word)) {
        job->peer = peer;
        memcpy(job->slot.data, peer->ctl.next->data, sizeof(job->slot.data));
        np_ring_rx_advance(&peer->ctl);
        np_peer_publish(peer, &peer->ctl);
        is_taken = 1;
    }

    ucs_spin_unlock(&peer->ctl_lock);
    return is_taken;
}

unsigned np_inbox_progress(np_peer_t *peer)
{
    np_port_t *port   = peer->port;
    np_stats_t *stats = port->flights.stats;
    unsigned count    = 0;
    np_job_t job;

    while ((count < NP_PORT_BATCH) && np_inbox_take(peer, &job)) {
        ++count;
        /* before it is executed, which may take long: then it counts once */
        atomic_store_explicit(
                &port->owner_taken,
                atomic_load_explicit(&port->owner_taken,
                                     memory_order_relaxed) + 1,
                memory_order_relaxed);
        if (np_inbox_is_answered(&job)) {
            NP_STATS_INC(stats, served_progress);
            port->ops->execute(&job, NP_MOVER_TARGET, stats);
        } else if (np_inbox_wants_answer(job.word) || !np_inbox_note(&job)) {
            np_peer_malformed(peer, job.word);
            break;
        }
    }

    return count;
}
