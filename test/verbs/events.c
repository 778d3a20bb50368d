/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens to memory while others use it. */

#define _GNU_SOURCE
#include "events.h"

#include "sides.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul

#ifndef MADV_PAGEOUT
#  define MADV_PAGEOUT 21
#endif

const char *const event_names[EVENTS] = {
    "nothing", "swap-out", "MADV_DONTNEED", "fork and copy-on-write",
    "mremap there and back", "munmap and mmap", "migration",
    "mprotect and back", "huge pages"
};

static struct {
    uint8_t     *area;
    size_t      len;
    _Atomic int is_on;
    pthread_t   thread;
} storm;


/* A child has the same pages while we write to each of ours */
static void fork_and_write(uint8_t *at, size_t len)
{
    uint8_t *byte;
    int fds[2];
    char c;
    pid_t pid;

    if (pipe(fds) != 0) {
        return;
    }

    pid = fork();
    if (pid == 0) {
        close(fds[1]);
        _exit(read(fds[0], &c, 1) != 0);
    }

    for (byte = at; byte < (at + len); byte += PAGE) {
        /* written, and not undoing what others write there just now */
        __atomic_fetch_or(byte, 0, __ATOMIC_SEQ_CST);
    }
    close(fds[0]);
    close(fds[1]);
    waitpid(pid, NULL, 0);
}

static void migrate(uint8_t *at, size_t len)
{
    void *page;
    int node = (at[0] & 1), status;

    for (; len > 0; at += PAGE, len -= PAGE, node ^= 1) {
        page = at;
        (void)syscall(SYS_move_pages, 0, 1ul, &page, &node, &status, 2);
    }
}

static void *map_at(void *where, size_t len)
{
    return mmap(where, len, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS |
                ((where == NULL) ? 0 : MAP_FIXED), -1, 0);
}

/* Not mremap(): libucm of UCX 1.13 puts its own in place, which loses the last
 * argument */
static void remap(void *from, size_t len, void *to)
{
    if (syscall(SYS_mremap, from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED,
                to) < 0) {
        perror("# mremap");
    }
}

void happen(event_t event, uint8_t *at, size_t len)
{
    void *away;

    switch (event) {
    case SWAP:
        if (!page_out(at, len)) {
            printf("# a page does not go to swap\n");
        }
        break;
    case DROP:
        madvise(at, len, MADV_DONTNEED);
        break;
    case FORK:
        fork_and_write(at, len);
        break;
    case MOVE:
        away = map_at(NULL, len);
        remap(at, len, away);
        map_at(at, len);
        remap(away, len, at);
        break;
    case REPLACE:
        munmap(at, len);
        map_at(at, len);
        break;
    case MIGRATE:
        migrate(at, len);
        break;
    case PROTECT:
        mprotect(at, len, PROT_READ);
        mprotect(at, len, PROT_READ | PROT_WRITE);
        break;
    case HUGE:
        madvise(at, len, MADV_HUGEPAGE);
        madvise(at, len, 25 /* MADV_COLLAPSE */);
        break;
    default:
        break;
    }
}

/* Other rights for a moment, under which it can still be read and written: who
 * writes to it just then must neither die nor be refused */
static void protect_and_back(uint8_t *at, size_t len)
{
    mprotect(at, len, PROT_READ | PROT_WRITE | PROT_EXEC);
    mprotect(at, len, PROT_READ | PROT_WRITE);
}

/* Nothing that loses data */
static void *blow(void *arg)
{
    unsigned i = 0;
    uint8_t *at;

    while (storm.is_on) {
        at = storm.area + ((i * 37 % (storm.len / PAGE / 8)) * 8 * PAGE);
        switch (i++ % 8) {
        case 0:
            protect_and_back(at, 8 * PAGE);
            break;
        case 4:
            happen(FORK, at, 8 * PAGE);
            break;
        default:
            madvise(at, 8 * PAGE, MADV_PAGEOUT);
            break;
        }
        usleep(1000); /* or nobody else would do anything */
    }
    return NULL;
}

int storm_begin(void *area, size_t len)
{
    storm.area  = area;
    storm.len   = len;
    storm.is_on = 1;
    return pthread_create(&storm.thread, NULL, blow, NULL) == 0;
}

void storm_end(void)
{
    storm.is_on = 0;
    pthread_join(storm.thread, NULL);
}
