/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers to and from memory that is not pinned, beside UCX's own transports
 * on memory that has been touched, and beside what the OS takes for a fault. */
#include "paging.h"

#include <nprdma/nprdma.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define PAGING_AREA        (32ul << 20)
#define PAGING_HUGE        (64ul << 30)
#define PAGING_PIECE       (64ul << 10)
#define PAGING_MAX_FAULTS  4096
#define PAGING_SAMPLES     200000

typedef struct paging_options {
    int    rounds;
    int    is_quick;
    int    is_demo;
    int    cpus[2];
    int    is_bound;
    size_t sparse;             /* bytes to use of the sparse region */
} paging_options_t;

/* One kind of memory: nprdma's, and that of UCX's own transport */
typedef struct paging_kind {
    const char   *name;
    paging_tl_t  *stock;
    char         *kernel;      /* at the target; NULL: the transport allocates */
    paging_mem_t touched;      /* everything touched, entries mapped */
    paging_mem_t pinned;       /* the same for the other transport */
    paging_mem_t again;        /* once more: if a transport allocates it, then
                                  where it lies is a part of what it costs */
    paging_mem_t fresh;        /* forgotten before each use */
} paging_kind_t;

typedef struct paging_run {
    bench_rank_t           *rank;
    paging_shared_t        *shared;
    const paging_options_t *opts;
    paging_tl_t            tl;
    paging_tl_t            cma;
    paging_tl_t            posix;
    paging_kind_t          kinds[2];
    int                    round;
} paging_run_t;

typedef double (*paging_measure_t)(paging_tl_t *tl, paging_mem_t *mem,
                                   paging_dir_t dir, size_t len);

static paging_shared_t *paging_shared;

static const char *paging_dirs[] = {"read", "write", "fadd"};

static const size_t paging_sizes[] = {2, 8, 64, 256, 1024, 4096, 65536,
                                      1048576, 8388608};

static const size_t paging_bw_sizes[] = {65536, 262144, 1048576, 4194304,
                                         16777216};

#define PAGING_COUNT(_array) (sizeof(_array) / sizeof((_array)[0]))

static int paging_is_initiator(paging_run_t *run)
{
    return run->rank->rank == PAGING_INITIATOR;
}

static void paging_sample(paging_run_t *run, const char *name,
                          const char *memory, const char *what, size_t size,
                          const char *side, double value)
{
    printf("%d\t%s\t%s\t%s\t%zu\t%s\t%.6g\n", run->round, name, memory, what,
           size, side, value);
    fflush(stdout);
}

/* Both ranks: the target computes while the initiator does what follows, until
 * paging_end. Returns whether we are the initiator. */
static int paging_begin(paging_run_t *run, paging_tl_t *tl, int in_progress)
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

static void paging_end(paging_run_t *run)
{
    atomic_store(&run->shared->is_over, 1);
    bench_barrier(run->rank);
}

static double paging_latency(paging_tl_t *tl, paging_mem_t *mem,
                             paging_dir_t dir, size_t len)
{
    int count = (len <= 4096) ? 2000 : (len <= 65536) ? 200 :
                (len <= 1048576) ? 20 : 4;
    double start;
    int i;

    for (i = 0; i < (1 + (count / 10)); ++i) {
        paging_move(tl, mem, dir, len, 0);
        uct_worker_progress(tl->worker); /* keys and entries may have come */
    }
    start = bench_seconds();
    for (i = 0; i < count; ++i) {
        paging_move(tl, mem, dir, len, 0);
    }
    return (bench_seconds() - start) / count * 1e6;
}

static double paging_bandwidth(paging_tl_t *tl, paging_mem_t *mem,
                               paging_dir_t dir, size_t len)
{
    size_t count = 2 * PAGING_AREA / len;
    double start;

    paging_stream(tl, mem, dir, len, len, count / 4);
    start = bench_seconds();
    paging_stream(tl, mem, dir, len, len, count);
    return len * count / (bench_seconds() - start) / 1e6;
}

/* Three sides in turns, the first another one in each round */
static void paging_compare_sides(paging_run_t *run, paging_kind_t *kind,
                                 const char *name, paging_measure_t measure,
                                 paging_dir_t dir, size_t len)
{
    static const char *sides[] = {"nprdma", "pinned", "again"};
    int i, side;
    double value;

    for (i = 0; i < 3; ++i) {
        side = (i + run->round) % 3;
        if (paging_begin(run, (side == 0) ? &run->tl : kind->stock, 1)) {
            value = (side == 0) ?
                    measure(&run->tl, &kind->touched, dir, len) :
                    measure(kind->stock, (side == 1) ? &kind->pinned :
                            &kind->again, dir, len);
            paging_sample(run, name, kind->name, paging_dirs[dir], len,
                          sides[side], value);
            paging_end(run);
        }
    }
}

