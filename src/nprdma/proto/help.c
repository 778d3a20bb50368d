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

#include "../dev/soft/peer.h"
#include "../engine.h"
#include "../mem/access.h"

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
    help = malloc(sizeof(*help));
    if (help == NULL) {
        return 1; /* then the initiator does it all */
    }

    help->peer       = peer;
    help->share      = share;
    help->args       = share->args;
    help->generation = request->generation;
    help->done       = 0;
    if ((peer->cred.pid == 0) || (help->args.chunk == 0) ||
        (help->args.chunks > NP_CLAIM_MASK) ||
        (help->args.chunks !=
         ucs_div_round_up(help->args.len, (uint64_t)help->args.chunk)) ||
        (np_engine.config.single_copy == NP_SINGLE_COPY_OFF) ||
        (np_access_check(help->args.target_va, help->args.len) != UCS_OK)) {
        free(help);
        return 1;
    }

    ucs_list_add_tail(&peer->port->helps, &help->list);
    return 1;
}

/* Move one chunk, if all of it is there on both sides */
static ucs_status_t np_help_move(const np_help_t *help, const np_iov_t *iov,
                                 uint64_t addr)
{
    np_peer_t *peer = help->peer;
    np_dma_t dma    = {
        .dir       = (help->args.dir == NP_DIR_GET) ? NP_DIR_PUT : NP_DIR_GET,
        .pid       = peer->cred.pid,
        .remote    = peer->remote,
        .moving    = &peer->drain.own[NP_MOVER_TARGET],
        .has_local = 1
    };
    size_t done, len;
    ucs_status_t status;
    np_ranges_t absent;
    np_iov_t part;

    for (done = 0; done < iov->len; done += len, addr += len) {
        len       = ucs_min(iov->len - done, NP_DMA_MAX);
        len       = ucs_min(len, (((addr >> NP_ARENA_SHIFT) + 1)
                                          << NP_ARENA_SHIFT) - addr);
        part      = (np_iov_t){UCS_PTR_BYTE_OFFSET(iov->base, done), len};
        dma.table = (peer->remote == NULL) ? NULL :
                    np_remote_table(peer->remote, addr >> NP_ARENA_SHIFT);
        status    = np_dma_move(&dma, &part, 1, addr, len, &absent);
        if (status != UCS_OK) {
            return status;
        }

        if (absent.count > 0) {
            return UCS_ERR_NO_PROGRESS;
        }
    }
    return UCS_OK;
}

/* Claim the next chunk from the back. Nobody else claims there: what says
 * otherwise was written to make us begin again, and is the end of it. */
static int np_help_claim(np_help_t *help)
{
    uint64_t before;

    return (help->done < help->args.chunks) &&
           (np_claim(help->share, help->args.chunks, help->generation, 1,
                     NP_CLAIM_BITS, &before) > 0) &&
           (np_claim_back(before) == help->done);
}

/* Copy some chunks from the back; returns how many, 0 if none is left */
static unsigned np_help_run(np_help_t *help)
{
    const np_share_args_t *args = &help->args;
    size_t budget               = NP_COPY_QUANTUM, offset, len;
    unsigned count              = 0;
    ucs_status_t status;
    np_iov_t iov;

    while ((budget > 0) && np_help_claim(help)) {
        offset   = (size_t)(args->chunks - 1 - help->done) * args->chunk;
        len      = ucs_min((size_t)args->chunk, args->len - offset);
        iov.base = (void*)(args->target_va + offset);
        iov.len  = len;
        status   = np_help_move(help, &iov, args->initiator_va + offset);
        if (status != UCS_OK) {
            help->share->status = status;
        }

        /* release: the chunk is there */
        atomic_store_explicit(&help->share->done, ++help->done,
                              memory_order_release);
        budget -= ucs_min(budget, ucs_max(len, (size_t)NP_COPY_CHUNK_MIN));
        ++count;
    }

    return count;
}

unsigned np_help_progress(np_port_t *port)
{
    np_help_t *help, *next;
    unsigned count = 0, pieces;

    ucs_list_for_each_safe(help, next, &port->helps, list) {
        pieces = np_help_run(help);
        count += pieces;
        if (pieces == 0) {
            /* an initiator that sleeps waits for the last chunk */
            np_peer_wake(help->peer);
            ucs_list_del(&help->list);
            free(help);
        }
    }

    return count;
}

void np_help_forget(np_peer_t *peer)
{
    np_help_end(peer, NULL);
}
