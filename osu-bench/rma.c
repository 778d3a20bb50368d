/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One-sided: windows, the six synchronizations, and a step of each kind.
 */

#include "osu.h"

#include <string.h>

/* Modes in which one lock covers all steps of a size */
static int osu_rma_held(const osu_run_t *run)
{
    return (run->opts.sync == OSU_SYNC_FLUSH) ||
           (run->opts.sync == OSU_SYNC_FLUSH_LOCAL);
}

/* In pscw and fence latency both ranks are origin and target in turn */
static int osu_rma_both(const osu_run_t *run)
{
    return (run->bench->kind == OSU_KIND_LATENCY) &&
           ((run->opts.sync == OSU_SYNC_PSCW) ||
            (run->opts.sync == OSU_SYNC_FENCE));
}

static int osu_rma_origin(const osu_run_t *run)
{
    return run->sender || osu_rma_both(run);
}

static int osu_rma_target(const osu_run_t *run)
{
    return !run->sender || osu_rma_both(run);
}

static int osu_rma_reads_window(const osu_run_t *run)
{
    return run->bench->check_target != osu_rma_check_put;
}

/* Patterns in windows have another author than patterns in origin buffers */
int osu_rma_window_author(const osu_run_t *run, int rank)
{
    return run->nprocs + rank;
}

char *osu_rma_mem(const osu_run_t *run, int slot)
{
    return run->rma.mem + run->size * slot;
}

MPI_Aint osu_rma_disp(const osu_run_t *run, int slot)
{
    return run->rma.disp + (MPI_Aint)(run->size * slot);
}

static void osu_rma_window_make(osu_run_t *run)
{
    osu_rma_t *rma = &run->rma;
    MPI_Aint mine;

    rma->mem_bytes = run->size * run->window;
    rma->disp      = 0;
    if (run->opts.win == OSU_WIN_ALLOCATE) {
        MPI_Win_allocate(rma->mem_bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                         &rma->mem, &rma->win);
    } else {
        osu_buffer_alloc(&rma->own, rma->mem_bytes, 1, 0, run->opts.fresh);
        rma->mem = rma->own.base;
    }

    if (run->opts.win == OSU_WIN_CREATE) {
        MPI_Win_create(rma->mem, rma->mem_bytes, 1, MPI_INFO_NULL,
                       MPI_COMM_WORLD, &rma->win);
    } else if (run->opts.win == OSU_WIN_DYNAMIC) {
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &rma->win);
        MPI_Win_attach(rma->win, rma->mem, rma->mem_bytes);
        MPI_Get_address(rma->mem, &mine);
        MPI_Sendrecv(&mine, 1, MPI_AINT, run->peer, 3, &rma->disp, 1, MPI_AINT,
                     run->peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }

    if (run->opts.sync == OSU_SYNC_FENCE) {
        MPI_Win_fence(0, rma->win);
    } else if (osu_rma_held(run) && run->sender) {
        MPI_Win_lock(MPI_LOCK_SHARED, run->peer, 0, rma->win);
    }
}

static void osu_rma_window_end(osu_run_t *run)
{
    osu_rma_t *rma = &run->rma;

    if (run->opts.sync == OSU_SYNC_FENCE) {
        MPI_Win_fence(MPI_MODE_NOSUCCEED, rma->win);
    } else if (osu_rma_held(run) && run->sender) {
        MPI_Win_unlock(run->peer, rma->win);
    }

    MPI_Barrier(MPI_COMM_WORLD);
    if (run->opts.win == OSU_WIN_DYNAMIC) {
        MPI_Win_detach(rma->win, rma->mem);
    }
    MPI_Win_free(&rma->win);
    osu_buffer_free(&rma->own);
}

static void osu_rma_alloc(osu_run_t *run)
{
    /* The origin's data and the fetched result, a place for each slot */
    osu_buffer_alloc(&run->sbuf, run->size * run->window, 1, 0,
                     run->opts.fresh);
    osu_buffer_alloc(&run->rbuf, run->size * run->window, 1, 0,
                     run->opts.fresh);
    run->sbuf.stride = run->size;
    run->rbuf.stride = run->size;
    osu_rma_window_make(run);
}

static void osu_rma_free(osu_run_t *run)
{
    osu_rma_window_end(run);
    osu_buffer_free(&run->sbuf);
    osu_buffer_free(&run->rbuf);
}

void osu_rma_setup(osu_run_t *run)
{
    MPI_Group world;

    run->halves = osu_rma_both(run) ? 2 : 1;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &run->peer, &run->rma.peer_group);
    MPI_Group_free(&world);
    osu_rma_alloc(run);
}

void osu_rma_teardown(osu_run_t *run)
{
    osu_rma_free(run);
    MPI_Group_free(&run->rma.peer_group);
}

/* Our own loads and stores of window memory are epochs too */
void osu_rma_local_begin(osu_run_t *run)
{
    if (run->opts.sync == OSU_SYNC_FENCE) {
        MPI_Win_fence(0, run->rma.win);
    } else if (run->opts.sync != OSU_SYNC_PSCW) {
        if (osu_rma_held(run) && run->sender) {
            MPI_Win_flush(run->peer, run->rma.win);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_SHARED, run->rank, 0, run->rma.win);
        MPI_Win_sync(run->rma.win);
    }
}

