/* SPDX-License-Identifier: BSD-3-Clause */
/* What small puts into many pages cost through UCP, and how many of them are
 * left to the target's CPU. */
#include "ranks.h"
#include "zipf.h"

#include <nprdma/nprdma.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define UNLOAD_PAGE   4096ul
#define UNLOAD_KEY    1024
#define UNLOAD_HOT    4096     /* pages that are hinted */
#define UNLOAD_ROUNDS 10       /* the first is not measured */

/* Where the ranks meet, made before they are forked */
typedef struct unload_shared {
    char         key[UNLOAD_KEY];
    size_t       key_len;
    uint64_t     address;
    _Atomic int  is_over;   /* the target need not wait any longer */
} unload_shared_t;

typedef struct unload_options {
    size_t          size;
    size_t          pages;
    size_t          puts;      /* of each round */
    size_t          every;     /* puts, after which comes a flush */
    double          skew;      /* 0: uniform */
    int             is_computing; /* the target */
    int             is_warm;   /* each page was put to before */
    int             is_pinned;
    int             cpus[2];
    unload_shared_t *shared;
} unload_options_t;

/* Of pages, one for each put of all rounds, and whether they are among the hot
 * ones: what comes again in a round is chance, as in a stream without an end */
typedef struct unload_stream {
    uint32_t *pages;
    uint8_t  *hot;
} unload_stream_t;


/* By Zipf, the pages in any order */
static void
unload_stream_make(const unload_options_t *opts, unload_stream_t *stream)
{
    double *sums      = zipf_sums(opts->pages, opts->skew);
    const size_t puts = opts->puts * UNLOAD_ROUNDS;
    uint32_t *at = malloc(opts->pages * sizeof(*at)), rank, other;
    size_t i;

    stream->pages = malloc(puts * sizeof(*stream->pages));
    stream->hot   = malloc(puts);
    if ((sums == NULL) || (at == NULL) || (stream->pages == NULL) ||
        (stream->hot == NULL)) {
        bench_die("no memory for %zu puts to %zu pages", puts, opts->pages);
    }

    srand48(1);
    for (i = 0; i < opts->pages; ++i) {
        other     = drand48() * (i + 1);
        at[i]     = at[other];
        at[other] = i;
    }
    for (i = 0; i < puts; ++i) {
        rank             = zipf_rank(sums, opts->pages, drand48());
        stream->pages[i] = at[rank];
        stream->hot[i]   = rank < UNLOAD_HOT;
    }
    free(sums);
    free(at);
}

static void unload_counters(nprdma_counters_t *counters)
{
    if (nprdma_get_counters(counters, sizeof(*counters)) != 0) {
        bench_die("nprdma does not run here: start it by UCX_TLS=nprdma "
                  "nprdma-run");
    }
}

/* A round; returns us a put */
static double unload_round(const unload_options_t *opts, bench_rank_t *rank,
                           const unload_stream_t *stream, int round,
                           ucp_rkey_h key, const char *data)
{
    const ucp_request_param_t none = {0};
    const size_t first             = round * opts->puts;
    double begin                   = bench_seconds();
    uint64_t address;
    size_t i;

    for (i = first; i < (first + opts->puts); ++i) {
        address = opts->shared->address + (stream->pages[i] * UNLOAD_PAGE);
        nprdma_set_hint(stream->hot[i] ? NPRDMA_HINT_HOT : 0);
        bench_wait(rank, ucp_put_nbx(rank->eps[1], data, opts->size, address,
                                     key, &none));
        if ((i + 1) % opts->every == 0) {
            bench_wait(rank, ucp_ep_flush_nbx(rank->eps[1], &none));
        }
    }
    bench_wait(rank, ucp_ep_flush_nbx(rank->eps[1], &none));
    return (bench_seconds() - begin) * 1e6 / opts->puts;
}

/* One put to each page */
static void unload_warm(const unload_options_t *opts, bench_rank_t *rank,
                        ucp_rkey_h key, const char *data)
{
    const ucp_request_param_t none = {0};
    uint64_t address               = opts->shared->address;
    size_t i;

    for (i = 0; i < opts->pages; ++i, address += UNLOAD_PAGE) {
        bench_wait(rank, ucp_put_nbx(rank->eps[1], data, opts->size, address,
                                     key, &none));
    }
    bench_wait(rank, ucp_ep_flush_nbx(rank->eps[1], &none));
}

static void unload_initiate(const unload_options_t *opts, bench_rank_t *rank)
{
    nprdma_counters_t before, after;
    double us[UNLOAD_ROUNDS - 1];
    unload_stream_t stream;
    uint64_t weighed;
    ucp_rkey_h key;
    char *data;
    int i;

    bench_check(ucp_ep_rkey_unpack(rank->eps[1], opts->shared->key, &key),
                 "ucp_ep_rkey_unpack");
    data = bench_memory(UNLOAD_PAGE);
    memset(data, 7, UNLOAD_PAGE);
    unload_stream_make(opts, &stream);
    if (opts->is_warm) {
        unload_warm(opts, rank, key, data);
    }
    unload_round(opts, rank, &stream, 0, key, data); /* all is there, learnt */
    unload_counters(&before);
    for (i = 1; i < UNLOAD_ROUNDS; ++i) {
        us[i - 1] = unload_round(opts, rank, &stream, i, key, data);
    }
    unload_counters(&after);
    if (memcmp(&before, &after, sizeof(after)) == 0) {
        bench_die("the puts did not go over nprdma: set UCX_TLS=nprdma");
    }
    weighed = after.unloaded + after.offloaded - before.unloaded -
              before.offloaded;
    bench_sort(us, UNLOAD_ROUNDS - 1);
    printf("%zu %zu %.3f %.3f %.3f ", opts->size, opts->pages,
           us[(UNLOAD_ROUNDS - 1) / 2], us[0], us[UNLOAD_ROUNDS - 2]);
    if (weighed == 0) {
        printf("-\n");
    } else {
        printf("%.1f\n",
               100.0 * (after.unloaded - before.unloaded) / weighed);
    }
    ucp_rkey_destroy(key);
}

