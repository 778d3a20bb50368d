/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Helping with a peer's copy: the target's part of a shared copy.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "help.h"

#include "claim.h"
#include "dma.h"
#include "peer.h"

#include "../../engine.h"
#include "../../mem/access.h"
#include "../../mem/mapper.h"
#include "../../mem/space.h"
#include "../../trace.h"

#include <sched.h>
#include <stdlib.h>


/* Forget the copies of a peer, or the one that it offered in this place */
static void np_help_end(np_peer_t *peer, const np_share_t *share)
{
    np_help_t *help, *next;

    ucs_list_for_each_safe(help, next, &peer->port->helps, list) {
        if ((help->peer == peer) &&
            ((share == NULL) || (help->share == share))) {
            ucs_list_del(&help->list);
            free(help);
        }
    }
}

int np_help_begin(np_peer_t *peer, const np_slot_share_t *request)
{
    np_share_args_t args;
    np_share_t *share;
    np_help_t *help;

    if (request->index >= NP_LINK_SHARES) {
        return 0;
    }

    share = &peer->shm->shares[request->index];
    if ((share->args.cpu >= 0) && (share->args.cpu == sched_getcpu())) {
        return 1; /* we would only take its time */
    }

    np_help_end(peer, share); /* a new offer in the place of an older one */
    args = share->args; /* read once */
    help = malloc(sizeof(*help) + (args.is_open ? NP_HELP_BOUNCE : 0));
    if (help == NULL) {
        return 1; /* then the initiator does it all */
    }

    help->peer       = peer;
    help->share      = share;
    help->args       = args;
    help->generation = request->generation;
    help->prepared   = 0;
    help->done       = 0;
    help->is_waiting = 0;
    if ((peer->process.pid == 0) || (help->args.chunk == 0) ||
        (help->args.chunks > NP_CLAIM_MASK) ||
        (help->args.chunks !=
         ucs_div_round_up(help->args.len, (uint64_t)help->args.chunk)) ||
        (np_engine.config.single_copy == NP_SINGLE_COPY_OFF) ||
        (np_space_resolve(args.target_va, args.len,
                          (args.dir == NP_DIR_PUT) ? NP_RIGHT_WRITE :
                          NP_RIGHT_READ,
                          &help->args.target_va) != UCS_OK)) {
        free(help);
        return 1;
    }

    ucs_list_add_tail(&peer->port->helps, &help->list);
    peer->port->has_chores = 1;
    return 1;
}

/* Are the initiator's pages there? It brings them in itself, and tells of them
 * by its views, unless it leaves that to us. */
static int np_help_has_theirs(const np_help_t *help, uint64_t va, uint64_t len)
{
    const np_dir_t dir = (help->args.dir == NP_DIR_GET) ? NP_DIR_PUT :
                         NP_DIR_GET;
    const np_table_t *table;
    uint64_t part, done;

    if (help->args.is_open) {
        return 1;
    }

    for (done = 0; done < len; done += part) {
        part  = ucs_min(len - done, np_arena_left(va + done));
        table = (help->peer->remote == NULL) ? NULL :
                np_remote_table(help->peer->remote,
                                np_arena_of(va + done));
        if ((table == NULL) ||
            !np_dma_is_mapped(table, va + done, part, dir)) {
            return 0;
        }
    }
    return 1;
}

/* Are all pages of a chunk there? Ours are brought in. */
static int np_help_is_ready(const np_help_t *help, uint64_t ours,
                            uint64_t theirs, uint64_t len)
{
    return np_help_has_theirs(help, theirs, len) &&
           (np_access_fault_in(ours, len, help->args.dir == NP_DIR_PUT, NULL) ==
            UCS_OK);
}

/* Move one chunk, if all of it is there on both sides
 * @param [out] moved  Its bytes, from its beginning, that were moved. */
