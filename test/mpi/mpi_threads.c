/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_THREAD_MULTIPLE: several threads of each rank talk at the same time. */
#include "mpi_check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS  4
#define TURNS    60
#define WINDOW   8
#define MAX_LEN  300000

typedef struct {
    int      index;
    MPI_Comm comm;       /* this thread's own */
    MPI_Win  win;
    uint8_t  *win_base;
} thread_arg_t;

static const size_t lens[] = {0, 1, 8, 64, 900, 8192, 20000, 100000, MAX_LEN};
#define NUM_LENS ((int)(sizeof(lens) / sizeof(lens[0])))

/* Windows of messages both ways, all threads on one communicator. */
static void talk_by_tags(thread_arg_t *arg, mc_buf_t *tx, mc_buf_t *rx)
{
    MPI_Request reqs[2 * WINDOW];
    int         i, turn, subject;
    size_t      len;

    for (turn = 0; turn < TURNS; ++turn) {
        len = lens[(turn + arg->index) % NUM_LENS];
        for (i = 0; i < WINDOW; ++i) {
            subject = (arg->index * WINDOW) + i;
            mc_buf_reset(&rx[i], len, turn);
            mc_buf_reset(&tx[i], len, i);
            mc_fill(tx[i].data, len, mc_seed(mc_rank, subject, turn));
            MPI_Irecv(rx[i].data, len, MPI_BYTE, mc_left, subject,
                      MPI_COMM_WORLD, &reqs[i]);
            MPI_Isend(tx[i].data, len, MPI_BYTE, mc_right, subject,
                      MPI_COMM_WORLD, &reqs[WINDOW + i]);
        }
        MPI_Waitall(2 * WINDOW, reqs, MPI_STATUSES_IGNORE);
        for (i = 0; i < WINDOW; ++i) {
            subject = (arg->index * WINDOW) + i;
            mc_buf_check("threads by tags", &rx[i],
                         mc_seed(mc_left, subject, turn));
        }
    }
}

/* The same tag in every thread, but a communicator of its own. */
static void talk_by_comms(thread_arg_t *arg, mc_buf_t *tx, mc_buf_t *rx)
{
    int    turn, sum, mine;
    size_t len;

    for (turn = 0; turn < TURNS; ++turn) {
        len = lens[(turn + 2 * arg->index) % NUM_LENS];
        mc_buf_reset(rx, len, turn);
        mc_buf_reset(tx, len, turn);
        mc_fill(tx->data, len, mc_seed(mc_rank, 100 + arg->index, turn));
        MPI_Sendrecv(tx->data, len, MPI_BYTE, mc_right, 1, rx->data, len,
                     MPI_BYTE, mc_left, 1, arg->comm, MPI_STATUS_IGNORE);
        mc_buf_check("threads by communicators", rx,
                     mc_seed(mc_left, 100 + arg->index, turn));

        mine = mc_rank + turn + arg->index;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, arg->comm);
        MC_REQUIRE(sum == mc_size * (turn + arg->index) +
                   (mc_size * (mc_size - 1) / 2),
                   "allreduce in thread %d gave %d", arg->index, sum);
    }
}

/* Put into the neighbour's part of this thread, read the own part itself. */
static void talk_by_rma(thread_arg_t *arg, mc_buf_t *tx)
{
    int    turn;
    size_t len;

    for (turn = 0; turn < TURNS / 2; ++turn) {
        len = lens[(turn + 3 * arg->index) % NUM_LENS];
        mc_buf_reset(tx, len, turn);
        mc_fill(tx->data, len, mc_seed(mc_rank, 200 + arg->index, turn));
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, mc_right, 0, arg->win);
        MPI_Put(tx->data, len, MPI_BYTE, mc_right, 0, len, MPI_BYTE,
                arg->win);
        MPI_Win_unlock(mc_right, arg->win);
        MPI_Barrier(arg->comm);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, mc_rank, 0, arg->win);
        mc_check("put by threads", arg->win_base, len,
                 mc_seed(mc_left, 200 + arg->index, turn));
        MPI_Win_unlock(mc_rank, arg->win);
        MPI_Barrier(arg->comm);
    }
}

static void *thread_main(void *ptr)
{
    thread_arg_t *arg = ptr;
    mc_buf_t     tx[WINDOW], rx[WINDOW];
    int          i;

    for (i = 0; i < WINDOW; ++i) {
        mc_buf_init(&tx[i], MAX_LEN);
        mc_buf_init(&rx[i], MAX_LEN);
    }
    talk_by_tags(arg, tx, rx);
    talk_by_comms(arg, tx, rx);
    if (arg->win != MPI_WIN_NULL) {
        talk_by_rma(arg, tx);
    }
    for (i = 0; i < WINDOW; ++i) {
        mc_buf_free(&tx[i]);
        mc_buf_free(&rx[i]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    thread_arg_t args[THREADS];
    pthread_t    threads[THREADS];
    int          i, rma;

    mc_init(&argc, &argv, MPI_THREAD_MULTIPLE);
    rma = (argc > 1) && (strcmp(argv[1], "rma") == 0);
    for (i = 0; i < THREADS; ++i) {
        args[i].index = i;
        args[i].win   = MPI_WIN_NULL;
        MPI_Comm_dup(MPI_COMM_WORLD, &args[i].comm);
        if (rma) {
            MPI_Win_allocate(MAX_LEN, 1, MPI_INFO_NULL, args[i].comm,
                             &args[i].win_base, &args[i].win);
        }
    }
    for (i = 0; i < THREADS; ++i) {
        if (pthread_create(&threads[i], NULL, thread_main, &args[i]) != 0) {
            mc_fail("cannot start thread %d", i);
        }
    }
    for (i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (i = 0; i < THREADS; ++i) {
        if (rma) {
            MPI_Win_free(&args[i].win);
        }
        MPI_Comm_free(&args[i].comm);
    }
    return mc_finish();
}
