/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers of memory that is there: beside UCX's own transports, and with a
 * target that computes. */
#include "paging_run.h"

#include <stdatomic.h>
#include <stdlib.h>

#define PAGING_SAMPLES     200000

/* Seconds in which segments have come, of which sockets tell by and by */
#define PAGING_WARM        2e-3


double paging_latency(paging_tl_t *tl, paging_mem_t *mem,
                      paging_dir_t dir, size_t len)
{
    int count = (len <= 4096) ? 2000 : (len <= 65536) ? 200 :
                (len <= 1048576) ? 20 : 4;
    double start;
    int i;

    start = bench_seconds();
    for (i = 0; (i < (1 + (count / 10))) ||
                ((bench_seconds() - start) < PAGING_WARM); ++i) {
        paging_move(tl, mem, dir, len, 0);
        uct_worker_progress(tl->worker); /* keys and entries come meanwhile */
    }
    start = bench_seconds();
    for (i = 0; i < count; ++i) {
        paging_move(tl, mem, dir, len, 0);
    }
    return (bench_seconds() - start) / count * 1e6;
}

double paging_bandwidth(paging_tl_t *tl, paging_mem_t *mem,
                        paging_dir_t dir, size_t len)
{
    size_t count = 2 * PAGING_AREA / len;
    double start;

    paging_stream(tl, mem, dir, len, len, count / 4);
    start = bench_seconds();
    paging_stream(tl, mem, dir, len, len, count);
    return len * count / (bench_seconds() - start) / 1e6;
}

void paging_compare_sides(paging_run_t *run, paging_kind_t *kind,
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

void paging_control(paging_run_t *run)
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

void paging_passive(paging_run_t *run, paging_kind_t *kind,
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
