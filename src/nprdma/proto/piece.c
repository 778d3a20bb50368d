/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One-sided first.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "piece.h"

#include "../engine.h"
#include "../mem/access.h"
#include "../mem/mapper.h"
#include "../mem/prepare.h"
#include "../mem/signature.h"
#include "../mem/swapper.h"
#include "../pause.h"

#include <string.h>

/* Largest write that is read back: the paper's own limit */
#define NP_PIECE_READBACK 4096

/* Least read that looks at one page's entry before anything else: to fill more
 * with the signature, and to find it there, takes longer than to ask */
#define NP_PIECE_LOOK     (16 * UCS_KBYTE)


/* Is it mapped, and still registered where it must be? */
static int np_piece_is_local(uint64_t va, size_t len, int write)
{
    return np_mapper_is_mapped(va, len, write) && np_access_is_allowed(va, len);
}

/* Bring our own memory in; what cannot have entries goes without.
 * UCS_ERR_NO_RESOURCE: it goes again each time */
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
            np_prepare_now(link->port->stats, va) &&
            np_piece_is_local(va, piece->iov[i].len, write)) {
            continue;
        }

        NP_STATS_INC(link->port->stats, local_faults);
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
    const unsigned bits = NP_ENTRY_OWN((piece->dir == NP_DIR_GET) ?
                                       NP_ENTRY_BITS : NP_ENTRY_READ);
    ucs_status_t status;

    *ours = np_entries_of_iov(piece->iov, piece->iovcnt);
    if (ucs_likely(((ours->bits & bits) == bits) && !np_region_is_exact())) {
        return UCS_OK;
    }

    status = np_piece_prepare_local(link, piece, has_local);
    *ours  = np_entries_of_iov(piece->iov, piece->iovcnt);
    return status;
}

/* Before the CPU looks at our own memory: a program that swaps it by itself
 * waits for the end, np_swap_let_go. Returns 0 if it has gone by now. */
static int np_piece_hold(const np_piece_t *piece, int *phase)
{
    size_t i;

    *phase = -1;
    for (i = 0; (i < piece->iovcnt) && (*phase < 0); ++i) {
        *phase = np_swap_hold((uintptr_t)piece->iov[i].base, piece->iov[i].len);
    }

    if (ucs_likely(*phase < 0) ||
        (np_entries_of_iov(piece->iov, piece->iovcnt).bits &
         NP_ENTRY_OWN(NP_ENTRY_READ))) {
        return 1;
    }

    np_swap_let_go(*phase);
    return 0;
}

/* Look at what was read: is any of it the signature? */
static void np_piece_check_read(const np_piece_t *piece, np_ranges_t *missing)
{
    size_t start = 0, from, end, i;
    int phase;

    if (!np_piece_hold(piece, &phase)) {
        np_ranges_add(missing, 0, piece->len);
        return;
    }

    for (i = 0; i < piece->iovcnt; start += piece->iov[i++].len) {
        for (from = 0; from < piece->iov[i].len; from = end) {
            from = np_signature_find(piece->iov[i].base, piece->addr + start,
                                     piece->iov[i].len, NP_DMA_UNIT, from,
                                     &end);
            if (ucs_likely(from == piece->iov[i].len)) {
                break;
            }
            np_ranges_add(missing, start + from, end - from);
        }
    }
    np_swap_let_go(phase);
}

/* Read back what was written: was it written? */
static int np_piece_check_readback(const np_piece_t *piece,
                                   const np_dma_t *dma)
{
    uint8_t buffer[NP_PIECE_READBACK];
    np_iov_t iov  = {buffer, piece->len};
    np_dma_t back = *dma;
    size_t offset = 0, i, end;
    int is_same   = 1, phase;
    np_ranges_t absent;

    back.dir       = NP_DIR_GET;
    back.has_local = 0;
    back.is_whole  = 0;
    back.is_prefix = 0;
    if ((np_dma_move(&back, &iov, 1, piece->addr, piece->len, &absent) !=
         UCS_OK) ||
        (np_signature_find(buffer, piece->addr, piece->len, NP_DMA_UNIT, 0,
                           &end) != piece->len) ||
        !np_piece_hold(piece, &phase)) {
        return 0;
    }

    for (i = 0; is_same && (i < piece->iovcnt);
         offset += piece->iov[i++].len) {
        is_same = (piece->iov[i].len == 0) ||
                  (memcmp(buffer + offset, piece->iov[i].base,
                          piece->iov[i].len) == 0);
    }
    np_swap_let_go(phase);
    return is_same;
}

