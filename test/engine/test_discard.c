/* SPDX-License-Identifier: BSD-3-Clause */
/* Who closes what somebody else has sent, and when. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "foreign.h"
#include "pair.h"
#include "sandbox.h"
#include "stopped.h"
#include "tap.h"

#include "nprdma/start.h"
#include "nprdma/dev/soft/discard.h"
#include "nprdma/dev/soft/sock.h"
#include "nprdma/pause.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* s; a case takes milliseconds */
#define DISCARD_PATIENCE 60

static int discard_fd;
static int discard_has_memory = 1;

void *__real_realloc(void *ptr, size_t size);
void *__wrap_realloc(void *ptr, size_t size);


/* In all objects that this program is linked of */
void *__wrap_realloc(void *ptr, size_t size)
{
    return discard_has_memory ? __real_realloc(ptr, size) : NULL;
}

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

/* The two ends of a connection, the second one accepted */
static int discard_connect(int *ends)
{
    const uint64_t id = getpid();
    int listener, spare = -1;
    np_sock_cred_t cred;

    TAP_CHILD_CHECK(np_sock_listen(id, &listener) == UCS_OK);
    TAP_CHILD_CHECK(np_sock_connect(id, &ends[0], &cred) == UCS_OK);
    TAP_CHILD_CHECK(np_sock_accept(listener, &spare, &ends[1], &cred) ==
                    UCS_OK);
    close(spare);
    close(listener);
    return 0;
}

/* Needs no thread: memory, and sockets on which messages of peers wait */
static int discard_child_at_once(void)
{
    np_msg_t connect = {.type = NP_MSG_CONNECT, .version = NP_WIRE_VERSION};
    np_msg_t accept  = {.type = NP_MSG_ACCEPT, .version = NP_WIRE_VERSION};
    np_msg_t segment = {.type = NP_MSG_SEGMENT, .version = NP_WIRE_VERSION};
    np_msg_t wake    = {.type = NP_MSG_WAKE, .version = NP_WIRE_VERSION};
    int ends[2], fds[3];
    unsigned i;

    connect.cookie = np_engine.cookie;
    for (i = 0; i < 3; ++i) {
        fds[i] = foreign_open(FOREIGN_MEMFD);
        TAP_CHILD_CHECK(fds[i] >= 0);
    }
    if (discard_without_threads() != 0) {
        return 77;
    }

    TAP_CHILD_CHECK(discard_connect(ends) == 0);
    TAP_CHILD_CHECK(np_sock_send(ends[0], &connect, fds, 3) == UCS_OK);
    TAP_CHILD_CHECK(np_sock_send(ends[0], &wake, NULL, 0) == UCS_OK);
    TAP_CHILD_CHECK(np_sock_send(ends[1], &wake, NULL, 0) == UCS_OK);
    TAP_CHILD_CHECK(np_sock_send(ends[1], &accept, fds, 2) == UCS_OK);
    TAP_CHILD_CHECK(np_sock_send(ends[1], &segment, fds, 1) == UCS_OK);
    np_sock_close(ends[1]);
    TAP_CHILD_CHECK(!discard_is_open(ends[1]));
    np_sock_close_link(ends[0]);
    TAP_CHILD_CHECK(!discard_is_open(ends[0]));
    np_discard(fds[0]);
    TAP_CHILD_CHECK(!discard_is_open(fds[0]));

    /* A stranger's, and what is no memory, stay on their sockets */
    ++connect.cookie;
    TAP_CHILD_CHECK(discard_connect(ends) == 0);
    fds[0] = fds[1];
    TAP_CHILD_CHECK(np_sock_send(ends[0], &connect, fds, 3) == UCS_OK);
    fds[0] = foreign_open(FOREIGN_LINGER);
    TAP_CHILD_CHECK(np_sock_send(ends[1], &segment, fds, 1) == UCS_OK);
    np_sock_close(ends[1]);
    TAP_CHILD_CHECK(discard_is_open(ends[1]));
    np_sock_close_link(ends[0]);
    TAP_CHILD_CHECK(discard_is_open(ends[0]));
    return 0;
}

