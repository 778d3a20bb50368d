/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a target does for its peers. A peer is trusted with what it was given:
 * every address is checked here, and the kernel does the copying.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "serve.h"

#include "piece.h"

#include "../../mem/access.h"
#include "../../mem/lent.h"
#include "../../mem/mapper.h"
#include "../../mem/space.h"
#include "../../mem/swapper.h"
#include "../../pause.h"
#include "../../trace.h"

#include <string.h>

/* Times that a target tries again by itself if its pages go meanwhile */
#define NP_SERVE_ROUNDS 4

/* Times that a page may be taken away before it is copied */
#define NP_SERVE_COPY_ROUNDS 64

/* Largest read that brings its pages in by itself: for larger ones the system
 * call that it spares does not matter */
#define NP_SERVE_READ        1024


/* A FAULT that is being served: what is left of it */
typedef struct np_serving {
    np_peer_t       *peer;
    np_slot_fault_t fault;
    uint64_t        va;       /* where fault.remote is in our memory */
    uint8_t         *area;    /* its data, if that is inside the message */
    np_moving_own_t *moving;
} np_serving_t;

/* The first @a len bytes are done, and are never moved again */
static void np_serve_advance(np_serving_t *serving, size_t len)
{
    np_assertv(len <= serving->fault.len, "%zu of %u bytes", len,
               serving->fault.len);
    serving->fault.remote += len;
    serving->fault.local  += len;
    serving->fault.len    -= len;
    serving->va           += len;
    serving->area         += len;
}

static np_dir_t np_serve_dir(const np_serving_t *serving)
{
    return (serving->fault.flags & NP_FAULT_PUT) ? NP_DIR_PUT : NP_DIR_GET;
}

static unsigned np_serve_rights(const np_slot_fault_t *fault)
{
    return (fault->flags & NP_FAULT_PUT) ? NP_RIGHT_WRITE : NP_RIGHT_READ;
}

/* May the peer still reach the first @a len bytes? */
static ucs_status_t np_serve_check_again(const np_serving_t *serving,
                                         size_t len)
{
    return np_space_check_again(serving->fault.remote, len);
}

/* Copy the first @a len bytes, whatever the views say */
static ucs_status_t np_serve_copy_bytes(const np_serving_t *serving, size_t len)
{
    ucs_status_t status;

    if (np_peer_epoch(serving->peer) != serving->fault.epoch) {
        return UCS_ERR_CANCELED;
    }

    status = np_serve_check_again(serving, len);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    return (serving->fault.flags & NP_FAULT_PUT) ?
           np_access_write(serving->va, serving->area, len) :
           np_access_read(serving->area, serving->va, len);
}

/* Bytes from its beginning that no thread may take away now; of a word all or
 * none */
static size_t np_serve_mapped(const np_serving_t *serving)
{
    const np_slot_fault_t *fault = &serving->fault;
    const uint64_t end           = serving->va + fault->len;
    const np_table_t *table;
    uint64_t va;

    for (va = serving->va; va < end; va = (va | (NP_PAGE_SIZE - 1)) + 1) {
        table = np_table_find(np_arena_of(va));
        if (table == NULL) {
            continue; /* nothing is ever absent there */
        }

        if (!np_access_is_there(va, ucs_min(end, (va | (NP_PAGE_SIZE - 1)) + 1) -
                                    va, np_serve_dir(serving) == NP_DIR_PUT)) {
            return (fault->len <= NP_PIECE_ONCE) ? 0 : va - serving->va;
        }
    }
    return fault->len;
}

/* Copy what no thread may take away now: a program that swaps by itself expects
 * its frames to be left alone. UCS_ERR_NO_PROGRESS: some is left. */
static ucs_status_t np_serve_copy_try(np_serving_t *serving)
{
    ucs_status_t status = UCS_OK;
    size_t len;

    np_moving_begin(serving->moving);
    len = np_serve_mapped(serving);
    if (len > 0) {
        status = np_serve_copy_bytes(serving, len);
    }
    np_moving_end(serving->moving);
    if (status != UCS_OK) {
        return status;
    }

    np_serve_advance(serving, len);
    return (serving->fault.len == 0) ? UCS_OK : UCS_ERR_NO_PROGRESS;
}

/* A read whose bytes have brought their pages in */
typedef struct np_serve_read {
    const np_serving_t *serving;
    uint8_t            bytes[NP_SERVE_READ];
} np_serve_read_t;

