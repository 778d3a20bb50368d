/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the benchmarks of this directory share. A program is one osu_bench_t:
 * a title, defaults, and a step; the loop, options, data and output are here.
 */

#ifndef OSU_BENCH_OSU_H_
#define OSU_BENCH_OSU_H_

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#define OSU_VERSION      "v7.4-nprdma"
#define OSU_LARGE_SIZE   8192     /* above it the "large" counts apply */
#define OSU_MAX_SIZE     (1 << 30) /* MPI counts are ints */
#define OSU_MAX_WINDOW   65536
#define OSU_MAX_COUNT    100000000
#define OSU_EXIT_DATA    1
#define OSU_EXIT_USAGE   2

/* What a program takes beyond -m -i -x -c -h -v --fresh */
enum {
    OSU_CAP_WINDOW  = 1 << 0, /* -W */
    OSU_CAP_BUFNUM  = 1 << 1, /* -b */
    OSU_CAP_DIRTY   = 1 << 2, /* --dirty */
    OSU_CAP_FULL    = 1 << 3, /* -f, -M */
    OSU_CAP_RMA     = 1 << 4, /* -w, -s */
    OSU_CAP_PAIRS   = 1 << 5, /* -p; any even number of ranks */
    OSU_CAP_RATE    = 1 << 6, /* -R */
    OSU_CAP_NO_SIZE = 1 << 7, /* one fixed size: no -m */
    OSU_CAP_NO_DATA = 1 << 8, /* moves no data: no -c, no --fresh, no -m */
    OSU_CAP_BLOCKS  = 1 << 9  /* a block for each rank */
};

typedef enum {
    OSU_KIND_LATENCY,   /* time of the senders, divided by halves */
    OSU_KIND_BANDWIDTH, /* bytes over the time of the slowest sender */
    OSU_KIND_COLLECTIVE /* time of every rank: average, minimum, maximum */
} osu_kind_t;

typedef enum {
    OSU_WIN_CREATE,
    OSU_WIN_ALLOCATE,
    OSU_WIN_DYNAMIC
} osu_win_t;

typedef enum {
    OSU_SYNC_LOCK,
    OSU_SYNC_FLUSH,
    OSU_SYNC_FLUSH_LOCAL,
    OSU_SYNC_LOCK_ALL,
    OSU_SYNC_PSCW,
    OSU_SYNC_FENCE
} osu_sync_t;

typedef struct {
    size_t     min_size;
    size_t     max_size;
    int        iterations;       /* up to OSU_LARGE_SIZE */
    int        iterations_large;
    int        skip;
    int        skip_large;
    int        window;
    int        pairs;            /* 0: half of the ranks */
    int        validate;
    int        full;
    int        fresh;
    int        dirty;
    int        multiple;         /* a buffer of its own per window slot */
    int        rate;
    int        digits;           /* after the point */
    size_t     mem_limit;
    osu_win_t  win;
    osu_sync_t sync;
} osu_options_t;

/* Slots of a window, `stride` bytes apart; stride 0: all slots are one */
typedef struct {
    char   *base;
    size_t stride;
    size_t bytes;
    int    fresh;
} osu_buffer_t;

typedef struct osu_run   osu_run_t;
typedef struct osu_bench osu_bench_t;

struct osu_bench {
    const char   *name;
    const char   *title;
    osu_kind_t   kind;
    unsigned     caps;
    MPI_Datatype dtype;
    size_t       min_size;
    size_t       max_size;
    int          halves;     /* 2: a step goes there and back */

    /* Per size */
    void         (*setup)(osu_run_t *run);
    void         (*teardown)(osu_run_t *run);
    /* Outside the timed part, with -c or --fresh only */
    void         (*before)(osu_run_t *run, int iter);
    void         (*after)(osu_run_t *run, int iter);
    /* The timed part */
    void         (*step)(osu_run_t *run, int iter);

