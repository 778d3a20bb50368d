/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Moving data through the views of both sides.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "dma.h"

#include "../../engine.h"
#include "../../mem/access.h"
#include "../../mem/signature.h"
#include "../../mem/swapper.h"
#include "../../pause.h"

#include <string.h>

/* What a whole piece may go through at once; a test build moves unit by unit */
#ifdef NP_TEST_BUILD
#  define NP_DMA_STEP  NP_DMA_UNIT
#else
#  define NP_DMA_STEP  NP_DMA_MAX
#endif

/* Signature, ready to be sent: a page, and as much as its rotation needs */
#define NP_DMA_SIGNATURE (NP_PAGE_SIZE + sizeof(uint32_t))

/* Where a walk over both sides is */
typedef struct np_walk {
    const np_dma_t   *dma;
    const np_iov_t   *iov;
    size_t           iovcnt;
    size_t           len;
    uint64_t         addr;
    size_t           done;    /* an error has come here: the rest is not
                                 moved */
} np_walk_t;


/* Are all pages of [va, va + len) in the target's view? */
static int np_walk_remote(const np_walk_t *walk, uint64_t va, size_t len)
{
    const np_table_t *table = walk->dma->table;
    const unsigned bit      = (walk->dma->dir == NP_DIR_GET) ? NP_ENTRY_READ :
                              NP_ENTRY_WRITE;
    const uint32_t count    = np_page_count(va, len);
    const uint64_t first    = va >> NP_PAGE_SHIFT;
    uint32_t i;

    if ((walk->dma->process == NP_VM_SELF) && (walk->dma->direct == NULL)) {
        return np_access_is_there(va, len, walk->dma->dir == NP_DIR_PUT);
    }

    if (table == NULL) {
        return 0;
    }

    if (ucs_likely(walk->dma->tlb == NULL)) {
        return np_views_have(table, np_page_index(va), count, bit);
    }

    for (i = 0; i < count; ++i) {
        if (!(np_tlb_translate(walk->dma->tlb, walk->dma->remote->directory,
                               table, first + i) & bit)) {
            return 0;
        }
    }
    return 1;
}

/* Are all pages of [va, va + len) in the initiator's view? */
static int np_walk_local(const np_walk_t *walk, uint64_t va, size_t len)
{
    return !walk->dma->has_local ||
           np_access_is_there(va, len, walk->dma->dir == NP_DIR_GET);
}

/* Move what both sides have. On error walk->done tells how far it has come. */
static ucs_status_t np_walk_move(np_walk_t *walk, const np_iov_t *iov,
                                 size_t iovcnt, uint64_t addr)
{
    const np_dma_t *dma = walk->dma;
    ucs_status_t status;
    size_t i, done;
    uint8_t *direct;

    NP_PAUSE(UNIT_IN_FLIGHT);
    if (dma->direct == NULL) {
        status     = np_vm_move(dma->dir, dma->process, iov, iovcnt, addr,
                                &done);
        walk->done = addr - walk->addr + done;
        return status;
    }

    direct = UCS_PTR_BYTE_OFFSET(dma->direct, addr - walk->addr);
    for (i = 0; i < iovcnt; ++i) {
        if (dma->dir == NP_DIR_PUT) {
            memcpy(direct, iov[i].base, iov[i].len);
        } else {
            memcpy(iov[i].base, direct, iov[i].len);
        }
        direct += iov[i].len;
    }
    return UCS_OK;
}

/* Move what at least one side does not have: the signature, or nothing */
static ucs_status_t
np_walk_move_absent(np_walk_t *walk, const np_iov_t *iov, size_t iovcnt,
                    uint64_t addr, int has_remote, int has_local)
{
    uint8_t page[NP_DMA_SIGNATURE];
    ucs_status_t status;
    size_t i, done, len;
    np_iov_t piece;

    if (walk->dma->dir == NP_DIR_PUT ? !has_remote : !has_local) {
        return UCS_OK; /* into the black hole */
    }

    for (i = 0; i < iovcnt; addr += iov[i++].len) {
        for (done = 0; done < iov[i].len; done += len) {
            len = ucs_min(iov[i].len - done, (size_t)NP_PAGE_SIZE);
            np_signature_fill(page, addr + done, len);
            if (walk->dma->dir == NP_DIR_PUT) {
                piece  = (np_iov_t){page, len};
                status = np_walk_move(walk, &piece, 1, addr + done);
            } else if (walk->dma->has_local) {
                status = np_access_write((uintptr_t)iov[i].base + done, page,
                                         len);
            } else {
                memcpy(UCS_PTR_BYTE_OFFSET(iov[i].base, done), page, len);
                status = UCS_OK;
            }
            if (status != UCS_OK) {
                return status;
            }
        }
    }
    return UCS_OK;
}

