/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Time of MPI_Bcast from rank 0.
 */

#include "osu.h"

/* sbuf is the one buffer of a broadcast; rank 0 is the root */
static void osu_bcast_before(osu_run_t *run, int iter)
{
    osu_coll_renew(run);
    if (run->rank == 0) {
        osu_pattern_fill(run->sbuf.base, run->size, iter, 0, 0);
    } else if (!run->opts.fresh) {
        osu_pattern_fill(run->sbuf.base, run->size, iter + 1, 0, 0);
    }
}

static void osu_bcast_after(osu_run_t *run, int iter)
{
    osu_pattern_check(run, run->sbuf.base, run->size, iter, 0, 0);
}

static void osu_bcast_step(osu_run_t *run, int iter)
{
    (void)iter;
    MPI_Bcast(run->sbuf.base, run->size, MPI_CHAR, 0, MPI_COMM_WORLD);
}

static const osu_bench_t bench = {
    .name     = "osu_bcast",
    .title    = "OSU MPI Broadcast Latency Test",
    .kind     = OSU_KIND_COLLECTIVE,
    .caps     = OSU_CAP_FULL,
    .dtype    = MPI_CHAR,
    .min_size = 1,
    .max_size = 1 << 20,
    .halves   = 1,
    .setup    = osu_coll_setup,
    .teardown = osu_coll_teardown,
    .before   = osu_bcast_before,
    .after    = osu_bcast_after,
    .step     = osu_bcast_step
};

int main(int argc, char **argv)
{
    return osu_main(argc, argv, &bench);
}
