/* SPDX-License-Identifier: BSD-3-Clause */
/* What a file that is shared with peers costs: its key, and puts and gets by
 * offset, beside the same of memory and beside local system calls. */
#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "ranks.h"

#include <nprdma/nprdma_file_ucp.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_KEY     1024
#define FILES_SIZE    (64ul << 20)   /* of what is put to and read */
#define FILES_ROUNDS  16             /* an even number; one more is not taken */
#define FILES_KEYS    15

typedef enum files_way {
    FILES_MEMORY,
    FILES_FILE,
    FILES_CALL,     /* pread, pwrite: no peer at all */
    FILES_WAYS
} files_way_t;

/* Where the ranks meet, made before they are forked */
typedef struct files_shared {
    char        keys[FILES_CALL][FILES_KEY];
    uint64_t    addresses[FILES_CALL];
} files_shared_t;

typedef struct files_options {
    int            is_pinned;
    int            cpus[2];
    int            fd;        /* a memfd of FILES_SIZE, of both ranks */
    size_t         bytes;     /* that a round moves, at most */
    files_shared_t *shared;
} files_options_t;


static void files_call(int ret, const char *what)
{
    if (ret != 0) {
        bench_die("%s: %s%s", what, strerror(-ret), (ret == -107) ?
                  ": start it by UCX_TLS=nprdma nprdma-run" : "");
    }
}

/* A key of a file, from nothing on; returns us */
static double files_key_us(bench_rank_t *rank, int fd, uint64_t size,
                           nprdma_file_t **file, void **packed, size_t *len)
{
    const double begin = bench_seconds();
    nprdma_filekey_t key;

    files_call(nprdma_file_create(size, file), "nprdma_file_create");
    files_call(nprdma_file_bind(*file, fd, NPRDMA_FILE_READ |
                                NPRDMA_FILE_WRITE), "nprdma_file_bind");
    files_call(nprdma_file_key(*file, NPRDMA_FILE_READ | NPRDMA_FILE_WRITE,
                               &key), "nprdma_file_key");
    bench_check(nprdma_file_pack_key(rank->context, &key, packed, len),
                "nprdma_file_pack_key");
    return (bench_seconds() - begin) * 1e6;
}

static void files_measure_keys(bench_rank_t *rank, uint64_t size)
{
    double us[FILES_KEYS];
    nprdma_file_t *file;
    struct stat st;
    void *packed;
    size_t len;
    int i, fd;

    for (i = 0; i < FILES_KEYS; ++i) {
        fd = memfd_create("bench-files", MFD_CLOEXEC);
        if ((fd < 0) || (ftruncate(fd, size) != 0)) {
            bench_die("a file of %lu bytes: %m", size);
        }
        us[i] = files_key_us(rank, fd, size, &file, &packed, &len);
        if ((fstat(fd, &st) != 0) || (st.st_blocks != 0)) {
            bench_die("%ld blocks of the file were made", (long)st.st_blocks);
        }
        ucp_rkey_buffer_release(packed);
        nprdma_file_destroy(file);
        close(fd);
    }
    bench_sort(us, FILES_KEYS);
    printf("key %lu %.1f %.1f %.1f\n", size >> 20, us[FILES_KEYS / 2], us[0],
           us[FILES_KEYS - 1]);
    fflush(stdout);
}

static void files_share(const files_options_t *opts,
                        files_way_t way, const void *packed, size_t len,
                        const void *address)
{
    if (len > FILES_KEY) {
        bench_die("a key of more than %d bytes", FILES_KEY);
    }
    memcpy(opts->shared->keys[way], packed, len);
    opts->shared->addresses[way] = (uintptr_t)address;
}

/* One access */
static void files_move(bench_rank_t *rank, const files_options_t *opts,
                       files_way_t way, ucp_rkey_h key, int is_put, void *data,
                       size_t len, uint64_t offset)
{
    const ucp_request_param_t none = {0};
    uint64_t address;

    if (way == FILES_CALL) {
        if ((is_put ? pwrite(opts->fd, data, len, offset) :
                      pread(opts->fd, data, len, offset)) != (ssize_t)len) {
            bench_die("pread or pwrite: %m");
        }
        return;
    }

    address = opts->shared->addresses[way] + offset;
    if (!is_put) {
        bench_wait(rank, ucp_get_nbx(rank->eps[1], data, len, address, key,
                                     &none));
        return;
    }
    bench_wait(rank, ucp_put_nbx(rank->eps[1], data, len, address, key,
                                 &none));
    bench_wait(rank, ucp_ep_flush_nbx(rank->eps[1], &none));
}

/* A round; returns us an access */
static double files_round(bench_rank_t *rank, const files_options_t *opts,
                          files_way_t way, ucp_rkey_h key, int is_put,
                          void *data, size_t len)
{
    const size_t slots = FILES_SIZE / len;
    size_t count       = opts->bytes / len, i;
    double begin;

    count = (count > 2000) ? 2000 : count;
    begin = bench_seconds();
    for (i = 0; i < count; ++i) {
        files_move(rank, opts, way, key, is_put, data, len,
                   ((i * 7919) % slots) * len);
    }
    return (bench_seconds() - begin) * 1e6 / count;
}

static double files_median(double *us, size_t count)
{
    bench_sort(us, count);
    return us[count / 2];
}

