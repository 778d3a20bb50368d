/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The unix sockets between two processes.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "sock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NP_SOCK_BACKLOG 4096


static socklen_t np_sock_addr(uint64_t id, struct sockaddr_un *addr)
{
    memset(addr, 0, sizeof(*addr));
    addr->sun_family = AF_UNIX;
    /* a leading zero byte makes the name abstract */
    return offsetof(struct sockaddr_un, sun_path) + 1 +
           snprintf(addr->sun_path + 1, sizeof(addr->sun_path) - 1,
                    "nprdma-%016lx", id);
}

static ucs_status_t np_sock_open(int *fd_p)
{
    *fd_p = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd_p < 0) {
        np_error("no unix socket for a connection: %m. Check 'ulimit -n' "
                 "(four descriptors for each peer)");
        return UCS_ERR_IO_ERROR;
    }

    return UCS_OK;
}

static ucs_status_t np_sock_peer(int fd, np_sock_cred_t *cred)
{
    struct ucred ucred;
    socklen_t len = sizeof(ucred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &len) != 0) {
        np_error("getsockopt(SO_PEERCRED) failed: %m");
        return UCS_ERR_IO_ERROR;
    }

    cred->pid = ucred.pid;
    cred->uid = ucred.uid;
    return UCS_OK;
}

ucs_status_t np_sock_listen(uint64_t id, int *fd_p)
{
    struct sockaddr_un addr;
    socklen_t len = np_sock_addr(id, &addr);
    ucs_status_t status;

    status = np_sock_open(fd_p);
    if (status != UCS_OK) {
        return status;
    }

    if ((bind(*fd_p, (struct sockaddr*)&addr, len) != 0) ||
        (listen(*fd_p, NP_SOCK_BACKLOG) != 0)) {
        np_error("cannot listen on unix socket '@%s': %m", addr.sun_path + 1);
        close(*fd_p);
        return UCS_ERR_IO_ERROR;
    }

    return UCS_OK;
}

ucs_status_t np_sock_connect(uint64_t id, int *fd_p, np_sock_cred_t *cred)
{
    struct sockaddr_un addr;
    socklen_t len = np_sock_addr(id, &addr);
    ucs_status_t status;

    status = np_sock_open(fd_p);
    if (status != UCS_OK) {
        return status;
    }

    if (connect(*fd_p, (struct sockaddr*)&addr, len) != 0) {
        if (errno == EAGAIN) {
            status = UCS_ERR_NO_RESOURCE;
        } else {
            np_debug("connect(@%s) failed: %m", addr.sun_path + 1);
            status = UCS_ERR_CONNECTION_RESET;
        }
        goto err_close;
    }

    status = np_sock_peer(*fd_p, cred);
    if (status != UCS_OK) {
        goto err_close;
    }

    return UCS_OK;

err_close:
    close(*fd_p);
    *fd_p = -1;
    return status;
}

/* Whoever cannot be accepted for lack of a descriptor must learn it: give up
 * the spare one for the moment that it takes to hang up on him */
static void np_sock_turn_away(int listen_fd, int *spare_fd)
{
    int fd;

    if (*spare_fd < 0) {
        return;
    }

    close(*spare_fd);
    fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        close(fd);
        np_error("turned a peer away: too many open files. Raise 'ulimit -n' "
                 "(two descriptors for each peer)");
    }
    *spare_fd = fcntl(listen_fd, F_DUPFD_CLOEXEC, 0);
}

ucs_status_t np_sock_accept(int listen_fd, int *spare_fd, int *fd_p,
                            np_sock_cred_t *cred)
{
    ucs_status_t status;

    *fd_p = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (*fd_p < 0) {
        if ((errno == EMFILE) || (errno == ENFILE)) {
            np_sock_turn_away(listen_fd, spare_fd);
        }
        return UCS_ERR_NO_RESOURCE;
    }

    status = np_sock_peer(*fd_p, cred);
    if (status != UCS_OK) {
        close(*fd_p);
    }
    return status;
}

