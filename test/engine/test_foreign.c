/* SPDX-License-Identifier: BSD-3-Clause */
/* Whatever descriptors somebody sends, in whatever message, from whichever end:
 * nobody of ours waits, and no signal comes. Each case is a child with a clock:
 * who is held is killed. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "foreign.h"
#include "pair.h"
#include "tap.h"

#include "nprdma/start.h"
#include "nprdma/dev/soft/mail.h"
#include "nprdma/dev/soft/sock.h"
#include "nprdma/mem/table.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/sop.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* s; a case takes milliseconds */
#define FOREIGN_PATIENCE 60

/* What is sent, from where to where */
typedef enum foreign_case {
    FOREIGN_STRANGER,   /* CONNECT without the cookie */
    FOREIGN_HASTY,      /* the same, gone before anybody looks */
    FOREIGN_EMPTY,      /* after messages of no bytes, in one of no bytes */
    FOREIGN_UNHEARD,    /* the port closes before anybody looks */
    FOREIGN_USER,       /* of a user who may not connect */
    FOREIGN_CONNECT,    /* CONNECT with the cookie */
    FOREIGN_WAKE,       /* from a peer that was taken in */
    FOREIGN_ACCEPT,     /* from the target to the initiator */
    FOREIGN_BELL,       /* and then the initiator rings */
    FOREIGN_SEGMENT,
    FOREIGN_REWAKE,
    FOREIGN_CASES
} foreign_case_t;

static const char *foreign_cases[] = {
    [FOREIGN_STRANGER] = "without the cookie",
    [FOREIGN_HASTY]    = "and gone",
    [FOREIGN_EMPTY]    = "in an empty message",
    [FOREIGN_UNHEARD]  = "to a port that closes",
    [FOREIGN_USER]     = "of another user",
    [FOREIGN_CONNECT]  = "with the cookie",
    [FOREIGN_WAKE]     = "after CONNECT",
    [FOREIGN_ACCEPT]   = "in ACCEPT",
    [FOREIGN_BELL]     = "as a bell",
    [FOREIGN_SEGMENT]  = "in SEGMENT",
    [FOREIGN_REWAKE]   = "in WAKE to an initiator"
};

static foreign_t foreign_kind;
static foreign_case_t foreign_case;
static unsigned foreign_many;   /* of the kind, in one message */


/* This many of the kind, which are nobody's but the message's after this */
static int foreign_give(int sock, const np_msg_t *msg, size_t size,
                        const int *good, unsigned num_good)
{
    int fds[253];
    unsigned num = num_good, i;
    int is_sent;

    memcpy(fds, good, num_good * sizeof(*good));
    for (i = 0; i < foreign_many; ++i) {
        fds[num] = (i == 0) ? foreign_open(foreign_kind) :
                              fcntl(fds[num - 1], F_DUPFD_CLOEXEC, 0);
        num += (fds[num] >= 0);
    }
    is_sent = foreign_send(sock, msg, size, fds, num);
    while (num > num_good) {
        close(fds[--num]);
    }
    return is_sent;
}

/* What is closed elsewhere is closed soon */
static int foreign_wait_files(unsigned wanted)
{
    const struct timespec wait = {.tv_nsec = 1000000};
    unsigned i;

    for (i = 0; (i < 20000) && (pair_count_files() > wanted); ++i) {
        nanosleep(&wait, NULL);
    }
    return pair_count_files() <= wanted;
}

/* As pair_open, in a child */
static int foreign_connect(pair_t *pair)
{
    pair->target    = pair_port();
    pair->initiator = pair_port();
    pair_received   = 0;
    pair_link(pair->initiator, pair->target, &pair->link);
    pair_send(&pair->link);
    TAP_CHILD_CHECK(pair_wait_received(pair->target, pair->initiator, 1));
    pair->peer = pair->target->peers[0];
    return 0;
}

