/* SPDX-License-Identifier: BSD-3-Clause */
#include "streams.h"

#include "zipf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIT_NS    2600.0
#define MISS_NS   5100.0
#define UNLOAD_NS 3400.0
#define LARGE_NS  100.0   /* more, at 2^20 pages */

const char *const stream_names[] = {"uniform", "zipf-0.5", "zipf-0.99", "scan",
                                    "drift", "phases"};


/* xorshift64*: the same numbers in each run */
static uint64_t stream_random(stream_t *stream)
{
    stream->state ^= stream->state >> 12;
    stream->state ^= stream->state << 25;
    stream->state ^= stream->state >> 27;
    return stream->state * UINT64_C(0x2545f4914f6cdd1d);
}

static int stream_is_zipf(const stream_t *stream)
{
    return (stream->kind == STREAM_ZIPF) || (stream->kind == STREAM_ZIPF_99) ||
           (stream->kind == STREAM_DRIFT);
}

static void stream_no_memory(void)
{
    fprintf(stderr, "no memory for a stream\n");
    exit(1);
}

static void stream_open(stream_t *stream, stream_kind_t kind, uint32_t pages,
                        uint64_t puts)
{
    *stream = (stream_t){
        .kind  = kind,
        .pages = pages,
        .puts  = puts,
        .state = 42
    };
    if (!stream_is_zipf(stream)) {
        return;
    }

    stream->sums = zipf_sums(pages, (kind == STREAM_ZIPF_99) ? 0.99 : 0.5);
    if (stream->sums == NULL) {
        stream_no_memory();
    }
}

static uint32_t stream_rank(stream_t *stream)
{
    return zipf_rank(stream->sums, stream->pages,
                     (double)(stream_random(stream) >> 11) / (1ull << 53));
}

/* The next page, and its rank: 0 is put to most */
static uint64_t stream_next(stream_t *stream, uint32_t *rank)
{
    const uint64_t at    = stream->at++;
    const unsigned phase = at * STREAM_PHASES_COUNT / stream->puts;
    uint64_t page;

    switch (stream->kind) {
    case STREAM_UNIFORM:
        *rank = stream_random(stream) % stream->pages;
        break;
    case STREAM_SCAN:
        *rank = at % stream->pages;
        break;
    case STREAM_PHASES:
        *rank = stream_random(stream) %
                ((phase % 2 == 0) ? STREAM_PHASE_SMALL : stream->pages);
        break;
    default:
        *rank = stream_rank(stream);
        break;
    }

    page = *rank;
    if (stream->kind == STREAM_DRIFT) {
        page = (page + (phase * (stream->pages / STREAM_PHASES_COUNT))) %
               stream->pages;
    }
    /* hot pages are no neighbours: odd, so that it is a permutation */
    return (UINT64_C(0x7f1234) << 20) +
           ((page * 0x9e375u) & (STREAM_PAGES_MAX - 1));
}

void stream_begin(stream_run_t *run, stream_kind_t kind, uint32_t pages,
                  uint64_t puts, np_unload_policy_t policy)
{
    memset(run, 0, sizeof(*run));
    stream_open(&run->stream, kind, pages, puts);
    run->tlb.cache = calloc(1, sizeof(*run->tlb.cache));
    run->tlb.stats = &run->stats;
    run->unload_ns = UNLOAD_NS + (LARGE_NS * log2(pages) / 20);
    if ((run->tlb.cache == NULL) ||
        (np_unload_init(&run->unload, policy) != 0)) {
        stream_no_memory();
    }
}

void stream_end(stream_run_t *run)
{
    np_unload_cleanup(&run->unload);
    free(run->tlb.cache);
    free(run->stream.sums);
}

void stream_pages(stream_run_t *run, uint64_t *pages, uint64_t puts)
{
    const stream_t stream = run->stream;
    uint32_t rank;
    uint64_t i;

    for (i = 0; i < puts; ++i) {
        pages[i] = stream_next(&run->stream, &rank);
    }
    run->stream = stream;
}

static double stream_cost(stream_run_t *run, uint64_t page, int is_unloaded)
{
    if (is_unloaded) {
        ++run->unloaded;
        return run->unload_ns;
    }

    if (np_tlb_look(&run->tlb, page, 0) != 0) {
        return HIT_NS;
    }
    np_tlb_fill(&run->tlb, page, 0, 0);
    return MISS_NS;
}

double stream_put(stream_run_t *run, uint64_t puts)
{
    np_unload_guess_t guess;
    double sum = 0, cost;
    uint64_t page, i;
    uint32_t rank;

    for (i = 0; i < puts; ++i) {
        page = stream_next(&run->stream, &rank);
        if (run->unload.policy == NP_UNLOAD_HINT) {
            np_thread_set_flags(NP_THREAD_HOT, (rank < NP_UNLOAD_PAGES) ?
                                               NP_THREAD_HOT : 0);
        }
        cost = stream_cost(run, page,
                           np_unload_decides(&run->unload,
                                             page << NP_PAGE_SHIFT, &guess));
        np_unload_observe(&run->unload, guess, cost);
        sum += cost;
    }
    return sum / puts;
}

double stream_mean(stream_kind_t kind, uint32_t pages, uint64_t puts,
                   np_unload_policy_t policy)
{
    stream_run_t run;
    double mean;

    stream_begin(&run, kind, pages, puts, policy);
    stream_put(&run, puts / 2);
    mean = stream_put(&run, puts - (puts / 2));
    stream_end(&run);
    return mean;
}
