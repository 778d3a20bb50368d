/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Closing what other processes have sent.
 *
 * A thread, the porter, closes all that waits, and ends. It must not be the one
 * that gives up the last reference to a file, for it would wait as long as the
 * file says. So it starts another one, the heir, which makes a table of
 * descriptors of its own, a copy, and ends when the porter has closed those of
 * the process. What else is in the copy it closes at once: a pipe that the
 * program closes meanwhile would have no end. A socket does not linger when it
 * is closed by the end of a task; and no thread waits for an heir, whatever
 * else it hangs in.
 *
 * An heir hangs in a file of the program's own whose file system has stopped,
 * and keeps what it has not closed by then. So it closes by kind:
 *
 *  1. Pipes, and sockets that do not linger. The last close of a pipe's end
 *     waits for its lock, which a splice() into the other end may have: so
 *     would the program's.
 *  2. Unix sockets. If the program has closed one meanwhile, the heir may have
 *     the last reference to it, and to a lingering socket in flight within it.
 *     That one lingers for as long as any process has its far end, or the
 *     listener there: the heir's copies of those must be gone.
 *  3. Sockets that linger, for the same reason.
 *  4. Files, and all else.
 *
 * What comes after the place where it hangs is closed when the file system is
 * gone. Each batch that comes meanwhile leaves a sleeping heir; nothing bounds
 * their number.
 *
 * It looks at all descriptors once, closes those of 1, and remembers those of 2
 * and 3. Where there is no memory for their numbers it looks again. With 20,000
 * descriptors that takes 15 ms (files) to 100 ms (Unix sockets); nothing waits
 * for that either.
 *
 * A file system in user space is asked at each close, the last one or not. A
 * porter that hangs there is left with that file, in a sleep that no signal
 * ends, until that file system answers or is gone; another porter takes the
 * rest. There are four.
 *
 *     porter                               heir
 *     takes descriptors, starts the heir
 *                                          copies the table
 *     closes them                          closes all others, by kind; waits
 *                                          ends: they are closed
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "discard.h"

#include "../../clock.h"
#include "../../np.h"
#include "../../pause.h"
#include "../../seldom.h"
#include "../../thread.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

/* More wait only where no thread can be started, or where all hang */
#define NP_DISCARD_MAX   1024

/* Porters, of which all but one hang in some file */
#define NP_DISCARD_PORTERS  4

/* ns; a porter that is at one thing for longer hangs */
#define NP_DISCARD_PATIENCE UINT64_C(10000000)

/* Numbers that are looked at one by one where there is no /proc, or no
 * close_range(). Those above are closed last, as a range, or not at all. */
#define NP_DISCARD_NUMBERS 65536

/* What an heir closes, in this order */
typedef enum np_discard_kind {
    NP_DISCARD_STREAM,
    NP_DISCARD_UNIX,
    NP_DISCARD_LINGER,
    NP_DISCARD_OTHER
} np_discard_kind_t;

/* Numbers of one kind, which are closed after others. Owner: the heir. */
typedef struct np_discard_list {
    int      *fds;
    unsigned count;
    unsigned size;
    int      is_short; /* for lack of memory: those that it has not must be
                          looked for */
} np_discard_list_t;

/* Owner: the porter; the heir's last use of it is the wait for is_closed. */
typedef struct np_discard_heir {
    sem_t    is_copied;
    sem_t    is_closed;
    int      has_table;
    unsigned count;
    int      fds[NP_DISCARD_BATCH];
} np_discard_heir_t;

/* Owner: its thread, which alone closes; others take from it under the lock. */
typedef struct np_discard_porter {
    int      is_here;
    uint64_t since;                 /* it is at what it does now; np_clock() */
    unsigned count;
    int      fds[NP_DISCARD_BATCH]; /* yet to be closed */
} np_discard_porter_t;

/* Guards what follows */
static pthread_mutex_t np_discard_lock = PTHREAD_MUTEX_INITIALIZER;

static int np_discard_fds[NP_DISCARD_MAX];
static unsigned np_discard_count;
static np_discard_porter_t np_discard_porters[NP_DISCARD_PORTERS];

static pthread_once_t np_discard_once = PTHREAD_ONCE_INIT;


static void np_discard_fork_begin(void)
{
    pthread_mutex_lock(&np_discard_lock); /* the child finds it whole */
}

static void np_discard_fork_end(void)
{
    pthread_mutex_unlock(&np_discard_lock);
}

/* The child has copies of all that waits, which may be the last by now: to
 * close them could take long. They stay open until it ends or calls exec(). */
