/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided transfers of very many small pieces, by datatypes of every kind. */
#include "mpi_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one call transfers: enough for anything that grows with the square of
 * what is in flight to exceed the time limit */
#define PIECES  100000

/* Of the types beside the first */
#define FEWER   10

/* Ints from the beginning of a piece to that of the next, at most */
#define STRIDE  4

/* Windows, one after the other */
#define MAX_USED 64

typedef enum {
    OP_PUT,
    OP_GET,
    OP_ACCUMULATE,
    OP_GET_ACCUMULATE,
    OP_LAST
} rma_op_t;

static const char *op_names[OP_LAST] = {
    "put", "get", "accumulate", "get_accumulate"
};

/* A datatype, and which ints of a row it means, in its order */
typedef struct {
    const char   *name;
    MPI_Datatype type;
    int          count;  /* of the type, in one call */
    int          num;    /* ints in all */
    int          *index; /* of each */
} layout_t;

static int     ints;     /* of a row */
static int     *base;    /* the window: new memory for each transfer, whose
                            pages no peer has asked for yet */
static int     *source;
static int     *result;
static int     *is_moved; /* of each int of a row: does the type mean it? */
static MPI_Win win;
static int     *used[MAX_USED];
static int     num_used;

static int base_value(int rank, int turn, int i)
{
    return (rank * 1000003) + (turn * 7919) + (i * 5);
}

static int source_value(int rank, int turn, int i)
{
    return (rank * 10007) + (turn * 104729) + (i * 3) + 1;
}

static int result_blank(int i)
{
    return -1 - i;
}

static void layout_add(layout_t *layout, int index)
{
    layout->index[layout->num++] = index;
}

/* One int in each two */
static void layout_vector(layout_t *layout, int pieces)
{
    int i;

    MPI_Type_vector(pieces, 1, 2, MPI_INT, &layout->type);
    for (i = 0; i < pieces; ++i) {
        layout_add(layout, i * 2);
    }
}

/* The columns of a matrix, as a transpose takes them */
static void layout_columns(layout_t *layout, int pieces)
{
    MPI_Datatype column;
    int          side = 1, i, k;

    while (((side + 1) * (side + 1)) <= pieces) {
        ++side;
    }

    MPI_Type_vector(side, 1, side, MPI_INT, &column);
    MPI_Type_create_resized(column, 0, sizeof(int), &layout->type);
    MPI_Type_free(&column);
    layout->count = side;
    for (k = 0; k < side; ++k) {
        for (i = 0; i < side; ++i) {
            layout_add(layout, (i * side) + k);
        }
    }
}

/* Pieces of one int and of two, from the end of the row to its beginning */
static void layout_indexed(layout_t *layout, int pieces)
{
    int *lens  = malloc(pieces * sizeof(*lens));
    int *disps = malloc(pieces * sizeof(*disps));
    int i, k;

    for (i = 0; i < pieces; ++i) {
        lens[i]  = 1 + (i % 2);
        disps[i] = (pieces - 1 - i) * STRIDE;
        for (k = 0; k < lens[i]; ++k) {
            layout_add(layout, disps[i] + k);
        }
    }
    MPI_Type_indexed(pieces, lens, disps, MPI_INT, &layout->type);
    free(lens);
    free(disps);
}

/* Ints with gaps of several sizes. One structure of all: Open MPI 4.1.4
 * accumulates many structures into a buffer that is too small. */
static void layout_struct(layout_t *layout, int pieces)
{
    MPI_Datatype *types = malloc(pieces * sizeof(*types));
    MPI_Aint     *disps = malloc(pieces * sizeof(*disps));
    int          *lens  = malloc(pieces * sizeof(*lens));
    int          i;

    for (i = 0; i < pieces; ++i) {
        types[i] = MPI_INT;
        lens[i]  = 1;
        disps[i] = ((i * STRIDE) + (i % 3)) * sizeof(int);
        layout_add(layout, (i * STRIDE) + (i % 3));
    }
    MPI_Type_create_struct(pieces, lens, disps, types, &layout->type);
    free(types);
    free(disps);
    free(lens);
}

/* Contiguous elements, each of which has a gap */
static void layout_contiguous(layout_t *layout, int pieces)
{
    MPI_Datatype wide;
    int          i;

    MPI_Type_create_resized(MPI_INT, 0, 3 * sizeof(int), &wide);
    MPI_Type_contiguous(pieces, wide, &layout->type);
    MPI_Type_free(&wide);
    for (i = 0; i < pieces; ++i) {
        layout_add(layout, i * 3);
    }
}

static void open_window(void)
{
    size_t bytes = ints * sizeof(int);

    base = malloc(bytes);
    MPI_Win_create(base, bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD,
                   &win);
}

