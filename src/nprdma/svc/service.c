/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The service threads.
 *
 * Both wait on one epoll set of the ports' bells and listening sockets, edge
 * triggered, so that each ring wakes one of them. A thread takes one request at
 * a time: what it has not taken the other one can.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "service.h"

#include "../clock.h"
#include "../engine.h"
#include "../thread.h"
#include "../dev/soft/peer.h"
#include "../proto/serve.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define NP_SERVICE_THREADS  2

/* How long a new connection is left to the owner's progress */
#define NP_SERVICE_ACCEPT_USEC 200

/* Longest wait before a client that could not be served is tried again, ms */
#define NP_SERVICE_RETRY_MAX 8

/* ms after which a thread looks though nobody has rung: who was about to may have
 * been killed */
#define NP_SERVICE_SLEEP     1000

/* Time between two looks at clients of a thread that polls, nanoseconds */
#define NP_SERVICE_LOOK      UINT64_C(4000000)

/* What an event is about, beside pointers to clients */
enum {
    NP_SERVICE_BELL,
    NP_SERVICE_LISTENER,
    NP_SERVICE_END
};

/* Looks for what those say who have connected, a millisecond apart. Later, the
 * owner hears them. */
#define NP_SERVICE_STRANGER_LOOKS 1000

typedef struct np_service {
    pthread_mutex_t life;       /* held while threads are started or ended; taken
                                   before lock */
    pthread_mutex_t lock;       /* guards all but is_running */
    ucs_list_link_t ports;
    ucs_list_link_t clients;
    pthread_cond_t  left;       /* a client's users has become 0 */
    int             epoll_fd;
    unsigned        threads;    /* that have begun */
    pthread_cond_t  begun;      /* threads has changed */
    pthread_t       ids[NP_SERVICE_THREADS];
    unsigned        num_ids;    /* that were created; under life */
    int             stop_fd;    /* eventfd: readable when they are to end */
    int             is_wanted;  /* they were started once: ports that come later
                                   have them too */
    _Atomic int     is_stopping;
    _Atomic int     is_running;
} np_service_t;

/* Owner: the process. A forked child begins with a new one. */
static np_service_t np_service = {
    .life     = PTHREAD_MUTEX_INITIALIZER,
    .lock     = PTHREAD_MUTEX_INITIALIZER,
    .begun    = PTHREAD_COND_INITIALIZER,
    .left     = PTHREAD_COND_INITIALIZER,
    .ports    = UCS_LIST_INITIALIZER(&np_service.ports, &np_service.ports),
    .clients  = UCS_LIST_INITIALIZER(&np_service.clients, &np_service.clients),
    .epoll_fd = -1,
    .stop_fd  = -1
};


static void np_service_after_fork(void)
{
    /* The threads are the parent's, and so is the epoll set. Its ports are
     * left alone: they belong to the parent too. */
    pthread_mutex_init(&np_service.life, NULL);
    pthread_mutex_init(&np_service.lock, NULL);
    pthread_cond_init(&np_service.left, NULL);
    ucs_list_head_init(&np_service.ports);
    ucs_list_head_init(&np_service.clients);
    if (np_service.epoll_fd >= 0) {
        close(np_service.epoll_fd);
    }
    pthread_cond_init(&np_service.begun, NULL);
    if (np_service.stop_fd >= 0) {
        close(np_service.stop_fd);
    }
    np_service.epoll_fd = -1;
    np_service.stop_fd  = -1;
    np_service.threads  = 0;
    np_service.num_ids  = 0;
    atomic_store(&np_service.is_stopping, 0);
    atomic_store(&np_service.is_running, 0);
}

static void np_service_prepare_forks(void)
{
    np_at_fork(NULL, NULL, np_service_after_fork);
}

/* Before there is anything that a child must not serve */
static void np_service_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, np_service_prepare_forks);
}

/* One request of one of the port's peers, each in turn. Returns 0 if there is
 * none. */
