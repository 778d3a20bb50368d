/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Making pages of our own present: MADV_POPULATE_READ and _WRITE (Linux 5.14).
 *
 * Where the kernel lacks these, pages are touched one by one through calls that
 * check the address: for reading by a read of one byte, for writing by the
 * kernel's atomic "or 0" of FUTEX_WAKE_OP, since reading a byte and writing it
 * back would undo what another thread stores in between.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "populate.h"

#include "access.h"
#include "table.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#  define MADV_POPULATE_READ  22
#endif

#ifndef MADV_POPULATE_WRITE
#  define MADV_POPULATE_WRITE 23
#endif

/* A word of our own: a page that may be written, and a futex without waiters */
static uint32_t np_populate_ours;

/* 0: not known yet; 1: the kernel populates; -1: it does not. Each thread that
 * finds out finds the same. */
static _Atomic int np_populate_works;


static int np_populate_advise(uint64_t va, uint64_t len, int write)
{
    return madvise((void*)va, len,
                   write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

/* Does the kernel populate? It says EINVAL of a protected page, and before 5.14
 * of any: a page of ours tells which. Keeps errno. */
static int np_populate_is_supported(uint64_t page)
{
    int works = atomic_load_explicit(&np_populate_works, memory_order_relaxed);
    int error = errno;

    /* EPERM, ENOSYS: a filter of system calls */
    if ((error != EINVAL) && (error != EPERM) && (error != ENOSYS)) {
        return 1;
    }

    if (works == 0) {
        works = (np_populate_advise((uintptr_t)&np_populate_ours & ~(page - 1),
                                    page, 1) == 0) ? 1 : -1;
        atomic_store_explicit(&np_populate_works, works, memory_order_relaxed);
        errno = error;
    }

    return works > 0;
}

static ucs_status_t np_populate_touch(uint64_t va, uint64_t len, int write)
{
    const int op = FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_LT, 0);
    uint64_t at;
    uint8_t byte;

    for (at = va; at < (va + len); at += NP_PAGE_SIZE) {
        if (write) {
            /* a thread that waits on just this word is woken for nothing, as
             * waiters on futexes must expect */
            if (syscall(SYS_futex, &np_populate_ours,
                        FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, NULL, at,
                        op) < 0) {
                return UCS_ERR_INVALID_ADDR;
            }
        } else if (np_access_read(&byte, at, 1) != UCS_OK) {
            return UCS_ERR_INVALID_ADDR;
        }
    }

    return UCS_OK;
}

/* ENOMEM is said where nothing is mapped and where memory is short; mincore()
 * says it of the first alone */
static ucs_status_t np_populate_short(uint64_t va, uint64_t len, uint64_t page)
{
    unsigned char vec;
    uint64_t at;

    for (at = va; at < (va + len); at += page) {
        if ((mincore((void*)at, page, &vec) != 0) && (errno == ENOMEM)) {
            return UCS_ERR_INVALID_ADDR;
        }
    }

    return UCS_ERR_NO_MEMORY;
}

static ucs_status_t np_populate_range(uint64_t va, uint64_t len, int write)
{
    const uint64_t page  = sysconf(_SC_PAGESIZE);
    const uint64_t first = va & ~(page - 1);
    const uint64_t size  = ucs_align_up_pow2(va + len, page) - first;

    if (atomic_load_explicit(&np_populate_works, memory_order_relaxed) < 0) {
        return np_populate_touch(va, len, write);
    }

    if (np_populate_advise(first, size, write) == 0) {
        return UCS_OK;
    }

    if (!np_populate_is_supported(page)) {
        return np_populate_touch(va, len, write);
    }

    switch (errno) {
    case ENOMEM:
        return np_populate_short(first, size, page);
    case EAGAIN:
        return UCS_ERR_NO_MEMORY;
    default: /* EINVAL: rights, EFAULT, EHWPOISON: the page itself */
        return UCS_ERR_INVALID_ADDR;
    }
}

ucs_status_t np_populate(uint64_t va, uint64_t len, int write, uint64_t *done)
{
    uint64_t good = 0, bad = len, half;
    ucs_status_t status, error;

    error = np_populate_range(va, len, write);
    if (ucs_likely(error == UCS_OK)) {
        *done = len;
        return UCS_OK;
    }

    /* the kernel does not say where it failed */
    while ((bad - good) > NP_PAGE_SIZE) {
        half   = good + ucs_align_up_pow2((bad - good) / 2, NP_PAGE_SIZE);
        status = np_populate_range(va + good, half - good, write);
        if (status == UCS_OK) {
            good = half;
        } else {
            bad   = half;
            error = status;
        }
    }

    *done = good;
    return error;
}
