/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers to and from memory that is not pinned, beside UCX's own transports
 * on memory that has been touched, and beside what the OS takes for a fault. */
#include "paging_run.h"

#include <nprdma/nprdma.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static paging_shared_t *paging_shared;

const char *paging_dirs[] = {"read", "write", "fadd"};

static const size_t paging_sizes[] = {2, 8, 64, 256, 1024, 4096, 65536,
                                      1048576, 8388608};

static const size_t paging_bw_sizes[] = {65536, 262144, 1048576, 4194304,
                                         16777216};

void paging_sample(paging_run_t *run, const char *name,
                   const char *memory, const char *what, size_t size,
                   const char *side, double value)
{
    printf("%d\t%s\t%s\t%s\t%zu\t%s\t%.6g\n", run->round, name, memory, what,
           size, side, value);
    fflush(stdout);
}

int paging_begin(paging_run_t *run, paging_tl_t *tl, int in_progress)
{
    if (paging_is_initiator(run)) {
        atomic_store(&run->shared->is_over, 0);
    }
    bench_barrier(run->rank);
    if (!paging_is_initiator(run)) {
        paging_compute(tl, run->shared, in_progress);
        bench_barrier(run->rank);
        return 0;
    }
    return 1;
}

void paging_end(paging_run_t *run)
{
    atomic_store(&run->shared->is_over, 1);
    bench_barrier(run->rank);
}

