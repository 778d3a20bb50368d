/* SPDX-License-Identifier: BSD-3-Clause */
/* A device that was given views goes on when their process ends. */

#include "kmod_edu.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

typedef struct views {
    uint64_t addr;
    int      fds[3]; /* read view, write view, table */
} views_t;

static void views_send(int sock, const kmod_region_t *region)
{
    int fds[3] = {region->read_fd, region->write_fd, region->table_fd};

    if ((send(sock, &region->addr, sizeof(region->addr), 0) !=
         (ssize_t)sizeof(region->addr)) || !kmod_fds_send(sock, fds, 3)) {
        kmod_bail("sending views");
    }
}

static views_t views_receive(int sock)
{
    views_t views;

    if ((recv(sock, &views.addr, sizeof(views.addr), MSG_WAITALL) !=
         (ssize_t)sizeof(views.addr)) || !kmod_fds_receive(sock, views.fds, 3)) {
        kmod_bail("receiving views");
    }
    return views;
}

/* How a child ends after it has sent its views and been told to */
enum {
    END_EXIT,
    END_KILL, /* waits to be killed */
    END_EXEC,
    END_CLOSE /* closes its context, then waits to be killed */
};

static void child(int sock, int how)
{
    int dev = kmod_open();
    kmod_region_t region;
    char *memory, byte;

    memory = kmod_map(KMOD_SLICE);
    kmod_region_open(&region, dev, memory, KMOD_SLICE, -1);
    edu_arrive(&region, memory, edu_words[0], NPRDMA_FAULT_WRITE);
    views_send(sock, &region);
    if (recv(sock, &byte, 1, 0) != 1) {
        _exit(1);
    }
    switch (how) {
    case END_EXIT:
        exit(0);
    case END_EXEC:
        execl("/bin/sh", "sh", "-c", "read line", (char*)NULL);
        _exit(1);
    case END_CLOSE:
        close(dev);
        break;
    }
    if (send(sock, "", 1, 0) != 1) {
        _exit(1);
    }
    pause();
    _exit(1);
}

static const char *end_names[] = {
    [END_EXIT]  = "exit",
    [END_KILL]  = "kill -9",
    [END_EXEC]  = "exec",
    [END_CLOSE] = "closing the context"
};

/* After exec the old address space is gone as soon as the socket, too */
static void await_end(int sock, pid_t pid, int how)
{
    char byte;

    if (recv(sock, &byte, 1, 0) < 0) {
        kmod_bail("recv");
    }
    if (how == END_KILL) {
        kill(pid, SIGKILL);
    }
    if ((how == END_EXIT) || (how == END_KILL)) {
        waitpid(pid, NULL, 0);
    }
}

static void scene_end(int edu, int how)
{
    struct edu_attach attach;
    kmod_region_t region;
    views_t views;
    int socks[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) != 0) {
        kmod_bail("socketpair");
    }
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        close(socks[0]);
        child(socks[1], how);
    }
    close(socks[1]);
    views  = views_receive(socks[0]);
    region = (kmod_region_t){
        .addr     = views.addr,
        .edu      = edu,
        .table    = mmap(NULL, 4 * KMOD_PAGE, PROT_READ, MAP_SHARED,
                         views.fds[2], 0)
    };
    attach.fd = views.fds[0];
    edu_attach(&region, &attach);
    region.read_slot = attach.slot;
    attach.fd        = views.fds[1];
    edu_attach(&region, &attach);
    region.write_slot = attach.slot;
    TAP_CHECK(kmod_word(&region, (void*)views.addr) == edu_words[0],
              "a device reads another process's region");
    if (send(socks[0], "", 1, 0) != 1) {
        kmod_bail("send");
    }
    await_end(socks[0], pid, how);
    TAP_CHECK((kmod_word(&region, (void*)views.addr) == NPRDMA_SIGNATURE) &&
              (kmod_bits(&region, (void*)views.addr) == 0),
              "after %s it reads the signature", end_names[how]);
    kmod_put(&region, (void*)views.addr, edu_words[1]);
    TAP_CHECK(kmod_word(&region, (void*)views.addr) == NPRDMA_SIGNATURE,
              "after %s its writes vanish", end_names[how]);
    edu_detach(&region, region.read_slot);
    edu_detach(&region, region.write_slot);
    munmap((void*)region.table, 4 * KMOD_PAGE);
    close(views.fds[0]);
    close(views.fds[1]);
    close(views.fds[2]);
    close(socks[0]);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

void edu_processes(int edu)
{
    scene_end(edu, END_EXIT);
    scene_end(edu, END_KILL);
    scene_end(edu, END_EXEC);
    scene_end(edu, END_CLOSE);
}
