/* SPDX-License-Identifier: BSD-3-Clause */
/* A user that has as many descriptors under way as the kernel allows: who
 * connects is told later, or connects later. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "pair.h"
#include "tap.h"

#include "nprdma/start.h"
#include "nprdma/dev/soft/inbox.h"
#include "nprdma/dev/soft/sock.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/sop.h"
#include "nprdma/svc/service.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>


/* Send @a fd to nobody until the kernel says that the user has too many under
 * way; returns whether it has said so */
static int crowd_fill(int fd, int pair[2])
{
    const np_msg_t msg  = {.type = NP_MSG_SEGMENT};
    ucs_status_t status = UCS_OK;
    unsigned i;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
        return 0;
    }

    for (i = 0; (i < 128) && (status == UCS_OK); ++i) {
        status = np_sock_send(pair[0], &msg, &fd, 1);
    }
    return status == UCS_ERR_NO_RESOURCE;
}

static void crowd_leave(int pair[2])
{
    close(pair[0]);
    close(pair[1]);
}

/* A user, as most are, who may have but so many descriptors under way */
static int crowd_become_user(void)
{
    return (geteuid() != 0) || (setresuid(65534, 65534, 65534) == 0);
}

static int crowd_limit(unsigned files)
{
    const struct rlimit limit = {files, 96};

    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static int crowd_can_be(void)
{
    int full[2];

    return !crowd_limit(64) || !crowd_become_user() ||
           !crowd_fill(STDIN_FILENO, full);
}

/* Who has connected is taken in, but cannot be told. Returns 0, as a child's
 * function. */
static int crowd_open(np_port_t **target, np_port_t **port, np_link_t *link,
                      int full[2])
{
    const np_engine_config_t config = {.share_min = 1 << 20};

    TAP_CHILD_CHECK(crowd_limit(96) && crowd_become_user());
    TAP_CHILD_CHECK(np_engine_init(&config) == UCS_OK);
    *target = pair_port();
    *port   = pair_port();
    pair_link(*port, *target, link);
    pair_send(link);
    TAP_CHILD_CHECK(crowd_fill((*port)->shm_fd, full) && crowd_limit(64));
    TAP_CHILD_CHECK(pair_wait_received(*target, *port, 1));
    TAP_CHILD_CHECK(!link->shm->accepted);
    return 0;
}

static int crowd_waits(void)
{
    const struct timespec wait = {.tv_nsec = 2000000};
    struct pollfd pfd          = {.events = POLLIN};
    np_port_t *target, *port;
    np_link_t early, late;
    int full[2];
    unsigned i;

    TAP_CHILD_CHECK(crowd_open(&target, &port, &early, full) == 0);
    pfd.fd = target->epoll_fd;
    pair_link(port, target, &late);
    TAP_CHILD_CHECK(np_port_arm(target) == UCS_ERR_BUSY);
    TAP_CHILD_CHECK(np_port_accept(target, 0) == 1);
    /* who has not cannot yet */
    TAP_CHILD_CHECK(np_flight_start(&late.flight) == UCS_ERR_NO_RESOURCE);
    TAP_CHILD_CHECK(!np_flight_has_resources(&late.flight));

    crowd_leave(full);
    nanosleep(&wait, NULL);
    /* the answer comes when the owner has just gone to sleep: what was in the
     * ring by then has rung nothing */
    atomic_store(&target->shm->armed, 1);
    TAP_CHILD_CHECK(np_port_accept(target, 0) == 0);
    TAP_CHILD_CHECK(early.shm->accepted && (poll(&pfd, 1, 0) == 1));
    TAP_CHILD_CHECK(np_flight_has_resources(&late.flight));
    pair_send(&late);
    TAP_CHILD_CHECK(pair_wait_received(target, port, 2));
    for (i = 0; (i < PROGRESS_MAX) && (early.target == NULL); ++i) {
        pair_progress(target);
        pair_progress(port);
    }
    TAP_CHILD_CHECK((early.target != NULL) && (target->num_unanswered == 0));
    np_ep_close(&early.flight);
    np_ep_close(&late.flight);
    np_proto_close(port);
    np_proto_close(target);
    return 0;
}

/* The owner could not tell, and computes when it could: a thread does */
static int crowd_told_late(void)
{
    const struct timespec wait = {.tv_nsec = 20000000};
    np_port_t *target, *port;
    np_link_t link;
    int full[2];
    unsigned i;

    TAP_CHILD_CHECK(crowd_open(&target, &port, &link, full) == 0);
    np_inbox_begin(target);
    np_service_start();
    nanosleep(&wait, NULL); /* its first look finds nothing new */
    TAP_CHILD_CHECK(np_port_accept(target, 1) && !link.shm->accepted);

    crowd_leave(full);
    for (i = 0; (i < 100) && !link.shm->accepted; ++i) {
        nanosleep(&wait, NULL);
    }
    TAP_CHILD_CHECK(link.shm->accepted);
    np_inbox_end(target);
    np_ep_close(&link.flight);
    np_proto_close(port);
    np_proto_close(target);
    return 0;
}

void test_crowded_children(void)
{
    if (!tap_child(crowd_can_be)) {
        printf("ok %u - crowded # SKIP the kernel lets this user have any "
               "number of descriptors under way\n", ++tap_count);
        return;
    }

    TAP_CHECK(tap_child(crowd_told_late),
              "crowded: who was taken in is told while the owner computes");

    TAP_CHECK(tap_child(crowd_waits),
              "crowded: a user with too many descriptors under way waits");
}