static uint64_t paging_faults(void)
{
    nprdma_counters_t counters;
    int ret = nprdma_get_counters(&counters, sizeof(counters));

    if (ret != 0) {
        bench_die("nprdma_get_counters: %s", strerror(-ret));
    }
    return counters.remote_faults;
}

/* What a transfer has left at the target; the pattern is that of the local
 * buffer */
static void paging_check_written(paging_mem_t *mem, size_t stride, size_t len,
                                 int count)
{
    int i;

    for (i = 0; i < count; ++i) {
        if ((mem->ptr[i * stride] != 1) ||
            (mem->ptr[(i * stride) + len - 1] != 1)) {
            bench_die("wrong data: write %d of %zu bytes has not arrived", i,
                      len);
        }
    }
}

static void paging_check_read(paging_run_t *run, size_t len, int i)
{
    char *local = run->tl.local;

    if ((local[0] != 0) || (local[len - 1] != 0)) {
        bench_die("wrong data: read %d of %zu bytes has found %d and %d, "
                  "wanted 0", i, len, local[0], local[len - 1]);
    }
}

/* One transfer after another, each of pages that nobody has touched */
static void paging_minor(paging_run_t *run, paging_kind_t *kind,
                         paging_dir_t dir, size_t len, int in_progress)
{
    const char *side = in_progress ? "progress" : "compute";
    size_t stride    = (len < PAGING_PAGE) ? PAGING_PAGE : len;
    int count        = (len <= 4096) ? (run->opts->is_quick ? 100 : 500) :
                       (len <= 65536) ? 50 : (len <= 1048576) ? 8 : 3;
    double times[PAGING_MAX_FAULTS], start;
    uint64_t faults;
    int i;

    if (!paging_is_initiator(run)) {
        paging_forget(&kind->fresh, count * stride);
    }
    if (!paging_begin(run, &run->tl, in_progress)) {
        if (dir == PAGING_WRITE) {
            paging_check_written(&kind->fresh, stride, len, count);
        }
        bench_barrier(run->rank);
        return;
    }

    faults = paging_faults();
    for (i = 0; i < count; ++i) {
        memset(run->tl.local, 1, len);
        start    = bench_seconds();
        paging_move(&run->tl, &kind->fresh, dir, len, i * stride);
        times[i] = bench_seconds() - start;
        if (dir == PAGING_READ) {
            paging_check_read(run, len, i);
        }
    }
    faults = paging_faults() - faults;

    paging_sample(run, "minor", kind->name, paging_dirs[dir], len, side,
                  paging_percentile(times, count, 50) * 1e6);
    paging_sample(run, "faults", kind->name, paging_dirs[dir], len, side,
                  (double)faults / count);
    paging_end(run);
    bench_barrier(run->rank);
}

/* Many in flight, each of another page; against one thread that touches */
static void paging_rate(paging_run_t *run, paging_kind_t *kind,
                        paging_dir_t dir)
{
    size_t count = PAGING_AREA / PAGING_PAGE;
    paging_os_t os;
    double start;

    if (!paging_is_initiator(run)) {
        paging_forget(&kind->fresh, PAGING_AREA);
        os = paging_touch(&kind->fresh, PAGING_AREA, dir);
        paging_sample(run, "rate", kind->name, paging_dirs[dir], 8, "os",
                      count / os.sum);
        paging_forget(&kind->fresh, PAGING_AREA);
    }
    if (paging_begin(run, &run->tl, 1)) {
        memset(run->tl.local, 1, PAGING_AREA);
        start = bench_seconds();
        paging_stream(&run->tl, &kind->fresh, dir, 8, PAGING_PAGE, count);
        paging_sample(run, "rate", kind->name, paging_dirs[dir], 8, "nprdma",
                      count / (bench_seconds() - start));
        paging_end(run);
    } else if (dir == PAGING_WRITE) {
        paging_check_written(&kind->fresh, PAGING_PAGE, 8, count);
    }
}

