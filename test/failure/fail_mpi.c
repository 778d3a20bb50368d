/* SPDX-License-Identifier: BSD-3-Clause */
/* The last rank kills itself while transfers with it are under way. */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>

#define WINDOW  8
#define TURNS   50
#define SIZE    2000000

int main(int argc, char **argv)
{
    MPI_Request reqs[2 * WINDOW];
    char        *buf = calloc(2 * WINDOW, SIZE);
    int         rank, size, peer, i, turn;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (turn = 0;; ++turn) {
        peer = rank ^ 1;
        for (i = 0; i < 2 * WINDOW; i += 2) {
            MPI_Irecv(buf + (long)i * SIZE, SIZE >> (turn % 18), MPI_BYTE,
                      peer, i, MPI_COMM_WORLD, &reqs[i]);
            MPI_Isend(buf + (long)(i + 1) * SIZE, SIZE >> (turn % 18),
                      MPI_BYTE, peer, i, MPI_COMM_WORLD, &reqs[i + 1]);
        }
        if ((turn == TURNS) && (rank == size - 1)) {
            raise(SIGKILL);
        }
        MPI_Waitall(2 * WINDOW, reqs, MPI_STATUSES_IGNORE);
    }
}
