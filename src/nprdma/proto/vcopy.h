/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Bytes between messages and memory. Memory that the program swaps by itself is
 * brought in first, if that may sleep, and is not taken away while it is copied.
 */

#ifndef NP_VCOPY_H_
#define NP_VCOPY_H_

#include "../np.h"

/** A page of a file of our own, from which the kernel copies to memory what is
 *  small: in a third of the time of process_vm_writev. Owner: a port; used in
 *  its turn. */
typedef struct np_vstage {
    void *page;       /**< NULL: not made yet, or it cannot be */
    int  fd;
    int  is_tried;    /**< to make it */
} np_vstage_t;

/**
 * Copy @a len bytes between a message and memory.
 *
 * @param [in] addr       The memory.
 * @param [in] data       In the message.
 * @param [in] to_memory  Else from it.
 * @param [in] is_peers   The address is a peer's word: it may be wrong.
 * @param [in] may_sleep  In a page of the memory; else it must be there.
 *
 * @return UCS_OK; UCS_ERR_INVALID_ADDR: not mapped, or not with these rights;
 *         UCS_ERR_NO_RESOURCE: it is not there, or, if that may sleep, its swapper
 *         takes it away again each time; UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_vcopy(uint64_t addr, void *data, size_t len, int to_memory,
                      int is_peers, int may_sleep);

/** As np_vcopy of a peer's bytes to memory */
ucs_status_t np_vcopy_put(np_vstage_t *stage, uint64_t addr, void *data,
                          size_t len, int may_sleep);

/** Would np_vcopy find the memory there? It may be gone at once. */
int np_vcopy_is_there(uint64_t addr, size_t len, int to_memory);

void np_vstage_cleanup(np_vstage_t *stage);

#endif
