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

#include "../../clock.h"
#include "../../engine.h"
#include "../../thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Guards all nics' views, and what follows. Not held while one is built. */
static pthread_mutex_t np_views_lock = PTHREAD_MUTEX_INITIALIZER;

/* One thread builds them, one after the other, since each makes the kernel work
 * on a gigabyte's translations. It ends when there is none left, and is joined
 * before the next one begins. */
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

/* Of a view, or of the table (len 0). Returns why it cannot be: an errno; or
 * 0. */
static int np_views_reg(np_nic_views_t *views, uint32_t what, uint64_t offset,
                        uint64_t len, int access, struct ibv_mr **mr_p)
{
    const np_kmod_region_t *region = views->region;
    const int is_table             = what == NPRDMA_EXPORT_TABLE;
    ucs_status_t status;
    int fd, error;

    fd = np_kmod_export(region, what, offset, len);
    if (fd < 0) {
        return errno;
    }

    status = np_nic_reg_dmabuf(views->nic, fd, 0,
                               is_table ? NP_VIEWS_TABLE(region->len) : len,
                               is_table ? NP_VIEWS_TABLE(region->va) :
                               region->va + offset, access, mr_p);
    error  = errno;
    close(fd);
    return (status == UCS_OK) ? 0 : error;
}

static void np_views_dereg(struct ibv_mr *mr)
{
    if (mr != NULL) {
        np_nic_dereg_dmabuf(mr);
    }
}

static void np_views_drop(np_nic_views_t *views)
{
    unsigned i;

    for (i = 0; i < views->count; ++i) {
        np_views_dereg(views->parts[i].read);
        np_views_dereg(views->parts[i].write);
    }
    np_views_dereg(views->table);
    free(views->parts);
    views->parts = NULL;
    views->table = NULL;
    views->count = 0;
}

static int np_views_reg_part(np_nic_views_t *views, unsigned i)
{
    const uint64_t offset = (uint64_t)i << views->shift;
    const uint64_t len    = ucs_min(UINT64_C(1) << views->shift,
                                    views->region->len - offset);
    int error;

    error = np_views_reg(views, NPRDMA_EXPORT_READ, offset, len,
                         IBV_ACCESS_REMOTE_READ, &views->parts[i].read);
    if (error == 0) {
        error = np_views_reg(views, NPRDMA_EXPORT_WRITE, offset, len,
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                             &views->parts[i].write);
    }
    return error;
}

/* All of it, in parts of @a size */
static int np_views_reg_row(np_nic_views_t *views, uint64_t size)
{
    int error = 0;
    unsigned i;

    views->shift = ucs_ilog2(size);
    views->count = (views->region->len + size - 1) >> views->shift;
    views->parts = calloc(views->count, sizeof(*views->parts));
    if (views->parts == NULL) {
        views->count = 0;
        return ENOMEM;
    }

    for (i = 0; (i < views->count) && (error == 0); ++i) {
        error = np_views_reg_part(views, i);
    }
    if (error == 0) {
        error = np_views_reg(views, NPRDMA_EXPORT_TABLE, 0, 0,
                             IBV_ACCESS_REMOTE_READ, &views->table);
    }
    if (error != 0) {
        np_views_drop(views);
    }
    return error;
}

/* So much it takes, for certain; @a larger: why not more */
static void np_views_size_is(np_nic_t *nic, uint64_t size, int larger)
{
    nic->has_view_size = 1;
    if (larger != 0) {
        np_diag("%s takes no memory region of %zu MiB on a dma-buf (%s: %s): "
                "views of memory are rows of regions of %zu MiB", nic->name,
                (size_t)((2 * size) >> 20), np_dmabuf_error(larger)->name,
                np_dmabuf_error(larger)->cause, (size_t)(size >> 20));
    }
}

/* In the largest parts that the device takes, which are found out with the
 * first row. Returns why it cannot be, and what follows from that. */
static int np_views_build_row(np_nic_views_t *views, np_dmabuf_then_t *then_p)
{
    np_nic_t *nic = views->nic;
    uint64_t size = np_nic_view_size(nic);
    int error, larger = 0;

    while ((error = np_views_reg_row(views, size)) != 0) {
        *then_p = np_dmabuf_error(error)->then;
        if (*then_p != NP_DMABUF_SMALLER) {
            return error;
        }
        if (nic->has_view_size) {
            *then_p = NP_DMABUF_OTHERS; /* it is not the size */
            return error;
        }
        if (size == NP_KMOD_PART_MIN) {
            *then_p = NP_DMABUF_NEVER;
            return error;
        }

        larger = error;
        size  /= 2;
        atomic_store_explicit(&nic->view_size, size, memory_order_relaxed);
    }

    if (!nic->has_view_size && (views->region->len >= size)) {
        np_views_size_is(nic, size, larger);
    }
    return 0;
}