static int np_service_take(np_port_t *port, np_job_t *job)
{
    np_peer_t *peer;
    int is_taken = 0;
    unsigned i;

    pthread_mutex_lock(&port->lock);
    for (i = 0; !is_taken && (i < port->num_peers); ++i) {
        if (++port->service_peer >= port->num_peers) {
            port->service_peer = 0;
        }

        peer = port->peers[port->service_peer];
        if ((peer == NULL) || (peer->shm == NULL) || peer->is_malformed ||
            (np_ring_rx_peek(&peer->ctl) == 0)) {
            continue;
        }

        is_taken = np_serve_take(peer, job);
        if (is_taken) {
            /* relaxed: under the lock, as whoever waits for it to fall */
            atomic_fetch_add_explicit(&peer->jobs, 1, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&port->lock);
    return is_taken;
}

static void np_service_execute(const np_job_t *job, np_mover_t mover,
                               np_stats_t *stats)
{
    if (np_job_is_answered(job->word) && np_job_is_valid(job->word)) {
        NP_STATS_INC(stats, served_thread);
        /* if its page sleeps, the other thread is there for the next one */
        atomic_store_explicit(&job->peer->port->shm->service_armed, 1,
                              memory_order_relaxed);
        np_serve_job(job, mover, stats);
    } else if (np_word_kind(job->word) != NP_SLOT_SHARE) {
        /* help with a copy is for the owner alone; nonsense is found by it too:
         * whoever sends that gets no answer from us */
        (void)np_serve_note(job->peer, &job->slot, job->word);
    }

    /* release: the peer is not touched any more */
    atomic_fetch_sub_explicit(&job->peer->jobs, 1, memory_order_release);
}

/* Answer what there is on all ports; returns how many. A port stays while its
 * lock is held or one of its peers has a job. */
static unsigned np_service_round(np_mover_t mover, np_stats_t *stats)
{
    unsigned count = 0;
    int is_taken;
    np_port_t *port;
    np_job_t job;

    do {
        is_taken = 0;
        pthread_mutex_lock(&np_service.lock);
        ucs_list_for_each(port, &np_service.ports, service) {
            if (np_service_take(port, &job)) {
                is_taken = 1;
                ucs_list_del(&port->service); /* others first, next time */
                ucs_list_add_tail(&np_service.ports, &port->service);
                break;
            }
        }
        pthread_mutex_unlock(&np_service.lock);

        if (is_taken) {
            np_service_execute(&job, mover, stats);
            ++count;
        }
    } while (is_taken);

    return count;
}

/* Connections that wait although the owner had time to take them. Returns whether
 * it must look again. */
static int np_service_accept(void)
{
    const struct timespec patience = {
        .tv_nsec = NP_SERVICE_ACCEPT_USEC * 1000
    };
    int is_again = 0;
    np_port_t *port;

    nanosleep(&patience, NULL);
    pthread_mutex_lock(&np_service.lock);
    ucs_list_for_each(port, &np_service.ports, service) {
        is_again |= np_port_accept(port, 0);
    }
    pthread_mutex_unlock(&np_service.lock);
    return is_again;
}

/* Before it is armed again: who finds a socket full of rings must know that one of
 * them will be heard */
static void np_service_hear_bells(void)
{
    np_port_t *port;

    pthread_mutex_lock(&np_service.lock);
    ucs_list_for_each(port, &np_service.ports, service) {
        np_port_hear_bell(port);
    }
    pthread_mutex_unlock(&np_service.lock);
}

static void np_service_arm(int armed)
{
    np_port_t *port;

    pthread_mutex_lock(&np_service.lock);
    ucs_list_for_each(port, &np_service.ports, service) {
        atomic_store_explicit(&port->shm->service_armed, armed,
                              memory_order_seq_cst);
    }
    pthread_mutex_unlock(&np_service.lock);
}

/* Under the lock, which is released meanwhile */
static void np_service_serve(np_service_client_t *client)
{
    int is_again;

    client->is_again = 0;
    ++client->users;
    pthread_mutex_unlock(&np_service.lock);
    is_again = client->serve(client);
    pthread_mutex_lock(&np_service.lock);
    client->is_again |= is_again;
    if (--client->users == 0) {
        pthread_cond_broadcast(&np_service.left);
    }
}

/* One that an event names, if it is still there */
static void np_service_serve_one(const void *name)
{
    np_service_client_t *client;

    pthread_mutex_lock(&np_service.lock);
    ucs_list_for_each(client, &np_service.clients, list) {
        if (client == name) {
            np_service_serve(client);
            break;
        }
    }
    pthread_mutex_unlock(&np_service.lock);
}

/* Those that want another look, each once; returns how many still do */
static unsigned np_service_serve_again(int is_all)
{
    np_service_client_t *client;
    unsigned i, num, count = 0;

    pthread_mutex_lock(&np_service.lock);
    num = ucs_list_length(&np_service.clients);
    for (i = 0; (i < num) && !ucs_list_is_empty(&np_service.clients); ++i) {
        client = ucs_list_extract_head(&np_service.clients,
                                       np_service_client_t, list);
        ucs_list_add_tail(&np_service.clients, &client->list);
        if (client->is_again || is_all) {
            np_service_serve(client); /* others may come and go meanwhile */
        }
    }
    ucs_list_for_each(client, &np_service.clients, list) {
        count += client->is_again;
    }
    pthread_mutex_unlock(&np_service.lock);
    return count;
}

/* All clients, now and then: a look may take longer than soft0's answers may wait,
 * and the other thread is woken for what is urgent */
static void np_service_poll_clients(uint64_t *look)
{
    const uint64_t now = np_clock_coarse();

    if (now >= *look) {
        *look = now + NP_SERVICE_LOOK;
        (void)np_service_serve_again(1);
    }
}

static void *np_service_main(void *arg)
{
    np_mover_t mover  = (np_mover_t)(uintptr_t)arg;
    np_stats_t *stats = np_stats_get();
    unsigned looks    = 0; /* that are left, for strangers */
    int retry         = 1; /* ms until clients are tried again */
    uint64_t look     = 0; /* at the clients; np_clock_coarse() */
    struct epoll_event event;
    int count;

    pthread_mutex_lock(&np_service.lock);
    ++np_service.threads;
    pthread_cond_signal(&np_service.begun);
    pthread_mutex_unlock(&np_service.lock);

    while (!atomic_load_explicit(&np_service.is_stopping,
                                 memory_order_relaxed)) {
        if (np_service_round(mover, stats) > 0) {
            continue;
        }

        if ((np_engine.config.service == NP_SERVICE_POLL) &&
            (mover == NP_MOVER_SERVICE)) {
            np_service_poll_clients(&look);
            sched_yield();
            continue;
        }

        /* Whoever finds the flag set rings; and what came before it was set is
         * found by one more look. */
        np_service_arm(1);
        if (np_service_round(mover, stats) > 0) {
            continue;
        }

        retry = (np_service_serve_again(0) == 0) ? 0 :
                (retry < 1) ? 1 : ucs_min(2 * retry, NP_SERVICE_RETRY_MAX);
        count = epoll_wait(np_service.epoll_fd, &event, 1,
                           (looks > 0) ? 1 :
                           (retry > 0) ? retry : NP_SERVICE_SLEEP);
        if ((count > 0) && (event.data.u64 > NP_SERVICE_END)) {
            np_service_serve_one(event.data.ptr);
            retry = 0;
            continue;
        }

        if ((count > 0) && (event.data.u64 == NP_SERVICE_BELL)) {
            np_service_hear_bells();
            continue;
        }

        if ((count < 0) || ((count > 0) &&
                            (event.data.u64 != NP_SERVICE_LISTENER))) {
            continue; /* the end */
        }

        if ((count == 0) && (looks == 0)) {
            continue; /* time to retry */
        }

        looks = (count > 0) ? NP_SERVICE_STRANGER_LOOKS : looks - 1;
        if (!np_service_accept()) {
            looks = 0;
        }
    }

    np_stats_put(stats);
    return NULL;
}

static int np_service_watch(np_port_t *port)
{
    struct epoll_event bell     = {.events = EPOLLIN | EPOLLET};
    struct epoll_event listener = {.events   = EPOLLIN | EPOLLET,
                                   .data.u64 = NP_SERVICE_LISTENER};

    return (epoll_ctl(np_service.epoll_fd, EPOLL_CTL_ADD, port->bell,
                      &bell) == 0) &&
           (epoll_ctl(np_service.epoll_fd, EPOLL_CTL_ADD, port->listen_fd,
                      &listener) == 0);
}

/* The first look arms it */
static void np_service_watch_client(np_service_client_t *client)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = client};

    client->is_again = 1;
    if (epoll_ctl(np_service.epoll_fd, EPOLL_CTL_ADD, client->fd,
                  &event) != 0) {
        np_error("epoll_ctl(ADD) failed: %m. Peers are only answered by the "
                 "program's own progress");
    }
}

