/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Peers: accepting, polling, ending.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "peer.h"

#include "../host.h"

#include "../../engine.h"
#include "../../seldom.h"
#include "../../segment.h"
#include "../../thread.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* What a peer may ask us to map */
#define NP_PEER_MAX_SLOTS   (1u << 20)
#define NP_PEER_MAX_PAYLOAD (1u << 30)

/* Peers that are heard at once when the bell has rung */
#define NP_PEER_RINGERS     64


void np_peer_poll_set(np_peer_t *peer, int polled)
{
    /* Without the barrier that arming relies on, writers must always take the
     * way with the fence */
    if (!polled || !peer->is_fenced) {
        atomic_store_explicit(&peer->shm->polled, polled,
                              memory_order_relaxed);
    }
}

static void np_peer_make_hot(np_peer_t *peer)
{
    np_port_t *port = peer->port;
    np_peer_t *victim;
    unsigned i;

    if (port->num_hot < NP_PORT_HOT) {
        i = port->num_hot++;
    } else {
        /* in turn; a victim that was in use comes back by itself */
        i              = peer->number % NP_PORT_HOT;
        victim         = port->hot[i];
        victim->is_hot = 0;
        np_peer_poll_set(victim, 0);
        np_peer_publish_all(victim); /* not looked at until it sends again */
    }

    port->hot[i] = peer;
    peer->is_hot = 1;
    np_peer_poll_set(peer, 1);
}

static void np_peer_make_cold(np_peer_t *peer)
{
    np_port_t *port = peer->port;
    unsigned i;

    for (i = 0; i < port->num_hot; ++i) {
        if (port->hot[i] == peer) {
            port->hot[i] = port->hot[--port->num_hot];
            break;
        }
    }
    peer->is_hot = 0;
}

/* Under the port's lock */
static void np_peer_forget_answer(np_peer_t *peer)
{
    if (peer->is_unanswered) {
        peer->is_unanswered = 0;
        --peer->port->num_unanswered;
    }
}

/* No more can come in from this peer. Under the port's lock. */
static void np_peer_set_gone(np_peer_t *peer)
{
    if (!peer->is_gone) {
        peer->is_gone = 1;
        ++peer->port->num_gone;
        np_peer_forget_answer(peer);
        np_port_unwatch(peer->port, peer->fd);
        if (peer->process.fd >= 0) {
            np_port_unwatch(peer->port, peer->process.fd);
        }
        np_port_take_bell(peer->port, peer->fd);
    }
}

static void np_peer_detach(np_peer_t *peer)
{
    if (peer->shm == NULL) {
        return;
    }

    np_help_forget(peer);
    if (peer->is_hot) {
        np_peer_make_cold(peer);
    }
    np_drain_remove(&peer->drain);
    if (peer->remote != NULL) {
        np_remote_put(peer->remote);
        peer->remote = NULL;
    }
    np_wide_free_peer(peer);
    np_segment_unmap(peer->shm, peer->shm_part);
    np_segment_unmap(peer->initiator, np_page_align(sizeof(np_port_shm_t)));
    peer->shm = NULL;
}

/* It does not act as an initiator does. No farewell: its user shall know */
static void np_peer_end(np_peer_t *peer)
{
    pthread_mutex_lock(&peer->port->lock);
    np_peer_set_gone(peer);
    pthread_mutex_unlock(&peer->port->lock);
    peer->is_malformed = 1; /* freed when no service thread is at it */
    np_help_forget(peer);
    if (peer->is_hot) {
        np_peer_make_cold(peer);
    }
    shutdown(peer->fd, SHUT_RDWR);
}

void np_peer_malformed(np_peer_t *peer, uint64_t word)
{
    np_error("process %d sent a malformed message (%#lx): its connection ends",
             peer->process.pid, word);
    np_peer_end(peer);
}

