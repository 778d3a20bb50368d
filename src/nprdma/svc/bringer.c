/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Bringers.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "bringer.h"

#include "../mem/access.h"
#include "../thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A thread. Owner: the list, until it is joined; itself, if it was
 * abandoned. */
typedef struct np_bringer {
    ucs_list_link_t list;
    pthread_t       id;
    int             is_sleeping;  /* in a page, perhaps */
    int             is_ended;     /* it is to end */
    int             is_abandoned; /* and is not joined */
} np_bringer_t;

/* Owner: the process. All of it is guarded by lock, which no thread keeps
 * during a wait, other than for the conditions; a forked child begins anew. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t  work;      /* queue, or a thread's is_ended, has changed */
    pthread_cond_t  returned;  /* a state has ceased to be
                                  NP_ERRAND_RETURNING */
    unsigned        users;
    ucs_list_link_t queue;     /* np_errand_t */
    ucs_list_link_t busy;      /* np_errand_t: in a thread */
    ucs_list_link_t threads;   /* np_bringer_t, but for abandoned ones */
    unsigned        num;       /* threads, abandoned ones too */
    unsigned        idle;      /* of these, those that wait for work */
    unsigned        num_queued;
} np_bringers = {
    .lock     = PTHREAD_MUTEX_INITIALIZER,
    .work     = PTHREAD_COND_INITIALIZER,
    .returned = PTHREAD_COND_INITIALIZER,
    .queue    = UCS_LIST_INITIALIZER(&np_bringers.queue, &np_bringers.queue),
    .busy     = UCS_LIST_INITIALIZER(&np_bringers.busy, &np_bringers.busy),
    .threads  = UCS_LIST_INITIALIZER(&np_bringers.threads,
                                     &np_bringers.threads)
};


static void np_bringer_after_fork(void)
{
    pthread_mutex_init(&np_bringers.lock, NULL);
    pthread_cond_init(&np_bringers.work, NULL);
    pthread_cond_init(&np_bringers.returned, NULL);
    ucs_list_head_init(&np_bringers.queue);
    ucs_list_head_init(&np_bringers.busy);
    ucs_list_head_init(&np_bringers.threads);
    np_bringers.users      = 0;
    np_bringers.num        = 0;
    np_bringers.idle       = 0;
    np_bringers.num_queued = 0;
}

static void np_bringer_prepare_forks(void)
{
    np_at_fork(NULL, NULL, np_bringer_after_fork);
}

np_errand_t *np_errand_create(void)
{
    np_errand_t *bring = calloc(1, sizeof(*bring));

    if (bring != NULL) {
        atomic_init(&bring->refs, 2);
    }
    return bring;
}

void np_errand_put(np_errand_t *bring)
{
    if (atomic_fetch_sub(&bring->refs, 1) == 1) {
        free(bring);
    }
}

/* Bring it in, and have the waiter's work tried again. Under the lock, which is
 * released meanwhile. */
static void np_bringer_run(np_bringer_t *self, np_errand_t *bring)
{
    int is_over = 0;

    ucs_list_add_tail(&np_bringers.busy, &bring->list);
    do {
        bring->state      = NP_ERRAND_SLEEPING;
        self->is_sleeping = 1;
        pthread_mutex_unlock(&np_bringers.lock);
        bring->status = np_access_bring_in(bring->va, bring->len,
                                           bring->write);
        ++bring->rounds;
        pthread_mutex_lock(&np_bringers.lock);
        self->is_sleeping = 0;
        if (self->is_ended || bring->is_left) {
            break;
        }

        bring->state = NP_ERRAND_RETURNING;
        pthread_mutex_unlock(&np_bringers.lock);
        is_over = bring->brought(bring);
        pthread_mutex_lock(&np_bringers.lock);
        bring->state = NP_ERRAND_SLEEPING;
        pthread_cond_broadcast(&np_bringers.returned);
    } while (!is_over && !bring->is_left);

    ucs_list_del(&bring->list);
    np_errand_put(bring);
}

static void *np_bringer_main(void *arg)
{
    np_bringer_t *self = arg;
    int is_abandoned;
    np_errand_t *bring;

    pthread_mutex_lock(&np_bringers.lock);
    while (!self->is_ended) {
        if (!ucs_list_is_empty(&np_bringers.queue)) {
            bring = ucs_list_extract_head(&np_bringers.queue, np_errand_t,
                                          list);
            --np_bringers.num_queued;
            np_bringer_run(self, bring);
        } else {
            ++np_bringers.idle;
            pthread_cond_wait(&np_bringers.work, &np_bringers.lock);
            --np_bringers.idle;
        }
    }
    --np_bringers.num;
    is_abandoned = self->is_abandoned;
    pthread_mutex_unlock(&np_bringers.lock);

    if (is_abandoned) {
        free(self);
    }
    return NULL;
}

