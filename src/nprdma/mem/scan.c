/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The residency scan: mapped pages that the OS has taken are unmapped.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "mapper.h"

#include "span.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

/* Pages that are looked at with one system call */
#define NP_SCAN_PAGES  1024


/* As mincore(), but what is not mapped is not resident. What cannot be told
 * counts as resident. */
static void
np_scan_resident(uint64_t va, uint64_t count, uint64_t page, uint8_t *vec)
{
    uint64_t i;

    if (mincore((void*)va, count * page, vec) == 0) {
        return;
    }

    for (i = 0; i < count; ++i) {
        if (mincore((void*)(va + (i * page)), page, &vec[i]) != 0) {
            vec[i] = (errno != ENOMEM);
        }
    }
}

/* At most NP_SCAN_PAGES pages of one slice, some of them mapped */
static uint64_t np_scan_pages(uint64_t va, const np_span_t *span)
{
    const uint64_t page  = sysconf(_SC_PAGESIZE);
    const uint64_t first = va & ~(page - 1);
    const uint64_t end   = va + ((uint64_t)span->count << NP_PAGE_SHIFT);
    uint8_t vec[NP_SCAN_PAGES + 1], which[NP_SCAN_PAGES];
    unsigned absent = 0;
    uint32_t i;

    np_scan_resident(first, (ucs_align_up_pow2(end, page) - first) / page, page,
                     vec);
    for (i = 0; i < span->count; ++i) {
        which[i] = !(vec[(va + (i * NP_PAGE_SIZE) - first) / page] & 1) &&
                   (atomic_load_explicit(&span->table->views[span->first + i],
                                         memory_order_relaxed) != 0);
        absent  += which[i];
    }

    return (absent == 0) ? 0 : np_mapper_unmap_some(va, end, which);
}

uint64_t np_mapper_scan(uint64_t va, uint64_t len)
{
    uint64_t unmapped = 0, end, next;
    np_span_t span;

    if (!np_span_range(va, len, &va, &end)) {
        return 0;
    }

    for (; va < end; va = next) {
        next = np_span_get(va, end, &span);
        if ((span.table == NULL) || !np_span_was_mapped(&span)) {
            continue;
        }

        if (span.count > NP_SCAN_PAGES) {
            span.count = NP_SCAN_PAGES;
            next       = va + ((uint64_t)NP_SCAN_PAGES << NP_PAGE_SHIFT);
        }

        if (np_span_has_views(&span, NP_VIEW_ALL(NP_ENTRY_BITS))) {
            unmapped += np_scan_pages(va, &span);
        }
    }

    return unmapped;
}
