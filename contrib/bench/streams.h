/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams of small puts, and a model of the device that would execute them: by
 * both a policy of proto/unload.h is judged. Nothing is moved; time is counted,
 * not taken.
 *
 * The model is calibrated on the figures that seed 002 publishes (its section
 * 4, one RNIC each on two hosts, a round trip of 16 bytes): 2.6 us where the
 * cache has the translation, 5.1 us where it has not, 3.4 us unloaded, and 3.5
 * where the CPU's own translations miss, which grows by the logarithm here. Its
 * cache is np_tlb's: 4096 pages, 4 ways, least recently used. It is shared by
 * all peers of the device: one stream stands for all of them.
 */
#ifndef BENCH_STREAMS_H_
#define BENCH_STREAMS_H_

#include "nprdma/dev/soft/tlb.h"
#include "nprdma/proto/unload.h"

typedef enum stream_kind {
    STREAM_UNIFORM,
    STREAM_ZIPF,      /* 0.5, as in the seed */
    STREAM_ZIPF_99,   /* 0.99 */
    STREAM_SCAN,      /* one page after the other */
    STREAM_DRIFT,     /* zipf, and every eighth of the puts the hot pages are
                         others */
    STREAM_PHASES,    /* uniform; every eighth of the puts over 1024 pages, or
                         over all, in turn */
    STREAM_LAST
} stream_kind_t;

extern const char *const stream_names[];

/* Pages of a stream */
#define STREAM_PAGES_MAX    (1u << 20)
#define STREAM_PHASE_SMALL  1024u
#define STREAM_PHASES_COUNT 8u

typedef struct stream {
    stream_kind_t kind;
    uint32_t      pages;
    uint64_t      puts;    /* of the whole */
    uint64_t      at;
    uint64_t      state;   /* of the generator */
    double        *sums;   /* zipf: of the weights up to each rank */
} stream_t;

/* A stream that goes to a device by a policy */
typedef struct stream_run {
    stream_t    stream;
    np_unload_t unload;
    np_tlb_t    tlb;
    np_stats_t  stats;
    double      unload_ns;
    uint64_t    unloaded;
} stream_run_t;

/* Exits if there is no memory */
void stream_begin(stream_run_t *run, stream_kind_t kind, uint32_t pages,
                  uint64_t puts, np_unload_policy_t policy);
void stream_end(stream_run_t *run);

/* The pages of the next puts, which are taken back */
void stream_pages(stream_run_t *run, uint64_t *pages, uint64_t puts);

/* Put so many times; returns the mean, ns */
double stream_put(stream_run_t *run, uint64_t puts);

/* Mean of the second half of so many puts, ns: the first one fills the cache */
double stream_mean(stream_kind_t kind, uint32_t pages, uint64_t puts,
                   np_unload_policy_t policy);

#endif
