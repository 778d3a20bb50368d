/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading entries, wherever they are: in this process's own tables, in a peer's
 * (table.h), in those of the kernel module (kmod.h), or in what was read of a
 * peer's over a network. Every change of an entry increments its count by more
 * than its two low bits can take away, and by less than its two high ones stand
 * for, as long as fewer than 2^27 changes lie between; so the sum over a range
 * is equal to what it was only if no entry of the range has changed.
 */

#ifndef NP_ENTRIES_H_
#define NP_ENTRIES_H_

#include "table.h"

#include "../iov.h"

/** All bits of an entry */
#define NP_ENTRIES_BITS (NP_ENTRY_BITS | NP_ENTRY_OWN(NP_ENTRY_BITS))

/** What a look at the entries of a range has found */
typedef struct np_entries {
    uint64_t sum;
    unsigned bits;    /**< of NP_ENTRIES_BITS: true of all pages */
} np_entries_t;

/** Of no page yet */
#define NP_ENTRIES_NONE ((np_entries_t){0, NP_ENTRIES_BITS})

/** An entry, and two, looked at together */
typedef uint32_t np_entry_word_t __attribute__((may_alias));
typedef uint64_t np_entry_pair_t __attribute__((may_alias));

static UCS_F_ALWAYS_INLINE void
np_entries_add_one(const void *entries, uint64_t page, np_entries_t *seen)
{
    const np_entry_word_t *words = entries;

    /* acquire, with the release of np_page_set_entry, or the kernel's: a later
     * look sees no older entry; if the page is mapped, the views that were set
     * before are seen, and data is moved after. A look after the move needs no
     * fence before it: what it must not miss is older than the view that the
     * mover has seen with acquire, and as long as that view stands the page is
     * not taken. */
    uint32_t entry = __atomic_load_n(&words[page], __ATOMIC_ACQUIRE);

    seen->sum  += entry;
    seen->bits &= entry;
}

/** Of @a page, which is even, and the next one */
static UCS_F_ALWAYS_INLINE np_entry_pair_t
np_entries_load_pair(const void *entries, uint64_t page)
{
    /* told to the compiler, which by one entry's alignment would make it a
     * call */
    const np_entry_pair_t *pairs =
            __builtin_assume_aligned(entries, sizeof(np_entry_pair_t));

    return __atomic_load_n(&pairs[page / 2], __ATOMIC_ACQUIRE); /* as for one */
}

/** Add @a count entries from @a page on to @a seen.
 *  @param [in] entries  32 bits each, aligned to 8 bytes. */
static UCS_F_ALWAYS_INLINE void
np_entries_add_run(const void *entries, uint64_t page, uint64_t count,
                   np_entries_t *seen)
{
    const uint64_t last = page + count;
    uint64_t bits       = NP_ENTRIES_BITS | ((uint64_t)NP_ENTRIES_BITS << 32);
    np_entry_pair_t pair;

    if ((page & 1) && (page < last)) {
        np_entries_add_one(entries, page++, seen);
    }

    for (; (page + 1) < last; page += 2) {
        pair       = np_entries_load_pair(entries, page);
        seen->sum += (uint32_t)pair + (pair >> 32);
        bits      &= pair;
    }
    seen->bits &= (uint32_t)bits & (bits >> 32);

    if (page < last) {
        np_entries_add_one(entries, page, seen);
    }
}

/** Add the entries of [@a va, @a va + @a len), all in one arena, whose table
 *  this is, to @a seen */
static UCS_F_ALWAYS_INLINE void
np_entries_add(const np_table_t *table, uint64_t va, size_t len,
               np_entries_t *seen)
{
    np_entries_add_run(table->entries, np_page_index(va),
                       np_page_count(va, len), seen);
}

static UCS_F_ALWAYS_INLINE np_entries_t
np_entries_of(const np_table_t *table, uint64_t va, size_t len)
{
    np_entries_t seen = NP_ENTRIES_NONE;

    np_entries_add(table, va, len, &seen);
    return seen;
}

/** The entries of our own memory, to be judged by NP_ENTRY_OWN; what has no
 *  table counts as absent */
static inline np_entries_t np_entries_of_iov(const np_iov_t *iov, size_t iovcnt)
{
    np_entries_t seen = NP_ENTRIES_NONE;
    uint64_t va, end, part;
    np_table_t *table;
    size_t i;

    for (i = 0; i < iovcnt; ++i) {
        end = (uintptr_t)iov[i].base + iov[i].len;
        for (va = (uintptr_t)iov[i].base; va < end; va += part) {
            part  = ucs_min(end, va + np_arena_left(va)) - va;
            table = np_table_find(np_arena_of(va));
            if (table == NULL) {
                seen.bits = 0;
            } else {
                np_entries_add(table, va, part, &seen);
            }
        }
    }
    return seen;
}

/** Are all pages mapped with @a bits? */
static UCS_F_ALWAYS_INLINE int
np_entries_have(const np_entries_t *seen, unsigned bits)
{
    return (seen->bits & bits) == bits;
}

/** Two looks at the same entries: were all pages mapped so, all the time
 *  between? */
static UCS_F_ALWAYS_INLINE int
np_entries_stayed(const np_entries_t *before, const np_entries_t *after,
                  unsigned bits)
{
    return (before->sum == after->sum) &&
           ((before->bits & after->bits & bits) == bits);
}

#endif
