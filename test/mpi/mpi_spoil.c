/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Preloaded into an MPI program: turns one bit of one received message, to
 * prove that the program's checks see it.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>

#define SPOILT_CALL  20

int MPI_Recv(void *buf, int count, MPI_Datatype type, int source, int tag,
             MPI_Comm comm, MPI_Status *status)
{
    static int calls = 0;
    int        ret   = PMPI_Recv(buf, count, type, source, tag, comm, status);

    if ((++calls >= SPOILT_CALL) && (type == MPI_BYTE) && (count > 0)) {
        ((uint8_t*)buf)[count / 2] ^= 1;
        calls = INT32_MIN;
    }
    return ret;
}
