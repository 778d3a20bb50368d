/* SPDX-License-Identifier: BSD-3-Clause */
/* A seccomp filter, as container run-times have, for this process and for
 * good. */

#ifndef NPRDMA_TEST_SANDBOX_H_
#define NPRDMA_TEST_SANDBOX_H_

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

/* Can there be such filters here? An emulator of another processor's programs
 * has none (qemu-user). A kernel that has them looks at the filter: there is
 * none at NULL. */
static inline int sandbox_is_there(void)
{
    return (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1) &&
           (errno == EFAULT);
}

/* This system call is refused with EPERM from now on. Returns 0 or -1. */
static inline int sandbox_deny(int number)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {
        .len    = sizeof(code) / sizeof(code[0]),
        .filter = code,
    };

    return ((prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) &&
            (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)) ? 0 :
           -1;
}

#endif
