/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Time of one MPI_Accumulate (sum of bytes) with its synchronization.
 */

#include "osu.h"

#include <stdlib.h>

static void osu_acc(osu_run_t *run, int slot)
{
    MPI_Accumulate(osu_buffer_slot(&run->sbuf, slot), run->size, MPI_CHAR,
                   run->peer, osu_rma_disp(run, slot), run->size, MPI_CHAR,
                   MPI_SUM, run->rma.win);
}

/* No sum may leave the range of a char. Open MPI 4.1's vector code saturates
 * where its scalar code wraps */
static void osu_acc_limit(char *data, size_t size)
{
    size_t i;

    for (i = 0; i < size; ++i) {
        data[i] &= 0x3f;
    }
}

static void osu_acc_before(osu_run_t *run, int iter)
{
    osu_rma_before(run, iter);
    osu_rma_local_begin(run);
    osu_acc_limit(run->sbuf.base, run->size);
    osu_acc_limit(osu_rma_mem(run, 0), run->size);
    osu_rma_local_end(run);
}

/* The window held one pattern, and the origin's was added byte by byte */
static void osu_acc_check(osu_run_t *run, int iter, int slot)
{
    const char *mem = osu_rma_mem(run, slot);
    char *wanted    = malloc(run->size);
    char *added     = malloc(run->size);
    size_t i;

    if ((wanted == NULL) || (added == NULL)) {
        MPI_Abort(MPI_COMM_WORLD, OSU_EXIT_USAGE);
        abort();
    }

    osu_pattern_fill(wanted, run->size, iter,
                     osu_rma_window_author(run, run->rank), slot);
    osu_pattern_fill(added, run->size, iter, run->peer, slot);
    osu_acc_limit(wanted, run->size);
    osu_acc_limit(added, run->size);
    for (i = 0; i < run->size; ++i) {
        wanted[i] += added[i];
        if (mem[i] != wanted[i]) {
            osu_data_error(run, iter, i, (uint8_t)wanted[i], (uint8_t)mem[i]);
            break;
        }
    }

    free(wanted);
    free(added);
}

static const osu_bench_t bench = {
    .name         = "osu_acc_latency",
    .title        = "OSU MPI_Accumulate latency Test",
    .kind         = OSU_KIND_LATENCY,
    .caps         = OSU_CAP_RMA,
    .dtype        = MPI_CHAR,
    .min_size     = 1,
    .max_size     = 4 << 20,
    .halves       = 1,
    .setup        = osu_rma_setup,
    .teardown     = osu_rma_teardown,
    .before       = osu_acc_before,
    .after        = osu_rma_after,
    .step         = osu_rma_latency_step,
    .op           = osu_acc,
    .check_target = osu_acc_check
};

int main(int argc, char **argv)
{
    return osu_main(argc, argv, &bench);
}