static ucs_status_t np_help_move(const np_help_t *help, const np_iov_t *iov,
                                 uint64_t addr, size_t *moved)
{
    const np_dir_t dir      = (help->args.dir == NP_DIR_GET) ? NP_DIR_PUT :
                              NP_DIR_GET;
    np_peer_t *peer         = help->peer;
    np_moving_own_t *moving = &peer->drain.own[NP_MOVER_TARGET];
    size_t done, len;
    ucs_status_t status;
    np_ranges_t absent;
    np_iov_t part;
    np_dma_t dma;

    for (done = 0; done < iov->len; done += len, addr += len) {
        len    = ucs_min(iov->len - done, NP_DMA_MAX);
        len    = ucs_min(len, np_arena_left(addr));
        part   = (np_iov_t){UCS_PTR_BYTE_OFFSET(iov->base, done), len};
        dma    = np_peer_dma(peer, dir, addr, moving);
        status = np_dma_move(&dma, &part, 1, addr, len, &absent);
        if ((status != UCS_OK) || (absent.count > 0)) {
            *moved = done + absent.range[0].offset;
            return (status != UCS_OK) ? status : UCS_ERR_NO_PROGRESS;
        }
    }

    *moved = done;
    return UCS_OK;
}

/* Between our memory and the bounce buffer, as a device would. @a moved: as of
 * np_help_move. */
static ucs_status_t
np_help_move_ours(np_help_t *help, np_dir_t dir, uint64_t va,
                  size_t len, size_t *moved)
{
    const np_iov_t iov = {help->bounce, len};
    np_dma_t dma       = np_dma_own(dir,
                                    &help->peer->drain.own[NP_MOVER_TARGET],
                                    va);
    ucs_status_t status;
    np_ranges_t absent;

    dma.is_prefix = 1;
    status        = np_dma_move(&dma, &iov, 1, va, len, &absent);
    if ((status == UCS_OK) && (absent.count == 0)) {
        *moved = len;
        return UCS_OK;
    }

    *moved = absent.range[0].offset;
    return (status != UCS_OK) ? status : UCS_ERR_NO_PROGRESS;
}

/* Move one chunk between our memory and what the initiator leaves to us to
 * bring in. That may wait for a pager of its program, which may wait for units:
 * so it is used outside of any, and ours within some, with a buffer between. @a
 * moved: as of np_help_move. */
static ucs_status_t np_help_move_open(np_help_t *help, const np_iov_t *iov,
                                      uint64_t addr, size_t *moved)
{
    np_process_t *process = &help->peer->process;
    ucs_status_t status   = UCS_OK;
    uint64_t va           = (uintptr_t)iov->base;
    np_iov_t bounce       = {help->bounce, 0};
    size_t part           = 0, got;

    for (*moved = 0; (*moved < iov->len) && (status == UCS_OK);
         *moved += part, va += part, addr += part) {
        bounce.len = ucs_min(iov->len - *moved, (size_t)NP_HELP_BOUNCE);
        bounce.len = ucs_min(bounce.len, np_arena_left(va));
        part       = 0;
        if (help->args.dir == NP_DIR_GET) {
            status = np_help_move_ours(help, NP_DIR_GET, va, bounce.len, &got);
            if (status == UCS_OK) {
                status = np_vm_move(NP_DIR_PUT, process, &bounce, 1, addr,
                                    &part);
            }
        } else {
            status = np_vm_move(NP_DIR_GET, process, &bounce, 1, addr, &got);
            if (status == UCS_OK) {
                status = np_help_move_ours(help, NP_DIR_PUT, va, bounce.len,
                                           &part);
            }
        }
    }
    return status;
}

/* Claim the next chunk from the back. Only we claim there: a word that says
 * otherwise was written to make us begin again, and ends the help. */
static int np_help_claim(np_help_t *help)
{
    uint64_t before;

    return (help->done < help->args.chunks) &&
           (np_claim(help->share, help->args.chunks, help->generation, 1,
                     NP_CLAIM_BITS, &before) > 0) &&
           (np_claim_back(before) == help->done);
}

