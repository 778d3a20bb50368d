/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Time of MPI_Allreduce (sum of ints).
 */

#include "osu.h"

#include <string.h>

/* Small enough that no sum overflows, and another one in each iteration */
static int osu_allreduce_value(int iter, int rank, size_t i)
{
    return iter % 4096 * 7 + rank * 3 + (int)(i % 65521);
}

static void osu_allreduce_before(osu_run_t *run, int iter)
{
    size_t i;
    int *data;

    osu_coll_renew(run);
    data = (int*)run->sbuf.base;
    for (i = 0; i < run->size / sizeof(*data); ++i) {
        data[i] = osu_allreduce_value(iter, run->rank, i);
    }
    if (!run->opts.fresh) {
        memset(run->rbuf.base, 0xff, run->size);
    }
}

static void osu_allreduce_after(osu_run_t *run, int iter)
{
    const int *data = (const int*)run->rbuf.base;
    int wanted, rank;
    size_t i;

    for (i = 0; i < run->size / sizeof(*data); ++i) {
        wanted = 0;
        for (rank = 0; rank < run->nprocs; ++rank) {
            wanted += osu_allreduce_value(iter, rank, i);
        }
        if (data[i] != wanted) {
            osu_data_error(run, iter, i * sizeof(*data), wanted, data[i]);
            return;
        }
    }
}

static void osu_allreduce_step(osu_run_t *run, int iter)
{
    (void)iter;
    MPI_Allreduce(run->sbuf.base, run->rbuf.base, run->size / sizeof(int),
                  MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static const osu_bench_t bench = {
    .name     = "osu_allreduce",
    .title    = "OSU MPI Allreduce Latency Test",
    .kind     = OSU_KIND_COLLECTIVE,
    .caps     = OSU_CAP_FULL,
    .dtype    = MPI_INT,
    .min_size = sizeof(int),
    .max_size = 1 << 20,
    .halves   = 1,
    .setup    = osu_coll_setup,
    .teardown = osu_coll_teardown,
    .before   = osu_allreduce_before,
    .after    = osu_allreduce_after,
    .step     = osu_allreduce_step
};

int main(int argc, char **argv)
{
    return osu_main(argc, argv, &bench);
}
