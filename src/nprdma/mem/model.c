/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The timing model.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "model.h"

#include "mapper.h"

#include "../clock.h"
#include "../trace.h"

#include <pthread.h>

/* Smallest chunk: it is registered for longer than a message takes */
#define NP_MODEL_CHUNK_MIN (64 * UCS_KBYTE)

/* Buffers that are remembered; the oldest is forgotten first. No program has
 * more of them under way. */
#define NP_MODEL_RANGES    128

/* Memory that was registered lately, or will be */
typedef struct np_model_range {
    uint64_t va;
    uint64_t end;
    uint64_t chunk;
    uint64_t begin;
} np_model_range_t;

/* Owner: the process. Costs in nanoseconds of this world, constant. */
static struct {
    np_model_order_t order;
    double           link_byte;
    double           latency;
    double           reg;
    double           reg_byte;
    pthread_mutex_t  lock;     /* guards what follows */
    np_model_range_t range[NP_MODEL_RANGES];
    unsigned         next;
    uint64_t         reg_free; /* when the next registration can begin */
    uint64_t         link_free;
} np_model = {
    .lock = PTHREAD_MUTEX_INITIALIZER
};

int np_model_is_on;


/* Is it a number of at least this size? If not, says so. */
static int np_model_check(const char *name, double value, double least)
{
    if (value >= least) {
        return 1;
    }

    np_error("UCX_NPRDMA_SOFT_MODEL%s is %g: it must be %g or more", name, value,
             least);
    return 0;
}

/* A forked child begins anew: its parent may hold the lock */
ucs_status_t np_model_start(const np_model_config_t *config)
{
    const double slow = config->slowdown;

    np_model_is_on = 0;
    if (config->order == NP_MODEL_OFF) {
        return UCS_OK;
    }

    if (!np_model_check("_RATE", config->rate, 1) ||
        !np_model_check("_REG_RATE", config->reg_rate, 1) ||
        !np_model_check("_LATENCY", config->latency, 0) ||
        !np_model_check("_REG", config->reg, 0) ||
        !np_model_check("_SLOWDOWN", slow, 1)) {
        return UCS_ERR_INVALID_PARAM;
    }

    pthread_mutex_init(&np_model.lock, NULL);
    memset(np_model.range, 0, sizeof(np_model.range));
    np_model.order     = config->order;
    np_model.link_byte = slow * 1e9 / config->rate;
    np_model.reg_byte  = slow * 1e9 / config->reg_rate;
    np_model.latency   = slow * 1e9 * config->latency;
    np_model.reg       = slow * 1e9 * config->reg;
    np_model.reg_free  = 0;
    np_model.link_free = 0;
    np_model_is_on     = 1;
    return UCS_OK;
}

int np_model_is_overlapped(void)
{
    return np_model.order == NP_MODEL_OVERLAP;
}

uint64_t np_model_latency(void)
{
    return np_model.latency;
}

/* Time to register all chunks up to the one that ends at @a len */
static double np_model_reg_cost(uint64_t chunk, uint64_t len)
{
    return (ucs_div_round_up(len, chunk) * np_model.reg) +
           (len * np_model.reg_byte);
}

/* Time of a transfer of @a len bytes in such chunks: until the last is
 * registered and sent, or until the first is registered and all are sent */
static double np_model_cost(uint64_t chunk, uint64_t len)
{
    return ucs_max(np_model_reg_cost(chunk, len) + (chunk * np_model.link_byte),
                   np_model_reg_cost(chunk, chunk) + (len * np_model.link_byte));
}

size_t np_model_chunk(size_t len)
{
    size_t best = ucs_align_up_pow2(len, NP_PAGE_SIZE), chunk;

    if (!np_model_is_overlapped()) {
        return best;
    }

    for (chunk = NP_MODEL_CHUNK_MIN; chunk < len; chunk *= 2) {
        if (np_model_cost(chunk, len) < np_model_cost(best, len)) {
            best = chunk;
        }
    }
    return best;
}

/* Under the lock: when is the chunk of this address registered? */
static uint64_t np_model_when(uint64_t va)
{
    const np_model_range_t *range;
    uint64_t done;
    unsigned i;

    for (i = 1; i <= NP_MODEL_RANGES; ++i) {
        range = &np_model.range[(np_model.next - i) % NP_MODEL_RANGES];
        if ((range->va <= va) && (va < range->end)) {
            done = ((va - range->va) / range->chunk + 1) * range->chunk;
            done = ucs_min(done, range->end - range->va);
            return range->begin + np_model_reg_cost(range->chunk, done);
        }
    }
    return 0;
}

static void np_model_charge(uint64_t va, uint64_t end, uint64_t chunk,
                            uint64_t not_before)
{
    const uint64_t begin = ucs_max(np_clock(), not_before);
    np_model_range_t *range;

    pthread_mutex_lock(&np_model.lock);
    range             = &np_model.range[np_model.next++ % NP_MODEL_RANGES];
    *range            = (np_model_range_t){va, end, chunk,
                                           ucs_max(begin, np_model.reg_free)};
    np_model.reg_free = range->begin + np_model_reg_cost(chunk, end - va);
    if (ucs_unlikely(np_trace_is_on)) {
        np_trace_record(NP_TRACE_REGISTER, range->begin, np_model.reg_free, va,
                        end - va);
    }
    pthread_mutex_unlock(&np_model.lock);
}

/* Map what is not mapped, and charge for it, chunk by chunk */
static void np_model_map(uint64_t va, uint64_t end, int write,
                         uint64_t not_before)
{
    const size_t chunk = np_model_chunk(end - va);
    uint64_t cold      = va; /* from here to va */
    uint64_t len;
    int is_cold;

    for (; va < end; va += len) {
        len     = ucs_min(chunk, end - va);
        is_cold = !np_mapper_is_mapped(va, len, write) &&
                  (np_mapper_fault_in(va, len, write) == UCS_OK);
        if (!is_cold) {
            if (cold < va) {
                np_model_charge(cold, va, chunk, not_before);
            }
            cold = va + len;
        }
    }

    if (cold < end) {
        np_model_charge(cold, end, chunk, not_before);
    }
}

np_model_times_t
np_model_register(uint64_t va, uint64_t len, int write, uint64_t not_before)
{
    np_model_times_t times = {0, 0};

    if ((np_model.order == NP_MODEL_CACHED) || (len == 0)) {
        return times;
    }

    np_model_map(va, va + len, write, not_before);
    pthread_mutex_lock(&np_model.lock);
    times.first = np_model_when(va);
    times.last  = ucs_max(np_model_when(va + len - 1), times.first);
    pthread_mutex_unlock(&np_model.lock);
    return times;
}

uint64_t np_model_transfer(uint64_t ready, uint64_t va, uint64_t len)
{
    uint64_t begin, end;

    pthread_mutex_lock(&np_model.lock);
    begin              = ucs_max(ready, np_model.link_free);
    end                = begin + (uint64_t)(len * np_model.link_byte);
    np_model.link_free = end;
    pthread_mutex_unlock(&np_model.lock);

    if (ucs_unlikely(np_trace_is_on)) {
        np_trace_record(NP_TRACE_LINK, begin, end, va, len);
    }
    return end;
}
