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


static int np_space_memory_has(uint64_t va, uint64_t len)
{
    np_arenas_t arenas;

    return (np_arenas_of(va, len, &arenas) == UCS_OK) &&
           (np_region_is_exact() ? np_regions_cover(va, len) :
                                   np_arenas_are_shared(arenas));
}

ucs_status_t np_space_resolve(np_space_t space, uint64_t addr, uint64_t len,
                              unsigned rights, uint64_t *va)
{
    if ((space == NP_SPACE_MEMORY) && np_space_memory_has(addr, len)) {
        *va = addr;
        return UCS_OK;
    }

    np_diag("a peer wanted to %s %#lx..%#lx of space %u, which is not shared",
            (rights & NP_RIGHT_WRITE) ? "write" : "read", addr, addr + len,
            space);
    return UCS_ERR_INVALID_ADDR;
}
