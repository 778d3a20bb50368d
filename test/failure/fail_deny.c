/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a program under a seccomp filter that refuses process_vm_readv and
 * process_vm_writev with EPERM, as container run-times do.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REFUSE  (SECCOMP_RET_ERRNO | EPERM)

int main(int argc, char **argv)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, REFUSE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog  program = {
        .len    = sizeof(code) / sizeof(code[0]),
        .filter = code,
    };

    if (argc < 2) {
        fprintf(stderr, "usage: fail_deny PROGRAM [ARGUMENT...]\n");
        return 2;
    }

    if ((prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ||
        (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)) {
        fprintf(stderr, "fail_deny: no seccomp filter: %s\n",
                strerror(errno));
        return 77;
    }

    execvp(argv[1], argv + 1);
    fprintf(stderr, "fail_deny: %s: %s\n", argv[1], strerror(errno));
    return 127;
}
