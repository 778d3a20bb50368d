/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Spaces: what a remote address is an address in. A request of a peer names
 * bytes of a space; the space says whether the peer may reach them, and where
 * in this process's memory they are. All later steps are about this memory: it
 * is brought in, looked at and moved as access.h says.
 *
 * There is one space so far, number 0: the process's own memory, whose
 * addresses are the process's. Its rights are shared arenas, or with exact
 * scope regions.
 *
 * What holds for each space:
 * - An address resolves to the same memory as long as the space lives, and that
 *   address range of the process is used for nothing else. So a request is
 *   resolved once. Its pages may go and come; entries and views say so.
 * - The offset in an arena stays: bytes of one arena of the space are in one
 *   arena of the process, and what is aligned stays so.
 * - Rights can end at any time. The thread that ends them does so first, then
 *   unmaps the pages, and then waits for all that are moving (access.h).
 */

#ifndef NP_SPACE_H_
#define NP_SPACE_H_

#include "../np.h"
#include "region.h"

/** The number of a space */
typedef uint32_t np_space_t;

/** The process's own memory */
#define NP_SPACE_MEMORY ((np_space_t)0)

/** What a peer needs for its request, in all */
enum {
    NP_RIGHT_READ  = 1u << 0,
    NP_RIGHT_WRITE = 1u << 1,
    NP_RIGHT_BOTH  = NP_RIGHT_READ | NP_RIGHT_WRITE  /**< an atomic, a view */
};

/**
 * May a peer reach [@a addr, @a addr + @a len) of a space, and where is that?
 * The one check that guards every request at the target. Any thread.
 *
 * @param [in]  rights  NP_RIGHT_..: memory that is shared gives both.
 * @param [out] va      Where it is in our memory; set on success.
 *
 * @return UCS_OK; UCS_ERR_INVALID_ADDR: there is no such space, or the peer may
 *         not reach all of it.
 */
ucs_status_t np_space_resolve(np_space_t space, uint64_t addr, uint64_t len,
                              unsigned rights, uint64_t *va);

/** May the peer still reach it? Asked while a copy that goes past the views is
 *  moving (access.h). With arena scope, rights to memory never end. */
static inline ucs_status_t np_space_check_again(np_space_t space, uint64_t addr,
                                                uint64_t len, unsigned rights)
{
    uint64_t va;

    return ((space == NP_SPACE_MEMORY) && !np_region_is_exact()) ? UCS_OK :
           np_space_resolve(space, addr, len, rights, &va);
}

#endif
