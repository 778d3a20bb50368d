/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of a benchmark: see ranks.h. */
#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "ranks.h"

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BENCH_SLOTS    64

struct bench_shared {
    _Atomic unsigned arrived;
    struct {
        size_t   addr_len;
        char     addr[BENCH_ADDR_SIZE];
        uint64_t slots[BENCH_SLOTS];
    } ranks[BENCH_MAX_RANKS];
};

uint64_t bench_features;


void bench_die(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "bench: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    exit(1);
}

void bench_check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        bench_die("%s: %s", what, ucs_status_string(status));
    }
}

double bench_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + (now.tv_nsec * 1e-9);
}

static int bench_compare(const void *a, const void *b)
{
    double x = *(const double*)a, y = *(const double*)b;

    return (x > y) - (x < y);
}

void bench_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), bench_compare);
}

void bench_read_cpus(const char *value, int cpus[2])
{
    if (sscanf(value, "%d,%d", &cpus[0], &cpus[1]) != 2) {
        bench_die("-c %s: two CPUs are wanted, as in -c 0,1", value);
    }
}

size_t bench_read_mib(const char *value)
{
    char *end;
    size_t mib;

    mib = strtoul(value, &end, 10);
    if ((*end != '\0') || (mib == 0)) {
        bench_die("-b %s: a number of MiB is wanted", value);
    }
    return mib << 20;
}

size_t bench_read_number(char option, const char *value, size_t most)
{
    char *end;
    size_t number = strtoul(value, &end, 10);

    if ((*end != '\0') || (number == 0) || (number > most)) {
        bench_die("-%c %s: a number from 1 to %zu is wanted", option, value,
                  most);
    }
    return number;
}

void *bench_memory(size_t len)
{
    void *ptr = mmap(NULL, len, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (ptr == MAP_FAILED) {
        bench_die("no memory for %zu bytes: %m", len);
    }
    memset(ptr, 1, len);
    return ptr;
}

void *bench_shared_memory(size_t len)
{
    void *ptr = mmap(NULL, len, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (ptr == MAP_FAILED) {
        bench_die("no memory for %zu bytes: %m", len);
    }
    return ptr;
}

uint64_t *bench_slot(bench_rank_t *rank, int of, int index)
{
    return &rank->shared->ranks[of].slots[index];
}

void bench_barrier(bench_rank_t *rank)
{
    unsigned all = ++rank->barriers * rank->size;

    atomic_fetch_add(&rank->shared->arrived, 1);
    while (atomic_load(&rank->shared->arrived) < all) {
        if (ucp_worker_progress(rank->worker) == 0) {
            sched_yield();
        }
    }
}

static void bench_rank_init(bench_rank_t *rank)
{
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features   = UCP_FEATURE_TAG | bench_features
    };
    ucp_worker_params_t worker_params = {
        .field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE
    };
    ucp_config_t *config;
    ucp_address_t *addr;
    size_t len;

    bench_check(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    bench_check(ucp_init(&params, config, &rank->context),
                "UCX_TLS names no transport that works here");
    ucp_config_release(config);
    bench_check(ucp_worker_create(rank->context, &worker_params,
                                  &rank->worker), "ucp_worker_create");
    bench_check(ucp_worker_get_address(rank->worker, &addr, &len),
                "ucp_worker_get_address");
    if (len > BENCH_ADDR_SIZE) {
        bench_die("an address of %zu bytes; there is room for %d", len,
                  BENCH_ADDR_SIZE);
    }
    memcpy(rank->shared->ranks[rank->rank].addr, addr, len);
    ucp_worker_release_address(rank->worker, addr);
}

void bench_connect(bench_rank_t *rank, int peer)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
        .address    = (ucp_address_t*)rank->shared->ranks[peer].addr
    };

    bench_check(ucp_ep_create(rank->worker, &params, &rank->eps[peer]),
                "ucp_ep_create");
}

void *bench_send(bench_rank_t *rank, int peer, const void *buf, size_t len)
{
    ucp_request_param_t param = {0};
    void *request;

    request = ucp_tag_send_nbx(rank->eps[peer], buf, len, rank->rank, &param);
    if (UCS_PTR_IS_ERR(request)) {
        bench_check(UCS_PTR_STATUS(request), "ucp_tag_send_nbx");
    }
    return request;
}

void *bench_recv(bench_rank_t *rank, int peer, void *buf, size_t len)
{
    ucp_request_param_t param = {0};
    void *request;

    request = ucp_tag_recv_nbx(rank->worker, buf, len, peer, UINT64_MAX,
                               &param);
    if (UCS_PTR_IS_ERR(request)) {
        bench_check(UCS_PTR_STATUS(request), "ucp_tag_recv_nbx");
    }
    return request;
}

void bench_wait(bench_rank_t *rank, void *request)
{
    ucs_status_t status;

    if (request == NULL) {
        return;
    }

    if (UCS_PTR_IS_ERR(request)) {
        bench_check(UCS_PTR_STATUS(request), "a transfer");
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        /* More ranks than cores must not wait for a time slice each */
        if ((ucp_worker_progress(rank->worker) == 0) && (rank->size > 2)) {
            sched_yield();
        }
    }
    bench_check(status, "a transfer");
    ucp_request_free(request);
}

static void bench_disconnect(bench_rank_t *rank)
{
    ucp_request_param_t param = {0};
    int i;

    for (i = 0; i < rank->size; ++i) {
        if (rank->eps[i] != NULL) {
            bench_wait(rank, ucp_ep_close_nbx(rank->eps[i], &param));
        }
    }
    bench_barrier(rank);
}

static void bench_rank_main(int number, int size, const int *cpus,
                            bench_shared_t *shared, bench_main_t main,
                            void *arg)
{
    bench_rank_t rank = {
        .rank   = number,
        .size   = size,
        .shared = shared
    };
    cpu_set_t set;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cpus != NULL) {
        CPU_ZERO(&set);
        CPU_SET(cpus[number], &set);
        if (sched_setaffinity(0, sizeof(set), &set) != 0) {
            bench_die("cannot run on CPU %d: %m", cpus[number]);
        }
    }

    bench_rank_init(&rank);
    bench_barrier(&rank);
    main(&rank, arg);
    bench_barrier(&rank);
    bench_disconnect(&rank);
    ucp_worker_destroy(rank.worker);
    ucp_cleanup(rank.context);
    exit(0);
}

int bench_ranks_run(int size, const int *cpus, bench_main_t main, void *arg)
{
    pid_t pids[BENCH_MAX_RANKS];
    bench_shared_t *shared;
    int i, left, status, code = 0;
    pid_t pid;

    shared = bench_shared_memory(sizeof(*shared));

    for (i = 0; i < size; ++i) {
        pids[i] = fork();
        if (pids[i] < 0) {
            bench_die("cannot fork rank %d: %m", i);
        }
        if (pids[i] == 0) {
            bench_rank_main(i, size, cpus, shared, main, arg);
        }
    }

    for (left = size; left > 0; --left) {
        pid = wait(&status);
        if ((status == 0) || (code != 0)) {
            continue;
        }

        /* The others would wait for it for ever */
        code = 1;
        if (WIFSIGNALED(status)) {
            fprintf(stderr, "bench: process %d ended by signal %d\n", pid,
                    WTERMSIG(status));
        }
        for (i = 0; i < size; ++i) {
            if (pids[i] != pid) {
                kill(pids[i], SIGKILL);
            }
        }
    }

    munmap(shared, sizeof(*shared));
    return code;
}
