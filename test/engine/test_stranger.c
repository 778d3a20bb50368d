/* SPDX-License-Identifier: BSD-3-Clause */
/* Anybody can connect with a port. Few of those who do are kept, none for long,
 * and its owner spends little on them. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "pair.h"
#include "tap.h"

#include "nprdma/clock.h"
#include "nprdma/start.h"
#include "nprdma/seldom.h"
#include "nprdma/dev/host.h"
#include "nprdma/dev/soft/inbox.h"
#include "nprdma/dev/soft/sock.h"
#include "nprdma/face/soft.h"
#include "nprdma/proto/ep.h"
#include "nprdma/segment.h"
#include "nprdma/proto/soft/sop.h"
#include "nprdma/svc/service.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#define STRANGER_CROWD 200


/* Connect, and say nothing; returns how many could */
static unsigned stranger_come(const np_port_t *target, int *fds, unsigned count)
{
    np_port_addr_t addr;
    np_sock_cred_t cred;
    unsigned i;

    np_port_get_addr(target, &addr);
    for (i = 0; (i < count) &&
                (np_sock_connect(addr.port_id, &fds[i], &cred) == UCS_OK); ++i) {
    }
    return i;
}

static int stranger_is_let_go(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLRDHUP};

    return (poll(&pfd, 1, 0) > 0) && (pfd.revents & (POLLRDHUP | POLLHUP));
}

static unsigned stranger_count_let_go(const int *fds, unsigned count)
{
    unsigned gone = 0, i;

    for (i = 0; i < count; ++i) {
        gone += stranger_is_let_go(fds[i]);
    }
    return gone;
}

static void stranger_leave(const int *fds, unsigned count)
{
    while (count > 0) {
        close(fds[--count]);
    }
}

/* A crowd at the door: the owner takes few at a time, and looks away then */
static void stranger_crowd(void)
{
    np_port_t *target = pair_port(), *port = pair_port();
    int fds[STRANGER_CROWD];
    unsigned count, first, i;
    np_link_t link;

    pair_received = 0;
    count = stranger_come(target, fds, STRANGER_CROWD);
    TAP_CHECK(count == STRANGER_CROWD, "strangers: %u have come", count);

    np_port_housekeep(target);
    first = target->num_strangers;
    TAP_CHECK((first > 0) && (first <= NP_STRANGER_OWNER),
              "strangers: in one look the owner meets few (%u)", first);
    np_port_housekeep(target);
    TAP_CHECK((target->num_strangers == first) ||
              (np_clock() >= target->accept_at),
              "strangers: and nobody in the next one");

    /* whoever sleeps must hear of those that come */
    i = 0;
    while ((np_port_arm(target) == UCS_ERR_BUSY) && (i++ < PROGRESS_MAX)) {
    }
    TAP_CHECK((i < PROGRESS_MAX) && (target->accept_at == 0),
              "strangers: an owner that goes to sleep meets all");
    np_port_chores(target);
    TAP_CHECK(target->num_strangers == NP_PORT_STRANGERS,
              "strangers: %u are kept", target->num_strangers);
    TAP_CHECK((stranger_count_let_go(fds, count) ==
               (STRANGER_CROWD - NP_PORT_STRANGERS)) &&
              !stranger_is_let_go(fds[count - 1]),
              "strangers: the oldest are let go");

    pair_link(port, target, &link);
    pair_send(&link);
    TAP_CHECK(pair_wait_received(target, port, 1),
              "strangers: who has the address is taken in beside them");
    TAP_CHECK(target->num_strangers == NP_PORT_STRANGERS,
              "strangers: and is none of them");

    for (i = 0; i < NP_PORT_STRANGERS; ++i) {
        target->strangers[i].until = 0;
    }
    for (i = 0; (i < PROGRESS_MAX) && (target->num_strangers > 0); ++i) {
        pair_progress(target);
        np_port_housekeep(target);
    }
    TAP_CHECK(stranger_count_let_go(fds, count) == count,
              "strangers: none is kept for ever");
    stranger_leave(fds, count);

    pair_send(&link);
    TAP_CHECK(pair_wait_received(target, port, 2), "strangers: peers stay");
    np_ep_close(&link.flight);
    np_proto_close(port);
    np_proto_close(target);
}

