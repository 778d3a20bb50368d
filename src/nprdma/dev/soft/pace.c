/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Large copies under the timing model.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "pace.h"

#include "chunks.h"

#include "../../clock.h"
#include "../../mem/space.h"
#include "../../trace.h"
#include "../../seldom.h"


/* Our own memory, not before @a not_before */
static void np_pace_register(np_chunks_t *chunks, uint64_t not_before)
{
    np_model_times_t *ours = &chunks->pace.ours;
    np_model_times_t times;
    size_t i;

    for (i = 0; i < chunks->iovcnt; ++i) {
        times       = np_model_register((uintptr_t)chunks->iov[i].base,
                                        chunks->iov[i].len,
                                        chunks->dir == NP_DIR_GET, not_before);
        ours->first = (i == 0) ? times.first : ours->first;
        ours->last  = ucs_max(ours->last, times.last);
    }
}

void np_pace_begin(np_chunks_t *chunks)
{
    if (ucs_likely(!np_model_is_on)) {
        return;
    }

    chunks->pace  = (np_pace_t){.is_on = 1, .posted = np_clock()};
    chunks->chunk = np_model_chunk(chunks->len);
    if (np_model_is_overlapped()) {
        np_pace_register(chunks, 0);
    }
}

/* When will the target have registered its memory? If there is no room to ask,
 * later. */
static void np_pace_ask(np_link_t *link, np_chunks_t *chunks)
{
    np_pace_t *pace = &chunks->pace;

    if (!np_mail_has_room(link)) {
        return;
    }

    np_mail_begin(link, &pace->ask);
    pace->ask.kind = NP_SLOT_WHEN;
    pace->ask.when = (np_slot_when_t){
        .remote   = chunks->remote,
        .len      = chunks->len,
        .is_write = chunks->dir == NP_DIR_PUT
    };
    pace->has_asked = 1;
    pace->asked     = np_trace_begin();
    np_mail_send_own(link, &pace->ask);
}

/* It cannot say */
static void np_pace_refused(np_link_t *link, const np_chunks_t *chunks,
                            ucs_status_t status)
{
    if (status == UCS_ERR_INVALID_PARAM) {
        np_error("process %d has another UCX_NPRDMA_SOFT_MODEL: give both the "
                 "same", link->process.pid);
        return;
    }

    NP_STATS_INC(link->port->flights.stats, naks);
    np_error_seldom("process %d has no memory to %s at %#lx..%#lx: %s",
                    link->process.pid,
                    (chunks->dir == NP_DIR_PUT) ? "write" : "read",
                    chunks->remote, chunks->remote + chunks->len,
                    ucs_status_string(status));
}

/* Take its answer. UCS_INPROGRESS: not yet. */
static ucs_status_t np_pace_look(np_link_t *link, np_chunks_t *chunks)
{
    np_pace_t *pace = &chunks->pace;
    const np_answer_t *answer;
    ucs_status_t status;

    if (pace->has_theirs) {
        return UCS_OK;
    }

    if (!pace->has_asked) {
        np_pace_ask(link, chunks);
        return UCS_INPROGRESS;
    }

    if (!np_mail_is_answered(link, &pace->ask, &status)) {
        return UCS_INPROGRESS;
    }

    answer           = np_mail_answer(link, &pace->ask);
    pace->theirs     = (np_model_times_t){answer->result, answer->last};
    pace->has_theirs = 1;
    np_mail_end(link, &pace->ask);
    np_trace(NP_TRACE_FAULT, pace->asked, chunks->remote, chunks->len);
    if (status != UCS_OK) {
        np_pace_refused(link, chunks, status);
    } else if (!np_model_is_overlapped()) {
        np_pace_register(chunks, pace->theirs.last);
    }
    return status;
}

/* When is the k-th of n chunks registered? */
static uint64_t
np_pace_at(const np_model_times_t *times, uint64_t k, uint64_t n)
{
    return (n < 2) ? times->last :
           times->first + (((times->last - times->first) * k) / (n - 1));
}

/* When can this chunk move? */
static uint64_t np_pace_ready(const np_chunks_t *chunks, size_t offset)
{
    const np_pace_t *pace = &chunks->pace;
    const uint64_t chunk  = offset / chunks->chunk;

    return ucs_max(pace->posted,
                   ucs_max(np_pace_at(&pace->ours, chunk, chunks->count),
                           np_pace_at(&pace->theirs, chunk, chunks->count)));
}

ucs_status_t np_pace_next(np_link_t *link, np_chunks_t *chunks, size_t offset,
                          size_t *len)
{
    ucs_status_t status;

    status = np_pace_look(link, chunks);
    if (status != UCS_OK) {
        return status;
    }

    if (np_pace_ready(chunks, offset) > np_clock()) {
        return UCS_INPROGRESS;
    }

    *len = ucs_min(*len, chunks->chunk - (offset % chunks->chunk));
    return UCS_OK;
}

void np_pace_moved(np_chunks_t *chunks, size_t offset, size_t len)
{
    /* a read is a request and its answer */
    const unsigned ways = (chunks->dir == NP_DIR_GET) ? 2 : 1;

    chunks->pace.arrived = np_model_transfer(np_pace_ready(chunks, offset),
                                             chunks->remote + offset, len) +
                           (ways * np_model_latency());
}

int np_pace_is_over(np_link_t *link, np_chunks_t *chunks, int is_ok)
{
    if (chunks->pace.has_asked &&
        (np_pace_look(link, chunks) == UCS_INPROGRESS)) {
        return 0; /* its answer's place is in use */
    }

    return !is_ok || (chunks->pace.arrived <= np_clock());
}

void np_pace_serve(const np_job_t *job)
{
    const np_slot_when_t *when = &job->slot.when;
    const unsigned rights      = when->is_write ? NP_RIGHT_WRITE :
                                                  NP_RIGHT_READ;
    np_model_times_t times     = {0, 0};
    ucs_status_t status;
    uint64_t va;

    status = np_space_resolve(when->remote, when->len, rights, &va);
    if (status == UCS_OK) {
        if (np_model_is_on && (when->len > 0)) {
            times = np_model_register(va, when->len, when->is_write,
                                      np_clock() + np_model_latency());
        } else {
            status = UCS_ERR_INVALID_PARAM;
        }
    }

    np_inbox_answer(job, status, times.first, times.last);
}
