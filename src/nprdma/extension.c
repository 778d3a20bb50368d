/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of functions for libnprdma.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "extension.h"

#include "engine.h"
#include "stats.h"
#include "thread_flags.h"
#include "mem/arena.h"
#include "mem/file.h"
#include "mem/mapper.h"
#include "mem/prepare.h"
#include "mem/region.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The program's structure is the engine's list, in its order */
#define NP_EXTENSION_SAME(_name, _text) \
    _Static_assert(offsetof(nprdma_counters_t, _name) == \
                   offsetof(np_stats_t, _name), \
                   "nprdma.h: add the counter " #_name " at the end");
NP_STATS_LIST(NP_EXTENSION_SAME)
#undef NP_EXTENSION_SAME
_Static_assert(sizeof(nprdma_counters_t) == offsetof(np_stats_t, is_used),
               "nprdma.h has a counter that stats.h has not");

/** A swapper of the program */
typedef struct np_extension_swapper {
    ucs_list_link_t  list;
    uint64_t         va;
    uint64_t         len;
    np_swapper_t     super; /* what the mapper knows */
    nprdma_swapper_t user;
} np_extension_swapper_t;

/* Swappers; the lock guards the list, no other lock is taken under it */
static UCS_LIST_HEAD(np_extension_swappers);
static pthread_mutex_t np_extension_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t np_extension_once  = PTHREAD_ONCE_INIT;

/* What all threads of the program count, hence with atomic increments; NULL: no
 * use yet */
static np_stats_t *_Atomic np_extension_stats;


static int np_extension_errno(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return 0;
    case UCS_ERR_INVALID_PARAM:
        return -EINVAL;
    case UCS_ERR_INVALID_ADDR:
        return -EFAULT;
    case UCS_ERR_NO_MEMORY:
        return -ENOMEM;
    case UCS_ERR_NO_RESOURCE:
        return -EAGAIN;
    case UCS_ERR_EXCEEDS_LIMIT:
        return -ENOSPC;
    case UCS_ERR_ALREADY_EXISTS:
        return -EEXIST;
    case UCS_ERR_NO_ELEM:
        return -ENOENT;
    default:
        return -EIO;
    }
}

/* A forked child shares the tables of its parent until it has its own engine:
 * it must not change them, and nobody reaches its memory */
static int np_extension_is_running(void)
{
    return np_engine_is_owner();
}

static int np_extension_is_range(const void *va, size_t len)
{
    np_arenas_t arenas;

    return np_arenas_of((uintptr_t)va, len, &arenas) == UCS_OK;
}

static void np_extension_fork_begin(void)
{
    pthread_mutex_lock(&np_extension_lock);
}

static void np_extension_fork_end(void)
{
    pthread_mutex_unlock(&np_extension_lock);
}

/* The mapper of a child knows no swapper either, and its counters are others */
static void np_extension_fork_child(void)
{
    atomic_store_explicit(&np_extension_stats, NULL, memory_order_relaxed);
    ucs_list_head_init(&np_extension_swappers);
    pthread_mutex_unlock(&np_extension_lock);
}

static void np_extension_init(void)
{
    if (pthread_atfork(np_extension_fork_begin, np_extension_fork_end,
                       np_extension_fork_child) != 0) {
        np_warn("no memory for a fork handler: a forked child must not use "
                "libnprdma");
    }
}

static void np_extension_count_swap_out(void)
{
    np_stats_t *stats = atomic_load_explicit(&np_extension_stats,
                                             memory_order_acquire);
    np_stats_t *none  = NULL;

    if (stats == NULL) {
        stats = np_stats_get();
        if (!atomic_compare_exchange_strong(&np_extension_stats, &none,
                                            stats)) {
            np_stats_put(stats);
            stats = none;
        }
    }

    atomic_fetch_add_explicit(&stats->swap_outs, 1, memory_order_relaxed);
}

static int np_extension_notify_swap_out(void *va, size_t len)
{
    if (!np_extension_is_range(va, len)) {
        return -EINVAL;
    }

    if (np_extension_is_running() && (len > 0)) {
        pthread_once(&np_extension_once, np_extension_init);
        np_extension_count_swap_out();
        np_mapper_set_paged(1);
        np_mapper_unmap((uintptr_t)va, len);
    }
    return 0;
}

static int np_extension_notify_swap_in(void *va, size_t len)
{
    unsigned was = np_thread_flags();
    ucs_status_t status;

    if (!np_extension_is_range(va, len)) {
        return -EINVAL;
    }

    if (!np_extension_is_running() || (len == 0)) {
        return 0;
    }

    np_mapper_set_paged(1);
    (void)np_thread_set_flags(NP_THREAD_TELLS, NP_THREAD_TELLS);
    status = np_mapper_fault_in((uintptr_t)va, len, 1);
    if (status == UCS_ERR_INVALID_ADDR) {
        status = np_mapper_fault_in((uintptr_t)va, len, 0);
    }
    (void)np_thread_set_flags(NP_THREAD_TELLS, was);
    if ((status == UCS_ERR_INVALID_ADDR) &&
        !np_regions_allow((uintptr_t)va, len)) {
        return 0; /* pages that no peer may reach are none of ours */
    }
    return np_extension_errno(status);
}

