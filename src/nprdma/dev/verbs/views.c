/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Views as memory regions.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "views.h"

#include "dmabuf.h"

#include "../../engine.h"
#include "../../thread.h"

#include <stdlib.h>
#include <unistd.h>

/* Guards all nics' views, and what follows. Not held while one is built. */
static pthread_mutex_t np_views_lock = PTHREAD_MUTEX_INITIALIZER;

/* One thread builds them, one after the other, since each makes the kernel work on
 * a gigabyte's translations. It ends when there is none left, and is joined before
 * the next one begins. */
static UCS_LIST_HEAD(np_views_queue);
static pthread_cond_t np_views_built = PTHREAD_COND_INITIALIZER; /* one more */
static pthread_t np_views_thread;
static int np_views_is_building;   /* the thread has not said that it ends */
static int np_views_has_thread;    /* it is to be joined */


void np_views_after_fork(void)
{
    pthread_mutex_init(&np_views_lock, NULL);
    pthread_cond_init(&np_views_built, NULL);
    ucs_list_head_init(&np_views_queue);
    np_views_is_building = 0;
    np_views_has_thread  = 0;
}

static ucs_status_t
np_views_reg(np_nic_views_t *views, uint32_t what, uint64_t iova, size_t len,
             int access, struct ibv_mr **mr_p)
{
    ucs_status_t status;
    int fd;

    fd = np_kmod_export(views->region, what);
    if (fd < 0) {
        np_warn("nprdma.ko gives no view of the memory at %#lx: %m",
                views->region->va);
        return UCS_ERR_NO_MEMORY;
    }

    status = np_nic_reg_dmabuf(views->nic, fd, 0, len, iova, access, mr_p);
    close(fd);
    return status;
}

static void np_views_drop(struct ibv_mr *mr)
{
    if (mr != NULL) {
        np_nic_dereg_dmabuf(mr);
    }
}

static ucs_status_t np_views_build(np_nic_views_t *views)
{
    np_kmod_region_t *region;
    ucs_status_t status;

    status = np_kmod_region_get(views->arena, &region);
    if (status != UCS_OK) {
        return status;
    }

    views->region = region;
    status = np_views_reg(views, NPRDMA_EXPORT_READ, region->va, region->len,
                          IBV_ACCESS_REMOTE_READ, &views->read);
    if (status == UCS_OK) {
        status = np_views_reg(views, NPRDMA_EXPORT_WRITE, region->va,
                              region->len, IBV_ACCESS_LOCAL_WRITE |
                              IBV_ACCESS_REMOTE_WRITE, &views->write);
    }
    if (status == UCS_OK) {
        status = np_views_reg(views, NPRDMA_EXPORT_TABLE,
                              NP_VIEWS_TABLE(region->va),
                              NP_VIEWS_TABLE(region->len),
                              IBV_ACCESS_REMOTE_READ, &views->table);
    }
    if (status != UCS_OK) {
        np_views_drop(views->write);
        np_views_drop(views->read);
    }
    return status;
}

static void np_views_build_one(np_nic_views_t *views)
{
    ucs_status_t status;

    if (views->nic->no_views) {
        status = UCS_ERR_UNSUPPORTED; /* its driver cannot */
    } else {
        status = np_views_build(views);
        views->nic->no_views = (status == UCS_ERR_UNSUPPORTED) ||
                               (status == UCS_ERR_NO_DEVICE);
    }
    if ((status != UCS_OK) && (np_engine.config.mapper == NP_MAPPER_KMOD)) {
        np_warn("UCX_NPRDMA_MAPPER=kmod: %s reaches no views of memory: "
                "transfers are two-sided. 'nprdma_info' says why",
                views->nic->name);
    }

    ucs_debug("nprdma: %s: views of arena %#x: %s", views->nic->name,
              views->arena, ucs_status_string(status));
    atomic_store_explicit(&views->state, (status == UCS_OK) ? NP_VIEWS_READY :
                          NP_VIEWS_REFUSED, memory_order_release);
}

static void *np_views_main(void *arg)
{
    np_nic_views_t *views;

    (void)arg;
    pthread_mutex_lock(&np_views_lock);
    while (!ucs_list_is_empty(&np_views_queue)) {
        views = ucs_list_extract_head(&np_views_queue, np_nic_views_t, build);
        pthread_mutex_unlock(&np_views_lock);
        np_views_build_one(views);
        pthread_mutex_lock(&np_views_lock);
        pthread_cond_broadcast(&np_views_built);
    }
    np_views_is_building = 0;
    pthread_mutex_unlock(&np_views_lock);
    return NULL;
}

/* One that has said that it ends needs the lock no more */
static void np_views_join_locked(void)
{
    if (np_views_has_thread && !np_views_is_building) {
        pthread_join(np_views_thread, NULL);
        np_views_has_thread = 0;
    }
}

static np_nic_views_t *np_views_make_locked(np_nic_t *nic, uint32_t arena)
{
    np_nic_views_t *views;

    np_assert_locked(&np_views_lock);
    views = calloc(1, sizeof(*views));
    if (views == NULL) {
        return NULL;
    }

    views->nic       = nic;
    views->arena     = arena;
    views->engine_id = np_engine.id;
    atomic_init(&views->state, NP_VIEWS_BUILDING);
    ucs_list_add_tail(&nic->views, &views->list);
    ucs_list_add_tail(&np_views_queue, &views->build);
    if (np_views_is_building) {
        return views;
    }

    np_views_join_locked();
    if (np_thread_start(&np_views_thread, "nprdma-views", np_views_main,
                        NULL) == 0) {
        np_views_is_building = 1;
        np_views_has_thread  = 1;
    } else {
        np_warn("no thread for views of memory: transfers to it need the "
                "target's CPU. Check 'ulimit -u'");
        ucs_list_del(&views->build);
        atomic_init(&views->state, NP_VIEWS_REFUSED);
    }
    return views;
}

np_nic_views_t *np_views_get(np_nic_t *nic, uint32_t arena)
{
    np_nic_views_t *views;

    pthread_mutex_lock(&np_views_lock);
    ucs_list_for_each(views, &nic->views, list) {
        if ((views->arena == arena) && (views->engine_id == np_engine.id)) {
            goto out;
        }
    }
    views = np_views_make_locked(nic, arena);
out:
    pthread_mutex_unlock(&np_views_lock);
    return views;
}

static int np_views_are_built_locked(const np_nic_t *nic)
{
    const np_nic_views_t *views;

    ucs_list_for_each(views, &nic->views, list) {
        if ((views->engine_id == np_engine.id) &&
            (np_views_state(views) == NP_VIEWS_BUILDING)) {
            return 0;
        }
    }
    return 1;
}

void np_views_wait(np_nic_t *nic)
{
    pthread_mutex_lock(&np_views_lock);
    while (!np_views_are_built_locked(nic)) {
        pthread_cond_wait(&np_views_built, &np_views_lock);
    }
    np_views_join_locked();
    pthread_mutex_unlock(&np_views_lock);
}
