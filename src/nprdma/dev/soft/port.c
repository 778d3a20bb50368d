/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ports: opening, closing, sleeping, and the sockets.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "port.h"

#include "drain.h"
#include "flow.h"
#include "../host.h"
#include "help.h"
#include "inbox.h"
#include "link.h"
#include "peer.h"
#include "tlb.h"
#include "vm.h"

#include "../../clock.h"
#include "../../engine.h"
#include "../../mem/mapper.h"
#include "../../mem/model.h"
#include "../../mem/prepare.h"
#include "../../mem/table.h"
#include "../../segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/* Nanoseconds from one look at the sockets to the next */
#define NP_PORT_LOOK_TIME (NP_PORT_HOUSEKEEP_USEC * UINT64_C(1000))


static void np_port_handle_listener(np_event_t *event)
{
    np_port_accept(ucs_container_of(event, np_port_t, listener), 1);
}

static void np_port_handle_waker(np_event_t *event)
{
    np_port_t *port = ucs_container_of(event, np_port_t, waker);
    uint64_t count;

    if (read(port->waker_fd, &count, sizeof(count)) != sizeof(count)) {
        np_debug("woken for nothing: %m");
    }
}

void np_port_call_owner(np_port_t *port)
{
    const uint64_t one = 1;

    if (write(port->waker_fd, &one, sizeof(one)) != sizeof(one)) {
        np_debug("a sleeping port cannot be woken: %m");
    }
}

void np_port_wake_owner(np_port_t *port)
{
    /* seq_cst: it arms after this and looks at its peers then (np_port_arm), or
     * is seen to have armed */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_exchange_explicit(&port->shm->armed, 0, memory_order_relaxed)) {
        np_port_call_owner(port);
    }
}

/* The owner leaves new connections alone for a while: it is strangers that
 * come */
static void np_port_pause_accepting(np_port_t *port)
{
    np_port_unwatch(port, port->listen_fd);
    port->accept_at = np_clock() + NP_STRANGER_PAUSE;
}

static void np_port_resume_accepting(np_port_t *port)
{
    if (port->accept_at != 0) {
        port->accept_at = 0;
        np_port_watch(port, port->listen_fd, &port->listener);
    }
}

int np_port_accept(np_port_t *port, int is_owner)
{
    unsigned waiting;
    int met, more;

    if (!is_owner) {
        pthread_mutex_lock(&port->lock);
    } else if (pthread_mutex_trylock(&port->lock) != 0) {
        return 1; /* a service thread is at it */
    }

    more    = np_port_accept_some(port, is_owner, &met);
    waiting = np_port_answer_peers(port);
    if (!is_owner) {
        waiting += np_port_hear_strangers(port, 0);
    } else if (met) {
        np_port_pause_accepting(port);
    }
    pthread_mutex_unlock(&port->lock);
    if (is_owner && (waiting > 0)) {
        np_inbox_accept(port); /* it may compute when they can be told */
    }
    return more || (waiting > 0);
}

static void np_port_hear(np_port_t *port)
{
    port->hear_at = np_clock() + NP_STRANGER_PAUSE;
    pthread_mutex_lock(&port->lock);
    np_port_hear_strangers(port, 1);
    pthread_mutex_unlock(&port->lock);
}

static void np_port_handle_speaker(np_event_t *event)
{
    np_port_hear(ucs_container_of(event, np_port_t, speaker));
}

/* Add to a set, or change what is there: a stranger that has become a peer */
static int np_port_set_event(int set, int fd, struct epoll_event *ev)
{
    int ret = epoll_ctl(set, EPOLL_CTL_ADD, fd, ev);

    return ((ret != 0) && (errno == EEXIST)) ?
           epoll_ctl(set, EPOLL_CTL_MOD, fd, ev) : ret;
}