/* Is every page of the piece there, on both sides? */
static int np_walk_is_whole(const np_walk_t *walk, size_t offset, size_t len)
{
    const uint64_t va = walk->addr + offset;
    size_t i, first, last, start = 0;

    if (!np_walk_remote(walk, va, len)) {
        return 0;
    }

    for (i = 0; walk->dma->has_local && (i < walk->iovcnt);
         start += walk->iov[i++].len) {
        first = ucs_max(start, offset);
        last  = ucs_min(start + walk->iov[i].len, offset + len);
        if ((first < last) &&
            !np_walk_local(walk,
                           (uintptr_t)walk->iov[i].base + (first - start),
                           last - first)) {
            return 0;
        }
    }

    return 1;
}

/* The piece ends where a page of either side ends, or a local one does */
static size_t np_walk_step(const np_walk_t *walk, size_t offset, size_t len,
                           np_iov_t *piece)
{
    uint64_t va = walk->addr + offset;

    np_iov_slice(walk->iov, walk->iovcnt, offset, 1, piece);
    len = ucs_min(len, NP_PAGE_SIZE - (va & (NP_PAGE_SIZE - 1)));
    va  = (uintptr_t)piece->base;
    len = ucs_min(len, NP_PAGE_SIZE - (va & (NP_PAGE_SIZE - 1)));

    /* up to the end of this element of the list */
    while (np_iov_slice(walk->iov, walk->iovcnt, offset, len, piece) > 1) {
        len = piece[0].len;
    }
    return len;
}

/* [offset, offset + len) has met an absent page. Returns 0 if that is the
 * end. */
static int np_walk_absent(const np_walk_t *walk, np_ranges_t *absent,
                          size_t offset, size_t len)
{
    int is_end = walk->dma->is_prefix ||
                 (absent->count >= (NP_DMA_MAX_RANGES - 1));

    np_ranges_add(absent, offset, is_end ? walk->len - offset : len);
    return !is_end;
}

/* After an error: the rest is not moved */
static void np_walk_give_up(const np_walk_t *walk, np_ranges_t *absent)
{
    size_t from = walk->done, end;

    if (absent->count > 0) { /* it may be in the middle of one */
        end  = absent->range[absent->count - 1].offset +
               absent->range[absent->count - 1].len;
        from = ucs_max(from, end);
    }

    if (from < walk->len) {
        np_ranges_add(absent, from, walk->len - from);
    }
}

/* Move [offset, offset + len), units in flight all the time.
 * UCS_ERR_NO_PROGRESS: nothing after what is absent is to be moved. */
