/* SPDX-License-Identifier: BSD-3-Clause */
/* Bandwidth of a sender that rewrites its buffer before every send. */
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIRTY_MAX_SIZES    32

typedef struct dirty_options {
    size_t sizes[DIRTY_MAX_SIZES];
    int    num_sizes;
    int    cpus[2];
    int    is_pinned;
    size_t budget;             /* bytes per size */
} dirty_options_t;

typedef struct dirty_run {
    bench_rank_t *rank;
    char         *buf;
    size_t       size;
    int          peer;
    unsigned     serial;       /* of the message, known to both */
} dirty_run_t;

/* As a program that computes something would: word by word */
static void dirty_fill(dirty_run_t *run)
{
    uint64_t pattern = (++run->serial & 0xff) * 0x0101010101010101ul;
    uint64_t *words  = (uint64_t*)run->buf;
    size_t i, count  = run->size / sizeof(*words);

    for (i = 0; i < count; ++i) {
        words[i] = pattern;
    }
    memcpy(words + count, &pattern, run->size % sizeof(*words));
}

/* The ends only: all of it would measure the check */
static void dirty_check(dirty_run_t *run)
{
    unsigned char wanted = ++run->serial;
    unsigned char first  = run->buf[0];
    unsigned char last   = run->buf[run->size - 1];

    if ((first != wanted) || (last != wanted)) {
        bench_die("wrong data in message %u of %zu bytes: %u and %u, wanted %u",
                  run->serial, run->size, first, last, wanted);
    }
}

/* Back to back: seconds for count messages, rewriting included */
static double dirty_stream(dirty_run_t *run, int count)
{
    bench_rank_t *rank = run->rank;
    double start;
    char end = 0;
    int i;

    bench_barrier(rank);
    start = bench_seconds();
    for (i = 0; i < count; ++i) {
        if (rank->rank == 0) {
            dirty_fill(run);
            bench_wait(rank, bench_send(rank, run->peer, run->buf, run->size));
        } else {
            bench_wait(rank, bench_recv(rank, run->peer, run->buf, run->size));
            dirty_check(run);
        }
    }

    if (rank->rank == 0) {
        bench_wait(rank, bench_recv(rank, run->peer, &end, sizeof(end)));
    } else {
        bench_wait(rank, bench_send(rank, run->peer, &end, sizeof(end)));
    }
    return bench_seconds() - start;
}

/* One at a time: seconds from each send to the receiver's answer, rewriting
 * not included */
static double dirty_single(dirty_run_t *run, int count)
{
    bench_rank_t *rank = run->rank;
    double start, sum  = 0;
    char answer        = 0;
    void *next, *request;
    int i;

    next = (rank->rank == 0) ? NULL :
           bench_recv(rank, run->peer, run->buf, run->size);
    bench_barrier(rank);
    for (i = 0; i < count; ++i) {
        if (rank->rank == 0) {
            request = bench_recv(rank, run->peer, &answer, sizeof(answer));
            dirty_fill(run);
            start = bench_seconds();
            bench_wait(rank, bench_send(rank, run->peer, run->buf, run->size));
            bench_wait(rank, request);
            sum += bench_seconds() - start;
        } else {
            bench_wait(rank, next);
            dirty_check(run);
            next = (i == (count - 1)) ? NULL :
                   bench_recv(rank, run->peer, run->buf, run->size);
            bench_wait(rank, bench_send(rank, run->peer, &answer,
                                        sizeof(answer)));
        }
    }

    return sum;
}

static void dirty_main(bench_rank_t *rank, void *arg)
{
    const dirty_options_t *opts = arg;
    dirty_run_t run             = {.rank = rank, .peer = !rank->rank};
    double stream, single;
    size_t max = 1;
    int i, count;

    for (i = 0; i < opts->num_sizes; ++i) {
        max = (opts->sizes[i] > max) ? opts->sizes[i] : max;
    }
    run.buf = bench_memory(max);
    bench_connect(rank, run.peer);

    for (i = 0; i < opts->num_sizes; ++i) {
        run.size = opts->sizes[i];
        count    = opts->budget / run.size;
        count    = (count > 20000) ? 20000 : (count < 4) ? 4 : count;
        dirty_stream(&run, 2 + (count / 10));
        stream   = dirty_stream(&run, count);
        dirty_single(&run, 2 + (count / 10));
        single   = dirty_single(&run, count);
        if (rank->rank == 0) {
            printf("%zu %.3f %.3f\n", run.size,
                   run.size * (double)count / stream / 1e6,
                   run.size * (double)count / single / 1e6);
            fflush(stdout);
        }
    }
}

static void dirty_usage(FILE *out)
{
    fprintf(out,
            "Usage: dirty_bw [-c CPU,CPU] [-b MIB] SIZE...\n"
            "Prints for each size: bytes; MB/s of messages back to back, with\n"
            "the rewriting; MB/s of single messages from the send to the\n"
            "answer, without it.\n"
            "  -c CPU,CPU  the sender's and the receiver's CPU\n"
            "  -b MIB      MiB to send for each size (default 128)\n");
}

int main(int argc, char **argv)
{
    dirty_options_t opts = {.budget = 128ul << 20};
    char *end;
    int c;

    while ((c = getopt(argc, argv, "c:b:h")) != -1) {
        switch (c) {
        case 'c':
            opts.is_pinned = 1;
            bench_read_cpus(optarg, opts.cpus);
            break;
        case 'b':
            opts.budget = bench_read_mib(optarg);
            break;
        case 'h':
            dirty_usage(stdout);
            return 0;
        default:
            dirty_usage(stderr);
            return 2;
        }
    }

    for (; optind < argc; ++optind) {
        if (opts.num_sizes == DIRTY_MAX_SIZES) {
            bench_die("more than %d sizes", DIRTY_MAX_SIZES);
        }
        opts.sizes[opts.num_sizes] = strtoul(argv[optind], &end, 10);
        if ((*end != '\0') || (opts.sizes[opts.num_sizes++] == 0)) {
            bench_die("size '%s': a number of bytes from 1 up is wanted",
                      argv[optind]);
        }
    }
    if (opts.num_sizes == 0) {
        dirty_usage(stderr);
        return 2;
    }

    return bench_ranks_run(2, opts.is_pinned ? opts.cpus : NULL, dirty_main,
                           &opts);
}
