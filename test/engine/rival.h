/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that wants the CPU on which the caller runs, all the time. */

#ifndef NPRDMA_TEST_RIVAL_H_
#define NPRDMA_TEST_RIVAL_H_

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* From now on both have this CPU alone. Returns its pid, or -1. Needs
 * _GNU_SOURCE. */
static inline pid_t rival_start(void)
{
    const pid_t parent = getpid();
    cpu_set_t set;
    pid_t pid;

    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        return -1;
    }

    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent) {
        }
        _exit(0);
    }
    return pid;
}

static inline void rival_stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

#endif
