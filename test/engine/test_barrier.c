/* SPDX-License-Identifier: BSD-3-Clause */
/* membarrier, which one end has and the other has not: both go with fences
 * then. */

#include "pair.h"
#include "sandbox.h"
#include "tap.h"

#include "nprdma/start.h"
#include "nprdma/mem/table.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/sop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* s */
#define BARRIER_PATIENCE 60

/* Who has it */
static int barrier_is_here, barrier_is_there;

static np_port_t *barrier_port;


static ucs_status_t barrier_start(int has_barrier)
{
    const np_engine_config_t config = {.share_min = 1 << 20};

    alarm(BARRIER_PATIENCE);
    if (!has_barrier && (sandbox_deny(SYS_membarrier) != 0)) {
        return UCS_ERR_UNSUPPORTED;
    }
    return np_engine_init(&config);
}

/* The other end: connects back, and progresses until it is told to end */
static void barrier_serve(int fd)
{
    np_port_addr_t addr, back;
    np_port_t *port;
    np_link_t link;
    char byte;

    if (barrier_start(barrier_is_there) != UCS_OK) {
        _exit(77);
    }

    port = pair_port();
    np_port_get_addr(port, &addr);
    if ((write(fd, &addr, sizeof(addr)) != sizeof(addr)) ||
        (read(fd, &back, sizeof(back)) != sizeof(back))) {
        _exit(1);
    }

    np_link_init(&link, port, &back);
    pair_send(&link);
    while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0) {
        pair_progress(port);
        np_port_housekeep(port);
    }
    _exit(0);
}

/* Do the two ways of a connection go as they must? */
static int barrier_child_pair(void)
{
    const int is_fenced = !barrier_is_here || !barrier_is_there;
    np_port_addr_t addr, back;
    np_moving_own_t *own;
    int fds[2], status;
    np_link_t link;
    np_peer_t *peer;
    unsigned i;
    pid_t pid;

    TAP_CHILD_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    pid = fork();
    if (pid == 0) {
        close(fds[0]);
        barrier_serve(fds[1]);
    }
    close(fds[1]);

    if ((barrier_start(barrier_is_here) != UCS_OK) ||
        (read(fds[0], &addr, sizeof(addr)) != sizeof(addr))) {
        return 77;
    }

    barrier_port = pair_port();
    np_port_get_addr(barrier_port, &back);
    TAP_CHILD_CHECK(write(fds[0], &back, sizeof(back)) == sizeof(back));
    np_link_init(&link, barrier_port, &addr);
    pair_send(&link);
    for (i = 0; (i < 100 * PROGRESS_MAX) && ((link.target == NULL) ||
                                             (barrier_port->num_peers == 0) ||
                                             (pair_received == 0)); ++i) {
        pair_progress(barrier_port);
        np_port_housekeep(barrier_port);
    }
    TAP_CHILD_CHECK((link.target != NULL) && (barrier_port->num_peers == 1));

    /* as initiator: what we move, and whether we are told of a target that
     * looks at its rings all the time, as it does by now */
    own = &link.drain.own[NP_MOVER_INITIATOR];
    TAP_CHILD_CHECK(own->is_fenced == is_fenced);
    if (is_fenced) {
        TAP_CHILD_CHECK(atomic_load(&link.shm->polled) == 0);
    } else {
        for (i = 0; (i < 100 * PROGRESS_MAX) &&
                    (atomic_load(&link.shm->polled) == 0); ++i) {
            pair_progress(barrier_port);
        }
        TAP_CHILD_CHECK(atomic_load(&link.shm->polled) == 1);
    }

    /* as target */
    peer = barrier_port->peers[0];
    own  = &peer->drain.own[NP_MOVER_TARGET];
    TAP_CHILD_CHECK((own->is_fenced == is_fenced) && peer->is_hot);
    TAP_CHILD_CHECK(atomic_load(&peer->shm->polled) == !is_fenced);
    close(fds[0]);
    TAP_CHILD_CHECK((waitpid(pid, &status, 0) == pid) && (status == 0));
    return 0;
}

