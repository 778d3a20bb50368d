/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The loop that every program runs in.
 */

#include "osu.h"

#include <stdio.h>
#include <string.h>

/* After this both ranks of a pair are in the step at almost the same time; a
 * barrier alone may release one of them a message earlier */
static void osu_run_align(osu_run_t *run)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if ((run->bench->kind == OSU_KIND_COLLECTIVE) || (run->peer < 0)) {
        return;
    }

    if (run->sender) {
        MPI_Send(NULL, 0, MPI_CHAR, run->peer, 2, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_CHAR, run->peer, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(NULL, 0, MPI_CHAR, run->peer, 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        MPI_Send(NULL, 0, MPI_CHAR, run->peer, 2, MPI_COMM_WORLD);
    }
}

/* Timed from end to end, as OSU does */
static void osu_run_straight(osu_run_t *run)
{
    double start = 0;
    int i;

    MPI_Barrier(MPI_COMM_WORLD);
    for (i = 0; i < run->skip + run->iterations; ++i) {
        if (i == run->skip) {
            start = MPI_Wtime();
        }
        run->bench->step(run, i);
    }
    run->elapsed = MPI_Wtime() - start;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Timed step by step, for there is untimed work between the steps */
static void osu_run_stepwise(osu_run_t *run)
{
    int prepare = run->opts.validate || run->opts.fresh;
    double start;
    int i;

    run->elapsed = 0;
    for (i = 0; i < run->skip + run->iterations; ++i) {
        if (prepare) {
            run->bench->before(run, i);
        }

        osu_run_align(run);
        start = MPI_Wtime();
        run->bench->step(run, i);
        if (i >= run->skip) {
            run->elapsed += MPI_Wtime() - start;
        }

        if (run->opts.validate) {
            run->bench->after(run, i);
        }
    }
}

static void osu_run_size(osu_run_t *run, size_t size)
{
    int large = size > OSU_LARGE_SIZE;

    run->size       = size;
    run->iterations = large ? run->opts.iterations_large :
                              run->opts.iterations;
    run->skip       = large ? run->opts.skip_large : run->opts.skip;
    run->errors     = 0;

    if (run->bench->setup != NULL) {
        run->bench->setup(run);
    }

    if (run->opts.validate || run->opts.fresh ||
        ((run->bench->kind == OSU_KIND_COLLECTIVE) &&
         !(run->bench->caps & OSU_CAP_NO_DATA))) {
        osu_run_stepwise(run);
    } else {
        osu_run_straight(run);
    }

    if (run->bench->teardown != NULL) {
        run->bench->teardown(run);
    }

    MPI_Allreduce(MPI_IN_PLACE, &run->errors, 1, MPI_INT, MPI_SUM,
                  MPI_COMM_WORLD);
    osu_report_row(run);
}

/* A sender has its receiver half of the ranks further, as in OSU */
static int osu_run_ranks(osu_run_t *run)
{
    const osu_bench_t *bench = run->bench;
    const char *wanted       = NULL;

    run->pairs = run->opts.pairs == 0 ? run->nprocs / 2 : run->opts.pairs;
    if (bench->kind == OSU_KIND_COLLECTIVE) {
        run->pairs = 0;
        wanted     = run->nprocs < 2 ? "at least 2 ranks" : NULL;
    } else if (!(bench->caps & OSU_CAP_PAIRS)) {
        wanted = run->nprocs != 2 ? "exactly 2 ranks" : NULL;
    } else if (run->nprocs < 2 * run->pairs || run->nprocs < 2) {
        wanted = run->opts.pairs ? "2 ranks per pair of -p" :
                                   "at least 2 ranks";
    }

    if (wanted != NULL) {
        if (run->rank == 0) {
            fprintf(stderr, "%s: needs %s, found %d; start it with mpirun -n "
                    "N\n", bench->name, wanted, run->nprocs);
        }
        return -1;
    }

    run->sender = run->rank < run->pairs;
    run->peer   = run->sender                  ? run->rank + run->pairs :
                  run->rank < 2 * run->pairs ? run->rank - run->pairs :
                                                 -1;
    return 0;
}

static int osu_run_sizes(osu_run_t *run)
{
    size_t size;

    if (osu_run_ranks(run) != 0) {
        return OSU_EXIT_USAGE;
    }

    osu_report_header(run);
    for (size = run->opts.min_size; size <= run->opts.max_size; size *= 2) {
        if ((run->bench->kind == OSU_KIND_COLLECTIVE) &&
            (size * osu_coll_blocks(run) > run->opts.mem_limit)) {
            break;
        }

        osu_run_size(run, size);
        if (run->errors != 0) {
            if (run->rank == 0) {
                printf("DATA VALIDATION ERROR: %s exited with status %d on "
                       "message size %zu.\n", run->bench->name, OSU_EXIT_DATA,
                       size);
                fflush(stdout);
            }
            return OSU_EXIT_DATA;
        }
    }

    return 0;
}

int osu_main(int argc, char **argv, const osu_bench_t *bench)
{
    osu_run_t run;
    int ret;

    memset(&run, 0, sizeof(run));
    ret = osu_options_parse(argc, argv, bench, &run.opts);
    if (ret >= 0) {
        return ret;
    }

    run.bench  = bench;
    run.halves = bench->halves;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &run.nprocs);
    run.window = (bench->caps & OSU_CAP_WINDOW) ? run.opts.window : 1;
    if (run.opts.validate || run.opts.fresh || run.opts.dirty) {
        run.opts.multiple = 1;
    }

    ret = osu_run_sizes(&run);
    MPI_Finalize();
    return ret;
}
