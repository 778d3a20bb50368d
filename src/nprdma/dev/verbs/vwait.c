/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What sees to a port while its owner does not: the owner itself, asleep until
 * an event wakes it, or a service thread while the owner computes.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "hello.h"
#include "stream.h"

#include "../../mem/prepare.h"

#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* The longest tick of a kernel */
#define NP_VPORT_TICK_MSEC 10

/* Time in which a program that is in progress would look at its port, us */
#define NP_VPORT_PATIENCE  20

/* Rounds in which a thread waits for room rather than to come again */
#define NP_VPORT_ROUNDS    256


int np_vport_event_fd(np_vport_t *port)
{
    return port->event_fd;
}

static int np_vport_drain_channel(np_vport_t *port)
{
    struct ibv_cq *cq;
    void *context;
    int any = 0;

    while (ibv_get_cq_event(port->channel, &cq, &context) == 0) {
        ibv_ack_cq_events(cq, 1);
        any = 1;
    }
    return any;
}

/* Events that have come for the owner; returns whether there were any */
static int np_vport_take_events(np_vport_t *port)
{
    int any = np_vport_drain_channel(port);
    uint64_t times;

    any |= read(port->timer_fd, &times, sizeof(times)) > 0;
    any |= read(port->bell_fd, &times, sizeof(times)) > 0;
    np_nic_take_events(port->nic);
    return any;
}

/* Does anything wait that may never be completed? */
static int np_vport_expects(np_vport_t *port)
{
    np_conn_t *conn;

    ucs_list_for_each(conn, &port->ready, list) {
        if (np_conn_expects(conn) || (conn->sq_head != conn->sq_tail)) {
            return 1;
        }
    }
    return 0;
}

/* Time must pass for what waits for others, or for room */
static void np_vport_set_timer(np_vport_t *port)
{
    struct itimerspec spec = {};

    if (!ucs_list_is_empty(&port->connecting) ||
        !ucs_list_is_empty(&port->dying) || port->is_ud_broken ||
        np_nic_is_removed(port->nic)) {
        spec.it_value.tv_nsec = 20000000;
    } else if (np_vport_expects(port)) {
        spec.it_value.tv_nsec = (NP_VPORT_LOOK_MSEC + NP_VPORT_TICK_MSEC) *
                                1000000;
    } else {
        return;
    }

    timerfd_settime(port->timer_fd, 0, &spec, NULL);
    np_vport_look_next(port);
}

static int np_vport_notify(np_vport_t *port, struct ibv_cq *cq, int solicited)
{
    int ret = ibv_req_notify_cq(cq, solicited);

    if (ret != 0) {
        np_error("%s: no notification: %s", port->nic->name, strerror(ret));
    }
    return ret;
}

int np_vport_arm_service(np_vport_t *port)
{
    return np_vport_notify(port, port->recv_cq, 1);
}

/* With is_armed set */
static ucs_status_t np_vport_try_arm(np_vport_t *port)
{
    if (np_vport_take_events(port)) {
        (void)np_vport_arm_service(port); /* it was theirs, too */
        return UCS_ERR_BUSY;
    }

    port->ops->arm(port);
    if ((port->num_stash > 0) || (port->kept_head != port->kept_tail) ||
        !ucs_list_is_empty(&port->streams) || !ucs_list_is_empty(&port->todo) ||
        !ucs_list_is_empty(&port->replies) ||
        np_flights_have_news(&port->flights) ||
        !ucs_list_is_empty(&port->late) ||
        !ucs_list_is_empty(&port->replaying) || np_prepare_has_work()) {
        return UCS_ERR_BUSY;
    }

    if ((np_vport_notify(port, port->send_cq, 0) != 0) ||
        (np_vport_notify(port, port->recv_cq, 0) != 0)) {
        return UCS_ERR_IO_ERROR;
    }

    /* No event tells of what came before that */
    port->num_stash = ucs_max(ibv_poll_cq(port->recv_cq, NP_VPORT_BATCH,
                                          port->stash), 0);
    if ((port->num_stash > 0) || (np_vport_poll_send(port) > 0)) {
        return UCS_ERR_BUSY;
    }

    np_conn_ring_all(port); /* no thread will look at the time meanwhile */
    np_vport_set_timer(port);
    return UCS_OK;
}

ucs_status_t np_vport_arm(np_vport_t *port)
{
    NP_TURN_OR_RETURN(&port->turn, UCS_ERR_BUSY);
    ucs_status_t status;

    /* seq_cst, and before the last look at the queue: see
     * np_vport_leave_alone */
    atomic_store_explicit(&port->is_armed, 1, memory_order_seq_cst);
    status = np_vport_try_arm(port);
    if (status != UCS_OK) {
        port->is_armed = 0;
    }
    return status;
}