/* To a target, from who is no peer of it, or not yet */
static int foreign_child_to_target(void)
{
    np_port_t *target = pair_port(), *good = pair_port();
    np_msg_t msg      = {
        .type    = NP_MSG_CONNECT,
        .version = NP_WIRE_VERSION,
        .cookie  = np_engine.cookie + (foreign_case != FOREIGN_CONNECT),
        .size    = 1 << 20
    };
    unsigned before, peers = 0, i;
    np_sock_cred_t cred;
    np_port_addr_t addr;
    np_link_t link;
    int fd;

    TAP_CHILD_CHECK(np_directory_fd() >= 0); /* made on first use */
    before        = pair_count_files();
    pair_received = 0;
    np_port_get_addr(target, &addr);
    TAP_CHILD_CHECK(np_sock_connect(addr.port_id, &fd, &cred) == UCS_OK);
    if (foreign_case == FOREIGN_EMPTY) {
        TAP_CHILD_CHECK((send(fd, &msg, 0, 0) == 0) &&
                        (send(fd, &msg, 0, 0) == 0));
        TAP_CHILD_CHECK(foreign_give(fd, &msg, 0, NULL, 0));
    } else {
        TAP_CHILD_CHECK(foreign_give(fd, &msg, sizeof(msg), NULL, 0));
    }

    if (foreign_case == FOREIGN_HASTY) {
        close(fd);
        fd = -1;
    }

    if (foreign_case == FOREIGN_USER) {
        ++np_engine.uid;
    }

    if (foreign_case != FOREIGN_UNHEARD) {
        for (i = 0; i < 1000; ++i) {
            pair_progress(target);
            np_port_housekeep(target);
        }
        np_engine.uid = geteuid();

        pair_link(good, target, &link);
        pair_send(&link);
        TAP_CHILD_CHECK(pair_wait_received(target, good, 1));
        for (i = 0; i < target->num_peers; ++i) {
            peers += (target->peers[i] != NULL);
        }
        TAP_CHILD_CHECK(peers == 1);
        np_ep_close(&link.flight);
        for (i = 0; (i < PROGRESS_MAX) && (target->num_peers > 0); ++i) {
            pair_progress(target);
        }
        close(fd);
        fd = -1;
        TAP_CHILD_CHECK(foreign_wait_files(before));
    }

    np_proto_close(good);
    np_proto_close(target);
    close(fd);
    return 0;
}

/* Between two that are connected */
static int foreign_child_connected(void)
{
    np_msg_t msg = {.type = NP_MSG_WAKE, .version = NP_WIRE_VERSION};
    unsigned num_good = 0, i;
    int good[2], fd;
    pair_t pair;

    TAP_CHILD_CHECK(foreign_connect(&pair) == 0);
    good[0] = pair.target->shm_fd;
    good[1] = np_port_directory_fd(pair.target, &msg.has_tables);
    fd      = pair.peer->fd;
    switch (foreign_case) {
    case FOREIGN_WAKE:
        fd = pair.link.fd;
        break;
    case FOREIGN_ACCEPT:
        msg.type = NP_MSG_ACCEPT;
        break;
    case FOREIGN_BELL:
        msg.type = NP_MSG_ACCEPT;
        num_good = 2;
        break;
    case FOREIGN_SEGMENT:
        msg.type = NP_MSG_SEGMENT;
        msg.size = 3 * 4096;
        break;
    default:
        break;
    }

    TAP_CHILD_CHECK(foreign_give(fd, &msg, sizeof(msg), good, num_good));
    for (i = 0; i < 1000; ++i) {
        pair_progress(pair.initiator);
        pair_progress(pair.target);
        np_port_housekeep(pair.initiator);
        np_port_housekeep(pair.target);
    }
    pair_close(&pair);
    return 0;
}

/* A target that has sent such a bell with its first answer, and has it rung */
static int foreign_child_bell(void)
{
    np_port_t *port   = pair_port(), *other = pair_port();
    np_port_addr_t addr = {.port_id = getpid()};
    np_msg_t msg        = {.type = NP_MSG_ACCEPT, .version = NP_WIRE_VERSION};
    int listener, fd, spare = -1, good[2];
    np_sock_cred_t cred;
    np_link_t link;
    unsigned i;

    TAP_CHILD_CHECK(np_sock_listen(addr.port_id, &listener) == UCS_OK);
    np_link_init(&link, port, &addr);
    TAP_CHILD_CHECK(np_link_connect(&link) == UCS_OK);
    TAP_CHILD_CHECK(np_sock_accept(listener, &spare, &fd, &cred) == UCS_OK);
    good[0] = other->shm_fd;
    good[1] = other->shm_fd;
    TAP_CHILD_CHECK(foreign_give(fd, &msg, sizeof(msg), good, 2));
    for (i = 0; i < 1000; ++i) {
        pair_progress(port);
        np_port_housekeep(port);
    }

    atomic_store(&other->shm->service_armed, 1);
    ++link.ctl.tail;
    np_mail_ring_now(&link);
    --link.ctl.tail;
    np_ep_close(&link.flight);
    np_proto_close(port);
    np_proto_close(other);
    return 0;
}

