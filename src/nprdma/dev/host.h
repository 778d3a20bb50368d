/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which processes may reach each other through soft0: the same boot of the same
 * host, the same network namespace (where the sockets' names live), and users
 * that agree.
 */

#ifndef NP_SOFT_HOST_H_
#define NP_SOFT_HOST_H_

#include "../np.h"

/** What a device address says */
typedef struct np_host_addr {
    uint64_t host_id;   /**< hash of boot id and network namespace */
    uint32_t uid;
    uint32_t version;   /**< NP_WIRE_VERSION */
} __attribute__((packed)) np_host_addr_t;

/** Fill in our own address; the engine must run */
void np_host_addr_get(np_host_addr_t *addr);

/** Can a peer with this address be reached? Says once why not, if the user can
 *  change it. */
int np_host_is_reachable(const np_host_addr_t *addr);

/** Start time of a process in clock ticks since boot; 0: that cannot be seen */
uint64_t np_host_proc_start_time(int pid);

/** Of this process */
uint64_t np_host_own_start_time(void);

/** Does a process that has begun at that time still run? 1 also if that cannot
 *  be seen. */
int np_host_proc_runs(int pid, uint64_t start_time);

/** Is a process, or one of its threads, stopped, or asleep in the kernel where
 *  no signal reaches it? 0 also if that cannot be seen. */
int np_host_proc_is_stopped(int pid);

#endif
