/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The service threads.
 *
 * Both wait on one epoll set of the ports' descriptors, edge triggered, so that
 * each ring wakes one of them. A thread takes one request at a time, so the
 * other one can take the next.
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

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define NP_SERVICE_THREADS  2

/* Longest wait before a client that could not be served is tried again, ms */
#define NP_SERVICE_RETRY_MAX 8

/* ms after which a thread looks without a ring: the process that was about to
 * ring may have been killed */
#define NP_SERVICE_SLEEP     1000

/* Time between two looks at clients of a thread that polls, nanoseconds */
#define NP_SERVICE_LOOK      UINT64_C(4000000)

/* After so many ns a thread looks again at requests that their owners do */
#define NP_SERVICE_LEFT      UINT64_C(1000000)

typedef struct np_service {
    pthread_mutex_t life;       /* held while threads are started or ended;
                                   taken before lock */
    pthread_mutex_t lock;       /* guards all but is_running */
    ucs_list_link_t clients;
    pthread_cond_t  left;       /* a client's users has become 0 */
    int             epoll_fd;
    unsigned        threads;    /* that have begun */
    pthread_cond_t  begun;      /* threads has changed */
    pthread_t       ids[NP_SERVICE_THREADS];
    unsigned        num_ids;    /* that were created; under life */
    int             stop_fd;    /* eventfd: readable when they are to end */
    int             call_fd;    /* eventfd: written to wake one of them; never
                                   read, as the set is edge triggered */
    _Atomic unsigned sleepers;  /* threads that sleep, or are about to: before
                                   their last look. seq_cst. */
    uint64_t        call_at;    /* for what is left, not before;
                                   np_clock_coarse() */
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
    .clients  = UCS_LIST_INITIALIZER(&np_service.clients, &np_service.clients),
    .epoll_fd = -1,
    .stop_fd  = -1,
    .call_fd  = -1
};


static void np_service_close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* There is no thread any more */
static void np_service_reset(void)
{
    np_service_close_fd(&np_service.epoll_fd);
    np_service_close_fd(&np_service.stop_fd);
    np_service_close_fd(&np_service.call_fd);
    np_service.threads = 0;
    np_service.num_ids = 0;
    atomic_store(&np_service.sleepers, 0);
    atomic_store(&np_service.is_stopping, 0);
    atomic_store(&np_service.is_running, 0);
}

static void np_service_after_fork(void)
{
    /* The threads are the parent's, and so is the epoll set. Its ports are
     * left alone: they belong to the parent too. */
    pthread_mutex_init(&np_service.life, NULL);
    pthread_mutex_init(&np_service.lock, NULL);
    pthread_cond_init(&np_service.left, NULL);
    pthread_cond_init(&np_service.begun, NULL);
    ucs_list_head_init(&np_service.clients);
    np_service_reset();
}

static void np_service_prepare_forks(void)
{
    np_at_fork(NULL, NULL, np_service_after_fork);
}

void np_service_call(void)
{
    const uint64_t one = 1;

    if ((atomic_load(&np_service.sleepers) > 0) &&
        (write(np_service.call_fd, &one, sizeof(one)) != sizeof(one))) {
        np_error("a service thread cannot be called: %m");
    }
}

void np_service_again(np_service_client_t *client)
{
    pthread_mutex_lock(&np_service.lock);
    client->is_again = 1;
    pthread_mutex_unlock(&np_service.lock);
    np_service_call();
}

/* Before there is anything that a child must not serve */
static void np_service_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, np_service_prepare_forks);
}

/* The client is given back: with the lock */
static void np_service_leave(np_service_client_t *client)
{
    pthread_mutex_lock(&np_service.lock);
    if (--client->users == 0) {
        pthread_cond_broadcast(&np_service.left);
    }
}

/* Under the lock, which is released meanwhile: others may come and go */
static void np_service_serve(np_service_client_t *client)
{
    int is_again;

    client->is_again = 0;
    ++client->users;
    pthread_mutex_unlock(&np_service.lock);
    is_again = client->ops->serve(client);
    np_service_leave(client);
    client->is_again |= is_again;
}

/* Others come first next time */
static void np_service_end_turn(np_service_client_t *client)
{
    ucs_list_del(&client->list);
    ucs_list_add_tail(&np_service.clients, &client->list);
}

