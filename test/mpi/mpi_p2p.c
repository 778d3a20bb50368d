/* SPDX-License-Identifier: BSD-3-Clause */
/* Point to point in every mode, around a ring of all ranks. */
#include "mpi_check.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SIZES  256
#define WINDOW     64

typedef enum {
    MODE_SEND,
    MODE_SSEND,
    MODE_BSEND,
    MODE_RSEND,
    MODE_ISEND,
    MODE_ISSEND,
    MODE_IBSEND,
    MODE_LAST
} p2p_mode_t;

static const char *mode_names[MODE_LAST] = {"send",  "ssend",  "bsend", "rsend",
                                            "isend", "issend", "ibsend"};

static size_t   sizes[MAX_SIZES];
static int      num_sizes;
static mc_buf_t tx, rx;

static void p2p_send(p2p_mode_t mode, const mc_buf_t *buf, int tag)
{
    MPI_Request req = MPI_REQUEST_NULL;
    int         n   = buf->size;

    switch (mode) {
    case MODE_SEND:
        MPI_Send(buf->data, n, MPI_BYTE, mc_right, tag, MPI_COMM_WORLD);
        break;
    case MODE_SSEND:
        MPI_Ssend(buf->data, n, MPI_BYTE, mc_right, tag, MPI_COMM_WORLD);
        break;
    case MODE_BSEND:
        MPI_Bsend(buf->data, n, MPI_BYTE, mc_right, tag, MPI_COMM_WORLD);
        break;
    case MODE_RSEND:
        MPI_Rsend(buf->data, n, MPI_BYTE, mc_right, tag, MPI_COMM_WORLD);
        break;
    case MODE_ISEND:
        MPI_Isend(buf->data, n, MPI_BYTE, mc_right, tag, MPI_COMM_WORLD,
                  &req);
        break;
    case MODE_ISSEND:
        MPI_Issend(buf->data, n, MPI_BYTE, mc_right, tag, MPI_COMM_WORLD,
                   &req);
        break;
    default:
        MPI_Ibsend(buf->data, n, MPI_BYTE, mc_right, tag, MPI_COMM_WORLD,
                   &req);
        break;
    }
    MPI_Wait(&req, MPI_STATUS_IGNORE);
}

/* Detaching waits until every buffered message has left. */
static void p2p_recycle_bsend_buffer(void)
{
    void *buf;
    int  size;

    MPI_Buffer_detach(&buf, &size);
    MPI_Buffer_attach(buf, size);
}

static void check_status(const char *what, MPI_Status *status, int source,
                         int tag, size_t size)
{
    int count;

    MPI_Get_count(status, MPI_BYTE, &count);
    MC_REQUIRE((status->MPI_SOURCE == source) && (status->MPI_TAG == tag) &&
               ((size_t)count == size),
               "%s: status says source %d tag %d count %d, wanted %d %d %zu",
               what, status->MPI_SOURCE, status->MPI_TAG, count, source, tag,
               size);
}

/* Every mode and size into a receive that was posted beforehand. */
static void test_expected(void)
{
    MPI_Request req;
    MPI_Status  status;
    int         i, mode, tag;

    for (mode = 0; mode < MODE_LAST; ++mode) {
        for (i = 0; i < num_sizes; ++i) {
            tag = (mode * MAX_SIZES) + i;
            mc_buf_reset(&rx, sizes[i], i * 3);
            mc_buf_reset(&tx, sizes[i], i * 5);
            mc_fill(tx.data, tx.size, mc_seed(mc_rank, mode, i));
            MPI_Irecv(rx.data, rx.size, MPI_BYTE, mc_left, tag,
                      MPI_COMM_WORLD, &req);
            if (mode == MODE_RSEND) {
                MPI_Barrier(MPI_COMM_WORLD);
            }
            p2p_send(mode, &tx, tag);
            MPI_Wait(&req, &status);
            p2p_recycle_bsend_buffer();
            check_status(mode_names[mode], &status, mc_left, tag, sizes[i]);
            mc_buf_check(mode_names[mode], &rx, mc_seed(mc_left, mode, i));
        }
    }
}

