/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * nprdma-file: what a server's calls cost, beside those of a process that has
 * the file itself, in turn.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tool.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BENCH_ROUNDS   20
#define BENCH_CALLS    1000        /* of a round */
#define BENCH_RECORD   64          /* bytes of an append: seed 001, Figure 10 */
#define BENCH_BATCH    16          /* records that go as one */
#define BENCH_BLOCK    1024        /* of a random write: Figure 9 */
#define BENCH_BLOCKS   16384       /* in the file */
#define BENCH_SIZE     ((uint64_t)BENCH_BLOCKS * BENCH_BLOCK)
#define BENCH_POOL     (256ul << 20)

/* All that is measured */
typedef struct bench {
    tool_t      *tool;
    const char  *path;             /* of the server, and beside it more */
    nprdma_remote_t *log;
    nprdma_remote_t *file;
    int         log_fd;            /* -1: none of ours */
    int         file_fd;
    void        *pool;             /* of libpmemlog; NULL: it is not there */
    int         (*pool_append)(void *pool, const void *data, size_t len);
    uint64_t    random;
    char        data[BENCH_BLOCK];
} bench_t;

/* One kind of call */
typedef struct bench_case {
    const char *name;
    const char *how;
    int        (*call)(bench_t *bench); /* returns 0 or a negative errno */
    unsigned   per_call;           /* what us are of */
    double     us[BENCH_ROUNDS];
} bench_case_t;


static uint64_t bench_offset(bench_t *bench)
{
    bench->random ^= bench->random << 13;
    bench->random ^= bench->random >> 7;
    bench->random ^= bench->random << 17;
    return (bench->random % BENCH_BLOCKS) * BENCH_BLOCK;
}

static int bench_append(bench_t *bench)
{
    uint64_t at;

    return nprdma_remote_append(bench->log, bench->data, BENCH_RECORD, &at);
}

static int bench_append_batch(bench_t *bench)
{
    uint64_t at;

    return nprdma_remote_append(bench->log, bench->data,
                                BENCH_BATCH * BENCH_RECORD, &at);
}

static int bench_append_call(bench_t *bench)
{
    return (write(bench->log_fd, bench->data, BENCH_RECORD) == BENCH_RECORD) ?
           0 : -errno;
}

static int bench_append_pool(bench_t *bench)
{
    return (bench->pool_append(bench->pool, bench->data, BENCH_RECORD) == 0) ?
           0 : -errno;
}

static int bench_write(bench_t *bench)
{
    ssize_t ret = nprdma_remote_pwrite(bench->file, bench->data, BENCH_BLOCK,
                            bench_offset(bench));

    return (ret < 0) ? ret : 0;
}

static int bench_write_call(bench_t *bench)
{
    return (pwrite(bench->file_fd, bench->data, BENCH_BLOCK,
                   bench_offset(bench)) == BENCH_BLOCK) ? 0 : -errno;
}

static int bench_read(bench_t *bench)
{
    ssize_t ret = nprdma_remote_pread(bench->file, bench->data, BENCH_BLOCK,
                           bench_offset(bench));

    return (ret < 0) ? ret : 0;
}

static int bench_read_call(bench_t *bench)
{
    return (pread(bench->file_fd, bench->data, BENCH_BLOCK,
                  bench_offset(bench)) == BENCH_BLOCK) ? 0 : -errno;
}

static int bench_stat(bench_t *bench)
{
    struct stat stat;

    return nprdma_remote_stat(bench->tool->server, bench->path, &stat);
}

static int bench_open(bench_t *bench)
{
    nprdma_remote_t *file;
    int ret = nprdma_remote_open(bench->tool->server, bench->path, O_RDONLY, 0,
                                 &file);

    if (ret == 0) {
        nprdma_remote_close(file);
    }
    return ret;
}

static int bench_compare(const void *us1, const void *us2)
{
    const double difference = *(const double*)us1 - *(const double*)us2;

    return (difference > 0) - (difference < 0);
}

static int bench_run_case(bench_t *bench, bench_case_t *one, unsigned round)
{
    const uint64_t begin = nf_now();
    unsigned i;
    int ret;

    for (i = 0; i < BENCH_CALLS; ++i) {
        ret = one->call(bench);
        if (ret != 0) {
            nf_say("%s (%s) fails", one->name, one->how);
            return ret;
        }
    }
    one->us[round] = (nf_now() - begin) / 1e3 / BENCH_CALLS / one->per_call;
    return 0;
}

/* In turn; the first round is not taken */
static int bench_run(bench_t *bench, bench_case_t *cases, unsigned count)
{
    unsigned round, i;
    int ret;

    for (round = 0; round <= BENCH_ROUNDS; ++round) {
        for (i = 0; i < count; ++i) {
            ret = bench_run_case(bench, &cases[i],
                                 (round > 0) ? (round - 1) : 0);
            if (ret != 0) {
                return ret;
            }
        }
    }

    for (i = 0; i < count; ++i) {
        qsort(cases[i].us, BENCH_ROUNDS, sizeof(double), bench_compare);
        printf(bench->tool->is_json ?
               "{\"call\": \"%s\", \"how\": \"%s\", \"us\": %.3f, \"least\": "
               "%.3f, \"most\": %.3f}\n" : "%-8s %-12s %9.3f %9.3f %9.3f\n",
               cases[i].name, cases[i].how, cases[i].us[BENCH_ROUNDS / 2],
               cases[i].us[0], cases[i].us[BENCH_ROUNDS - 1]);
    }
    return 0;
}

