/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Spaces: what a remote address is an address in, the process's own memory or a
 * file. A request of a peer names bytes by an address of this process; here it
 * is said whether the peer may reach them. All later steps are about this
 * memory: it is brought in, looked at and moved as access.h says.
 *
 * Of memory the rights are shared arenas, or with exact scope regions. A file
 * is mapped for each of its keys, and the initiator makes an address there of
 * an offset: the rights are the key's (file.h).
 *
 * What holds for each space:
 * - An address stands for the same bytes of memory, or of a file, as long as
 *   these are shared, and for nothing else. So a request is resolved once. Its
 *   pages may go and come; entries and views say so.
 * - Rights can end at any time. The thread that ends them does so first, then
 *   unmaps the pages, and then waits for all that are moving (access.h).
 */

#ifndef NP_SPACE_H_
#define NP_SPACE_H_

#include "../np.h"
#include "access.h"

/** What a peer needs for its request, in all */
enum {
    NP_RIGHT_READ   = 1u << 0,
    NP_RIGHT_WRITE  = 1u << 1,
    NP_RIGHT_BOTH   = NP_RIGHT_READ | NP_RIGHT_WRITE, /**< an atomic, a view */
    NP_RIGHT_MEMORY = 1u << 2  /**< in no file: of one, an RDMA device has
                                    neither views nor registrations */
};

/**
 * May a peer reach [@a addr, @a addr + @a len), and where is that? The one
 * check that guards every request at the target. Any thread that is not moving.
 *
 * @param [in]  rights  NP_RIGHT_..: memory that is shared gives both.
 * @param [out] va      Where it is in our memory; set on success.
 *
 * @return UCS_OK; UCS_ERR_INVALID_ADDR: the peer may not reach all of it.
 */
ucs_status_t np_space_resolve(uint64_t addr, uint64_t len, unsigned rights,
                              uint64_t *va);

/** May the peer still reach it, after it was resolved? Asked while a copy that
 *  goes past the views is moving (access.h). With arena scope, rights to memory
 *  never end. */
static inline ucs_status_t np_space_check_again(uint64_t addr, uint64_t len)
{
    return np_access_is_allowed(addr, len) ? UCS_OK : UCS_ERR_INVALID_ADDR;
}

#endif
