/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Time of one MPI_Compare_and_swap (64 bits) with its synchronization. With
 * -c the comparison always succeeds, so that the swap is seen.
 */

#include "osu.h"

/* What the window is believed to hold */
static uint64_t osu_cas_compare;

static void osu_cas_before(osu_run_t *run, int iter)
{
    osu_rma_before(run, iter);
    osu_pattern_fill(&osu_cas_compare, sizeof(osu_cas_compare), iter,
                     osu_rma_window_author(run, run->peer), 0);
}

static void osu_cas(osu_run_t *run, int slot)
{
    MPI_Compare_and_swap(run->sbuf.base, &osu_cas_compare, run->rbuf.base,
                         MPI_INT64_T, run->peer, osu_rma_disp(run, slot),
                         run->rma.win);
}

static const osu_bench_t bench = {
    .name         = "osu_cas_latency",
    .title        = "OSU MPI_Compare_and_swap latency Test",
    .kind         = OSU_KIND_LATENCY,
    .caps         = OSU_CAP_RMA | OSU_CAP_NO_SIZE,
    .dtype        = MPI_INT64_T,
    .min_size     = 8,
    .max_size     = 8,
    .halves       = 1,
    .setup        = osu_rma_setup,
    .teardown     = osu_rma_teardown,
    .before       = osu_cas_before,
    .after        = osu_rma_after,
    .step         = osu_rma_latency_step,
    .op           = osu_cas,
    .check_origin = osu_rma_check_fetched,
    .check_target = osu_rma_check_put
};

int main(int argc, char **argv)
{
    return osu_main(argc, argv, &bench);
}
