/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory and fork().
 *
 * If asked to, libibverbs excludes registered memory from what a child
 * inherits, and includes it again later. That is two madvise() for each
 * registration: they split and merge mappings, and because of them the kernel
 * takes 2 MiB around each end from all devices that follow its page tables.
 * Kernels from 5.12 on copy pinned pages for the child, and need none of that.
 * libibverbs knows that, but does as it is asked; UCX asks without a check
 * (later versions do check). The check is made here.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#define FORK_LIBRARY   "libibverbs.so.1"

/* enum ibv_fork_status */
#define FORK_UNNEEDED  2

__attribute__((visibility("default"))) int ibv_fork_init(void);

int ibv_fork_init(void)
{
    /* the caller has loaded it, perhaps only for itself */
    void *library = dlopen(FORK_LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
    int (*status)(void), (*init)(void);

    if (library == NULL) {
        return ENOSYS;
    }

    status = (int (*)(void))dlsym(library, "ibv_is_fork_initialized");
    if ((status != NULL) && (status() == FORK_UNNEEDED)) {
        return 0;
    }

    init = (int (*)(void))dlsym(library, "ibv_fork_init");
    return (init != NULL) ? init() : ENOSYS;
}
