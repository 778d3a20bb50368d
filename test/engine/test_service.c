/* SPDX-License-Identifier: BSD-3-Clause */
/* Service threads of soft0's ports: what they take, and what they leave. */

#include "pair.h"
#include "tap.h"

#include "nprdma/start.h"
#include "nprdma/dev/soft/mail.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/order.h"
#include "nprdma/proto/soft/sop.h"
#include "nprdma/svc/service.h"

#include <string.h>
#include <sys/socket.h>

static np_port_t *service_served;

/* Whoever connects with the parent is its parent's to take in */
static int service_child_serves(void)
{
    const np_engine_config_t config = {.share_min = 1 << 20};
    const struct timespec wait      = {.tv_nsec = 50000000};
    np_port_t *port;
    np_link_t link;

    TAP_CHILD_CHECK(np_engine_init(&config) == UCS_OK);
    port = pair_port();
    np_inbox_begin(port);
    np_service_start();
    pair_link(port, service_served, &link);
    TAP_CHILD_CHECK(np_flight_start(&link.flight) == UCS_OK);
    nanosleep(&wait, NULL);
    TAP_CHILD_CHECK(accept(service_served->listen_fd, NULL, NULL) >= 0);
    np_inbox_end(service_served);
    np_inbox_end(port);
    np_ep_close(&link.flight);
    np_proto_close(port);
    return 0;
}

/* The service threads of a child do nothing for ports that it has inherited */
static int service_child(void)
{
    const np_engine_config_t config = {.share_min = 1 << 20};

    TAP_CHILD_CHECK(np_engine_init(&config) == UCS_OK);
    service_served = pair_port();
    np_inbox_begin(service_served);
    TAP_CHILD_CHECK(tap_child(service_child_serves));
    np_inbox_end(service_served);
    np_proto_close(service_served);
    return 0;
}

/* A FAULT that asks for nothing: it is answered with an error */
static void service_ask_nothing(np_link_t *link)
{
    np_slot_t *slot;

    if (np_ring_tx_has_slot(&link->ctl)) {
        slot = np_ring_tx_slot(&link->ctl);
        memset(slot->data, 0, sizeof(slot->data));
        np_ring_tx_publish(&link->ctl, slot, 0, NP_SLOT_FAULT, 0);
    }
}

/* Of peers that always ask, service threads serve each in turn, though whoever
 * takes a request looks whether there is another one */
static int service_turns(void)
{
    const np_engine_config_t config = {.share_min = 1 << 20};
    unsigned served[2] = {0}, i, k;
    np_service_client_t *client;
    const np_job_t *taken;
    np_service_job_t job;
    np_port_t *target, *port;
    np_link_t links[2];

    TAP_CHILD_CHECK(np_engine_init(&config) == UCS_OK);
    target = pair_port();
    port   = pair_port();
    for (i = 0; i < 2; ++i) {
        pair_link(port, target, &links[i]);
        TAP_CHILD_CHECK(pair_meet(port, target, &links[i]));
    }
    for (i = 0; i < 4; ++i) {
        service_ask_nothing(&links[i % 2]);
    }
    np_inbox_begin(target);
    client = &target->service;
    for (i = 0; i < 100; ++i) {
        TAP_CHILD_CHECK(client->ops->take(client, &job) > 0);
        taken = (const np_job_t*)job.bytes;
        k     = taken->peer == target->peers[1];
        ++served[k];
        client->ops->execute(&job, 0, target->flights.stats);
        service_ask_nothing(&links[k]);
    }
    printf("# %u and %u requests\n", served[0], served[1]);
    TAP_CHILD_CHECK((served[0] == 50) && (served[1] == 50));
    return 0;
}

/* Does a request that is not looked at for so long have the threads woken? */
static int service_rings_after(np_link_t *link, uint64_t ns)
{
    _Atomic uint32_t *armed = &link->target->service_armed;
    uint64_t begin, spent;
    int has_rung;

    do {
        atomic_store(armed, 1);
        begin             = np_clock();
        link->stuck_at    = atomic_load(link->ctl.head);
        link->stuck_since = begin - ns;
        np_mail_ring_slow(link);
        has_rung = !atomic_load(armed);
        spent    = np_clock() - begin;
    } while (spent > (NP_MAIL_PATIENCE_BUSY_NS / 2));
    atomic_store(armed, 1);
    return has_rung;
}

/* The threads look anew at what the owner has taken, after a short time */
static void service_look_soon(np_port_t *port)
{
    port->owner_seen_at = np_clock() - 1000000;
}

/* An owner that answers is not disturbed: peers have more patience, and threads
 * take what rings and no more; and nothing is left for good */
static int service_attended(void)
{
    const uint64_t hurry = 2 * NP_MAIL_PATIENCE_NS;
    np_service_client_t *client;
    np_service_job_t job;
    np_port_t *target;
    pair_t pair;

    TAP_CHILD_CHECK(pair_open_child(&pair));
    target = pair.target;
    np_inbox_begin(target);
    client = &target->service;
    client->ops->arm(client);

    service_ask_nothing(&pair.link);
    TAP_CHILD_CHECK(service_rings_after(&pair.link, hurry));
    service_look_soon(target);
    pair_progress(target); /* the owner takes it */
    TAP_CHILD_CHECK(client->ops->take(client, &job) == 0);
    service_ask_nothing(&pair.link);
    service_ask_nothing(&pair.link);
    TAP_CHILD_CHECK(!service_rings_after(&pair.link, hurry));
    TAP_CHILD_CHECK(service_rings_after(&pair.link, NP_MAIL_PATIENCE_BUSY_NS));
    target->owner_seen_at = np_clock() + 1000000000; /* just now, for long */
    TAP_CHILD_CHECK(client->ops->take(client, &job) < 0);
    atomic_store(&target->shm->service_armed, 0); /* a peer has rung */
    TAP_CHILD_CHECK(client->ops->take(client, &job) > 0);
    client->ops->execute(&job, 0, target->flights.stats);
    TAP_CHILD_CHECK(client->ops->take(client, &job) < 0);

    /* it computes: it has taken none since */
    service_look_soon(target);
    TAP_CHILD_CHECK(client->ops->take(client, &job) > 0);
    client->ops->execute(&job, 0, target->flights.stats);
    TAP_CHILD_CHECK(client->ops->take(client, &job) == 0);
    service_ask_nothing(&pair.link);
    TAP_CHILD_CHECK(service_rings_after(&pair.link, hurry));

    /* it waits for the page of one that it has taken: that counts once */
    pair_progress(target);
    service_look_soon(target);
    TAP_CHILD_CHECK(client->ops->take(client, &job) == 0);
    service_ask_nothing(&pair.link);
    target->owner_seen_at = np_clock() + 1000000000;
    TAP_CHILD_CHECK(client->ops->take(client, &job) < 0);
    service_look_soon(target);
    TAP_CHILD_CHECK(client->ops->take(client, &job) > 0);
    client->ops->execute(&job, 0, target->flights.stats);
    return 0;
}

void test_service_children(void)
{
    TAP_CHECK(tap_child(service_attended),
              "service: an owner that answers is left alone, but not for good");
    TAP_CHECK(tap_child(service_turns), "service: each peer has its turn");
    TAP_CHECK(tap_child(service_child),
              "a child's service threads leave its parent's ports alone");
}
