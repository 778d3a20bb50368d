/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Spaces. What depends on the kind of a space is here alone.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "space.h"

#include "arena.h"


/* Arenas of files are not shared, and what is registered there is the files' */
static int np_space_memory_has(uint64_t va, uint64_t len)
{
    np_arenas_t arenas;

    return (np_arenas_of(va, len, &arenas) == UCS_OK) &&
           (np_region_is_exact() ?
            (np_regions_cover(va, len) && !np_file_has(va)) :
            np_arenas_are_shared(arenas));
}

ucs_status_t np_space_resolve(uint64_t addr, uint64_t len, unsigned rights,
                              uint64_t *va)
{
    if (ucs_likely(np_space_memory_has(addr, len)) ||
        (np_file_has(addr) && !(rights & NP_RIGHT_MEMORY) &&
         (np_file_resolve(addr, len, rights & NP_RIGHT_WRITE) == UCS_OK))) {
        *va = addr;
        return UCS_OK;
    }

    np_diag("a peer wanted to %s %#lx..%#lx, which is not shared",
            (rights & NP_RIGHT_WRITE) ? "write" : "read", addr, addr + len);
    return UCS_ERR_INVALID_ADDR;
}
