/* SPDX-License-Identifier: BSD-3-Clause */
/* A run of the paging benchmark: what it works on, and its cases. Both ranks
 * call each case; the initiator measures, unless it is the OS at the target. */
#ifndef BENCH_PAGING_RUN_H_
#define BENCH_PAGING_RUN_H_

#include "paging.h"

#define PAGING_AREA        (32ul << 20)
#define PAGING_MAX_FAULTS  4096

#define PAGING_COUNT(_array) (sizeof(_array) / sizeof((_array)[0]))

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
    char         *kernel;      /* at the target; NULL: the transport
                                  allocates */
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

extern const char *paging_dirs[];

static inline int paging_is_initiator(paging_run_t *run)
{
    return run->rank->rank == PAGING_INITIATOR;
}

/* One line of output */
void paging_sample(paging_run_t *run, const char *name, const char *memory,
                   const char *what, size_t size, const char *side,
                   double value);

/* The target computes while the initiator does what follows, until paging_end.
 * Returns whether we are the initiator. */
int paging_begin(paging_run_t *run, paging_tl_t *tl, int in_progress);
void paging_end(paging_run_t *run);

/* Memory of small pages that nobody has touched */
void *paging_map(size_t len);


/* -- everything is there: paging_present.c */

/* Microseconds of a transfer; MB/s of many */
double paging_latency(paging_tl_t *tl, paging_mem_t *mem, paging_dir_t dir,
                      size_t len);
double paging_bandwidth(paging_tl_t *tl, paging_mem_t *mem, paging_dir_t dir,
                        size_t len);

/* Three sides in turns, the first another one in each round */
void paging_compare_sides(paging_run_t *run, paging_kind_t *kind,
                          const char *name, paging_measure_t measure,
                          paging_dir_t dir, size_t len);

/* An atomic on memory that only the target's CPU can change at once: the
 * shortest question and answer over the control channel */
void paging_control(paging_run_t *run);

/* The target computes for a second */
void paging_passive(paging_run_t *run, paging_kind_t *kind, paging_dir_t dir);


/* -- pages are absent: paging_absent.c */

/* One transfer after another, each of pages that nobody has touched */
void paging_minor(paging_run_t *run, paging_kind_t *kind, paging_dir_t dir,
                  size_t len, int in_progress);

/* Many in flight, each of another page; against one thread that touches */
void paging_rate(paging_run_t *run, paging_kind_t *kind, paging_dir_t dir);

/* The OS alone, at the target, on the same memory */
void paging_os_faults(paging_run_t *run, paging_kind_t *kind);

/* Pages that are in swap */
void paging_major(paging_run_t *run);

/* Pieces of a region that is far larger than memory */
void paging_sparse(paging_run_t *run);

#endif
