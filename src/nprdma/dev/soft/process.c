/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The process at the other end of a connection.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "process.h"

#include "../host.h"
#include "sock.h"

#include "../../seldom.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#  define SO_PEERPIDFD 77
#endif

#ifndef SYS_pidfd_open
#  define SYS_pidfd_open 434
#endif


void np_process_init(np_process_t *process)
{
    process->pid        = 0;
    process->uid        = -1;
    process->fd         = -1;
    process->start_time = 0;
    atomic_init(&process->has_ended, 0);
    atomic_init(&process->seen_at, 0);
}

/* For good: from now on its pid is another process's */
static void np_process_set_ended(np_process_t *process)
{
    atomic_store_explicit(&process->has_ended, 1, memory_order_relaxed);
    atomic_store_explicit(&process->seen_at, 0, memory_order_relaxed);
}

/* By the pid that the kernel has noted, which may be another process's by now:
 * it must have begun when the process says that it has. Returns -1 and
 * errno. */
static int np_process_open_pid(const np_process_t *process, uint64_t start_time)
{
    uint64_t found;
    int fd;

    fd = syscall(SYS_pidfd_open, process->pid, 0);
    if (fd < 0) {
        return -1;
    }

    /* of the process that the pidfd is of, for it still runs afterwards */
    found = np_host_proc_start_time(process->pid);
    if ((start_time != 0) && (found != 0) && (found != start_time)) {
        close(fd);
        errno = ESRCH;
        return -1;
    }
    return fd;
}

static int np_process_open_peer(const np_process_t *process, int sock,
                                uint64_t start_time)
{
    socklen_t len = sizeof(int);
    int fd;

    if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0) {
        return fd;
    }

    if (errno != ENOPROTOOPT) {
        return -1;
    }

    if (process->pid == 0) {
        errno = ENOSYS;
        return -1;
    }
    return np_process_open_pid(process, start_time);
}

ucs_status_t np_process_open(np_process_t *process, int sock,
                             uint64_t start_time)
{
    np_sock_cred_t cred;
    ucs_status_t status;

    status = np_sock_peer(sock, &cred);
    if (status != UCS_OK) {
        return status;
    }

    np_process_close(process);
    process->pid        = cred.pid;
    process->uid        = cred.uid;
    process->start_time = start_time;
    process->fd         = np_process_open_peer(process, sock, start_time);
    if (process->fd < 0) {
        switch (errno) {
        case ESRCH:
        case EINVAL: /* the same, on some kernels */
            np_process_set_ended(process);
            return UCS_ERR_CONNECTION_RESET;
        case EMFILE:
        case ENFILE:
            np_error_seldom("no file descriptor left to watch process %d: "
                            "raise 'ulimit -n' (" NP_SOCK_FDS_TEXT ")",
                            process->pid);
            return UCS_ERR_EXCEEDS_LIMIT;
        default: /* an old kernel, or a sandbox: the start time must do */
            np_debug("no pidfd of process %d: %m", process->pid);
            break;
        }
    }

    if (!np_process_runs(process)) {
        np_process_close(process);
        return UCS_ERR_CONNECTION_RESET;
    }
    return UCS_OK;
}

void np_process_close(np_process_t *process)
{
    if (process->fd >= 0) {
        close(process->fd);
        process->fd = -1;
    }
}

int np_process_runs(np_process_t *process)
{
    struct pollfd pfd = {.fd = process->fd, .events = POLLIN};
    uint64_t now      = np_clock(); /* before: it was seen to run then */
    int has_ended;

    /* relaxed: a thread that does not see it yet finds it out itself */
    if (atomic_load_explicit(&process->has_ended, memory_order_relaxed)) {
        return 0;
    }

    has_ended = (process->fd >= 0) ?
                ((poll(&pfd, 1, 0) > 0) && (pfd.revents & POLLIN)) :
                ((process->pid != 0) &&
                 !np_host_proc_runs(process->pid, process->start_time));
    if (has_ended) {
        np_process_set_ended(process);
        return 0;
    }

    atomic_store_explicit(&process->seen_at, now, memory_order_relaxed);
    return 1;
}