static int np_extension_swap_in(void *arg, void *va, size_t len, int write)
{
    const nprdma_swapper_t *user = &((np_extension_swapper_t*)arg)->user;
    unsigned was                 = np_thread_flags();
    int ret;

    if (np_thread_flags() & NP_THREAD_TELLS) {
        return 0;
    }

    (void)np_thread_set_flags(NP_THREAD_IN_SWAPPER, NP_THREAD_IN_SWAPPER);
    ret = user->swap_in(user->arg, va, len, write);
    (void)np_thread_set_flags(NP_THREAD_IN_SWAPPER, was);
    return (ret == 0) ? 0 : -1;
}

static int np_extension_register_swapper(void *va, size_t len,
                                         const nprdma_swapper_t *swapper)
{
    np_extension_swapper_t *elem;
    ucs_status_t status;

    if (!np_extension_is_range(va, len) || (swapper == NULL) ||
        (swapper->swap_in == NULL)) {
        return -EINVAL;
    }

    if (!np_extension_is_running()) {
        return -ENOTCONN;
    }

    elem = malloc(sizeof(*elem));
    if (elem == NULL) {
        return -ENOMEM;
    }

    elem->va            = (uintptr_t)va;
    elem->len           = len;
    elem->super.swap_in = np_extension_swap_in;
    elem->super.arg     = elem;
    elem->user          = *swapper;
    pthread_once(&np_extension_once, np_extension_init);
    status = np_mapper_add_swapper(elem->va, elem->len, &elem->super);
    if (status != UCS_OK) {
        free(elem);
        return np_extension_errno(status);
    }

    pthread_mutex_lock(&np_extension_lock);
    ucs_list_add_tail(&np_extension_swappers, &elem->list);
    pthread_mutex_unlock(&np_extension_lock);
    return 0;
}

/* Take the swapper of just this range out of the list; NULL if there is none */
static np_extension_swapper_t *np_extension_take_swapper(uint64_t va,
                                                         uint64_t len)
{
    np_extension_swapper_t *elem, *found = NULL;

    pthread_mutex_lock(&np_extension_lock);
    ucs_list_for_each(elem, &np_extension_swappers, list) {
        if ((elem->va == va) && (elem->len == len)) {
            found = elem;
            ucs_list_del(&found->list);
            break;
        }
    }
    pthread_mutex_unlock(&np_extension_lock);
    return found;
}

static int np_extension_unregister_swapper(void *va, size_t len)
{
    np_extension_swapper_t *elem;
    ucs_status_t status;

    if (!np_extension_is_range(va, len)) {
        return -EINVAL;
    }

    if (!np_extension_is_running()) {
        return -ENOTCONN;
    }

    if (np_thread_flags() & NP_THREAD_IN_SWAPPER) {
        return -EDEADLK; /* it would wait for the call that it is in */
    }

    elem = np_extension_take_swapper((uintptr_t)va, len);
    if (elem == NULL) {
        return -ENOENT;
    }

    status = np_mapper_remove_swapper(elem->va, elem->len);
    free(elem);
    return np_extension_errno(status);
}

static int np_extension_prefetch(void *va, size_t len, int flags)
{
    if (!np_extension_is_range(va, len) ||
        ((flags & ~NPRDMA_PREFETCH_WRITE) != 0)) {
        return -EINVAL;
    }

    if (!np_extension_is_running()) {
        return -ENOTCONN;
    }

    if (np_thread_flags() & NP_THREAD_IN_SWAPPER) {
        return -EDEADLK; /* of what it was asked for: it would call itself */
    }

    if (len == 0) {
        return 0;
    }

    return np_extension_errno(np_mapper_fault_in(
            (uintptr_t)va, len, (flags & NPRDMA_PREFETCH_WRITE) != 0));
}

static int64_t np_extension_scan(void *va, size_t len)
{
    if (!np_extension_is_range(va, len)) {
        return -EINVAL;
    }

    if (!np_extension_is_running()) {
        return -ENOTCONN;
    }

    return (len == 0) ? 0 : (int64_t)np_mapper_scan((uintptr_t)va, len);
}

static int np_extension_set_order(unsigned flags)
{
    if ((flags & ~NP_ORDER_FLAGS) != 0) {
        return -EINVAL;
    }

    return -np_order_set(flags);
}

static int np_extension_set_hint(unsigned flags)
{
    if ((flags & ~NPRDMA_HINT_HOT) != 0) {
        return -EINVAL;
    }

    return (np_thread_set_flags(NP_THREAD_HOT, (flags & NPRDMA_HINT_HOT) ?
                                NP_THREAD_HOT : 0) == 0) ? 0 : -ENOMEM;
}