/* One thread more. Under the lock. */
static void np_bringer_start(void)
{
    np_bringer_t *self = calloc(1, sizeof(*self));
    int ret            = ENOMEM;

    if (self != NULL) {
        ret = np_thread_start(&self->id, "nprdma-bring", np_bringer_main, self);
    }
    if (ret != 0) {
        np_error("cannot start a thread that brings pages in: %s. A page that "
                 "sleeps holds up all peers. Check 'ulimit -u'", strerror(ret));
        free(self);
        return;
    }

    ucs_list_add_tail(&np_bringers.threads, &self->list);
    ++np_bringers.num;
}

void np_bringer_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, np_bringer_prepare_forks);
    pthread_mutex_lock(&np_bringers.lock);
    ++np_bringers.users;
    pthread_mutex_unlock(&np_bringers.lock);
}

/* All threads are to end; those that do not sleep in a page are to be joined */
static void np_bringer_end_all(ucs_list_link_t *ended)
{
    np_bringer_t *bringer, *next;

    ucs_list_for_each_safe(bringer, next, &np_bringers.threads, list) {
        bringer->is_ended = 1;
        ucs_list_del(&bringer->list);
        if (bringer->is_sleeping) {
            bringer->is_abandoned = 1;
            pthread_detach(bringer->id);
        } else {
            ucs_list_add_tail(ended, &bringer->list);
        }
    }
    pthread_cond_broadcast(&np_bringers.work);
}

void np_bringer_close(void)
{
    ucs_list_link_t ended;
    np_bringer_t *bringer;

    ucs_list_head_init(&ended);
    pthread_mutex_lock(&np_bringers.lock);
    np_assert(np_bringers.users > 0);
    if (--np_bringers.users == 0) {
        np_bringer_end_all(&ended);
    }
    pthread_mutex_unlock(&np_bringers.lock);

    while (!ucs_list_is_empty(&ended)) {
        bringer = ucs_list_extract_head(&ended, np_bringer_t, list);
        pthread_join(bringer->id, NULL);
        free(bringer);
    }
}

int np_bringer_submit(np_errand_t *bring)
{
    int is_taken;

    pthread_mutex_lock(&np_bringers.lock);
    if ((np_bringers.num_queued >= np_bringers.idle) &&
        (np_bringers.num < NP_BRINGERS)) {
        np_bringer_start();
    }
    is_taken = np_bringers.num > 0;
    if (is_taken) {
        bring->state = NP_ERRAND_QUEUED;
        ucs_list_add_tail(&np_bringers.queue, &bring->list);
        ++np_bringers.num_queued;
        pthread_cond_signal(&np_bringers.work);
    }
    pthread_mutex_unlock(&np_bringers.lock);

    if (!is_taken) {
        np_errand_put(bring);
    }
    return is_taken;
}

/* No thread has begun it. Under the lock. */
static void np_bringer_forget(np_errand_t *bring)
{
    ucs_list_del(&bring->list);
    --np_bringers.num_queued;
    bring->state = NP_ERRAND_SLEEPING;
    np_errand_put(bring);
}

void np_bringer_cancel(np_errand_t *bring)
{
    atomic_store(&bring->is_left, 1);
    pthread_mutex_lock(&np_bringers.lock);
    if (bring->state == NP_ERRAND_QUEUED) {
        np_bringer_forget(bring);
    }
    pthread_mutex_unlock(&np_bringers.lock);
    np_errand_put(bring);
}

/* One whose brought() is running or about to be called; NULL: none. Under the
 * lock. */
static np_errand_t *np_bringer_returning(const void *user)
{
    np_errand_t *bring;

    ucs_list_for_each(bring, &np_bringers.busy, list) {
        if ((bring->user == user) && (bring->state == NP_ERRAND_RETURNING)) {
            return bring;
        }
    }
    return NULL;
}

void np_bringer_leave(const void *user)
{
    np_errand_t *bring, *next;

    pthread_mutex_lock(&np_bringers.lock);
    ucs_list_for_each_safe(bring, next, &np_bringers.queue, list) {
        if (bring->user == user) {
            np_bringer_forget(bring);
        }
    }
    ucs_list_for_each(bring, &np_bringers.busy, list) {
        if (bring->user == user) {
            atomic_store(&bring->is_left, 1);
        }
    }
    while (np_bringer_returning(user) != NULL) {
        pthread_cond_wait(&np_bringers.returned, &np_bringers.lock);
    }
    pthread_mutex_unlock(&np_bringers.lock);
}
