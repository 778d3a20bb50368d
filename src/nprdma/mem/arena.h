/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Arenas: fixed-size, naturally aligned parts of the address space. To register
 * memory is to look up its arenas; nothing is kept per buffer.
 */

#ifndef NP_ARENA_H_
#define NP_ARENA_H_

#include "../np.h"

/** log2 of an arena's size: 1 GiB */
#define NP_ARENA_SHIFT    30

/** User addresses have at most 57 bits: the largest number an arena can have */
#define NP_ARENA_MAX      (UINT64_C(1) << (57 - NP_ARENA_SHIFT))

/** Numbers of tables fit beside the flags of an arena */
#define NP_ARENA_TABLE_MAX (1u << 29)

/** Bytes of one */
#define NP_ARENA_SIZE     (UINT64_C(1) << NP_ARENA_SHIFT)

/** A run of arenas: first number, how many */
typedef struct np_arenas {
    uint32_t first;
    uint32_t count;
} np_arenas_t;


/** The number of the arena of an address; less than NP_ARENA_MAX if it is one
 *  of user space */
static UCS_F_ALWAYS_INLINE uint64_t np_arena_of(uint64_t va)
{
    return va >> NP_ARENA_SHIFT;
}

/** Where an arena begins */
static UCS_F_ALWAYS_INLINE uint64_t np_arena_at(uint32_t number)
{
    return (uint64_t)number << NP_ARENA_SHIFT;
}

/** Bytes from @a va to the end of its arena */
static UCS_F_ALWAYS_INLINE uint64_t np_arena_left(uint64_t va)
{
    return (((va >> NP_ARENA_SHIFT) + 1) << NP_ARENA_SHIFT) - va;
}

/** Are these bytes, at least one, all in one arena? */
static UCS_F_ALWAYS_INLINE int np_arena_has(uint64_t va, uint64_t len)
{
    return (va >> NP_ARENA_SHIFT) == ((va + len - 1) >> NP_ARENA_SHIFT);
}

/** Is every arena of @a arenas shared with peers? Any thread, no lock. */
int np_arenas_are_shared(np_arenas_t arenas);

/** Number of this arena's table in our directory (see table.h); -1: none. Any
 *  thread, no lock. */
int np_arena_get_table(uint32_t number);

/**
 * Set it, once. Any thread that gets the number sees what was written to the
 * directory before.
 *
 * @param [in] index  Less than NP_ARENA_TABLE_MAX.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM: no arena has this number;
 *         UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_arena_set_table(uint32_t number, uint32_t index);

/**
 * The arenas that [@a va, @a va + @a len) touches.
 *
 * @param [in]  va      Start address.
 * @param [in]  len     Bytes; a length of 0 counts as 1.
 * @param [out] arenas  Filled on success.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM if the range wraps or is not in
 *         user space.
 */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_arenas_of(uint64_t va, uint64_t len, np_arenas_t *arenas)
{
    uint64_t last = va + ((len == 0) ? 0 : (len - 1));

    if (ucs_unlikely((last < va) ||
                     ((last >> NP_ARENA_SHIFT) >= NP_ARENA_MAX))) {
        return UCS_ERR_INVALID_PARAM;
    }

    arenas->first = va >> NP_ARENA_SHIFT;
    arenas->count = (last >> NP_ARENA_SHIFT) - arenas->first + 1;
    return UCS_OK;
}

/** Bring in the part of the table that most registrations need, before the
 *  first of them does. Once, before anything is shared. */
void np_arenas_start(void);

/**
 * From now on these are for files alone, whose keys say what peers reach
 * (file.h): they are not shared, and do not become so. Any thread.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY (logged), and then some may be so.
 */
ucs_status_t np_arenas_set_files(np_arenas_t arenas);

/** Not any more: a forked child has none */
void np_arenas_unset_files(np_arenas_t arenas);

/**
 * Let peers reach [va, va + len): looks up its arenas and marks them shared.
 * Touches no page of the range. Any thread.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM as np_arenas_of; UCS_ERR_NO_MEMORY if
 *         the table could not grow (64 KiB for each 16 TiB of address space).
 */
ucs_status_t np_arenas_share(uint64_t va, uint64_t len, np_arenas_t *arenas);

#endif