static ucs_status_t np_walk_run(np_walk_t *walk, size_t offset, size_t len,
                                np_ranges_t *absent)
{
    np_iov_t piece[NP_MAX_IOV];
    size_t end     = offset + len, step;
    int has_remote = 0, has_local;
    uint64_t page  = 0; /* nothing is ever there */
    ucs_status_t status;

    if (ucs_likely(np_walk_is_whole(walk, offset, len))) {
        if ((offset == 0) && (len == np_iov_length(walk->iov, walk->iovcnt))) {
            return np_walk_move(walk, walk->iov, walk->iovcnt, walk->addr);
        }
        return np_walk_move(walk, piece,
                            np_iov_slice(walk->iov, walk->iovcnt, offset, len,
                                         piece), walk->addr + offset);
    }

    if (walk->dma->is_whole) {
        return np_walk_absent(walk, absent, offset, len) ? UCS_OK :
               UCS_ERR_NO_PROGRESS;
    }

    for (; offset < end; offset += step) {
        step = np_walk_step(walk, offset, end - offset, piece);
        if (((walk->addr + offset) >> NP_PAGE_SHIFT) != page) {
            /* Once a page: a unit that is split in two here is one read there,
             * and must not be half the signature */
            page       = (walk->addr + offset) >> NP_PAGE_SHIFT;
            has_remote = np_walk_remote(walk, walk->addr + offset,
                                        ucs_min(end - offset, NP_PAGE_SIZE -
                                                ((walk->addr + offset) &
                                                 (NP_PAGE_SIZE - 1))));
        }
        has_local  = np_walk_local(walk, (uintptr_t)piece[0].base, step);
        if (has_remote && has_local) {
            status = np_walk_move(walk, piece, 1, walk->addr + offset);
        } else if (!np_walk_absent(walk, absent, offset, step)) {
            return UCS_ERR_NO_PROGRESS;
        } else {
            status = np_walk_move_absent(walk, piece, 1, walk->addr + offset,
                                         has_remote, has_local);
        }
        if (status != UCS_OK) {
            return status;
        }
    }
    return UCS_OK;
}

ucs_status_t np_dma_move(const np_dma_t *dma, const np_iov_t *iov,
                         size_t iovcnt, uint64_t addr, size_t len,
                         np_ranges_t *absent)
{
    ucs_status_t status = UCS_OK;
    size_t offset, step;
    np_walk_t walk;

    np_assertv((len > 0) && (len <= NP_DMA_MAX) && np_arena_has(addr, len),
               "a piece of %zu bytes at %#lx", len, addr);
    np_assert(np_iov_length(iov, iovcnt) == len);
    absent->count = 0;
    walk          = (np_walk_t){
        .dma    = dma,
        .iov    = iov,
        .iovcnt = iovcnt,
        .len    = len,
        .addr   = addr
    };

    for (offset = 0; (offset < len) && (status == UCS_OK); offset += step) {
        step = NP_DMA_STEP - ((NP_DMA_STEP < NP_DMA_MAX) ?
                              ((addr + offset) % NP_DMA_STEP) : 0);
        step = ucs_min(step, len - offset);
        walk.done = offset;
        np_moving_begin(dma->moving);
        /* After the begin: the thread that ends an epoch waits for us, or we
         * see its end */
        status = np_moving_is_ended(dma->moving) ? UCS_ERR_CONNECTION_RESET :
                 ((dma->epoch != NULL) &&
                  (atomic_load_explicit(dma->epoch, memory_order_relaxed) !=
                   dma->was_epoch)) ? UCS_ERR_CANCELED :
                 np_walk_run(&walk, offset, step, absent);
        if (!np_moving_end(dma->moving)) {
            status = UCS_ERR_CONNECTION_RESET;
        }
        NP_PAUSE(UNIT);
    }

    if (ucs_likely((status == UCS_OK) || (status == UCS_ERR_NO_PROGRESS))) {
        return UCS_OK;
    }

    np_walk_give_up(&walk, absent);
    return status;
}

int np_dma_has_written(const np_dma_t *dma, const np_iov_t *iov, size_t iovcnt,
                       uint64_t addr, size_t len)
{
    uint8_t buffer[NP_READBACK_MAX];
    const np_iov_t read = {buffer, len};
    np_dma_t back       = *dma;
    size_t offset       = 0, i, end;
    int is_same         = 1, phase;
    np_ranges_t absent;

    back.dir       = NP_DIR_GET;
    back.has_local = 0;
    back.is_whole  = 0;
    back.is_prefix = 0;
    if ((np_dma_move(&back, &read, 1, addr, len, &absent) != UCS_OK) ||
        (np_signature_find(buffer, addr, len, NP_DMA_UNIT, 0, &end) != len) ||
        !np_swap_hold_iov(iov, iovcnt, &phase)) {
        return 0;
    }

    for (i = 0; is_same && (i < iovcnt); offset += iov[i++].len) {
        is_same = (iov[i].len == 0) ||
                  (memcmp(buffer + offset, iov[i].base, iov[i].len) == 0);
    }
    np_swap_let_go(phase);
    return is_same;
}
