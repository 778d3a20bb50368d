/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How the engine starts.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "start.h"

#include "thread.h"
#include "trace.h"
#include "mem/arena.h"
#include "mem/bypass.h"
#include "mem/lent.h"
#include "mem/model.h"
#include "mem/table.h"

#include <pthread.h>

/* Guards the start */
static pthread_mutex_t np_start_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_once_t np_start_once = PTHREAD_ONCE_INIT;


/* A child starts its own engine, whatever thread of its parent had the lock */
static void np_start_after_fork(void)
{
    pthread_mutex_init(&np_start_lock, NULL);
}

static void np_start_first(void)
{
    np_at_fork(NULL, NULL, np_start_after_fork);
    /* should it fail, the first table says so */
    (void)np_table_prepare_forks();
    np_lent_start();
    np_arenas_start();
    np_bypass_start();
}

static ucs_status_t np_start(const np_engine_config_t *config)
{
    ucs_status_t status;

    status = np_trace_start(config->trace);
    if (status != UCS_OK) {
        return status;
    }

    status = np_tlb_config_check(&config->tlb, config->peer_users);
    if (status != UCS_OK) {
        return status;
    }

    status = np_model_start(&config->model);
    if (status != UCS_OK) {
        return status;
    }

    return np_engine_set(config);
}

static ucs_status_t np_start_again(const np_engine_config_t *config)
{
    if (np_engine_config_is_same(config, &np_engine.config)) {
        return UCS_OK;
    }

    np_error("a memory domain with other UCX_NPRDMA_ settings (all but those "
             "of rings and of RDMA devices) than the first one of this "
             "process: give all of them the same values");
    return UCS_ERR_INVALID_PARAM;
}

ucs_status_t np_engine_init(const np_engine_config_t *config)
{
    ucs_status_t status;

    pthread_once(&np_start_once, np_start_first);
    pthread_mutex_lock(&np_start_lock);
    /* first use, or first use in a forked child, which is a new peer */
    status = np_engine_is_owner() ? np_start_again(config) : np_start(config);
    pthread_mutex_unlock(&np_start_lock);
    return status;
}
