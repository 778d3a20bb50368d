/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Preparing memory before it is asked for.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "prepare.h"

#include "kmod.h"
#include "mapper.h"
#include "model.h"
#include "populate.h"
#include "swapper.h"

#include "../clock.h"
#include "../engine.h"
#include "../hash.h"
#include "../trace.h"

#include <pthread.h>
#include <sys/resource.h>

/* Largest number of ranges that wait. Of more, the newest are dropped, since
 * the oldest will be asked for first. */
#define NP_PREPARE_RANGES   256

/* What one progress call brings in: some tens of microseconds if all of it is
 * absent, some hundred nanoseconds if the OS has it */
#define NP_PREPARE_QUANTUM  (128 * UCS_KBYTE)

/* Pages that come from swap, or for which this thread has to sleep long: memory
 * is short, and what was announced can wait until it is used. Time alone shows
 * nothing, since another process may have had the CPU: a slow quantum only
 * makes us ask the system about the next one. A short sleep shows nothing
 * either: another thread of the process had its address space locked (tens of
 * microseconds; at a limit of memory a thread sleeps for milliseconds). Nor
 * does a single case. */
#define NP_PREPARE_LONG_NSEC   10000ul
#define NP_PREPARE_SLEEP_NSEC  1000000ul
#define NP_PREPARE_SLOW_QUANTA 3 /* the first of them by time alone */
#define NP_PREPARE_REST_NSEC   100000000ul

/* Buffers that are remembered without tables */
#define NP_PREPARE_KNOWN_BITS  8

typedef struct np_prepare_range {
    uint64_t         va;
    uint64_t         end;         /* va: its operation is over */
    np_prepare_use_t use;
    void             *request;    /* as np_prepare_op_t */
    int              (*is_over)(void *request);
    uint64_t         until;       /* np_clock(), without a request */
} np_prepare_range_t;

/* Owner: the process; a forked child begins with an empty one. Only a thread
 * that gives back a request waits for the lock, which is never held for
 * long. */
static struct {
    pthread_mutex_t    lock;      /* guards what follows */
    np_prepare_range_t range[NP_PREPARE_RANGES];
    unsigned           first;
    uint64_t           bytes;     /* of all that wait */
    uint32_t           given_back; /* requests, while any were watched */
    _Atomic uint64_t   rest_until; /* nanoseconds; any thread */
    _Atomic unsigned   slow;      /* quanta in a row; any thread */
    _Atomic int        is_enabled;
} np_prepare_queue = {
    .lock = PTHREAD_MUTEX_INITIALIZER
};

_Atomic uint32_t np_prepare_waiting;
_Atomic uint32_t np_prepare_watched;

/* The buffer that was queued last, of those with the same hash: where, and how
 * much; bit 0 of the latter: to be written. Written under the queue's lock;
 * relaxed: a thread that reads a mixture prepares something once more, or
 * not. */
typedef struct np_prepare_known {
    _Atomic uint64_t va;
    _Atomic uint64_t size;
} np_prepare_known_t;

static np_prepare_known_t np_prepare_known[1 << NP_PREPARE_KNOWN_BITS];


static void np_prepare_after_fork(void)
{
    pthread_mutex_init(&np_prepare_queue.lock, NULL);
    np_prepare_queue.bytes = 0;
    atomic_store_explicit(&np_prepare_waiting, 0, memory_order_relaxed);
    atomic_store_explicit(&np_prepare_watched, 0, memory_order_relaxed);
    atomic_store_explicit(&np_prepare_queue.is_enabled, 0,
                          memory_order_relaxed);
}

static void np_prepare_atfork_register(void)
{
    (void)pthread_atfork(NULL, NULL, np_prepare_after_fork);
}

void np_prepare_enable(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, np_prepare_atfork_register);
    atomic_store_explicit(&np_prepare_queue.is_enabled, 1,
                          memory_order_relaxed);
}

static int np_prepare_is_wanted(np_prepare_use_t use)
{
    const np_prepare_mode_t mode = np_engine.config.prepare;

    return (mode == NP_PREPARE_MODE_BOTH) ||
           (mode == ((use == NP_PREPARE_RECV) ? NP_PREPARE_MODE_RECV :
                     NP_PREPARE_MODE_SEND));
}

/* Do peers reach our memory through soft0? What is announced before the first
 * connection is not in the tables, and is looked at again. Without peers,
 * tables would only grow with the memory that is used. */
static int np_prepare_has_tables(void)
{
    return np_directory_own() != NULL;
}