/* Read all of it, and have the kernel bring in what is not there. It may wait
 * for a pager of the program, which may wait for units: so it is called outside
 * of any unit. */
static ucs_status_t np_serve_read(void *arg)
{
    np_serve_read_t *read       = arg;
    const np_serving_t *serving = read->serving;

    return np_access_read(read->bytes, serving->va, serving->fault.len);
}

/* Copy its bytes into the message, if the peer was still allowed to read them.
 * If the epoch of the FAULT has ended, the message is the initiator's again. */
static ucs_status_t np_serve_read_done(const np_serve_read_t *read)
{
    const np_serving_t *serving = read->serving;
    ucs_status_t status         = UCS_ERR_CANCELED;

    np_moving_begin(serving->moving);
    if (np_peer_epoch(serving->peer) == serving->fault.epoch) {
        status = np_serve_check_again(serving, serving->fault.len);
    }
    if (status == UCS_OK) {
        memcpy(serving->area, read->bytes, serving->fault.len);
    }
    np_moving_end(serving->moving);
    return status;
}

/* What must be there at least to get on: a page, or a word that has parts in
 * two */
static uint64_t np_serve_next(const np_serving_t *serving)
{
    const uint64_t page = NP_PAGE_SIZE - (serving->va & (NP_PAGE_SIZE - 1));
    const uint64_t len  = serving->fault.len;

    return (len <= NP_PIECE_ONCE) ? len : ucs_min(len, page);
}

/* The CPU copies: pages that the OS takes come back by themselves; a swapper is
 * asked for its own. UCS_ERR_NO_PROGRESS: it is not inside the message: ask
 * once more, so that it is; UCS_ERR_NO_RESOURCE: it is taken away again each
 * time. */
static ucs_status_t np_serve_copy(np_serving_t *serving)
{
    const np_slot_fault_t *fault = &serving->fault;
    ucs_status_t status;
    unsigned round;

    if (!(fault->flags & NP_FAULT_INLINE)) {
        return UCS_ERR_NO_PROGRESS; /* the initiator's pages may go as well */
    }

    for (round = 0; round < NP_SERVE_COPY_ROUNDS; ++round) {
        status = np_serve_copy_try(serving);
        if (status != UCS_ERR_NO_PROGRESS) {
            return status;
        }

        /* only the next page: a pager may have room for few */
        status = np_access_fault_in(serving->va, np_serve_next(serving),
                                    !!(fault->flags & NP_FAULT_PUT), NULL);
        NP_PAUSE(SERVE_MAPPED);
        if ((status != UCS_OK) && (status != UCS_ERR_NO_RESOURCE)) {
            return status;
        }
    }

    return UCS_ERR_NO_RESOURCE;
}

/* Its pages are brought in first, and copied while they cannot be taken away.
 * What is done of it is remembered. */
ucs_status_t
np_serve_carried(np_peer_t *peer, np_dir_t dir, uint64_t addr, uint8_t *area,
                 uint32_t len, uint32_t *done)
{
    np_serving_t serving = {
        .peer         = peer,
        .fault.remote = addr,
        .fault.len    = len,
        .fault.flags  = NP_FAULT_INLINE |
                        ((dir == NP_DIR_PUT) ? NP_FAULT_PUT : 0),
        .fault.epoch  = np_peer_epoch(peer),
        .area         = area,
        .moving       = np_peer_moving(peer, NP_MOVER_TARGET)
    };
    ucs_status_t status;

    status = np_space_resolve(addr, len, np_serve_rights(&serving.fault),
                              &serving.va);
    if (status != UCS_OK) {
        return status;
    }

    np_serve_advance(&serving, ucs_min(*done, len));
    status = np_access_fault_in(serving.va, serving.fault.len,
                                dir == NP_DIR_PUT, NULL);
    NP_PAUSE(SERVE_MAPPED);
    if ((status == UCS_OK) || (status == UCS_ERR_NO_RESOURCE) ||
        (status == UCS_ERR_EXCEEDS_LIMIT)) {
        status = np_serve_copy(&serving);
    }

    *done = len - serving.fault.len;
    return status;
}

ucs_status_t
np_serve_lent(np_dir_t dir, uint64_t addr, uint8_t *area, uint32_t len,
              int is_past, np_lent_range_t **kept)
{
    ucs_status_t status;
    uint64_t va;

    np_unit_assert_outside(); /* the program's pager may have to bring it in */
    status = np_space_resolve(addr, len, (dir == NP_DIR_PUT) ? NP_RIGHT_WRITE :
                              NP_RIGHT_READ, &va);
    if (status != UCS_OK) {
        return status;
    }
    return np_lent_copy(dir, va, area, len, is_past, kept) ? UCS_OK :
           UCS_ERR_NO_PROGRESS;
}

