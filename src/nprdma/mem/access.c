/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Access to our own memory on a peer's behalf.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "access.h"

#include "populate.h"
#include "swapper.h"
#include "table.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/* Where a process may not even use process_vm_* on itself (seccomp), bytes go
 * through a memfd: the kernel checks its reads and writes in the same way. */
#define NP_BOUNCE_SIZE  (64 * UCS_KBYTE)

/* Pages that one look at what is present covers */
#define NP_ACCESS_PAGES 1024

/* Guards np_bounce_fd and the contents of the file */
static pthread_mutex_t np_bounce_lock = PTHREAD_MUTEX_INITIALIZER;
static int np_bounce_fd               = -1;

/* Set once and never unset: the kernel refused process_vm_* on ourselves */
static _Atomic int np_access_vm_refused;


ucs_status_t np_access_fault_in(uint64_t va, uint64_t len, int write,
                                np_bring_t *bring)
{
    return np_access_is_allowed(va, len) ?
           np_mapper_fault_in_by(va, len, write, bring) : UCS_ERR_INVALID_ADDR;
}

/* The file is its parent's, and another thread may have held the lock */
static void np_bounce_after_fork(void)
{
    pthread_mutex_init(&np_bounce_lock, NULL);
    if (np_bounce_fd >= 0) {
        close(np_bounce_fd);
        np_bounce_fd = -1;
    }
}

static ucs_status_t np_bounce_open(void)
{
    static int has_handler;

    if (!has_handler &&
        (pthread_atfork(NULL, NULL, np_bounce_after_fork) != 0)) {
        np_error("pthread_atfork() failed: no memory");
        return UCS_ERR_NO_MEMORY;
    }

    has_handler  = 1;
    np_bounce_fd = memfd_create("nprdma-bounce", MFD_CLOEXEC);
    if (np_bounce_fd < 0) {
        np_error("memfd_create() failed: %m. Check 'ulimit -n'");
        return UCS_ERR_NO_MEMORY;
    }
    return UCS_OK;
}

static ucs_status_t np_bounce_copy(void *dst, const void *src, size_t len,
                                   size_t *done_p)
{
    ucs_status_t status = UCS_OK;
    size_t done = 0, part;
    ssize_t ret;

    pthread_mutex_lock(&np_bounce_lock);
    if (np_bounce_fd < 0) {
        status = np_bounce_open();
        if (status != UCS_OK) {
            goto out;
        }
    }

    while (done < len) {
        part = ucs_min(len - done, (size_t)NP_BOUNCE_SIZE);
        ret  = pwrite(np_bounce_fd, UCS_PTR_BYTE_OFFSET(src, done), part, 0);
        if (ret > 0) {
            ret = pread(np_bounce_fd, UCS_PTR_BYTE_OFFSET(dst, done), ret, 0);
        }
        done += ucs_max(ret, 0);
        if (ret != (ssize_t)part) {
            status = UCS_ERR_INVALID_ADDR;
            break;
        }
    }
out:
    *done_p = done;
    pthread_mutex_unlock(&np_bounce_lock);
    return status;
}

/* @a va is the remote side of the call: its pages are brought in by the kernel
 * without an exception, which takes half the time */
static ucs_status_t
np_access_copy(uint64_t va, void *ours, size_t len, int is_write, size_t *done)
{
    struct iovec here  = {ours, len};
    struct iovec there = {(void*)va, len};
    ssize_t ret;

    *done = 0;
    if (len == 0) {
        return UCS_OK;
    }

    if (!atomic_load_explicit(&np_access_vm_refused, memory_order_relaxed)) {
        ret = is_write ?
              process_vm_writev(getpid(), &here, 1, &there, 1, 0) :
              process_vm_readv(getpid(), &here, 1, &there, 1, 0);
        *done = ucs_max(ret, 0);
        if (ret == (ssize_t)len) {
            return UCS_OK;
        }

        if ((ret >= 0) || (errno == EFAULT)) {
            return UCS_ERR_INVALID_ADDR;
        }

        if (errno == ENOMEM) {
            return UCS_ERR_NO_MEMORY;
        }

        atomic_store_explicit(&np_access_vm_refused, 1, memory_order_relaxed);
    }

    return is_write ? np_bounce_copy((void*)va, ours, len, done) :
                      np_bounce_copy(ours, (const void*)va, len, done);
}

ucs_status_t np_access_write_some(uint64_t va, const void *src, size_t len,
                                  size_t *done)
{
    return np_access_copy(va, (void*)src, len, 1, done);
}

ucs_status_t np_access_read_some(void *dst, uint64_t va, size_t len,
                                 size_t *done)
{
    return np_access_copy(va, dst, len, 0, done);
}

ucs_status_t np_access_write(uint64_t va, const void *src, size_t len)
{
    size_t done;

    return np_access_write_some(va, src, len, &done);
}

ucs_status_t np_access_read(void *dst, uint64_t va, size_t len)
{
    size_t done;

    return np_access_read_some(dst, va, len, &done);
}

int np_access_is_present(uint64_t va, size_t len)
{
    /* the kernel's, which may be larger than ours (64 KiB on aarch64): it
     * refuses an address that is no multiple of it */
    const uint64_t page = sysconf(_SC_PAGESIZE), end = va + len;
    unsigned char pages[NP_ACCESS_PAGES];
    size_t count, i;

    for (va &= ~(page - 1); va < end; va += count * page) {
        count = ucs_min((end - va + page - 1) / page,
                        (uint64_t)NP_ACCESS_PAGES);
        if (mincore((void*)va, count * page, pages) != 0) {
            return 1;
        }
        for (i = 0; i < count; ++i) {
            if (!(pages[i] & 1)) {
                return 0;
            }
        }
    }
    return 1;
}

ucs_status_t np_access_bring_in(uint64_t va, uint64_t len, int write)
{
    const uint64_t first = va & ~(NP_PAGE_SIZE - 1);
    ucs_status_t status;
    uint64_t done;

    if (np_swap_range_touches(va, len)) {
        status = np_mapper_fault_in(va, len, write);
        if (status != UCS_ERR_EXCEEDS_LIMIT) {
            return status;
        }
    }

    return np_populate(first, ucs_align_up_pow2(va + len, NP_PAGE_SIZE) - first,
                       write, &done);
}

const np_iov_t *np_access_refused_slow(const np_iov_t *iov, size_t iovcnt)
{
    size_t i;

    for (i = 0; i < iovcnt; ++i) {
        if ((iov[i].len > 0) &&
            !np_regions_cover((uintptr_t)iov[i].base, iov[i].len)) {
            return &iov[i];
        }
    }
    return NULL;
}

ucs_status_t np_access_check_own(const np_iov_t *iov, size_t iovcnt)
{
    const np_iov_t *refused = np_access_refused(iov, iovcnt);

    if (refused == NULL) {
        return UCS_OK;
    }

    np_error("local memory %p..%p is not registered, as "
             "UCX_NPRDMA_MR_SCOPE=exact wants it", refused->base,
             UCS_PTR_BYTE_OFFSET(refused->base, refused->len));
    return UCS_ERR_INVALID_ADDR;
}