void np_peer_destroy(np_peer_t *peer)
{
    np_port_t *port = peer->port;

    pthread_mutex_lock(&port->lock);
    port->peers[peer->number] = NULL; /* no thread takes another job */
    np_peer_forget_answer(peer);
    if (peer->is_gone) {
        --port->num_gone;
    }
    pthread_mutex_unlock(&port->lock);
    while (atomic_load_explicit(&peer->jobs, memory_order_acquire) > 0) {
        sched_yield();
    }

    if (peer->shm != NULL) {
        /* What was not read is lost: its sender shall know */
        np_ring_rx_publish(&peer->data);

        /* release: all that we read and answered was before */
        atomic_store_explicit(&peer->shm->left, 1, memory_order_release);
    }
    np_peer_detach(peer);
    np_process_close(&peer->process);
    np_sock_close(peer->fd);
    pthread_mutex_lock(&port->lock);
    while ((port->num_peers > 0) &&
           (port->peers[port->num_peers - 1] == NULL)) {
        --port->num_peers;
    }
    pthread_mutex_unlock(&port->lock);
    free(peer);
}

void np_peer_wake(np_peer_t *peer)
{
    const np_msg_t msg = {.type = NP_MSG_WAKE, .version = NP_WIRE_VERSION};

    if (atomic_exchange_explicit(&peer->initiator->armed, 0,
                                 memory_order_relaxed)) {
        /* a full socket wakes as well; a broken one has its own event */
        (void)np_sock_send(peer->fd, &msg, NULL, 0);
    }
}

static void np_peer_init_ring(np_ring_rx_t *ring, np_slot_t *slots,
                              uint32_t num_slots, uint8_t *payload,
                              uint32_t payload_size, _Atomic uint32_t *head)
{
    memset(ring, 0, sizeof(*ring));
    ring->slots        = slots;
    ring->mask         = num_slots - 1;
    ring->payload      = payload;
    ring->next         = slots;
    ring->ahead        = (const uint8_t*)ring; /* ours: not waited for */
    ring->payload_size = payload_size;
    ring->shared_head  = head;

    /* A quarter of the slots, or of the payload, whichever comes first */
    ring->lag_max = ucs_max(ucs_min(num_slots * NP_LINE, payload_size) / 4,
                            (uint32_t)NP_LINE);
}

/* Read once what the initiator wrote, so that it cannot change between check
 * and use */
static ucs_status_t
np_peer_check_shm(const np_link_shm_t *shm, const np_msg_t *msg,
                  uint32_t *slots, uint32_t *first, uint32_t *payload)
{
    *slots   = *(const volatile uint32_t*)&shm->data_slots;
    *first   = *(const volatile uint32_t*)&shm->payload_first;
    *payload = *(const volatile uint32_t*)&shm->payload_size;

    if ((shm->magic != NP_LINK_MAGIC) || (shm->version != NP_WIRE_VERSION) ||
        (*slots == 0) || (*slots > NP_PEER_MAX_SLOTS) ||
        !ucs_is_pow2(*slots) || (*first == 0) || (*first > *payload) ||
        (*payload > NP_PEER_MAX_PAYLOAD) || !ucs_is_pow2(*payload) ||
        (np_link_shm_size(*slots, *first) != msg->part) ||
        (np_link_shm_size(*slots, *payload) != msg->size)) {
        return UCS_ERR_INVALID_PARAM;
    }

    return UCS_OK;
}

/* Tell the initiator that it is taken in; if its user has too many descriptors
 * under way, later. Under the port's lock. */
static void np_peer_answer(np_peer_t *peer)
{
    np_port_t *port = peer->port;
    np_msg_t msg    = {
        .type        = NP_MSG_ACCEPT,
        .version     = NP_WIRE_VERSION,
        .bit         = peer->number % NP_PORT_ACTIVITY,
        .has_barrier = !peer->is_fenced
    };
    const int fds[] = {port->shm_fd,
                       np_port_directory_fd(port, &msg.has_tables)};
    ucs_status_t status;

    status = np_sock_send(peer->fd, &msg, fds, ucs_static_array_size(fds));
    if (status == UCS_OK) {
        /* release: the answer is on the socket */
        atomic_store_explicit(&peer->shm->accepted, 1, memory_order_release);
        np_port_wake_owner(port); /* what came before has rung nothing */
    }

    if (status != UCS_ERR_NO_RESOURCE) {
        np_peer_forget_answer(peer);
    }
}

