/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that has ended is down, whoever holds its sockets and whoever has
 * its pid; and what a peer costs in descriptors. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "pair.h"
#include "tap.h"

#include "nprdma/start.h"
#include "nprdma/clock.h"
#include "nprdma/dev/soft/sock.h"
#include "nprdma/mem/key.h"
#include "nprdma/mem/table.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/sop.h"
#include "nprdma/proto/soft/rma.h"

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PROCESS_VA   UINT64_C(0x330000000000)
#define PROCESS_SIZE 4096
#define PROCESS_MINE 1
#define PROCESS_PUT  2

/* s */
#define PROCESS_PATIENCE 60

/* ns, more than a process is taken to live without asking */
#define PROCESS_GRANTED  5000000

/* What a process says of itself before it serves */
typedef struct process_hello {
    np_port_addr_t  addr;
    np_packed_key_t key;
    pid_t           child;   /* who holds its sockets too */
} process_hello_t;

/* The process that ends */
typedef struct process_world {
    pid_t           pid;
    process_hello_t hello;
    int             end;     /* to close it is to end it */
} process_world_t;

static np_port_t *process_port;
static np_link_t process_link;


static ucs_status_t process_start_engine(void)
{
    const np_engine_config_t config = {.share_min = 1 << 20};

    alarm(PROCESS_PATIENCE);
    return np_engine_init(&config);
}

/* Serves a page, has a child that holds its sockets, and ends when it is told
 * to; it connects to @a back, too, if that is not NULL */
static void process_serve(int hello_fd, int end_fd, const np_port_addr_t *back)
{
    process_hello_t hello = {.child = -1};
    np_port_t *port;
    np_arenas_t arenas;
    np_link_t link;
    char byte;

    if ((process_start_engine() != UCS_OK) ||
        (np_arenas_share(PROCESS_VA, PROCESS_SIZE, &arenas) != UCS_OK)) {
        _exit(1);
    }

    port = pair_port();
    if (back != NULL) {
        np_link_init(&link, port, back);
        if (np_link_connect(&link) != UCS_OK) {
            _exit(1);
        }
    }

    np_port_get_addr(port, &hello.addr);
    np_key_pack_arenas(&hello.key, arenas);
    hello.child = -1;
    if (write(hello_fd, &hello, sizeof(hello)) != sizeof(hello)) {
        _exit(1);
    }

    while (recv(end_fd, &byte, 1, MSG_DONTWAIT) < 0) {
        pair_progress(port);
        np_port_housekeep(port);
    }

    hello.child = fork();
    if (hello.child == 0) {
        close(end_fd);
        alarm(PROCESS_PATIENCE); /* if a test fails, nobody ends it */
        pause();
    }
    _exit(write(hello_fd, &hello, sizeof(hello)) != sizeof(hello));
}

static int process_begin(process_world_t *world, const np_port_addr_t *back)
{
    int hello[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, hello) != 0) {
        return 0;
    }

    world->pid = fork();
    if (world->pid == 0) {
        close(hello[0]);
        process_serve(hello[1], hello[1], back);
    }

    close(hello[1]);
    world->end = hello[0];
    return read(hello[0], &world->hello, sizeof(world->hello)) ==
           sizeof(world->hello);
}

/* It has ended, and its child holds its sockets */
static int process_end(process_world_t *world)
{
    int status;

    return (shutdown(world->end, SHUT_WR) == 0) &&
           (read(world->end, &world->hello, sizeof(world->hello)) ==
            sizeof(world->hello)) &&
           (waitpid(world->pid, &status, 0) == world->pid) && (status == 0);
}

static void process_forget(process_world_t *world)
{
    kill(world->hello.child, SIGKILL);
    close(world->end);
}

static int process_is_down(void)
{
    unsigned i;

    for (i = 0; (i < PROGRESS_MAX) &&
                !(process_link.flight.gate & NP_GATE_DOWN);
         ++i) {
        pair_progress(process_port);
    }
    return !!(process_link.flight.gate & NP_GATE_DOWN);
}