    /* One-sided programs: one operation, and what must be found afterwards */
    void         (*op)(osu_run_t *run, int slot);
    void         (*check_origin)(osu_run_t *run, int iter, int slot);
    void         (*check_target)(osu_run_t *run, int iter, int slot);
};

/* One-sided state (rma.c) */
typedef struct {
    MPI_Win      win;
    char         *mem;       /* our part of the window */
    size_t       mem_bytes;
    osu_buffer_t own;        /* its memory, unless MPI allocated it */
    MPI_Aint     disp;       /* where the peer's part begins */
    MPI_Group    peer_group;
} osu_rma_t;

struct osu_run {
    const osu_bench_t *bench;
    osu_options_t     opts;
    int               rank;
    int               nprocs;
    int               pairs;
    int               peer;    /* -1: this rank only takes part in barriers */
    int               sender;
    size_t            size;
    int               iterations;
    int               skip;
    int               halves;  /* one-way transfers a step is made of */
    int               window;  /* messages a step; 1 for latency programs */
    osu_buffer_t      sbuf;
    osu_buffer_t      rbuf;
    MPI_Request       *reqs;
    osu_rma_t         rma;
    double            elapsed; /* seconds, timed iterations together */
    int               errors;
};

/* run.c */
int osu_main(int argc, char **argv, const osu_bench_t *bench);

/* options.c; returns -1 to go on, else the code to exit with */
int osu_options_parse(int argc, char **argv, const osu_bench_t *bench,
                      osu_options_t *opts);

/* buffer.c */
void osu_buffer_alloc(osu_buffer_t *buf, size_t size, int slots, int multiple,
                      int fresh);
void osu_buffer_free(osu_buffer_t *buf);
char *osu_buffer_slot(const osu_buffer_t *buf, int slot);

/* pattern.c: a byte depends on iteration, author, slot and offset, and always
 * differs from the byte of the iteration before */
void osu_pattern_fill(void *buf, size_t size, int iter, int author, int slot);
void osu_pattern_check(osu_run_t *run, const void *buf, size_t size, int iter,
                       int author, int slot);
void osu_data_error(osu_run_t *run, int iter, size_t offset, uint64_t wanted,
                    uint64_t found);

/* report.c */
void osu_report_version(const osu_bench_t *bench);
void osu_report_header(const osu_run_t *run);
void osu_report_row(osu_run_t *run);

/* pt2pt.c */
void osu_pt2pt_setup(osu_run_t *run);
void osu_pt2pt_teardown(osu_run_t *run);
void osu_pt2pt_before(osu_run_t *run, int iter);
void osu_pt2pt_after(osu_run_t *run, int iter);
void osu_pt2pt_latency_step(osu_run_t *run, int iter);
void osu_pt2pt_bandwidth_step(osu_run_t *run, int iter);

/* rma.c */
void osu_rma_setup(osu_run_t *run);
void osu_rma_teardown(osu_run_t *run);
void osu_rma_before(osu_run_t *run, int iter);
void osu_rma_after(osu_run_t *run, int iter);
void osu_rma_latency_step(osu_run_t *run, int iter);
void osu_rma_bandwidth_step(osu_run_t *run, int iter);
void osu_rma_local_begin(osu_run_t *run);
void osu_rma_local_end(osu_run_t *run);
char *osu_rma_mem(const osu_run_t *run, int slot);
MPI_Aint osu_rma_disp(const osu_run_t *run, int slot);
int osu_rma_window_author(const osu_run_t *run, int rank);
void osu_rma_check_put(osu_run_t *run, int iter, int slot);
void osu_rma_check_fetched(osu_run_t *run, int iter, int slot);

/* coll.c: one send and one receive buffer, in blocks of the size */
int osu_coll_blocks(const osu_run_t *run);
void osu_coll_setup(osu_run_t *run);
void osu_coll_teardown(osu_run_t *run);
void osu_coll_renew(osu_run_t *run);

#endif