/* The next request of any client, whose turn is over then; NULL: there is none.
 * The client is to be given back. @a is_left: an owner does them itself. */
static np_service_client_t *
np_service_take(np_service_job_t *job, int *is_left)
{
    np_service_client_t *client, *taken = NULL;
    uint64_t now;
    int ret;

    *is_left = 0;
    pthread_mutex_lock(&np_service.lock);
    ucs_list_for_each(client, &np_service.clients, list) {
        ret = (client->ops->take == NULL) ? 0 : client->ops->take(client, job);
        if (ret > 0) {
            taken = client;
            break;
        }
        *is_left |= ret < 0;
    }
    if (taken != NULL) {
        np_service_end_turn(taken);
        ++taken->users;
    }
    if ((taken != NULL) && *is_left) {
        /* if this one's page sleeps, the other thread has what is left */
        now = np_clock_coarse();
        if (now >= np_service.call_at) {
            np_service.call_at = now + NP_SERVICE_LEFT;
            np_service_call();
        }
    }
    pthread_mutex_unlock(&np_service.lock);
    return taken;
}

static void np_service_execute(np_service_client_t *client,
                               np_service_job_t *job, unsigned thread,
                               np_stats_t *stats)
{
    client->ops->execute(job, thread, stats);
    np_service_leave(client);
    pthread_mutex_unlock(&np_service.lock);
}

/* Execute all requests that there are; returns how many */
static unsigned np_service_round(unsigned thread, np_stats_t *stats)
{
    np_service_client_t *client;
    np_service_job_t job;
    unsigned count = 0;
    int is_left;

    while ((client = np_service_take(&job, &is_left)) != NULL) {
        np_service_execute(client, &job, thread, stats);
        ++count;
    }
    return count;
}

/* A peer that finds its port armed rings; what came before is found by one more
 * look */
static void np_service_arm(void)
{
    np_service_client_t *client;

    pthread_mutex_lock(&np_service.lock);
    ucs_list_for_each(client, &np_service.clients, list) {
        if (client->ops->arm != NULL) {
            client->ops->arm(client);
        }
    }
    pthread_mutex_unlock(&np_service.lock);
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
        client = ucs_list_head(&np_service.clients, np_service_client_t, list);
        np_service_end_turn(client);
        if (client->is_again || is_all) {
            np_service_serve(client);
        }
    }
    ucs_list_for_each(client, &np_service.clients, list) {
        count += client->is_again;
    }
    pthread_mutex_unlock(&np_service.lock);
    return count;
}

/* All clients, now and then: a look may take longer than requests may wait, and
 * the other thread is woken for what is urgent */
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
    const unsigned thread = (uintptr_t)arg;
    np_stats_t *stats     = np_stats_get();
    int retry             = 1; /* ms until clients are tried again */
    int is_left;
    uint64_t look         = 0; /* at the clients; np_clock_coarse() */
    np_service_client_t *client;
    struct epoll_event event;
    np_service_job_t job;

    pthread_mutex_lock(&np_service.lock);
    ++np_service.threads;
    pthread_cond_signal(&np_service.begun);
    pthread_mutex_unlock(&np_service.lock);

    while (!atomic_load_explicit(&np_service.is_stopping,
                                 memory_order_relaxed)) {
        if (np_service_round(thread, stats) > 0) {
            continue;
        }

        if ((np_engine.config.service == NP_SERVICE_POLL) && (thread == 0)) {
            np_service_poll_clients(&look);
            sched_yield();
            continue;
        }

        retry = (np_service_serve_again(0) == 0) ? 0 :
                (retry < 1) ? 1 : ucs_min(2 * retry, NP_SERVICE_RETRY_MAX);
        event.data.ptr = NULL;
        atomic_fetch_add(&np_service.sleepers, 1);
        np_service_arm();
        client = np_service_take(&job, &is_left);
        if (client == NULL) {
            (void)epoll_wait(np_service.epoll_fd, &event, 1,
                             is_left ? (int)(NP_SERVICE_LEFT / 1000000) :
                             (retry > 0) ? retry : NP_SERVICE_SLEEP);
        }
        atomic_fetch_sub(&np_service.sleepers, 1);
        if (client != NULL) {
            np_service_execute(client, &job, thread, stats);
            continue;
        }

        if (event.data.ptr != NULL) { /* else a call, or the end */
            np_service_serve_one(event.data.ptr);
            retry = 0;
        }
    }

    np_stats_put(stats);
    return NULL;
}

