/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file of a file system in user space that has stopped answering.
 *
 * The server is a process of its own: a device of FUSE that is in the table of
 * whoever waits for its file system is never closed.
 *
 *     program                 server                  opener, its child
 *     stopped_open()          mounts it, forks
 *                             answers                 opens the file, sends it
 *                             answers its close       ends
 *                             unmounts it, stops
 *     knows that
 *     stopped_end()           closes the device
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "stopped.h"

#include "fuse_answer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_close_range
#  define SYS_close_range 436
#endif

/* In the server's own name space */
#define STOPPED_DIR  "/tmp"
#define STOPPED_FILE STOPPED_DIR "/file"

/* What the program asks for, and the answers */
#define STOPPED_OPEN 'o'
#define STOPPED_END  'e'
#define STOPPED_YES  'y'
#define STOPPED_NO   'n'

/* The program's end of the connection to the server; -1: there is none */
static int stopped_server = -1;

/* The server's: -1: no file system */
static int stopped_device = -1;


/* With a file; -1: without one */
static int stopped_send(int sock, char byte, int fd)
{
    char buf[CMSG_SPACE(sizeof(fd))] = {0};
    struct iovec iov                 = {&byte, 1};
    struct msghdr hdr                = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *cmsg             = (struct cmsghdr*)buf;
    ssize_t ret;

    if (fd >= 0) {
        hdr.msg_control    = buf;
        hdr.msg_controllen = sizeof(buf);
        cmsg->cmsg_level   = SOL_SOCKET;
        cmsg->cmsg_type    = SCM_RIGHTS;
        cmsg->cmsg_len     = CMSG_LEN(sizeof(fd));
        memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
    }
    do {
        ret = sendmsg(sock, &hdr, MSG_NOSIGNAL);
    } while ((ret < 0) && (errno == EINTR)); /* libFuzzer has a timer */
    return ret == 1;
}

/* The answer, and the file that comes with it; -1: none does */
static char stopped_receive(int sock, int *fd)
{
    char byte = STOPPED_NO, buf[CMSG_SPACE(sizeof(*fd))] = {0};
    struct iovec iov  = {&byte, 1};
    struct msghdr hdr = {
        .msg_iov     = &iov,
        .msg_iovlen  = 1,
        .msg_control = buf,
        .msg_controllen = sizeof(buf)
    };
    struct cmsghdr *cmsg;
    ssize_t ret;

    *fd = -1;
    do {
        ret = recvmsg(sock, &hdr, MSG_CMSG_CLOEXEC);
    } while ((ret < 0) && (errno == EINTR));
    if (ret == 1) {
        cmsg = CMSG_FIRSTHDR(&hdr);
        if (cmsg != NULL) {
            memcpy(fd, CMSG_DATA(cmsg), sizeof(*fd));
        }
    }
    return byte;
}

/* Answers until @a opener has ended; returns whether it has sent the file */
static int stopped_serve(pid_t opener)
{
    static char bytes[FUSE_ANSWER_BUFFER]
            __attribute__((aligned(sizeof(uint64_t))));
    struct pollfd pfd = {.fd = stopped_device, .events = POLLIN};
    int status        = -1;

    while (waitpid(opener, &status, WNOHANG) == 0) {
        if ((poll(&pfd, 1, 1) > 0) &&
            (read(stopped_device, bytes, sizeof(bytes)) > 0)) {
            (void)fuse_answer(stopped_device, (const void*)bytes);
        }
    }
    return status == 0;
}

static void stopped_close_device(void)
{
    if (stopped_device >= 0) {
        close(stopped_device);
        stopped_device = -1;
    }
}

static int stopped_mount(void)
{
    char options[96];

    stopped_device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (stopped_device < 0) {
        return -1;
    }

    snprintf(options, sizeof(options),
             "fd=%d,rootmode=40000,user_id=%u,group_id=%u", stopped_device,
             geteuid(), getegid());
    return mount("stopped", STOPPED_DIR, "fuse", MS_NOSUID | MS_NODEV, options);
}