void osu_rma_local_end(osu_run_t *run)
{
    if (run->opts.sync == OSU_SYNC_FENCE) {
        MPI_Win_fence(0, run->rma.win);
    } else if (run->opts.sync != OSU_SYNC_PSCW) {
        MPI_Win_sync(run->rma.win);
        MPI_Win_unlock(run->rank, run->rma.win);
    }
}

void osu_rma_before(osu_run_t *run, int iter)
{
    int author = osu_rma_window_author(run, run->rank);
    int slot;

    if (run->opts.fresh) {
        osu_rma_free(run);
        osu_rma_alloc(run);
    }

    osu_rma_local_begin(run);
    for (slot = 0; slot < run->window; ++slot) {
        if (osu_rma_origin(run)) {
            osu_pattern_fill(osu_buffer_slot(&run->sbuf, slot), run->size,
                             iter, run->rank, slot);
        }
        if (osu_rma_target(run) &&
            (!run->opts.fresh || osu_rma_reads_window(run))) {
            osu_pattern_fill(osu_rma_mem(run, slot), run->size, iter, author,
                             slot);
        }
        if (osu_rma_origin(run) && !run->opts.fresh) {
            osu_pattern_fill(osu_buffer_slot(&run->rbuf, slot), run->size,
                             iter + 1, osu_rma_window_author(run, run->peer),
                             slot);
        }
    }
    osu_rma_local_end(run);
}

void osu_rma_after(osu_run_t *run, int iter)
{
    int slot;

    osu_rma_local_begin(run);
    for (slot = 0; slot < run->window; ++slot) {
        if (osu_rma_origin(run) && (run->bench->check_origin != NULL)) {
            run->bench->check_origin(run, iter, slot);
        }
        if (osu_rma_target(run) && (run->bench->check_target != NULL)) {
            run->bench->check_target(run, iter, slot);
        }
    }
    osu_rma_local_end(run);
}

void osu_rma_check_put(osu_run_t *run, int iter, int slot)
{
    osu_pattern_check(run, osu_rma_mem(run, slot), run->size, iter, run->peer,
                      slot);
}

void osu_rma_check_fetched(osu_run_t *run, int iter, int slot)
{
    osu_pattern_check(run, osu_buffer_slot(&run->rbuf, slot), run->size, iter,
                      osu_rma_window_author(run, run->peer), slot);
}

/* The operations of one step with passive target synchronization */
static void osu_rma_passive(osu_run_t *run)
{
    MPI_Win win = run->rma.win;
    int slot;

    if (run->opts.sync == OSU_SYNC_LOCK) {
        MPI_Win_lock(MPI_LOCK_SHARED, run->peer, 0, win);
    } else if (run->opts.sync == OSU_SYNC_LOCK_ALL) {
        MPI_Win_lock_all(0, win);
    }

    for (slot = 0; slot < run->window; ++slot) {
        run->bench->op(run, slot);
    }

    if (run->opts.sync == OSU_SYNC_LOCK) {
        MPI_Win_unlock(run->peer, win);
    } else if (run->opts.sync == OSU_SYNC_LOCK_ALL) {
        MPI_Win_unlock_all(win);
    } else if (run->opts.sync == OSU_SYNC_FLUSH_LOCAL) {
        MPI_Win_flush_local(run->peer, win);
    } else {
        MPI_Win_flush(run->peer, win);
    }
}

/* An access epoch if `origin`, an exposure epoch if not */
static void osu_rma_active(osu_run_t *run, int origin)
{
    MPI_Win win = run->rma.win;
    int slot;

    if (run->opts.sync == OSU_SYNC_PSCW) {
        if (!origin) {
            MPI_Win_post(run->rma.peer_group, 0, win);
            MPI_Win_wait(win);
            return;
        }
        MPI_Win_start(run->rma.peer_group, 0, win);
    }

    for (slot = 0; origin && (slot < run->window); ++slot) {
        run->bench->op(run, slot);
    }

    if (run->opts.sync == OSU_SYNC_PSCW) {
        MPI_Win_complete(win);
    } else {
        MPI_Win_fence(0, win);
    }
}

static int osu_rma_is_active(const osu_run_t *run)
{
    return (run->opts.sync == OSU_SYNC_PSCW) ||
           (run->opts.sync == OSU_SYNC_FENCE);
}

void osu_rma_latency_step(osu_run_t *run, int iter)
{
    (void)iter;
    if (osu_rma_is_active(run)) {
        osu_rma_active(run, run->sender);
        osu_rma_active(run, !run->sender);
    } else if (run->sender) {
        osu_rma_passive(run);
    }
}

void osu_rma_bandwidth_step(osu_run_t *run, int iter)
{
    (void)iter;
    if (osu_rma_is_active(run)) {
        osu_rma_active(run, run->sender);
    } else if (run->sender) {
        osu_rma_passive(run);
    }
}
