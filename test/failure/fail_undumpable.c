/* SPDX-License-Identifier: BSD-3-Clause */
/* Preloaded: the process may not be traced, as one that changed its user. */
#include <sys/prctl.h>

static void __attribute__((constructor)) fail_undumpable_init(void)
{
    prctl(PR_SET_DUMPABLE, 0);
}