/* The first look arms it */
static void np_service_watch(np_service_client_t *client)
{
    struct epoll_event event = {
        .events   = EPOLLIN | EPOLLET,
        .data.ptr = client
    };

    client->is_again = 1;
    if (epoll_ctl(np_service.epoll_fd, EPOLL_CTL_ADD, client->fd,
                  &event) != 0) {
        np_error("epoll_ctl(ADD) failed: %m. Peers are only answered by the "
                 "program's own progress");
    }
}

static int np_service_is_idle(void)
{
    int is_idle;

    pthread_mutex_lock(&np_service.lock);
    is_idle = ucs_list_is_empty(&np_service.clients);
    pthread_mutex_unlock(&np_service.lock);
    return is_idle;
}

void np_service_add(np_service_client_t *client)
{
    int is_wanted;

    client->users    = 0;
    client->is_again = 0;
    np_service_init();
    pthread_mutex_lock(&np_service.life); /* threads that end must have ended */
    pthread_mutex_lock(&np_service.lock);
    ucs_list_add_tail(&np_service.clients, &client->list);
    is_wanted = np_service.is_wanted;
    if (np_service.epoll_fd >= 0) {
        np_service_watch(client);
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

    np_service_reset();
}

void np_service_remove(np_service_client_t *client)
{
    pthread_mutex_lock(&np_service.lock);
    ucs_list_del(&client->list);
    if (np_service.epoll_fd >= 0) {
        epoll_ctl(np_service.epoll_fd, EPOLL_CTL_DEL, client->fd, NULL);
    }
    while (client->users > 0) { /* without life: it may take long */
        pthread_cond_wait(&np_service.left, &np_service.lock);
    }
    pthread_mutex_unlock(&np_service.lock);

    pthread_mutex_lock(&np_service.life);
    if (np_service_is_idle() && (np_service.num_ids > 0)) {
        np_service_stop();
    }
    pthread_mutex_unlock(&np_service.life);
}

static int np_service_create(void)
{
    static const char *names[] = {"nprdma-svc", "nprdma-svc2"};
    const unsigned number      = np_service.num_ids;
    pthread_t thread;
    int ret;

    ret = np_thread_start(&thread, names[number], np_service_main,
                          (void*)(uintptr_t)number);
    if (ret != 0) {
        np_error("cannot start a service thread: %s. Peers are only answered "
                 "by the program's own progress. Check 'ulimit -u'",
                 strerror(ret));
        return 0;
    }

    np_service.ids[number] = thread;
    ++np_service.num_ids;
    return 1;
}

static int np_service_open_fds(void)
{
    struct epoll_event stop = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event call = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};

    np_service.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    np_service.stop_fd  = eventfd(0, EFD_CLOEXEC);
    np_service.call_fd  = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return (np_service.epoll_fd >= 0) && (np_service.stop_fd >= 0) &&
           (np_service.call_fd >= 0) &&
           (epoll_ctl(np_service.epoll_fd, EPOLL_CTL_ADD, np_service.stop_fd,
                      &stop) == 0) &&
           (epoll_ctl(np_service.epoll_fd, EPOLL_CTL_ADD, np_service.call_fd,
                      &call) == 0);
}

static void np_service_start_slow(void)
{
    np_service_client_t *client;

    pthread_mutex_lock(&np_service.life);
    pthread_mutex_lock(&np_service.lock);
    np_service.is_wanted = 1;
    if (atomic_load(&np_service.is_running) ||
        ucs_list_is_empty(&np_service.clients)) {
        goto out;
    }

    atomic_store(&np_service.is_running, 1); /* or failed: said once */
    if (!np_service_open_fds()) {
        np_error("no epoll set for the service threads: %m. Check 'ulimit "
                 "-n'");
        goto out;
    }

    ucs_list_for_each(client, &np_service.clients, list) {
        np_service_watch(client);
    }
    while ((np_service.num_ids < NP_SERVICE_THREADS) && np_service_create()) {
    }

    /* A program that ends at once meets whole threads: leak checkers look into
     * them */
    while (np_service.threads < np_service.num_ids) {
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