static void np_discard_after_fork(void)
{
    np_discard_count = 0;
    memset(np_discard_porters, 0, sizeof(np_discard_porters));
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

/*
 * In an heir's own table: system calls only. To ThreadSanitizer, which knows
 * one table, the library's close() would race with the program's descriptors.
 */

/* All numbers from @a first up to @a end, without that */
static void np_discard_close_range(unsigned first, unsigned end)
{
    unsigned fd;

    if ((first >= end) ||
        (syscall(SYS_close_range, first, end - 1, 0) == 0)) {
        return;
    }

    for (fd = first; (fd < end) && (fd < NP_DISCARD_NUMBERS); ++fd) {
        syscall(SYS_close, fd);
    }
}

static int np_discard_get_option(int fd, int name, void *value, socklen_t size)
{
    return syscall(SYS_getsockopt, fd, SOL_SOCKET, name, value, &size) == 0;
}

/* Asks no file system, and waits for no lock: F_GETPIPE_SZ would, for a pipe
 * into which a process splices */
static np_discard_kind_t np_discard_get_kind(int fd)
{
    struct linger linger = {0};
    int domain           = AF_UNSPEC;
    struct statx stat;

    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                STATX_TYPE, &stat) != 0) {
        return NP_DISCARD_OTHER;
    }
    if (S_ISFIFO(stat.stx_mode)) {
        return NP_DISCARD_STREAM;
    }
    if (!S_ISSOCK(stat.stx_mode) ||
        !np_discard_get_option(fd, SO_DOMAIN, &domain, sizeof(domain))) {
        return NP_DISCARD_OTHER;
    }
    if (domain == AF_UNIX) {
        return NP_DISCARD_UNIX;
    }
    if (!np_discard_get_option(fd, SO_LINGER, &linger, sizeof(linger))) {
        return NP_DISCARD_OTHER;
    }
    return linger.l_onoff ? NP_DISCARD_LINGER : NP_DISCARD_STREAM;
}

static void np_discard_remember(np_discard_list_t *list, int fd)
{
    unsigned size;
    int *fds;

    if (list->count == list->size) {
        size = ucs_max(NP_DISCARD_BATCH, 2 * list->size);
        fds  = realloc(list->fds, size * sizeof(*fds));
        if (fds == NULL) {
            list->is_short = 1;
            return;
        }
        list->fds  = fds;
        list->size = size;
    }
    list->fds[list->count++] = fd;
}

/* Close it if it is of the kind @a now; @a lists: remember other kinds, or
 * NULL */
static void np_discard_look(const np_discard_heir_t *heir, int fd,
                            np_discard_kind_t now, np_discard_list_t *lists)
{
    const np_discard_kind_t kind = np_discard_get_kind(fd);

    if ((kind == NP_DISCARD_OTHER) ||
        (bsearch(&fd, heir->fds, heir->count, sizeof(fd),
                 np_discard_compare) != NULL)) {
        return;
    }

    if (kind == now) {
        syscall(SYS_close, fd);
    } else if (lists != NULL) {
        np_discard_remember(&lists[kind], fd);
    }
}

/* Look at all, by the directory @a dir of the table; -1: there is none */
static void np_discard_scan(const np_discard_heir_t *heir, int dir,
                            np_discard_kind_t now, np_discard_list_t *lists)
{
    union {
        struct dirent64 first;
        char            bytes[4096];
    } entries;
    const struct dirent64 *entry;
    long size, at;
    int fd;

    for (fd = 0; (dir < 0) && (fd < NP_DISCARD_NUMBERS); ++fd) {
        np_discard_look(heir, fd, now, lists);
    }
    if (dir < 0) {
        return;
    }

    syscall(SYS_lseek, dir, 0l, SEEK_SET);
    while ((size = syscall(SYS_getdents64, dir, &entries, sizeof(entries))) >
           0) {
        for (at = 0; at < size; at += entry->d_reclen) {
            entry = (const void*)(entries.bytes + at);
            if (isdigit((unsigned char)entry->d_name[0])) {
                np_discard_look(heir, atoi(entry->d_name), now, lists);
            }
        }
    }
}