/* Move between the message and our memory, through our own views, up to the
 * first page that is absent */
static ucs_status_t np_serve_move_inline(np_serving_t *serving)
{
    const np_slot_fault_t *fault = &serving->fault;
    np_iov_t iov = {serving->area, fault->len};
    np_dma_t dma = np_dma_own(np_serve_dir(serving), serving->moving,
                              serving->va);
    ucs_status_t status;
    np_ranges_t absent;

    np_peer_bind(serving->peer, &dma, fault->epoch);
    dma.is_whole  = fault->len <= NP_PIECE_ONCE;
    dma.is_prefix = 1;
    status        = np_dma_move(&dma, &iov, 1, serving->va, fault->len,
                                &absent);
    np_serve_advance(serving, (absent.count == 0) ? fault->len :
                              absent.range[0].offset);
    return status;
}

/* The reverse transfer: between the initiator's memory and ours, through both
 * sides' views, up to the first page that is absent on either */
static ucs_status_t np_serve_move_reverse(np_serving_t *serving)
{
    const np_slot_fault_t *fault = &serving->fault;
    const np_dir_t dir           = (fault->flags & NP_FAULT_PUT) ? NP_DIR_GET :
                                   NP_DIR_PUT;
    ucs_status_t status;
    np_ranges_t absent;
    np_iov_t iov;
    np_dma_t dma;
    size_t len;

    if (np_engine.config.single_copy == NP_SINGLE_COPY_OFF) {
        return UCS_ERR_UNSUPPORTED;
    }

    while (fault->len > 0) {
        len = ucs_min((size_t)fault->len, NP_DMA_MAX);
        len = ucs_min(len, np_arena_left(fault->local));
        iov = (np_iov_t){(void*)serving->va, len};
        dma = np_peer_dma(serving->peer, dir, fault->local, serving->moving);
        np_peer_bind(serving->peer, &dma, fault->epoch);
        status = np_dma_move(&dma, &iov, 1, fault->local, len, &absent);
        np_serve_advance(serving, (absent.count == 0) ? len :
                                  absent.range[0].offset);
        if ((status != UCS_OK) || (absent.count > 0)) {
            return status;
        }
    }
    return UCS_OK;
}

static int np_serve_fault_is_valid(const np_slot_fault_t *fault)
{
    const int is_inline = !!(fault->flags & NP_FAULT_INLINE);
    const uint32_t max  = is_inline ? NP_INLINE_SIZE : NP_FAULT_MAX;

    return (fault->len > 0) && (fault->len <= max) &&
           (fault->local <= (UINT64_MAX - fault->len)) &&
           ((is_inline && (fault->flags & NP_FAULT_COPY)) ||
            np_arena_has(fault->remote, fault->len));
}

/* Bring in what is asked for, and map it. A small read inside the message is
 * done by the same step: then @a is_done is set, and the status is the
 * answer. */
static ucs_status_t np_serve_bring_in(np_serving_t *serving, int *is_done)
{
    const np_slot_fault_t *fault = &serving->fault;
    const int is_read            = ((fault->flags &
                                     (NP_FAULT_PUT | NP_FAULT_INLINE |
                                      NP_FAULT_COPY | NP_FAULT_RETRY)) ==
                                    NP_FAULT_INLINE) &&
                                   (fault->len <= NP_SERVE_READ);
    np_serve_read_t read;
    np_bring_t bring;
    ucs_status_t status;

    read.serving = serving;
    bring        = (np_bring_t){.use = np_serve_read, .arg = &read};
    status       = np_access_fault_in(serving->va, fault->len,
                                      !!(fault->flags & NP_FAULT_PUT),
                                      is_read ? &bring : NULL);
    *is_done     = (status == UCS_OK) && bring.is_done;
    return *is_done ? np_serve_read_done(&read) : status;
}

static np_entries_t np_serve_entries(uint64_t va, uint64_t len)
{
    return np_entries_of(np_table_find(np_arena_of(va)), va, len);
}

/* Move what has been brought in. UCS_ERR_BUSY: our pages have changed, do it
 * once more; any other status is the answer. */
