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

#include "discard.h"

#include "../../engine.h"
#include "../../seldom.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NP_SOCK_BACKLOG 4096

/* Messages that np_sock_close takes at most: more than fit into a socket */
#define NP_SOCK_MAX_QUEUED 1024


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
                 "(" NP_SOCK_FDS_TEXT ")");
        return UCS_ERR_IO_ERROR;
    }

    return UCS_OK;
}

ucs_status_t np_sock_peer(int fd, np_sock_cred_t *cred)
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

int np_sock_spare(int listen_fd)
{
    return fcntl(listen_fd, F_DUPFD_CLOEXEC, 0);
}

/* A process that cannot be accepted for lack of a descriptor must learn it:
 * give up the spare one for the moment that it takes to hang up */
static void np_sock_turn_away(int listen_fd, int *spare_fd)
{
    int fd;

    if (*spare_fd < 0) {
        return;
    }

    close(*spare_fd);
    fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        np_sock_close(fd);
        np_error_seldom("turned a peer away: too many open files. Raise "
                        "'ulimit -n' (" NP_SOCK_FDS_TEXT ")");
    }
    *spare_fd = np_sock_spare(listen_fd);
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
        return 3;
    case NP_MSG_ACCEPT:
        return 2;
    case NP_MSG_SEGMENT:
        return 1;
    default:
        return 0;
    }
}

/* One recvmsg(). @a fds NULL: leaves descriptors alone, and tells by MSG_CTRUNC
 * in
 * @a flags that there are some. */