static ucs_status_t np_peer_attach(np_peer_t *peer, const np_msg_t *msg,
                                   const int *fds)
{
    uint32_t slots, first, payload;
    void *shm, *initiator;
    ucs_status_t status;

    if ((msg->part < sizeof(np_link_shm_t)) || (msg->part > msg->size)) {
        return UCS_ERR_REJECTED;
    }

    status = np_segment_map_part(fds[0], msg->size, msg->part, &shm);
    if (status != UCS_OK) {
        return status;
    }

    status = np_peer_check_shm(shm, msg, &slots, &first, &payload);
    if (status == UCS_OK) {
        status = np_segment_map(fds[1], np_page_align(sizeof(np_port_shm_t)),
                                &initiator);
    }

    if (status != UCS_OK) {
        np_segment_unmap(shm, msg->part);
        return status;
    }

    peer->shm_size     = msg->size;
    peer->shm_part     = msg->part;
    peer->payload_full = payload;
    peer->initiator    = initiator;
    peer->engine_id    = msg->engine_id;
    np_peer_init_ring(&peer->data, np_link_shm_data(shm), slots,
                      np_link_shm_payload(shm, slots), first,
                      &((np_link_shm_t*)shm)->data_head);
    np_peer_init_ring(&peer->ctl, np_link_shm_ctl(shm, slots), NP_CTL_SLOTS,
                      NULL, 0, &((np_link_shm_t*)shm)->ctl_head);
    peer->inline_areas = np_link_shm_inline(shm, slots);
    np_drain_add(&peer->drain, shm, peer->fd, &peer->process,
                 UCS_MASK(NP_MOVER_LAST) & ~UCS_BIT(NP_MOVER_INITIATOR));
    peer->is_fenced = !msg->has_barrier || !np_engine_has_barrier();
    np_drain_set_barrier(&peer->drain, !peer->is_fenced);
    if (msg->has_tables &&
        (np_remote_get(msg->engine_id, fds[2], &peer->remote) != UCS_OK)) {
        np_debug("process %d shows no tables", peer->process.pid);
    }

    /* release: a thread that sees it sees all of the above */
    atomic_store_explicit(&peer->shm, shm, memory_order_release);
    return UCS_OK;
}

/* All that a peer sends once it is connected */
static int np_peer_is_call(const np_msg_t *msg)
{
    return (msg->type == NP_MSG_WAKE) || (msg->type == NP_MSG_RING);
}

/* Under the port's lock */
static void np_peer_receive(np_peer_t *peer)
{
    ucs_status_t status = UCS_OK;
    int fds[NP_MSG_MAX_FDS];
    unsigned num_fds, i;
    np_msg_t msg;

    for (i = 0; (i < NP_SOCK_BATCH) && (status == UCS_OK); ++i) {
        status = np_sock_look(peer->fd, &msg);
        if (status == UCS_OK) {
            status = !np_peer_is_call(&msg) ? UCS_ERR_INVALID_PARAM :
                     np_sock_recv(peer->fd, &msg, fds, &num_fds);
        }
    }

    if ((status == UCS_OK) || (status == UCS_ERR_NO_RESOURCE)) {
        return;
    }

    np_peer_set_gone(peer); /* freed when drained: np_port_reap */
    if (status != UCS_ERR_CONNECTION_RESET) {
        np_error_seldom("process %d (user %d) sent what no peer sends: its "
                        "connection ends", peer->process.pid,
                        peer->process.uid);
        shutdown(peer->fd, SHUT_RDWR);
    }
}

/* Take rings; the owner hears what no peer sends. The owner may sleep on this
 * very socket, and finds nothing there once we have looked: so what was meant
 * for it is handed on. */
static void np_peer_hear_bell(np_peer_t *peer)
{
    int fds[NP_MSG_MAX_FDS];
    unsigned num_fds, i;
    np_msg_t msg;

    for (i = 0; (i < NP_SOCK_BATCH) &&
                (np_sock_look(peer->fd, &msg) == UCS_OK) &&
                np_peer_is_call(&msg) &&
                (np_sock_recv(peer->fd, &msg, fds, &num_fds) == UCS_OK); ++i) {
        if (msg.type == NP_MSG_WAKE) {
            np_port_call_owner(peer->port);
        }
    }
}

