/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A page: its entry and its views, as the mapper changes them. Each change is
 * made under the lock of the page's slice (span.h).
 */

#ifndef NP_PAGE_H_
#define NP_PAGE_H_

#include "table.h"

#include "../pause.h"

/** These bits of an entry for peers, and the same for this process */
static UCS_F_ALWAYS_INLINE uint32_t np_entry_all(uint32_t bits)
{
    return bits | NP_ENTRY_OWN(bits);
}

/** The entry of a page */
static UCS_F_ALWAYS_INLINE uint32_t
np_page_entry(const np_table_t *table, uint32_t page)
{
    return atomic_load_explicit(&table->entries[page], memory_order_acquire);
}

/**
 * Change the entry of a page: @a bits, and the next count. Under the lock. The
 * count wraps between the bits. Release: a thread that sees the page mapped
 * sees the views that were set before, and the flush. Those that compare
 * entries load with acquire (entries.h).
 */
static UCS_F_ALWAYS_INLINE void
np_page_set_entry(np_table_t *table, uint32_t page, uint32_t entry,
                  uint32_t bits)
{
    if (!NP_IS_MUTANT(COUNT_NOT_BUMPED)) {
        entry += NP_ENTRY_STEP;
    }

    atomic_store_explicit(&table->entries[page],
                          (entry & ~np_entry_all(NP_ENTRY_BITS)) | bits,
                          memory_order_release);
}

/**
 * Add @a bits to the views of a page. Under the lock, so its own load may be
 * relaxed. Release: a thread that sees the bit sees the page as it was brought
 * in. Movers load with acquire (np_views_have).
 */
static UCS_F_ALWAYS_INLINE void
np_page_translate(np_table_t *table, uint32_t page, uint32_t bits)
{
    uint8_t views = atomic_load_explicit(&table->views[page],
                                         memory_order_relaxed);

    atomic_store_explicit(&table->views[page], views | bits,
                          memory_order_release);
}

/** Have the entries of our own memory [@a va, @a va + @a len) @a bits, all of
 *  them? */
static inline int np_pages_have(uint64_t va, uint64_t len, uint32_t bits)
{
    uint64_t left = np_page_count(va, len);
    const np_table_t *table;
    np_arenas_t arenas;
    uint32_t page, end;

    if (ucs_unlikely(np_arenas_of(va, len, &arenas) != UCS_OK)) {
        return 0;
    }

    page = np_page_index(va);
    for (; left > 0; ++arenas.first, page = 0) {
        table = np_table_find(arenas.first);
        if (ucs_unlikely(table == NULL)) {
            return 0;
        }

        end   = ucs_min(page + left, NP_ARENA_PAGES);
        left -= end - page;
        for (; page < end; ++page) {
            if ((np_page_entry(table, page) & bits) != bits) {
                return 0;
            }
        }
    }

    return 1;
}

#endif
