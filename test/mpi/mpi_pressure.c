/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ranks whose buffers exceed their memory: what is sent has gone to swap
 * when it is needed, and so has what is written to. Arguments: MiB of each of a
 * rank's three areas for transfers, MiB of the buffer that it works on between
 * transfers, MiB that must be in swap when transfers begin, and rounds. After
 * them nothing may be pinned, and all of the areas must be able to leave. A
 * fifth argument: pages stay those that they were, as registered memory must.
 *
 * What transfers bring back from swap must fit: a small memory cgroup whose
 * pages all came back from there is killed by some kernels (Linux 6.18),
 * whoever brought them back.
 */
#define _GNU_SOURCE
#include "mpi_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MAX_PIECES 4096
#define PAGE       4096ul

static uint8_t *areas[3];
static uint8_t *work;
static size_t  work_size;
static size_t  area_size;
static size_t  swap_wanted;
static int     is_kept;
static size_t  pos[MAX_PIECES];
static size_t  len[MAX_PIECES];
static int     num_pieces;

/* From the smallest to 16 MiB, eager and rendezvous. Small ones have a page for
 * themselves, so that each may find one that is not there. */
static void pieces_init(void)
{
    static const size_t sizes[] = {
        16ul << 20, 1ul << 20, 300000, 65536, 65536, 20000, 8193, 8192,
        8000,       4096,      1000,   100,   8,     7,     1
    };
    const int           count   = sizeof(sizes) / sizeof(sizes[0]);
    size_t              at      = 0, size;
    int                 i;

    for (i = 0; num_pieces < MAX_PIECES; ++i) {
        size = sizes[i % count];
        if ((at + size) > area_size) {
            break;
        }
        pos[num_pieces]   = at + ((i & 1) ? 5 : 0);
        len[num_pieces++] = size - ((size > 16) ? 5 : 0);
        at += (size + (2 * PAGE) - 1) & ~(PAGE - 1);
    }
}

static uint8_t *map_area(size_t size)
{
    void *ptr = mmap(NULL, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (ptr == MAP_FAILED) {
        mc_fail("mmap of %zu bytes: %s", size, strerror(errno));
    }
    madvise(ptr, size, MADV_NOHUGEPAGE);
    return ptr;
}

/* Bytes of this process, as its status says */
static long status_bytes(const char *name)
{
    FILE   *file  = fopen("/proc/self/status", "r");
    size_t length = strlen(name);
    long   bytes  = -1;
    char   line[256];

    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        if ((strncmp(line, name, length) == 0) && (line[length] == ':')) {
            bytes = atol(line + length + 1) << 10;
        }
    }
    if (bytes < 0) {
        mc_fail("/proc/self/status has no %s", name);
    }
    fclose(file);
    return bytes;
}