/* All ways in turn, round by round */
static void files_measure(bench_rank_t *rank, const files_options_t *opts,
                          ucp_rkey_h *keys, int is_put, void *data, size_t len)
{
    double us[FILES_WAYS][FILES_ROUNDS], halves[2][FILES_ROUNDS / 2];
    double medians[FILES_WAYS], one, other;
    files_way_t way;
    int i;

    for (i = -1; i < FILES_ROUNDS; ++i) {
        for (way = 0; way < FILES_WAYS; ++way) {
            one = files_round(rank, opts, way,
                              (way == FILES_CALL) ? NULL : keys[way], is_put,
                              data, len);
            if (i >= 0) {
                us[way][i] = one;
            }
        }
        if (i >= 0) {
            halves[i % 2][i / 2] = us[FILES_FILE][i];
        }
    }

    one   = files_median(halves[0], FILES_ROUNDS / 2);
    other = files_median(halves[1], FILES_ROUNDS / 2);
    for (way = 0; way < FILES_WAYS; ++way) {
        medians[way] = files_median(us[way], FILES_ROUNDS);
    }
    printf("%s %zu %.3f %.3f %.3f %.2f %.2f %.2f\n", is_put ? "put" : "get",
           len, medians[FILES_MEMORY], medians[FILES_FILE],
           medians[FILES_CALL], medians[FILES_FILE] / medians[FILES_MEMORY],
           medians[FILES_FILE] / medians[FILES_CALL], one / other);
    fflush(stdout);
}

static void files_initiate(bench_rank_t *rank, const files_options_t *opts)
{
    static const size_t sizes[] = {8, 512, 4096, 65536, 1 << 20};
    char *data                  = bench_memory(1 << 20);
    ucp_rkey_h keys[FILES_CALL];
    files_way_t way;
    unsigned i;

    for (way = 0; way < FILES_CALL; ++way) {
        bench_check(ucp_ep_rkey_unpack(rank->eps[1], opts->shared->keys[way],
                                       &keys[way]), "ucp_ep_rkey_unpack");
    }
    for (i = 0; i < 2 * (sizeof(sizes) / sizeof(*sizes)); ++i) {
        files_measure(rank, opts, keys, i % 2, data, sizes[i / 2]);
    }
    for (way = 0; way < FILES_CALL; ++way) {
        ucp_rkey_destroy(keys[way]);
    }
}

static void files_main(bench_rank_t *rank, void *arg)
{
    const files_options_t *opts = arg;
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH
    };
    nprdma_file_t *file = NULL;
    ucp_mem_h memh      = NULL;
    void *packed;
    size_t len;

    bench_connect(rank, !rank->rank);
    if (rank->rank == 1) {
        files_measure_keys(rank, 1ul << 20);
        files_measure_keys(rank, 64ul << 30);
        files_key_us(rank, opts->fd, FILES_SIZE, &file, &packed, &len);
        files_share(opts, FILES_FILE, packed, len, NULL);
        ucp_rkey_buffer_release(packed);

        params.address = bench_memory(FILES_SIZE);
        params.length  = FILES_SIZE;
        bench_check(ucp_mem_map(rank->context, &params, &memh), "ucp_mem_map");
        bench_check(ucp_rkey_pack(rank->context, memh, &packed, &len),
                    "ucp_rkey_pack");
        files_share(opts, FILES_MEMORY, packed, len, params.address);
        ucp_rkey_buffer_release(packed);
    }
    bench_barrier(rank);
    if (rank->rank == 0) {
        files_initiate(rank, opts);
    }
    bench_barrier(rank); /* the owner is in progress here */
    if (rank->rank == 1) {
        nprdma_file_destroy(file);
        ucp_mem_unmap(rank->context, memh);
        munmap(params.address, FILES_SIZE);
    }
}

static void files_usage(FILE *out)
{
    fprintf(out,
            "Usage: files [OPTION...]\n"
            "Files that peers read and write by offset, between two processes "
            "of this\nhost. It is started by nprdma-run, with UCX_TLS=nprdma. "
            "Prints\n"
            "  key MIB US LEAST MOST      to make and pack a key\n"
            "  get|put BYTES MEMORY FILE CALL FILE/MEMORY FILE/CALL SELF\n"
            "                             us an access to the owner's memory, "
            "to its file,\n"
            "                             and by pread or pwrite; medians of "
            "%d rounds in\n"
            "                             turn; SELF: every second one of "
            "FILE against\n"
            "                             the others\n"
            "  -n MIB      that a round moves, at most (16)\n"
            "  -c CPU,CPU  the peer's and the owner's CPU\n", FILES_ROUNDS);
}

int main(int argc, char **argv)
{
    files_options_t opts = {.bytes = 16ul << 20};
    char *data;
    int c;

    while ((c = getopt(argc, argv, "n:c:h")) != -1) {
        switch (c) {
        case 'n':
            opts.bytes = bench_read_number(c, optarg, 1024) << 20;
            break;
        case 'c':
            opts.is_pinned = 1;
            bench_read_cpus(optarg, opts.cpus);
            break;
        case 'h':
            files_usage(stdout);
            return 0;
        default:
            files_usage(stderr);
            return 2;
        }
    }
    if (optind != argc) {
        files_usage(stderr);
        return 2;
    }

    opts.shared = bench_shared_memory(sizeof(*opts.shared));
    opts.fd     = memfd_create("bench-files", MFD_CLOEXEC);
    data        = bench_memory(FILES_SIZE);
    if ((opts.fd < 0) ||
        (pwrite(opts.fd, data, FILES_SIZE, 0) != (ssize_t)FILES_SIZE)) {
        bench_die("no memory for a file: %m");
    }
    munmap(data, FILES_SIZE);
    bench_features = UCP_FEATURE_RMA;
    return bench_ranks_run(2, opts.is_pinned ? opts.cpus : NULL, files_main,
                           &opts);
}
