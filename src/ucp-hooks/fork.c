/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory and fork().
 *
 * libibverbs, if asked to, takes what is registered out of what a child
 * inherits, and gives it back later: two madvise() for each registration, which
 * split and merge mappings, and for which the kernel takes 2 MiB around each
 * end from all devices that follow its page tables. Kernels from 5.12 on copy
 * pinned pages for the child, and need none of that. libibverbs can tell, but
 * does as it is asked; UCX asks without a look (later versions do look). Here
 * somebody looks.
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
    /* whoever calls this has loaded it, for itself perhaps */
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