static int np_service_is_idle(void)
{
    return ucs_list_is_empty(&np_service.ports) &&
           ucs_list_is_empty(&np_service.clients);
}

void np_service_add(np_port_t *port)
{
    int is_wanted;

    np_service_init();
    pthread_mutex_lock(&np_service.life); /* threads that end must have ended */
    pthread_mutex_lock(&np_service.lock);
    ucs_list_add_tail(&np_service.ports, &port->service);
    is_wanted = np_service.is_wanted;
    if ((np_service.epoll_fd >= 0) && !np_service_watch(port)) {
        np_error("epoll_ctl(ADD) failed: %m. Peers are only answered by the "
                 "program's own progress");
    }
    pthread_mutex_unlock(&np_service.lock);
    pthread_mutex_unlock(&np_service.life);

    if (is_wanted) {
        np_service_start();
    }
}

/* The last port has gone: end the threads, so that a program that has closed
 * everything is alone with itself again */
static void np_service_stop(void)
{
    const uint64_t one = 1;
    unsigned i;

    atomic_store(&np_service.is_stopping, 1);
    if (write(np_service.stop_fd, &one, sizeof(one)) != sizeof(one)) {
        np_error("the service threads cannot be told to end: %m");
        return;
    }

    for (i = 0; i < np_service.num_ids; ++i) {
        pthread_join(np_service.ids[i], NULL);
    }

    close(np_service.epoll_fd);
    close(np_service.stop_fd);
    np_service.epoll_fd = -1;
    np_service.stop_fd  = -1;
    np_service.threads  = 0;
    np_service.num_ids  = 0;
    atomic_store(&np_service.is_stopping, 0);
    atomic_store(&np_service.is_running, 0);
}