/* Who ends goes down at once, both its ports and its links */
static int process_child_ends(void)
{
    process_world_t world;
    np_port_addr_t addr;
    unsigned i;

    TAP_CHILD_CHECK(process_start_engine() == UCS_OK);
    process_port = pair_port();
    np_port_get_addr(process_port, &addr);
    TAP_CHILD_CHECK(process_begin(&world, &addr));
    np_link_init(&process_link, process_port, &world.hello.addr);
    pair_send(&process_link);
    for (i = 0; (i < 100 * PROGRESS_MAX) &&
                ((process_link.target == NULL) ||
                 (process_port->num_peers == 0)); ++i) {
        pair_progress(process_port);
        np_port_housekeep(process_port);
    }
    TAP_CHILD_CHECK((process_link.target != NULL) &&
                    (process_port->num_peers == 1));
    TAP_CHILD_CHECK(np_link_is_alive(&process_link));

    TAP_CHILD_CHECK(process_end(&world));
    TAP_CHILD_CHECK(!np_link_is_alive(&process_link));
    TAP_CHILD_CHECK(process_is_down());
    for (i = 0; (i < PROGRESS_MAX) && (process_port->num_peers > 0); ++i) {
        pair_progress(process_port);
    }
    TAP_CHILD_CHECK(process_port->num_peers == 0);
    process_forget(&world);
    np_ep_close(&process_link.flight);
    np_proto_close(process_port);
    return 0;
}

/* A child with this pid; -1: the kernel does not let us */
static pid_t process_clone(pid_t pid)
{
    struct clone_args args = {
        .exit_signal  = SIGCHLD,
        .set_tid      = (uintptr_t)&pid,
        .set_tid_size = 1
    };

    return syscall(SYS_clone3, &args, sizeof(args));
}

/* A put to one that has ended, whose pid is somebody's that has memory at the
 * same address. Returns 77 if nobody can be given that pid. */
static int process_child_stranger(void)
{
    uint8_t *page = mmap((void*)PROCESS_VA, PROCESS_SIZE,
                         PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
                         0);
    uint8_t bytes[64], was[64];
    np_iov_t iov = {bytes, sizeof(bytes)}, iov_was = {was, sizeof(was)};
    np_dir_t dir;
    ucs_status_t status, done;
    process_world_t world;
    int status_of = 0, asks[2];
    uint64_t begin;
    np_key_t *key;
    unsigned i;
    pid_t pid;
    char byte;

    TAP_CHILD_CHECK(page == (void*)PROCESS_VA);
    memset(page, PROCESS_MINE, PROCESS_SIZE);
    memset(bytes, PROCESS_PUT, sizeof(bytes));
    memset(was, 0, sizeof(was));
    TAP_CHILD_CHECK(process_begin(&world, NULL));
    TAP_CHILD_CHECK(process_start_engine() == UCS_OK);
    process_port = pair_port();
    np_link_init(&process_link, process_port, &world.hello.addr);
    TAP_CHILD_CHECK(np_key_unpack(&world.hello.key, &key) == UCS_OK);

    /* one that arrives, so that all that can be known of it is known */
    do {
        done   = UCS_INPROGRESS;
        status = np_ep_move(NP_DIR_PUT, &process_link.flight, key, &iov, 1,
                            PROCESS_VA, &done);
        for (i = 0; (status == UCS_INPROGRESS) && (done == UCS_INPROGRESS); ++i) {
            pair_progress(process_port);
            np_port_housekeep(process_port);
        }
        pair_progress(process_port);
        np_port_housekeep(process_port);
    } while ((status == UCS_ERR_NO_RESOURCE) || (process_link.remote == NULL));
    TAP_CHILD_CHECK((status == UCS_OK) || (done == UCS_OK));
    TAP_CHILD_CHECK(page[0] == PROCESS_MINE); /* ours is another one's copy */

    TAP_CHILD_CHECK((socketpair(AF_UNIX, SOCK_STREAM, 0, asks) == 0) &&
                    process_end(&world));
    pid = process_clone(world.pid);
    if (pid == 0) {
        /* the stranger: is its memory as it was? */
        close(asks[0]);
        (void)!read(asks[1], &byte, 1);
        for (i = 0; (i < PROCESS_SIZE) && (page[i] == PROCESS_MINE); ++i) {
        }
        _exit(i != PROCESS_SIZE);
    }

    close(asks[1]);
    if (pid < 0) {
        process_forget(&world);
        return 77;
    }

    /* what may be taken for granted without asking has passed */
    for (begin = np_clock(); (np_clock() - begin) < PROCESS_GRANTED; ) {
    }

    for (dir = NP_DIR_GET; dir <= NP_DIR_PUT; ++dir) {
        done   = UCS_INPROGRESS;
        status = np_ep_move(dir, &process_link.flight, key,
                            (dir == NP_DIR_PUT) ? &iov : &iov_was, 1,
                            PROCESS_VA, &done);
        TAP_CHILD_CHECK(status != UCS_OK);
        TAP_CHILD_CHECK((was[0] == 0) && (was[63] == 0));
    }
    close(asks[0]);
    TAP_CHILD_CHECK((waitpid(pid, &status_of, 0) == pid) && (status_of == 0));
    TAP_CHILD_CHECK(process_is_down());
    TAP_CHILD_CHECK((done != UCS_OK) && (was[0] == 0));
    process_forget(&world);
    np_key_release(key);
    np_ep_close(&process_link.flight);
    np_proto_close(process_port);
    return 0;
}

