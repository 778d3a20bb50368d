/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The process at the other end of a connection: that one, and none that gets
 * its pid later. Its socket tells nothing of its life, for a forked child may
 * keep that open; a pidfd does.
 */

#ifndef NP_SOFT_PROCESS_H_
#define NP_SOFT_PROCESS_H_

#include "../../clock.h"
#include "../../np.h"

#include <sys/types.h>

/** ns for which a process that was seen to run counts as running. Its end is an
 *  event, which comes at once; this bounds how long a program that looks at no
 *  events may use a pid that another process has got. */
#ifndef NP_PROCESS_FRESH
#  define NP_PROCESS_FRESH 1000000ull
#endif

/** Owner: the link or peer that it is part of. Constant, but for what is
 *  atomic: any thread. */
typedef struct np_process {
    pid_t            pid;         /**< 0: in no pid namespace that we see */
    uid_t            uid;
    int              fd;          /**< its pidfd; -1: the kernel gives none */
    uint64_t         start_time;  /**< as np_host_proc_start_time: where there
                                       is no pidfd */
    _Atomic int      has_ended;
    _Atomic uint64_t seen_at;     /**< np_clock() when it was seen to run */
} np_process_t;

/** None yet; np_process_close is harmless */
void np_process_init(np_process_t *process);

/**
 * Take hold, or take hold again, of the process that has connected through @a
 * sock, or listened for it.
 *
 * @param [in] start_time  When it says that it has begun; 0: it cannot say. Is
 *                         needed where the kernel gives no pidfd of a socket's
 *                         other end (Linux 6.5).
 *
 * @return UCS_OK; UCS_ERR_CONNECTION_RESET: it has ended;
 *         UCS_ERR_EXCEEDS_LIMIT: no descriptor is left (logged);
 *         UCS_ERR_IO_ERROR (logged).
 */
ucs_status_t np_process_open(np_process_t *process, int sock,
                             uint64_t start_time);

void np_process_close(np_process_t *process);

/** Does it run, now? 1 also if that cannot be seen. */
int np_process_runs(np_process_t *process);

/** Is its pid still its own? Asks the kernel once in NP_PROCESS_FRESH. */
static inline int np_process_has_pid(np_process_t *process)
{
    return ((np_clock() - atomic_load_explicit(&process->seen_at,
                                               memory_order_relaxed)) <
            NP_PROCESS_FRESH) || np_process_runs(process);
}

#endif
