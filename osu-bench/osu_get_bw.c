/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows of MPI_Get.
 */

#include "osu.h"

static void osu_get(osu_run_t *run, int slot)
{
    MPI_Get(osu_buffer_slot(&run->rbuf, slot), run->size, MPI_CHAR, run->peer,
            osu_rma_disp(run, slot), run->size, MPI_CHAR, run->rma.win);
}

static const osu_bench_t bench = {
    .name         = "osu_get_bw",
    .title        = "OSU MPI_Get Bandwidth Test",
    .kind         = OSU_KIND_BANDWIDTH,
    .caps         = OSU_CAP_RMA | OSU_CAP_WINDOW,
    .dtype        = MPI_CHAR,
    .min_size     = 1,
    .max_size     = 4 << 20,
    .halves       = 1,
    .setup        = osu_rma_setup,
    .teardown     = osu_rma_teardown,
    .before       = osu_rma_before,
    .after        = osu_rma_after,
    .step         = osu_rma_bandwidth_step,
    .op           = osu_get,
    .check_origin = osu_rma_check_fetched
};

int main(int argc, char **argv)
{
    return osu_main(argc, argv, &bench);
}