static ucs_status_t np_serve_move(np_serving_t *serving)
{
    const np_slot_fault_t fault = serving->fault;
    const uint64_t va           = serving->va;
    int is_inline               = !!(fault.flags & NP_FAULT_INLINE);
    np_entries_t before, after;
    ucs_status_t status;

    before = np_serve_entries(va, fault.len);
    status = is_inline ? np_serve_move_inline(serving) :
             np_serve_move_reverse(serving);
    NP_PAUSE(SERVE_MOVED);
    if (status == UCS_ERR_INVALID_ADDR) {
        /* mapped, but not there: bring ours in anew. If the page is the
         * initiator's, that side will find out as we do. */
        np_mapper_unmap(serving->va, serving->fault.len);
        return UCS_ERR_BUSY;
    } else if (status != UCS_OK) {
        /* the kernel refuses: another way */
        return (!is_inline && (status == UCS_ERR_UNSUPPORTED)) ? status :
               UCS_ERR_NO_PROGRESS;
    }

    after = np_serve_entries(va, fault.len);
    if (serving->fault.len == 0) {
        return UCS_OK;
    }

    /* if it was no page of ours, it was one of the initiator's */
    return np_entries_stayed(&before, &after,
                             NP_ENTRY_OWN((fault.flags & NP_FAULT_PUT) ?
                                          NP_ENTRY_WRITE : NP_ENTRY_READ)) ?
           UCS_ERR_NO_PROGRESS : UCS_ERR_BUSY;
}

static ucs_status_t np_serve_rounds(np_serving_t *serving, np_stats_t *stats)
{
    const np_slot_fault_t *fault = &serving->fault;
    ucs_status_t status;
    unsigned round;
    int is_done;

    for (round = 0; round < NP_SERVE_ROUNDS; ++round) {
        NP_STATS_INC(stats, fault_ins);
        status = np_serve_bring_in(serving, &is_done);
        NP_PAUSE(SERVE_MAPPED);
        if (is_done) {
            return status;
        }

        if ((status == UCS_ERR_EXCEEDS_LIMIT) &&
            (fault->flags & NP_FAULT_RETRY)) {
            return UCS_ERR_UNSUPPORTED; /* no entry will ever tell */
        }

        if ((status == UCS_ERR_EXCEEDS_LIMIT) ||
            (status == UCS_ERR_NO_RESOURCE) ||
            ((status == UCS_OK) && (fault->flags & NP_FAULT_COPY))) {
            break;
        }

        if (status != UCS_OK) {
            return status;
        }

        if (fault->flags & NP_FAULT_RETRY) {
            return np_regions_share(serving->va, fault->len) ? UCS_OK :
                   UCS_ERR_UNSUPPORTED; /* as above, while some is an edge */
        }

        status = np_serve_move(serving);
        if (status != UCS_ERR_BUSY) {
            return status;
        }
        NP_STATS_INC(stats, replays);
    }

    NP_STATS_INC(stats, copies);
    return np_serve_copy(serving);
}

/* @param [out] done  If not all is done: bytes from its beginning that are. */
static ucs_status_t np_serve_fault(const np_job_t *job, np_moving_own_t *moving,
                                   np_stats_t *stats, uint64_t *done)
{
    const np_slot_fault_t *fault = &job->slot.fault;
    np_serving_t serving         = {
        .peer   = job->peer,
        .fault  = *fault,
        .area   = np_inbox_area(job),
        .moving = moving
    };
    ucs_status_t status;

    if (!np_serve_fault_is_valid(fault)) {
        return UCS_ERR_INVALID_PARAM;
    }

    status = np_space_resolve(fault->remote, fault->len, np_serve_rights(fault),
                              &serving.va);
    if (status != UCS_OK) {
        return status;
    }

    status = np_serve_rounds(&serving, stats);
    *done  = fault->len - serving.fault.len;
    return status;
}

void np_serve_job(const np_job_t *job, np_mover_t mover, np_stats_t *stats)
{
    np_moving_own_t *moving = np_peer_moving(job->peer, mover);
    const uint64_t begin    = np_trace_begin();
    uint64_t result         = 0;
    np_moving_unit_t unit;
    ucs_status_t status;

    if (np_word_kind(job->word) == NP_SLOT_ATOMIC) {
        np_moving_unit_init(&unit, moving);
        status = np_atomic_execute(&job->slot.atomic, &unit.super, 1, &result);
        NP_STATS_INC(stats, atomics);
    } else {
        status = np_serve_fault(job, moving, stats, &result);
        np_trace(NP_TRACE_SERVE, begin, job->slot.fault.remote,
                 job->slot.fault.len);
    }

    np_inbox_answer(job, status, result, 0);
}
