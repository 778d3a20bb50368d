/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Output, in OSU 7 format to the column.
 */

#include "osu.h"

#include <stdio.h>

/* Widths of OSU 7: its header "# Size       Avg Latency(us)" is 28 wide */
#define OSU_SIZE_WIDTH  10
#define OSU_FIELD_WIDTH 18
#define OSU_ITERS_WIDTH 12
#define OSU_ALONE_WIDTH 17 /* of the value in a row without a size */

void osu_report_version(const osu_bench_t *bench)
{
    printf("# %s %s\n", bench->title, OSU_VERSION);
}

static void osu_report_columns(const osu_run_t *run)
{
    const osu_bench_t *bench = run->bench;

    if (bench->caps & OSU_CAP_NO_DATA) {
        printf("# Avg Latency(us)");
    } else if (bench->caps & OSU_CAP_RATE) {
        printf("%-*s%*s", OSU_SIZE_WIDTH, "# Size", OSU_FIELD_WIDTH, "MB/s");
        if (run->opts.rate) {
            printf("%*s", OSU_FIELD_WIDTH, "Messages/s");
        }
    } else {
        printf("%-*s%*s", OSU_SIZE_WIDTH, "# Size", OSU_FIELD_WIDTH,
               bench->kind == OSU_KIND_BANDWIDTH ? "Bandwidth (MB/s)" :
               bench->caps & OSU_CAP_RMA         ? "Latency (us)" :
                                                   "Avg Latency(us)");
    }

    if (run->opts.full) {
        printf("%*s%*s%*s", OSU_FIELD_WIDTH, "Min Latency(us)",
               OSU_FIELD_WIDTH, "Max Latency(us)", OSU_ITERS_WIDTH,
               "Iterations");
    }
    if (run->opts.validate) {
        printf("%*s", OSU_FIELD_WIDTH, "Validation");
    }
    printf("\n");
}

void osu_report_header(const osu_run_t *run)
{
    static const char *const wins[] = {
        [OSU_WIN_CREATE]   = "MPI_Win_create",
        [OSU_WIN_ALLOCATE] = "MPI_Win_allocate",
        [OSU_WIN_DYNAMIC]  = "MPI_Win_create_dynamic"
    };
    static const char *const syncs[] = {
        [OSU_SYNC_LOCK]        = "MPI_Win_lock/unlock",
        [OSU_SYNC_FLUSH]       = "MPI_Win_flush",
        [OSU_SYNC_FLUSH_LOCAL] = "MPI_Win_flush_local",
        [OSU_SYNC_LOCK_ALL]    = "MPI_Win_lock_all/unlock_all",
        [OSU_SYNC_PSCW]        = "MPI_Win_post/start/complete/wait",
        [OSU_SYNC_FENCE]       = "MPI_Win_fence"
    };
    char dtype[MPI_MAX_OBJECT_NAME];
    int length;

    if (run->rank != 0) {
        return;
    }

    printf("\n");
    osu_report_version(run->bench);
    if (run->bench->caps & OSU_CAP_RMA) {
        printf("# Window creation: %s\n# Synchronization: %s\n",
               wins[run->opts.win], syncs[run->opts.sync]);
    }
    if (run->bench->caps & OSU_CAP_RATE) {
        printf("# [ pairs: %d ] [ window size: %d ]\n", run->pairs,
               run->opts.window);
    }
    if (!(run->bench->caps & OSU_CAP_NO_DATA)) {
        MPI_Type_get_name(run->bench->dtype, dtype, &length);
        printf("# Datatype: %s.\n", dtype);
    }
    osu_report_columns(run);
    fflush(stdout);
}

/* Microseconds of one iteration on this rank */
static void osu_report_latency(const osu_run_t *run, double *avg, double *min,
                               double *max)
{
    double mine = run->elapsed * 1e6 / run->iterations / run->halves;
    int all     = run->bench->kind == OSU_KIND_COLLECTIVE;
    double sum  = all || run->sender ? mine : 0;

    MPI_Reduce(&sum, avg, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine, min, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine, max, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    *avg /= all ? run->nprocs : run->pairs;
}

static void osu_report_bandwidth(const osu_run_t *run, double *bw,
                                 double *rate)
{
    double mine     = run->sender ? run->elapsed : 0;
    double messages = (double)run->iterations * run->window * run->pairs *
                      run->halves;
    double slowest;

    MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (run->rank == 0) {
        *rate = messages / slowest;
        *bw   = *rate * run->size / 1e6;
    }
}

void osu_report_row(osu_run_t *run)
{
    double value = 0, rate = 0, min = 0, max = 0;
    int bandwidth = run->bench->kind == OSU_KIND_BANDWIDTH;
    int digits    = run->opts.digits;

    if (bandwidth) {
        osu_report_bandwidth(run, &value, &rate);
    } else {
        osu_report_latency(run, &value, &min, &max);
    }

    if (run->rank != 0) {
        return;
    }

    if (run->bench->caps & OSU_CAP_NO_DATA) {
        printf("%*.*f", OSU_ALONE_WIDTH, digits, value);
    } else {
        printf("%-*zu%*.*f", OSU_SIZE_WIDTH, run->size, OSU_FIELD_WIDTH,
               digits, value);
    }
    if ((run->bench->caps & OSU_CAP_RATE) && run->opts.rate) {
        printf("%*.*f", OSU_FIELD_WIDTH, digits, rate);
    }
    if (run->opts.full) {
        printf("%*.*f%*.*f%*d", OSU_FIELD_WIDTH, digits, min, OSU_FIELD_WIDTH,
               digits, max, OSU_ITERS_WIDTH, run->iterations);
    }
    if (run->opts.validate) {
        printf("%*s", OSU_FIELD_WIDTH, run->errors == 0 ? "Pass" : "Fail");
    }
    printf("\n");
    fflush(stdout);
}
