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
#include "thread.h"
#include "trace.h"
#include "mem/model.h"
#include "mem/table.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

const char *np_peer_users_names[] = {
    [NP_PEER_USERS_SAME] = "same",
    [NP_PEER_USERS_ANY]  = "any",
    [NP_PEER_USERS_LAST] = NULL
};

const char *np_single_copy_names[] = {
    [NP_SINGLE_COPY_AUTO] = "auto",
    [NP_SINGLE_COPY_VM]   = "vm",
    [NP_SINGLE_COPY_OFF]  = "off",
    [NP_SINGLE_COPY_LAST] = NULL
};

const char *np_service_mode_names[] = {
    [NP_SERVICE_ADAPTIVE] = "adaptive",
    [NP_SERVICE_POLL]     = "poll",
    [NP_SERVICE_EVENT]    = "event",
    [NP_SERVICE_OFF]      = "off",
    [NP_SERVICE_LAST]     = NULL
};

const char *np_tlb_mode_names[] = {
    [NP_TLB_OFF]   = "off",
    [NP_TLB_PAGE]  = "page",
    [NP_TLB_RANGE] = "range",
    [NP_TLB_LAST]  = NULL
};

const char *np_write_check_names[] = {
    [NP_WRITE_CHECK_AUTO]     = "auto",
    [NP_WRITE_CHECK_ENTRIES]  = "entries",
    [NP_WRITE_CHECK_READBACK] = "readback",
    [NP_WRITE_CHECK_LAST]     = NULL
};

const char *np_fault_mode_names[] = {
    [NP_FAULT_MODE_REVERSE] = "reverse",
    [NP_FAULT_MODE_RETRY]   = "retry",
    [NP_FAULT_MODE_LAST]    = NULL
};

const char *np_order_names[] = {
    [NP_ORDER_OVERLAP] = "overlap",
    [NP_ORDER_STRICT]  = "strict",
    [NP_ORDER_RELAXED] = "relaxed",
    [NP_ORDER_LAST]    = NULL
};

const char *np_intra_node_names[] = {
    [NP_INTRA_NODE_SOFT]  = "soft",
    [NP_INTRA_NODE_VERBS] = "verbs",
    [NP_INTRA_NODE_LAST]  = NULL
};

const char *np_mr_scope_names[] = {
    [NP_MR_SCOPE_ARENA] = "arena",
    [NP_MR_SCOPE_EXACT] = "exact",
    [NP_MR_SCOPE_LAST]  = NULL
};

const char *np_mapper_mode_names[] = {
    [NP_MAPPER_AUTO] = "auto",
    [NP_MAPPER_KMOD] = "kmod",
    [NP_MAPPER_USER] = "user",
    [NP_MAPPER_LAST] = NULL
};

const char *np_prepare_mode_names[] = {
    [NP_PREPARE_MODE_OFF]  = "off",
    [NP_PREPARE_MODE_RECV] = "recv",
    [NP_PREPARE_MODE_SEND] = "send",
    [NP_PREPARE_MODE_BOTH] = "both",
    [NP_PREPARE_MODE_LAST] = NULL
};

const char *np_model_order_names[] = {
    [NP_MODEL_OFF]        = "off",
    [NP_MODEL_OVERLAP]    = "overlap",
    [NP_MODEL_SEQUENTIAL] = "sequential",
    [NP_MODEL_CACHED]     = "cached",
    [NP_MODEL_LAST]       = NULL
};

np_engine_t np_engine;

/* A store is visible to all after less than a microsecond, and a core that is
 * interrupted keeps none */
#define NP_BARRIER_PAUSE_NS 2000000

/* It was refused after the start */
static _Atomic int np_barrier_is_refused;

/* Guards the start of the engine */
static pthread_mutex_t np_engine_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_once_t np_engine_once = PTHREAD_ONCE_INIT;


/* A child starts its own, whoever was at it in the parent */
static void np_engine_after_fork(void)
{
    pthread_mutex_init(&np_engine_lock, NULL);
}

static void np_engine_prepare_forks(void)
{
    np_at_fork(NULL, NULL, np_engine_after_fork);
    (void)np_table_prepare_forks(); /* who makes tables reports what has
                                       failed */
}

static ucs_status_t np_engine_start(const np_engine_config_t *config)
{
    uint64_t random[2];
    ucs_status_t status;

    status = np_trace_start(config->trace);
    if (status != UCS_OK) {
        return status;
    }

    status = np_model_start(&config->model);
    if (status != UCS_OK) {
        return status;
    }

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

static int np_engine_is_same_model(const np_model_config_t *a,
                                   const np_model_config_t *b)
{
    return (a->order == b->order) && (a->rate == b->rate) &&
           (a->latency == b->latency) && (a->reg == b->reg) &&
           (a->reg_rate == b->reg_rate) && (a->slowdown == b->slowdown);
}

static ucs_status_t np_engine_compare(const np_engine_config_t *config)
{
    const np_engine_config_t *first = &np_engine.config;

    if ((config->peer_users != first->peer_users) ||
        (config->single_copy != first->single_copy) ||
        (config->share_min != first->share_min) ||
        (config->share_chunk != first->share_chunk) ||
        (config->write_check != first->write_check) ||
        (config->fault_mode != first->fault_mode) ||
        (config->order != first->order) ||
        (config->mr_scope != first->mr_scope) ||
        (config->inline_max != first->inline_max) ||
        (config->service != first->service) ||
        (config->intra_node != first->intra_node) ||
        (config->mapper != first->mapper) ||
        (config->prepare != first->prepare) ||
        (config->prepare_min != first->prepare_min) ||
        (config->prepare_max != first->prepare_max) ||
        (config->tlb != first->tlb) ||
        (config->tlb_miss != first->tlb_miss) ||
        !np_engine_is_same_model(&config->model, &first->model)) {
        np_error("a memory domain with other UCX_NPRDMA_ settings (all but those "
                 "of rings and of RDMA devices) than the first one of this process: give all of "
                 "them the same values");
        return UCS_ERR_INVALID_PARAM;
    }

    return UCS_OK;
}

ucs_status_t np_engine_init(const np_engine_config_t *config)
{
    ucs_status_t status;

    pthread_once(&np_engine_once, np_engine_prepare_forks);
    pthread_mutex_lock(&np_engine_lock);
    if (np_engine_is_owner()) {
        status = np_engine_compare(config);
    } else {
        /* first use, or first use in a forked child, which is a new peer */
        status = np_engine_start(config);
    }
    pthread_mutex_unlock(&np_engine_lock);

    return status;
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
                 "before: each barrier is a pause of %d ms from now on. Let the "
                 "sandbox of this program allow membarrier, or put it on before "
                 "UCX is used", NP_BARRIER_PAUSE_NS / 1000000);
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