ucs_status_t np_port_watch(np_port_t *port, int fd, np_event_t *event)
{
    struct epoll_event ev = {
        .events   = EPOLLIN | EPOLLRDHUP,
        .data.ptr = event
    };

    if (np_port_set_event(port->epoll_fd, fd, &ev) != 0) {
        np_error("epoll_ctl(ADD) failed: %m. Check "
                 "fs.epoll.max_user_watches");
        return UCS_ERR_IO_ERROR;
    }

    return UCS_OK;
}

void np_port_watch_news(np_port_t *port, int fd, np_event_t *event)
{
    struct epoll_event ev = {
        .events   = EPOLLIN | EPOLLRDHUP | EPOLLET,
        .data.ptr = event
    };

    epoll_ctl(port->epoll_fd, EPOLL_CTL_MOD, fd, &ev);
}

void np_port_unwatch(np_port_t *port, int fd)
{
    epoll_ctl(port->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

int np_port_hang_bell(np_port_t *port, int fd, np_peer_t *peer)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.ptr = peer};

    return np_port_set_event(port->bell, fd, &ev);
}

void np_port_take_bell(np_port_t *port, int fd)
{
    epoll_ctl(port->bell, EPOLL_CTL_DEL, fd, NULL);
}

static ucs_status_t np_port_open_bell(np_port_t *port)
{
    port->bell = epoll_create1(EPOLL_CLOEXEC);
    if ((port->bell < 0) ||
        (np_port_hang_bell(port, port->listen_fd, NULL) != 0)) {
        np_error("no epoll set for the service threads: %m. Check "
                 "'ulimit -n'");
        return UCS_ERR_IO_ERROR;
    }
    return UCS_OK;
}

static ucs_status_t np_port_open_fds(np_port_t *port)
{
    void *shm = NULL;
    ucs_status_t status;

    /* never moves: the owner reads it while a service thread adds to it */
    port->peers = mmap(NULL, NP_PORT_MAX_PEERS * sizeof(*port->peers),
                       PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (port->peers == MAP_FAILED) {
        np_error("no memory for %zu bytes of the table of peers: %m",
                 NP_PORT_MAX_PEERS * sizeof(*port->peers));
        port->peers = NULL;
        return UCS_ERR_NO_MEMORY;
    }

    if (getrandom(&port->id, sizeof(port->id), 0) != sizeof(port->id)) {
        np_error("getrandom() failed: %m");
        return UCS_ERR_IO_ERROR;
    }

    status = np_segment_create("nprdma-port",
                               np_page_align(sizeof(np_port_shm_t)), &shm,
                               &port->shm_fd);
    if (status != UCS_OK) {
        return status;
    }

    port->shm           = shm;
    port->shm->tlb_mode = np_engine.config.tlb.mode;
    port->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (port->epoll_fd < 0) {
        np_error("epoll_create1() failed: %m. Check 'ulimit -n'");
        return UCS_ERR_IO_ERROR;
    }

    status = np_sock_listen(port->id, &port->listen_fd);
    if (status != UCS_OK) {
        return status;
    }

    status = np_port_open_bell(port);
    if (status != UCS_OK) {
        return status;
    }

    port->waker_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (port->waker_fd < 0) {
        np_error("eventfd() failed: %m. Check 'ulimit -n'");
        return UCS_ERR_IO_ERROR;
    }

    status = np_port_watch(port, port->waker_fd, &port->waker);
    if (status != UCS_OK) {
        return status;
    }

    port->spare_fd = np_sock_spare(port->listen_fd);
    return np_port_watch(port, port->listen_fd, &port->listener);
}

static void np_port_close_fds(np_port_t *port)
{
    int fds[] = {port->spare_fd, port->epoll_fd, port->shm_fd, port->bell,
                 port->waker_fd};
    unsigned i;

    if (port->listen_fd >= 0) {
        np_sock_close_listener(port->listen_fd);
    }

    for (i = 0; i < ucs_static_array_size(fds); ++i) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }

    if (port->shm != NULL) {
        np_segment_unmap(port->shm, np_page_align(sizeof(np_port_shm_t)));
    }
    if (port->peers != NULL) {
        munmap(port->peers, NP_PORT_MAX_PEERS * sizeof(*port->peers));
    }
}

