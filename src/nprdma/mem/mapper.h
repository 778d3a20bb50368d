/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The user mapper: this process keeps the tables of its own arenas true.
 * Fault-in maps; notifications of the program or its swapper, and a scan for
 * pages that the OS has taken, unmap.
 *
 * Map:   page present, then translation, then flush, then entry.
 * Unmap: entry, then translation, then flush, and only then may the page go.
 *
 * All functions: any thread; no lock is held while a page is brought in.
 */

#ifndef NP_MAPPER_H_
#define NP_MAPPER_H_

#include "table.h"

/** What brings pages in for a range that the program swaps by itself */
typedef struct np_swapper {
    /** Bring [va, va + len) in, whole pages, so that it can be touched.
     *  @return 0, or -1: it cannot. */
    int  (*swap_in)(void *arg, void *va, size_t len, int write);
    void *arg;
} np_swapper_t;

/** What a device does about translations of [va, va + len) */
typedef void (*np_mapper_flush_t)(uint64_t va, uint64_t len);

/**
 * Called without any lock of the mapper, after translations have changed.
 * Returns when no device and no peer uses an older one any more. Set once,
 * before the first table; NULL: nothing to do.
 */
void np_mapper_set_flush(np_mapper_flush_t flush);

/** Do just that flush. Any thread that is not itself moving. */
void np_mapper_flush(uint64_t va, uint64_t len);

/**
 * What the device does instead where pages have only been added: a mover that
 * has cached that they are absent must look again, and need not be waited for.
 * NULL: the flush is used.
 */
void np_mapper_set_refresh(np_mapper_flush_t refresh);

/** Do just that, after a map */
void np_mapper_refresh(uint64_t va, uint64_t len);

/**
 * Bring pages in and map them: for reading, or for reading and writing; for
 * peers as far as they may reach them (region.h), and for this process. Pages
 * that are mapped so already cost one load each. Splits at arenas. It may sleep
 * in a page; it also sleeps 0.2 ms if the program meanwhile takes away a page
 * that has no swapper.
 *
 * @return UCS_OK; UCS_ERR_INVALID_ADDR: something is not there, or not with
 *         these rights, or with exact scope not registered (what was before it
 *         is mapped); UCS_ERR_NO_MEMORY;
 *         UCS_ERR_NO_RESOURCE: the pages were unmapped again each time
 *         (NP_MAPPER_ROUNDS): try later, or copy; UCS_ERR_EXCEEDS_LIMIT: the
 *         arena has no table.
 */
ucs_status_t np_mapper_fault_in(uint64_t va, uint64_t len, int write);

/** Another way to bring pages in: to read all of them, through the kernel */
typedef struct np_bring {
    /** Called outside of any unit, since it may wait for a pager; called once
     *  more if pages went meanwhile.
     *  @return UCS_OK: all pages of the range were there; else why not */
    ucs_status_t (*use)(void *arg);
    void         *arg;
    int          is_done;   /**< filled in: the last call of @a use succeeded,
                                 and no page went between it and the return */
} np_bring_t;

/**
 * As np_mapper_fault_in, but if any page has to be brought in, and the program
 * swaps none of them by itself, @a bring does it instead of a system call that
 * would do only that.
 *
 * @param [in] len  Less than 4 MiB.
 */
ucs_status_t np_mapper_fault_in_by(uint64_t va, uint64_t len, int write,
                                   np_bring_t *bring);

/** Times that a fault-in tries again if its pages are unmapped meanwhile */
#define NP_MAPPER_ROUNDS 16

/** Unmap: when it returns, no device and no peer reaches these pages any more,
 *  not even by views of the kmod mapper. Pages that are not mapped cost one
 *  load each; with nprdma.ko there is a system call. */
void np_mapper_unmap(uint64_t va, uint64_t len);

/** Unmap only the writable half (copy on write) */
void np_mapper_protect(uint64_t va, uint64_t len);

/** Unmap the pages of [@a va, @a end), all of one slice (span.h), whose byte in
 *  @a which is not 0; returns how many had a view */
uint64_t np_mapper_unmap_some(uint64_t va, uint64_t end, const uint8_t *which);

/** Unmap the mapped pages of a range that are not resident (mincore); returns
 *  how many */
uint64_t np_mapper_scan(uint64_t va, uint64_t len);

/** Are all pages of the range mapped so, for this process? One load for
 *  each. */
int np_mapper_is_mapped(uint64_t va, uint64_t len, int write);

/** Let @a swapper bring in the pages of a range (whole pages, no overlap with
 *  another one).
 *  @return UCS_OK; UCS_ERR_INVALID_PARAM; UCS_ERR_ALREADY_EXISTS;
 *          UCS_ERR_NO_MEMORY; UCS_ERR_EXCEEDS_LIMIT: an arena of it has no
 *          table, so the swapper would not be asked. */
ucs_status_t np_mapper_add_swapper(uint64_t va, uint64_t len,
                                   const np_swapper_t *swapper);

/** @return UCS_OK; UCS_ERR_NO_ELEM if there is none of just this range. Returns
 *  when no call of the swapper is in progress. */
ucs_status_t np_mapper_remove_swapper(uint64_t va, uint64_t len);

/** The program takes pages away and brings them in by itself, whenever it
 *  likes: it has said so of some. From now on, until the process ends (0: for
 *  tests). */
void np_mapper_set_paged(int is_paged);

/** Does it? */
int np_mapper_is_paged(void);

/** A child after fork: locks may be held by threads that it does not have.
 *  Called by a fork handler if there ever was a swapper; otherwise a child has
 *  nothing to forget, since it has no tables. */
void np_mapper_after_fork(void);

#endif
