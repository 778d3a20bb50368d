/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ping-pong of two ranks.
 */

#include "osu.h"

static const osu_bench_t bench = {
    .name     = "osu_latency",
    .title    = "OSU MPI Latency Test",
    .kind     = OSU_KIND_LATENCY,
    .caps     = OSU_CAP_DIRTY,
    .dtype    = MPI_CHAR,
    .min_size = 1,
    .max_size = 4 << 20,
    .halves   = 2,
    .setup    = osu_pt2pt_setup,
    .teardown = osu_pt2pt_teardown,
    .before   = osu_pt2pt_before,
    .after    = osu_pt2pt_after,
    .step     = osu_pt2pt_latency_step
};

int main(int argc, char **argv)
{
    return osu_main(argc, argv, &bench);
}
