/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives, on the world, on split and duplicated communicators. */
#include "mpi_check.h"

#include <stdlib.h>
#include <string.h>

#define MAX_COUNT  200000

static const int counts[] = {1, 2, 7, 100, 1000, 9001, 65536, MAX_COUNT};
#define NUM_COUNTS ((int)(sizeof(counts) / sizeof(counts[0])))

static MPI_Comm comm;
static int      rank, size;
static int64_t  *tx, *rx;

/* The value that a rank contributes at an index. */
static int64_t value(int from, int index, int turn)
{
    return ((int64_t)(from + 1) << 40) + ((int64_t)turn << 32) + index * 3;
}

static int64_t sum_of_values(int last, int index, int turn)
{
    int64_t sum = 0;
    int     i;

    for (i = 0; i <= last; ++i) {
        sum += value(i, index, turn);
    }
    return sum;
}

static void fill(int count, int turn)
{
    int i;

    for (i = 0; i < count; ++i) {
        tx[i] = value(rank, i, turn);
    }
    memset(rx, 0x5a, (size_t)count * size * sizeof(*rx));
}

static void require(const char *what, int index, int64_t found,
                    int64_t wanted)
{
    if (found != wanted) {
        mc_fail("%s: item %d is %llx, %llx wanted", what, index,
                (long long)found, (long long)wanted);
    }
}

static void test_bcast(int count, int turn)
{
    int root = turn % size;
    int i;

    fill(count, turn);
    MPI_Bcast(tx, count, MPI_INT64_T, root, comm);
    for (i = 0; i < count; ++i) {
        require("bcast", i, tx[i], value(root, i, turn));
    }
    mc_count();
}

static void test_reduce(int count, int turn)
{
    int         root = turn % size;
    MPI_Request req;
    int         i;

    fill(count, turn);
    MPI_Reduce(tx, rx, count, MPI_INT64_T, MPI_SUM, root, comm);
    for (i = 0; (rank == root) && (i < count); ++i) {
        require("reduce", i, rx[i], sum_of_values(size - 1, i, turn));
    }

    fill(count, turn);
    MPI_Allreduce(tx, rx, count, MPI_INT64_T, MPI_SUM, comm);
    for (i = 0; i < count; ++i) {
        require("allreduce", i, rx[i], sum_of_values(size - 1, i, turn));
    }

    fill(count, turn);
    MPI_Iallreduce(tx, rx, count, MPI_INT64_T, MPI_MAX, comm, &req);
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    for (i = 0; i < count; ++i) {
        require("iallreduce", i, rx[i], value(size - 1, i, turn));
    }

    fill(count, turn);
    MPI_Scan(tx, rx, count, MPI_INT64_T, MPI_SUM, comm);
    for (i = 0; i < count; ++i) {
        require("scan", i, rx[i], sum_of_values(rank, i, turn));
    }

    fill(count, turn);
    MPI_Exscan(tx, rx, count, MPI_INT64_T, MPI_SUM, comm);
    for (i = 0; (rank > 0) && (i < count); ++i) {
        require("exscan", i, rx[i], sum_of_values(rank - 1, i, turn));
    }
    mc_count();
}

static void test_reduce_scatter(int count, int turn)
{
    int *parts = malloc(size * sizeof(*parts));
    int total  = 0;
    int i, first;

    for (i = 0, first = 0; i < size; ++i) {
        parts[i] = (count / size) + (i % 2);
        first    = (i == rank) ? total : first;
        total   += parts[i];
    }
    fill(total, turn);
    MPI_Reduce_scatter(tx, rx, parts, MPI_INT64_T, MPI_SUM, comm);
    for (i = 0; i < parts[rank]; ++i) {
        require("reduce_scatter", i, rx[i],
                sum_of_values(size - 1, first + i, turn));
    }
    free(parts);
    mc_count();
}

static void test_gather(int count, int turn)
{
    int root = turn % size;
    int i, k;

    fill(count, turn);
    MPI_Gather(tx, count, MPI_INT64_T, rx, count, MPI_INT64_T, root, comm);
    for (k = 0; (rank == root) && (k < size); ++k) {
        for (i = 0; i < count; ++i) {
            require("gather", i, rx[k * count + i], value(k, i, turn));
        }
    }

    fill(count, turn);
    MPI_Allgather(tx, count, MPI_INT64_T, rx, count, MPI_INT64_T, comm);
    for (k = 0; k < size; ++k) {
        for (i = 0; i < count; ++i) {
            require("allgather", i, rx[k * count + i], value(k, i, turn));
        }
    }
    mc_count();
}

/* Rank k gives count - k items (not below 0). */
static void test_gatherv(int count, int turn)
{
    int *lens  = malloc(2 * size * sizeof(*lens));
    int *disps = lens + size;
    int root   = turn % size;
    int i, k, all;

    for (k = 0; k < size; ++k) {
        lens[k]  = (count > k) ? count - k : 0;
        disps[k] = k * count;
    }
    for (all = 0; all < 2; ++all) {
        fill(count, turn);
        if (all) {
            MPI_Allgatherv(tx, lens[rank], MPI_INT64_T, rx, lens, disps,
                           MPI_INT64_T, comm);
        } else {
            MPI_Gatherv(tx, lens[rank], MPI_INT64_T, rx, lens, disps,
                        MPI_INT64_T, root, comm);
        }
        for (k = 0; (all || (rank == root)) && (k < size); ++k) {
            for (i = 0; i < lens[k]; ++i) {
                require("gatherv", i, rx[disps[k] + i], value(k, i, turn));
            }
        }
    }
    free(lens);
    mc_count();
}

