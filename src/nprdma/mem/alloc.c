/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory that we gave out.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "alloc.h"

#include "arena.h"

#include "../segment.h"
#include "../thread.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Guards np_allocs and np_alloc_last_id */
static pthread_mutex_t np_allocs_lock = PTHREAD_MUTEX_INITIALIZER;
static UCS_LIST_HEAD(np_allocs);
static uint64_t np_alloc_last_id;

static pthread_once_t np_allocs_once = PTHREAD_ONCE_INIT;


static void np_allocs_fork_begin(void)
{
    pthread_mutex_lock(&np_allocs_lock);
}

/* In the parent and in the child */
static void np_allocs_fork_end(void)
{
    pthread_mutex_unlock(&np_allocs_lock);
}

static void np_allocs_init(void)
{
    np_at_fork(np_allocs_fork_begin, np_allocs_fork_end, np_allocs_fork_end);
}

static size_t np_alloc_head_len(void)
{
    return np_page_align(sizeof(np_alloc_head_t));
}

static void np_alloc_unmap(np_alloc_t *alloc)
{
    np_segment_unmap(alloc->head, np_alloc_head_len());
    if (alloc->addr != NULL) {
        np_segment_unmap(alloc->addr, alloc->len);
    }
}

/* Make the segment and map it: its memory behind its head, or where it is
 * wanted. That may be a place that the user has reserved: OpenSHMEM has found
 * it free in all processes. */
static ucs_status_t np_alloc_map(np_alloc_t *alloc, void *addr)
{
    const size_t head_len = np_alloc_head_len(), size = head_len + alloc->len;
    void *head            = NULL;
    ucs_status_t status;

    status = np_segment_create_part("nprdma-mem", size,
                                    (addr == NULL) ? size : head_len, &head,
                                    &alloc->fd);
    if (status != UCS_OK) {
        return status;
    }

    alloc->head = head;
    if (addr == NULL) {
        alloc->addr = UCS_PTR_BYTE_OFFSET(head, head_len);
        return UCS_OK;
    }

    if (mmap(addr, alloc->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             alloc->fd, head_len) == MAP_FAILED) {
        np_error("cannot allocate %zu bytes at %p: mmap() failed: %m",
                 alloc->len, addr);
        np_alloc_unmap(alloc);
        close(alloc->fd);
        return UCS_ERR_NO_MEMORY;
    }
    alloc->addr = addr;
    return UCS_OK;
}

ucs_status_t np_alloc_create(void *addr, size_t *len, np_alloc_t **alloc_p)
{
    np_arenas_t arenas;
    np_alloc_t *alloc;
    ucs_status_t status;

    alloc = calloc(1, sizeof(*alloc));
    if (alloc == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    alloc->len = np_page_align(*len);
    if (alloc->len < *len) {
        np_error("cannot allocate %zu bytes: larger than the address space",
                 *len);
        status = UCS_ERR_NO_MEMORY;
        goto err_free;
    }

    status = np_alloc_map(alloc, addr);
    if (status != UCS_OK) {
        goto err_free;
    }

    alloc->pid = getpid();
    status     = np_region_is_exact() ?
                 np_region_get((uintptr_t)alloc->addr, alloc->len,
                               &alloc->region) :
                 np_arenas_share((uintptr_t)alloc->addr, alloc->len, &arenas);
    if (status != UCS_OK) {
        goto err_unmap;
    }

    pthread_once(&np_allocs_once, np_allocs_init);
    pthread_mutex_lock(&np_allocs_lock);
    alloc->id = ++np_alloc_last_id;
    ucs_list_add_tail(&np_allocs, &alloc->list);
    pthread_mutex_unlock(&np_allocs_lock);

    *len     = alloc->len;
    *alloc_p = alloc;
    return UCS_OK;

err_unmap:
    np_alloc_unmap(alloc);
    close(alloc->fd);
err_free:
    free(alloc);
    return status;
}

void np_alloc_free(np_alloc_t *alloc)
{
    pthread_mutex_lock(&np_allocs_lock);
    ucs_list_del(&alloc->list);
    pthread_mutex_unlock(&np_allocs_lock);

    if (alloc->region != NULL) {
        np_region_put(alloc->region);
    }

    if (alloc->pid != getpid()) {
        goto out; /* inherited: it is its parent's, and stays */
    }

    /* release: a peer that sees it stops; one that does not see it yet writes
     * to a page that is not read any more */
    atomic_store_explicit(&alloc->head->ended, 1, memory_order_release);
    if (fallocate(alloc->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  np_alloc_head_len(), alloc->len) != 0) {
        np_debug("the pages of segment %lu stay until its peers unmap it: %m",
                 alloc->id);
    }

out:
    np_alloc_unmap(alloc);
    close(alloc->fd);
    free(alloc);
}

int np_alloc_dup_fd(uint64_t id, size_t *segment_size)
{
    np_alloc_t *alloc;
    int fd = -1;

    pthread_mutex_lock(&np_allocs_lock);
    ucs_list_for_each(alloc, &np_allocs, list) {
        if (alloc->id == id) {
            fd            = fcntl(alloc->fd, F_DUPFD_CLOEXEC, 0);
            *segment_size = np_alloc_head_len() + alloc->len;
            break;
        }
    }
    pthread_mutex_unlock(&np_allocs_lock);

    return fd;
}