static void unload_wait(const unload_options_t *opts, bench_rank_t *rank)
{
    volatile double sum = 1;
    int i;

    while (!atomic_load(&opts->shared->is_over)) {
        if (!opts->is_computing) {
            ucp_worker_progress(rank->worker);
            continue;
        }
        for (i = 0; i < 10000; ++i) {
            sum = sum * 1.000001 + i;
        }
    }
}

static void unload_main(bench_rank_t *rank, void *arg)
{
    const unload_options_t *opts = arg;
    const char *service          = getenv("UCX_NPRDMA_SERVICE");
    const size_t len             = opts->pages * UNLOAD_PAGE;
    ucp_mem_map_params_t params  = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH
    };
    void *packed, *memory = NULL;
    ucp_mem_h memh = NULL;

    if (opts->is_computing && (service != NULL) &&
        (strcasecmp(service, "off") == 0)) {
        bench_die("-t: with UCX_NPRDMA_SERVICE=off a target that computes "
                  "answers nothing");
    }

    /* the target as well: without an endpoint UCP would let its device sleep,
     * and each message would have to wake it */
    bench_connect(rank, !rank->rank);
    if (rank->rank == 1) {
        memory         = bench_memory(len);
        params.address = memory;
        params.length  = len;
        bench_check(ucp_mem_map(rank->context, &params, &memh), "ucp_mem_map");
        bench_check(ucp_rkey_pack(rank->context, memh, &packed,
                                   &opts->shared->key_len), "ucp_rkey_pack");
        if (opts->shared->key_len > UNLOAD_KEY) {
            bench_die("a key of more than %d bytes", UNLOAD_KEY);
        }
        memcpy(opts->shared->key, packed, opts->shared->key_len);
        opts->shared->address = (uintptr_t)memory;
        ucp_rkey_buffer_release(packed);
    }
    bench_barrier(rank);
    if (rank->rank == 0) {
        unload_initiate(opts, rank);
        atomic_store(&opts->shared->is_over, 1);
    } else {
        unload_wait(opts, rank);
    }
    bench_barrier(rank);
    if (rank->rank == 1) {
        ucp_mem_unmap(rank->context, memh);
        munmap(memory, len);
    }
}

static void unload_usage(FILE *file)
{
    fprintf(file,
            "Usage: unload [OPTION...]\n"
            "Small puts to pages of another process, in rounds: prints the\n"
            "size, pages, us a put (median, least and most of %d rounds), and\n"
            "the share in %% that UCX_NPRDMA_UNLOAD has left to the CPU, - if\n"
            "it was not asked. It is started by nprdma-run, with\n"
            "UCX_TLS=nprdma; over an RDMA device with nprdma.ko, and\n"
            "UCX_NPRDMA_INTRA_NODE=verbs.\n"
            "  -s SIZE     bytes of a put, up to 4096 (16)\n"
            "  -p PAGES    of the target, of 4 KiB (4096)\n"
            "  -n PUTS     of a round (20000)\n"
            "  -f PUTS     after so many comes a flush (1)\n"
            "  -z SKEW     page k is put to k^-SKEW times as often as the\n"
            "              first (0.5; 0: all alike); the first %d are "
            "hinted\n"
            "  -t          the target computes; else it is in progress\n"
            "  -w          one put to each page before\n"
            "  -c CPU,CPU  the initiator's and the target's CPU\n",
            UNLOAD_ROUNDS - 1, UNLOAD_HOT);
}

int main(int argc, char **argv)
{
    unload_options_t opts = {
        .size  = 16,
        .pages = 4096,
        .puts  = 20000,
        .every = 1,
        .skew  = 0.5
    };
    char *end;
    int c;

    while ((c = getopt(argc, argv, "s:p:n:f:z:twc:h")) != -1) {
        switch (c) {
        case 's':
            opts.size = bench_read_number(c, optarg, UNLOAD_PAGE);
            break;
        case 'p':
            opts.pages = bench_read_number(c, optarg, 1ul << 24);
            break;
        case 'n':
            opts.puts = bench_read_number(c, optarg, 1ul << 30);
            break;
        case 'f':
            opts.every = bench_read_number(c, optarg, 1ul << 30);
            break;
        case 'z':
            opts.skew = strtod(optarg, &end);
            if ((*end != '\0') || !(opts.skew >= 0) || (opts.skew > 10)) {
                bench_die("'%s': a number from 0 to 10 is wanted", optarg);
            }
            break;
        case 't':
            opts.is_computing = 1;
            break;
        case 'w':
            opts.is_warm = 1;
            break;
        case 'c':
            opts.is_pinned = 1;
            bench_read_cpus(optarg, opts.cpus);
            break;
        case 'h':
            unload_usage(stdout);
            return 0;
        default:
            unload_usage(stderr);
            return 2;
        }
    }
    if (optind != argc) {
        unload_usage(stderr);
        return 2;
    }

    opts.shared = bench_shared_memory(sizeof(*opts.shared));
    bench_features = UCP_FEATURE_RMA;
    return bench_ranks_run(2, opts.is_pinned ? opts.cpus : NULL, unload_main,
                           &opts);
}
