/* SPDX-License-Identifier: BSD-3-Clause */
/* Who closes what somebody else has sent, and when. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "foreign.h"
#include "sandbox.h"
#include "tap.h"

#include "nprdma/dev/soft/discard.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* s; a case takes milliseconds */
#define DISCARD_PATIENCE 60

static int discard_fd;


static int discard_is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void *discard_thread_main(void *arg)
{
    return arg;
}

/* No thread can be started from now on, but fork() goes on: what is discarded
 * waits. Returns 0, or 77 where that cannot be had. */
static int discard_without_threads(void)
{
    pthread_t thread;

    alarm(DISCARD_PATIENCE);
#ifdef SYS_clone3
    if ((sandbox_deny(SYS_clone3) == 0) &&
        (pthread_create(&thread, NULL, discard_thread_main, NULL) != 0)) {
        return 0;
    }
#else
    (void)thread;
    (void)discard_thread_main;
#endif
    return 77;
}

static int discard_child_is_forked(void)
{
    TAP_CHILD_CHECK(discard_is_open(discard_fd));
    np_discard(foreign_open(FOREIGN_LINGER));
    TAP_CHILD_CHECK(discard_is_open(discard_fd));
    return 0;
}

/* A forked child has a copy of what waits, which may be the last one */
static int discard_child_forks(void)
{
    discard_fd = foreign_open(FOREIGN_LINGER);
    TAP_CHILD_CHECK(discard_fd >= 0);
    if (discard_without_threads() != 0) {
        return 77;
    }

    np_discard(discard_fd);
    TAP_CHILD_CHECK(discard_is_open(discard_fd));
    TAP_CHILD_CHECK(tap_child(discard_child_is_forked));
    return 0;
}

static void discard_check(int (*function)(void), const char *what)
{
    int status = -1;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        status = function();
        fflush(stdout);
        _exit(status);
    }

    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77)) {
        printf("ok %u - discard: %s # SKIP threads cannot be refused here\n",
               ++tap_count, what);
        return;
    }
    TAP_CHECK(status == 0, "discard: %s", what);
}

void test_discard_children(void)
{
    discard_check(discard_child_forks,
                  "what waits is not closed inside fork()");
}
