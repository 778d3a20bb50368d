/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Time of MPI_Alltoall; the size is that of one block.
 */

#include "osu.h"

static void osu_alltoall_before(osu_run_t *run, int iter)
{
    int rank;

    osu_coll_renew(run);
    for (rank = 0; rank < run->nprocs; ++rank) {
        osu_pattern_fill(osu_buffer_slot(&run->sbuf, rank), run->size, iter,
                         run->rank, rank);
        if (!run->opts.fresh) {
            osu_pattern_fill(osu_buffer_slot(&run->rbuf, rank), run->size,
                             iter + 1, rank, run->rank);
        }
    }
}

static void osu_alltoall_after(osu_run_t *run, int iter)
{
    int rank;

    for (rank = 0; rank < run->nprocs; ++rank) {
        osu_pattern_check(run, osu_buffer_slot(&run->rbuf, rank), run->size,
                          iter, rank, run->rank);
    }
}

static void osu_alltoall_step(osu_run_t *run, int iter)
{
    (void)iter;
    MPI_Alltoall(run->sbuf.base, run->size, MPI_CHAR, run->rbuf.base,
                 run->size, MPI_CHAR, MPI_COMM_WORLD);
}

static const osu_bench_t bench = {
    .name     = "osu_alltoall",
    .title    = "OSU MPI All-to-All Personalized Exchange Latency Test",
    .kind     = OSU_KIND_COLLECTIVE,
    .caps     = OSU_CAP_FULL | OSU_CAP_BLOCKS,
    .dtype    = MPI_CHAR,
    .min_size = 1,
    .max_size = 1 << 20,
    .halves   = 1,
    .setup    = osu_coll_setup,
    .teardown = osu_coll_teardown,
    .before   = osu_alltoall_before,
    .after    = osu_alltoall_after,
    .step     = osu_alltoall_step
};

int main(int argc, char **argv)
{
    return osu_main(argc, argv, &bench);
}
