/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a target does with what messages over queue pairs have brought. A peer
 * is trusted with what it was given: every address is checked here.
 */

#ifndef NP_RSERVE_H_
#define NP_RSERVE_H_

#include "../../mem/stage.h"

/** Execute a put that a message has brought: np_vport_ops_t::put.
 *  @param [out] va  Where it went; unset if the peer may not reach that. */
ucs_status_t
np_rserve_put(np_stage_t *stage, uint64_t addr, const void *data, size_t len,
              int is_patient, uint64_t *va);

/** Execute an atomic: np_vport_ops_t::atomic */
ucs_status_t np_rserve_atomic(const np_atomic_t *request, int is_patient,
                              uint64_t *result, uint64_t *va);

#endif