/* A peer is turned away whose CONNECT cannot be dropped at once, for lack of
 * numbers: the spare one is used up by that, until there are some again */
static int discard_child_spare(void)
{
    np_msg_t connect = {.type = NP_MSG_CONNECT, .version = NP_WIRE_VERSION};
    const np_engine_config_t config = {.share_min = 1 << 20};
    struct rlimit before            = {0}, none;
    np_port_addr_t addr;
    np_sock_cred_t cred;
    np_port_t *port;
    int ours[2], fds[3], i;

    TAP_CHILD_CHECK(np_engine_init(&config) == UCS_OK);
    port           = pair_port();
    connect.cookie = np_engine.cookie;
    np_port_get_addr(port, &addr);
    for (i = 0; i < 3; ++i) {
        fds[i] = foreign_open(FOREIGN_MEMFD);
    }
    if (discard_without_threads() != 0) {
        return 77;
    }

    TAP_CHILD_CHECK(np_sock_connect(addr.port_id, &ours[0], &cred) == UCS_OK);
    TAP_CHILD_CHECK(np_sock_send(ours[0], &connect, fds, 3) == UCS_OK);
    TAP_CHILD_CHECK(port->spare_fd >= 0);
    getrlimit(RLIMIT_NOFILE, &before);
    none = (struct rlimit){port->spare_fd + 1, before.rlim_max};
    for (i = 0; i <= port->spare_fd; ++i) {
        (void)!open("/", O_PATH | O_CLOEXEC); /* no hole is left */
    }
    setrlimit(RLIMIT_NOFILE, &none);
    np_port_accept(port, 1);
    TAP_CHILD_CHECK(port->spare_fd < 0);
    setrlimit(RLIMIT_NOFILE, &before);
    np_port_accept(port, 1);
    TAP_CHILD_CHECK(port->spare_fd >= 0);
    return 0;
}

/* Holds the first porters that are about to close something */
static sem_t discard_hold, discard_held;
static _Atomic int discard_num_held, discard_most_held;

static void discard_hook(np_pause_point_t point)
{
    if ((point == NP_PAUSE_DISCARD) &&
        (atomic_fetch_add(&discard_num_held, 1) < discard_most_held)) {
        sem_post(&discard_held);
        while (sem_wait(&discard_hold) != 0) {
        }
    }
}

static void discard_hold_porters(int most)
{
    alarm(DISCARD_PATIENCE);
    sem_init(&discard_hold, 0, 0);
    sem_init(&discard_held, 0, 0);
    discard_most_held = most;
    np_pause_hook     = discard_hook;
}

/* Until this is closed; the clock of the test bounds it */
static void discard_wait_closed(int fd)
{
    while (discard_is_open(fd)) {
        sched_yield();
    }
}

/* Pipes, and pairs of sockets, whose ends the program closes while a porter is
 * at work */
#define DISCARD_PIPES 66

static int discard_pipes[DISCARD_PIPES][2];

/* A connection of which the second end lingers */
static int discard_connect_lingering(int *ends)
{
    const struct linger hour = {1, 3600};
    struct sockaddr_in addr  = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)
    };
    socklen_t len            = sizeof(addr);
    int listener             = socket(AF_INET, SOCK_STREAM, 0);

    ends[1] = socket(AF_INET, SOCK_STREAM, 0);
    if ((bind(listener, (void*)&addr, len) != 0) ||
        (listen(listener, 1) != 0) ||
        (getsockname(listener, (void*)&addr, &len) != 0) ||
        (connect(ends[1], (void*)&addr, len) != 0)) {
        return -1;
    }

    ends[0] = accept(listener, NULL, NULL);
    close(listener);
    return setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &hour, sizeof(hour));
}

static int discard_make_pipe(unsigned kind, int *ends)
{
    switch (kind) {
    case 0:
        return pipe(ends);
    case 1:
        return socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    default:
        return discard_connect_lingering(ends);
    }
}

static int discard_make_pipes(void)
{
    unsigned i;

    for (i = 0; i < DISCARD_PIPES; ++i) {
        TAP_CHILD_CHECK(discard_make_pipe(i % 3, discard_pipes[i]) == 0);
    }
    return 0;
}

