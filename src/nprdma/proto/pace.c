/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies under the timing model.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "pace.h"

#include "fault.h"

#include "../clock.h"


/* Our own memory, not before @a not_before */
static void np_pace_register(np_copy_t *copy, uint64_t not_before)
{
    np_model_times_t *ours = &copy->pace.ours;
    np_model_times_t times;
    size_t i;

    for (i = 0; i < copy->iovcnt; ++i) {
        times       = np_model_register((uintptr_t)copy->iov[i].base,
                                        copy->iov[i].len,
                                        copy->dir == NP_DIR_GET, not_before);
        ours->first = (i == 0) ? times.first : ours->first;
        ours->last  = ucs_max(ours->last, times.last);
    }
}

void np_pace_begin(np_copy_t *copy)
{
    if (!np_pace_is_on(copy)) {
        return;
    }

    copy->pace  = (np_pace_t){.posted = np_clock()};
    copy->chunk = np_model_chunk(copy->len);
    if (np_model_is_overlapped()) {
        np_pace_register(copy, 0);
    }
}

void np_pace_answered(np_copy_t *copy, const np_model_times_t *theirs)
{
    copy->pace.theirs     = *theirs;
    copy->pace.has_theirs = 1;
    if (!np_model_is_overlapped()) {
        np_pace_register(copy, theirs->last);
    }
}

/* When is the k-th of n chunks registered? */
static uint64_t
np_pace_at(const np_model_times_t *times, uint64_t k, uint64_t n)
{
    return (n < 2) ? times->last :
           times->first + (((times->last - times->first) * k) / (n - 1));
}

/* When can this chunk move? */
static uint64_t np_pace_ready(const np_copy_t *copy, size_t offset)
{
    const np_pace_t *pace = &copy->pace;
    const uint64_t chunk  = offset / copy->chunk;

    return ucs_max(pace->posted,
                   ucs_max(np_pace_at(&pace->ours, chunk, copy->chunks),
                           np_pace_at(&pace->theirs, chunk, copy->chunks)));
}

size_t
np_pace_len(np_link_t *link, np_sop_t *copy_op, size_t offset, size_t len)
{
    np_copy_t *copy = &copy_op->copy;

    if (!np_pace_is_on(copy)) {
        return len;
    }

    if (!copy->pace.has_asked) {
        copy->pace.has_asked = np_fault_ask_when(link, copy_op);
    }

    return (copy->pace.has_theirs &&
            (np_pace_ready(copy, offset) <= np_clock())) ?
           ucs_min(len, copy->chunk - (offset % copy->chunk)) : 0;
}

void np_pace_moved(np_copy_t *copy, size_t offset, size_t len)
{
    /* a read is a request and its answer */
    const unsigned ways = (copy->dir == NP_DIR_GET) ? 2 : 1;

    if (np_pace_is_on(copy)) {
        copy->pace.arrived = np_model_transfer(np_pace_ready(copy, offset),
                                               copy->remote + offset, len) +
                             (ways * np_model_latency());
    }
}

int np_pace_is_over(const np_copy_t *copy)
{
    return !np_pace_is_on(copy) || (copy->pace.arrived <= np_clock());
}
