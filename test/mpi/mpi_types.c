/* SPDX-License-Identifier: BSD-3-Clause */
/* Derived datatypes: every byte of the layout and of its gaps is checked. */
#include "mpi_check.h"

#include <stddef.h>
#include <string.h>

#define ITEMS  5000

typedef struct {
    char    tag;
    double  value;
    int32_t index[3];
    char    tail;
} item_t;

static mc_buf_t tx, rx, packed, expected;

static int byte_type_size(MPI_Datatype type)
{
    int size;

    MPI_Type_size(type, &size);
    return size;
}

/*
 * Sends tx_count of tx_type and receives as rx_type. What must then stand in
 * the receive buffer, gaps included, is made by MPI_Pack and MPI_Unpack on
 * this rank alone, from the pattern that the left neighbour has sent.
 */
static void exchange(const char *what, MPI_Datatype tx_type, int tx_count,
                     MPI_Datatype rx_type, int rx_count, size_t span,
                     int subject)
{
    int         bytes = byte_type_size(tx_type) * tx_count;
    int         pos   = 0;
    MPI_Request req;
    MPI_Status  status;
    int         count;
    size_t      i;

    mc_buf_reset(&tx, span, 0);
    mc_buf_reset(&rx, span, 0);
    mc_buf_reset(&expected, span, 0);
    mc_buf_reset(&packed, bytes, 0);

    mc_fill(tx.data, span, mc_seed(mc_left, subject, 0));
    MPI_Pack(tx.data, tx_count, tx_type, packed.data, bytes, &pos,
             MPI_COMM_SELF);
    pos = 0;
    MPI_Unpack(packed.data, bytes, &pos, expected.data, rx_count, rx_type,
               MPI_COMM_SELF);

    mc_fill(tx.data, span, mc_seed(mc_rank, subject, 0));
    MPI_Irecv(rx.data, rx_count, rx_type, mc_left, subject, MPI_COMM_WORLD,
              &req);
    MPI_Send(tx.data, tx_count, tx_type, mc_right, subject, MPI_COMM_WORLD);
    MPI_Wait(&req, &status);
    MPI_Get_count(&status, rx_type, &count);
    MC_REQUIRE(count == rx_count, "%s: %d items came, %d wanted", what, count,
               rx_count);
    for (i = 0; i < span; ++i) {
        if (rx.data[i] != expected.data[i]) {
            mc_fail("%s: byte %zu of %zu is 0x%02x, 0x%02x wanted", what, i,
                    span, rx.data[i], expected.data[i]);
        }
    }
    mc_buf_check_guards(what, &rx);
    mc_check("source", tx.data, span, mc_seed(mc_rank, subject, 0));
}

static MPI_Datatype make_struct(void)
{
    int          lens[]  = {1, 1, 3, 1};
    MPI_Aint     disps[] = {offsetof(item_t, tag), offsetof(item_t, value),
                            offsetof(item_t, index), offsetof(item_t, tail)};
    MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT32_T, MPI_CHAR};
    MPI_Datatype raw, type;

    MPI_Type_create_struct(4, lens, disps, types, &raw);
    MPI_Type_create_resized(raw, 0, sizeof(item_t), &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&raw);
    return type;
}

static MPI_Datatype make_indexed(int blocks)
{
    static int   lens[ITEMS], disps[ITEMS];
    MPI_Datatype type;
    int          i;

    for (i = 0; i < blocks; ++i) {
        lens[i]  = 1 + (i % 5);
        disps[i] = 9 * i;
    }
    MPI_Type_indexed(blocks, lens, disps, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

static void test_vectors(void)
{
    static const int counts[] = {1, 3, 40, 700, 30000};
    MPI_Datatype     type;
    int              i;

    for (i = 0; i < 5; ++i) {
        MPI_Type_vector(counts[i], 3, 8, MPI_INT32_T, &type);
        MPI_Type_commit(&type);
        exchange("vector to vector", type, 1, type, 1, counts[i] * 32,
                 10 + i);
        exchange("vector to bytes", type, 1, MPI_BYTE, counts[i] * 12,
                 counts[i] * 32, 20 + i);
        exchange("bytes to vector", MPI_INT32_T, counts[i] * 3, type, 1,
                 counts[i] * 32, 30 + i);
        MPI_Type_free(&type);
    }
}

static void test_structs(void)
{
    static const int counts[] = {1, 4, 100, ITEMS};
    MPI_Datatype     type     = make_struct();
    int              bytes    = byte_type_size(type);
    int              i;

    for (i = 0; i < 4; ++i) {
        exchange("struct to struct", type, counts[i], type, counts[i],
                 counts[i] * sizeof(item_t), 40 + i);
        exchange("struct to bytes", type, counts[i], MPI_BYTE,
                 counts[i] * bytes, counts[i] * sizeof(item_t), 50 + i);
    }
    MPI_Type_free(&type);
}

static void test_indexed(void)
{
    static const int blocks[] = {1, 7, 300, ITEMS};
    MPI_Datatype     type;
    int              i;

    for (i = 0; i < 4; ++i) {
        type = make_indexed(blocks[i]);
        exchange("indexed to indexed", type, 1, type, 1, 9 * blocks[i],
                 60 + i);
        exchange("indexed to bytes", type, 1, MPI_BYTE, byte_type_size(type),
                 9 * blocks[i], 70 + i);
        MPI_Type_free(&type);
    }
}

/* A column of one matrix becomes a row of another: strides of 8 KiB. */
static void test_column(void)
{
    MPI_Datatype column;

    MPI_Type_vector(512, 1, 1024, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    exchange("column to column", column, 1, column, 1, 512ul * 8192, 80);
    exchange("row to column", MPI_DOUBLE, 512, column, 1, 512ul * 8192, 81);
    MPI_Type_free(&column);
}

int main(int argc, char **argv)
{
    mc_init(&argc, &argv, MPI_THREAD_SINGLE);
    mc_buf_init(&tx, MC_MAX_SIZE);
    mc_buf_init(&rx, MC_MAX_SIZE);
    mc_buf_init(&packed, MC_MAX_SIZE);
    mc_buf_init(&expected, MC_MAX_SIZE);

    test_vectors();
    test_structs();
    test_indexed();
    test_column();

    mc_buf_free(&tx);
    mc_buf_free(&rx);
    mc_buf_free(&packed);
    mc_buf_free(&expected);
    return mc_finish();
}
