/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Bytes between messages and memory.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vcopy.h"

#include "../mem/access.h"
#include "../mem/swapper.h"

#include <string.h>

/* Times that a swapper may take the memory away between bringing it in and the
 * copy */
#define NP_VCOPY_ROUNDS  1024


static ucs_status_t
np_vcopy_now(uint64_t addr, void *data, size_t len, int to_memory, int is_peers)
{
    if (is_peers) {
        return to_memory ? np_access_write(addr, data, len) :
               np_access_read(data, addr, len);
    }

    if (to_memory) {
        memcpy((void*)addr, data, len);
    } else {
        memcpy(data, (void*)addr, len);
    }
    return UCS_OK;
}

/* A swapper that takes the memory away after np_mapper_is_mapped has said that it
 * is there waits for the end of the copy (np_swap_wait_copies) */
static ucs_status_t
np_vcopy_swapped(uint64_t addr, void *data, size_t len, int to_memory,
                 int is_peers)
{
    ucs_status_t status;
    unsigned round;
    int phase, has_table;

    for (round = 0; round < NP_VCOPY_ROUNDS; ++round) {
        status    = np_mapper_fault_in(addr, len, to_memory);
        has_table = status != UCS_ERR_EXCEEDS_LIMIT;
        if (has_table && (status != UCS_OK)) {
            if (status == UCS_ERR_NO_RESOURCE) {
                continue;
            }
            return status;
        }

        phase = np_swap_copy_begin();
        if (!has_table || np_mapper_is_mapped(addr, len, to_memory)) {
            status = np_vcopy_now(addr, data, len, to_memory, is_peers);
            np_swap_copy_end(phase);
            return status;
        }
        np_swap_copy_end(phase);
    }
    return UCS_ERR_NO_RESOURCE;
}

ucs_status_t np_vcopy(uint64_t addr, void *data, size_t len, int to_memory,
                      int is_peers)
{
    return ucs_likely(!np_swap_range_touches(addr, len)) ?
           np_vcopy_now(addr, data, len, to_memory, is_peers) :
           np_vcopy_swapped(addr, data, len, to_memory, is_peers);
}
