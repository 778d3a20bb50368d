/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What there is once per process.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "engine.h"

#include "clock.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

np_engine_t np_engine;

/* A store is visible to all after less than a microsecond, and a core that is
 * interrupted keeps none */
#define NP_BARRIER_PAUSE_NS 2000000

/* It was refused after the start */
static _Atomic int np_barrier_is_refused;


ucs_status_t np_engine_set(const np_engine_config_t *config)
{
    uint64_t random[2];

    if (getrandom(random, sizeof(random), 0) != sizeof(random)) {
        np_error("getrandom() of %zu bytes failed: %m", sizeof(random));
        return UCS_ERR_IO_ERROR;
    }

    np_engine.config         = *config;
    np_engine.config.trace   = NULL;
    np_engine.id             = random[0] | 1; /* 0 means: not started */
    np_engine.cookie         = random[1];
    np_engine.uid            = geteuid();
    np_engine.has_membarrier =
            syscall(SYS_membarrier,
                    MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
    atomic_store(&np_barrier_is_refused, 0);
    np_engine.pid            = getpid();
    return UCS_OK;
}

int np_engine_is_owner(void)
{
    return np_engine.pid == getpid();
}

/* The kernel refuses what it has promised: others go without fences because of
 * that, and cannot be told in time */
static void np_barrier_pause(void)
{
    const uint64_t end    = np_clock() + NP_BARRIER_PAUSE_NS;
    struct timespec pause = {0};
    uint64_t now;

    if (!atomic_exchange(&np_barrier_is_refused, 1)) {
        np_error("the kernel refuses membarrier now (%m), but has allowed it "
                 "before: each barrier is a pause of %d ms from now on. Let "
                 "the sandbox of this program allow membarrier, or put it on "
                 "before UCX is used",
                 NP_BARRIER_PAUSE_NS / 1000000);
    }
    atomic_thread_fence(memory_order_seq_cst);
    while ((now = np_clock()) < end) {
        pause.tv_nsec = end - now;
        if ((nanosleep(&pause, NULL) != 0) && (errno != EINTR)) {
            sched_yield(); /* a sandbox may refuse that, too */
        }
    }
    atomic_thread_fence(memory_order_seq_cst);
}

void np_barrier_peers(void)
{
    if (!np_engine.has_membarrier) {
        /* then nobody was told to leave its fence out */
        atomic_thread_fence(memory_order_seq_cst);
    } else if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0,
                       0) != 0) {
        np_barrier_pause();
    }
}

int np_engine_has_barrier(void)
{
    return np_engine.has_membarrier && !atomic_load(&np_barrier_is_refused);
}
