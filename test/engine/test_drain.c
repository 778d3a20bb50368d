/* SPDX-License-Identifier: BSD-3-Clause */
/* A drain that waits for a peer which is stopped in the middle of a unit holds
 * up nobody else: other ports connect, answer and close. Each case is a child
 * with a clock: who is held is killed. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "pair.h"
#include "tap.h"

#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/sop.h"
#include "nprdma/start.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* s; a case takes milliseconds, or the second after which a peer is given up */
#define DRAIN_PATIENCE 60

/* The peer that is stopped, its port, and who waits for it */
typedef struct drain_world {
    np_port_t   *port;
    np_peer_t   *peer;
    pid_t       pid;
    int         sock;     /* it says there whether its unit has ended in time */
    pthread_t   waiter;
    _Atomic int has_returned;
} drain_world_t;


static int drain_start_engine(void)
{
    const np_engine_config_t config = {.share_min = 1 << 20};

    alarm(DRAIN_PATIENCE);
    return np_engine_init(&config) == UCS_OK;
}

/* Connects, is stopped in the middle of a unit, and goes on when it is let. */
static void drain_serve(int sock, int is_hung_up)
{
    np_port_addr_t addr;
    np_moving_own_t *own;
    np_link_t link;
    np_port_t *port;
    char in_time;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!drain_start_engine() ||
        (read(sock, &addr, sizeof(addr)) != sizeof(addr))) {
        _exit(1);
    }

    port = pair_port();
    np_link_init(&link, port, &addr);
    pair_send(&link);
    while (link.target == NULL) {
        pair_progress(port);
        np_port_housekeep(port);
    }

    own = &link.drain.own[NP_MOVER_INITIATOR];
    np_moving_begin(own);
    if (is_hung_up) {
        shutdown(link.fd, SHUT_RDWR);
    }
    raise(SIGSTOP);
    in_time = np_moving_end(own);
    _exit(write(sock, &in_time, 1) != 1);
}

static void *drain_wait(void *arg)
{
    drain_world_t *world = arg;

    np_drain(0, 0);
    atomic_store(&world->has_returned, 1);
    return NULL;
}

/* The peer is stopped, and somebody waits for it */
static int drain_begin(drain_world_t *world, int is_hung_up)
{
    np_port_addr_t addr;
    int sock[2], status = 0;

    memset(world, 0, sizeof(*world));
    TAP_CHILD_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sock) == 0);
    world->pid = fork();
    if (world->pid == 0) {
        close(sock[0]);
        drain_serve(sock[1], is_hung_up);
    }

    close(sock[1]);
    world->sock = sock[0];
    TAP_CHILD_CHECK(drain_start_engine());
    world->port = pair_port();
    np_port_get_addr(world->port, &addr);
    TAP_CHILD_CHECK(write(sock[0], &addr, sizeof(addr)) == sizeof(addr));
    while (waitpid(world->pid, &status, WUNTRACED | WNOHANG) == 0) {
        if (world->peer == NULL) {
            pair_progress(world->port);
            np_port_housekeep(world->port);
            world->peer = world->port->peers[0];
        }
    }
    TAP_CHILD_CHECK(WIFSTOPPED(status) && (world->peer != NULL));

    TAP_CHILD_CHECK(pthread_create(&world->waiter, NULL, drain_wait, world) ==
                    0);
    while (!np_drain_is_waited_for(&world->peer->drain)) {
    }
    return 0;
}

/* Ports of nobody who is concerned connect, answer, and close */
static int drain_pair(void)
{
    np_port_t *target = pair_port(), *initiator = pair_port();
    np_link_t link;

    pair_received = 0;
    pair_link(initiator, target, &link);
    pair_send(&link);
    TAP_CHILD_CHECK(pair_wait_received(target, initiator, 1));
    np_ep_close(&link.flight);
    np_proto_close(initiator);
    np_proto_close(target);
    return 0;
}

/* It goes on, and has come to the end of its unit. Returns what it says of
 * it. */
static int drain_go_on(drain_world_t *world)
{
    char in_time = -1;
    int status;

    kill(world->pid, SIGCONT);
    if ((read(world->sock, &in_time, 1) != 1) ||
        (waitpid(world->pid, &status, 0) != world->pid)) {
        in_time = -1;
    }
    close(world->sock);
    return in_time;
}

static int drain_child_others(void)
{
    drain_world_t world;

    TAP_CHILD_CHECK(drain_begin(&world, 0) == 0);
    TAP_CHILD_CHECK(drain_pair() == 0);
    TAP_CHILD_CHECK(tap_child(drain_pair));
    TAP_CHILD_CHECK(!atomic_load(&world.has_returned));
    TAP_CHILD_CHECK(drain_go_on(&world) == 1);
    pthread_join(world.waiter, NULL);
    TAP_CHILD_CHECK(!atomic_load(&world.peer->drain.is_over));
    np_proto_close(world.port);
    return 0;
}

static int drain_child_closes(void)
{
    drain_world_t world;

    TAP_CHILD_CHECK(drain_begin(&world, 0) == 0);
    np_proto_close(world.port);
    TAP_CHILD_CHECK(drain_pair() == 0);
    pthread_join(world.waiter, NULL);
    TAP_CHILD_CHECK(drain_go_on(&world) == 0);
    return 0;
}

static int drain_child_hung_up(void)
{
    drain_world_t world;
    unsigned i;

    TAP_CHILD_CHECK(drain_begin(&world, 1) == 0);
    for (i = 0; i < 100; ++i) {
        pair_progress(world.port);
        np_port_housekeep(world.port);
    }
    TAP_CHILD_CHECK((world.port->peers[0] == world.peer) &&
                    world.peer->is_gone);
    TAP_CHILD_CHECK(!atomic_load(&world.has_returned));
    TAP_CHILD_CHECK(drain_go_on(&world) == 1);
    pthread_join(world.waiter, NULL);
    np_port_housekeep(world.port);
    TAP_CHILD_CHECK(world.port->num_peers == 0);
    np_proto_close(world.port);
    return 0;
}

static int drain_child_canceled(void)
{
    drain_world_t world;
    unsigned i;

    TAP_CHILD_CHECK(drain_begin(&world, 0) == 0);
    pthread_cancel(world.waiter);
    for (i = 0; i < 10; ++i) { /* time enough for it to look at the peer */
        TAP_CHILD_CHECK(drain_pair() == 0);
    }
    TAP_CHILD_CHECK(pthread_tryjoin_np(world.waiter, NULL) == EBUSY);
    TAP_CHILD_CHECK(drain_go_on(&world) == 1);
    pthread_join(world.waiter, NULL);
    np_proto_close(world.port);
    TAP_CHILD_CHECK(drain_pair() == 0);
    return 0;
}

void test_drain_children(void)
{
#ifdef __SANITIZE_THREAD__
    printf("ok %u - drain: a stopped peer # SKIP a child of ThreadSanitizer's "
           "cannot start threads\n", ++tap_count);
    return;
#endif

    TAP_CHECK(tap_child(drain_child_others),
              "drain: others go on while a stopped peer is waited for");
    TAP_CHECK(tap_child(drain_child_closes),
              "drain: who closes gives up a stopped peer that is waited for");
    TAP_CHECK(tap_child(drain_child_hung_up),
              "drain: a peer that is gone stays while it is waited for");
    TAP_CHECK(tap_child(drain_child_canceled),
              "drain: a thread that is cancelled comes to the end of it");
}
