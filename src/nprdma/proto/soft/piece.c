/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One-sided first.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "piece.h"

#include "../judge.h"

#include "../../mem/access.h"
#include "../../mem/mapper.h"
#include "../../mem/prepare.h"
#include "../../mem/swapper.h"

/* Smallest read that looks at one page's entry first: to fill so much with the
 * signature, and to find it there, takes longer than to look */
#define NP_PIECE_LOOK     (16 * UCS_KBYTE)


/* Is it mapped, and still registered where it must be? */
static int np_piece_is_local(uint64_t va, size_t len, int write)
{
    return np_mapper_is_mapped(va, len, write) && np_access_is_allowed(va, len);
}

/* Bring our own memory in; memory that cannot have entries is moved without.
 * UCS_ERR_NO_RESOURCE: it goes away again each time */
static ucs_status_t np_piece_prepare_local(np_link_t *link,
                                           const np_piece_t *piece,
                                           int *has_local)
{
    int write = piece->dir == NP_DIR_GET;
    ucs_status_t status;
    uint64_t va;
    size_t i;

    for (i = 0; i < piece->iovcnt; ++i) {
        va = (uintptr_t)piece->iov[i].base;
        if ((piece->iov[i].len == 0) ||
            ucs_likely(np_piece_is_local(va, piece->iov[i].len, write))) {
            continue;
        }

        if (write && !piece->is_shared &&
            np_prepare_now(link->port->flights.stats, va) &&
            np_piece_is_local(va, piece->iov[i].len, write)) {
            continue;
        }

        NP_STATS_INC(link->port->flights.stats, local_faults);
        status = np_access_fault_in(va, piece->iov[i].len, write, NULL);
        if (status == UCS_ERR_EXCEEDS_LIMIT) {
            *has_local = 0;
            return UCS_OK;
        }

        if (status == UCS_ERR_NO_RESOURCE) {
            return status;
        }

        if (status != UCS_OK) {
            np_error("local memory %#lx..%#lx cannot be %s: %s", va,
                     va + piece->iov[i].len, write ? "written" : "read",
                     ucs_status_string(status));
            return status;
        }
    }

    return UCS_OK;
}

/* Our own entries, of pages that are there */
static ucs_status_t
np_piece_look_local(np_link_t *link, const np_piece_t *piece, int *has_local,
                    np_entries_t *ours)
{
    ucs_status_t status;

    *ours = np_entries_of_iov(piece->iov, piece->iovcnt);
    if (ucs_likely(np_entries_have(ours, np_judge_our_bits(piece->dir, 1)) &&
                   !np_region_is_exact())) {
        return UCS_OK;
    }

    status = np_piece_prepare_local(link, piece, has_local);
    *ours  = np_entries_of_iov(piece->iov, piece->iovcnt);
    return status;
}

/* The kernel has moved no more. What was written is never written again; what
 * was read has not been searched for the signature. */
static void np_piece_cut_short(const np_piece_t *piece,
                               const np_ranges_t *absent, np_ranges_t *missing)
{
    missing->count = 0;
    if (piece->dir == NP_DIR_PUT) {
        np_ranges_copy(missing, absent);
    } else {
        np_ranges_add(missing, 0, piece->len);
    }
}

/* A mapped page has no memory, on one side or the other: bring ours in anew;
 * the target will answer for its own */
static ucs_status_t np_piece_not_there(np_link_t *link, const np_piece_t *piece,
                                       int has_local)
{
    ucs_status_t status = UCS_OK;
    size_t i;

    if (has_local) {
        for (i = 0; i < piece->iovcnt; ++i) {
            np_mapper_unmap((uintptr_t)piece->iov[i].base, piece->iov[i].len);
        }
        status = np_piece_prepare_local(link, piece, &has_local);
    }

    return (status == UCS_ERR_NO_RESOURCE) ? UCS_OK : status;
}

/* All units have been moved: what has not arrived? */
static void np_piece_judge(np_link_t *link, const np_piece_t *piece,
                           np_proof_t proof, const np_dma_t *dma,
                           const np_entries_t *before,
                           const np_entries_t *after, const np_ranges_t *absent,
                           np_ranges_t *missing)
{
    int phase;

    if (proof == NP_PROOF_SIGNATURE) {
        if (np_swap_hold_iov(piece->iov, piece->iovcnt, &phase)) {
            np_judge_read(piece->iov, piece->iovcnt, piece->addr, NP_DMA_UNIT,
                          missing);
            np_swap_let_go(phase);
        } else {
            np_ranges_add(missing, 0, piece->len);
        }
        if (ucs_unlikely(missing->count > 0) && (absent->count == 0)) {
            NP_STATS_INC(link->port->flights.stats, false_alarms);
        }
    } else if ((proof == NP_PROOF_DEVICE) ||
               ((proof == NP_PROOF_READBACK) ?
                !np_dma_has_written(dma, piece->iov, piece->iovcnt,
                                    piece->addr, piece->len) :
                !np_judge_theirs(piece->dir, before, after))) {
        np_ranges_copy(missing, absent); /* what was written is never written
                                            again */
    }
}

