/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kmod mapper: nprdma.ko keeps the views of our arenas true (design,
 * section 2; include/nprdma/nprdma_uapi.h). A region of the module's stands for
 * an arena; its table, which the kernel alone writes, says which pages RDMA
 * devices reach.
 *
 * All functions: any thread. A forked child has none of its parent's regions.
 */

#ifndef NP_KMOD_H_
#define NP_KMOD_H_

#include "entries.h"

#include "../../../include/nprdma/nprdma_uapi.h"

_Static_assert((int)NPRDMA_ENTRY_READ == (int)NP_ENTRY_READ &&
               (int)NPRDMA_ENTRY_WRITE == (int)NP_ENTRY_WRITE &&
               (int)NPRDMA_ENTRY_STEP == (int)NP_ENTRY_STEP,
               "both mappers' entries look the same");

/** Bytes of the smallest part that a view is exported in */
#define NP_KMOD_PART_MIN  (UINT64_C(16) << 20)

/** What the module makes of one of our arenas. Owner: kmod.c, until the process
 *  ends; constant but for its entries. */
typedef struct np_kmod_region {
    ucs_list_link_t         list;     /**< of all; guarded by their lock */
    uint32_t                arena;
    uint32_t                number;   /**< the module's */
    uint64_t                va;
    uint64_t                len;      /**< bytes: less than an arena at the end
                                           of user space */
    const _Atomic uint32_t  *entries; /**< written by the kernel */
} np_kmod_region_t;

/**
 * Open the module, once a process.
 *
 * @return UCS_OK; UCS_ERR_NO_DEVICE: it is not loaded; UCS_ERR_UNSUPPORTED: it
 *         has another version, or lacks something; UCS_ERR_IO_ERROR: it cannot
 *         be opened. np_kmod_why() says why.
 */
ucs_status_t np_kmod_open(void);

/** After an error of np_kmod_open: the reason and the cure, in one line */
const char *np_kmod_why(void);

/**
 * The region of an arena; made at first.
 *
 * @return UCS_OK; errors of np_kmod_open; UCS_ERR_INVALID_ADDR: no such arena;
 *         UCS_ERR_NO_MEMORY (logged): also the module's bound for a user.
 */
ucs_status_t np_kmod_region_get(uint32_t arena, np_kmod_region_t **region_p);

/** How the translations of views that are attached now are replaced: the worst
 *  NPRDMA_REPLACE_* */
uint32_t np_kmod_replaces(void);

/**
 * A dma-buf of it (NPRDMA_EXPORT_*), or -1 with errno. To be closed.
 *
 * @param [in] offset  Of a part of a view, in bytes; a multiple of
 *                     NP_KMOD_PART_MIN.
 * @param [in] len     Of the part, such a multiple or up to the region's end;
 *                     0: all of the view, or of the table.
 */
int np_kmod_export(const np_kmod_region_t *region, uint32_t what,
                   uint64_t offset, uint64_t len);

/**
 * Bring pages of [@a va, @a va + @a len) in and map them; all of it lies in the
 * region.
 *
 * @return UCS_OK: they were mapped, and may be gone again;
 *         UCS_ERR_INVALID_ADDR; UCS_ERR_NO_MEMORY; UCS_ERR_NO_RESOURCE: they
 *         went again each time, or are the program's own to swap.
 */
ucs_status_t np_kmod_fault_in(const np_kmod_region_t *region, uint64_t va,
                              uint64_t len, int write);

/** As np_kmod_fault_in, later and only perhaps, wherever there are regions */
void np_kmod_prefetch(uint64_t va, uint64_t len, int write);

/** As np_kmod_prefetch, unless all of these pages are mapped so */
void np_kmod_prepare(uint64_t va, uint64_t len, int write);

/** When it returns no device reaches these pages by a view; fault-in may map
 *  them again */
void np_kmod_unmap(uint64_t va, uint64_t len);

/** The same, for good: the program swaps these pages by itself. To be called
 *  after the range is known to np_swap_range_touches. Returns 0 (logged) if the
 *  module could not: devices may map them again. */
int np_kmod_block(uint64_t va, uint64_t len);

/** The end of np_kmod_block: pages come back when they are asked for */
void np_kmod_unblock(uint64_t va, uint64_t len);


/** The entries of [@a va, @a va + @a len), which lies in the region */
static UCS_F_ALWAYS_INLINE np_entries_t
np_kmod_entries(const np_kmod_region_t *region, uint64_t va, uint64_t len)
{
    np_entries_t seen = NP_ENTRIES_NONE;

    np_entries_add_run((const void*)region->entries,
                       (va - region->va) >> NP_PAGE_SHIFT,
                       np_page_count(va, len), &seen);
    return seen;
}

#endif
