/* SPDX-License-Identifier: BSD-3-Clause */
/* Time of one large message after another, from its post to its end on both
 * sides, of memory that is registered for the first time, or was before, or
 * that the OS has taken. */
#include "ranks.h"

#include <nprdma/nprdma.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define OVERLAP_MAX_SIZES  32
#define OVERLAP_MAX_ROUNDS 1000

/* Nanoseconds */
enum {
    OVERLAP_BEGIN,
    OVERLAP_PREPARED, /* this side's memory, by itself: what that took */
    OVERLAP_POST,
    OVERLAP_END
};

typedef enum overlap_memory {
    OVERLAP_FORGOTTEN, /* by both sides' devices: its pages stay */
    OVERLAP_WARM,      /* nothing is done to it */
    OVERLAP_TAKEN      /* by both sides' OS: its pages are not mapped */
} overlap_memory_t;

/* Microseconds of a message */
enum {
    OVERLAP_ALL,
    OVERLAP_SENDER,    /* of all, to prepare its memory before anything else */
    OVERLAP_RECEIVER,
    OVERLAP_TRANSFER,
    OVERLAP_TIMES
};

typedef struct overlap_options {
    size_t sizes[OVERLAP_MAX_SIZES];
    int    num_sizes;
    int    rounds;
    int    is_sequential;
    overlap_memory_t memory;
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

/* No page is mapped any more. The sender's, of shared memory, are still in the
 * page cache; the receiver's are gone. */
static void overlap_take(overlap_run_t *run, size_t size)
{
    overlap_forget(run, size);
    if (madvise(run->buf, size, MADV_DONTNEED) != 0) {
        bench_die("MADV_DONTNEED: %m");
    }
}

static char *overlap_memory(const bench_rank_t *rank,
                            const overlap_options_t *opts, size_t size)
{
    return ((opts->memory != OVERLAP_TAKEN) || (rank->rank != 0)) ?
           bench_memory(size) : bench_shared_memory(size);
}

/* One side after the other brings its memory in */
static void overlap_prepare(overlap_run_t *run, size_t size)
{
    bench_rank_t *rank = run->rank;
    uint64_t *mine     = bench_slot(rank, rank->rank, 0);
    uint64_t begin;
    int turn, ret;

    for (turn = 0; turn < 2; ++turn) {
        if (rank->rank == turn) {
            begin = overlap_now();
            ret   = nprdma_prefetch(run->buf, size,
                                    (turn == 1) ? NPRDMA_PREFETCH_WRITE : 0);
            if (ret != 0) {
                bench_die("nprdma_prefetch: %s", strerror(-ret));
            }
            mine[OVERLAP_PREPARED] = overlap_now() - begin;
        }
        bench_barrier(rank);
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

static double overlap_median(const double *sorted, int count)
{
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

/* The earlier side's, or the later one's */
static uint64_t overlap_of_both(bench_rank_t *rank, int index, int is_later)
{
    const uint64_t first  = *bench_slot(rank, 0, index);
    const uint64_t second = *bench_slot(rank, 1, index);

    return ((first > second) == is_later) ? first : second;
}

/* One message from rank 0 to rank 1 */
static void overlap_once(overlap_run_t *run, size_t size, int round,
                         double times[OVERLAP_TIMES])
{
    bench_rank_t *rank = run->rank;
    const int is_first = rank->rank == 0;
    uint64_t *mine     = bench_slot(rank, rank->rank, 0);
    uint64_t end;
    size_t at;

    for (at = 0; at < size; at += 4096) {
        run->buf[at] = is_first ? (char)(round + (at >> 12)) : 0;
    }
    switch (run->opts->memory) {
    case OVERLAP_FORGOTTEN:
        overlap_forget(run, size);
        break;
    case OVERLAP_TAKEN:
        overlap_take(run, size);
        break;
    case OVERLAP_WARM:
        break;
    }

    bench_barrier(rank);
    mine[OVERLAP_BEGIN]    = overlap_now();
    mine[OVERLAP_PREPARED] = 0;
    if (run->opts->is_sequential) {
        overlap_prepare(run, size);
    }
    mine[OVERLAP_POST] = overlap_now();
    bench_wait(rank, is_first ? bench_send(rank, 1, run->buf, size) :
                     bench_recv(rank, 0, run->buf, size));
    mine[OVERLAP_END] = overlap_now();
    if (!is_first) {
        overlap_check(run, size, round);
    }
    bench_barrier(rank);

    end                     = overlap_of_both(rank, OVERLAP_END, 1);
    times[OVERLAP_ALL]      = end - overlap_of_both(rank, OVERLAP_BEGIN, 0);
    times[OVERLAP_SENDER]   = *bench_slot(rank, 0, OVERLAP_PREPARED);
    times[OVERLAP_RECEIVER] = *bench_slot(rank, 1, OVERLAP_PREPARED);
    times[OVERLAP_TRANSFER] = end - overlap_of_both(rank, OVERLAP_POST, 0);
    bench_barrier(rank); /* both have read */
}

static void overlap_size(overlap_run_t *run, size_t size)
{
    static double times[OVERLAP_TIMES][OVERLAP_MAX_ROUNDS];
    int rounds = run->opts->rounds, i, kind;
    double once[OVERLAP_TIMES];

    overlap_once(run, size, -1, once);
    for (i = 0; i < rounds; ++i) {
        overlap_once(run, size, i, once);
        for (kind = 0; kind < OVERLAP_TIMES; ++kind) {
            times[kind][i] = once[kind] / 1e3;
        }
    }

    if (run->rank->rank == 0) {
        for (kind = 0; kind < OVERLAP_TIMES; ++kind) {
            bench_sort(times[kind], rounds);
        }
        printf("%zu %.2f %.2f %.2f", size,
               overlap_median(times[OVERLAP_ALL], rounds),
               times[OVERLAP_ALL][0], times[OVERLAP_ALL][rounds - 1]);
        for (kind = OVERLAP_SENDER; kind < OVERLAP_TIMES; ++kind) {
            printf(" %.2f", overlap_median(times[kind], rounds));
        }
        printf("\n");
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

    run.buf = overlap_memory(rank, opts, largest);
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
            "Usage: overlap [-w|-o] [-s] [-r ROUNDS] [-c CPU,CPU] SIZE...\n"
            "Sends a message of each SIZE (bytes) in each round, and prints: "
            "size, median, least and most microseconds; medians of what each "
            "side took to prepare its memory (with -s) and of the transfer.\n"
            "  -w  memory that was used before; else both sides' devices forget "
            "it before each message\n"
            "  -o  both sides' OS takes it, too: its pages are not mapped\n"
            "  -s  first one side brings its memory in, then the other, then it "
            "is sent\n");
    return 2;
}

int main(int argc, char **argv)
{
    static overlap_options_t opts = {.rounds = 15};
    char *end;
    int opt;

    while ((opt = getopt(argc, argv, "wosr:c:")) != -1) {
        switch (opt) {
        case 'w':
            opts.memory = OVERLAP_WARM;
            break;
        case 'o':
            opts.memory = OVERLAP_TAKEN;
            break;
        case 's':
            opts.is_sequential = 1;
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