/* The OS alone, at the target, on the same memory */
static void paging_os_faults(paging_run_t *run, paging_kind_t *kind)
{
    static const size_t sizes[] = {4ul << 20, 64ul << 10, 8ul << 20};
    paging_mem_t *mem = &kind->fresh;
    paging_os_t os;
    size_t i;
    int dir;

    if (!paging_is_initiator(run)) {
        for (i = 0; i < PAGING_COUNT(sizes); ++i) {
            for (dir = PAGING_READ; dir <= PAGING_WRITE; ++dir) {
                paging_forget(mem, sizes[i]);
                os = paging_touch(mem, sizes[i], dir);
                paging_sample(run, "os_touch", kind->name, paging_dirs[dir],
                              (i == 0) ? PAGING_PAGE : sizes[i], "os",
                              ((i == 0) ? os.one : os.sum) * 1e6);
            }
            paging_forget(mem, sizes[i]);
            os = paging_populate(mem, sizes[i],
                                 (i == 0) ? PAGING_PAGE : sizes[i]);
            paging_sample(run, "os_populate", kind->name, "write",
                          (i == 0) ? PAGING_PAGE : sizes[i], "os",
                          ((i == 0) ? os.one : os.sum) * 1e6);
        }
    }
    bench_barrier(run->rank);
}

/* An atomic on memory that only the target's CPU can change at once: the
 * shortest question and answer over the control channel */
static void paging_control(paging_run_t *run)
{
    paging_kind_t *kind = &run->kinds[0];
    int in_progress;
    double times[PAGING_MAX_FAULTS], start;
    int i, count = 1000;

    for (in_progress = 0; in_progress < 2; ++in_progress) {
        if (!paging_begin(run, &run->tl, in_progress)) {
            continue;
        }
        for (i = 0; i < count; ++i) {
            start    = bench_seconds();
            paging_move(&run->tl, &kind->touched, PAGING_FADD, 8, 64);
            times[i] = bench_seconds() - start;
        }
        paging_sample(run, "control", kind->name, "fadd", 8,
                      in_progress ? "progress" : "compute",
                      paging_percentile(times, count, 50) * 1e6);
        paging_end(run);
    }
}

static void paging_fill(paging_mem_t *mem, size_t len)
{
    size_t i;

    /* Not all alike: zram keeps such pages as one word */
    for (i = 0; i < (len / 8); ++i) {
        ((uint64_t*)mem->ptr)[i] = (i & 64) ? (i * 0x9e3779b97f4a7c15ul) : i;
    }
}

static void paging_major(paging_run_t *run)
{
    paging_kind_t *kind = &run->kinds[0];
    int count           = run->opts->is_quick ? 64 : 256;
    size_t len          = count * PAGING_PAGE, out;
    double times[PAGING_MAX_FAULTS], start;
    uint64_t faults, word, wanted;
    paging_os_t os;
    struct sysinfo info;
    int i;

    sysinfo(&info);
    if ((info.freeswap * info.mem_unit) < (64ul << 20)) {
        return;
    }

    if (!paging_is_initiator(run)) {
        paging_fill(&kind->fresh, len);
        out = paging_swap_out(&kind->fresh, len);
        os  = paging_touch(&kind->fresh, len, PAGING_READ);
        paging_sample(run, "major", kind->name, "read", 8, "os", os.one * 1e6);
        paging_fill(&kind->fresh, len);
        start = bench_seconds();
        out   = paging_swap_out(&kind->fresh, len);
        paging_sample(run, "pageout", kind->name, "write", 4096, "os",
                      (bench_seconds() - start) / count * 1e6);
        paging_sample(run, "swapped", kind->name, "read", 8, "os",
                      (double)out / count);
    }
    if (paging_begin(run, &run->tl, 1)) {
        faults = paging_faults();
        for (i = 0; i < count; ++i) {
            start    = bench_seconds();
            paging_move(&run->tl, &kind->fresh, PAGING_READ, 8,
                        i * PAGING_PAGE);
            times[i] = bench_seconds() - start;
            word     = i * PAGING_PAGE / 8;
            wanted   = (word & 64) ? (word * 0x9e3779b97f4a7c15ul) : word;
            if (*(uint64_t*)run->tl.local != wanted) {
                bench_die("wrong data: page %d has come back from swap wrong",
                          i);
            }
        }
        faults = paging_faults() - faults;
        paging_sample(run, "major", kind->name, "read", 8, "nprdma",
                      paging_percentile(times, count, 50) * 1e6);
        paging_sample(run, "faults", kind->name, "major", 8, "progress",
                      (double)faults / count);
        paging_end(run);
    }
}

