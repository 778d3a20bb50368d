/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Shares.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "share.h"

#include "../../mem/access.h"
#include "../../mem/mapper.h"
#include "../../mem/swapper.h"

#include <sched.h>


/* Can this target help with this copy? By process_vm_*, on our memory. Not in
 * our own process: the thread that would help is as a rule this one, and comes
 * when all is done. */
static int np_share_is_possible(np_link_t *link, const np_share_args_t *args)
{
    return !link->no_share && (link->target != NULL) && (args->chunks > 1) &&
           (args->chunks <= NP_CLAIM_MASK) &&
           (ucs_ffs32(~link->shares_used) < NP_LINK_SHARES) &&
           np_ring_tx_has_slot(&link->ctl) && np_link_has_vm(link) &&
           (link->flight.engine_id != np_engine.id);
}

/* May the target use our memory through the kernel? Then each side brings in
 * what it copies itself, to where it is in its own cache: if one side has just
 * brought memory in and the other writes it, both wait for every line. No pager
 * is told what the target uses, so none of it may go: not where the program
 * takes pages away by itself. */
static int np_share_is_open(uint64_t va, uint64_t len)
{
    return np_access_is_allowed(va, len) && !np_mapper_is_paged() &&
           !np_swap_range_touches(va, len);
}

void np_share_offer(np_link_t *link, np_offer_t *offer,
                    const np_share_args_t *args)
{
    np_share_t *share;
    np_slot_t *slot;
    unsigned index;

    if (!np_share_is_possible(link, args)) {
        return;
    }

    index               = ucs_ffs32(~link->shares_used);
    share               = &link->shm->shares[index];
    link->shares_used  |= UCS_BIT(index);
    offer->share        = share;
    offer->generation   = ++link->share_generation;
    offer->args         = *args;
    offer->args.cpu     = sched_getcpu();
    offer->args.is_open = np_share_is_open(args->initiator_va, args->len);
    share->args         = offer->args;
    share->status       = UCS_OK;
    share->moved        = 0;
    atomic_store_explicit(&share->done, 0, memory_order_relaxed);
    atomic_store_explicit(&share->claim,
                          (uint64_t)offer->generation << (2 * NP_CLAIM_BITS),
                          memory_order_release);

    slot        = np_ring_tx_slot(&link->ctl);
    slot->share = (np_slot_share_t){index, offer->generation};
    np_ring_tx_publish(&link->ctl, slot, 0, NP_SLOT_SHARE, 0);
    np_link_notify(link);
}

/* Claim up to so many chunks from the front */
static uint32_t
np_share_claim(np_offer_t *offer, uint32_t want, uint32_t *first)
{
    uint64_t before;
    uint32_t count;

    count = np_claim(offer->share, offer->args.chunks, offer->generation, want,
                     0, &before);
    if (count > 0) {
        *first = np_claim_front(before);
    }
    return count;
}

uint32_t np_share_next(const np_link_t *link, np_offer_t *offer, uint32_t next,
                       uint32_t *first)
{
    const uint32_t chunks = offer->args.chunks;

    /* a target that has not helped last time is not waited for with small
     * chunks */
    return np_share_claim(offer,
                          (link->has_helped || (next >= chunks)) ? 1 :
                          ucs_div_round_up(chunks - next, 2), first);
}

uint32_t np_share_rest(np_offer_t *offer, uint32_t *first)
{
    return np_share_claim(offer, offer->args.chunks, first);
}

static void np_share_release(np_link_t *link, np_offer_t *offer)
{
    np_assert(link->shares_used & UCS_BIT(offer->share - link->shm->shares));
    link->shares_used &= ~UCS_BIT(offer->share - link->shm->shares);
    offer->share       = NULL;
}

/* Within a map: an unmap by the program that has not been seen here sees the
 * map */
static ucs_status_t np_share_was_used(void *arg UCS_V_UNUSED)
{
    return np_mapper_is_paged() ? UCS_ERR_NO_RESOURCE : UCS_OK;
}

/* Map what the target has moved for us: its pages were used a moment ago, and
 * the OS need not be asked for them */
static void np_share_map(const np_share_args_t *args, uint64_t offset)
{
    np_bring_t bring;
    uint64_t len;

    for (; offset < args->len; offset += len) {
        len   = ucs_min(args->len - offset, (uint64_t)NP_COPY_QUANTUM);
        bring = (np_bring_t){.use = np_share_was_used};
        (void)np_mapper_fault_in_by(args->initiator_va + offset, len,
                                    args->dir == NP_DIR_GET, &bring);
    }
}

/* Chunks that the target has claimed. It can write the word as it likes. */
static uint32_t np_share_back(const np_offer_t *offer)
{
    return np_claim_back(atomic_load_explicit(&offer->share->claim,
                                              memory_order_relaxed));
}

ucs_status_t np_share_look(np_link_t *link, np_offer_t *offer, int is_ok,
                           size_t *begin, size_t *end)
{
    const np_share_args_t *args = &offer->args;
    uint32_t back, mine;
    ucs_status_t status;
    int is_doubtful;

    if (!np_share_is_on(offer)) {
        return UCS_OK;
    }

    back             = np_share_back(offer);
    link->has_helped = back > 0;

    /* acquire: the target's chunks are there */
    if (atomic_load_explicit(&offer->share->done, memory_order_acquire) !=
        back) {
        return UCS_INPROGRESS;
    }

    /* Has the program begun to take pages away meanwhile? Some of what the
     * target has used may be among them. */
    is_doubtful = args->is_open && np_mapper_is_paged();
    status      = np_status_of_peer(offer->share->status);
    mine        = args->chunks - ucs_min(back, args->chunks);
    *begin      = (size_t)mine * args->chunk;
    *end        = args->len;
    if (((status != UCS_OK) || is_doubtful) && is_ok && (back > 0) &&
        (back <= args->chunks)) {
        /* It could not: do the rest of its last chunk. If that was for an
         * absent page, it may help the next time. */
        link->no_share = (status != UCS_OK) && (status != UCS_ERR_NO_PROGRESS);
        if (!is_doubtful) {
            *end    = ucs_min(*begin + args->chunk, *end);
            *begin += ucs_min((size_t)offer->share->moved, *end - *begin);
        }
        np_share_release(link, offer);
        return UCS_ERR_NO_PROGRESS;
    }

    if (is_ok) {
        np_share_map(args, *begin);
    }
    np_share_release(link, offer);
    return UCS_OK;
}

void np_share_abort(np_link_t *link, np_offer_t *offer)
{
    ucs_status_t status = UCS_INPROGRESS;
    np_patience_t patience;
    uint32_t first;

    if (!np_share_is_on(offer)) {
        return;
    }

    /* The target may be in the middle of a chunk, in our memory: wait for its
     * end, which is microseconds away, or for its death, or until it has left
     * the port. That it has hung up says none of these. One that only says so
     * is not waited for without end. */
    np_share_rest(offer, &first);
    np_patience_init(&patience, &link->drain);
    while ((status == UCS_INPROGRESS) &&
           !atomic_load_explicit(&link->shm->left, memory_order_acquire) &&
           (atomic_load_explicit(&offer->share->done, memory_order_acquire) !=
            np_share_back(offer))) {
        status = np_patience_look(&patience);
    }

    if (status == UCS_ERR_TIMED_OUT) {
        np_drain_give_up(&link->drain);
    }
    np_share_release(link, offer);
}
