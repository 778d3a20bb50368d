/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The engine: what there is once per process. Started by the first user
 * (start.h), kept until the process ends.
 */

#ifndef NP_ENGINE_H_
#define NP_ENGINE_H_

#include "np.h"
#include "settings.h"

#include <sys/types.h>

typedef struct np_engine {
    np_engine_config_t config;
    uint64_t           id;         /**< random: tells this life of this pid */
    uint64_t           cookie;     /**< random: told to peers by address only */
    pid_t              pid;        /**< a forked child is not the owner */
    uid_t              uid;
    int                has_membarrier; /**< at the start: see
                                            np_barrier_peers */
} np_engine_t;

/** Valid once np_engine_init (start.h) has succeeded; constant after that */
extern np_engine_t np_engine;

/**
 * Make this process an engine with these settings: a new one, also in a forked
 * child. For start.c, under its lock.
 *
 * @return UCS_OK; UCS_ERR_IO_ERROR if the kernel gave no random bytes (logged).
 */
ucs_status_t np_engine_set(const np_engine_config_t *config);

/** Is this the process that started the engine, and not a forked child? */
int np_engine_is_owner(void);

/**
 * Full barrier in every process that has told this one that it has this
 * barrier, too, and in this one: what they stored before is visible, and what
 * they load after is fresh. Lets senders do without a fence per message. Costs
 * the caller some microseconds.
 *
 * Where the kernel has refused it from the beginning, it is a fence of this
 * thread, and all others need their own. Where the kernel refuses it later (a
 * sandbox that a program has put on itself) it is a pause of milliseconds: no
 * store waits that long in a core.
 */
void np_barrier_peers(void);

/** Does the kernel let this process have that barrier? Told to peers when
 *  connecting: if one end is without it, both need fences. */
int np_engine_has_barrier(void);

#endif
