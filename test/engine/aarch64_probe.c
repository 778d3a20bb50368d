/* SPDX-License-Identifier: BSD-3-Clause */
/* What decides by a view or an entry what is moved, for aarch64.t to read: as
 * it is where that is a function, else inside one here. Not linked into
 * anything. */

#include "nprdma/dev/soft/dma.c"
#include "nprdma/dev/soft/tlb.c"
#include "nprdma/mem/kmod.h"
#include "nprdma/mem/entries.h"

#define PROBE __attribute__((noinline, used))

PROBE int probe_dma_is_mapped(const np_table_t *table, uint64_t va, size_t len)
{
    return np_dma_is_mapped(table, va, len, NP_DIR_GET);
}

PROBE uint64_t probe_views_load(const np_table_t *table, uint32_t page)
{
    return np_views_load(table, page);
}

PROBE uint64_t probe_entries_pair(const np_table_t *table, uint32_t page)
{
    return np_entries_load_pair(table->entries, page);
}

PROBE uint64_t probe_entries_of(const np_table_t *table, uint64_t va,
                                size_t len)
{
    return np_entries_of(table, va, len).sum;
}

PROBE uint64_t probe_kmod_entries(const np_kmod_region_t *region, uint64_t va,
                                  uint64_t len)
{
    return np_kmod_entries(region, va, len).sum;
}