ucs_status_t np_sock_send(int fd, const np_msg_t *msg, const int *fds,
                          unsigned num_fds)
{
    union {
        struct cmsghdr align;
        char           buf[CMSG_SPACE(NP_MSG_MAX_FDS * sizeof(int))];
    } control;
    struct iovec iov   = {(void*)msg, sizeof(*msg)};
    struct msghdr hdr  = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *cmsg;
    ssize_t ret;

    if (num_fds > 0) {
        memset(&control, 0, sizeof(control));
        hdr.msg_control    = control.buf;
        hdr.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
        cmsg               = CMSG_FIRSTHDR(&hdr);
        cmsg->cmsg_level   = SOL_SOCKET;
        cmsg->cmsg_type    = SCM_RIGHTS;
        cmsg->cmsg_len     = CMSG_LEN(num_fds * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, num_fds * sizeof(int));
    }

    do {
        ret = sendmsg(fd, &hdr, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while ((ret < 0) && (errno == EINTR));

    if (ret == (ssize_t)sizeof(*msg)) {
        return UCS_OK;
    }

    return ((errno == EAGAIN) || (errno == ETOOMANYREFS) ||
            (errno == ENOBUFS)) ?
           UCS_ERR_NO_RESOURCE : UCS_ERR_CONNECTION_RESET;
}

static unsigned np_msg_fds(const np_msg_t *msg)
{
    switch (msg->type) {
    case NP_MSG_CONNECT:
    case NP_MSG_ACCEPT:
        return 3;
    case NP_MSG_SEGMENT:
        return 1;
    default:
        return 0;
    }
}

static unsigned np_sock_take_fds(struct msghdr *hdr, int *fds)
{
    struct cmsghdr *cmsg;
    unsigned num_fds = 0;
    size_t len;

    for (cmsg = CMSG_FIRSTHDR(hdr); cmsg != NULL;
         cmsg = CMSG_NXTHDR(hdr, cmsg)) {
        if ((cmsg->cmsg_level == SOL_SOCKET) &&
            (cmsg->cmsg_type == SCM_RIGHTS)) {
            len     = ucs_min(cmsg->cmsg_len - CMSG_LEN(0),
                              NP_MSG_MAX_FDS * sizeof(int));
            num_fds = len / sizeof(int);
            memcpy(fds, CMSG_DATA(cmsg), len);
        }
    }

    return num_fds;
}

ucs_status_t np_sock_recv(int fd, np_msg_t *msg, int *fds, unsigned *num_fds)
{
    union {
        struct cmsghdr align;
        char           buf[CMSG_SPACE(NP_MSG_MAX_FDS * sizeof(int))];
    } control;
    struct iovec iov  = {msg, sizeof(*msg)};
    struct msghdr hdr = {
        .msg_iov        = &iov,
        .msg_iovlen     = 1,
        .msg_control    = control.buf,
        .msg_controllen = CMSG_LEN(NP_MSG_MAX_FDS * sizeof(int))
    };
    ssize_t ret;

    do {
        ret = recvmsg(fd, &hdr, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while ((ret < 0) && (errno == EINTR));

    *num_fds = 0;
    if (ret < 0) {
        return (errno == EAGAIN) ? UCS_ERR_NO_RESOURCE :
               UCS_ERR_CONNECTION_RESET;
    }

    if (ret == 0) {
        return UCS_ERR_CONNECTION_RESET;
    }

    *num_fds = np_sock_take_fds(&hdr, fds);
    if (hdr.msg_flags & MSG_CTRUNC) {
        np_error("no file descriptor left for a peer's memory: raise "
                 "'ulimit -n' (two descriptors for each peer)");
    }

    if ((hdr.msg_flags & MSG_CTRUNC) && (ret == (ssize_t)sizeof(*msg)) &&
        (msg->version == NP_WIRE_VERSION) && (msg->type == NP_MSG_SEGMENT)) {
        msg->type = NP_MSG_WAKE; /* it is faster with the segment, no more */
    }

    if ((ret != (ssize_t)sizeof(*msg)) || (msg->version != NP_WIRE_VERSION) ||
        (*num_fds != np_msg_fds(msg))) {
        while (*num_fds > 0) {
            close(fds[--(*num_fds)]);
        }
        return UCS_ERR_INVALID_PARAM;
    }

    return UCS_OK;
}
