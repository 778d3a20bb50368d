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
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define FOREIGN_MAX_FDS 253

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
};


static int foreign_open_memfd(int seals)
{
    int fd = memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if ((fd < 0) || (ftruncate(fd, 3 * 4096) != 0) ||
        ((seals != 0) && (fcntl(fd, F_ADD_SEALS, seals) != 0))) {
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

/* The other end never reads, so that what was written cannot leave */
static int foreign_open_linger(void)
{
    static int listener = -1;
    static struct sockaddr_in addr;
    static char data[65536];
    const struct linger hour = {.l_onoff = 1, .l_linger = 3600};
    socklen_t len            = sizeof(addr);
    int fd;

    if (listener < 0) {
        addr.sin_family      = AF_INET;
        addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        listener             = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if ((bind(listener, (struct sockaddr*)&addr, sizeof(addr)) != 0) ||
            (listen(listener, 4096) != 0) ||
            (getsockname(listener, (struct sockaddr*)&addr, &len) != 0)) {
            close(listener);
            return listener = -1;
        }
    }

    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if ((connect(fd, (struct sockaddr*)&addr, sizeof(addr)) != 0) ||
        (setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)) != 0)) {
        close(fd);
        return -1;
    }

    while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0) {
    }
    return fd;
}

int foreign_open(foreign_t kind)
{
    switch (kind) {
    case FOREIGN_MEMFD:
        return foreign_open_memfd(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    case FOREIGN_UNSEALED:
        return foreign_open_memfd(0);
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
    default:
        return -1;
    }
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