static void np_discard_close_kinds(const np_discard_heir_t *heir)
{
    np_discard_list_t lists[NP_DISCARD_OTHER] = {0};
    np_discard_kind_t kind;
    unsigned i;
    int dir;

    dir = syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/fd",
                  O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    np_discard_scan(heir, dir, NP_DISCARD_STREAM, lists);
    for (kind = NP_DISCARD_UNIX; kind < NP_DISCARD_OTHER; ++kind) {
        for (i = 0; i < lists[kind].count; ++i) {
            syscall(SYS_close, lists[kind].fds[i]);
        }
        free(lists[kind].fds);
        if (lists[kind].is_short) {
            np_discard_scan(heir, dir, kind, NULL);
        }
    }
}

/* Close all that the heir does not have for the porter's sake: it would keep
 * alive what the program closes meanwhile */
static void np_discard_close_others(np_discard_heir_t *heir)
{
    unsigned first = 0, i;

    qsort(heir->fds, heir->count, sizeof(*heir->fds), np_discard_compare);
#ifndef NP_FUZZ_MUTANT_HEIR /* the deliberate fault that fuzzing must find */
    np_discard_close_kinds(heir);
#endif
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
        np_discard_close_others(heir); /* may wait; the porter does not, for
                                          it */
    }
    np_discard_wait(&heir->is_closed);
    free(heir);
    return NULL;
}

/* NULL: none, and the porter's close may be the last */
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

/* Takes what waits; returns how much */
static unsigned np_discard_take(np_discard_porter_t *porter, int *fds)
{
    unsigned count;

    pthread_mutex_lock(&np_discard_lock);
    count             = ucs_min(np_discard_count, NP_DISCARD_BATCH);
    np_discard_count -= count;
    memcpy(fds, np_discard_fds + np_discard_count, count * sizeof(*fds));
    memcpy(porter->fds, fds, count * sizeof(*fds));
    porter->count   = count;
    porter->since   = np_clock();
    porter->is_here = (count > 0);
    pthread_mutex_unlock(&np_discard_lock);
    return count;
}

/* What it closes next; -1: nothing is left, perhaps since another has it */
static int np_discard_next(np_discard_porter_t *porter)
{
    int fd;

    pthread_mutex_lock(&np_discard_lock);
    fd            = (porter->count > 0) ? porter->fds[--porter->count] : -1;
    porter->since = np_clock();
    pthread_mutex_unlock(&np_discard_lock);
    return fd;
}

static void *np_discard_porter_main(void *arg)
{
    np_discard_porter_t *porter = arg;
    int fds[NP_DISCARD_BATCH], fd;
    np_discard_heir_t *heir;
    unsigned count;

    while ((count = np_discard_take(porter, fds)) > 0) {
        heir = np_discard_start_heir(fds, count);
        if ((heir == NULL) || !heir->has_table) {
            np_debug("%u descriptors of others are closed without an heir: "
                     "that may take long", count);
        }

        while ((fd = np_discard_next(porter)) >= 0) {
            NP_PAUSE(DISCARD);
            close(fd);
        }

        if (heir != NULL) {
            sem_post(&heir->is_closed);
        }
    }
    return NULL;
}

/* The rest of a porter that hangs waits for another one */
static void np_discard_take_back(np_discard_porter_t *porter)
{
    while ((porter->count > 0) && (np_discard_count < NP_DISCARD_MAX)) {
        np_discard_fds[np_discard_count++] = porter->fds[--porter->count];
    }
}

/* Have a porter come for what waits, if one can; under the lock */
static void np_discard_call_porter(void)
{
    const uint64_t now         = np_clock();
    np_discard_porter_t *place = NULL, *porter;
    pthread_t thread;
    unsigned i;

    for (i = 0; i < NP_DISCARD_PORTERS; ++i) {
        porter = &np_discard_porters[i];
        if (!porter->is_here) {
            place = porter;
        } else if ((now - porter->since) < NP_DISCARD_PATIENCE) {
            return;
        }
    }

    if ((place == NULL) ||
        (np_thread_start(&thread, "nprdma-porter", np_discard_porter_main,
                         place) != 0)) {
        return;
    }

    pthread_detach(thread);
    place->is_here = 1;
    place->since   = now;
    for (i = 0; i < NP_DISCARD_PORTERS; ++i) {
        np_discard_take_back(&np_discard_porters[i]);
    }
}

int np_discard_is_memory(int fd)
{
    return fcntl(fd, F_GET_SEALS) >= 0;
}

void np_discard(int fd)
{
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

    np_discard_call_porter();
    pthread_mutex_unlock(&np_discard_lock);

    if (is_full) {
        np_error_seldom("%d descriptors of others wait to be closed: one more "
                        "stays open. Check 'ulimit -u', and whether a file "
                        "system in user space has stopped", NP_DISCARD_MAX);
    }
}