int np_port_hear_bell(np_port_t *port)
{
    struct epoll_event events[NP_PEER_RINGERS];
    unsigned rounds   = (port->num_peers / NP_PEER_RINGERS) + 2;
    int is_connecting = 0;
    int count, i;

    /* The lock keeps the peers that events name: a peer that goes is out of the
     * set by then. Hear all, as what is left is not told again; but some may
     * ring as fast as we listen. */
    pthread_mutex_lock(&port->lock);
    do {
        count = epoll_wait(port->bell, events, NP_PEER_RINGERS, 0);
        for (i = 0; i < count; ++i) {
            if (events[i].data.ptr == NULL) {
                is_connecting = 1; /* or a stranger speaks */
            } else {
                np_peer_hear_bell(events[i].data.ptr);
            }
        }
    } while ((count == NP_PEER_RINGERS) && (--rounds > 0));
    pthread_mutex_unlock(&port->lock);
    return is_connecting;
}

unsigned np_port_answer_peers(np_port_t *port)
{
    np_peer_t *peer;
    unsigned i;

    np_assert_locked(&port->lock);
    for (i = 0; (port->num_unanswered > 0) && (i < port->num_peers); ++i) {
        peer = port->peers[i];
        if ((peer != NULL) && !peer->is_gone && peer->is_unanswered) {
            np_peer_answer(peer);
        }
    }
    return port->num_unanswered;
}

static void np_peer_handle_event(np_event_t *event)
{
    np_peer_t *peer = ucs_container_of(event, np_peer_t, event);

    pthread_mutex_lock(&peer->port->lock);
    np_peer_receive(peer);
    pthread_mutex_unlock(&peer->port->lock);
    if (atomic_load_explicit(&peer->drain.is_over, memory_order_relaxed) &&
        !peer->is_malformed) {
        np_peer_end(peer); /* the drainer could not: it may not be the owner */
    }
}

/* No matter which process has its sockets now. What it sent is still good. */
static void np_peer_handle_death(np_event_t *event)
{
    np_peer_t *peer = ucs_container_of(event, np_peer_t, death);

    pthread_mutex_lock(&peer->port->lock);
    np_peer_set_gone(peer);
    pthread_mutex_unlock(&peer->port->lock);
}

/* What comes from it, and its end. It is in its place: events find it whole. */
static void np_peer_watch(np_peer_t *peer)
{
    np_port_t *port = peer->port;

    if ((np_port_watch(port, peer->fd, &peer->event) != UCS_OK) ||
        ((peer->process.fd >= 0) &&
         (np_port_watch(port, peer->process.fd, &peer->death) != UCS_OK)) ||
        (np_port_hang_bell(port, peer->fd, peer) != 0)) {
        np_error("process %d is not watched (%m): its end may not be noticed, "
                 "and its requests wait for this program",
                 peer->process.pid);
    }
}

/* A number that is free */
static ucs_status_t np_port_number_peer(np_port_t *port, np_peer_t *peer)
{
    unsigned i;

    for (i = 0; (i < port->num_peers) && (port->peers[i] != NULL); ++i) {
    }

    peer->number = i;
    return (i == NP_PORT_MAX_PEERS) ? UCS_ERR_NO_MEMORY : UCS_OK;
}

static void np_port_add_peer(np_port_t *port, np_peer_t *peer)
{
    /* release: its reader sees what is in it (loads that depend on it) */
    __atomic_store_n(&port->peers[peer->number], peer, __ATOMIC_RELEASE);
    if (peer->number == port->num_peers) {
        ++port->num_peers;
    }
}

