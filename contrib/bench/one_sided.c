/* SPDX-License-Identifier: BSD-3-Clause */
/* Bandwidth of gets and puts through UCT, whose target sleeps, or polls. */
#include "paging.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ONE_SIDED_MAX_SIZES 32

/* Memory of each side: of every size, so that each has the same cache misses */
#define ONE_SIDED_AREA      (32ul << 20)

typedef struct one_sided_options {
    const char      *transport;
    size_t          sizes[ONE_SIDED_MAX_SIZES];
    size_t          budget;   /* bytes for each size and direction */
    int             num_sizes;
    int             cpus[2];
    int             is_pinned;
    int             is_polling; /* the target */
    paging_shared_t *shared;
} one_sided_options_t;

static const char *one_sided_names[] = {"get", "put"};

static void one_sided_measure(const one_sided_options_t *opts, paging_tl_t *tl,
                              paging_mem_t *mem, paging_dir_t dir, size_t size)
{
    const size_t count = (opts->budget + size - 1) / size;
    double start;

    paging_stream(tl, mem, dir, size, size, 1 + (count / 8));
    start = bench_seconds();
    paging_stream(tl, mem, dir, size, size, count);
    printf("%s %zu %.1f\n", one_sided_names[dir], size,
           size * count / (bench_seconds() - start) / 1e6);
}

/* All of the source has one value, and so has all that has come */
static void one_sided_check(const char *data, char value)
{
    size_t i;

    for (i = 0; i < ONE_SIDED_AREA; ++i) {
        if (data[i] != value) {
            bench_die("wrong data: byte %zu is %d, wanted %d", i, data[i],
                      value);
        }
    }
}

static void one_sided_initiate(const one_sided_options_t *opts, paging_tl_t *tl,
                               paging_mem_t *mem)
{
    int dir, i;

    /* What the target has is 1: all of it comes, and goes back as 2 */
    for (dir = PAGING_READ; dir <= PAGING_WRITE; ++dir) {
        memset(tl->local, (dir == PAGING_READ) ? 0 : 2, ONE_SIDED_AREA);
        paging_stream(tl, mem, dir, ONE_SIDED_AREA / 2, ONE_SIDED_AREA / 2, 2);
        if (dir == PAGING_READ) {
            one_sided_check(tl->local, 1);
        }
        for (i = 0; i < opts->num_sizes; ++i) {
            one_sided_measure(opts, tl, mem, dir, opts->sizes[i]);
        }
    }
}

static void one_sided_wait(const one_sided_options_t *opts, paging_tl_t *tl)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    while (!atomic_load(&opts->shared->is_over)) {
        if (opts->is_polling) {
            uct_worker_progress(tl->worker);
        } else {
            nanosleep(&pause, NULL);
        }
    }
}

static void one_sided_main(bench_rank_t *rank, void *arg)
{
    const one_sided_options_t *opts = arg;
    const int is_target             = rank->rank == PAGING_TARGET;
    char *target                    = NULL;
    paging_mem_t mem;
    paging_tl_t tl;
    void *local;

    local = bench_memory(ONE_SIDED_AREA);
    if (is_target) {
        target = bench_memory(ONE_SIDED_AREA);
        memset(target, 1, ONE_SIDED_AREA);
    }
    paging_tl_open(&tl, opts->transport, rank, opts->shared, local,
                   ONE_SIDED_AREA);
    paging_mem_open(&mem, &tl, rank, opts->shared, target, ONE_SIDED_AREA);
    bench_barrier(rank);
    if (is_target) {
        one_sided_wait(opts, &tl);
        one_sided_check(target, 2);
    } else {
        one_sided_initiate(opts, &tl, &mem);
        atomic_store(&opts->shared->is_over, 1);
    }
    paging_mem_close(&mem, &tl, rank);
    paging_tl_close(&tl, rank);
}

static void one_sided_usage(FILE *file)
{
    fprintf(file,
            "Usage: one_sided [-p] [-c CPU,CPU] [-b MIB] TRANSPORT SIZE...\n"
            "Prints for each size: get or put, bytes, MB/s of zero-copy\n"
            "transfers through UCT's TRANSPORT (nprdma, cma). The target "
            "sleeps.\n"
            "  -p          it polls\n"
            "  -c CPU,CPU  the initiator's and the target's CPU\n"
            "  -b MIB      MiB to move for each line (default 128)\n");
}

static void one_sided_sizes(one_sided_options_t *opts, char **argv)
{
    char *end;
    size_t size;

    for (; *argv != NULL; ++argv) {
        if (opts->num_sizes == ONE_SIDED_MAX_SIZES) {
            bench_die("more than %d sizes", ONE_SIDED_MAX_SIZES);
        }
        size = strtoul(*argv, &end, 10);
        if ((*end != '\0') || (size == 0) || (ONE_SIDED_AREA % size) ||
            (size > (ONE_SIDED_AREA / 2))) {
            bench_die("size '%s': a power of two up to %lu is wanted", *argv,
                      ONE_SIDED_AREA / 2);
        }
        opts->sizes[opts->num_sizes++] = size;
    }
}

int main(int argc, char **argv)
{
    one_sided_options_t opts = {.budget = 128ul << 20};
    int c;

    while ((c = getopt(argc, argv, "pc:b:h")) != -1) {
        switch (c) {
        case 'p':
            opts.is_polling = 1;
            break;
        case 'c':
            opts.is_pinned = 1;
            bench_read_cpus(optarg, opts.cpus);
            break;
        case 'b':
            opts.budget = bench_read_mib(optarg);
            break;
        case 'h':
            one_sided_usage(stdout);
            return 0;
        default:
            one_sided_usage(stderr);
            return 2;
        }
    }
    if ((argc - optind) < 2) {
        one_sided_usage(stderr);
        return 2;
    }

    opts.transport = argv[optind];
    one_sided_sizes(&opts, &argv[optind + 1]);
    opts.shared = paging_share();
    return bench_ranks_run(2, opts.is_pinned ? opts.cpus : NULL, one_sided_main,
                           &opts);
}