static void paging_passive(paging_run_t *run, paging_kind_t *kind,
                           paging_dir_t dir)
{
    double seconds = run->opts->is_quick ? 0.1 : 1.0, end, start;
    double *times;
    size_t count = 0;

    if (!paging_begin(run, &run->tl, 0)) {
        return;
    }
    times = malloc(PAGING_SAMPLES * sizeof(*times));
    if (times == NULL) {
        bench_die("no memory for %d times", PAGING_SAMPLES);
    }
    end = bench_seconds() + seconds;
    while ((count < PAGING_SAMPLES) && ((start = bench_seconds()) < end)) {
        paging_move(&run->tl, &kind->touched, dir, 8, 64);
        times[count++] = bench_seconds() - start;
    }
    paging_sample(run, "passive", kind->name, paging_dirs[dir], 8, "p50",
                  paging_percentile(times, count, 50) * 1e6);
    paging_sample(run, "passive", kind->name, paging_dirs[dir], 8, "p99",
                  paging_percentile(times, count, 99) * 1e6);
    free(times);
    paging_end(run);
}

static void *paging_map(size_t len)
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

/* Pieces of a region that is far larger than memory */
static void paging_sparse(paging_run_t *run)
{
    static const char *directory = "nprdma-arenas";
    size_t count  = run->opts->sparse / PAGING_PIECE, i;
    size_t stride = PAGING_HUGE / count;
    uint64_t rss = 0, tables = 0, pte = 0;
    paging_mem_t mem;
    void *ptr = NULL;

    if (!paging_is_initiator(run)) {
        ptr = paging_map(PAGING_HUGE);
        /* Without stdio's own pages in the difference */
        paging_proc_kb("/proc/self/smaps_rollup", "Rss");
        rss    = paging_proc_kb("/proc/self/smaps_rollup", "Rss");
        tables = paging_memfd_kb(directory);
        pte    = paging_proc_kb("/proc/self/status", "VmPTE");
    }
    paging_mem_open(&mem, &run->tl, run->rank, run->shared, ptr, PAGING_HUGE);
    if (paging_begin(run, &run->tl, 1)) {
        memset(run->tl.local, 1, PAGING_PIECE);
        for (i = 0; i < count; ++i) {
            paging_move(&run->tl, &mem, PAGING_WRITE, PAGING_PIECE,
                        (i * stride) & ~(PAGING_PAGE - 1));
        }
        paging_end(run);
    } else {
        rss    = paging_proc_kb("/proc/self/smaps_rollup", "Rss") - rss;
        tables = paging_memfd_kb(directory) - tables;
        pte    = paging_proc_kb("/proc/self/status", "VmPTE") - pte;
        for (i = 0; i < count; ++i) {
            if (((char*)ptr)[((i * stride) & ~(PAGING_PAGE - 1)) +
                             PAGING_PIECE - 1] != 1) {
                bench_die("wrong data: piece %zu has not arrived", i);
            }
        }
        paging_sample(run, "sparse", "kernel", "write", count * PAGING_PIECE,
                      "rss", rss);
        paging_sample(run, "sparse", "kernel", "write", count * PAGING_PIECE,
                      "tables", tables);
        paging_sample(run, "sparse", "kernel", "write", count * PAGING_PIECE,
                      "pte", pte);
    }
    paging_mem_close(&mem, &run->tl, run->rank);
    if (ptr != NULL) {
        munmap(ptr, PAGING_HUGE);
    }
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

static unsigned long paging_number(char option, const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if ((*end != '\0') || (value == 0) || (value > 65536)) {
        bench_die("-%c %s: a number from 1 to 65536 is wanted", option, text);
    }
    return value;
}

int main(int argc, char **argv)
{
    paging_options_t opts = {.rounds = 1, .sparse = 128ul << 20};
    int c;

    while ((c = getopt(argc, argv, "c:r:s:qdh")) != -1) {
        switch (c) {
        case 'c':
            opts.is_bound = 1;
            if (sscanf(optarg, "%d,%d", &opts.cpus[0], &opts.cpus[1]) != 2) {
                bench_die("-c %s: two CPUs are wanted, as in -c 0,1", optarg);
            }
            break;
        case 'r':
            opts.rounds = paging_number(c, optarg);
            break;
        case 's':
            opts.sparse = paging_number(c, optarg) << 20;
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

    paging_shared = mmap(NULL, sizeof(*paging_shared), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (paging_shared == MAP_FAILED) {
        bench_die("no memory to meet in: %m");
    }
    return bench_ranks_run(2, opts.is_bound ? opts.cpus : NULL, paging_main,
                           &opts);
}
