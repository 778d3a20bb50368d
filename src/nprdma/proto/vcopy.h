/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Bytes between messages and memory. Memory that the program swaps by itself is
 * brought in first, and is not taken away while it is copied.
 */

#ifndef NP_VCOPY_H_
#define NP_VCOPY_H_

#include "../np.h"

/**
 * Copy @a len bytes between a message and memory.
 *
 * @param [in] addr       The memory.
 * @param [in] data       In the message.
 * @param [in] to_memory  Else from it.
 * @param [in] is_peers   The address is a peer's word: it may be wrong.
 *
 * @return UCS_OK; UCS_ERR_INVALID_ADDR: not mapped, or not with these rights;
 *         UCS_ERR_NO_RESOURCE: its swapper takes it away again each time;
 *         UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_vcopy(uint64_t addr, void *data, size_t len, int to_memory,
                      int is_peers);

#endif