static void np_vport_wake_owner(np_vport_t *port)
{
    const uint64_t one = 1;

    if (port->is_armed && ((port->kept_head != port->kept_tail) ||
                           !ucs_list_is_empty(&port->streams) ||
                           !ucs_list_is_empty(&port->todo) ||
                           np_flights_have_news(&port->flights) ||
                           !ucs_list_is_empty(&port->late) ||
                           !ucs_list_is_empty(&port->replaying) ||
                           port->is_ud_broken)) { /* it starts that again */
        port->is_armed = 0;
        if (write(port->bell_fd, &one, sizeof(one)) != sizeof(one)) {
            np_error("%s: the program cannot be woken: %m", port->nic->name);
        }
    }
}

void np_vport_brought(np_vport_t *port)
{
    const uint64_t one = 1;

    (void)np_vport_send_due(port);
    np_vport_wake_owner(port);
    if (write(port->brought_fd, &one, sizeof(one)) != sizeof(one)) {
        np_error("%s: the service threads cannot be told: %m",
                 port->nic->name);
    }
}

/* Told again of what comes: of requests, and of whatever the owner waits for */
static void np_vport_arm_thread(np_vport_t *port)
{
    (void)np_vport_notify(port, port->recv_cq, !port->is_armed);
    if (port->is_armed || (port->num_served > 0) || (port->awaited > 0)) {
        (void)np_vport_notify(port, port->send_cq, 0);
    }
}

static int np_vport_serve_turn(np_vport_t *port)
{
    unsigned rounds = 0, count;
    uint64_t times;

    np_vport_drain_channel(port);
    (void)!read(port->keys_fd, &times, sizeof(times));
    do {
        while (!np_turn_is_wanted(&port->turn) &&
               (np_vport_serve_some(port) > 0) &&
               (++rounds < NP_VPORT_ROUNDS)) {
        }
        np_vport_wake_owner(port);
        np_vport_arm_thread(port);
        /* no event tells of what came before that */
        count = np_vport_poll_recv(port) + np_vport_poll_send(port);
    } while ((count > 0) && !np_turn_is_wanted(&port->turn) &&
             (++rounds < NP_VPORT_ROUNDS));

    np_vport_wake_owner(port);
    np_vport_break_due(port);
    if (!ucs_list_is_empty(&port->connecting)) {
        np_hello_progress(port); /* a peer does not wait for ever */
    }
    return (count > 0) || np_turn_is_wanted(&port->turn) ||
           !ucs_list_is_empty(&port->connecting) ||
           np_stream_has_thread_work(port) || np_conn_ring_links(port) ||
           !ucs_list_is_empty(&port->asked) ||
           !ucs_list_is_empty(&port->late) ||
           !ucs_list_is_empty(&port->replies);
}

/* Does the owner look at its port? Only then is it given time to. No turn. */
static int np_vport_is_attended(np_vport_t *port)
{
    const struct timespec patience = {.tv_nsec = NP_VPORT_PATIENCE * 1000};
    unsigned ticks;

    ticks = atomic_load_explicit(&port->ticks, memory_order_relaxed);
    if (ticks == port->ticks_seen) {
        return 0; /* not since we have looked last */
    }

    nanosleep(&patience, NULL);
    port->ticks_seen = atomic_load_explicit(&port->ticks,
                                            memory_order_relaxed);
    return port->ticks_seen != ticks;
}

/* A program that waits in a loop sees to everything, and would only be
 * disturbed: have the next request that waits too long tell us. If the program
 * has just left, that may have been this one: its sender rings again. Returns 0
 * if the program has gone to sleep: the event that was drained may have been to
 * wake it. No turn. */
static int np_vport_leave_alone(np_vport_t *port)
{
    np_vport_drain_channel(port);
    (void)np_vport_arm_service(port);
    /* seq_cst: if it is not seen to be armed, then it looks at the queue after
     * it has armed, and finds what we were told of */
    return !atomic_load_explicit(&port->is_armed, memory_order_seq_cst);
}

int np_vport_serve(np_service_client_t *client)
{
    np_vport_t *port = ucs_container_of(client, np_vport_t, service);
    uint64_t times;
    int is_again;

    np_nic_take_events(port->nic);
    while (read(port->brought_fd, &times, sizeof(times)) > 0) {
    }
    if (np_vport_is_attended(port) && np_vport_leave_alone(port)) {
        /* until the program has seen that buffers were few, or that a key is
         * not used, or has left */
        return atomic_load_explicit(&port->is_low, memory_order_relaxed) ||
               atomic_load_explicit(&port->has_keys, memory_order_relaxed);
    }

    if (!np_turn_take(&port->turn)) {
        return 1;
    }

    port->is_thread = 1;
    is_again        = np_vport_serve_turn(port);
    port->is_thread = 0;
    np_vport_take_low(port);
    np_turn_give(&port->turn);
    return is_again;
}
