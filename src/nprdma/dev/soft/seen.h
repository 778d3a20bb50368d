/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Entries of single pages of a link's target as they were seen last. Before a
 * write to a page, what was seen of it last is as good as a look now, since a
 * later look must agree.
 */

#ifndef NP_SOFT_SEEN_H_
#define NP_SOFT_SEEN_H_

#include "../../mem/entries.h"

/** Pages that a link knows */
#define NP_SEEN_PAGES 8

typedef struct np_seen {
    uint64_t page;     /**< address >> NP_PAGE_SHIFT */
    uint32_t entry;
} np_seen_t;

/** Before a write.
 *  @param [in] seen  NP_SEEN_PAGES of them. */
static inline np_entries_t
np_seen_before(const np_seen_t *seen, const np_table_t *table, uint64_t va,
               size_t len)
{
    const uint64_t page = va >> NP_PAGE_SHIFT;

    if (np_page_count(va, len) == 1) {
        seen += page % NP_SEEN_PAGES;
        if ((seen->page == page) && (seen->entry & NP_ENTRY_WRITE)) {
            return (np_entries_t){seen->entry, seen->entry & NP_ENTRY_BITS};
        }
    }
    return np_entries_of(table, va, len);
}

/** After it */
static inline np_entries_t
np_seen_after(np_seen_t *seen, const np_table_t *table, uint64_t va, size_t len)
{
    const np_entries_t after = np_entries_of(table, va, len);
    const uint64_t page      = va >> NP_PAGE_SHIFT;

    if (np_page_count(va, len) == 1) {
        seen[page % NP_SEEN_PAGES] = (np_seen_t){page, after.sum};
    }
    return after;
}

#endif