/* A log of libpmemlog's, if that is installed: seed 001's yardstick */
static void bench_open_pool(bench_t *bench, const char *path)
{
    void *library = dlopen("libpmemlog.so.1", RTLD_NOW);
    void *(*create)(const char *path, size_t size, mode_t mode);

    if (library == NULL) {
        return;
    }

    create             = dlsym(library, "pmemlog_create");
    bench->pool_append = dlsym(library, "pmemlog_append");
    if ((create != NULL) && (bench->pool_append != NULL)) {
        bench->pool = create(path, BENCH_POOL, 0600);
    }
}

/* The same files, as their own host has them */
static int bench_open_here(bench_t *bench, const char *path)
{
    char name[PATH_MAX];

    if (path == NULL) {
        return 0;
    }

    snprintf(name, sizeof(name), "%s.calls", path);
    bench->log_fd  = open(name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND |
                          O_CLOEXEC, 0600);
    bench->file_fd = open(path, O_RDWR | O_CLOEXEC);
    if ((bench->log_fd < 0) || (bench->file_fd < 0)) {
        return -errno;
    }

    snprintf(name, sizeof(name), "%s.pool", path);
    bench_open_pool(bench, name); /* which replaces nothing */
    return 0;
}

static int bench_open_there(bench_t *bench)
{
    char name[TOOL_PATH_MAX + 1];
    int ret;

    snprintf(name, sizeof(name), "%s.log", bench->path);
    ret = nprdma_remote_open(bench->tool->server, name,
                             O_WRONLY | O_APPEND | O_CREAT | O_EXCL, 0600,
                  &bench->log);
    if (ret != 0) {
        return ret;
    }

    ret = nprdma_remote_open(bench->tool->server, bench->path,
                             O_RDWR | O_CREAT | O_EXCL, 0600,
                  &bench->file);
    if (ret != 0) {
        nprdma_remote_close(bench->log);
        (void)nprdma_remote_unlink(bench->tool->server, name);
        return ret;
    }

    ret = nprdma_remote_truncate(bench->file, BENCH_SIZE);
    return (ret != 0) ? ret : nprdma_remote_allocate(bench->file, BENCH_SIZE);
}

/* What was made goes */
static void bench_close(bench_t *bench, const char *here)
{
    char name[PATH_MAX];

    if (bench->file != NULL) {
        nprdma_remote_close(bench->file);
        nprdma_remote_close(bench->log);
        (void)nprdma_remote_unlink(bench->tool->server, bench->path);
        snprintf(name, sizeof(name), "%s.log", bench->path);
        (void)nprdma_remote_unlink(bench->tool->server, name);
    }
    if (bench->log_fd >= 0) {
        snprintf(name, sizeof(name), "%s.calls", here);
        (void)unlink(name);
    }
    if (bench->pool != NULL) {
        snprintf(name, sizeof(name), "%s.pool", here);
        (void)unlink(name);
    }
}

static bench_case_t
bench_case(const char *name, const char *how, int (*call)(bench_t *bench))
{
    return (bench_case_t){
        .name     = name,
        .how      = how,
        .call     = call,
        .per_call = (call == bench_append_batch) ? BENCH_BATCH : 1
    };
}

/* What there is to be measured; returns how many */
static unsigned bench_cases(const bench_t *bench, bench_case_t *cases)
{
    unsigned count = 0;

    cases[count++] = bench_case("append", "nprdma", bench_append);
    cases[count++] = bench_case("append", "nprdma, 16", bench_append_batch);
    if (bench->log_fd >= 0) {
        cases[count++] = bench_case("append", "write", bench_append_call);
    }
    if (bench->pool != NULL) {
        cases[count++] = bench_case("append", "libpmemlog", bench_append_pool);
    }
    cases[count++] = bench_case("write", "nprdma", bench_write);
    if (bench->file_fd >= 0) {
        cases[count++] = bench_case("write", "pwrite", bench_write_call);
    }
    cases[count++] = bench_case("read", "nprdma", bench_read);
    if (bench->file_fd >= 0) {
        cases[count++] = bench_case("read", "pread", bench_read_call);
    }
    cases[count++] = bench_case("stat", "nprdma", bench_stat);
    cases[count++] = bench_case("open", "nprdma", bench_open);
    return count;
}

int tool_bench(tool_t *tool, const char *path, const char *here)
{
    static bench_t bench;
    static bench_case_t cases[16];
    int ret;

    bench = (bench_t){
        .tool    = tool,
        .path    = path,
        .log_fd  = -1,
        .file_fd = -1,
        .random  = 1
    };
    memset(bench.data, 'b', sizeof(bench.data));
    ret = bench_open_there(&bench);
    ret = (ret != 0) ? ret : bench_open_here(&bench, here);
    if (ret == 0) {
        if (!tool->is_json) {
            printf("%-8s %-12s %9s %9s %9s\n", "call", "how", "us", "least",
                   "most");
        }
        ret = bench_run(&bench, cases, bench_cases(&bench, cases));
    }
    bench_close(&bench, here);
    return (ret == 0) ? 0 : tool_fail("measure with", path, ret);
}