static void
np_views_say(const np_nic_views_t *views, int number, np_dmabuf_then_t then)
{
    const np_dmabuf_error_t *error = np_dmabuf_error(number);
    const char *name               = views->nic->name;
    char text[32];

    if (error->error == 0) {
        snprintf(text, sizeof(text), "error %d", number);
    } else {
        snprintf(text, sizeof(text), "%s", error->name);
    }

    switch (then) {
    case NP_DMABUF_NEVER:
        np_diag("%s cannot register dma-bufs (%s): %s. Transfers by it are "
                "two-sided", name, text, error->cause);
        break;
    case NP_DMABUF_LATER:
        np_warn("%s: no views of the memory at %#lx now (%s): %s. Transfers to "
                "it are two-sided until they can be had", name,
                views->region->va, text, error->cause);
        break;
    default:
        np_warn("%s: no views of the memory at %#lx (%s): %s. Transfers to it "
                "are two-sided", name, views->region->va, text, error->cause);
        break;
    }
}

static np_views_state_t np_views_refuse(np_nic_views_t *views,
                                        np_dmabuf_then_t then)
{
    if (then == NP_DMABUF_LATER) {
        views->delay = (views->delay == 0) ? NP_VIEWS_RETRY_MIN :
                       ucs_min(2 * views->delay, NP_VIEWS_RETRY_MAX);
        views->again = np_clock_coarse() + views->delay;
        return NP_VIEWS_LATER;
    }

    views->nic->no_views |= then == NP_DMABUF_NEVER;
    return NP_VIEWS_REFUSED;
}

static np_views_state_t np_views_build(np_nic_views_t *views)
{
    np_dmabuf_then_t then;
    ucs_status_t status;
    int error;

    if (views->nic->no_views) {
        return NP_VIEWS_REFUSED;
    }

    status = np_kmod_region_get(views->arena, &views->region);
    if (status != UCS_OK) { /* which it has said */
        return np_views_refuse(views, (status == UCS_ERR_NO_MEMORY) ?
                               NP_DMABUF_LATER :
                               (status == UCS_ERR_INVALID_ADDR) ?
                               NP_DMABUF_OTHERS : NP_DMABUF_NEVER);
    }

    error = np_views_build_row(views, &then);
    if (error == 0) {
        return NP_VIEWS_READY;
    }

    if ((then != NP_DMABUF_LATER) || (views->delay == 0)) {
        np_views_say(views, error, then); /* once, however often it is tried */
    }
    return np_views_refuse(views, then);
}

static void np_views_build_one(np_nic_views_t *views)
{
    const int is_first     = views->delay == 0;
    np_views_state_t state = np_views_build(views);

    if ((state != NP_VIEWS_READY) && is_first &&
        (np_engine.config.mapper == NP_MAPPER_KMOD)) {
        np_warn("UCX_NPRDMA_MAPPER=kmod: %s reaches no views of memory: "
                "transfers are two-sided. 'nprdma_info' says why",
                views->nic->name);
    }

    ucs_debug("nprdma: %s: views of arena %#x: state %d, %u regions",
              views->nic->name, views->arena, state, views->count);
    atomic_store_explicit(&views->state, state, memory_order_release);
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

/* They are to be built */
static void np_views_queue_locked(np_nic_views_t *views)
{
    np_assert_locked(&np_views_lock);
    atomic_store_explicit(&views->state, NP_VIEWS_BUILDING,
                          memory_order_relaxed);
    ucs_list_add_tail(&np_views_queue, &views->build);
    if (np_views_is_building) {
        return;
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
        atomic_store_explicit(&views->state, NP_VIEWS_REFUSED,
                              memory_order_relaxed);
    }
}

static void np_views_again_locked(np_nic_views_t *views)
{
    if ((np_views_state(views) == NP_VIEWS_LATER) &&
        (np_clock_coarse() >= views->again)) {
        np_views_queue_locked(views);
    }
}

void np_views_again(np_nic_views_t *views)
{
    if (np_views_state(views) == NP_VIEWS_LATER) {
        pthread_mutex_lock(&np_views_lock);
        np_views_again_locked(views);
        pthread_mutex_unlock(&np_views_lock);
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
    ucs_list_add_tail(&nic->views, &views->list);
    np_views_queue_locked(views);
    return views;
}

np_nic_views_t *np_views_get(np_nic_t *nic, uint32_t arena)
{
    np_nic_views_t *views;

    pthread_mutex_lock(&np_views_lock);
    ucs_list_for_each(views, &nic->views, list) {
        if ((views->arena == arena) && (views->engine_id == np_engine.id)) {
            np_views_again_locked(views);
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