static np_prepare_known_t *np_prepare_known_at(uint64_t va)
{
    return &np_prepare_known[np_hash(va >> NP_PAGE_SHIFT) >>
                             (64 - NP_PREPARE_KNOWN_BITS)];
}

static uint64_t np_prepare_known_size(uint64_t len, np_prepare_use_t use)
{
    return (len << 1) | (use == NP_PREPARE_RECV);
}

/* A look at the tables, or was just this queued before? */
static int np_prepare_is_there(uint64_t va, uint64_t len, np_prepare_use_t use)
{
    np_prepare_known_t *known = np_prepare_known_at(va);

    if (np_prepare_has_tables()) {
        return np_table_has_views(va, len, NP_VIEW_OWN(
                (use == NP_PREPARE_RECV) ? NP_ENTRY_BITS : NP_ENTRY_READ));
    }

    return (atomic_load_explicit(&known->va, memory_order_relaxed) == va) &&
           (atomic_load_explicit(&known->size, memory_order_relaxed) ==
            np_prepare_known_size(len, use));
}

/* Under the queue's lock */
static void
np_prepare_remember(uint64_t va, uint64_t len, np_prepare_use_t use)
{
    np_prepare_known_t *known = np_prepare_known_at(va);

    atomic_store_explicit(&known->va, va, memory_order_relaxed);
    atomic_store_explicit(&known->size, np_prepare_known_size(len, use),
                          memory_order_relaxed);
}

/* The range of the queue's place */
static np_prepare_range_t *np_prepare_range_at(unsigned index)
{
    return &np_prepare_queue.range[(np_prepare_queue.first + index) %
                                   NP_PREPARE_RANGES];
}

uint32_t np_prepare_begin(void)
{
    /* Before the operation, and so before any thread can give back its request:
     * that thread gets the request through locks of UCP, and so sees this */
    atomic_fetch_add_explicit(&np_prepare_watched, 1, memory_order_seq_cst);
    return __atomic_load_n(&np_prepare_queue.given_back, __ATOMIC_RELAXED);
}

void np_prepare_end(void)
{
    atomic_fetch_sub_explicit(&np_prepare_watched, 1, memory_order_release);
}

/* The functions below that end in _locked are called under the queue's lock */
static void np_prepare_clear_locked(np_prepare_range_t *range)
{
    np_prepare_queue.bytes -= range->end - range->va;
    range->end              = range->va;
    range->request          = NULL;
}

static void np_prepare_pop_locked(uint32_t waiting)
{
    np_prepare_clear_locked(np_prepare_range_at(0));
    np_prepare_queue.first = (np_prepare_queue.first + 1) % NP_PREPARE_RANGES;
    atomic_store_explicit(&np_prepare_waiting, waiting - 1,
                          memory_order_relaxed);
    np_prepare_end();
}

static int np_prepare_is_over(const np_prepare_range_t *range, uint64_t now)
{
    return (range->va == range->end) ||
           ((range->request == NULL) ? (now >= range->until) :
            ((range->is_over != NULL) && range->is_over(range->request)));
}

/* The oldest range whose operation goes on; NULL: none */
static np_prepare_range_t *np_prepare_front_locked(uint64_t now)
{
    np_prepare_range_t *range;
    uint32_t waiting;

    for (;;) {
        waiting = atomic_load_explicit(&np_prepare_waiting,
                                       memory_order_relaxed);
        range   = np_prepare_range_at(0);
        if (waiting == 0) {
            return NULL;
        } else if (!np_prepare_is_over(range, now)) {
            return range;
        }
        np_prepare_pop_locked(waiting);
    }
}

static void np_prepare_drop_locked(void)
{
    uint32_t waiting;

    while ((waiting = atomic_load_explicit(&np_prepare_waiting,
                                           memory_order_relaxed)) > 0) {
        np_prepare_pop_locked(waiting);
    }
}

void np_prepare_forget(const void *request)
{
    np_prepare_range_t *range;
    uint32_t i;

    pthread_mutex_lock(&np_prepare_queue.lock);
    __atomic_store_n(&np_prepare_queue.given_back,
                     np_prepare_queue.given_back + 1, __ATOMIC_RELAXED);
    for (i = 0; i < atomic_load_explicit(&np_prepare_waiting,
                                         memory_order_relaxed); ++i) {
        range = np_prepare_range_at(i);
        if ((range->request != NULL) &&
            ((request == NULL) || (range->request == request))) {
            np_prepare_clear_locked(range);
        }
    }
    pthread_mutex_unlock(&np_prepare_queue.lock);
}