/* Bring in what is left of our memory from the front on, some of it: the
 * initiator is about to use it. Returns how much was looked at. */
static size_t np_help_prepare(np_help_t *help)
{
    const size_t len  = ucs_min(help->args.len - help->prepared,
                                (uint64_t)NP_COPY_QUANTUM);
    const uint64_t va = help->args.target_va + help->prepared;
    const int write   = help->args.dir == NP_DIR_PUT;

    if ((len > 0) && !np_mapper_is_mapped(va, len, write)) {
        NP_STATS_INC(help->peer->port->flights.stats, local_faults);
        /* the mover finds out what is not there */
        (void)np_access_fault_in(va, len, write, NULL);
    }
    help->prepared += len;
    return len;
}

/* Move the next chunk, which we have claimed. Returns 0 if that was the end. */
static int np_help_move_chunk(np_help_t *help, size_t offset, size_t len)
{
    const np_share_args_t *args = &help->args;
    const np_iov_t iov          = {(void*)(args->target_va + offset), len};
    const uint64_t begin        = np_trace_begin();
    const uint64_t theirs       = args->initiator_va + offset;
    ucs_status_t status;
    size_t moved;

    status = args->is_open ? np_help_move_open(help, &iov, theirs, &moved) :
             np_help_move(help, &iov, theirs, &moved);
    np_trace(NP_TRACE_HELP, begin, args->target_va + offset, len);
    if (status != UCS_OK) {
        help->share->moved  = moved;
        help->share->status = status;
    }

    /* release: the chunk is there */
    atomic_store_explicit(&help->share->done, ++help->done,
                          memory_order_release);
    return status == UCS_OK;
}

/* Copy some chunks from the back, as many as are ready; returns how many.
 * @param [out] is_over  None is left, or none that we could do. */
static unsigned np_help_run(np_help_t *help, int *is_over)
{
    const np_share_args_t *args = &help->args;
    size_t budget               = NP_COPY_QUANTUM, offset, len;
    unsigned count              = 0;

    *is_over = 0;
    while ((budget > 0) && !*is_over) {
        if (np_claim_is_over(help->share, args->chunks, help->generation) ||
            (help->done >= args->chunks)) {
            *is_over = 1;
            break;
        }

        len = np_help_prepare(help);
        if (len > 0) {
            budget -= ucs_min(budget, len);
            continue;
        }

        offset           = (size_t)(args->chunks - 1 - help->done) *
                           args->chunk;
        len              = ucs_min((size_t)args->chunk, args->len - offset);
        help->is_waiting = !np_help_is_ready(help, args->target_va + offset,
                                             args->initiator_va + offset, len);
        if (help->is_waiting) {
            break;
        }

        if (!np_help_claim(help)) {
            *is_over = 1;
            break;
        }

        *is_over = !np_help_move_chunk(help, offset, len);
        budget  -= ucs_min(budget, ucs_max(len, (size_t)NP_COPY_CHUNK_MIN));
        ++count;
    }

    return count;
}

unsigned np_help_progress(np_port_t *port)
{
    np_help_t *help, *next;
    unsigned count = 0;
    int is_over;

    ucs_list_for_each_safe(help, next, &port->helps, list) {
        count += np_help_run(help, &is_over);
        if (is_over) {
            /* an initiator that sleeps waits for the last chunk */
            np_peer_wake(help->peer);
            ucs_list_del(&help->list);
            free(help);
        }
    }

    return count;
}

int np_help_has_work(np_port_t *port)
{
    const np_help_t *help;

    ucs_list_for_each(help, &port->helps, list) {
        if (!help->is_waiting) {
            return 1;
        }
    }
    return 0;
}

void np_help_forget(np_peer_t *peer)
{
    np_help_end(peer, NULL);
}