ucs_status_t np_port_open(const np_port_config_t *config,
                          const np_port_ops_t *ops, const np_user_t *user,
                          np_port_t **port_p)
{
    ucs_status_t status;
    np_port_t *port;
    unsigned i;

    port = calloc(1, sizeof(*port));
    if (port == NULL) {
        np_error("no memory for a port of %zu bytes", sizeof(*port));
        return UCS_ERR_NO_MEMORY;
    }

    port->config          = *config;
    port->config.payload_wide = ucs_max(config->payload_size,
                                        config->payload_wide);
    port->ops             = ops;
    port->period          = NP_PORT_HOUSEKEEP_MIN;
    port->countdown       = NP_PORT_HOUSEKEEP_MIN;
    port->listener.handle = np_port_handle_listener;
    port->waker.handle    = np_port_handle_waker;
    port->speaker.handle  = np_port_handle_speaker;
    port->epoll_fd        = -1;
    port->listen_fd       = -1;
    port->spare_fd        = -1;
    port->shm_fd          = -1;
    port->bell            = -1;
    port->waker_fd        = -1;
    for (i = 0; i < NP_PORT_STRANGERS; ++i) {
        port->strangers[i].fd = -1;
    }
    pthread_mutex_init(&port->lock, NULL);
    ucs_list_head_init(&port->deaf_links);
    np_flights_init(&port->flights, &np_soft_ops, ops->ways, user, NULL);
    ucs_list_head_init(&port->helps);

    status = np_port_open_fds(port);
    if (status != UCS_OK) {
        np_port_close_fds(port);
        np_stats_put(port->flights.stats);
        free(port);
        return status;
    }

    np_yield_open(&port->yield, &port->taken);
    np_vm_allow_peers();
    np_mapper_set_flush(np_drain);
    np_mapper_set_refresh(np_drain_refresh);
    np_prepare_enable();
    port->is_model = (np_engine.config.tlb.mode != NP_TLB_OFF) ||
                     np_model_is_on ||
                     (np_engine.config.write_check != NP_WRITE_CHECK_AUTO);
    *port_p = port;
    return UCS_OK;
}

void np_port_close(np_port_t *port)
{
    unsigned i;

    if (!np_flights_are_ours(&port->flights)) {
        return;
    }

    for (i = port->num_peers; i > 0; --i) {
        if ((i <= port->num_peers) && (port->peers[i - 1] != NULL)) {
            np_peer_destroy(port->peers[i - 1]);
        }
    }

    np_yield_close(&port->yield);
    np_port_drop_strangers(port);
    np_port_close_fds(port);
    np_stats_put(port->flights.stats);
    pthread_mutex_destroy(&port->lock);
    free(port);
}

void np_port_get_addr(const np_port_t *port, np_port_addr_t *addr)
{
    addr->port_id    = port->id;
    addr->engine_id  = np_engine.id;
    addr->cookie     = np_engine.cookie;
    addr->start_time = np_host_own_start_time();
}

int np_port_directory_fd(np_port_t *port, uint32_t *has_tables)
{
    int fd = np_directory_fd();

    *has_tables = (fd >= 0);
    return *has_tables ? fd : port->shm_fd;
}

/* A program that spins shall not pay for looking at the clock, nor one that
 * looks seldom wait long for a new peer, or for the death of one */
static void np_port_adapt_period(np_port_t *port, uint64_t now)
{
    uint64_t elapsed = now - port->last_clock;

    port->last_clock = now;
    if (elapsed < (NP_PORT_LOOK_TIME / 2)) {
        port->period = ucs_min(port->period * 2,
                               (unsigned)NP_PORT_HOUSEKEEP_MAX);
    } else if (elapsed > (NP_PORT_LOOK_TIME * 2)) {
        port->period = NP_PORT_HOUSEKEEP_MIN;
    }
    port->countdown = port->period;
}

