/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Counters of a process, in a shared page of their own that `nprdma_info
 * --stats PID` reads while it runs.
 */

#ifndef NP_STATS_H_
#define NP_STATS_H_

#include "np.h"

/** X(name, text): what is counted. Order and names are what users see. */
#define NP_STATS_LIST(X) \
    X(reads,           "reads completed one-sided") \
    X(writes,          "writes completed one-sided") \
    X(read_bytes,      "bytes read one-sided") \
    X(write_bytes,     "bytes written one-sided") \
    X(local_faults,    "transfers whose own memory had to be brought in") \
    X(remote_faults,   "transfers that found the target's memory absent") \
    X(false_alarms,    "FAULTs sent for data that only looked like the signature") \
    X(inlines,         "FAULTs whose data went inside the message") \
    X(reverses,        "FAULTs answered by a reverse transfer") \
    X(retries,         "FAULTs answered by READY, and retried one-sided") \
    X(replays,         "rounds of a FAULT that had to be repeated") \
    X(copies,          "pieces copied by the CPU after too many rounds") \
    X(naks,            "requests refused by the target") \
    X(atomics,         "atomics executed by the target's CPU") \
    X(order_waits,     "operations that waited for one that they overlap") \
    X(served_progress, "requests answered by the program's own progress") \
    X(served_thread,   "requests answered by the service thread") \
    X(rings,           "times that a service thread was woken") \
    X(fault_ins,       "ranges brought in for peers") \
    X(swap_outs,       "notifications of pages that go away") \
    X(flushes,         "translation flushes") \
    X(tlb_hits,        "hits in the model of the translation cache") \
    X(tlb_misses,      "misses in the model of the translation cache") \
    X(prepared,        "ranges of announced buffers that were brought in") \
    X(prepare_drops,   "times that announced buffers had to wait, for want of memory") \
    X(lent,            "transfers through rings, copied by the target") \
    X(lent_left,       "transfers for which it did not come to that") \
    X(yields,          "times that progress let others have the CPU") \
    X(unloaded,        "small puts that were left to the target's CPU") \
    X(offloaded,       "small puts that UNLOAD left to the device")

/** One writer's counters. Owner: one thread at a time (a port's, or a service
 *  thread); readers load without order. */
typedef struct np_stats {
#define NP_STATS_FIELD(_name, _text) _Atomic uint64_t _name;
    NP_STATS_LIST(NP_STATS_FIELD)
#undef NP_STATS_FIELD
    _Atomic uint32_t is_used;
} NP_LINE_ALIGNED np_stats_t;

/** Writers of one process; those beyond share the last one */
#define NP_STATS_WRITERS 32

/** The whole shared segment, a memfd called NP_STATS_NAME */
typedef struct np_stats_page {
    uint32_t   magic;
    uint32_t   version;     /**< NP_STATS_VERSION */
    uint32_t   num_fields;
    uint32_t   writer_size; /**< sizeof(np_stats_t) */
    np_stats_t writers[NP_STATS_WRITERS];
} np_stats_page_t;

#define NP_STATS_NAME     "nprdma-stats"
#define NP_STATS_MAGIC    0x5453504eu
#define NP_STATS_VERSION  1

/** A writer's block: a free one of the page; never NULL (without memory: one
 *  that no reader finds). Thread-safe. */
np_stats_t *np_stats_get(void);

/** Its counts stay: they are the process's */
void np_stats_put(np_stats_t *stats);

/** Sum of all writers */
void np_stats_sum(np_stats_t *sum);

/* One writer: no read-modify-write that another core would have to see */
#define NP_STATS_ADD(_stats, _name, _value) \
    atomic_store_explicit(&(_stats)->_name, \
                          atomic_load_explicit(&(_stats)->_name, \
                                               memory_order_relaxed) + \
                          (_value), memory_order_relaxed)

#define NP_STATS_INC(_stats, _name) NP_STATS_ADD(_stats, _name, 1)

/** A transfer of @a len bytes was one-sided, all of it */
static UCS_F_ALWAYS_INLINE void
np_stats_moved(np_stats_t *stats, np_dir_t dir, size_t len)
{
    if (dir == NP_DIR_GET) {
        NP_STATS_INC(stats, reads);
        NP_STATS_ADD(stats, read_bytes, len);
    } else {
        NP_STATS_INC(stats, writes);
        NP_STATS_ADD(stats, write_bytes, len);
    }
}

#endif
