/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors that somebody may send who means no good. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "foreign.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define FOREIGN_MAX_FDS    253
#define FOREIGN_SEALS      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define FOREIGN_PIDFD_OPEN 434

const char *foreign_names[] = {
    [FOREIGN_MEMFD]     = "memfd of another size",
    [FOREIGN_UNSEALED]  = "memfd without seals",
    [FOREIGN_PIPE]      = "pipe without reader",
    [FOREIGN_EVENTFD]   = "full blocking eventfd",
    [FOREIGN_LINGER]    = "lingering socket",
    [FOREIGN_NULL]      = "/dev/null",
    [FOREIGN_ZERO]      = "/dev/zero",
    [FOREIGN_DIRECTORY] = "directory",
    [FOREIGN_PATH]      = "path",
    [FOREIGN_EPOLL]     = "epoll set",
    [FOREIGN_TTY]       = "terminal",
    [FOREIGN_SHUT]      = "memfd that nobody may write",
    [FOREIGN_HUGE]      = "memfd of huge pages",
    [FOREIGN_FIFO]      = "full FIFO",
    [FOREIGN_NESTED]    = "socket in flight within itself",
    [FOREIGN_CARRIER]   = "socket with a lingering one in flight",
    [FOREIGN_FULL]      = "/dev/full",
    [FOREIGN_TIMER]     = "timerfd",
    [FOREIGN_SIGNAL]    = "signalfd",
    [FOREIGN_INOTIFY]   = "inotify",
    [FOREIGN_PIDFD]     = "pidfd",
    [FOREIGN_DELETED]   = "deleted file",
};

/* The far end of lingering sockets; -1: none yet */
static int foreign_listener = -1;


static int foreign_open_memfd(unsigned flags, size_t size, int seals)
{
    int fd = memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

    if ((fd >= 0) && ((ftruncate(fd, size) != 0) ||
                      ((seals != 0) && (fcntl(fd, F_ADD_SEALS, seals) != 0)))) {
        close(fd);
        return -1;
    }
    return fd;
}

static int foreign_open_pipe(void)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }

    close(ends[0]);
    return ends[1];
}

static int foreign_open_eventfd(void)
{
    const uint64_t most = UINT64_MAX - 1;
    int fd              = eventfd(0, EFD_CLOEXEC);

    return ((fd >= 0) && (write(fd, &most, sizeof(most)) == sizeof(most))) ?
           fd : -1;
}

static int foreign_listen(struct sockaddr_in *addr, socklen_t *len)
{
    const int small = 4096;

    if (foreign_listener < 0) {
        *addr            = (struct sockaddr_in){
            .sin_family      = AF_INET,
            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)
        };
        foreign_listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(foreign_listener, SOL_SOCKET, SO_RCVBUF, &small,
                   sizeof(small));
        if ((bind(foreign_listener, (struct sockaddr*)addr, *len) != 0) ||
            (listen(foreign_listener, 4096) != 0)) {
            foreign_reset();
            return 0;
        }
    }
    return getsockname(foreign_listener, (struct sockaddr*)addr, len) == 0;
}

unsigned foreign_count_own(void)
{
    return foreign_listener >= 0;
}

void foreign_reset(void)
{
    if (foreign_listener >= 0) {
        close(foreign_listener);
        foreign_listener = -1;
    }
}

/* The other end never reads, so that what was written cannot leave */
static int foreign_open_linger(void)
{
    static char data[65536];
    const struct linger hour = {.l_onoff = 1, .l_linger = 3600};
    const int small          = 4096;
    struct sockaddr_in addr;
    socklen_t len = sizeof(addr);
    int fd;

    if (!foreign_listen(&addr, &len)) {
        return -1;
    }

    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    if ((connect(fd, (struct sockaddr*)&addr, len) != 0) ||
        (setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)) != 0)) {
        close(fd);
        return -1;
    }

    while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0) {
    }
    return fd;
}

static int foreign_open_fifo(void)
{
    static char data[65536];
    int ends[2], fd;
    char path[32];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return -1;
    }

    /* one that has both ends, and so a reader as long as it lives */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    close(ends[0]);
    close(ends[1]);
    if (fd >= 0) {
        while (write(fd, data, sizeof(data)) > 0) {
        }
        fcntl(fd, F_SETFL, 0);
    }
    return fd;
}

/* A unix socket with a message in which another descriptor is in flight */
static int foreign_open_carrier(int fd)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return -1;
    }

    if (!foreign_send(ends[1], "", 1, (fd < 0) ? &ends[0] : &fd, 1)) {
        close(ends[0]);
        ends[0] = -1;
    }
    close(ends[1]);
    return ends[0];
}