/* A target to whom so many have rung that its socket is full is heard again */
static int foreign_child_rings(void)
{
    struct pollfd pfd = {.events = POLLIN};
    unsigned i, heard = 0;
    pair_t pair;

    TAP_CHILD_CHECK(foreign_connect(&pair) == 0);
    pfd.fd = pair.target->bell;
    for (i = 0; i < 5000; ++i) {
        np_link_wake(&pair.link);
    }
    for (i = 0; i < 5000; ++i) {
        np_port_hear_bell(pair.target);
        np_link_wake(&pair.link);
        heard += (poll(&pfd, 1, 0) == 1);
    }
    TAP_CHILD_CHECK(heard == 5000);
    TAP_CHILD_CHECK(!(pair.link.flight.gate & NP_GATE_DOWN));
    pair_close(&pair);
    return 0;
}

/* No descriptor is left for what comes: it waits until there is one */
static int foreign_child_none_left(void)
{
    const np_msg_t msg   = {.type = NP_MSG_SEGMENT, .version = NP_WIRE_VERSION};
    struct rlimit before = {0}, none;
    np_port_t *target;
    np_link_t late;
    pair_t pair;
    char byte;

    TAP_CHILD_CHECK(foreign_connect(&pair) == 0);
    target = pair.target;
    pair_link(pair.initiator, target, &late);
    TAP_CHILD_CHECK(np_link_connect(&late) == UCS_OK);
    TAP_CHILD_CHECK(foreign_give(pair.peer->fd, &msg, sizeof(msg), NULL, 0));
    getrlimit(RLIMIT_NOFILE, &before);
    none = (struct rlimit){0, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    np_port_housekeep(pair.initiator);
    setrlimit(RLIMIT_NOFILE, &before);
    TAP_CHILD_CHECK(!(pair.link.flight.gate & NP_GATE_DOWN));
    TAP_CHILD_CHECK(recv(pair.link.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1);
    pair_send(&late);
    TAP_CHILD_CHECK(pair_wait_received(target, pair.initiator, 2));
    np_ep_close(&late.flight);
    pair_close(&pair);
    return 0;
}

/* It waits, and costs its owner little. SEGMENT: until there are numbers again;
 * WAKE: until the peer leaves, with one message behind it; REWAKE: with all
 * that have room */
static int foreign_child_sleeps(void)
{
    np_msg_t msg         = {.type = NP_MSG_SEGMENT, .version = NP_WIRE_VERSION,
                            .size = 3 * 4096};
    struct rlimit before = {0}, none;
    struct pollfd pfd    = {.events = POLLIN};
    unsigned i, most = 0, events;
    np_port_t *port;
    pair_t pair;
    char byte;

    TAP_CHILD_CHECK(foreign_connect(&pair) == 0);
    port   = pair.initiator;
    pfd.fd = port->epoll_fd;
    TAP_CHILD_CHECK(foreign_give(pair.peer->fd, &msg, sizeof(msg), NULL, 0));
    getrlimit(RLIMIT_NOFILE, &before);
    none = (struct rlimit){1, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    for (i = 0; i < 100; ++i) {
        events = np_port_housekeep(port);
        most   = ucs_max(most, events);
    }
    TAP_CHILD_CHECK(most < 10);
    for (i = 0; (i < 1000) && (np_port_arm(port) != UCS_OK); ++i) {
        np_port_housekeep(port);
    }
    TAP_CHILD_CHECK((i < 1000) && (poll(&pfd, 1, 0) == 0));

    /* woken by what comes behind it */
    msg.type = NP_MSG_WAKE;
    TAP_CHILD_CHECK(np_sock_send(pair.peer->fd, &msg, NULL, 0) == UCS_OK);
    TAP_CHILD_CHECK(poll(&pfd, 1, 0) == 1);
    np_port_chores(port);

    if (foreign_case != FOREIGN_WAKE) {
        while (np_sock_send(pair.peer->fd, &msg, NULL, 0) == UCS_OK) {
        }
        for (i = 0; i < 10; ++i) {
            np_port_housekeep(port);
        }
        /* nothing would wake it now */
        TAP_CHILD_CHECK((np_port_arm(port) != UCS_OK) ||
                        (poll(&pfd, 1, 0) == 1));
        np_port_chores(port);
    }

    if (foreign_case == FOREIGN_SEGMENT) {
        setrlimit(RLIMIT_NOFILE, &before);
        while (recv(pair.link.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1) {
            np_port_housekeep(port); /* or the clock ends us */
        }
        TAP_CHILD_CHECK(!(pair.link.flight.gate & NP_GATE_DOWN));
        TAP_CHILD_CHECK(ucs_list_is_empty(&port->deaf_links));
        pair_close(&pair);
        return 0;
    }

    shutdown(pair.peer->fd, SHUT_RDWR);
    for (i = 0; (i < 1000) && !(pair.link.flight.gate & NP_GATE_DOWN); ++i) {
        np_port_housekeep(port);
    }
    TAP_CHILD_CHECK(pair.link.flight.gate & NP_GATE_DOWN);
    return 0;
}

static int foreign_child_of_sleep(void)
{
    const np_engine_config_t config = {.share_min = 1 << 20};

    alarm(FOREIGN_PATIENCE);
    TAP_CHILD_CHECK(np_engine_init(&config) == UCS_OK);
    foreign_kind = FOREIGN_MEMFD;
    foreign_many = 1;
    return foreign_child_sleeps();
}

static int foreign_child(void)
{
    const np_engine_config_t config = {.share_min = 1 << 20};

    alarm(FOREIGN_PATIENCE);
    TAP_CHILD_CHECK(np_engine_init(&config) == UCS_OK);
    if (foreign_case < FOREIGN_WAKE) {
        return foreign_child_to_target();
    }
    return (foreign_case == FOREIGN_BELL) ? foreign_child_bell() :
           foreign_child_connected();
}

static int foreign_child_of_rings(void)
{
    const np_engine_config_t config = {.share_min = 1 << 20};

    alarm(FOREIGN_PATIENCE);
    TAP_CHILD_CHECK(np_engine_init(&config) == UCS_OK);
    return foreign_child_rings();
}

static int foreign_child_of_none(void)
{
    const np_engine_config_t config = {.share_min = 1 << 20};

    alarm(FOREIGN_PATIENCE);
    TAP_CHILD_CHECK(np_engine_init(&config) == UCS_OK);
    foreign_kind = FOREIGN_LINGER;
    foreign_many = 1;
    return foreign_child_none_left();
}

static void foreign_one(foreign_t kind, foreign_case_t which, unsigned many)
{
    int fd = foreign_open(kind);

    if (fd < 0) {
        printf("ok %u - %s # SKIP there is none here: %m\n", ++tap_count,
               foreign_names[kind]);
        return;
    }

    /* the parent's copy would be the last one: it closes it later */
    foreign_kind = kind;
    foreign_case = which;
    foreign_many = many;
    TAP_CHECK(tap_child(foreign_child), "foreign: %u of %s, %s", many,
              foreign_names[kind], foreign_cases[which]);
    foreign_close(fd);
}

void test_foreign_children(void)
{
    foreign_t kind;
    foreign_case_t which;

#ifdef __SANITIZE_THREAD__
    printf("ok %u - foreign: descriptors # SKIP a child of ThreadSanitizer's "
           "cannot start threads\n", ++tap_count);
    return;
#endif

    if (!foreign_is_told()) {
        printf("ok %u - foreign: descriptors # SKIP recvmsg() does not tell of "
               "those without room here\n", ++tap_count);
        return;
    }

    for (which = 0; which < FOREIGN_CASES; ++which) {
        foreign_one(FOREIGN_LINGER, which, 1);
        foreign_one(FOREIGN_LINGER, which, 3);
    }
    foreign_one(FOREIGN_LINGER, FOREIGN_STRANGER, 253);
    foreign_one(FOREIGN_LINGER, FOREIGN_CONNECT, 253);

    for (kind = 0; kind < FOREIGN_LAST; ++kind) {
        if (kind != FOREIGN_LINGER) {
            foreign_one(kind, FOREIGN_CONNECT, 3);
            foreign_one(kind, FOREIGN_ACCEPT, 2);
            foreign_one(kind, FOREIGN_BELL, 1);
            foreign_one(kind, FOREIGN_SEGMENT, 1);
        }
    }

    TAP_CHECK(tap_child(foreign_child_of_rings),
              "foreign: a bell is heard, however often it was rung");
    TAP_CHECK(tap_child(foreign_child_of_none),
              "foreign: what no number is left for waits");
    foreign_case = FOREIGN_SEGMENT;
    TAP_CHECK(tap_child(foreign_child_of_sleep),
              "foreign: and its owner sleeps, and is woken");
    foreign_case = FOREIGN_WAKE;
    TAP_CHECK(tap_child(foreign_child_of_sleep),
              "foreign: and whoever leaves meanwhile is down");
    foreign_case = FOREIGN_REWAKE;
    TAP_CHECK(tap_child(foreign_child_of_sleep),
              "foreign: and so is who has filled the socket before");
}
