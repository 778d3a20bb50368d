/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a target does for its peers.
 */

#ifndef NP_SOFT_SERVE_H_
#define NP_SOFT_SERVE_H_

#include "../../dev/soft/peer.h"

/** np_port_ops_t::serve */
ucs_status_t
np_serve_carried(np_peer_t *peer, np_dir_t dir, uint64_t addr, uint8_t *area,
                 uint32_t len, uint32_t *done);

/** np_port_ops_t::lend */
ucs_status_t
np_serve_lent(np_dir_t dir, uint64_t addr, uint8_t *area, uint32_t len,
              int is_past, np_lent_range_t **kept);

/** np_port_ops_t::execute */
void np_serve_job(const np_job_t *job, np_mover_t mover, np_stats_t *stats);

#endif
