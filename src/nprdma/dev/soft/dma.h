/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What soft0 does where an RNIC would do DMA: it moves data in units through
 * the views of both sides. A read of a page that the target's read view does
 * not have gives the signature; a write to one that its write view does not
 * have vanishes; and so on the initiator's side.
 *
 * Unlike a commodity RNIC it knows afterwards which bytes met an absent page,
 * so that it never has to write anything twice.
 */

#ifndef NP_SOFT_DMA_H_
#define NP_SOFT_DMA_H_

#include "drain.h"
#include "tlb.h"
#include "vm.h"

#include "../../iov.h"
#include "../../mem/table.h"
#include "../../ranges.h"

/** Bytes that one call moves at most: so long a page may have to wait */
#define NP_DMA_MAX         (256 * UCS_KBYTE)

/** Ranges that one call may report: every other page of NP_DMA_MAX */
#define NP_DMA_MAX_RANGES  34

/** A way to a process's memory. All that it points to stays with its owner. */
typedef struct np_dma {
    np_dir_t    dir;
    np_process_t *process;  /**< process_vm_*, if not direct; NP_VM_SELF: it is
                                 our own memory, there for ourselves
                                 (access.h) */
    void        *direct;    /**< where the remote address is mapped here */
    const np_table_t *table;   /**< of the remote arena; NULL: all is absent */
    np_remote_t *remote;    /**< whose table it is; NULL with it */
    np_moving_own_t *moving; /**< the mover's word */
    np_tlb_t    *tlb;       /**< the target's cache, if it is modelled; else
                                 NULL: every unit is translated anew */
    const _Atomic uint32_t *epoch; /**< NULL, or the link's: nothing is moved if
                                        it is not what was_epoch says */
    uint32_t    was_epoch;
    int         is_whole;   /**< a write of which nothing is written if a part
                                 of it meets an absent page, on either side */
    int         is_prefix;  /**< stop at the first absent page: nothing from
                                 there on is moved */
    int         has_local;  /**< local memory has views too; else it is ours, or
                                 the CPU's, and always there */
} np_dma_t;

/**
 * Move one piece.
 *
 * @param [in]  iov     Local memory, @a len bytes in all.
 * @param [in]  addr    Remote address, inside one arena.
 * @param [in]  len     1 to NP_DMA_MAX.
 * @param [out] absent  What met an absent page, on either side. The last of
 *                      NP_DMA_MAX_RANGES covers the rest, and nothing of that
 *                      is moved; nor is what comes after an error, which is the
 *                      last range then. So what is not in @a absent was moved,
 *                      once, and what is in it was not.
 *
 * @return UCS_OK: all units have been moved, or met what @a absent says;
 *         UCS_ERR_INVALID_ADDR: the kernel found no memory for a mapped page;
 *         UCS_ERR_CANCELED: the epoch has ended;
 *         others as np_vm_move.
 */
ucs_status_t np_dma_move(const np_dma_t *dma, const np_iov_t *iov,
                         size_t iovcnt, uint64_t addr, size_t len,
                         np_ranges_t *absent);

/** Read at most NP_READBACK_MAX bytes that were written: are they there? */
int np_dma_has_written(const np_dma_t *dma, const np_iov_t *iov, size_t iovcnt,
                       uint64_t addr, size_t len);

/** A way to our own memory, in one arena: through our own views, as a device
 *  would */
static inline np_dma_t
np_dma_own(np_dir_t dir, np_moving_own_t *moving, uint64_t va)
{
    return (np_dma_t){
        .dir     = dir,
        .process = NP_VM_SELF,
        .table   = np_table_find(np_arena_of(va)),
        .moving  = moving
    };
}

/** Are all pages of [@a va, @a va + @a len), inside one arena, in the remote
 *  view that this direction needs? Between np_moving_begin and _end. */
static UCS_F_ALWAYS_INLINE int
np_dma_is_mapped(const np_table_t *table, uint64_t va, size_t len, np_dir_t dir)
{
    const uint32_t page  = np_page_index(va);
    const uint32_t count = np_page_count(va, len);
    const unsigned bit   = (dir == NP_DIR_GET) ? NP_ENTRY_READ : NP_ENTRY_WRITE;

    if (ucs_likely(count == 1)) {
        /* acquire: as np_views_have */
        return atomic_load_explicit(&table->views[page],
                                    memory_order_acquire) & bit;
    }

    return np_views_have(table, page, count, bit);
}

#endif