/* What its message brings; the peer is whole after this, but for its place */
static ucs_status_t np_peer_receive_segments(np_peer_t *peer)
{
    int fds[NP_MSG_MAX_FDS];
    ucs_status_t status;
    unsigned num_fds;
    np_msg_t msg;

    status = np_sock_recv(peer->fd, &msg, fds, &num_fds);
    if (status == UCS_OK) {
        status = np_peer_attach(peer, &msg, fds);
        /* it does not come again: NO_RESOURCE would wait for it */
        status = (status == UCS_ERR_NO_RESOURCE) ? UCS_ERR_NO_MEMORY : status;
    }

    while (num_fds > 0) {
        close(fds[--num_fds]);
    }
    return status;
}

ucs_status_t np_peer_create(np_port_t *port, int fd, const np_msg_t *msg,
                            int is_owner)
{
    ucs_status_t status;
    np_peer_t *peer;

    np_assert_locked(&port->lock);
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        np_error("no memory for a peer of %zu bytes", sizeof(*peer));
        return UCS_ERR_NO_MEMORY;
    }

    ucs_spinlock_init(&peer->ctl_lock, 0);
    np_process_init(&peer->process);
    peer->event.handle = np_peer_handle_event;
    peer->death.handle = np_peer_handle_death;
    peer->port         = port;
    peer->fd           = fd;
    status             = np_port_number_peer(port, peer);
    if (status == UCS_OK) {
        status = np_process_open(&peer->process, fd, msg->start_time);
    }

    /* what it sent before it ended is still good */
    if ((status == UCS_OK) || (status == UCS_ERR_CONNECTION_RESET)) {
        status = np_peer_receive_segments(peer);
    }

    if (status != UCS_OK) {
        np_process_close(&peer->process);
        free(peer);
        return status;
    }

    np_port_add_peer(port, peer);
    np_peer_watch(peer);

    /* If the initiator is gone already, what it sent is still good. A service
     * thread leaves it cold: the owner finds it in turn. */
    peer->is_unanswered = 1;
    ++port->num_unanswered;
    np_peer_answer(peer);
    if (is_owner) {
        np_peer_make_hot(peer);
    } else {
        np_port_wake_owner(port);
    }
    return UCS_OK;
}

/* Poll a peer that has woken up, and from now on all the time */
static unsigned np_peer_poll_cold(np_peer_t *peer, np_am_cb_t am_cb, void *arg)
{
    if ((peer == NULL) || peer->is_hot || !np_peer_has_data(peer)) {
        return 0;
    }

    np_peer_make_hot(peer);
    return np_peer_poll(peer, am_cb, arg);
}

unsigned np_port_poll_cold(np_port_t *port, np_am_cb_t am_cb, void *arg)
{
    unsigned count = 0, word, number;
    uint64_t bits;

    for (word = 0; word < (NP_PORT_ACTIVITY / 64); ++word) {
        if (atomic_load_explicit(&port->shm->activity[word],
                                 memory_order_relaxed) == 0) {
            continue;
        }

        /* acquire: the slots that the bits tell of are seen */
        bits = atomic_exchange_explicit(&port->shm->activity[word], 0,
                                        memory_order_acquire);
        for (; bits != 0; bits &= bits - 1) {
            for (number = (word * 64) + __builtin_ctzll(bits);
                 number < port->num_peers; number += NP_PORT_ACTIVITY) {
                count += np_peer_poll_cold(port->peers[number], am_cb, arg);
            }
        }
    }

    /* One in turn that no bit names: a bit may come late (np_link_notify),
     * and this makes sure that it does not matter */
    if (port->sweep >= port->num_peers) {
        port->sweep = 0;
    }
    if (port->num_peers > 0) {
        count += np_peer_poll_cold(port->peers[port->sweep++], am_cb, arg);
    }

    return count;
}

void np_port_reap(np_port_t *port)
{
    np_peer_t *peer;
    unsigned i;

    for (i = port->num_peers; i > 0; --i) {
        peer = (i <= port->num_peers) ? port->peers[i - 1] : NULL;
        if ((peer != NULL) && peer->is_gone && !np_peer_has_data(peer) &&
            (atomic_load_explicit(&peer->jobs, memory_order_acquire) == 0) &&
            !np_drain_is_waited_for(&peer->drain)) { /* later: no wait now */
            np_peer_destroy(peer);
        }
    }
}
