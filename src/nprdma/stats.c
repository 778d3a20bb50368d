/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Counters of a process, in a page that others can read.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "stats.h"

#include "segment.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NP_STATS_COUNT_FIELD(_name, _text) + 1
#define NP_STATS_NUM_FIELDS (0 NP_STATS_LIST(NP_STATS_COUNT_FIELD))

/* Where counters are if there can be no shared page */
static np_stats_page_t np_stats_local;

static np_stats_page_t *np_stats_page; /* NULL: not made yet */
static int             np_stats_fd = -1;
static struct stat     np_stats_file;  /* what the descriptor was opened for */
static int             np_stats_has_fork_handler;

/* Guards the above, and which block is used */
static pthread_mutex_t np_stats_lock = PTHREAD_MUTEX_INITIALIZER;


static size_t np_stats_size(void)
{
    return np_page_align(sizeof(np_stats_page_t));
}

/* Is the descriptor still ours? A program may close what it does not know. */
static int np_stats_fd_is_valid(void)
{
    struct stat st;

    return (np_stats_fd >= 0) && (fstat(np_stats_fd, &st) == 0) &&
           (st.st_dev == np_stats_file.st_dev) &&
           (st.st_ino == np_stats_file.st_ino);
}

/* In a forked child. The page is its parent's: whoever of the parent's writers
 * still counts here finds another one at its address, and nobody finds the
 * parent's among the child's descriptors. Async-signal-safe: not by mmap() of
 * libc, where UCX may have put a hook that takes a lock which another thread of
 * the parent held. */
static void np_stats_after_fork(void)
{
    pthread_mutex_init(&np_stats_lock, NULL);
    if (np_stats_page == &np_stats_local) {
        memset(&np_stats_local, 0, sizeof(np_stats_local));
    } else if (np_stats_page != NULL) {
        syscall(SYS_mmap, np_stats_page, np_stats_size(),
                PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0l);
        if (np_stats_fd_is_valid()) {
            close(np_stats_fd);
        }
    }
    np_stats_page = NULL;
    np_stats_fd   = -1;
}

/* A child that counts into its parent's page is worse than no shared page */
static int np_stats_handle_fork(void)
{
    if (!np_stats_has_fork_handler) {
        np_stats_has_fork_handler =
                (pthread_atfork(NULL, NULL, np_stats_after_fork) == 0);
    }
    return np_stats_has_fork_handler;
}

/* Lock held */
static void np_stats_open(void)
{
    np_stats_page_t *page = &np_stats_local;
    void *addr            = NULL;
    int fd;

    if (np_stats_handle_fork() &&
        (np_segment_create(NP_STATS_NAME, np_stats_size(), &addr, &fd) ==
         UCS_OK)) {
        fstat(fd, &np_stats_file);
        np_stats_fd = fd;
        page        = addr;
    }

    page->version     = NP_STATS_VERSION;
    page->num_fields  = NP_STATS_NUM_FIELDS;
    page->writer_size = sizeof(np_stats_t);
    np_stats_page     = page;
    /* a reader that finds the magic finds the rest */
    atomic_store_explicit((_Atomic uint32_t*)&page->magic, NP_STATS_MAGIC,
                          memory_order_release);
}

np_stats_t *np_stats_get(void)
{
    np_stats_t *stats;

    pthread_mutex_lock(&np_stats_lock);
    if (np_stats_page == NULL) {
        np_stats_open();
    }

    stats = np_stats_page->writers;
    while ((stats < &np_stats_page->writers[NP_STATS_WRITERS - 1]) &&
           (atomic_load_explicit(&stats->is_used, memory_order_relaxed) > 0)) {
        ++stats;
    }
    atomic_fetch_add_explicit(&stats->is_used, 1, memory_order_relaxed);
    pthread_mutex_unlock(&np_stats_lock);
    return stats;
}

void np_stats_put(np_stats_t *stats)
{
    pthread_mutex_lock(&np_stats_lock);
    /* 0: of a block that a forked child has inherited */
    if (atomic_load_explicit(&stats->is_used, memory_order_relaxed) > 0) {
        atomic_fetch_sub_explicit(&stats->is_used, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&np_stats_lock);
}

static void np_stats_add(np_stats_t *sum, const np_stats_t *stats)
{
#define NP_STATS_ADD_FIELD(_name, _text) \
    NP_STATS_ADD(sum, _name, \
                 atomic_load_explicit(&stats->_name, memory_order_relaxed));
    NP_STATS_LIST(NP_STATS_ADD_FIELD)
#undef NP_STATS_ADD_FIELD
}

void np_stats_sum(np_stats_t *sum)
{
    unsigned i;

    memset(sum, 0, sizeof(*sum));
    pthread_mutex_lock(&np_stats_lock);
    for (i = 0; (np_stats_page != NULL) && (i < NP_STATS_WRITERS); ++i) {
        np_stats_add(sum, &np_stats_page->writers[i]);
    }
    pthread_mutex_unlock(&np_stats_lock);
}