static unsigned np_extension_get_hint(void)
{
    return (np_thread_flags() & NP_THREAD_HOT) ? NPRDMA_HINT_HOT : 0;
}

static int np_extension_get_counters(nprdma_counters_t *counters, size_t size)
{
    np_stats_t sum;

    np_stats_sum(&sum);
    memset(counters, 0, size);
    memcpy(counters, &sum, ucs_min(size, sizeof(*counters)));
    return 0;
}

static void
np_extension_prepare_op(const void *va, size_t len, int is_receive,
                        void *request, int (*is_over)(void *request),
                        uint32_t given_back)
{
    const np_prepare_op_t op = {
        .request    = request,
        .is_over    = is_over,
        .given_back = given_back
    };

    /* an engine that does not run, or is another process's, prepares nothing */
    if (!(np_thread_flags() & NP_THREAD_IN_SWAPPER)) {
        np_prepare((uintptr_t)va, len,
                   is_receive ? NP_PREPARE_RECV : NP_PREPARE_SEND, &op);
    }
}

static void np_extension_prepare(const void *va, size_t len, int is_receive)
{
    np_extension_prepare_op(va, len, is_receive, NULL, NULL, 0);
}

/* The program's file is the engine's */
_Static_assert(((int)NPRDMA_FILE_READ == (int)NP_FILE_READ) &&
               ((int)NPRDMA_FILE_WRITE == (int)NP_FILE_WRITE),
               "rights are the program's");

static np_file_t *np_extension_file(nprdma_file_t *file)
{
    return (np_file_t*)file;
}

static int np_extension_file_create(uint64_t max_size, nprdma_file_t **file)
{
    return !np_extension_is_running() ? -ENOTCONN :
           np_file_create(max_size, (np_file_t**)file);
}

static int
np_extension_file_bind(nprdma_file_t *file, int fd, unsigned rights)
{
    return !np_extension_is_running() ? -ENOTCONN :
           np_file_bind(np_extension_file(file), fd, rights);
}

static int np_extension_file_key(nprdma_file_t *file, unsigned rights,
                                 nprdma_filekey_t *key)
{
    uint64_t len = 0;
    int ret;

    memset(key, 0, sizeof(*key));
    ret = !np_extension_is_running() ? -ENOTCONN :
          np_file_make_key(np_extension_file(file), rights, &key->address,
                           &len);
    key->length = len;
    return ret;
}

static int np_extension_file_revoke(nprdma_file_t *file,
                                    const nprdma_filekey_t *key)
{
    if (!np_extension_is_running()) {
        return -ENOTCONN;
    }

    if (key == NULL) {
        return np_file_revoke(np_extension_file(file), NULL);
    }
    return (key->address == NULL) ? -ENOENT :
           np_file_revoke(np_extension_file(file), key->address);
}

static int np_extension_file_unbind(nprdma_file_t *file)
{
    return !np_extension_is_running() ? -ENOTCONN :
           np_file_unbind(np_extension_file(file));
}

static int np_extension_file_resize(nprdma_file_t *file, uint64_t size)
{
    return !np_extension_is_running() ? -ENOTCONN :
           np_file_resize(np_extension_file(file), size);
}

static int np_extension_file_commit(nprdma_file_t *file)
{
    return !np_extension_is_running() ? -ENOTCONN :
           np_file_commit(np_extension_file(file));
}

static void np_extension_file_destroy(nprdma_file_t *file)
{
    if (np_extension_is_running()) {
        np_file_destroy(np_extension_file(file));
    }
}

__attribute__((visibility("default")))
const np_extension_t nprdma_extension_v1 = {
    .size               = sizeof(np_extension_t),
    .notify_swap_out    = np_extension_notify_swap_out,
    .notify_swap_in     = np_extension_notify_swap_in,
    .register_swapper   = np_extension_register_swapper,
    .unregister_swapper = np_extension_unregister_swapper,
    .prefetch           = np_extension_prefetch,
    .scan               = np_extension_scan,
    .set_order          = np_extension_set_order,
    .get_order          = np_order_get,
    .get_counters       = np_extension_get_counters,
    .is_running         = np_extension_is_running,
    .prepare            = np_extension_prepare,
    .prepare_begin      = np_prepare_begin,
    .prepare_op         = np_extension_prepare_op,
    .prepare_end        = np_prepare_end,
    .prepare_forget     = np_prepare_forget,
    .prepare_watched    = &np_prepare_watched,
    .set_hint           = np_extension_set_hint,
    .get_hint           = np_extension_get_hint,
    .file_create        = np_extension_file_create,
    .file_bind          = np_extension_file_bind,
    .file_key           = np_extension_file_key,
    .file_revoke        = np_extension_file_revoke,
    .file_unbind        = np_extension_file_unbind,
    .file_resize        = np_extension_file_resize,
    .file_commit        = np_extension_file_commit,
    .file_destroy       = np_extension_file_destroy
};