/* A service thread takes more at a time, but not all */
static void stranger_service(void)
{
    np_port_t *target = pair_port();
    int fds[STRANGER_CROWD];
    unsigned count, looks = 0;

    count = stranger_come(target, fds, STRANGER_CROWD);
    TAP_CHECK(np_port_accept(target, 0) &&
              (target->num_strangers == NP_STRANGER_SERVICE),
              "strangers: a thread takes some, and is to come again");
    while ((stranger_count_let_go(fds, count) <
            (count - NP_PORT_STRANGERS)) && (looks < STRANGER_CROWD)) {
        np_port_accept(target, 0);
        ++looks;
    }
    TAP_CHECK(looks <= (STRANGER_CROWD / NP_STRANGER_SERVICE) + 1,
              "strangers: and has met all in %u looks", looks);
    stranger_leave(fds, count);
    np_proto_close(target);
}

/* A CONNECT with the cookie, as of a link */
static int stranger_speak(int fd, np_port_t *port)
{
    np_msg_t msg = {
        .type       = NP_MSG_CONNECT,
        .version    = NP_WIRE_VERSION,
        .engine_id  = np_engine.id,
        .cookie     = np_engine.cookie,
        .start_time = np_host_own_start_time(),
        .size       = np_link_shm_size(8, 4096),
        .part       = np_link_shm_size(8, 4096)
    };
    void *ptr = NULL;
    int fds[3], ret;

    if (np_segment_create("stranger", msg.size, &ptr, &fds[0]) != UCS_OK) {
        return 0;
    }

    np_link_shm_init(ptr, 8, 4096, 4096);
    fds[1] = port->shm_fd;
    fds[2] = np_port_directory_fd(port, &msg.has_tables);
    ret    = np_sock_send(fd, &msg, fds, 3) == UCS_OK;
    np_segment_unmap(ptr, msg.size);
    close(fds[0]);
    return ret;
}

/* The oldest one has spoken, and nobody has heard it yet, when one more
 * comes */
static void stranger_late(void)
{
    np_port_t *target = pair_port(), *port = pair_port();
    int fds[NP_PORT_STRANGERS + 1];
    unsigned count, i;

    count = stranger_come(target, fds, NP_PORT_STRANGERS);
    for (i = 0; (i < 10) && (target->num_strangers < count); ++i) {
        np_port_accept(target, 0);
    }
    TAP_CHECK((target->num_strangers == NP_PORT_STRANGERS) &&
              stranger_speak(fds[0], port),
              "strangers: all places are taken, and the oldest speaks");
    count += stranger_come(target, &fds[count], 1);
    np_port_accept(target, 1);
    TAP_CHECK((target->num_peers == 1) && (target->peers[0] != NULL) &&
              (target->num_strangers == NP_PORT_STRANGERS) &&
              (stranger_count_let_go(fds, count) == 0),
              "strangers: it is heard before it has to go");
    stranger_leave(fds, count);
    np_proto_close(port);
    np_proto_close(target);
}

/* They come as fast as they can */
typedef struct stranger_flood {
    np_port_t   *target;
    _Atomic int is_over;
    _Atomic unsigned count;
} stranger_flood_t;

static void *stranger_flood_main(void *arg)
{
    stranger_flood_t *flood = arg;
    int fds[64];
    unsigned count;

    while (!atomic_load(&flood->is_over)) {
        count         = stranger_come(flood->target, fds, 64);
        flood->count += count;
        stranger_leave(fds, count);
        sched_yield();
    }
    return NULL;
}