/* Append to the queue */
static void np_prepare_append_locked(uint64_t va, uint64_t len,
                                     np_prepare_use_t use,
                                     const np_prepare_op_t *op, uint64_t now)
{
    const uint32_t waiting = atomic_load_explicit(&np_prepare_waiting,
                                                  memory_order_relaxed);
    /* else its name may be that of another operation by now */
    const int is_known     = (op != NULL) &&
                             (op->given_back == np_prepare_queue.given_back);

    *np_prepare_range_at(waiting) = (np_prepare_range_t){
        .va      = va,
        .end     = va + len,
        .use     = use,
        .request = is_known ? op->request : NULL,
        .is_over = is_known ? op->is_over : NULL,
        .until   = now + NP_PREPARE_LIFE_NSEC
    };
    np_prepare_queue.bytes += len;
    atomic_fetch_add_explicit(&np_prepare_watched, 1, memory_order_relaxed);
    atomic_store_explicit(&np_prepare_waiting, waiting + 1,
                          memory_order_relaxed);
}

/* Put it into the queue, as far as the limit allows */
static void np_prepare_add(uint64_t va, uint64_t len, np_prepare_use_t use,
                           const np_prepare_op_t *op, uint64_t now)
{
    const uint64_t wanted = len;

    if (pthread_mutex_trylock(&np_prepare_queue.lock) != 0) {
        return;
    }

    (void)np_prepare_front_locked(now); /* makes room */
    len = ucs_min(len, np_engine.config.prepare_max -
                       ucs_min(np_engine.config.prepare_max,
                               np_prepare_queue.bytes));
    if ((len > 0) && (atomic_load_explicit(&np_prepare_waiting,
                                           memory_order_relaxed) <
                      NP_PREPARE_RANGES)) {
        np_prepare_append_locked(va, len, use, op, now);
        np_prepare_remember(va, wanted, use);
    }
    pthread_mutex_unlock(&np_prepare_queue.lock);
}

void np_prepare(uint64_t va, uint64_t len, np_prepare_use_t use,
                const np_prepare_op_t *op)
{
    uint64_t now;

    const int write = use == NP_PREPARE_RECV;

    np_trace(write ? NP_TRACE_POST_RECV : NP_TRACE_POST_SEND, 0, va, len);
    if ((len < np_engine.config.prepare_min) || !np_prepare_is_wanted(use) ||
        ((va + len) < va) || np_swap_range_touches(va, len)) {
        return;
    }

    len = ucs_min(len, np_engine.config.prepare_max);
    if (ucs_unlikely(np_model_is_on)) {
        if (np_model_is_overlapped()) {
            (void)np_model_register(va, len, write, 0);
        }
        return;
    }

    np_kmod_prepare(va, len, write);
    if (!atomic_load_explicit(&np_prepare_queue.is_enabled,
                              memory_order_relaxed) ||
        np_prepare_is_there(va, len, use)) {
        return;
    }

    now = np_clock();
    if (now >= atomic_load_explicit(&np_prepare_queue.rest_until,
                                    memory_order_relaxed)) {
        np_prepare_add(va, len, use, op, now);
    }
}

/* What is brought in at once */
typedef struct np_prepare_part {
    uint64_t         va;
    uint64_t         end;
    np_prepare_use_t use;
} np_prepare_part_t;

/* Take some of a range, no further than to the quantum's end */
static void np_prepare_take_locked(np_prepare_range_t *range, uint64_t end)
{
    end                     = ucs_min(range->end, end);
    np_prepare_queue.bytes -= end - range->va;
    range->va               = end;
}

/* Take the next quantum out of the queue; returns whether there was one. Ranges
 * that follow each other are taken as one: many small buffers in a row are
 * brought in with few calls.
 * @param [in] at  Only a range that begins there and will be written; NULL:
 *                 any. */
static int np_prepare_take(const uint64_t *at, np_prepare_part_t *part)
{
    const uint64_t now = np_clock();
    np_prepare_range_t *range;
    uint64_t limit;
    int is_taken = 0;

    if (pthread_mutex_trylock(&np_prepare_queue.lock) != 0) {
        return 0;
    }

    range = np_prepare_front_locked(now);
    if ((range != NULL) &&
        ((at == NULL) ||
         ((range->va == *at) && (range->use == NP_PREPARE_RECV)))) {
        is_taken = 1;
        *part    = (np_prepare_part_t){range->va, range->va, range->use};
        /* ends where a page does */
        limit    = (range->va & ~(NP_PAGE_SIZE - 1)) + NP_PREPARE_QUANTUM;
        while ((range != NULL) && (range->va == part->end) &&
               (range->use == part->use) && (part->end < limit)) {
            np_prepare_take_locked(range, limit);
            part->end = range->va;
            range     = np_prepare_front_locked(now);
        }
    }
    pthread_mutex_unlock(&np_prepare_queue.lock);
    return is_taken;
}

