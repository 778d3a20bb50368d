/* SPDX-License-Identifier: BSD-3-Clause */
/* What the fuzz targets share: the world, and what may be touched in it. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "fuzz.h"

#include "nprdma/mem/arena.h"
#include "nprdma/segment.h"
#include "nprdma/mem/table.h"

#include <ucs/config/global_opts.h>

#include <errno.h>
#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

int fuzz_is_target;

static int fuzz_fds[6];

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local,
                                unsigned long num_local,
                                const struct iovec *remote,
                                unsigned long num_remote, unsigned long flags);
ssize_t __real_process_vm_writev(pid_t pid, const struct iovec *local,
                                 unsigned long num_local,
                                 const struct iovec *remote,
                                 unsigned long num_remote, unsigned long flags);


void fuzz_fail(const char *what, const void *ptr, size_t len)
{
    fprintf(stderr, "FUZZ: %s: %p, %zu bytes\n", what, ptr, len);
    abort();
}

static void *fuzz_map(uint64_t at)
{
    void *ptr = mmap((void*)at, FUZZ_SIZE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    if (ptr != (void*)at) {
        fuzz_fail("cannot map", (void*)at, FUZZ_SIZE);
    }
    return ptr;
}

static int fuzz_memfd(size_t size, int is_sealed)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if ((fd < 0) || (ftruncate(fd, size) != 0)) {
        fuzz_fail("no memfd", NULL, size);
    }
    if (is_sealed) {
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    }
    return fd;
}

void fuzz_start(void)
{
    const np_engine_config_t config = {
        .share_min   = 16384,
        .share_chunk = 4096,
        .inline_max  = 1024,
        .service     = NP_SERVICE_OFF
    };
    np_arenas_t arenas;

    ucs_global_opts.log_component.log_level = UCS_LOG_LEVEL_FATAL;
    fuzz_map(FUZZ_OURS);
    fuzz_map(FUZZ_THEIRS);
    if ((np_engine_init(&config) != UCS_OK) ||
        (np_arenas_share(FUZZ_OURS, FUZZ_SIZE, &arenas) != UCS_OK) ||
        (np_directory_fd() < 0)) {
        fuzz_fail("the engine does not start", NULL, 0);
    }

    fuzz_fds[0] = fuzz_memfd(np_page_align(sizeof(np_port_shm_t)), 1);
    fuzz_fds[1] = fuzz_memfd(np_page_align(sizeof(np_port_shm_t)), 0);
    fuzz_fds[2] = fuzz_memfd(16 * 4096, 1);
    fuzz_fds[3] = open("/dev/null", O_RDWR | O_CLOEXEC);
    fuzz_fds[4] = fcntl(np_directory_fd(), F_DUPFD_CLOEXEC, 0);
    fuzz_fds[5] = fuzz_memfd(0, 1);
}

int fuzz_next(fuzz_input_t *input, fuzz_record_t *record)
{
    size_t size = ucs_min(input->size, sizeof(*record));

    memset(record, 0, sizeof(*record));
    if ((size == 0) || (input->taken == FUZZ_RECORDS)) {
        return 0;
    }

    memcpy(record, input->data, size);
    input->data += size;
    input->size -= size;
    ++input->taken;
    return 1;
}

uint64_t fuzz_address(uint64_t d)
{
    uint64_t at = (d >> 8) % (FUZZ_SIZE + 8192);

    switch (d & 7) {
    case 0:
    case 1:
    case 2:
        return FUZZ_OURS + at;
    case 3:
    case 4:
        return FUZZ_THEIRS + at;
    case 5: /* across the beginning or the end of the arena */
        return FUZZ_OURS + ((d & 8) ? (UINT64_C(1) << NP_ARENA_SHIFT) : 0) +
               ((d >> 8) % 8192) - 4096;
    case 6:
        return (uintptr_t)&fuzz_is_target;
    default:
        return d;
    }
}

int fuzz_fd(unsigned which)
{
    return fuzz_fds[which % (sizeof(fuzz_fds) / sizeof(fuzz_fds[0]))];
}

/* 1: the whole range; 0: no byte of it */
static int fuzz_is_inside(const char *what, const void *ptr, size_t len,
                          uint64_t base, size_t size)
{
    uint64_t start = (uintptr_t)ptr;

    if ((start >= (base + size)) || ((start + len) <= base)) {
        return 0;
    }

    if ((start < base) || (len > size) || ((start - base) > (size - len))) {
        fuzz_fail(what, ptr, len);
    }
    return 1;
}

static int fuzz_is_in_arena(const void *ptr, uint64_t base)
{
    return ((uintptr_t)ptr >> NP_ARENA_SHIFT) == (base >> NP_ARENA_SHIFT);
}

void fuzz_check_local(const void *ptr, size_t len)
{
    fuzz_region_t regions[FUZZ_REGIONS];
    unsigned num_regions;
    char name[64];
    const char *kind;
    void *at;
    size_t size;
    unsigned i;

    if ((len == 0) || fuzz_is_in_arena(ptr, FUZZ_OURS) ||
        fuzz_is_in_arena(ptr, FUZZ_THEIRS)) {
        return;
    }

    num_regions = fuzz_get_regions(regions);
    for (i = 0; i < num_regions; ++i) {
        if (fuzz_is_inside("across the end of shared memory", ptr, len,
                           (uintptr_t)regions[i].base,
                           regions[i].size)) {
            return;
        }
    }

    kind = __asan_locate_address((void*)ptr, name, sizeof(name), &at, &size);
    if ((strcmp(kind, "heap") != 0) && (strcmp(kind, "stack") != 0) &&
        (strcmp(kind, "global") != 0)) {
        fuzz_fail("memory of nobody", ptr, len);
    }
    if (__asan_region_is_poisoned((void*)ptr, len) != NULL) {
        fuzz_fail("across the end of a buffer", ptr, len);
    }
}

/* What a call of process_vm_* may touch. Returns 0 if it is the peer who has
 * nothing there. */
static int fuzz_judge(const struct iovec *local, unsigned long num_local,
                      const struct iovec *remote)
{
    int is_ours = 0;
    unsigned long i;

    for (i = 0; i < num_local; ++i) {
        fuzz_check_local(local[i].iov_base, local[i].iov_len);
        is_ours |= fuzz_is_in_arena(local[i].iov_base, FUZZ_OURS);
    }

    if (fuzz_is_in_arena(remote->iov_base, FUZZ_OURS) ||
        fuzz_is_in_arena(remote->iov_base, FUZZ_THEIRS)) {
        return 1;
    }

    if (fuzz_is_target && !is_ours) {
        fuzz_fail("memory that was never shared", remote->iov_base,
                  remote->iov_len);
    }
    return 0;
}

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local,
                                unsigned long num_local,
                                const struct iovec *remote,
                                unsigned long num_remote, unsigned long flags)
{
    if (!fuzz_judge(local, num_local, remote)) {
        errno = EFAULT;
        return -1;
    }
    return __real_process_vm_readv(pid, local, num_local, remote, num_remote,
                                   flags);
}

ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *local,
                                 unsigned long num_local,
                                 const struct iovec *remote,
                                 unsigned long num_remote, unsigned long flags)
{
    if (!fuzz_judge(local, num_local, remote)) {
        errno = EFAULT;
        return -1;
    }
    return __real_process_vm_writev(pid, local, num_local, remote, num_remote,
                                    flags);
}