/* Bytes of the whole job in swap */
static long job_in_swap(void)
{
    long mine = status_bytes("VmSwap"), all;

    MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static long major_faults(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_majflt;
}

static void renew(uint8_t *area, size_t size)
{
    if (!is_kept) {
        madvise(area, size, MADV_DONTNEED);
    }
}

/* Both into pages that are new */
static void fill(uint8_t *area, int subject)
{
    int i;

    renew(area, area_size);
    for (i = 0; i < num_pieces; ++i) {
        mc_fill(area + pos[i], len[i], mc_seed(mc_rank, subject, i));
    }
}

static void blank(uint8_t *area, size_t size, int value)
{
    renew(area, size);
    memset(area, value, size);
}

static void check(const char *what, const uint8_t *area, int subject)
{
    int i;

    for (i = 0; i < num_pieces; ++i) {
        mc_check(what, area + pos[i], len[i], mc_seed(mc_left, subject, i));
    }
}

/* One area is the source; what comes last pushes out what came first */
static void push_out(int source, int subject)
{
    int i;

    for (i = 0; i < 3; ++i) {
        if (i == source) {
            fill(areas[i], subject);
        } else {
            blank(areas[i], area_size, 0x11 * (i + 1));
        }
    }
    blank(work, work_size, 0x77);
}

static long begin(const char *what)
{
    long bytes;

    MPI_Barrier(MPI_COMM_WORLD); /* all have written all of theirs */
    bytes = job_in_swap();
    MC_REQUIRE((size_t)bytes >= swap_wanted,
               "%s: %ld MiB of the job are in swap, at least %zu wanted", what,
               bytes >> 20, swap_wanted >> 20);
    return major_faults();
}

static void end(const char *what, long before)
{
    long mine = major_faults() - before, all;

    MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MC_REQUIRE((swap_wanted == 0) || (all > 0), "%s: no page came from swap",
               what);
    if (mc_rank == 0) {
        printf("# %s: %ld major faults\n", what, all);
    }
}

static void test_messages(void)
{
    long before;
    int  i;

    push_out(0, 1);
    before = begin("messages");
    for (i = 0; i < num_pieces; ++i) {
        MPI_Sendrecv(areas[0] + pos[i], len[i], MPI_BYTE, mc_right, i,
                     areas[1] + pos[i], len[i], MPI_BYTE, mc_left, i,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    end("messages", before);
    check("message", areas[1], 1);
}

static void test_put(MPI_Win win)
{
    long before;
    int  i;

    push_out(0, 2);
    before = begin("put");
    MPI_Win_lock_all(0, win);
    for (i = 0; i < num_pieces; ++i) {
        MPI_Put(areas[0] + pos[i], len[i], MPI_BYTE, mc_right, pos[i], len[i],
                MPI_BYTE, win);
        if (i % 3 == 0) {
            MPI_Win_flush(mc_right, win);
        }
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    end("put", before);
    check("put", areas[2], 2);
}

static void test_get(MPI_Win win)
{
    long before;
    int  i;

    push_out(2, 3);
    before = begin("get");
    MPI_Win_lock_all(0, win);
    for (i = 0; i < num_pieces; ++i) {
        MPI_Get(areas[1] + pos[i], len[i], MPI_BYTE, mc_left, pos[i], len[i],
                MPI_BYTE, win);
    }
    MPI_Win_unlock_all(win);
    end("get", before);
    check("got", areas[1], 3);
    MPI_Barrier(MPI_COMM_WORLD);
}

static size_t pages_present(const uint8_t *area)
{
    static const uint64_t bit   = 1ull << 63;
    size_t                count = area_size / PAGE, present = 0, i;
    uint64_t              entry;
    FILE                  *file = fopen("/proc/self/pagemap", "r");

    if ((file == NULL) ||
        (fseek(file, ((uintptr_t)area / PAGE) * sizeof(entry), SEEK_SET))) {
        mc_fail("/proc/self/pagemap: %s", strerror(errno));
    }
    for (i = 0; i < count; ++i) {
        if (fread(&entry, sizeof(entry), 1, file) != 1) {
            mc_fail("/proc/self/pagemap ends at page %zu of %zu", i, count);
        }
        present += (entry & bit) != 0;
    }
    fclose(file);
    return present;
}

/* After all transfers every page may go: nobody pins one. Batches of other
 * CPUs may hold some for a moment. */
static void test_rest(long pinned_before)
{
    long   pinned = -1;
    size_t left   = 0;
    int    i, tries, flag;

    MPI_Barrier(MPI_COMM_WORLD);
    for (tries = 0; (pinned != pinned_before) && (tries < 10000); ++tries) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag,
                   MPI_STATUS_IGNORE); /* what is given back later */
        pinned = status_bytes("VmPin");
    }
    MC_REQUIRE(pinned == pinned_before,
               "%ld KiB are pinned at rest, %ld before any transfer",
               pinned >> 10, pinned_before >> 10);
    for (i = 0; i < 3; ++i) {
        for (tries = 0; tries < 100; ++tries) {
            memset(work, tries, work_size);
            madvise(areas[i], area_size, MADV_PAGEOUT);
            left = pages_present(areas[i]);
            if (left == 0) {
                break;
            }
        }
        MC_REQUIRE(left == 0, "%zu pages of area %d cannot be moved out", left,
                   i);
    }
    if (mc_rank == 0) {
        printf("# at rest: %ld KiB pinned, no page of the areas stayed\n",
               pinned >> 10);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Win win;
    long    pinned;
    int     i, rounds;

    mc_init(&argc, &argv, MPI_THREAD_SINGLE);
    if ((argc != 5) && (argc != 6)) {
        mc_fail("MiB of area, buffer and swap, and a number of rounds wanted");
    }
    area_size   = strtoul(argv[1], NULL, 10) << 20;
    work_size   = strtoul(argv[2], NULL, 10) << 20;
    swap_wanted = strtoul(argv[3], NULL, 10) << 20;
    rounds      = atoi(argv[4]);
    is_kept     = argc == 6;
    pieces_init();
    for (i = 0; i < 3; ++i) {
        areas[i] = map_area(area_size);
    }
    work = map_area(work_size);
    MPI_Win_create(areas[2], area_size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Barrier(MPI_COMM_WORLD);
    pinned = status_bytes("VmPin");
    for (i = 0; i < rounds; ++i) { /* later ones find pages that peers know */
        test_messages();
        test_put(win);
        test_get(win);
    }
    if (swap_wanted != 0) {
        test_rest(pinned);
        check("got, then moved out", areas[1], 3);
    }
    MPI_Win_free(&win);
    return mc_finish();
}
