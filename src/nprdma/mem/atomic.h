/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Atomics that a peer asks for, on our own memory: the CPU executes them, on
 * the very word.
 */

#ifndef NP_MEM_ATOMIC_H_
#define NP_MEM_ATOMIC_H_

#include "../np.h"

/** What a device does around each touch of the memory, so that a thread that
 *  takes a page away can wait for it */
typedef struct np_atomic_unit {
    /** Returns 0 if nothing may be touched any more; end is called in any
     *  case */
    int (*begin)(struct np_atomic_unit *self);
    void (*end)(struct np_atomic_unit *self);
} np_atomic_unit_t;

/**
 * Execute a peer's atomic here, once.
 *
 * @param [in]  unit       NULL: a thread that takes a page away need not wait.
 * @param [in]  may_sleep  In its page; else the page must be there.
 * @param [out] result     The value before.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM; UCS_ERR_INVALID_ADDR;
 *         UCS_ERR_NO_RESOURCE: not executed: the page goes again each time, or
 *         it is not there and this must not sleep; UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_atomic_execute(const np_atomic_t *request,
                               np_atomic_unit_t *unit, int may_sleep,
                               uint64_t *result);

#endif
