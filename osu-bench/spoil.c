/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * PMPI shim for selftest.sh: spoils one byte of one transfer of one rank.
 * OSU_SPOIL_CALL: which transfer, from 1; OSU_SPOIL_RANK: whose;
 * OSU_SPOIL_BYTE: first or last; OSU_SPOIL_HOW: flip its bits or, where the
 * call has a count, leave it out so that the receiver keeps the old byte.
 */

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static int spoil_number(const char *name, int value)
{
    const char *text = getenv(name);

    return text == NULL ? value : atoi(text);
}

static int spoil_is(const char *name, const char *value)
{
    const char *text = getenv(name);

    return (text != NULL) && (strcmp(text, value) == 0);
}

/* Returns the number of bytes to leave out */
static int spoil(const void *data, size_t size)
{
    static int calls = 0;
    char *bytes      = (char*)data;
    int rank;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if ((size == 0) || (rank != spoil_number("OSU_SPOIL_RANK", 0)) ||
        (++calls != spoil_number("OSU_SPOIL_CALL", 0))) {
        return 0;
    }

    if (spoil_is("OSU_SPOIL_HOW", "leave")) {
        return 1;
    }

    bytes[spoil_is("OSU_SPOIL_BYTE", "last") ? size - 1 : 0] ^= 0xff;
    return 0;
}

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag,
             MPI_Comm comm)
{
    count -= spoil(buf, count);
    return PMPI_Send(buf, count, type, dest, tag, comm);
}

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int dest, int tag,
              MPI_Comm comm, MPI_Request *request)
{
    count -= spoil(buf, count);
    return PMPI_Isend(buf, count, type, dest, tag, comm, request);
}

int MPI_Put(const void *buf, int count, MPI_Datatype type, int target,
            MPI_Aint disp, int target_count, MPI_Datatype target_type,
            MPI_Win win)
{
    int less = spoil(buf, count);

    return PMPI_Put(buf, count - less, type, target, disp, target_count - less,
                    target_type, win);
}

/* What a Get brings cannot be spoilt beforehand: it brings too little */
int MPI_Get(void *buf, int count, MPI_Datatype type, int target, MPI_Aint disp,
            int target_count, MPI_Datatype target_type, MPI_Win win)
{
    int less = spoil(buf, count);

    return PMPI_Get(buf, count - less, type, target, disp, target_count - less,
                    target_type, win);
}

int MPI_Accumulate(const void *buf, int count, MPI_Datatype type, int target,
                   MPI_Aint disp, int target_count, MPI_Datatype target_type,
                   MPI_Op op, MPI_Win win)
{
    int less = spoil(buf, count);

    return PMPI_Accumulate(buf, count - less, type, target, disp,
                           target_count - less, target_type, op, win);
}

int MPI_Fetch_and_op(const void *buf, void *result, MPI_Datatype type,
                     int target, MPI_Aint disp, MPI_Op op, MPI_Win win)
{
    spoil(buf, 8);
    return PMPI_Fetch_and_op(buf, result, type, target, disp, op, win);
}

int MPI_Compare_and_swap(const void *buf, const void *compare, void *result,
                         MPI_Datatype type, int target, MPI_Aint disp,
                         MPI_Win win)
{
    spoil(buf, 8);
    return PMPI_Compare_and_swap(buf, compare, result, type, target, disp,
                                 win);
}

int MPI_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    spoil(buf, count);
    return PMPI_Bcast(buf, count, type, root, comm);
}

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count,
                  MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    /* The programs also sum their error counts, in place */
    if (sendbuf != MPI_IN_PLACE) {
        spoil(sendbuf, count * sizeof(int));
    }
    return PMPI_Allreduce(sendbuf, recvbuf, count, type, op, comm);
}

int MPI_Alltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                 void *recvbuf, int recvcount, MPI_Datatype recvtype,
                 MPI_Comm comm)
{
    spoil(sendbuf, sendcount);
    return PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount,
                         recvtype, comm);
}