/* The program puts a sandbox on itself when all is connected */
static int barrier_child_later(void)
{
    np_link_t late;
    pair_t pair;
    unsigned i;

    if (barrier_start(1) != UCS_OK) {
        return 1;
    }

    if (!np_engine_has_barrier()) {
        return 77;
    }

    pair.target    = pair_port();
    pair.initiator = pair_port();
    pair_link(pair.initiator, pair.target, &pair.link);
    pair_send(&pair.link);
    TAP_CHILD_CHECK(pair_wait_received(pair.target, pair.initiator, 1));
    if (sandbox_deny(SYS_membarrier) != 0) {
        return 77;
    }

    np_drain(0, 0);
    TAP_CHILD_CHECK(!np_engine_has_barrier()); /* and that was said */
    pair_link(pair.initiator, pair.target, &late);
    pair_send(&pair.link);
    pair_send(&late);
    TAP_CHILD_CHECK(pair_wait_received(pair.target, pair.initiator, 3));
    for (i = 0; (i < PROGRESS_MAX) && (late.target == NULL); ++i) {
        pair_progress(pair.target);
        pair_progress(pair.initiator);
    }
    TAP_CHILD_CHECK(late.drain.own[NP_MOVER_INITIATOR].is_fenced);
    np_ep_close(&late.flight);
    pair_close(&pair);
    return 0;
}

/* Sleeps that one signal interrupts after the other, before a pause could be
 * over: on a busy machine real ones leave gaps */
#define BARRIER_INTERRUPTS 5000

static int barrier_interrupts;

int nanosleep(const struct timespec *request, struct timespec *rest)
{
    const struct timespec some = {.tv_nsec = 100000};
    const int is_interrupted   = (barrier_interrupts > 0);

    if (is_interrupted && (--barrier_interrupts == 0)) {
        _exit(1);
    }

    errno = clock_nanosleep(CLOCK_REALTIME, 0, is_interrupted ? &some : request,
                            rest);
    if (is_interrupted) {
        errno = EINTR;
    }
    return (errno == 0) ? 0 : -1;
}

static int barrier_child_interrupted(void)
{
    if (barrier_start(1) != UCS_OK) {
        return 1;
    }

    if (!np_engine_has_barrier() || (sandbox_deny(SYS_membarrier) != 0)) {
        return 77;
    }

    barrier_interrupts = BARRIER_INTERRUPTS;
    np_barrier_peers();
    TAP_CHILD_CHECK(!np_engine_has_barrier());
    TAP_CHILD_CHECK(barrier_interrupts < BARRIER_INTERRUPTS);
    return 0;
}

/* Sleep is refused as well */
static int barrier_child_sleepless(void)
{
    if (barrier_start(1) != UCS_OK) {
        return 1;
    }

    if (!np_engine_has_barrier() || (sandbox_deny(SYS_membarrier) != 0) ||
        (sandbox_deny(SYS_clock_nanosleep) != 0) ||
        (sandbox_deny(SYS_nanosleep) != 0)) {
        return 77;
    }

    alarm(10); /* the pause is of 2 ms */
    np_barrier_peers();
    TAP_CHILD_CHECK(!np_engine_has_barrier());
    return 0;
}

static void barrier_check(int (*function)(void), const char *what)
{
    char name[128];

    snprintf(name, sizeof(name), "barrier: %s", what);
    tap_child_check(function, name, "no seccomp filter, or no membarrier, here");
}

void test_barrier_children(void)
{
    static const char *names[] = {
        "neither end has it: fences",
        "only the other end has it: fences",
        "only this end has it: fences",
        "both have it: none"
    };
    int i;

    for (i = 0; i < 4; ++i) {
        barrier_is_here  = i >> 1;
        barrier_is_there = i & 1;
        barrier_check(barrier_child_pair, names[i]);
    }
    barrier_check(barrier_child_later, "it is refused later: a pause instead, "
                  "and fences for those that come");
    barrier_check(barrier_child_interrupted, "signals do not prolong the pause");
    barrier_check(barrier_child_sleepless, "a pause needs no sleep");
}
