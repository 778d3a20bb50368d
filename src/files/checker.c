/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The thread that asks munged.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "checker.h"
#include "program.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* One credential */
typedef struct nf_check {
    struct nf_check *next;
    void            *guest;
    uint64_t        deadline;
    int             result;
    ssize_t         payload_len;
    uint8_t         payload[NF_PURPOSE_MAX]; /* that is to be in it */
    char            credential[NF_AUTH_MAX + 1];
} nf_check_t;

struct nf_checker {
    const char      *socket;
    int             wake;         /* an eventfd: something has been checked */
    pthread_t       thread;
    unsigned        count;        /* of all that are here: the door's */

    pthread_mutex_t lock;         /* guards what follows */
    pthread_cond_t  cond;         /* asked, or is_stopped */
    nf_check_t      *asked;       /* the first is the next */
    nf_check_t      **asked_end;
    nf_check_t      *checked;
    int             is_asking;    /* munged, without the lock */
    int             is_stopped;
};


static int nf_check_run(const nf_checker_t *checker, const nf_check_t *check)
{
    int ret = -ETIMEDOUT;

    if (nf_now() < check->deadline) {
        ret = nf_munge_decode(checker->socket, check->credential,
                              check->payload, check->payload_len);
    }
    return (nf_now() < check->deadline) ? ret : -ETIMEDOUT;
}

/* The next one; the lock is held. NULL: no more */
static nf_check_t *nf_checker_next(nf_checker_t *checker)
{
    nf_check_t *check;

    while ((checker->asked == NULL) && !checker->is_stopped) {
        pthread_cond_wait(&checker->cond, &checker->lock);
    }
    if (checker->is_stopped) {
        return NULL;
    }

    check          = checker->asked;
    checker->asked = check->next;
    if (checker->asked == NULL) {
        checker->asked_end = &checker->asked;
    }
    return check;
}

static void *nf_checker_run(void *arg)
{
    nf_checker_t *checker = arg;
    nf_check_t *check;

    pthread_mutex_lock(&checker->lock);
    while ((check = nf_checker_next(checker)) != NULL) {
        checker->is_asking = 1;
        pthread_mutex_unlock(&checker->lock);
        check->result = nf_check_run(checker, check);

        pthread_mutex_lock(&checker->lock);
        checker->is_asking = 0;
        check->next        = checker->checked;
        checker->checked   = check;
        (void)eventfd_write(checker->wake, 1);
    }
    pthread_mutex_unlock(&checker->lock);
    return NULL;
}

nf_checker_t *nf_checker_start(const char *socket)
{
    nf_checker_t *checker = calloc(1, sizeof(*checker));

    if (checker == NULL) {
        nf_say("no memory for a thread that asks munged");
        return NULL;
    }

    checker->socket    = socket;
    checker->asked_end = &checker->asked;
    checker->wake      = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&checker->lock, NULL);
    pthread_cond_init(&checker->cond, NULL);
    if ((checker->wake < 0) ||
        (pthread_create(&checker->thread, NULL, nf_checker_run, checker) !=
         0)) {
        nf_say("there can be no thread that asks munged: %m");
        if (checker->wake >= 0) {
            close(checker->wake);
        }
        free(checker);
        return NULL;
    }
    return checker;
}

int nf_checker_fd(const nf_checker_t *checker)
{
    return checker->wake;
}

int nf_checker_put(nf_checker_t *checker, void *guest, int fd,
                   const nf_hello_t *hello, uint64_t deadline)
{
    const char *credential = (const char*)(hello + 1);
    nf_check_t *check;
    int ret;

    if (checker->count == NF_CHECKS_MAX) {
        return -EBUSY;
    }

    check = malloc(sizeof(*check));
    if (check == NULL) {
        return -ENOMEM;
    }

    memcpy(check->credential, credential, hello->auth_len);
    check->credential[hello->auth_len] = '\0';
    check->payload_len = nf_munge_purpose(fd, 0, credential + hello->auth_len,
                                          hello->address_len, check->payload);
    if ((check->payload_len < 0) ||
        (strlen(check->credential) != hello->auth_len)) {
        ret = (check->payload_len < 0) ? check->payload_len : -EBADMSG;
        free(check);
        return ret;
    }

    check->next     = NULL;
    check->guest    = guest;
    check->deadline = deadline;
    ++checker->count;
    pthread_mutex_lock(&checker->lock);
    *checker->asked_end = check;
    checker->asked_end  = &check->next;
    pthread_cond_signal(&checker->cond);
    pthread_mutex_unlock(&checker->lock);
    return 0;
}

void *nf_checker_take(nf_checker_t *checker, int *result)
{
    eventfd_t count;
    nf_check_t *check;
    void *guest;

    (void)eventfd_read(checker->wake, &count);
    pthread_mutex_lock(&checker->lock);
    check = checker->checked;
    if (check != NULL) {
        checker->checked = check->next;
    }
    pthread_mutex_unlock(&checker->lock);
    if (check == NULL) {
        return NULL;
    }

    --checker->count;
    guest   = check->guest;
    *result = check->result;
    free(check);
    return guest;
}

static void nf_checks_free(nf_check_t *check)
{
    nf_check_t *next;

    for (; check != NULL; check = next) {
        next = check->next;
        free(check);
    }
}

void nf_checker_stop(nf_checker_t *checker)
{
    int is_asking;

    pthread_mutex_lock(&checker->lock);
    checker->is_stopped = 1;
    is_asking           = checker->is_asking;
    pthread_cond_signal(&checker->cond);
    pthread_mutex_unlock(&checker->lock);
    if (is_asking) {
        pthread_detach(checker->thread);
        return;
    }

    pthread_join(checker->thread, NULL);
    nf_checks_free(checker->asked);
    nf_checks_free(checker->checked);
    close(checker->wake);
    free(checker);
}