/* Each of them has an end, from @a first on */
static int discard_close_pipes(unsigned first)
{
    struct pollfd pfd;
    unsigned i;

    for (i = first; i < DISCARD_PIPES; ++i) {
        close(discard_pipes[i][1]);
    }
    for (i = first; i < DISCARD_PIPES; ++i) {
        pfd = (struct pollfd){
            .fd = discard_pipes[i][0], .events = POLLIN | POLLRDHUP
        };
        TAP_CHILD_CHECK(poll(&pfd, 1, DISCARD_PATIENCE * 500) == 1);
        TAP_CHILD_CHECK(pfd.revents & (POLLHUP | POLLRDHUP));
    }
    return 0;
}

/* What the program closes while a porter is at work is closed */
static int discard_child_leaves_others(void)
{
    int fd = foreign_open(FOREIGN_LINGER);

    TAP_CHILD_CHECK(fd >= 0);
    TAP_CHILD_CHECK(discard_make_pipes() == 0);
    discard_hold_porters(1);
    close(discard_pipes[0][0]); /* numbers on both sides of the batch's */
    close(discard_pipes[0][1]);
    np_discard(fd);
    sem_wait(&discard_held);
    TAP_CHILD_CHECK(discard_close_pipes(1) == 0);
    TAP_CHILD_CHECK(discard_is_open(fd));
    sem_post(&discard_hold);
    discard_wait_closed(fd);
    return 0;
}

/* The same while the heir hangs in a file of the program's own */
static int discard_beside_stopped(void)
{
    const int fd = foreign_open(FOREIGN_LINGER);

    TAP_CHILD_CHECK(fd >= 0);
    TAP_CHILD_CHECK(discard_make_pipes() == 0);
    discard_hold_porters(1);
    np_discard(fd);
    sem_wait(&discard_held);
    TAP_CHILD_CHECK(discard_close_pipes(0) == 0);
    TAP_CHILD_CHECK(discard_is_open(fd));
    sem_post(&discard_hold);
    discard_wait_closed(fd);
    return 0;
}

static int discard_child_stopped(void)
{
    int ret;

    if (stopped_start() != 0) {
        return 77;
    }

    TAP_CHILD_CHECK(stopped_open() >= 0); /* its number is below all others */
    ret = discard_beside_stopped();
    stopped_end();
    return ret;
}

/* What has no memory to remember numbers looks for them again */
static int discard_child_forgets(void)
{
    discard_has_memory = 0;
    return discard_child_stopped();
}

/* A thread in splice() from a file that has stopped, with the lock of a pipe */
static int discard_source, discard_sink;
static _Atomic int discard_splicer;

static void *discard_splice(void *arg)
{
    loff_t offset = 0;

    atomic_store(&discard_splicer, (int)syscall(SYS_gettid));
    (void)!splice(discard_source, &offset, discard_sink, NULL, STOPPED_SIZE, 0);
    return arg;
}

/* Until it sleeps there; the clock of the test bounds it */
static int discard_wait_spliced(void)
{
    char path[64], state = 'R';
    FILE *file;

    do {
        sched_yield();
        snprintf(path, sizeof(path), "/proc/self/task/%d/stat",
                 atomic_load(&discard_splicer));
        file = fopen(path, "r");
        if (file != NULL) {
            TAP_CHILD_CHECK(fscanf(file, "%*d %*s %c", &state) == 1);
            fclose(file);
        }
    } while ((state != 'S') && (state != 'D'));
    return 0;
}

static int discard_child_spliced(void)
{
    pthread_t thread;
    int ends[2], ret;

    if (stopped_start() != 0) {
        return 77;
    }

    alarm(DISCARD_PATIENCE);
    TAP_CHILD_CHECK(pipe(ends) == 0);
    discard_source = stopped_open();
    discard_sink   = ends[1];
    TAP_CHILD_CHECK(discard_source >= 0);
    TAP_CHILD_CHECK(pthread_create(&thread, NULL, discard_splice, NULL) == 0);
    ret = discard_wait_spliced();
    ret = (ret == 0) ? discard_beside_stopped() : ret;
    stopped_end();
    pthread_join(thread, NULL);
    return ret;
}

