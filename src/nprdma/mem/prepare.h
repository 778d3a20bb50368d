/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Preparing memory before it is asked for (design, section 6): the buffer of a
 * transfer that the program has announced is brought in and mapped while its
 * peer, and the message that tells of it, are still on their way.
 *
 * It is advice. A transfer brings in by itself what it finds absent, so what is
 * dropped here, or comes too late, costs only time.
 *
 * An announcement ends with its operation: afterwards the program may have
 * other memory at these addresses, a sparse file, say, which must not be
 * filled. Where the operation is not known it ends NP_PREPARE_LIFE_NSEC after
 * it was made; and in any case with its first error.
 */

#ifndef NP_PREPARE_H_
#define NP_PREPARE_H_

#include "../np.h"
#include "../stats.h"

#include <stdatomic.h>

/** What an announced buffer will be */
typedef enum np_prepare_use {
    NP_PREPARE_SEND,  /**< read */
    NP_PREPARE_RECV   /**< written */
} np_prepare_use_t;

/** How long an announcement lasts whose operation is not known */
#define NP_PREPARE_LIFE_NSEC 1000000ull

/** The operation that a buffer is announced for */
typedef struct np_prepare_op {
    void     *request;                /**< its name; NULL: not known */
    int      (*is_over)(void *request); /**< is it over? Does not wait, and
                                         begins nothing. NULL: np_prepare_forget
                                         tells */
    uint32_t given_back;              /**< of np_prepare_begin */
} np_prepare_op_t;

/** Ranges that wait. Written under the queue's lock; read without it, a hint
 *  whether there are any. */
extern _Atomic uint32_t np_prepare_waiting;

/** Announcements that wait or are being made: while there are none,
 *  np_prepare_forget need not be called. */
extern _Atomic uint32_t np_prepare_watched;

/** From now on progress of this process brings in what is announced: for soft0,
 *  and for RDMA devices, which register it later, in less time if its pages are
 *  there */
void np_prepare_enable(void);

/**
 * To be called before an operation is begun whose memory may be announced: it
 * will be noticed if its request, or any other, is given back before the
 * announcement. np_prepare_end follows the announcements. Any thread.
 *
 * @return for np_prepare_op_t::given_back.
 */
uint32_t np_prepare_begin(void);
void np_prepare_end(void);

/**
 * The program has announced a transfer of [@a va, @a va + @a len). Any thread;
 * does not wait, and reports nothing. nprdma.ko, where it keeps this memory, is
 * told at once and works beside the program; what other devices need is done in
 * progress calls.
 *
 * @param [in] op  Copied; NULL: not known.
 */
void np_prepare(uint64_t va, uint64_t len, np_prepare_use_t use,
                const np_prepare_op_t *op);

/** A request is over, or is given back (NULL: all are). When this returns it is
 *  not asked any more. Any thread. */
void np_prepare_forget(const void *request);

/** Bring the next quantum in */
void np_prepare_progress_slow(np_stats_t *stats);

/** To be called by a progress that has found nothing else to do, and not to be
 *  counted by it: if the progress of a new interface has done something, UCP
 *  takes that for a message received. */
static UCS_F_ALWAYS_INLINE void np_prepare_progress(np_stats_t *stats)
{
    if (ucs_unlikely(atomic_load_explicit(&np_prepare_waiting,
                                          memory_order_relaxed) > 0)) {
        np_prepare_progress_slow(stats);
    }
}

/** As np_prepare_now() */
int np_prepare_now_slow(np_stats_t *stats, uint64_t va);

/** Memory is about to be written, from @a va on. If that was announced, and is
 *  next, bring the quantum in, with what follows. Returns whether it did. */
static UCS_F_ALWAYS_INLINE int np_prepare_now(np_stats_t *stats, uint64_t va)
{
    return (atomic_load_explicit(&np_prepare_waiting,
                                 memory_order_relaxed) > 0) &&
           np_prepare_now_slow(stats, va);
}

/** Is there anything for progress to do? */
static inline int np_prepare_has_work(void)
{
    return atomic_load_explicit(&np_prepare_waiting, memory_order_relaxed) > 0;
}

#endif
