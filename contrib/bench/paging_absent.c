/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers of memory that is absent, beside what the OS takes for a fault. */
#include "paging_run.h"

#include <nprdma/nprdma.h>

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#define PAGING_HUGE        (64ul << 30)
#define PAGING_PIECE       (64ul << 10)


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

void paging_minor(paging_run_t *run, paging_kind_t *kind,
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

void paging_rate(paging_run_t *run, paging_kind_t *kind,
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

void paging_os_faults(paging_run_t *run, paging_kind_t *kind)
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

static void paging_fill(paging_mem_t *mem, size_t len)
{
    size_t i;

    /* Not all alike: zram keeps such pages as one word */
    for (i = 0; i < (len / 8); ++i) {
        ((uint64_t*)mem->ptr)[i] = (i & 64) ? (i * 0x9e3779b97f4a7c15ul) : i;
    }
}

void paging_major(paging_run_t *run)
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

void paging_sparse(paging_run_t *run)
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
