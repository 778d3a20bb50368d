/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The kmod mapper.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "kmod.h"

#include "../engine.h"
#include "../thread.h"
#include "swapper.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* What we cannot do without */
#define NP_KMOD_FEATURES  (NPRDMA_FEATURE_VIEWS | NPRDMA_FEATURE_PREFETCH | \
                           NPRDMA_FEATURE_SWAP)

/* Owner: the process; a forked child begins with a new one (pid) */
static struct {
    pthread_mutex_t lock;      /* guards all of it */
    pid_t           pid;       /* of the process that opened it; 0 */
    ucs_status_t    status;    /* of that */
    int             fd;
    char            why[256];
    ucs_list_link_t regions;
    _Atomic int     has_regions; /* a hint: is there any? */
    int             has_warned;  /* warnings that there is none, since the last
                                  * one */
} np_kmod = {
    .lock    = PTHREAD_MUTEX_INITIALIZER,
    .fd      = -1,
    .regions = UCS_LIST_INITIALIZER(&np_kmod.regions, &np_kmod.regions)
};

static pthread_once_t np_kmod_atfork_once = PTHREAD_ONCE_INIT;


/* The module binds a file to the address space that has opened it */
static void np_kmod_after_fork(void)
{
    pthread_mutex_init(&np_kmod.lock, NULL);
    if (np_kmod.fd >= 0) {
        close(np_kmod.fd);
        np_kmod.fd = -1;
    }
    np_kmod.pid = 0;
    ucs_list_head_init(&np_kmod.regions); /* they are not freed: few */
    atomic_store_explicit(&np_kmod.has_regions, 0, memory_order_relaxed);
}

static void np_kmod_atfork_register(void)
{
    (void)pthread_atfork(NULL, NULL, np_kmod_after_fork);
}

static ucs_status_t np_kmod_explain_open(int error)
{
    if ((error == ENOENT) || (error == ENODEV) || (error == ENXIO)) {
        snprintf(np_kmod.why, sizeof(np_kmod.why),
                 "nprdma.ko is not loaded: 'modprobe nprdma' "
                 "(docs/guide/kmod.md)");
        return UCS_ERR_NO_DEVICE;
    }

    snprintf(np_kmod.why, sizeof(np_kmod.why), NPRDMA_DEVICE " cannot be "
             "opened: %s%s", strerror(error), (error == EACCES) ?
             ": this user must be in the group 'rdma'" : "");
    return UCS_ERR_IO_ERROR;
}

static ucs_status_t np_kmod_check(void)
{
    struct nprdma_info info = {};

    if (ioctl(np_kmod.fd, NPRDMA_IOC_INFO, &info) != 0) {
        snprintf(np_kmod.why, sizeof(np_kmod.why), NPRDMA_DEVICE " does not "
                 "speak ABI %u (%m): install the module of this nprdma",
                 NPRDMA_ABI_VERSION);
        return UCS_ERR_UNSUPPORTED;
    }

    if ((info.abi != NPRDMA_ABI_VERSION) ||
        (info.signature != NPRDMA_SIGNATURE) ||
        (info.page_size != NP_PAGE_SIZE) ||
        ((info.features & NP_KMOD_FEATURES) != NP_KMOD_FEATURES) ||
        (info.region_max < (UINT64_C(1) << NP_ARENA_SHIFT)) ||
        (info.slice_size > NP_KMOD_PART_MIN)) {
        snprintf(np_kmod.why, sizeof(np_kmod.why), "nprdma.ko has ABI %u, pages "
                 "of %u bytes, features %#llx; %u, %u, %#llx are needed: "
                 "install the module of this nprdma", info.abi, info.page_size,
                 info.features, NPRDMA_ABI_VERSION, (unsigned)NP_PAGE_SIZE,
                 NP_KMOD_FEATURES);
        return UCS_ERR_UNSUPPORTED;
    }
    return UCS_OK;
}

static ucs_status_t np_kmod_open_locked(void)
{
    pthread_once(&np_kmod_atfork_once, np_kmod_atfork_register);
    if (np_kmod.pid == getpid()) {
        return np_kmod.status;
    }

    np_kmod.pid = getpid();
    np_kmod.fd  = open(NPRDMA_DEVICE, O_RDWR | O_CLOEXEC);
    if (np_kmod.fd < 0) {
        np_kmod.status = np_kmod_explain_open(errno);
        return np_kmod.status;
    }

    np_kmod.status = np_kmod_check();
    if (np_kmod.status != UCS_OK) {
        close(np_kmod.fd);
        np_kmod.fd = -1;
    }
    return np_kmod.status;
}

