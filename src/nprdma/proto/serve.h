/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a target does for its peers.
 */

#ifndef NP_SERVE_H_
#define NP_SERVE_H_

#include "../dev/soft/peer.h"
#include "../mem/stage.h"

/** np_port_ops_t::serve */
ucs_status_t
np_serve_carried(np_peer_t *peer, np_dir_t dir, uint64_t addr, uint8_t *area,
                 uint32_t len, uint32_t *done);

/** np_vport_ops_t */
ucs_status_t
np_serve_put(np_stage_t *stage, uint64_t addr, const void *data, size_t len,
             int is_patient, uint64_t *va);
ucs_status_t np_serve_atomic(const np_atomic_t *request, int is_patient,
                             uint64_t *result, uint64_t *va);

/** np_port_ops_t::execute */
void np_serve_job(const np_job_t *job, np_mover_t mover, np_stats_t *stats);

#endif