/* Both ways, as in any program that sends and receives */
static int process_child_files(void)
{
    process_world_t world;
    np_port_addr_t addr;
    unsigned before, i;

    TAP_CHILD_CHECK(process_start_engine() == UCS_OK);
    process_port = pair_port();
    np_port_get_addr(process_port, &addr);
    TAP_CHILD_CHECK(process_begin(&world, &addr));
    TAP_CHILD_CHECK(np_directory_fd() >= 0); /* a child of ours would have
                                                none */
    before = pair_count_files();
    np_link_init(&process_link, process_port, &world.hello.addr);
    pair_send(&process_link);
    for (i = 0; (i < 100 * PROGRESS_MAX) &&
                ((process_link.target == NULL) ||
                 (process_port->num_peers == 0) ||
                 !process_port->peers[0]->shm); ++i) {
        pair_progress(process_port);
        np_port_housekeep(process_port);
    }
    TAP_CHILD_CHECK((pair_count_files() - before) == NP_SOCK_FDS);
    TAP_CHILD_CHECK(process_end(&world));
    process_forget(&world);
    return 0;
}

/* One more worker of the program */
static int process_child_port_files(void)
{
    unsigned before;

    TAP_CHILD_CHECK(process_start_engine() == UCS_OK);
    TAP_CHILD_CHECK(np_directory_fd() >= 0);
    process_port = pair_port();
    before       = pair_count_files();
    process_port = pair_port();
    TAP_CHILD_CHECK((pair_count_files() - before) == NP_PORT_FDS);
    return 0;
}

void test_process_children(void)
{
    TAP_CHECK(tap_child(process_child_ends),
              "process: who has ended is down, though a child has its sockets");
#ifdef __SANITIZE_THREAD__
    printf("ok %u - process: a pid used again # SKIP ThreadSanitizer lets nobody "
           "choose the addresses of memory\n", ++tap_count);
#else
    tap_child_check(process_child_stranger,
                    "process: nothing moves to or from a stranger that has the "
                    "pid of one that has ended",
                    "the kernel lets this user choose no pid");
#endif
    TAP_CHECK(tap_child(process_child_files),
              "process: a peer costs as many descriptors as is said");
    TAP_CHECK(tap_child(process_child_port_files),
              "process: a port costs as many descriptors as is said");
}