ucs_status_t np_kmod_open(void)
{
    ucs_status_t status;

    pthread_mutex_lock(&np_kmod.lock);
    status = np_kmod_open_locked();
    pthread_mutex_unlock(&np_kmod.lock);
    return status;
}

const char *np_kmod_why(void)
{
    return np_kmod.why;
}

uint32_t np_kmod_replaces(void)
{
    struct nprdma_kernel_counters counters;

    return (ioctl(np_kmod.fd, NPRDMA_IOC_COUNTERS, &counters) == 0) ?
           counters.replace : NPRDMA_REPLACE_NONE;
}

static np_kmod_region_t *np_kmod_find_locked(uint32_t arena)
{
    np_kmod_region_t *region;

    np_assert_locked(&np_kmod.lock);
    ucs_list_for_each(region, &np_kmod.regions, list) {
        if (region->arena == arena) {
            return region;
        }
    }
    return NULL;
}

/* The first address that is not user space's */
static uint64_t np_kmod_user_end(void)
{
    const uint64_t end = (UINT64_C(1) << 47) - NP_PAGE_SIZE;

    return end; /* with five levels of tables there is more, but nothing is put
                   there unasked */
}

int np_kmod_export(const np_kmod_region_t *region, uint32_t what,
                   uint64_t offset, uint64_t len)
{
    struct nprdma_region_export export = {
        .region = region->number,
        .what   = what,
        .offset = offset,
        .length = len
    };

    return (ioctl(np_kmod.fd, NPRDMA_IOC_REGION_EXPORT, &export) == 0) ?
           export.fd : -1;
}

static int np_kmod_map_table(np_kmod_region_t *region)
{
    const size_t size = (region->len >> NP_PAGE_SHIFT) * sizeof(uint32_t);
    void *table;
    int fd;

    fd = np_kmod_export(region, NPRDMA_EXPORT_TABLE, 0, 0);
    if (fd < 0) {
        return 0;
    }

    table = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    region->entries = table;
    return table != MAP_FAILED;
}

static ucs_status_t
np_kmod_region_make(uint32_t arena, np_kmod_region_t **region_p)
{
    const uint64_t va = (uint64_t)arena << NP_ARENA_SHIFT;
    struct nprdma_region_create create = {.addr = va};
    np_kmod_region_t *region;

    if (va >= np_kmod_user_end()) {
        return UCS_ERR_INVALID_ADDR;
    }

    region        = calloc(1, sizeof(*region));
    create.length = ucs_min(UINT64_C(1) << NP_ARENA_SHIFT,
                            np_kmod_user_end() - va);
    if ((region == NULL) ||
        (ioctl(np_kmod.fd, NPRDMA_IOC_REGION_CREATE, &create) != 0)) {
        goto err;
    }

    region->arena  = arena;
    region->number = create.region;
    region->va     = va;
    region->len    = create.length;
    if (!np_kmod_map_table(region)) {
        goto err;
    }

    np_kmod.has_warned = 0;
    *region_p          = region;
    return UCS_OK;

err:
    if (np_kmod.has_warned++ > 0) {
        goto out; /* a refused caller tries again */
    }
    np_warn("no region of nprdma.ko for the memory at %#lx: %m. Transfers to it "
            "need the target's CPU. Check the module's parameter user_mb", va);
out:
    free(region);
    return UCS_ERR_NO_MEMORY;
}

ucs_status_t np_kmod_region_get(uint32_t arena, np_kmod_region_t **region_p)
{
    ucs_status_t status;

    pthread_mutex_lock(&np_kmod.lock);
    status = np_kmod_open_locked();
    if (status == UCS_OK) {
        *region_p = np_kmod_find_locked(arena);
        if (*region_p == NULL) {
            status = np_kmod_region_make(arena, region_p);
            if (status == UCS_OK) {
                ucs_list_add_tail(&np_kmod.regions, &(*region_p)->list);
                atomic_store_explicit(&np_kmod.has_regions, 1,
                                      memory_order_relaxed);
            }
        }
    }
    pthread_mutex_unlock(&np_kmod.lock);
    return status;
}