static int foreign_open_linger_carrier(void)
{
    int fd = foreign_open_linger(), carrier;

    if (fd < 0) {
        return -1;
    }

    carrier = foreign_open_carrier(fd);
    if (carrier < 0) {
        foreign_close(fd);
    } else {
        close(fd);
    }
    return carrier;
}

static int foreign_open_inotify(void)
{
    int fd = inotify_init1(IN_CLOEXEC);

    if (fd >= 0) {
        inotify_add_watch(fd, "/tmp", IN_ALL_EVENTS);
    }
    return fd;
}

static int foreign_open_signal(void)
{
    sigset_t mask;

    sigfillset(&mask);
    return signalfd(-1, &mask, SFD_CLOEXEC);
}

static int foreign_open_deleted(void)
{
    char path[] = "/tmp/foreign-XXXXXX";
    int fd      = mkostemp(path, O_CLOEXEC);

    unlink(path);
    return fd;
}

int foreign_open(foreign_t kind)
{
    switch (kind) {
    case FOREIGN_MEMFD:
        return foreign_open_memfd(0, 3 * 4096, FOREIGN_SEALS);
    case FOREIGN_UNSEALED:
        return foreign_open_memfd(0, 3 * 4096, 0);
    case FOREIGN_PIPE:
        return foreign_open_pipe();
    case FOREIGN_EVENTFD:
        return foreign_open_eventfd();
    case FOREIGN_LINGER:
        return foreign_open_linger();
    case FOREIGN_NULL:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    case FOREIGN_ZERO:
        return open("/dev/zero", O_RDWR | O_CLOEXEC);
    case FOREIGN_DIRECTORY:
        return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    case FOREIGN_PATH:
        return open("/", O_PATH | O_CLOEXEC);
    case FOREIGN_EPOLL:
        return epoll_create1(EPOLL_CLOEXEC);
    case FOREIGN_TTY:
        return posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    case FOREIGN_SHUT:
        return foreign_open_memfd(0, 4096, FOREIGN_SEALS | F_SEAL_WRITE);
    case FOREIGN_HUGE:
        return foreign_open_memfd(MFD_HUGETLB, FOREIGN_HUGE_SIZE,
                                  FOREIGN_SEALS);
    case FOREIGN_FIFO:
        return foreign_open_fifo();
    case FOREIGN_NESTED:
        return foreign_open_carrier(-1);
    case FOREIGN_CARRIER:
        return foreign_open_linger_carrier();
    case FOREIGN_FULL:
        return open("/dev/full", O_RDWR | O_CLOEXEC);
    case FOREIGN_TIMER:
        return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    case FOREIGN_SIGNAL:
        return foreign_open_signal();
    case FOREIGN_INOTIFY:
        return foreign_open_inotify();
    case FOREIGN_PIDFD:
        return syscall(FOREIGN_PIDFD_OPEN, getpid(), 0);
    case FOREIGN_DELETED:
        return foreign_open_deleted();
    default:
        return -1;
    }
}

void foreign_close(int fd)
{
    const struct linger off = {0, 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof(off));
    foreign_reset(); /* what is in flight within it */
    close(fd);
}

int foreign_send(int sock, const void *msg, size_t size, const int *fds,
                 unsigned num_fds)
{
    char buf[CMSG_SPACE(FOREIGN_MAX_FDS * sizeof(int))] = {0};
    struct iovec iov     = {(void*)msg, size};
    struct msghdr hdr    = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *cmsg = (struct cmsghdr*)buf;

    if (num_fds > 0) {
        hdr.msg_control    = buf;
        hdr.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
        cmsg->cmsg_level   = SOL_SOCKET;
        cmsg->cmsg_type    = SCM_RIGHTS;
        cmsg->cmsg_len     = CMSG_LEN(num_fds * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, num_fds * sizeof(int));
    }
    return sendmsg(sock, &hdr, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size;
}

int foreign_is_told(void)
{
    char control[CMSG_SPACE(sizeof(int))], byte = 0;
    struct iovec iov  = {&byte, sizeof(byte)};
    struct msghdr hdr = {
        .msg_iov        = &iov,
        .msg_iovlen     = 1,
        .msg_control    = control,
        .msg_controllen = sizeof(control)
    };
    const int fds[] = {STDERR_FILENO, STDERR_FILENO, STDERR_FILENO};
    int ends[2], is_told;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return 0;
    }

    /* a copy stays in the message */
    is_told = foreign_send(ends[0], &byte, sizeof(byte), fds, 3) &&
              (recvmsg(ends[1], &hdr, MSG_PEEK | MSG_CMSG_CLOEXEC) == 1) &&
              (hdr.msg_flags & MSG_CTRUNC);
    close(ends[0]);
    close(ends[1]);
    return is_told;
}
