/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Atomics: by the CPU, on the very word, whoever executes them: the initiator
 * where it has the memory mapped, else the target.
 */

#ifndef NP_ATOMIC_H_
#define NP_ATOMIC_H_

#include "sop.h"

/**
 * Execute an atomic at the target.
 *
 * @param [in]  size     4 or 8 bytes; @a addr is aligned to it.
 * @param [in]  value    Operand, or the new value.
 * @param [in]  compare  CSWAP: the expected value.
 * @param [out] result   The value before; NULL: not wanted.
 * @param [in]  comp     Completed if UCS_INPROGRESS is returned; may be NULL.
 *
 * @return as np_rma_move; without @a result and @a comp, UCS_OK also if it is
 *         only on its way.
 */
ucs_status_t np_atomic_post(np_link_t *link, np_key_t *key, np_atomic_op_t op,
                            size_t size, uint64_t value, uint64_t compare,
                            uint64_t addr, void *result, void *comp);

/** Its answer has come */
void np_atomic_answered(np_link_t *link, np_sop_t *op);

#endif
