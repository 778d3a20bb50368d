/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Time of MPI_Barrier.
 */

#include "osu.h"

static void osu_barrier_step(osu_run_t *run, int iter)
{
    (void)run;
    (void)iter;
    MPI_Barrier(MPI_COMM_WORLD);
}

static const osu_bench_t bench = {
    .name     = "osu_barrier",
    .title    = "OSU MPI Barrier Latency Test",
    .kind     = OSU_KIND_COLLECTIVE,
    .caps     = OSU_CAP_FULL | OSU_CAP_NO_DATA,
    .dtype    = MPI_CHAR,
    .min_size = 1,
    .max_size = 1,
    .halves   = 1,
    .step     = osu_barrier_step
};

int main(int argc, char **argv)
{
    return osu_main(argc, argv, &bench);
}