/* This part has failed, and the rest of its range would fail too */
static void np_prepare_failed(const np_prepare_part_t *part)
{
    np_prepare_range_t *range;

    if (pthread_mutex_trylock(&np_prepare_queue.lock) != 0) {
        return; /* the rest fails as well, and we come here again */
    }

    range = np_prepare_range_at(0);
    if ((atomic_load_explicit(&np_prepare_waiting, memory_order_relaxed) > 0) &&
        (range->va == part->end) && (range->use == part->use)) {
        np_prepare_clear_locked(range);
    }
    pthread_mutex_unlock(&np_prepare_queue.lock);
}

/* Memory is short: nothing more for a while */
static void np_prepare_drop(uint64_t now)
{
    atomic_store_explicit(&np_prepare_queue.rest_until,
                          now + NP_PREPARE_REST_NSEC, memory_order_relaxed);
    if (pthread_mutex_trylock(&np_prepare_queue.lock) == 0) {
        np_prepare_drop_locked();
        pthread_mutex_unlock(&np_prepare_queue.lock);
    }
}

/* How often this thread had to wait */
typedef struct np_prepare_waits {
    uint64_t faults; /* major faults */
    uint64_t sleeps;
} np_prepare_waits_t;

static np_prepare_waits_t np_prepare_waits(void)
{
    struct rusage usage = {};

    (void)getrusage(RUSAGE_THREAD, &usage);
    return (np_prepare_waits_t){usage.ru_majflt, usage.ru_nvcsw};
}

/* Has a quantum that took this time waited for memory? */
static int np_prepare_has_waited(const np_prepare_waits_t *begin, uint64_t nsec)
{
    const np_prepare_waits_t end = np_prepare_waits();

    return (end.faults != begin->faults) ||
           ((end.sleeps != begin->sleeps) && (nsec >= NP_PREPARE_SLEEP_NSEC));
}

static ucs_status_t np_prepare_populate(const np_prepare_part_t *part)
{
    const uint64_t first = part->va & ~(NP_PAGE_SIZE - 1);
    const uint64_t len   = ucs_align_up_pow2(part->end, NP_PAGE_SIZE) - first;
    const int write      = part->use == NP_PREPARE_RECV;
    uint64_t done;

    return np_prepare_has_tables() ? np_mapper_fault_in(first, len, write) :
           np_populate(first, len, write, &done);
}

/* Bring it in. Returns how many quanta in a row were slow. */
static unsigned
np_prepare_bring_in(const np_prepare_part_t *part, ucs_status_t *status_p)
{
    unsigned slow            = atomic_load_explicit(&np_prepare_queue.slow,
                                                    memory_order_relaxed);
    np_prepare_waits_t waits = {};
    uint64_t begin, end;
    int is_slow;

    if (slow > 0) {
        waits = np_prepare_waits();
    }

    begin     = np_clock();
    *status_p = np_prepare_populate(part);
    end       = np_clock();
    is_slow   = (slow == 0) ? ((end - begin) >= NP_PREPARE_LONG_NSEC) :
                np_prepare_has_waited(&waits, end - begin);
    slow      = is_slow ? (slow + 1) : 0;
    atomic_store_explicit(&np_prepare_queue.slow, slow, memory_order_relaxed);
    return slow;
}

/* Bring in what is next, see np_prepare_take(); returns whether it is there */
static int np_prepare_next(np_stats_t *stats, const uint64_t *at)
{
    np_prepare_part_t part;
    ucs_status_t status;
    uint64_t begin;
    unsigned slow;

    if (!np_prepare_take(at, &part)) {
        return 0;
    }

    /* if the buffer has gone meanwhile, that is an error, but not ours */
    begin = np_trace_begin();
    slow  = np_prepare_bring_in(&part, &status);
    np_trace(NP_TRACE_PREPARE, begin, part.va, part.end - part.va);
    if (status == UCS_OK) {
        NP_STATS_INC(stats, prepared);
    } else {
        np_prepare_failed(&part);
    }
    if ((status == UCS_ERR_NO_MEMORY) || (slow >= NP_PREPARE_SLOW_QUANTA)) {
        NP_STATS_INC(stats, prepare_drops);
        np_prepare_drop(np_clock());
    }
    return status == UCS_OK;
}

void np_prepare_progress_slow(np_stats_t *stats)
{
    (void)np_prepare_next(stats, NULL);
}

int np_prepare_now_slow(np_stats_t *stats, uint64_t va)
{
    return np_prepare_next(stats, &va);
}