/* As many as three porters are held by a file each, for ever: what else was
 * sent is closed */
static int discard_child_goes_on(void)
{
    const struct timespec wait = {.tv_nsec = 20000000};
    int held[3], others[8];
    unsigned i, j, open;

    discard_hold_porters(3);
    for (i = 0; i < 3; ++i) {
        held[i] = foreign_open(FOREIGN_LINGER);
        TAP_CHILD_CHECK(held[i] >= 0);
        np_discard(held[i]);
        sem_wait(&discard_held);
        nanosleep(&wait, NULL); /* longer than anybody is waited for */
    }

    for (j = 0; j < 3; ++j) {
        for (i = 0; i < 8; ++i) {
            others[i] = foreign_open(FOREIGN_LINGER);
            TAP_CHILD_CHECK(others[i] >= 0);
        }
        for (i = 0; i < 8; ++i) {
            np_discard(others[i]);
        }
        for (i = 0; i < 8; ++i) {
            discard_wait_closed(others[i]);
        }
    }

    for (i = 0, open = 0; i < 3; ++i) {
        open += discard_is_open(held[i]);
        sem_post(&discard_hold);
    }
    TAP_CHILD_CHECK(open == 3);
    for (i = 0; i < 3; ++i) {
        discard_wait_closed(held[i]);
    }
    return 0;
}

/* What a porter that a file holds has taken with that is closed by another
 * one */
static int discard_child_takes_back(void)
{
    const struct timespec wait = {.tv_nsec = 20000000};
    unsigned i, open;
    int fds[8];

    for (i = 0; i < 8; ++i) {
        fds[i] = foreign_open(FOREIGN_LINGER);
        TAP_CHILD_CHECK(fds[i] >= 0);
    }

    /* the first one, and then the first of all that came meanwhile */
    discard_hold_porters(2);
    np_discard(fds[0]);
    sem_wait(&discard_held);
    for (i = 1; i < 7; ++i) {
        np_discard(fds[i]);
    }
    sem_post(&discard_hold);
    sem_wait(&discard_held);
    nanosleep(&wait, NULL);
    np_discard(fds[7]);
    do {
        sched_yield();
        for (i = 0, open = 0; i < 8; ++i) {
            open += discard_is_open(fds[i]);
        }
    } while (open > 1);
    TAP_CHILD_CHECK(open == 1);
    sem_post(&discard_hold);
    for (i = 0; i < 8; ++i) {
        discard_wait_closed(fds[i]);
    }
    return 0;
}

static void discard_check(int (*function)(void), const char *what)
{
    char name[128];

    snprintf(name, sizeof(name), "discard: %s", what);
    tap_child_check(function, name, "threads cannot be refused here");
}

static void discard_check_stopped(int (*function)(void), const char *what)
{
    char name[128];

    snprintf(name, sizeof(name), "discard: %s", what);
    tap_child_check(function, name, "no file systems in user space here");
}

void test_discard_children(void)
{
#ifdef __SANITIZE_THREAD__
    printf("ok %u - discard: children # SKIP a child of ThreadSanitizer's cannot "
           "start threads\n", ++tap_count);
    return;
#endif

    discard_check(discard_child_forks,
                  "what waits is not closed inside fork()");
    discard_check(discard_child_at_once,
                  "memory, and what waits with it, is closed at once");
    discard_check(discard_child_spare, "a spare number is had again");
    discard_check(discard_child_leaves_others,
                  "what the program closes meanwhile has an end");
    discard_check_stopped(discard_child_stopped,
                          "also beside a file whose file system has stopped");
    discard_check_stopped(discard_child_forgets,
                          "even without memory");
    discard_check_stopped(discard_child_spliced,
                          "and beside a pipe that somebody has locked");
    discard_check(discard_child_goes_on,
                  "three porters may be held for ever");
    discard_check(discard_child_takes_back,
                  "and keep nothing but what holds them");
}