static int np_piece_uses_readback(const np_piece_t *piece)
{
    return (np_engine.config.write_check == NP_WRITE_CHECK_READBACK) &&
           (piece->len <= NP_PIECE_READBACK);
}

static int np_piece_uses_entries(void)
{
    return np_engine.config.write_check != NP_WRITE_CHECK_AUTO;
}

/* What the target's entries say before a write: what we have seen of this page
 * the last time is as good as a look now, since a later one must agree */
static np_entries_t np_piece_entries_before(np_link_t *link,
                                            const np_table_t *table,
                                            const np_piece_t *piece)
{
    uint64_t page = piece->addr >> NP_PAGE_SHIFT;
    np_seen_t *seen;

    if (np_page_count(piece->addr, piece->len) == 1) {
        seen = &link->seen[page % NP_LINK_SEEN];
        if ((seen->page == page) && (seen->entry & NP_ENTRY_WRITE)) {
            return (np_entries_t){seen->entry, seen->entry & NP_ENTRY_BITS};
        }
    }

    return np_entries_of(table, piece->addr, piece->len);
}

static np_entries_t np_piece_entries_after(np_link_t *link,
                                           const np_table_t *table,
                                           const np_piece_t *piece)
{
    np_entries_t after = np_entries_of(table, piece->addr, piece->len);
    uint64_t page      = piece->addr >> NP_PAGE_SHIFT;

    if (np_page_count(piece->addr, piece->len) == 1) {
        link->seen[page % NP_LINK_SEEN] = (np_seen_t){page, after.sum};
    }
    return after;
}

/* The kernel has moved no more. What was written is never written again; of
 * what was read nobody has looked whether it is the signature. */
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

/* No memory for a page that is mapped, on whichever side: ours is asked for
 * anew, and the target will say what it thinks of its own */
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
                           const np_dma_t *dma, const np_entries_t *before,
                           const np_entries_t *after, const np_ranges_t *absent,
                           np_ranges_t *missing)
{
    int is_put   = piece->dir == NP_DIR_PUT;
    unsigned bit = is_put ? NP_ENTRY_WRITE : NP_ENTRY_READ;

    if (!is_put && !piece->by_entries) {
        np_piece_check_read(piece, missing);
        if (ucs_unlikely(missing->count > 0) && (absent->count == 0)) {
            NP_STATS_INC(link->port->stats, false_alarms);
        }
    } else if (!piece->by_entries &&
               (np_engine.config.write_check == NP_WRITE_CHECK_AUTO)) {
        np_ranges_copy(missing, absent); /* this device can tell by itself */
    } else if (np_piece_uses_readback(piece) && is_put) {
        if (!np_piece_check_readback(piece, dma)) {
            np_ranges_copy(missing, absent);
        }
    } else if (!np_entries_held(before, after, bit)) {
        /* what was written is never written again */
        np_ranges_copy(missing, absent);
    }
}

/* Is a large read sure to need the target? Our own memory is not brought in for
 * what nothing is read into, and can be while the target brings in its own. The
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
    int by_entries      = (piece->dir == NP_DIR_PUT) ? np_piece_uses_entries() :
                          piece->by_entries;
    unsigned our_bit    = NP_ENTRY_OWN((piece->dir == NP_DIR_GET) ?
                                       NP_ENTRY_WRITE : NP_ENTRY_READ);
    np_entries_t before = {0, 0}, after = {0, 0}, ours_after;
    np_ranges_t absent;
    ucs_status_t status;

    NP_PAUSE(CHECKED_LOCAL);

    if (by_entries) {
        before = np_piece_entries_before(link, dma->table, piece);
        NP_PAUSE(ENTRIES_BEFORE);
        if (NP_IS_MUTANT(CHECK_BEFORE_DATA)) {
            after = np_piece_entries_after(link, dma->table, piece);
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

    if (by_entries && !NP_IS_MUTANT(CHECK_BEFORE_DATA)) {
        after = np_piece_entries_after(link, dma->table, piece);
        NP_PAUSE(ENTRIES_AFTER);
    }

    np_piece_judge(link, piece, dma, &before, &after, &absent, missing);
    NP_PAUSE(JUDGED);

    /* only now: what was judged by looking at our memory was in it */
    if (dma->has_local) {
        ours_after = np_entries_of_iov(piece->iov, piece->iovcnt);
        if (ucs_unlikely(!np_entries_held(ours, &ours_after, our_bit))) {
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
        NP_STATS_INC(link->port->stats, replays);
    }

    np_ranges_add(missing, 0, piece->len);
    return UCS_OK;
}
