/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who waits for whom, and for how long: prefetches of a process that was
 * killed, fault-in beside a neighbour, regions over the same memory.
 */

#include "kmod_abi.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define AHEAD_LENGTH   (128 * KMOD_SLICE)
#define AHEAD_PAGES    (AHEAD_LENGTH / KMOD_PAGE)
#define AHEAD_PER_TASK (KMOD_SLICE / KMOD_PAGE)
#define AHEAD_MS       60000u
#define BESIDE_PAGES   512ul
#define BESIDE_THREADS 3u
#define BESIDE_FREED   3000u
#define BESIDE_ROUNDS  2000u
#define OVERLAPS       16u

/* Sends its file and its table, and asks for all of its memory ahead */
static void ahead_child(int sock)
{
    char *memory = kmod_map(AHEAD_LENGTH);
    int dev      = kmod_open();
    int region   = kmod_create(dev, memory, AHEAD_LENGTH, 0);
    int fds[2]   = {dev, kmod_export(dev, region, NPRDMA_EXPORT_TABLE)};

    madvise(memory, AHEAD_LENGTH, MADV_NOHUGEPAGE);
    if ((region <= 0) || (fds[1] < 0) || !kmod_fds_send(sock, fds, 2) ||
        (kmod_range(dev, NPRDMA_IOC_PREFETCH, region, memory, AHEAD_LENGTH,
                    0) != 0)) {
        _exit(1);
    }
    pause();
}

/* Pages that were ever mapped, and those that are */
static unsigned long ahead_count(const volatile uint32_t *table,
                                 uint32_t bits)
{
    unsigned long page, count = 0;

    for (page = 0; page < AHEAD_PAGES; ++page) {
        count += (table[page] & bits) != 0;
    }
    return count;
}

/* The worker has a reference to the address space: when it ends, the pages
 * go */
static int ahead_ends(const volatile uint32_t *table)
{
    unsigned waited;

    for (waited = 0; waited < AHEAD_MS; waited += 10) {
        if ((table[0] != 0) &&
            (ahead_count(table, NPRDMA_ENTRY_READ) == 0)) {
            return 1;
        }
        usleep(10000);
    }
    return 0;
}

/* Its file is open here, so that nothing but its death ends what it asked
 * for */
static void test_ahead(void)
{
    unsigned long before, after;
    volatile uint32_t *table;
    int socks[2], fds[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) != 0) {
        kmod_bail("socketpair");
    }
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        ahead_child(socks[1]);
    }
    if (!kmod_fds_receive(socks[0], fds, 2)) {
        kmod_bail("receiving a table");
    }
    table = mmap(NULL, AHEAD_PAGES * 4, PROT_READ, MAP_SHARED, fds[1], 0);
    if (table == MAP_FAILED) {
        kmod_bail("mmap of a table");
    }
    while (table[1000] == 0) {
        if (waitpid(pid, NULL, WNOHANG) != 0) {
            kmod_bail("the child");
        }
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    before = ahead_count(table, ~0u);
    TAP_CHECK(ahead_ends(table), "the memory of who was killed goes");
    after = ahead_count(table, ~0u);
    TAP_CHECK((before < AHEAD_PAGES) && (after - before < AHEAD_PER_TASK),
              "nothing is prefetched for the dead (%lu pages, of %lu)",
              after - before, AHEAD_PAGES - before);
    munmap((void*)table, AHEAD_PAGES * 4);
    close(fds[0]);
    close(fds[1]);
    close(socks[0]);
    close(socks[1]);
}

typedef struct beside {
    char             *memory;
    _Atomic int      stop;
    _Atomic unsigned next;  /* thread's page */
    _Atomic unsigned freed;
} beside_t;

static void *beside_run(void *argument)
{
    beside_t *beside = argument;
    char *page       = beside->memory + beside->next++ * KMOD_PAGE;

    while (!beside->stop) {
        madvise(page, KMOD_PAGE, MADV_DONTNEED);
        *(volatile char*)page = 1;
        ++beside->freed;
    }
    return NULL;
}

/* Neighbours in the same slice take and give pages of their own all the time */
static void test_beside(int dev, char *memory)
{
    char *mine        = memory + 1024 * KMOD_PAGE;
    beside_t beside   = {.memory = memory};
    unsigned i, j, wrong = 0;
    unsigned long long again;
    pthread_t threads[BESIDE_THREADS];
    int region = kmod_create(dev, memory, KMOD_SLICE, 0);

    memset(mine, 1, BESIDE_PAGES * KMOD_PAGE);
    for (i = 0; i < BESIDE_THREADS; ++i) {
        if (pthread_create(&threads[i], NULL, beside_run, &beside) != 0) {
            kmod_bail("a neighbour");
        }
    }
    again = kmod_counters(dev).retries;
    for (i = 0; (i < BESIDE_ROUNDS) && (beside.freed < BESIDE_FREED); ++i) {
        kmod_range(dev, NPRDMA_IOC_INVALIDATE, region, mine,
                   BESIDE_PAGES * KMOD_PAGE, 0);
        wrong += kmod_fault(dev, region, mine, BESIDE_PAGES * KMOD_PAGE,
                            NPRDMA_FAULT_WRITE, NULL) != 0;
    }
    again       = kmod_counters(dev).retries - again;
    beside.stop = 1;
    for (j = 0; j < BESIDE_THREADS; ++j) {
        pthread_join(threads[j], NULL);
    }
    printf("# %u pages freed beside %u fault-ins: %llu batches begun again\n",
           beside.freed, i, again);
    /* The kernel's own look, before it begins, may still see a few */
    TAP_CHECK((wrong == 0) && (again <= i / 16),
              "who frees another page does not stop a fault-in");
    kmod_destroy(dev, region);
}

static void test_overlaps(int dev, char *memory)
{
    int regions[OVERLAPS + 1], last;
    unsigned i, wrong = 0;

    for (i = 0; i <= OVERLAPS; ++i) {
        regions[i] = kmod_create(dev, memory, KMOD_SLICE, 0);
        if (i < OVERLAPS) {
            wrong += kmod_fault(dev, regions[i], memory, KMOD_PAGE, 0, NULL) !=
                     0;
        }
    }
    last = regions[OVERLAPS];
    TAP_CHECK((wrong == 0) && (kmod_fault(dev, last, memory, KMOD_PAGE, 0,
                                          NULL) == -EDQUOT),
              "%u regions may map the same memory, and no more", OVERLAPS);
    kmod_destroy(dev, regions[0]);
    TAP_CHECK(kmod_fault(dev, last, memory, KMOD_PAGE, 0, NULL) == 0,
              "until one of them ends");
    for (i = 1; i <= OVERLAPS; ++i) {
        kmod_destroy(dev, regions[i]);
    }
}

void abi_life(int dev, char *memory)
{
    test_ahead();
    test_beside(dev, memory);
    test_overlaps(dev, memory);
}
