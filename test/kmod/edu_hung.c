/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A file whose pages never come, since its file system (FUSE, by this program)
 * does not answer. Who has asked for one waits; nobody else may: not the end of
 * its region, and not a device that is taken out of the machine.
 */

#include "kmod_edu.h"

#include "../engine/fuse_answer.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define HUNG_DIR  "/tmp/kmod-hung"
#define HUNG_FILE HUNG_DIR "/file"
#define HUNG_MS   15000

typedef struct hung {
    int         fuse;    /* -1: there is none */
    _Atomic int asked;   /* for a page, that will not come */
    int         edu;
    uint32_t    slot;
    _Atomic int detached;
} hung_t;

/* Until it is unmounted */
static void *fuse_run(void *argument)
{
    hung_t *hung = argument;
    char bytes[FUSE_ANSWER_BUFFER]
            __attribute__((aligned(sizeof(uint64_t))));
    const struct fuse_in_header *in = (const void*)bytes;

    while (read(hung->fuse, bytes, sizeof(bytes)) > 0) {
        if (in->opcode == FUSE_READ) {
            hung->asked = 1;
        } else if (!fuse_answer(hung->fuse, in)) {
            printf("# answering FUSE: %m\n");
        }
    }
    return NULL;
}

static int fuse_mount(hung_t *hung)
{
    char options[128];

    hung->fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (hung->fuse < 0) {
        return 0;
    }
    snprintf(options, sizeof(options),
             "fd=%d,rootmode=40000,user_id=0,group_id=0", hung->fuse);
    mkdir(HUNG_DIR, 0700);
    if (mount("kmod", HUNG_DIR, "fuse", 0, options) != 0) {
        kmod_bail("mounting FUSE");
    }
    return 1;
}

static void *child_fault(void *argument)
{
    kmod_region_t *region = argument;

    kmod_in(region, (void*)region->addr, 0);
    return NULL;
}

/* Says when it has views, asks for the page, and says when its region is no
 * more, which it ends as soon as it is told to */
static void hung_child(int sock)
{
    int fd = open(HUNG_FILE, O_RDONLY), dev = kmod_open();
    kmod_region_t region;
    pthread_t thread;
    char *page, byte;

    page = mmap(NULL, KMOD_PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    if (page == MAP_FAILED) {
        kmod_bail("mmap of a file that hangs");
    }
    kmod_region_open(&region, dev, page, KMOD_PAGE, -1);
    if (!kmod_fds_send(sock, &region.read_fd, 1) ||
        (pthread_create(&thread, NULL, child_fault, &region) != 0) ||
        (recv(sock, &byte, 1, 0) != 1)) {
        _exit(1);
    }
    kmod_destroy(dev, region.number);
    _exit(send(sock, "", 1, 0) != 1);
}

static void *hung_detach(void *argument)
{
    hung_t *hung = argument;

    ioctl(hung->edu, EDU_IOC_DETACH, hung->slot);
    hung->detached = 1;
    return NULL;
}

static int hung_is(_Atomic int *flag)
{
    unsigned waited;

    for (waited = 0; (waited < HUNG_MS) && !*flag; waited += 10) {
        usleep(10000);
    }
    return *flag;
}

static void hung_scene(hung_t *hung, int sock)
{
    struct pollfd poller     = {.fd = sock, .events = POLLIN};
    struct edu_attach attach = {};
    pthread_t thread;

    if (!kmod_fds_receive(sock, &attach.fd, 1) ||
        (ioctl(hung->edu, EDU_IOC_ATTACH, &attach) != 0)) {
        kmod_bail("attaching a view");
    }
    hung->slot = attach.slot;
    TAP_CHECK(hung_is(&hung->asked), "a page is asked for, and does not come");
    if (send(sock, "", 1, 0) != 1) {
        kmod_bail("send");
    }
    TAP_CHECK(poll(&poller, 1, HUNG_MS) == 1,
              "a region ends that somebody brings a page into");
    if (pthread_create(&thread, NULL, hung_detach, hung) != 0) {
        kmod_bail("pthread_create");
    }
    TAP_CHECK(hung_is(&hung->detached), "a device can be taken out meanwhile");
    /* Now all that wait get an error */
    umount2(HUNG_DIR, MNT_FORCE | MNT_DETACH);
    pthread_join(thread, NULL);
    close(attach.fd);
}

void edu_hung(int edu)
{
    hung_t hung = {.edu = edu};
    pthread_t server;
    int socks[2];
    pid_t pid;

    if (!fuse_mount(&hung)) {
        printf("ok %u - a page that never comes # SKIP no /dev/fuse here\n",
               ++tap_count);
        return;
    }
    if ((socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) != 0) ||
        (pthread_create(&server, NULL, fuse_run, &hung) != 0)) {
        kmod_bail("a FUSE server");
    }
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        close(hung.fuse);
        hung_child(socks[1]);
    }
    hung_scene(&hung, socks[0]);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(hung.fuse);
    pthread_join(server, NULL);
    rmdir(HUNG_DIR);
    close(socks[0]);
    close(socks[1]);
}