static ssize_t np_sock_get(int fd, np_msg_t *msg, int *fds, unsigned *num_fds,
                           int *flags)
{
    union {
        struct cmsghdr align;
        char           buf[CMSG_SPACE(NP_MSG_MAX_FDS * sizeof(int))];
    } control;
    struct iovec iov  = {msg, sizeof(*msg)};
    struct msghdr hdr = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *cmsg;
    ssize_t ret;

    if (fds != NULL) {
        hdr.msg_control    = control.buf;
        hdr.msg_controllen = CMSG_LEN(NP_MSG_MAX_FDS * sizeof(int));
    }

    do {
        ret = recvmsg(fd, &hdr, *flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while ((ret < 0) && (errno == EINTR));

    *flags = (ret < 0) ? 0 : hdr.msg_flags;
    if (fds == NULL) {
        return ret;
    }

    *num_fds = 0;
    cmsg     = (ret < 0) ? NULL : CMSG_FIRSTHDR(&hdr);
    if ((cmsg != NULL) && (cmsg->cmsg_level == SOL_SOCKET) &&
        (cmsg->cmsg_type == SCM_RIGHTS)) {
        *num_fds = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(cmsg), *num_fds * sizeof(int));
    }
    return ret;
}

static ucs_status_t np_sock_peek(int fd, np_msg_t *msg, int *flags)
{
    ssize_t ret;

    *flags = MSG_PEEK;
    ret    = np_sock_get(fd, msg, NULL, NULL, flags);
    if (ret < 0) {
        return (errno == EAGAIN) ? UCS_ERR_NO_RESOURCE :
               UCS_ERR_CONNECTION_RESET;
    }

    if (ret == 0) {
        return UCS_ERR_CONNECTION_RESET;
    }

    return ((ret != (ssize_t)sizeof(*msg)) || (*flags & MSG_TRUNC) ||
            (msg->version != NP_WIRE_VERSION)) ?
           UCS_ERR_INVALID_PARAM : UCS_OK;
}

ucs_status_t np_sock_look(int fd, np_msg_t *msg)
{
    int flags;

    return np_sock_peek(fd, msg, &flags);
}

static void np_sock_drop_fds(const int *fds, unsigned num_fds)
{
#ifdef NP_FUZZ_MUTANT /* the deliberate fault that fuzzing must find */
    return;
#endif
    while (num_fds > 0) {
        np_discard(fds[--num_fds]);
    }
}

/* Copies of the next message's descriptors: the message keeps its own */
static ucs_status_t
np_sock_copy_fds(int fd, np_msg_t *msg, int *fds, unsigned *num_fds)
{
    int flags = MSG_PEEK;
    ucs_status_t status;
    unsigned i;

    if (np_sock_get(fd, msg, fds, num_fds, &flags) < 0) {
        return UCS_ERR_CONNECTION_RESET;
    }

    for (i = 0; (i < *num_fds) && np_discard_is_memory(fds[i]); ++i) {
    }

    if ((i == *num_fds) && (*num_fds == np_msg_fds(msg)) &&
        !(flags & MSG_CTRUNC)) {
        return UCS_OK;
    }

    /* Fewer than there are, and than there is room for: no number is left */
    status = UCS_ERR_INVALID_PARAM;
    if ((flags & MSG_CTRUNC) && (*num_fds < NP_MSG_MAX_FDS)) {
        np_error_seldom("no file descriptor left for a peer's memory: raise "
                        "'ulimit -n' (" NP_SOCK_FDS_TEXT ")");
        if (msg->type == NP_MSG_SEGMENT) {
            status = UCS_ERR_EXCEEDS_LIMIT; /* it goes without, till there is
                                               one */
        }
    }

    np_sock_drop_fds(fds, *num_fds);
    *num_fds = 0;
    return status;
}

ucs_status_t np_sock_recv(int fd, np_msg_t *msg, int *fds, unsigned *num_fds)
{
    ucs_status_t status;
    np_msg_t taken;
    int flags;

    *num_fds = 0;
    status   = np_sock_peek(fd, msg, &flags);
    if (status != UCS_OK) {
        return status;
    }

    if (!!(flags & MSG_CTRUNC) != (np_msg_fds(msg) > 0)) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (flags & MSG_CTRUNC) {
        status = np_sock_copy_fds(fd, msg, fds, num_fds);
        if (status != UCS_OK) {
            return status;
        }
    }

    /* No other thread takes from this socket. The references that it gives up
     * with this are not the last: we have copies. */
    flags = 0;
    if (np_sock_get(fd, &taken, NULL, NULL, &flags) < 0) {
        np_sock_drop_fds(fds, *num_fds);
        *num_fds = 0;
        return UCS_ERR_CONNECTION_RESET;
    }
    return UCS_OK;
}

unsigned np_sock_queued(int fd)
{
    int bytes = 0;

    return (ioctl(fd, SIOCINQ, &bytes) == 0) ? (bytes / sizeof(np_msg_t)) : 0;
}

/* Is the next message one without descriptors? With SO_PASSCRED each has its
 * sender's name, and the end has none: that tells an empty message from it.
 * @return UCS_OK; UCS_ERR_NO_ELEM: there is none; UCS_ERR_INVALID_PARAM. */
static ucs_status_t np_sock_is_next_plain(int fd)
{
    union {
        struct cmsghdr align;
        char           buf[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct msghdr hdr = {
        .msg_control    = control.buf,
        .msg_controllen = sizeof(control.buf)
    };
    ssize_t ret;

    do {
        ret = recvmsg(fd, &hdr, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while ((ret < 0) && ((errno == EINTR) || (errno == ECONNRESET)));

    if ((ret < 0) || (hdr.msg_flags & MSG_CTRUNC)) {
        return UCS_ERR_INVALID_PARAM;
    }

    return (hdr.msg_controllen == 0) ? UCS_ERR_NO_ELEM : UCS_OK;
}

/* Have each message show its sender's name, or not */
static int np_sock_name_senders(int fd, int are_named)
{
    return setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &are_named,
                      sizeof(are_named)) == 0;
}

/* Take a message with descriptors that we may look at: of a peer's to its link,
 * or with our cookie. A stranger's are never copied into our table. */
static ucs_status_t np_sock_drop_memory(int fd, int is_link)
{
    int fds[NP_MSG_MAX_FDS];
    ucs_status_t status;
    unsigned num_fds;
    np_msg_t msg;

    if (!np_sock_name_senders(fd, 0)) {
        return UCS_ERR_IO_ERROR;
    }

    status = np_sock_look(fd, &msg);
    if (status != UCS_OK) {
        return status;
    }

    if (!is_link && ((msg.type != NP_MSG_CONNECT) ||
                     (msg.cookie != np_engine.cookie))) {
        return UCS_ERR_INVALID_PARAM;
    }

    status = np_sock_recv(fd, &msg, fds, &num_fds);
    if (status == UCS_OK) {
        np_sock_drop_fds(fds, num_fds);
    }
    return status;
}

/* Take the next message; UCS_ERR_NO_ELEM: there is none; any other: it stays */
static ucs_status_t np_sock_drop_next(int fd, int is_link)
{
    ucs_status_t status;
    char byte;

    if (!np_sock_name_senders(fd, 1)) {
        return UCS_ERR_IO_ERROR;
    }

    status = np_sock_is_next_plain(fd);
    if (status == UCS_ERR_INVALID_PARAM) {
        return np_sock_drop_memory(fd, is_link);
    }

    return ((status == UCS_OK) &&
            (recv(fd, &byte, sizeof(byte), MSG_DONTWAIT) < 0)) ?
           UCS_ERR_IO_ERROR : status;
}

static void np_sock_end(int fd, int is_link)
{
    ucs_status_t status;
    unsigned i;

    /* Nothing more comes in after this. After an error the socket ends as
     * another process's file does. */
    status = (shutdown(fd, SHUT_RDWR) == 0) ? UCS_OK : UCS_ERR_IO_ERROR;
    for (i = 0; (i < NP_SOCK_MAX_QUEUED) && (status == UCS_OK); ++i) {
        status = np_sock_drop_next(fd, is_link);
    }

    if (status == UCS_ERR_NO_ELEM) {
        close(fd);
    } else {
        np_discard(fd);
    }
}

void np_sock_close(int fd)
{
    np_sock_end(fd, 0);
}

void np_sock_close_link(int fd)
{
    np_sock_end(fd, 1);
}

void np_sock_close_listener(int listen_fd)
{
    int fd;

    shutdown(listen_fd, SHUT_RDWR); /* no process connects any more */
    do {
        fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            np_sock_close(fd);
        }
    } while ((fd >= 0) || (errno == EINTR) || (errno == ECONNABORTED));
    close(listen_fd);
}