/* Its memory stays: the next one shall have other */
static void close_window(void)
{
    MPI_Win_free(&win);
    if (num_used == MAX_USED) {
        mc_fail("more than %d windows", MAX_USED);
    }
    used[num_used++] = base;
}

static void fill(int turn)
{
    int i;

    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, mc_rank, 0, win);
    for (i = 0; i < ints; ++i) {
        base[i]   = base_value(mc_rank, turn, i);
        source[i] = source_value(mc_rank, turn, i);
        result[i] = result_blank(i);
    }
    MPI_Win_unlock(mc_rank, win);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void transfer(const layout_t *layout, rma_op_t op)
{
    const MPI_Datatype type = layout->type;
    const int          num  = layout->count;

    MPI_Win_fence(0, win);
    switch (op) {
    case OP_PUT:
        MPI_Put(source, num, type, mc_right, 0, num, type, win);
        break;
    case OP_GET:
        MPI_Get(result, num, type, mc_right, 0, num, type, win);
        break;
    case OP_ACCUMULATE:
        MPI_Accumulate(source, num, type, mc_right, 0, num, type, MPI_SUM,
                       win);
        break;
    default:
        MPI_Get_accumulate(source, num, type, result, num, type, mc_right, 0,
                           num, type, MPI_SUM, win);
    }
    MPI_Win_fence(0, win);
}

/* All of the window and of the result, gaps too */
static void check(const layout_t *layout, rma_op_t op, int turn)
{
    const int gets = (op == OP_GET) || (op == OP_GET_ACCUMULATE);
    int       i, want;

    for (i = 0; i < ints; ++i) {
        is_moved[i] = 0;
    }
    for (i = 0; i < layout->num; ++i) {
        is_moved[layout->index[i]] = 1;
    }

    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, mc_rank, 0, win);
    for (i = 0; i < ints; ++i) {
        want = base_value(mc_rank, turn, i);
        if (is_moved[i] && (op == OP_PUT)) {
            want = source_value(mc_left, turn, i);
        } else if (is_moved[i] && (op != OP_GET)) {
            want += source_value(mc_left, turn, i);
        }
        MC_REQUIRE(base[i] == want, "%s of %s: int %d is %d, %d wanted",
                   op_names[op], layout->name, i, base[i], want);

        want = (is_moved[i] && gets) ? base_value(mc_right, turn, i) :
               result_blank(i);
        MC_REQUIRE(result[i] == want, "%s of %s: result %d is %d, %d wanted",
                   op_names[op], layout->name, i, result[i], want);
    }
    MPI_Win_unlock(mc_rank, win);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void test_layout(const char *name,
                        void (*make)(layout_t *layout, int pieces), int pieces,
                        rma_op_t last)
{
    static int turn = 0;
    layout_t   layout;
    double     begin;
    rma_op_t   op;

    layout.name  = name;
    layout.count = 1;
    layout.num   = 0;
    layout.index = malloc((size_t)pieces * STRIDE * sizeof(*layout.index));
    make(&layout, pieces);
    MPI_Type_commit(&layout.type);

    for (op = OP_PUT; op <= last; ++op, ++turn) {
        open_window();
        fill(turn);
        begin = MPI_Wtime();
        transfer(&layout, op);
        if (mc_rank == 0) {
            printf("# %s of %s, %d ints: %.3f s\n", op_names[op], name,
                   layout.num, MPI_Wtime() - begin);
        }
        check(&layout, op, turn);
        close_window();
    }

    MPI_Type_free(&layout.type);
    free(layout.index);
}

int main(int argc, char **argv)
{
    int    pieces;
    size_t bytes;

    mc_init(&argc, &argv, MPI_THREAD_SINGLE);
    pieces = (argc > 1) ? atoi(argv[1]) : PIECES;
    ints   = pieces * 2;
    if (ints < ((pieces / FEWER) * STRIDE)) {
        mc_fail("%d pieces", pieces);
    }

    bytes  = ints * sizeof(int);
    source = malloc(bytes);
    result = malloc(bytes);
    is_moved = malloc(bytes);

    test_layout("vector", layout_vector, pieces, OP_GET_ACCUMULATE);
    /* Open MPI 4.1.4 accumulates into a buffer that is too small for a type
     * whose extent is smaller than what it spans, whatever the transport */
    test_layout("columns", layout_columns, pieces / FEWER, OP_GET);
    test_layout("indexed", layout_indexed, pieces / FEWER, OP_GET_ACCUMULATE);
    test_layout("struct", layout_struct, pieces / FEWER, OP_GET_ACCUMULATE);
    test_layout("contiguous", layout_contiguous, pieces / FEWER,
                OP_GET_ACCUMULATE);

    while (num_used > 0) {
        free(used[--num_used]);
    }
    free(source);
    free(result);
    free(is_moved);
    return mc_finish();
}
