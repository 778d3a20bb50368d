/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a target does with what messages over queue pairs have brought.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "rserve.h"

#include "../../mem/atomic.h"
#include "../../mem/space.h"


ucs_status_t
np_rserve_put(np_stage_t *stage, uint64_t addr, const void *data, size_t len,
              int is_patient, uint64_t *va)
{
    np_iov_t memory = {.len = len};
    ucs_status_t status;

    status = np_space_resolve(addr, len, NP_RIGHT_WRITE, va);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    memory.base = (void*)*va;
    return np_stage_copy(stage, &memory, 1, (void*)data, 1, is_patient);
}

ucs_status_t np_rserve_atomic(const np_atomic_t *request, int is_patient,
                              uint64_t *result, uint64_t *va)
{
    ucs_status_t status;

    status = np_atomic_execute(request, NULL, is_patient, result);
    if (ucs_unlikely(status == UCS_ERR_NO_RESOURCE)) {
        /* if it may not be reached any more, the next try finds that out */
        (void)np_space_resolve(request->addr, request->size, NP_RIGHT_BOTH, va);
    }
    return status;
}