/* Is a large read sure to need the target? If so, ours is not brought in for a
 * read that brings nothing, but later, while the target brings in its own. The
 * page before the first whole one may be an edge, and absent for us whatever is
 * there (region.h). */
static int np_piece_is_absent(const np_piece_t *piece, const np_table_t *table)
{
    return (piece->dir == NP_DIR_GET) && (piece->len >= NP_PIECE_LOOK) &&
           !(np_entries_of(table, ucs_align_up_pow2(piece->addr, NP_PAGE_SIZE),
                           1).bits & NP_ENTRY_READ);
}

/* One attempt; UCS_ERR_NO_PROGRESS: our own memory has changed meanwhile */
static ucs_status_t np_piece_try(np_link_t *link, const np_piece_t *piece,
                                 const np_dma_t *dma, const np_entries_t *ours,
                                 np_ranges_t *missing)
{
    const np_proof_t proof = np_judge_proof(piece->dir, piece->len,
                                            piece->by_entries);
    np_entries_t before    = {0, 0}, after = {0, 0}, now;
    np_ranges_t absent;
    ucs_status_t status;

    NP_PAUSE(CHECKED_LOCAL);

    if (proof == NP_PROOF_ENTRIES) {
        before = np_seen_before(link->seen, dma->table, piece->addr,
                                piece->len);
        NP_PAUSE(ENTRIES_BEFORE);
        if (NP_IS_MUTANT(CHECK_BEFORE_DATA)) {
            after = np_seen_after(link->seen, dma->table, piece->addr,
                                  piece->len);
        }
    }

    status = np_dma_move(dma, piece->iov, piece->iovcnt, piece->addr,
                         piece->len, &absent);
    NP_PAUSE(MOVED);
    if (ucs_unlikely(status != UCS_OK)) {
        np_piece_cut_short(piece, &absent, missing);
        return (status != UCS_ERR_INVALID_ADDR) ? status :
               np_piece_not_there(link, piece, dma->has_local);
    }

    if ((proof == NP_PROOF_ENTRIES) && !NP_IS_MUTANT(CHECK_BEFORE_DATA)) {
        after = np_seen_after(link->seen, dma->table, piece->addr, piece->len);
        NP_PAUSE(ENTRIES_AFTER);
    }

    np_piece_judge(link, piece, proof, dma, &before, &after, &absent, missing);
    NP_PAUSE(JUDGED);

    /* only now: a judgement by looking at our memory needed it to be there */
    if (dma->has_local) {
        now = np_entries_of_iov(piece->iov, piece->iovcnt);
        if (ucs_unlikely(!np_judge_ours(piece->dir, 1, ours, &now))) {
            if (piece->dir == NP_DIR_GET) {
                return UCS_ERR_NO_PROGRESS;
            }
            np_ranges_copy(missing, &absent); /* what was written is never
                                                 written again */
        }
    }
    return UCS_OK;
}

ucs_status_t np_piece_move(np_link_t *link, const np_piece_t *piece,
                           np_ranges_t *missing)
{
    np_dma_t dma      = np_link_dma(link, piece->dir, piece->addr,
                                    piece->direct);
    np_entries_t ours = {0, 0};
    ucs_status_t status;
    unsigned round;

    dma.has_local  = piece->has_local;
    dma.is_prefix  = piece->is_prefix;
    dma.is_whole   = (piece->dir == NP_DIR_PUT) &&
                     (piece->len <= NP_PIECE_ONCE);
    missing->count = 0;
    if (ucs_unlikely((dma.table == NULL) ||
                     !np_arena_has(piece->addr, piece->len) ||
                     np_piece_is_absent(piece, dma.table))) {
        np_ranges_add(missing, 0, piece->len);
        return UCS_OK;
    }

    for (round = 0; round < NP_PIECE_ROUNDS; ++round) {
        missing->count = 0;
        if (dma.has_local) {
            status = np_piece_look_local(link, piece, &dma.has_local, &ours);
            if (ucs_unlikely(status == UCS_ERR_NO_RESOURCE)) {
                break;
            } else if (ucs_unlikely(status != UCS_OK)) {
                return status;
            }
        }

        status = np_piece_try(link, piece, &dma, &ours, missing);
        if (ucs_likely(status != UCS_ERR_NO_PROGRESS)) {
            return status;
        }
        NP_STATS_INC(link->port->flights.stats, replays);
    }

    np_ranges_add(missing, 0, piece->len);
    return UCS_OK;
}