/* The message is there (probe has seen it) before its receive is posted. */
static void test_unexpected(void)
{
    MPI_Request req;
    MPI_Status  status;
    int         i;

    for (i = 0; i < num_sizes; ++i) {
        mc_buf_reset(&rx, sizes[i], i * 7);
        mc_buf_reset(&tx, sizes[i], i);
        mc_fill(tx.data, tx.size, mc_seed(mc_rank, 20, i));
        if (i & 1) {
            MPI_Isend(tx.data, tx.size, MPI_BYTE, mc_right, i,
                      MPI_COMM_WORLD, &req);
        } else {
            MPI_Issend(tx.data, tx.size, MPI_BYTE, mc_right, i,
                       MPI_COMM_WORLD, &req);
        }
        MPI_Probe(mc_left, i, MPI_COMM_WORLD, &status);
        check_status("probe", &status, mc_left, i, sizes[i]);
        MPI_Recv(rx.data, rx.size, MPI_BYTE, mc_left, i, MPI_COMM_WORLD,
                 &status);
        check_status("recv", &status, mc_left, i, sizes[i]);
        mc_buf_check("unexpected", &rx, mc_seed(mc_left, 20, i));
        MPI_Wait(&req, MPI_STATUS_IGNORE);
    }
}

static void test_persistent(void)
{
    static const size_t lens[] = {1, 100, 9000, 300000, 2097153};
    MPI_Request         reqs[2];
    int                 i, turn;

    for (i = 0; i < 5; ++i) {
        mc_buf_reset(&rx, lens[i], 1);
        mc_buf_reset(&tx, lens[i], 2);
        MPI_Recv_init(rx.data, lens[i], MPI_BYTE, mc_left, i, MPI_COMM_WORLD,
                      &reqs[0]);
        if (i & 1) {
            MPI_Send_init(tx.data, lens[i], MPI_BYTE, mc_right, i,
                          MPI_COMM_WORLD, &reqs[1]);
        } else {
            MPI_Ssend_init(tx.data, lens[i], MPI_BYTE, mc_right, i,
                           MPI_COMM_WORLD, &reqs[1]);
        }
        for (turn = 0; turn < 8; ++turn) {
            mc_fill(tx.data, lens[i], mc_seed(mc_rank, 30 + i, turn));
            MPI_Startall(2, reqs);
            MPI_Waitall(2, reqs, MPI_STATUSES_IGNORE);
            mc_buf_check("persistent", &rx, mc_seed(mc_left, 30 + i, turn));
        }
        MPI_Request_free(&reqs[0]);
        MPI_Request_free(&reqs[1]);
    }
}

/* Receive by what a probe tells: size, source and tag are not known. */
static void test_probe(void)
{
    MPI_Request req;
    MPI_Message msg;
    MPI_Status  status;
    int         i, flag, count;

    for (i = 0; i < num_sizes; i += 3) {
        mc_buf_reset(&tx, sizes[i], i);
        mc_fill(tx.data, tx.size, mc_seed(mc_rank, 40, i));
        MPI_Isend(tx.data, tx.size, MPI_BYTE, mc_right, 5, MPI_COMM_WORLD,
                  &req);
        if (i & 1) {
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &msg,
                       &status);
        } else {
            do {
                MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag,
                           &status);
            } while (!flag);
        }
        MPI_Get_count(&status, MPI_BYTE, &count);
        mc_buf_reset(&rx, count, 3);
        if (i & 1) {
            MPI_Mrecv(rx.data, count, MPI_BYTE, &msg, &status);
        } else {
            MPI_Recv(rx.data, count, MPI_BYTE, status.MPI_SOURCE,
                     status.MPI_TAG, MPI_COMM_WORLD, &status);
        }
        check_status("probe and receive", &status, mc_left, 5, sizes[i]);
        mc_buf_check("probe and receive", &rx, mc_seed(mc_left, 40, i));
        MPI_Wait(&req, MPI_STATUS_IGNORE);
    }

    /* a fast rank's next message must not be taken for one of these */
    MPI_Barrier(MPI_COMM_WORLD);
}