static void test_scatter(int count, int turn)
{
    int per  = count / size;
    int root = turn % size;
    int i;

    fill(count, turn);
    MPI_Scatter(tx, per, MPI_INT64_T, rx, per, MPI_INT64_T, root, comm);
    for (i = 0; i < per; ++i) {
        require("scatter", i, rx[i], value(root, rank * per + i, turn));
    }
    mc_count();
}

static void test_alltoall(int count, int turn)
{
    int *lens  = malloc(4 * size * sizeof(*lens));
    int *from  = lens + size, *rx_lens = from + size, *to = rx_lens + size;
    int per    = count / size;
    int i, k;

    fill(count, turn);
    MPI_Alltoall(tx, per, MPI_INT64_T, rx, per, MPI_INT64_T, comm);
    for (k = 0; k < size; ++k) {
        for (i = 0; i < per; ++i) {
            require("alltoall", i, rx[k * per + i],
                    value(k, rank * per + i, turn));
        }
    }

    /* To rank k go per - k % 3 items; nothing where that is negative. */
    for (k = 0; k < size; ++k) {
        lens[k]    = (per > (k % 3)) ? per - (k % 3) : 0;
        from[k]    = k * per;
        rx_lens[k] = (per > (rank % 3)) ? per - (rank % 3) : 0;
        to[k]      = k * per;
    }
    fill(count, turn);
    MPI_Alltoallv(tx, lens, from, MPI_INT64_T, rx, rx_lens, to, MPI_INT64_T,
                  comm);
    for (k = 0; k < size; ++k) {
        for (i = 0; i < rx_lens[k]; ++i) {
            require("alltoallv", i, rx[to[k] + i],
                    value(k, rank * per + i, turn));
        }
    }
    free(lens);
    mc_count();
}

/* Nobody leaves a barrier before all have come: a counter in rank 0 knows. */
static void test_barrier(void)
{
    MPI_Request req;
    MPI_Win     win;
    int64_t     *arrived, one = 1, seen;
    int         i;

    MPI_Win_allocate(sizeof(*arrived), 1, MPI_INFO_NULL, comm, &arrived,
                     &win);
    *arrived = 0;
    MPI_Barrier(comm);
    MPI_Win_lock_all(0, win);
    for (i = 1; i <= 50; ++i) {
        MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM,
                       win);
        MPI_Win_flush(0, win);
        if (i & 1) {
            MPI_Barrier(comm);
        } else {
            MPI_Ibarrier(comm, &req);
            MPI_Wait(&req, MPI_STATUS_IGNORE);
        }
        MPI_Fetch_and_op(&one, &seen, MPI_INT64_T, 0, 0, MPI_NO_OP, win);
        MPI_Win_flush(0, win);
        MC_REQUIRE(seen >= (int64_t)i * size,
                   "left barrier %d when %lld of %d had come", i,
                   (long long)seen - (int64_t)(i - 1) * size, size);
        MPI_Barrier(comm);
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

/* Several collectives are in flight at once. */
static void test_nonblocking(int turn)
{
    enum { FLIGHTS = 8, COUNT = 2000 };
    MPI_Request reqs[FLIGHTS];
    int         i, k;

    fill(FLIGHTS * COUNT, turn);
    for (k = 0; k < FLIGHTS; ++k) {
        if (k & 1) {
            MPI_Iallreduce(tx + k * COUNT, rx + k * COUNT, COUNT, MPI_INT64_T,
                           MPI_SUM, comm, &reqs[k]);
        } else {
            MPI_Ibcast(tx + k * COUNT, COUNT, MPI_INT64_T, k % size, comm,
                       &reqs[k]);
        }
    }
    MPI_Waitall(FLIGHTS, reqs, MPI_STATUSES_IGNORE);
    for (k = 0; k < FLIGHTS; ++k) {
        for (i = k * COUNT; i < (k + 1) * COUNT; ++i) {
            if (k & 1) {
                require("iallreduce", i, rx[i],
                        sum_of_values(size - 1, i, turn));
            } else {
                require("ibcast", i, tx[i], value(k % size, i, turn));
            }
        }
    }
    mc_count();
}

static void test_comm(MPI_Comm use)
{
    int i, turn = 0;

    comm = use;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (i = 0; i < NUM_COUNTS; ++i) {
        test_bcast(counts[i], ++turn);
        test_reduce(counts[i], ++turn);
        test_reduce_scatter(counts[i], ++turn);
        test_gather(counts[i], ++turn);
        test_gatherv(counts[i], ++turn);
        test_scatter(counts[i], ++turn);
        test_alltoall(counts[i], ++turn);
    }
    test_nonblocking(++turn);
    test_barrier();
}

int main(int argc, char **argv)
{
    MPI_Comm other;

    mc_init(&argc, &argv, MPI_THREAD_SINGLE);
    tx = malloc((MAX_COUNT + mc_size) * sizeof(*tx));
    rx = malloc((size_t)(MAX_COUNT + mc_size) * mc_size * sizeof(*rx));
    test_comm(MPI_COMM_WORLD);

    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    test_comm(other);
    MPI_Comm_free(&other);

    MPI_Comm_split(MPI_COMM_WORLD, mc_rank & 1, -mc_rank, &other);
    test_comm(other);
    MPI_Comm_free(&other);

    free(tx);
    free(rx);
    return mc_finish();
}
