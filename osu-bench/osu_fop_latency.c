/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Time of one MPI_Fetch_and_op (64-bit sum) with its synchronization.
 */

#include "osu.h"

#include <string.h>

static void osu_fop(osu_run_t *run, int slot)
{
    MPI_Fetch_and_op(run->sbuf.base, run->rbuf.base, MPI_INT64_T, run->peer,
                     osu_rma_disp(run, slot), MPI_SUM, run->rma.win);
}

/* Two patterns, one of the window and one of the origin, were added */
static void osu_fop_check(osu_run_t *run, int iter, int slot)
{
    uint64_t before, added, found;

    osu_pattern_fill(&before, sizeof(before), iter,
                     osu_rma_window_author(run, run->rank), slot);
    osu_pattern_fill(&added, sizeof(added), iter, run->peer, slot);
    memcpy(&found, osu_rma_mem(run, slot), sizeof(found));
    if (found != before + added) {
        osu_data_error(run, iter, 0, before + added, found);
    }
}

static const osu_bench_t bench = {
    .name         = "osu_fop_latency",
    .title        = "OSU MPI_Fetch_and_op latency Test",
    .kind         = OSU_KIND_LATENCY,
    .caps         = OSU_CAP_RMA | OSU_CAP_NO_SIZE,
    .dtype        = MPI_INT64_T,
    .min_size     = 8,
    .max_size     = 8,
    .halves       = 1,
    .setup        = osu_rma_setup,
    .teardown     = osu_rma_teardown,
    .before       = osu_rma_before,
    .after        = osu_rma_after,
    .step         = osu_rma_latency_step,
    .op           = osu_fop,
    .check_origin = osu_rma_check_fetched,
    .check_target = osu_fop_check
};

int main(int argc, char **argv)
{
    return osu_main(argc, argv, &bench);
}