/* All send to rank 0, which knows neither who nor how much comes next. */
static void test_any_source(void)
{
    enum { TURNS = 60 };
    int        next[256] = {0};
    MPI_Status status;
    int        i, count, from;
    size_t     size;

    if (mc_rank != 0) {
        for (i = 0; i < TURNS; ++i) {
            size = sizes[(i * 7 + mc_rank) % num_sizes];
            mc_buf_reset(&tx, size, i);
            mc_fill(tx.data, size, mc_seed(mc_rank, 50, i));
            MPI_Send(tx.data, size, MPI_BYTE, 0, i, MPI_COMM_WORLD);
        }
    } else {
        for (i = 0; i < TURNS * (mc_size - 1); ++i) {
            mc_buf_reset(&rx, MC_MAX_SIZE + 1, 0);
            MPI_Recv(rx.data, rx.size, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                     MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            from = status.MPI_SOURCE;
            MC_REQUIRE(status.MPI_TAG == next[from],
                       "message %d of rank %d overtook message %d",
                       status.MPI_TAG, from, next[from]);
            size = sizes[(next[from] * 7 + from) % num_sizes];
            MC_REQUIRE((size_t)count == size, "%d bytes, %zu wanted", count,
                       size);
            mc_check("any source", rx.data, size,
                     mc_seed(from, 50, next[from]));
            ++next[from];
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Many messages wait; the last sent is received first. */
static void test_reverse_order(void)
{
    static const size_t lens[] = {1, 200, 5000, 70000, 400000};
    mc_buf_t            bufs[WINDOW];
    MPI_Request         reqs[WINDOW];
    int                 i;

    for (i = 0; i < WINDOW; ++i) {
        mc_buf_init(&bufs[i], lens[i % 5]);
        mc_fill(bufs[i].data, bufs[i].size, mc_seed(mc_rank, 60, i));
        MPI_Isend(bufs[i].data, bufs[i].size, MPI_BYTE, mc_right, i,
                  MPI_COMM_WORLD, &reqs[i]);
    }
    for (i = WINDOW - 1; i >= 0; --i) {
        mc_buf_reset(&rx, lens[i % 5], i);
        MPI_Recv(rx.data, rx.size, MPI_BYTE, mc_left, i, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        mc_buf_check("reverse order", &rx, mc_seed(mc_left, 60, i));
    }
    MPI_Waitall(WINDOW, reqs, MPI_STATUSES_IGNORE);
    for (i = 0; i < WINDOW; ++i) {
        mc_buf_free(&bufs[i]);
    }
}

static void test_same_buffer(void)
{
    static const size_t lens[] = {33, 12000, 100001, 500000};
    MPI_Request         tx_reqs[WINDOW], rx_reqs[WINDOW];
    mc_buf_t            bufs[WINDOW];
    int                 i, k;

    for (k = 0; k < 4; ++k) {
        mc_buf_reset(&tx, lens[k], 1);
        mc_fill(tx.data, lens[k], mc_seed(mc_rank, 70, k));
        for (i = 0; i < WINDOW; ++i) {
            mc_buf_init(&bufs[i], lens[k]);
            MPI_Irecv(bufs[i].data, lens[k], MPI_BYTE, mc_left, k,
                      MPI_COMM_WORLD, &rx_reqs[i]);
        }
        for (i = 0; i < WINDOW; ++i) {
            MPI_Isend(tx.data, lens[k], MPI_BYTE, mc_right, k, MPI_COMM_WORLD,
                      &tx_reqs[i]);
        }
        MPI_Waitall(WINDOW, rx_reqs, MPI_STATUSES_IGNORE);
        MPI_Waitall(WINDOW, tx_reqs, MPI_STATUSES_IGNORE);
        for (i = 0; i < WINDOW; ++i) {
            mc_buf_check("same buffer", &bufs[i], mc_seed(mc_left, 70, k));
            mc_buf_free(&bufs[i]);
        }
    }
}

/* Too long a message is an error, spoils nothing, and the next one is right. */
static void test_truncation(void)
{
    static const size_t lens[] = {2, 64, 500, 9000, 70000, 1048576, 4194304};
    MPI_Request         req, tx_req;
    int                 i, late, ret, class;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (i = 0; i < 14; ++i) {
        late = i & 1;
        mc_buf_reset(&tx, lens[i / 2], 0);
        mc_fill(tx.data, tx.size, mc_seed(mc_rank, 80, i));
        mc_buf_reset(&rx, tx.size / 2, 0);
        if (late) {
            MPI_Isend(tx.data, tx.size, MPI_BYTE, mc_right, i, MPI_COMM_WORLD,
                      &tx_req);
            MPI_Probe(mc_left, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Irecv(rx.data, rx.size, MPI_BYTE, mc_left, i, MPI_COMM_WORLD,
                  &req);
        if (!late) {
            MPI_Isend(tx.data, tx.size, MPI_BYTE, mc_right, i, MPI_COMM_WORLD,
                      &tx_req);
        }
        ret = MPI_Wait(&req, MPI_STATUS_IGNORE);
        MPI_Error_class(ret, &class);
        MC_REQUIRE(class == MPI_ERR_TRUNCATE,
                   "%zu bytes into %zu: error class %d, %d wanted", tx.size,
                   rx.size, class, MPI_ERR_TRUNCATE);
        mc_buf_check_guards("truncation", &rx);
        MPI_Wait(&tx_req, MPI_STATUS_IGNORE);

        mc_buf_reset(&rx, tx.size, 0);
        MPI_Sendrecv(tx.data, tx.size, MPI_BYTE, mc_right, 99, rx.data,
                     rx.size, MPI_BYTE, mc_left, 99, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        mc_buf_check("after truncation", &rx, mc_seed(mc_left, 80, i));
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void test_cancel(void)
{
    MPI_Request req;
    MPI_Status  status;
    int         i, flag;

    for (i = 0; i < 50; ++i) {
        mc_buf_reset(&rx, 1000 * i, 0);
        MPI_Irecv(rx.data, rx.size, MPI_BYTE, mc_left, 12345, MPI_COMM_WORLD,
                  &req);
        MPI_Cancel(&req);
        MPI_Wait(&req, &status);
        MPI_Test_cancelled(&status, &flag);
        MC_REQUIRE(flag, "receive %d was not cancelled", i);
    }
}

static void test_sendrecv(void)
{
    MPI_Status status;
    int        i;

    for (i = 0; i < num_sizes; ++i) {
        mc_buf_reset(&tx, sizes[i], i);
        mc_buf_reset(&rx, sizes[i], i * 11);
        mc_fill(tx.data, tx.size, mc_seed(mc_rank, 90, i));
        MPI_Sendrecv(tx.data, tx.size, MPI_BYTE, mc_right, 1, rx.data,
                     rx.size, MPI_BYTE, mc_left, 1, MPI_COMM_WORLD, &status);
        check_status("sendrecv", &status, mc_left, 1, sizes[i]);
        mc_buf_check("sendrecv", &rx, mc_seed(mc_left, 90, i));

        MPI_Sendrecv_replace(tx.data, tx.size, MPI_BYTE, mc_right, 2, mc_left,
                             2, MPI_COMM_WORLD, &status);
        mc_buf_check("sendrecv_replace", &tx, mc_seed(mc_left, 90, i));
    }
}

/* Random sizes, many in flight in both directions. */
static void test_soak(void)
{
    uint64_t    tx_state = mc_rank + 1, rx_state = mc_left + 1;
    mc_buf_t    tx_bufs[WINDOW], rx_bufs[WINDOW];
    MPI_Request reqs[2 * WINDOW];
    int         i, turn;

    for (i = 0; i < WINDOW; ++i) {
        mc_buf_init(&tx_bufs[i], MC_MAX_SIZE / 16);
        mc_buf_init(&rx_bufs[i], MC_MAX_SIZE / 16);
    }
    for (turn = 0; turn < 12; ++turn) {
        for (i = 0; i < WINDOW; ++i) {
            mc_buf_reset(&rx_bufs[i], 1ul << mc_random(&rx_state, 18), i);
            mc_buf_reset(&tx_bufs[i], 1ul << mc_random(&tx_state, 18), i);
            mc_fill(tx_bufs[i].data, tx_bufs[i].size,
                    mc_seed(mc_rank, i, turn));
            MPI_Irecv(rx_bufs[i].data, rx_bufs[i].size, MPI_BYTE, mc_left,
                      7, MPI_COMM_WORLD, &reqs[i]);
            MPI_Isend(tx_bufs[i].data, tx_bufs[i].size, MPI_BYTE, mc_right,
                      7, MPI_COMM_WORLD, &reqs[WINDOW + i]);
        }
        MPI_Waitall(2 * WINDOW, reqs, MPI_STATUSES_IGNORE);
        for (i = 0; i < WINDOW; ++i) {
            mc_buf_check("soak", &rx_bufs[i], mc_seed(mc_left, i, turn));
        }
    }
    for (i = 0; i < WINDOW; ++i) {
        mc_buf_free(&tx_bufs[i]);
        mc_buf_free(&rx_bufs[i]);
    }
}

int main(int argc, char **argv)
{
    size_t bsend_size = MC_MAX_SIZE + MPI_BSEND_OVERHEAD + 64;
    void   *bsend_buf = malloc(2 * bsend_size);
    int    detached;

    mc_init(&argc, &argv, MPI_THREAD_SINGLE);
    MPI_Buffer_attach(bsend_buf, 2 * bsend_size);
    num_sizes = mc_sizes(sizes, MAX_SIZES, MC_MAX_SIZE);
    mc_buf_init(&tx, MC_MAX_SIZE + 1);
    mc_buf_init(&rx, MC_MAX_SIZE + 1);

    test_expected();
    test_unexpected();
    test_persistent();
    test_probe();
    test_any_source();
    test_reverse_order();
    test_same_buffer();
    test_truncation();
    test_cancel();
    test_sendrecv();
    test_soak();

    mc_buf_free(&tx);
    mc_buf_free(&rx);
    MPI_Buffer_detach(&bsend_buf, &detached);
    free(bsend_buf);
    return mc_finish();
}