/* Under both locks, which are released: the threads end with the last one */
static void np_service_removed(void)
{
    int is_last = np_service_is_idle();

    pthread_mutex_unlock(&np_service.lock);
    if (is_last && (np_service.num_ids > 0)) {
        np_service_stop();
    }
    pthread_mutex_unlock(&np_service.life);
}

void np_service_remove(np_port_t *port)
{
    if (!np_port_is_ours(port)) {
        return; /* and it is in no list of ours */
    }

    pthread_mutex_lock(&np_service.life);
    pthread_mutex_lock(&np_service.lock);
    ucs_list_del(&port->service);
    if (np_service.epoll_fd >= 0) {
        epoll_ctl(np_service.epoll_fd, EPOLL_CTL_DEL, port->bell, NULL);
        epoll_ctl(np_service.epoll_fd, EPOLL_CTL_DEL, port->listen_fd, NULL);
    }
    np_service_removed();
}

void np_service_add_client(np_service_client_t *client)
{
    int is_wanted;

    client->users    = 0;
    client->is_again = 0;
    np_service_init();
    pthread_mutex_lock(&np_service.life);
    pthread_mutex_lock(&np_service.lock);
    ucs_list_add_tail(&np_service.clients, &client->list);
    is_wanted = np_service.is_wanted;
    if (np_service.epoll_fd >= 0) {
        np_service_watch_client(client);
    }
    pthread_mutex_unlock(&np_service.lock);
    pthread_mutex_unlock(&np_service.life);

    if (is_wanted) {
        np_service_start();
    }
}

void np_service_remove_client(np_service_client_t *client)
{
    pthread_mutex_lock(&np_service.life);
    pthread_mutex_lock(&np_service.lock);
    ucs_list_del(&client->list);
    if (np_service.epoll_fd >= 0) {
        epoll_ctl(np_service.epoll_fd, EPOLL_CTL_DEL, client->fd, NULL);
    }
    while (client->users > 0) {
        pthread_cond_wait(&np_service.left, &np_service.lock);
    }
    np_service_removed();
}

static int np_service_create(np_mover_t mover)
{
    pthread_t thread;
    int ret;

    ret = np_thread_start(&thread, (mover == NP_MOVER_SERVICE) ? "nprdma-svc" :
                          "nprdma-svc2", np_service_main,
                          (void*)(uintptr_t)mover);
    if (ret != 0) {
        np_error("cannot start a service thread: %s. Peers are only answered "
                 "by the program's own progress. Check 'ulimit -u'",
                 strerror(ret));
        return 0;
    }

    np_service.ids[np_service.num_ids++] = thread;
    return 1;
}

static void np_service_start_slow(void)
{
    struct epoll_event stop = {.events = EPOLLIN, .data.u64 = NP_SERVICE_END};
    np_service_client_t *client;
    unsigned wanted;
    np_port_t *port;

    pthread_mutex_lock(&np_service.life);
    pthread_mutex_lock(&np_service.lock);
    np_service.is_wanted = 1;
    if (atomic_load(&np_service.is_running) || np_service_is_idle()) {
        goto out;
    }

    atomic_store(&np_service.is_running, 1); /* or failed: said once */
    np_service.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    np_service.stop_fd  = eventfd(0, EFD_CLOEXEC);
    if ((np_service.epoll_fd < 0) || (np_service.stop_fd < 0) ||
        (epoll_ctl(np_service.epoll_fd, EPOLL_CTL_ADD, np_service.stop_fd,
                   &stop) != 0)) {
        np_error("no epoll set for the service threads: %m. Check 'ulimit "
                 "-n'");
        goto out;
    }

    ucs_list_for_each(port, &np_service.ports, service) {
        (void)np_service_watch(port);
    }
    ucs_list_for_each(client, &np_service.clients, list) {
        np_service_watch_client(client);
    }

    wanted  = np_service_create(NP_MOVER_SERVICE);
    wanted += wanted && np_service_create(NP_MOVER_SLEEPER);

    /* A program that ends at once meets whole threads: leak checkers look into
     * them */
    while (np_service.threads < wanted) {
        pthread_cond_wait(&np_service.begun, &np_service.lock);
    }
out:
    pthread_mutex_unlock(&np_service.lock);
    pthread_mutex_unlock(&np_service.life);
}

void np_service_start(void)
{
    if (ucs_unlikely(!atomic_load_explicit(&np_service.is_running,
                                           memory_order_relaxed)) &&
        (np_engine.config.service != NP_SERVICE_OFF)) {
        np_service_start_slow();
    }
}
