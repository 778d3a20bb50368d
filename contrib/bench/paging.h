/* SPDX-License-Identifier: BSD-3-Clause */
/* What the paging benchmark is made of: transports opened through UCT, each
 * with a worker of its own; memory of the target; what the OS itself takes. */
#ifndef BENCH_PAGING_H_
#define BENCH_PAGING_H_

#include "ranks.h"

#include <uct/api/uct.h>

#define PAGING_PAGE        4096ul
#define PAGING_BLOB        1024

enum {
    PAGING_INITIATOR,
    PAGING_TARGET
};

typedef enum paging_dir {
    PAGING_READ,
    PAGING_WRITE,
    PAGING_FADD
} paging_dir_t;

/* Where the ranks meet, made before they are forked */
typedef struct paging_shared {
    char              blobs[2][PAGING_BLOB];
    uint64_t          address;
    uint64_t          values[16];
    _Atomic unsigned  is_over;  /* the target need not wait any longer */
    _Atomic unsigned  wake;     /* a futex, and its answer */
    _Atomic unsigned  woken;
} paging_shared_t;

typedef struct paging_tl {
    const char      *name;
    uct_component_h component;
    uct_md_h        md;
    uct_md_attr_t   md_attr;
    uct_worker_h    worker;
    uct_iface_h     iface;
    uct_iface_attr_t attr;
    uct_ep_h        ep;
    void            *local;      /* our own buffer, written once */
    uct_mem_h       local_memh;
} paging_tl_t;

/* Memory of the target, and at the initiator the way there */
typedef struct paging_mem {
    char                   *ptr;    /* at the target */
    size_t                 len;
    int                    is_direct;
    uct_allocated_memory_t alloc;
    uct_mem_h              memh;
    uint64_t               address;
    uct_rkey_bundle_t      key;
} paging_mem_t;

/* Zeroed, and shared by ranks that are forked after it. Dies with a line. */
paging_shared_t *paging_share(void);

/* Open a transport in both ranks and connect them; local is our buffer of len
 * bytes. Dies with a line if it is not there. */
void paging_tl_open(paging_tl_t *tl, const char *name, bench_rank_t *rank,
                    paging_shared_t *shared, void *local, size_t len);
void paging_tl_close(paging_tl_t *tl, bench_rank_t *rank);

/* Both ranks: memory of the target for this transport. ptr NULL: the transport
 * allocates it, so that peers map it. */
void paging_mem_open(paging_mem_t *mem, paging_tl_t *tl, bench_rank_t *rank,
                     paging_shared_t *shared, void *ptr, size_t len);
void paging_mem_close(paging_mem_t *mem, paging_tl_t *tl, bench_rank_t *rank);

/* One transfer, finished; a write is confirmed (flushed). FADD adds 1. */
void paging_move(paging_tl_t *tl, paging_mem_t *mem, paging_dir_t dir,
                 size_t len, size_t offset);

/* count transfers of len bytes, stride apart, at most a window in flight */
void paging_stream(paging_tl_t *tl, paging_mem_t *mem, paging_dir_t dir,
                   size_t len, size_t stride, size_t count);

/* The pages of a range as if never touched: their frames go back to the OS, and
 * nprdma is told. Target only. */
void paging_forget(paging_mem_t *mem, size_t len);

/* To swap; returns how many of the pages are out. Target only. */
size_t paging_swap_out(paging_mem_t *mem, size_t len);

/* Seconds that the OS takes: to touch each page of a range (the median of one,
 * and the sum), to populate page by page, and at once */
typedef struct paging_os {
    double one;
    double sum;
} paging_os_t;

paging_os_t paging_touch(paging_mem_t *mem, size_t len, paging_dir_t dir);
paging_os_t paging_populate(paging_mem_t *mem, size_t len, size_t step);

/* The target computes until is_over, with or without progress */
void paging_compute(paging_tl_t *tl, paging_shared_t *shared, int in_progress);

/* A thread of the target that sleeps, woken count times by the initiator:
 * both ranks call it; the target computes. The initiator gets the median. */
double paging_wake(bench_rank_t *rank, paging_shared_t *shared, int count);

/* A line of smaps_rollup or status of this process, kB */
uint64_t paging_proc_kb(const char *file, const char *name);

/* kB of what backs the memfds of nprdma whose name begins so */
uint64_t paging_memfd_kb(const char *name);

double paging_percentile(double *values, size_t count, double percent);

#endif
