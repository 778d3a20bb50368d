/* SPDX-License-Identifier: BSD-3-Clause */
/* Children are born and die in the middle of traffic; nothing is lost. */
#define _GNU_SOURCE
#include "mpi_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURNS   24
#define WINDOW  12

typedef enum {
    CHILD_EXIT,       /* exit handlers of all libraries run */
    CHILD_UNDER_EXIT,
    CHILD_EXEC,
    CHILD_SYSTEM,
    CHILD_DIRTY,      /* writes over every buffer, then exits */
    CHILD_LAST
} child_kind_t;

static mc_buf_t tx[WINDOW], rx[WINDOW];

static pid_t child_start(child_kind_t kind)
{
    pid_t pid;
    int   i;

    if (kind == CHILD_SYSTEM) {
        i = system("true");
        MC_REQUIRE(i == 0, "system(\"true\") gave %d", i);
        return 0;
    }

    pid = fork();
    if (pid != 0) {
        MC_REQUIRE(pid > 0, "fork: %s", strerror(errno));
        return pid;
    }

    switch (kind) {
    case CHILD_EXIT:
        exit(7);
    case CHILD_UNDER_EXIT:
        _exit(7);
    case CHILD_EXEC:
        execl("/bin/sh", "sh", "-c", "exit 7", (char*)NULL);
        _exit(1);
    default:
        for (i = 0; i < WINDOW; ++i) {
            memset(tx[i].data, 0xdd, tx[i].size);
            memset(rx[i].data, 0xdd, rx[i].size);
        }
        exit(7);
    }
}

static void child_end(pid_t pid)
{
    int status;

    if (pid == 0) {
        return;
    }
    MC_REQUIRE(waitpid(pid, &status, 0) == pid, "waitpid: %s",
               strerror(errno));
    MC_REQUIRE(WIFEXITED(status) && (WEXITSTATUS(status) == 7),
               "the child ended with status 0x%x, exit code 7 wanted",
               status);
}

static void traffic_start(int turn, MPI_Request *reqs)
{
    static const size_t lens[] = {8, 700, 9000, 65537, 400000, 1000000};
    int                 i;
    size_t              len;

    for (i = 0; i < WINDOW; ++i) {
        len = lens[(i + turn) % 6];
        mc_buf_reset(&rx[i], len, turn);
        mc_buf_reset(&tx[i], len, i);
        mc_fill(tx[i].data, len, mc_seed(mc_rank, i, turn));
        MPI_Irecv(rx[i].data, len, MPI_BYTE, mc_left, i, MPI_COMM_WORLD,
                  &reqs[i]);
    }
    for (i = 0; i < WINDOW; ++i) {
        MPI_Isend(tx[i].data, tx[i].size, MPI_BYTE, mc_right, i,
                  MPI_COMM_WORLD, &reqs[WINDOW + i]);
    }
}

/* RMA into a window whose pages the fork has made copy-on-write. */
static void test_window(void)
{
    size_t  len = 200000;
    uint8_t *base;
    MPI_Win win;
    int     turn;
    pid_t   pid;

    MPI_Win_allocate(len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    for (turn = 0; turn < CHILD_LAST; ++turn) {
        mc_buf_reset(&tx[0], len, 0);
        mc_fill(tx[0].data, len, mc_seed(mc_rank, 50, turn));
        pid = child_start(turn);
        MPI_Win_lock(MPI_LOCK_SHARED, mc_right, 0, win);
        MPI_Put(tx[0].data, len, MPI_BYTE, mc_right, 0, len, MPI_BYTE, win);
        MPI_Win_unlock(mc_right, win);
        child_end(pid);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, mc_rank, 0, win);
        mc_check("put around a fork", base, len, mc_seed(mc_left, 50, turn));
        MPI_Win_unlock(mc_rank, win);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    MPI_Request reqs[2 * WINDOW];
    pid_t       pid;
    int         i, turn;

    mc_init(&argc, &argv, MPI_THREAD_SINGLE);
    for (i = 0; i < WINDOW; ++i) {
        mc_buf_init(&tx[i], 1000000);
        mc_buf_init(&rx[i], 1000000);
    }
    for (turn = 0; turn < TURNS; ++turn) {
        traffic_start(turn, reqs);
        pid = child_start(turn % CHILD_LAST);
        MPI_Waitall(2 * WINDOW, reqs, MPI_STATUSES_IGNORE);
        child_end(pid);
        for (i = 0; i < WINDOW; ++i) {
            mc_buf_check("around a fork", &rx[i], mc_seed(mc_left, i, turn));
            mc_check("source", tx[i].data, tx[i].size,
                     mc_seed(mc_rank, i, turn));
        }
    }
    test_window();
    for (i = 0; i < WINDOW; ++i) {
        mc_buf_free(&tx[i]);
        mc_buf_free(&rx[i]);
    }
    return mc_finish();
}
