/* SPDX-License-Identifier: BSD-3-Clause */
/* Time of one large message after another, from its post to its end on both
 * sides, of memory that is registered for the first time, or was before. */
#include "ranks.h"

#include <nprdma/nprdma.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OVERLAP_MAX_SIZES  32
#define OVERLAP_MAX_ROUNDS 1000

enum {
    OVERLAP_BEGIN, /* nanoseconds */
    OVERLAP_END
};

typedef struct overlap_options {
    size_t sizes[OVERLAP_MAX_SIZES];
    int    num_sizes;
    int    rounds;
    int    is_warm;
    int    cpus[2];
    int    is_bound;
} overlap_options_t;

typedef struct overlap_run {
    bench_rank_t            *rank;
    const overlap_options_t *opts;
    char                    *buf;
} overlap_run_t;

static uint64_t overlap_now(void)
{
    return bench_seconds() * 1e9;
}

/* The views of a device forget this memory, as if it had never been registered;
 * its pages stay */
static void overlap_forget(overlap_run_t *run, size_t size)
{
    int ret = nprdma_notify_swap_out(run->buf, size);

    if (ret != 0) {
        bench_die("nprdma_notify_swap_out: %s", strerror(-ret));
    }
}

static void overlap_check(const overlap_run_t *run, size_t size, int round)
{
    size_t at;

    for (at = 0; at < size; at += 4096) {
        if (run->buf[at] != (char)(round + (at >> 12))) {
            bench_die("wrong data at byte %zu of %zu in round %d", at, size,
                      round);
        }
    }
}

/* One message from rank 0 to rank 1; microseconds, known to rank 0 alone */
static double overlap_once(overlap_run_t *run, size_t size, int round)
{
    bench_rank_t *rank = run->rank;
    const int is_first = rank->rank == 0;
    uint64_t *mine     = bench_slot(rank, rank->rank, 0);
    uint64_t begin, end;
    size_t at;

    for (at = 0; at < size; at += 4096) {
        run->buf[at] = is_first ? (char)(round + (at >> 12)) : 0;
    }
    if (!run->opts->is_warm) {
        overlap_forget(run, size);
    }

    bench_barrier(rank);
    mine[OVERLAP_BEGIN] = overlap_now();
    bench_wait(rank, is_first ? bench_send(rank, 1, run->buf, size) :
                     bench_recv(rank, 0, run->buf, size));
    mine[OVERLAP_END] = overlap_now();
    if (!is_first) {
        overlap_check(run, size, round);
    }
    bench_barrier(rank);

    begin = bench_slot(rank, 0, 0)[OVERLAP_BEGIN];
    end   = bench_slot(rank, 0, 0)[OVERLAP_END];
    if (bench_slot(rank, 1, 0)[OVERLAP_BEGIN] < begin) {
        begin = bench_slot(rank, 1, 0)[OVERLAP_BEGIN];
    }
    if (bench_slot(rank, 1, 0)[OVERLAP_END] > end) {
        end = bench_slot(rank, 1, 0)[OVERLAP_END];
    }
    bench_barrier(rank); /* both have read */
    return (end - begin) / 1e3;
}

static void overlap_size(overlap_run_t *run, size_t size)
{
    double times[OVERLAP_MAX_ROUNDS];
    int rounds = run->opts->rounds, i;

    (void)overlap_once(run, size, -1);
    for (i = 0; i < rounds; ++i) {
        times[i] = overlap_once(run, size, i);
    }

    if (run->rank->rank == 0) {
        bench_sort(times, rounds);
        printf("%zu %.2f %.2f %.2f\n", size,
               (times[(rounds - 1) / 2] + times[rounds / 2]) / 2, times[0],
               times[rounds - 1]);
        fflush(stdout);
    }
}

static void overlap_main(bench_rank_t *rank, void *arg)
{
    const overlap_options_t *opts = arg;
    overlap_run_t run             = {.rank = rank, .opts = opts};
    size_t largest                = 0;
    nprdma_counters_t counters;
    int i;

    if (nprdma_get_counters(&counters, sizeof(counters)) != 0) {
        bench_die("no nprdma here: run it by nprdma-run, with UCX_TLS=nprdma");
    }

    for (i = 0; i < opts->num_sizes; ++i) {
        largest = (opts->sizes[i] > largest) ? opts->sizes[i] : largest;
    }

    run.buf = bench_memory(largest);
    if (rank->rank == 0) {
        bench_connect(rank, 1);
    }
    for (i = 0; i < opts->num_sizes; ++i) {
        overlap_size(&run, opts->sizes[i]);
    }
}

static int overlap_usage(void)
{
    fprintf(stderr,
            "Usage: overlap [-w] [-r ROUNDS] [-c CPU,CPU] SIZE...\n"
            "Sends a message of each SIZE (bytes) in each round, and prints: "
            "size, median, least and most microseconds.\n"
            "  -w  memory that was used before; else both sides' devices forget "
            "it before each message\n");
    return 2;
}

int main(int argc, char **argv)
{
    static overlap_options_t opts = {.rounds = 15};
    char *end;
    int opt;

    while ((opt = getopt(argc, argv, "wr:c:")) != -1) {
        switch (opt) {
        case 'w':
            opts.is_warm = 1;
            break;
        case 'r':
            opts.rounds = atoi(optarg);
            break;
        case 'c':
            opts.is_bound = sscanf(optarg, "%d,%d", &opts.cpus[0],
                                   &opts.cpus[1]) == 2;
            if (!opts.is_bound) {
                return overlap_usage();
            }
            break;
        default:
            return overlap_usage();
        }
    }

    for (; (optind < argc) && (opts.num_sizes < OVERLAP_MAX_SIZES); ++optind) {
        opts.sizes[opts.num_sizes] = strtoull(argv[optind], &end, 0);
        if ((*end != '\0') || (opts.sizes[opts.num_sizes++] == 0)) {
            return overlap_usage();
        }
    }

    if ((opts.num_sizes == 0) || (optind < argc) || (opts.rounds < 1) ||
        (opts.rounds > OVERLAP_MAX_ROUNDS)) {
        return overlap_usage();
    }
    return bench_ranks_run(2, opts.is_bound ? opts.cpus : NULL, overlap_main,
                           &opts);
}
