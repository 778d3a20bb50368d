/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of N ranks on a host: with no connections, connected, after an
 * exchange with one neighbour, and after one with everybody. */
#include "ranks.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMORY_WINDOW      8
#define MEMORY_MAX_SIZE    1024

enum {
    MEMORY_PSS,
    MEMORY_PSS_SHMEM,
    MEMORY_PTE,
    MEMORY_SOCKETS,
    MEMORY_FDS,
    MEMORY_LAST
};

typedef struct memory_options {
    int messages;
} memory_options_t;

/* The number after "NAME:" in a file of /proc, 0 if it is not there */
static uint64_t memory_read(const char *path, const char *name)
{
    size_t len     = strlen(name);
    uint64_t value = 0;
    char line[256];
    FILE *file;

    file = fopen(path, "r");
    if (file == NULL) {
        bench_die("cannot open %s: %m", path);
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if ((strncmp(line, name, len) == 0) && (line[len] == ':')) {
            value = strtoull(line + len + 1, NULL, 10);
            break;
        }
    }
    fclose(file);
    return value;
}

static void memory_count_fds(uint64_t *fds, uint64_t *sockets)
{
    struct dirent *entry;
    char target[64];
    ssize_t len;
    DIR *dir;

    *fds = *sockets = 0;
    dir  = opendir("/proc/self/fd");
    if (dir == NULL) {
        bench_die("cannot open /proc/self/fd: %m");
    }
    while ((entry = readdir(dir)) != NULL) {
        len = readlinkat(dirfd(dir), entry->d_name, target,
                         sizeof(target) - 1);
        if (len > 0) {
            target[len] = '\0';
            ++*fds;
            *sockets += strncmp(target, "socket:", 7) == 0;
        }
    }
    closedir(dir);
}

/* Everybody looks at himself at the same time; rank 0 prints the sums */
static void memory_report(bench_rank_t *rank, const char *stage)
{
    uint64_t sums[MEMORY_LAST] = {0};
    uint64_t *mine             = bench_slot(rank, rank->rank, 0);
    int i, j;

    bench_barrier(rank);
    mine[MEMORY_PSS]       = memory_read("/proc/self/smaps_rollup", "Pss");
    mine[MEMORY_PSS_SHMEM] = memory_read("/proc/self/smaps_rollup",
                                         "Pss_Shmem");
    mine[MEMORY_PTE]       = memory_read("/proc/self/status", "VmPTE");
    memory_count_fds(&mine[MEMORY_FDS], &mine[MEMORY_SOCKETS]);
    bench_barrier(rank);

    if (rank->rank == 0) {
        for (i = 0; i < rank->size; ++i) {
            for (j = 0; j < MEMORY_LAST; ++j) {
                sums[j] += *bench_slot(rank, i, j);
            }
        }
        printf("%d %s %lu %lu %lu %lu %lu\n", rank->size, stage,
               sums[MEMORY_PSS], sums[MEMORY_PSS_SHMEM], sums[MEMORY_PTE],
               sums[MEMORY_SOCKETS], sums[MEMORY_FDS]);
        fflush(stdout);
    }
    bench_barrier(rank);
}

/* To one peer, and from the one that sends to us: 8 bytes and 1 KiB in turns,
 * often enough for rings to have been used all round */
static void memory_exchange(bench_rank_t *rank, int to, int from, int messages)
{
    static char tx[MEMORY_MAX_SIZE], rx[MEMORY_WINDOW][MEMORY_MAX_SIZE];
    void *requests[2 * MEMORY_WINDOW];
    size_t size;
    int i, j;

    for (i = 0; i < messages; i += MEMORY_WINDOW) {
        size = ((i / MEMORY_WINDOW) % 2) ? MEMORY_MAX_SIZE : 8;
        for (j = 0; j < MEMORY_WINDOW; ++j) {
            requests[j] = bench_recv(rank, from, rx[j], size);
        }
        for (j = 0; j < MEMORY_WINDOW; ++j) {
            requests[MEMORY_WINDOW + j] = bench_send(rank, to, tx, size);
        }
        for (j = 0; j < (2 * MEMORY_WINDOW); ++j) {
            bench_wait(rank, requests[j]);
        }
    }
}

static void memory_shift(bench_rank_t *rank, int shift, int messages)
{
    int to   = (rank->rank + shift) % rank->size;
    int from = (rank->rank + rank->size - shift) % rank->size;

    memory_exchange(rank, to, from, messages);
    bench_barrier(rank);
}

static void memory_main(bench_rank_t *rank, void *arg)
{
    const memory_options_t *opts = arg;
    int i;

    memory_report(rank, "alone");
    for (i = 0; i < rank->size; ++i) {
        if (i != rank->rank) {
            bench_connect(rank, i);
        }
    }
    memory_report(rank, "connected");
    memory_shift(rank, 1, opts->messages);
    memory_report(rank, "neighbour");
    for (i = 1; i < rank->size; ++i) {
        memory_shift(rank, i, opts->messages);
    }
    memory_report(rank, "all");
}

int main(int argc, char **argv)
{
    memory_options_t opts = {.messages = 2048};
    int ranks;

    if ((argc < 2) || (argc > 3)) {
        fprintf(stderr, "Usage: memory RANKS [MESSAGES]\n"
                "Prints for all ranks together: ranks, stage, kB of Pss, kB\n"
                "of it shared memory, kB of page tables, sockets, files.\n");
        return 2;
    }

    ranks = atoi(argv[1]);
    if ((ranks < 2) || (ranks > BENCH_MAX_RANKS)) {
        bench_die("%s ranks: a number from 2 to %d is wanted", argv[1],
                  BENCH_MAX_RANKS);
    }
    if (argc == 3) {
        opts.messages = atoi(argv[2]);
        if (opts.messages < 1) {
            bench_die("%s messages: a number from 1 up is wanted", argv[2]);
        }
    }

    return bench_ranks_run(ranks, NULL, memory_main, &opts);
}
