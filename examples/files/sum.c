/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adds up the bytes of a file of nprdma-filed: eight reads are under way at a
 * time, and each that ends begins the next.
 *
 *     cc -o sum sum.c $(pkg-config --cflags --libs nprdma_remote)
 *     nprdma-run ./sum /results [HOST]
 */
#include <nprdma/nprdma_remote.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 65536
#define DEPTH 8

static nprdma_remote_t *file;
static uint64_t next, bytes, sum;

static void die(const char *what, int64_t error)
{
    fprintf(stderr, "sum: %s: %s\n", what, strerror((int)-error));
    exit(1);
}

static void on_read(void *data, int64_t length);

static void read_next(void *data)
{
    const int ret = nprdma_remote_pread_nb(file, data, PIECE, next, on_read,
                                           data);

    next += PIECE;
    if (ret != 0) {
        die("read", ret);
    }
}

static void on_read(void *data, int64_t length)
{
    int64_t i;

    if (length < 0) {
        die("read", length);
    }

    for (i = 0; i < length; ++i) {
        sum += ((unsigned char*)data)[i];
    }
    bytes += length;
    if (length == PIECE) { /* else it was the end */
        read_next(data);
    }
}

int main(int argc, char **argv)
{
    static char data[DEPTH][PIECE];
    nprdma_server_params_t where = {.size = sizeof(where), .patience = 30};
    nprdma_server_t *server;
    int i, ret;

    if ((argc < 2) || (argc > 3)) {
        fprintf(stderr, "usage: sum PATH [HOST]\n");
        return 2;
    }

    where.host = argv[2];
    if (nprdma_server_connect(&where, &server) != 0) {
        return 1; /* a line has said why */
    }

    ret = nprdma_remote_open(server, argv[1], O_RDONLY, 0, &file);
    if (ret != 0) {
        die(argv[1], ret);
    }

    for (i = 0; i < DEPTH; ++i) {
        read_next(data[i]);
    }
    while (nprdma_server_wait(server, -1) > 0) {
    }
    printf("%llu bytes, sum %llu\n", (unsigned long long)bytes,
           (unsigned long long)sum);
    nprdma_remote_close(file);
    nprdma_server_disconnect(server);
    return 0;
}