/* Mounts one and sends its file */
static void stopped_make(int sock)
{
    int is_sent = 0, fd;
    pid_t opener;

    if (stopped_mount() == 0) {
        opener = fork();
        if (opener == 0) {
            fd = open(STOPPED_FILE, O_RDWR | O_CLOEXEC);
            _exit((fd < 0) || !stopped_send(sock, STOPPED_YES, fd));
        }
        is_sent = (opener > 0) && stopped_serve(opener);
        umount2(STOPPED_DIR, MNT_DETACH); /* it lasts as long as its file */
    }

    if (!is_sent) {
        stopped_close_device();
    }
    stopped_send(sock, is_sent ? STOPPED_YES : STOPPED_NO, -1);
}

static void stopped_write(const char *path, const char *line)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!write(fd, line, strlen(line));
        close(fd);
    }
}

/* May mount, where nobody sees it; one that is not root, among its own users */
static int stopped_enter(void)
{
    const unsigned uid = geteuid(), gid = getegid();
    char line[32];

    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
            return -1;
        }
        snprintf(line, sizeof(line), "0 %u 1", uid);
        stopped_write("/proc/self/uid_map", line);
        stopped_write("/proc/self/setgroups", "deny");
        snprintf(line, sizeof(line), "0 %u 1", gid);
        stopped_write("/proc/self/gid_map", line);
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

/* Ends with the program, whose end of @a sock is the last */
static void stopped_server_main(int sock)
{
    struct pollfd pfd = {.fd = sock, .events = POLLIN};
    int is_here       = stopped_enter() == 0;
    char byte;

    stopped_send(sock, is_here ? STOPPED_YES : STOPPED_NO, -1);
    while (is_here) {
        if (poll(&pfd, 1, (stopped_device < 0) ? -1 : (1000 * STOPPED_LIMIT)) ==
            0) {
            stopped_close_device();
            continue;
        }

        if (read(sock, &byte, 1) != 1) {
            break;
        }
        if (byte == STOPPED_OPEN) {
            stopped_make(sock);
        } else {
            stopped_close_device();
        }
    }
    _exit(0);
}

/* The server has nothing of the program's open */
static void stopped_close_others(int sock)
{
    int fd;

    if ((syscall(SYS_close_range, 0, sock - 1, 0) == 0) &&
        (syscall(SYS_close_range, sock + 1, UINT_MAX, 0) == 0)) {
        return;
    }

    for (fd = 0; fd < 65536; ++fd) {
        if (fd != sock) {
            close(fd);
        }
    }
}

int stopped_start(void)
{
    int ends[2], none, fd;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return -1;
    }

    pid = fork();
    if (pid == 0) {
        stopped_close_others(ends[1]);
        stopped_server_main(ends[1]);
    }

    close(ends[1]);
    if ((pid < 0) || (stopped_receive(ends[0], &none) != STOPPED_YES)) {
        close(ends[0]);
        return -1;
    }

    stopped_server = ends[0];
    fd             = stopped_open();
    if (fd < 0) {
        close(stopped_server);
        stopped_server = -1;
        return -1;
    }

    stopped_end();
    close(fd);
    return 0;
}

int stopped_open(void)
{
    int fd, none;

    if ((stopped_server < 0) ||
        !stopped_send(stopped_server, STOPPED_OPEN, -1) ||
        (stopped_receive(stopped_server, &fd) != STOPPED_YES)) {
        return -1;
    }

    /* it may answer until then */
    if (stopped_receive(stopped_server, &none) != STOPPED_YES) {
        stopped_end();
        close(fd);
        return -1;
    }
    return fd;
}

void stopped_end(void)
{
    if (stopped_server >= 0) {
        stopped_send(stopped_server, STOPPED_END, -1);
    }
}
