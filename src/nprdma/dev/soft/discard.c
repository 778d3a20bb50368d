/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Closing what somebody else has sent.
 *
 * A thread, the porter, closes all that waits, and ends. It must not be the one
 * that gives up the last reference to a file, for it would wait as long as the
 * file says. So it starts another one, the heir, which makes a table of
 * descriptors of its own, a copy, and ends when the porter has closed those of the
 * process. What else is in the copy it closes at once: a pipe that the program
 * closes meanwhile would have no end. A socket does not linger when it is closed by the end of a task; and
 * whatever else an heir hangs in, nobody waits for an heir.
 *
 *     porter                               heir
 *     takes descriptors, starts the heir
 *                                          copies the table
 *     closes them                          closes all others, waits
 *                                          ends: they are closed
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "discard.h"

#include "../../np.h"
#include "../../pause.h"
#include "../../seldom.h"
#include "../../thread.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#  define SYS_close_range 436
#endif

#ifndef CLOSE_RANGE_UNSHARE
#  define CLOSE_RANGE_UNSHARE 2u
#endif

/* Descriptors that a porter takes at once */
#define NP_DISCARD_BATCH 64

/* More wait only where no thread can be started, or where it has no heir */
#define NP_DISCARD_MAX   1024

/* Numbers that are closed one by one where a range cannot be, at most */
#define NP_DISCARD_NUMBERS 65536

/* Owner: the porter; the heir's last use of it is the wait for is_closed. */
typedef struct np_discard_heir {
    sem_t    is_copied;
    sem_t    is_closed;
    int      has_table;
    unsigned count;
    int      fds[NP_DISCARD_BATCH];
} np_discard_heir_t;

/* Guards what follows */
static pthread_mutex_t np_discard_lock = PTHREAD_MUTEX_INITIALIZER;

static int np_discard_fds[NP_DISCARD_MAX];
static unsigned np_discard_count;
static int np_discard_has_porter;

static pthread_once_t np_discard_once = PTHREAD_ONCE_INIT;


static void np_discard_fork_begin(void)
{
    pthread_mutex_lock(&np_discard_lock); /* the child finds it whole */
}

static void np_discard_fork_end(void)
{
    pthread_mutex_unlock(&np_discard_lock);
}

/* The child has copies of all that waits, which may be the last by now: to close them
 * could take long. They stay open until it ends or calls exec(). */
static void np_discard_after_fork(void)
{
    np_discard_count      = 0;
    np_discard_has_porter = 0;
    np_discard_fork_end();
}

static void np_discard_init(void)
{
    np_at_fork(np_discard_fork_begin, np_discard_fork_end,
               np_discard_after_fork);
}

static void np_discard_wait(sem_t *sem)
{
    while (sem_wait(sem) != 0) {
    }
}

static int np_discard_compare(const void *a, const void *b)
{
    return *(const int*)a - *(const int*)b;
}

/* All numbers from @a first up to @a end, without that */
static void np_discard_close_range(unsigned first, unsigned end)
{
    unsigned fd;

    if ((first >= end) ||
        (syscall(SYS_close_range, first, end - 1, 0) == 0)) {
        return;
    }

    for (fd = first; (fd < end) && (fd < NP_DISCARD_NUMBERS); ++fd) {
        close(fd);
    }
}

/* All that the heir has not for the porter: it would keep alive what the program
 * closes meanwhile */
static void np_discard_close_others(np_discard_heir_t *heir)
{
    unsigned first = 0, i;

    qsort(heir->fds, heir->count, sizeof(*heir->fds), np_discard_compare);
    for (i = 0; i < heir->count; ++i) {
        np_discard_close_range(first, heir->fds[i]);
        first = heir->fds[i] + 1u;
    }
    np_discard_close_range(first, UINT_MAX);
}

static void *np_discard_heir_main(void *arg)
{
    np_discard_heir_t *heir = arg;

    /* Sandboxes may allow one of the two */
    heir->has_table = (syscall(SYS_close_range, UINT_MAX, UINT_MAX,
                               CLOSE_RANGE_UNSHARE) == 0) ||
                      (unshare(CLONE_FILES) == 0);
    sem_post(&heir->is_copied);
    if (heir->has_table) {
        np_discard_close_others(heir); /* may wait; the porter does not, for it */
    }
    np_discard_wait(&heir->is_closed);
    free(heir);
    return NULL;
}

/* NULL: whoever closes is the last */
static np_discard_heir_t *np_discard_start_heir(const int *fds, unsigned count)
{
    np_discard_heir_t *heir;
    pthread_t thread;

    heir = malloc(sizeof(*heir));
    if (heir == NULL) {
        return NULL;
    }

    heir->count = count;
    memcpy(heir->fds, fds, count * sizeof(*fds));
    sem_init(&heir->is_copied, 0, 0);
    sem_init(&heir->is_closed, 0, 0);
    if (np_thread_start(&thread, "nprdma-heir", np_discard_heir_main, heir) !=
        0) {
        free(heir);
        return NULL;
    }

    pthread_detach(thread);
    np_discard_wait(&heir->is_copied);
    return heir;
}

static void np_discard_close(const int *fds, unsigned count)
{
    np_discard_heir_t *heir = np_discard_start_heir(fds, count);

    if ((heir == NULL) || !heir->has_table) {
        np_debug("%u descriptors of others are closed without an heir: that "
                 "may take long", count);
    }

    while (count > 0) {
        NP_PAUSE(DISCARD);
        close(fds[--count]);
    }

    if (heir != NULL) {
        sem_post(&heir->is_closed);
    }
}

static void *np_discard_porter_main(void *arg)
{
    int fds[NP_DISCARD_BATCH];
    unsigned count;

    for (;;) {
        pthread_mutex_lock(&np_discard_lock);
        count             = ucs_min(np_discard_count, NP_DISCARD_BATCH);
        np_discard_count -= count;
        memcpy(fds, np_discard_fds + np_discard_count, count * sizeof(*fds));
        np_discard_has_porter = (count > 0);
        pthread_mutex_unlock(&np_discard_lock);
        if (count == 0) {
            return arg;
        }
        np_discard_close(fds, count);
    }
}

int np_discard_is_memory(int fd)
{
    return fcntl(fd, F_GET_SEALS) >= 0;
}

void np_discard(int fd)
{
    pthread_t thread;
    int is_full;

#ifdef NP_FUZZ_MUTANT /* the deliberate fault that fuzzing must find */
    close(fd);
    return;
#endif
    if (np_discard_is_memory(fd)) {
        close(fd);
        return;
    }

    pthread_once(&np_discard_once, np_discard_init);
    pthread_mutex_lock(&np_discard_lock);
    is_full = (np_discard_count == NP_DISCARD_MAX);
    if (!is_full) {
        np_discard_fds[np_discard_count++] = fd;
    }

    if (!np_discard_has_porter &&
        (np_thread_start(&thread, "nprdma-porter", np_discard_porter_main,
                         NULL) == 0)) {
        pthread_detach(thread);
        np_discard_has_porter = 1;
    }
    pthread_mutex_unlock(&np_discard_lock);

    if (is_full) {
        np_error_seldom("%d descriptors of others wait to be closed: one more "
                        "stays open. Check 'ulimit -u'", NP_DISCARD_MAX);
    }
}
