/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Preparing memory before it is asked for (design, section 6): the buffer of a
 * transfer that the program has announced is brought in and mapped while its
 * peer, and the message that tells of it, are still on their way.
 *
 * It is advice. A transfer brings in by itself what it finds absent, so what is
 * dropped here, or comes too late, costs time alone.
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

/** Ranges that wait. Written under the queue's lock, and a hint for who has none. */
extern _Atomic uint32_t np_prepare_waiting;

/** From now on progress of this process brings in what is prepared: for soft0, and for
 *  RDMA devices that register it later, in less time if its pages are there */
void np_prepare_enable(void);

/**
 * The program has announced a transfer of [@a va, @a va + @a len). Any thread;
 * waits for nobody and reports nothing. nprdma.ko, where it keeps this memory,
 * is told at once and works beside the program; what others need is done in
 * progress calls.
 */
void np_prepare(uint64_t va, uint64_t len, np_prepare_use_t use);

/** Bring the next quantum in */
void np_prepare_progress_slow(np_stats_t *stats);

/** To be called by a progress that has found nothing else to do, and not to be
 *  counted by it: UCP takes a new interface whose progress has done something
 *  for one that has received. */
static UCS_F_ALWAYS_INLINE void np_prepare_progress(np_stats_t *stats)
{
    if (ucs_unlikely(atomic_load_explicit(&np_prepare_waiting,
                                          memory_order_relaxed) > 0)) {
        np_prepare_progress_slow(stats);
    }
}

/** As np_prepare_now() */
int np_prepare_now_slow(np_stats_t *stats, uint64_t va);

/** Memory is about to be written, from @a va on. If that was announced, and is next:
 *  bring the quantum in, with what follows. Returns whether it has. */
static UCS_F_ALWAYS_INLINE int np_prepare_now(np_stats_t *stats, uint64_t va)
{
    return (atomic_load_explicit(&np_prepare_waiting,
                                 memory_order_relaxed) > 0) &&
           np_prepare_now_slow(stats, va);
}

/** Is there anything that progress would do? */
static inline int np_prepare_has_work(void)
{
    return atomic_load_explicit(&np_prepare_waiting, memory_order_relaxed) > 0;
}

#endif