void *paging_map(size_t len)
{
    void *ptr = mmap(NULL, len, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (ptr == MAP_FAILED) {
        bench_die("no address space for %zu bytes: %m", len);
    }
    if (madvise(ptr, len, MADV_NOHUGEPAGE) != 0) {
        bench_die("cannot have small pages: %m");
    }
    return ptr;
}

/* nprdma's entries of memory that is all there */
static void paging_prefetch(paging_mem_t *mem)
{
    int ret = nprdma_prefetch(mem->ptr, mem->len, NPRDMA_PREFETCH_WRITE);

    if (ret != 0) {
        bench_die("nprdma_prefetch: %s", strerror(-ret));
    }
}

/* What is compared, anew for each round, and in another order: which frames the
 * OS gives decides how well they share a cache */
static void paging_kind_open(paging_run_t *run, paging_kind_t *kind)
{
    paging_mem_t *mems[] = {&kind->touched, &kind->pinned, &kind->again};
    int i, which;

    for (i = 0; i < 3; ++i) {
        which = (i + run->round) % 3;
        paging_mem_open(mems[which], (which == 0) ? &run->tl : kind->stock,
                        run->rank, run->shared, kind->kernel, PAGING_AREA);
        if (!paging_is_initiator(run)) {
            memset(mems[which]->ptr, 0, PAGING_AREA);
        }
    }
    if (!paging_is_initiator(run)) {
        paging_prefetch(&kind->touched);
    }
    bench_barrier(run->rank);
}

static void paging_kind_close(paging_run_t *run, paging_kind_t *kind)
{
    paging_mem_close(&kind->touched, &run->tl, run->rank);
    paging_mem_close(&kind->pinned, kind->stock, run->rank);
    paging_mem_close(&kind->again, kind->stock, run->rank);
}

static void paging_open(paging_run_t *run)
{
    paging_kind_t *kernel = &run->kinds[0], *direct = &run->kinds[1];
    bench_rank_t *rank    = run->rank;
    void *local           = bench_memory(2 * PAGING_AREA);
    void *fresh           = NULL;
    int i, is_target = rank->rank == PAGING_TARGET;

    paging_tl_open(&run->tl, "nprdma", rank, run->shared, local,
                   2 * PAGING_AREA);
    paging_tl_open(&run->cma, "cma", rank, run->shared, local,
                   2 * PAGING_AREA);
    paging_tl_open(&run->posix, "posix", rank, run->shared, local,
                   2 * PAGING_AREA);

    *kernel = (paging_kind_t){.name = "kernel", .stock = &run->cma};
    *direct = (paging_kind_t){.name = "direct", .stock = &run->posix};
    if (is_target) {
        kernel->kernel = paging_map(PAGING_AREA);
        fresh          = paging_map(PAGING_AREA);
    }
    paging_mem_open(&kernel->fresh, &run->tl, rank, run->shared, fresh,
                    PAGING_AREA);
    paging_mem_open(&direct->fresh, &run->tl, rank, run->shared, NULL,
                    PAGING_AREA);
    for (i = 0; is_target && (i < 2); ++i) {
        /* A hypervisor may take long for the first touch of a frame */
        memset(run->kinds[i].fresh.ptr, 0, PAGING_AREA);
    }
    bench_barrier(rank);
}

static void paging_close(paging_run_t *run)
{
    int i;

    for (i = 0; i < 2; ++i) {
        paging_mem_close(&run->kinds[i].fresh, &run->tl, run->rank);
    }
    paging_tl_close(&run->posix, run->rank);
    paging_tl_close(&run->cma, run->rank);
    paging_tl_close(&run->tl, run->rank);
}

static void paging_round(paging_run_t *run)
{
    double wake;
    size_t i;
    int k, dir, in_progress;

    wake = paging_wake(run->rank, run->shared, 200);
    if (paging_is_initiator(run)) {
        paging_sample(run, "wake", "-", "thread", 0, "os", wake * 1e6);
    }
    for (k = 0; k < 2; ++k) {
        paging_kind_open(run, &run->kinds[k]);
    }
    paging_control(run);

    for (k = 0; k < 2; ++k) {
        paging_os_faults(run, &run->kinds[k]);
        for (dir = PAGING_READ; dir <= PAGING_WRITE; ++dir) {
            for (i = 0; i < PAGING_COUNT(paging_sizes); ++i) {
                paging_compare_sides(run, &run->kinds[k], "latency",
                                     paging_latency, dir, paging_sizes[i]);
                for (in_progress = 0; in_progress < 2; ++in_progress) {
                    paging_minor(run, &run->kinds[k], dir, paging_sizes[i],
                                 in_progress);
                }
            }
            for (i = 0; i < PAGING_COUNT(paging_bw_sizes); ++i) {
                paging_compare_sides(run, &run->kinds[k], "bandwidth",
                                     paging_bandwidth, dir,
                                     paging_bw_sizes[i]);
            }
            paging_rate(run, &run->kinds[k], dir);
        }
        for (dir = PAGING_READ; dir <= PAGING_FADD; ++dir) {
            paging_passive(run, &run->kinds[k], dir);
        }
    }
    paging_major(run);
    for (k = 0; k < 2; ++k) {
        paging_kind_close(run, &run->kinds[k]);
    }
}

/* A few lines for somebody who wants to see it happen */
static void paging_demo(paging_run_t *run)
{
    paging_kind_t *kind = &run->kinds[0];
    paging_mem_t *mems[] = {&kind->touched, &kind->fresh};
    static const char *names[] = {"touched", "never touched"};
    double times[PAGING_MAX_FAULTS], start;
    nprdma_counters_t before, after;
    int i, j, count = 1000;

    paging_kind_open(run, kind);
    if (!paging_is_initiator(run)) {
        paging_forget(&kind->fresh, kind->fresh.len);
    }
    if (!paging_begin(run, &run->tl, 1)) {
        paging_kind_close(run, kind);
        return;
    }

    /* Until keys and entries have come */
    for (i = 0; i < count; ++i) {
        paging_move(&run->tl, mems[0], PAGING_READ, 8, i * PAGING_PAGE);
        uct_worker_progress(run->tl.worker);
    }
    for (j = 0; j < 2; ++j) {
        nprdma_get_counters(&before, sizeof(before));
        for (i = 0; i < count; ++i) {
            start    = bench_seconds();
            paging_move(&run->tl, mems[j], PAGING_READ, 8, i * PAGING_PAGE);
            times[i] = bench_seconds() - start;
        }
        nprdma_get_counters(&after, sizeof(after));
        printf("%-14s %6.2f us, %5" PRIu64 " reads one-sided, %5" PRIu64
               " page faults\n", names[j],
               paging_percentile(times, count, 50) * 1e6,
               after.reads - before.reads,
               after.remote_faults - before.remote_faults);
    }
    fflush(stdout);
    paging_end(run);
    paging_kind_close(run, kind);
}

static void paging_main(bench_rank_t *rank, void *arg)
{
    paging_run_t run = {
        .rank   = rank,
        .shared = paging_shared,
        .opts   = arg
    };

    paging_open(&run);
    if (run.opts->is_demo) {
        paging_demo(&run);
    } else {
        for (run.round = 1; run.round <= run.opts->rounds; ++run.round) {
            if (paging_is_initiator(&run)) {
                fprintf(stderr, "round %d of %d\n", run.round,
                        run.opts->rounds);
            }
            paging_round(&run);
        }
        run.round = 1;
        paging_sparse(&run);
    }
    paging_close(&run);
}

static void paging_usage(FILE *out)
{
    fprintf(out,
            "Usage: paging [-c CPU,CPU] [-r ROUNDS] [-s MIB] [-q] [-d]\n"
            "Prints lines of: round, case, memory, what, bytes, side, value.\n"
            "  -c CPU,CPU  the initiator's and the target's CPU\n"
            "  -r ROUNDS   how often each is measured (default 1)\n"
            "  -s MIB      how much of 64 GiB to use (default 128)\n"
            "  -q          fewer transfers\n"
            "  -d          only show a read with and without a page fault\n");
}

int main(int argc, char **argv)
{
    paging_options_t opts = {.rounds = 1, .sparse = 128ul << 20};
    int c;

    while ((c = getopt(argc, argv, "c:r:s:qdh")) != -1) {
        switch (c) {
        case 'c':
            opts.is_bound = 1;
            bench_read_cpus(optarg, opts.cpus);
            break;
        case 'r':
            opts.rounds = bench_read_number(c, optarg, 65536);
            break;
        case 's':
            opts.sparse = bench_read_number(c, optarg, 65536) << 20;
            break;
        case 'q':
            opts.is_quick = 1;
            break;
        case 'd':
            opts.is_demo = 1;
            break;
        case 'h':
            paging_usage(stdout);
            return 0;
        default:
            paging_usage(stderr);
            return 2;
        }
    }
    if (optind != argc) {
        bench_die("unknown argument '%s': paging -h shows what there is",
                  argv[optind]);
    }

    paging_shared = paging_share();
    return bench_ranks_run(2, opts.is_bound ? opts.cpus : NULL, paging_main,
                           &opts);
}
