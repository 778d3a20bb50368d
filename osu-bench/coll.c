/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Buffers of the collectives.
 */

#include "osu.h"

static void osu_coll_alloc(osu_run_t *run)
{
    size_t bytes = run->size * osu_coll_blocks(run);

    osu_buffer_alloc(&run->sbuf, bytes, 1, 0, run->opts.fresh);
    osu_buffer_alloc(&run->rbuf, bytes, 1, 0, run->opts.fresh);
    run->sbuf.stride = run->size;
    run->rbuf.stride = run->size;
}

int osu_coll_blocks(const osu_run_t *run)
{
    return (run->bench->caps & OSU_CAP_BLOCKS) ? run->nprocs : 1;
}

void osu_coll_setup(osu_run_t *run)
{
    osu_coll_alloc(run);
}

void osu_coll_teardown(osu_run_t *run)
{
    osu_buffer_free(&run->sbuf);
    osu_buffer_free(&run->rbuf);
}

void osu_coll_renew(osu_run_t *run)
{
    if (run->opts.fresh) {
        osu_coll_teardown(run);
        osu_coll_alloc(run);
    }
}
