/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of a benchmark: forked processes with a UCP worker each, which meet
 * in shared memory, so that nothing is sent but what is to be measured. */
#ifndef BENCH_RANKS_H_
#define BENCH_RANKS_H_

#include <ucp/api/ucp.h>

#include <stdint.h>

#define BENCH_MAX_RANKS    64
#define BENCH_ADDR_SIZE    4096

typedef struct bench_shared bench_shared_t;

typedef struct bench_rank {
    int            rank;
    int            size;
    unsigned       barriers;  /* how often we came to one */
    ucp_context_h  context;
    ucp_worker_h   worker;
    ucp_ep_h       eps[BENCH_MAX_RANKS];
    bench_shared_t *shared;
} bench_rank_t;

typedef void (*bench_main_t)(bench_rank_t *rank, void *arg);

/* Of UCP, beside its tags; to be set before the ranks run */
extern uint64_t bench_features;

/* Run main in `size` processes, rank i on CPU cpus[i] (anywhere if cpus is
 * NULL). Returns the exit code of the program. */
int bench_ranks_run(int size, const int *cpus, bench_main_t main, void *arg);

/* Values of -c and -b: two CPUs; MiB, as bytes. And of any option: from 1 to
 * most. Die with a line. */
void bench_read_cpus(const char *value, int cpus[2]);
size_t bench_read_mib(const char *value);
size_t bench_read_number(char option, const char *value, size_t most);

/* Everybody is here; progresses the worker meanwhile, but sends nothing */
void bench_barrier(bench_rank_t *rank);

/* A number for each rank, seen by all after the next barrier */
uint64_t *bench_slot(bench_rank_t *rank, int of, int index);

void bench_connect(bench_rank_t *rank, int peer);

/* A request, or NULL if it is done already; bench_wait ends it */
void *bench_send(bench_rank_t *rank, int peer, const void *buf, size_t len);
void *bench_recv(bench_rank_t *rank, int peer, void *buf, size_t len);
void bench_wait(bench_rank_t *rank, void *request);

/* Anonymous memory, written once */
void *bench_memory(size_t len);

/* Seen by all ranks that are forked later; zeroes */
void *bench_shared_memory(size_t len);

double bench_seconds(void);

/* The least first */
void bench_sort(double *values, size_t count);

/* Die with a line if it is an error */
void bench_check(ucs_status_t status, const char *what);

void bench_die(const char *format, ...)
        __attribute__((noreturn, format(printf, 1, 2)));

#endif