/* Nothing has come since the last look: what we wait for may want our CPU */
static void np_port_give_way(np_port_t *port, uint64_t now)
{
    if (ucs_likely(!np_yield_is_wanted(&port->yield, now))) {
        return;
    }

    port->countdown = NP_PORT_HOUSEKEEP_MIN;
    if (np_yield_turn(&port->yield) && !np_prepare_has_work()) {
        NP_STATS_INC(port->flights.stats, yields);
        sched_yield();
    }
}

unsigned np_port_clock(np_port_t *port)
{
    uint64_t now = np_clock();

    np_port_adapt_period(port, now);
    np_port_give_way(port, now);
    if ((now - port->last_look) < NP_PORT_LOOK_TIME) {
        return 0;
    }

    port->last_look = now;
    return np_port_housekeep(port);
}

/* What no event tells of: done when it is time */
static void np_port_mind_strangers(np_port_t *port)
{
    uint64_t now = np_clock();

    if ((port->accept_at != 0) && (now >= port->accept_at)) {
        np_port_resume_accepting(port);
    }

    if ((port->num_strangers > 0) && (now >= port->hear_at)) {
        np_port_hear(port);
    }

    if ((port->num_unanswered > 0) && (port->accept_at == 0)) {
        np_port_accept(port, 1);
    }
}

unsigned np_port_housekeep(np_port_t *port)
{
    struct epoll_event ev;
    np_event_t *event;
    unsigned count;

    if (ucs_unlikely(!ucs_list_is_empty(&port->deaf_links))) {
        np_links_hear(port);
    }

    /* One at a time: a handler may end what another event belongs to */
    for (count = 0; count < 64; ++count) {
        if (epoll_wait(port->epoll_fd, &ev, 1, 0) <= 0) {
            break;
        }

        event = ev.data.ptr;
        event->handle(event);
    }

    if (ucs_unlikely((port->num_unanswered > 0) || (port->accept_at != 0) ||
                     (port->num_strangers > 0))) {
        np_port_mind_strangers(port);
    }

    if (ucs_unlikely(port->num_gone > 0)) {
        np_port_reap(port);
    }

    return count;
}

static int np_port_has_data(np_port_t *port)
{
    unsigned i;

    for (i = 0; i < port->num_peers; ++i) {
        if ((port->peers[i] != NULL) && np_peer_has_data(port->peers[i])) {
            return 1;
        }
    }

    return 0;
}

/* Awake again */
static void np_port_disarm(np_port_t *port)
{
    unsigned i;

    port->is_armed  = 0;
    port->countdown = 1; /* a socket may have woken us */
    port->last_look = 0;
    atomic_store_explicit(&port->shm->armed, 0, memory_order_relaxed);
    for (i = 0; i < port->num_hot; ++i) {
        np_peer_poll_set(port->hot[i], 1);
    }
}

ucs_status_t np_port_arm(np_port_t *port)
{
    unsigned i;

    for (i = 0; i < port->num_hot; ++i) {
        np_peer_poll_set(port->hot[i], 0);
        np_peer_publish_all(port->hot[i]);
    }
    np_port_resume_accepting(port); /* an owner that sleeps has time for them */
    port->is_armed   = 1;
    port->has_chores = 1;
    atomic_store_explicit(&port->shm->armed, 1, memory_order_relaxed);

    /* From here on a writer sees that it must wake us, or we see its slot */
    np_barrier_peers();

    if (np_port_has_data(port) || np_flow_has_work(port) ||
        np_help_has_work(port) ||
        (np_port_housekeep(port) > 0) ||
        (port->num_unanswered > 0)) { /* no event tells when it can be done */
        np_port_disarm(port);
        return UCS_ERR_BUSY;
    }

    return UCS_OK;
}

unsigned np_port_chores(np_port_t *port)
{
    unsigned count;

    if (port->is_armed) {
        np_port_disarm(port);
    }

    count            = np_help_progress(port);
    port->has_chores = !ucs_list_is_empty(&port->helps);
    return count;
}
