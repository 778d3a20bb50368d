/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Atomics: by the CPU, on the very word, whoever executes them: the initiator
 * where it has the memory mapped, else the target.
 */

#ifndef NP_ATOMIC_H_
#define NP_ATOMIC_H_

#include "sop.h"

/** np_way_ops_t::atomic */
ucs_status_t np_atomic_post(np_flight_t *flight, np_key_t *key,
                            const np_atomic_t *request, void *result,
                            void *comp);

/** Its answer has come */
void np_atomic_answered(np_link_t *link, np_sop_t *op);

#endif