/* The backlog is always full, and honest peers come in all the same */
static void stranger_flood(void)
{
    np_port_t *target = pair_port(), *port = pair_port();
    stranger_flood_t flood = {.target = target};
    np_link_t links[8];
    pthread_t thread;
    unsigned i, j, sent = 0;

    listen(target->listen_fd, 16);
    pair_received = 0;
    pthread_create(&thread, NULL, stranger_flood_main, &flood);
    for (i = 0; i < 8; ++i) {
        pair_link(port, target, &links[i]);
    }
    while (atomic_load(&flood.count) < STRANGER_CROWD) {
        pair_progress(target);
    }

    for (j = 0; (j < 100 * PROGRESS_MAX) && (pair_received < 8); ++j) {
        for (i = 0; i < 8; ++i) {
            if (!(sent & (1u << i)) &&
                np_flight_has_resources(&links[i].flight)) {
                pair_send(&links[i]);
                sent |= (links[i].flight.gate == 0) ? (1u << i) : 0;
            }
        }
        pair_progress(target);
        pair_progress(port);
    }
    atomic_store(&flood.is_over, 1);
    pthread_join(thread, NULL);
    TAP_CHECK(pair_received == 8,
              "strangers: in a flood of %u all of 8 peers come in (%u)",
              flood.count, pair_received);
    for (i = 0; i < 8; ++i) {
        np_ep_close(&links[i].flight);
    }
    np_proto_close(port);
    np_proto_close(target);
}

/* One who says something 300 ms after connecting, to a port whose owner
 * computes and whose service threads are rung all the time: they hear it all
 * the same */
static int stranger_among_rings(void)
{
    const struct timespec pause = {.tv_nsec = 300000};
    uint64_t begin;
    np_port_t *target;
    pair_t pair;
    int fd;

    TAP_CHILD_CHECK(pair_open_child(&pair));
    target = pair.target;
    np_inbox_begin(target);
    np_service_start();

    TAP_CHILD_CHECK(stranger_come(target, &fd, 1) == 1);
    begin = np_clock();
    while ((np_clock() - begin) < 300000000) {
        np_link_ring(&pair.link);
        nanosleep(&pause, NULL);
    }
    TAP_CHILD_CHECK(!stranger_is_let_go(fd));
    TAP_CHILD_CHECK(send(fd, "?", 1, 0) == 1);
    while (!stranger_is_let_go(fd)) {
        TAP_CHILD_CHECK((np_clock() - begin) < 3000000000u);
        np_link_ring(&pair.link);
        nanosleep(&pause, NULL);
    }
    np_inbox_end(target);
    np_ep_close(&pair.link.flight);
    np_proto_close(pair.initiator);
    np_proto_close(target);
    close(fd);
    return 0;
}

/* The owner has met one, and computes when it speaks: a service thread hears
 * it, though it was no thread that met it */
static int stranger_of_owner(void)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    np_port_t *target = pair_port(), *port = pair_port();
    unsigned i;
    int fd;

    TAP_CHILD_CHECK(stranger_come(target, &fd, 1) == 1);
    np_port_housekeep(target);
    TAP_CHILD_CHECK(target->num_strangers == 1);
    np_inbox_begin(target);
    np_service_start();
    nanosleep(&pause, NULL); /* the threads sleep */

    TAP_CHILD_CHECK(stranger_speak(fd, port));
    for (i = 0; (i < 40) && (__atomic_load_n(&target->num_peers,
                                             __ATOMIC_RELAXED) == 0); ++i) {
        nanosleep(&pause, NULL);
    }
    TAP_CHILD_CHECK(i < 40);
    np_inbox_end(target);
    close(fd);
    np_proto_close(port);
    np_proto_close(target);
    return 0;
}

/* What they can make us say */
static void stranger_lines(void)
{
    np_seldom_t seldom = {0};
    unsigned said = 0, unsaid = 0, i;

    for (i = 0; i < 1000; ++i) {
        said += np_seldom(&seldom, &unsaid);
    }
    TAP_CHECK((said == 1) && (unsaid == 0), "strangers: one line, not 1000");
    atomic_store(&seldom.next, 0);
    TAP_CHECK(np_seldom(&seldom, &unsaid) && (unsaid == 999),
              "strangers: and the next one counts the others (%u)", unsaid);
}

void test_stranger(void)
{
    stranger_lines();
    stranger_crowd();
    stranger_service();
    stranger_late();
    stranger_flood();
}

void test_stranger_children(void)
{
    TAP_CHECK(tap_child(stranger_among_rings),
              "strangers: are looked at for a second, whoever rings");
    TAP_CHECK(tap_child(stranger_of_owner),
              "strangers: one whom the owner has met speaks while it "
              "computes");
}