ucs_status_t np_kmod_fault_in(const np_kmod_region_t *region, uint64_t va,
                              uint64_t len, int write)
{
    const uint64_t first      = va & ~(NP_PAGE_SIZE - 1);
    struct nprdma_fault fault = {
        .region = region->number,
        .flags  = write ? NPRDMA_FAULT_WRITE : 0,
        .addr   = first,
        .length = ucs_align_up_pow2(va + len, NP_PAGE_SIZE) - first
    };

    if (ucs_unlikely(np_swap_range_touches(va, len))) {
        return UCS_ERR_NO_RESOURCE;
    }

    if (ioctl(np_kmod.fd, NPRDMA_IOC_FAULT, &fault) == 0) {
        return UCS_OK;
    }

    switch (errno) {
    case ENOMEM:
    case EDQUOT:
        return UCS_ERR_NO_MEMORY;
    case EBUSY:
    case EAGAIN:
    case EINTR:
        return UCS_ERR_NO_RESOURCE;
    default:
        return UCS_ERR_INVALID_ADDR;
    }
}

/* Is all of it mapped already as PREFETCH would map it? */
static int np_kmod_has(const np_kmod_region_t *region,
                       const struct nprdma_range *range)
{
    const np_entries_t seen = np_kmod_entries(region, range->addr,
                                              range->length);

    return np_entries_have(&seen, (range->flags & NPRDMA_RANGE_WRITE) ?
                           NP_ENTRY_BITS : NP_ENTRY_READ);
}

/* An ioctl for the part of a range that each region has, whole pages. Returns 0
 * if any was refused, which is logged; not for PREFETCH, which is a hint. */
static int np_kmod_for_each(uint64_t va, uint64_t len, unsigned long request,
                            uint32_t flags)
{
    const uint64_t first = va & ~(NP_PAGE_SIZE - 1);
    const uint64_t end   = ucs_align_up_pow2(va + len, NP_PAGE_SIZE);
    struct nprdma_range range;
    np_kmod_region_t *region;
    int is_done = 1;

    if (ucs_likely(!atomic_load_explicit(&np_kmod.has_regions,
                                         memory_order_relaxed))) {
        return 1;
    }

    pthread_mutex_lock(&np_kmod.lock);
    ucs_list_for_each(region, &np_kmod.regions, list) {
        range.region = region->number;
        range.flags  = flags;
        range.addr   = ucs_max(first, region->va);
        range.length = ucs_min(end, region->va + region->len) - range.addr;
        if ((range.addr < end) && (first < (region->va + region->len)) &&
            ((request != NPRDMA_IOC_PREFETCH) ||
             !np_kmod_has(region, &range)) &&
            (ioctl(np_kmod.fd, request, &range) != 0) &&
            (request != NPRDMA_IOC_PREFETCH)) {
            np_error("nprdma.ko cannot take %#llx..%#llx from devices: %m",
                     range.addr, range.addr + range.length);
            is_done = 0;
        }
    }
    pthread_mutex_unlock(&np_kmod.lock);
    return is_done;
}

void np_kmod_prefetch(uint64_t va, uint64_t len, int write)
{
    if (!np_swap_range_touches(va, len)) {
        np_kmod_for_each(va, len, NPRDMA_IOC_PREFETCH,
                         write ? NPRDMA_RANGE_WRITE : 0);
    }
}

/* Does a device reach all parts of the range that lie in regions? */
static int np_kmod_has_mapped(uint64_t va, uint64_t len, uint32_t bits)
{
    int is_mapped = 1;
    np_kmod_region_t *region;
    uint64_t first, end;
    np_entries_t seen;

    pthread_mutex_lock(&np_kmod.lock);
    ucs_list_for_each(region, &np_kmod.regions, list) {
        first = ucs_max(va, region->va);
        end   = ucs_min(va + len, region->va + region->len);
        if (first < end) {
            seen       = np_kmod_entries(region, first, end - first);
            is_mapped &= np_entries_have(&seen, bits);
        }
    }
    pthread_mutex_unlock(&np_kmod.lock);
    return is_mapped;
}

void np_kmod_prepare(uint64_t va, uint64_t len, int write)
{
    if (ucs_unlikely(atomic_load_explicit(&np_kmod.has_regions,
                                          memory_order_relaxed)) &&
        !np_kmod_has_mapped(va, len, write ? NP_ENTRY_BITS : NP_ENTRY_READ)) {
        np_kmod_prefetch(va, len, write);
    }
}

void np_kmod_unmap(uint64_t va, uint64_t len)
{
    np_kmod_for_each(va, len, NPRDMA_IOC_INVALIDATE, 0);
}

int np_kmod_block(uint64_t va, uint64_t len)
{
    return np_kmod_for_each(va, len, NPRDMA_IOC_SWAP_OUT, 0);
}

void np_kmod_unblock(uint64_t va, uint64_t len)
{
    np_kmod_for_each(va, len, NPRDMA_IOC_SWAP_IN, NPRDMA_RANGE_LAZY);
}
