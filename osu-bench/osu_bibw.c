/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows of messages, both ways at once.
 */

#include "osu.h"

static const osu_bench_t bench = {
    .name     = "osu_bibw",
    .title    = "OSU MPI Bi-Directional Bandwidth Test",
    .kind     = OSU_KIND_BANDWIDTH,
    .caps     = OSU_CAP_WINDOW | OSU_CAP_BUFNUM,
    .dtype    = MPI_CHAR,
    .min_size = 1,
    .max_size = 4 << 20,
    .halves   = 2,
    .setup    = osu_pt2pt_setup,
    .teardown = osu_pt2pt_teardown,
    .before   = osu_pt2pt_before,
    .after    = osu_pt2pt_after,
    .step     = osu_pt2pt_bandwidth_step
};

int main(int argc, char **argv)
{
    return osu_main(argc, argv, &bench);
}
