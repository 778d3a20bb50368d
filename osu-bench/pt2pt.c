/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Point to point: a ping-pong, and a window of messages with an answer.
 */

#include "osu.h"

#include <stdlib.h>

/* Is it this rank's part to send, and to receive? */
static int osu_pt2pt_sends(const osu_run_t *run)
{
    return (run->peer >= 0) && (run->sender || (run->bench->halves == 2));
}

static int osu_pt2pt_receives(const osu_run_t *run)
{
    return (run->peer >= 0) && (!run->sender || (run->bench->halves == 2));
}

static void osu_pt2pt_alloc(osu_run_t *run)
{
    if (osu_pt2pt_sends(run)) {
        osu_buffer_alloc(&run->sbuf, run->size, run->window,
                         run->opts.multiple, run->opts.fresh);
    }
    if (osu_pt2pt_receives(run)) {
        osu_buffer_alloc(&run->rbuf, run->size, run->window,
                         run->opts.multiple, run->opts.fresh);
    }
}

static void osu_pt2pt_free(osu_run_t *run)
{
    osu_buffer_free(&run->sbuf);
    osu_buffer_free(&run->rbuf);
}

void osu_pt2pt_setup(osu_run_t *run)
{
    osu_pt2pt_alloc(run);
    run->reqs = calloc(2 * run->window, sizeof(*run->reqs));
    if (run->reqs == NULL) {
        MPI_Abort(MPI_COMM_WORLD, OSU_EXIT_USAGE);
    }
}

void osu_pt2pt_teardown(osu_run_t *run)
{
    osu_pt2pt_free(run);
    free(run->reqs);
    run->reqs = NULL;
}

void osu_pt2pt_before(osu_run_t *run, int iter)
{
    int slot;

    if (run->opts.fresh) {
        osu_pt2pt_free(run);
        osu_pt2pt_alloc(run);
    }

    for (slot = 0; slot < run->window; ++slot) {
        if (osu_pt2pt_sends(run) && !run->opts.dirty) {
            osu_pattern_fill(osu_buffer_slot(&run->sbuf, slot), run->size,
                             iter, run->rank, slot);
        }
        if (osu_pt2pt_receives(run) && !run->opts.fresh) {
            osu_pattern_fill(osu_buffer_slot(&run->rbuf, slot), run->size,
                             iter + 1, run->peer, slot);
        }
    }
}

void osu_pt2pt_after(osu_run_t *run, int iter)
{
    int slot;

    for (slot = 0; osu_pt2pt_receives(run) && (slot < run->window); ++slot) {
        osu_pattern_check(run, osu_buffer_slot(&run->rbuf, slot), run->size,
                          iter, run->peer, slot);
    }
}

static void osu_pt2pt_dirty(osu_run_t *run, int iter, int slot)
{
    if (run->opts.dirty) {
        osu_pattern_fill(osu_buffer_slot(&run->sbuf, slot), run->size, iter,
                         run->rank, slot);
    }
}

void osu_pt2pt_latency_step(osu_run_t *run, int iter)
{
    if (run->peer < 0) {
        return;
    }

    if (run->sender) {
        osu_pt2pt_dirty(run, iter, 0);
        MPI_Send(run->sbuf.base, run->size, MPI_CHAR, run->peer, 1,
                 MPI_COMM_WORLD);
        MPI_Recv(run->rbuf.base, run->size, MPI_CHAR, run->peer, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(run->rbuf.base, run->size, MPI_CHAR, run->peer, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        osu_pt2pt_dirty(run, iter, 0);
        MPI_Send(run->sbuf.base, run->size, MPI_CHAR, run->peer, 1,
                 MPI_COMM_WORLD);
    }
}

void osu_pt2pt_bandwidth_step(osu_run_t *run, int iter)
{
    char answer[4] = {0};
    int count      = 0;
    int slot;

    if (run->peer < 0) {
        return;
    }

    for (slot = 0; osu_pt2pt_receives(run) && (slot < run->window); ++slot) {
        MPI_Irecv(osu_buffer_slot(&run->rbuf, slot), run->size, MPI_CHAR,
                  run->peer, 100, MPI_COMM_WORLD, &run->reqs[count++]);
    }
    for (slot = 0; osu_pt2pt_sends(run) && (slot < run->window); ++slot) {
        osu_pt2pt_dirty(run, iter, slot);
        MPI_Isend(osu_buffer_slot(&run->sbuf, slot), run->size, MPI_CHAR,
                  run->peer, 100, MPI_COMM_WORLD, &run->reqs[count++]);
    }
    MPI_Waitall(count, run->reqs, MPI_STATUSES_IGNORE);

    if (run->sender) {
        MPI_Recv(answer, sizeof(answer), MPI_CHAR, run->peer, 101,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Send(answer, sizeof(answer), MPI_CHAR, run->peer, 101,
                 MPI_COMM_WORLD);
    }
}
