/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A timing model of soft0: what a link, and the registration of memory, cost
 * with a real RNIC. This host's memory hides both.
 *
 * Costs are times at which something will have ended. The side that needs it
 * waits for that time in its progress, and never spins or sleeps for it. Memory
 * whose entries are mapped counts as registered, as it does with nprdma.ko;
 * other memory is registered in chunks, one after the other, since a process
 * registers with one CPU. Off by default.
 */

#ifndef NP_MODEL_H_
#define NP_MODEL_H_

#include "../np.h"
#include "../settings.h"

/** When the first and the last chunk of some memory are registered, np_clock();
 *  0: they were */
typedef struct np_model_times {
    uint64_t first;
    uint64_t last;
} np_model_times_t;

/** Constant once the engine has started */
extern int np_model_is_on;

/** @return UCS_OK; UCS_ERR_INVALID_PARAM (logged). */
ucs_status_t np_model_start(const np_model_config_t *config);

/** Bytes of a transfer of @a len bytes that are best registered at once: whole
 *  pages. In the traditional order, all of it. */
size_t np_model_chunk(size_t len);

/** Does both sides' registration begin at once? */
int np_model_is_overlapped(void);

/** Register memory, not before @a not_before: its pages are brought in and
 *  mapped now, and count as registered later. Any thread. */
np_model_times_t
np_model_register(uint64_t va, uint64_t len, int write, uint64_t not_before);

/** Transfer @a len bytes, which are at @a va of the peer, over this process's
 *  link, not before @a ready; returns when it is free again. Any thread. */
uint64_t np_model_transfer(uint64_t ready, uint64_t va, uint64_t len);

/** One way, nanoseconds */
uint64_t np_model_latency(void);

#endif
