/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libibverbs without a device, for tests: one RNIC port, "mock0:1", whose
 * queue pairs reach each other within this process. It does what it is told
 * when it is posted, in order, unless a test holds it. Linked into a program,
 * or loaded before one, it stands for the library.
 *
 * It registers memory as Linux 6.1 does: what the program may not read all the
 * same, what it may only read of a file that others share not at all.
 *
 * Thread-safe. A queue pair fails as a device's does: what it had to do comes
 * back with an error.
 */
#ifndef MOCK_VERBS_H_
#define MOCK_VERBS_H_

#include <infiniband/verbs.h>

/** What is posted stays undone until mock_release(), datagrams too */
void mock_hold(void);
void mock_release(void);

/** Do so many of the held requests, of all queue pairs in the order in which
 *  they were posted; returns how many there were */
unsigned mock_step(unsigned count);

/** A number below @a bound, which is at least 1: a simulation chooses by it */
typedef unsigned (*mock_below_t)(unsigned bound);

/** While all is held: one step of one request, of a queue pair that is chosen.
 *  A Write or Read moves in pieces of whole units, and others may step between
 *  them; a Write or message may pass Reads that were posted before it;
 *  datagrams may be lost, or come twice. What has been done completes in order.
 *  Returns how much was done; 0: nothing can be. */
unsigned mock_turn(mock_below_t below);

/** From now on a poll finds only some of the completions that there are; NULL:
 *  as many as it asks for */
void mock_poll_some(mock_below_t below);

/** A connected queue pair fails, or it and its peer. What was done of its
 *  requests and has not completed completes as if it had not been done. Returns
 *  0: there is none. */
int mock_fail(mock_below_t below);

/** Requests that wanted to use memory that no region allows */
unsigned mock_refused_requests(void);

/** Requests that have not completed */
unsigned mock_num_work(void);

/** Memory regions that exist, but for those on dma-bufs */
unsigned mock_live_mrs(void);

/** What is sent to a queue pair that does not exist is done, and goes nowhere;
 *  what is read there is of this byte */
extern int mock_swallows;
extern uint8_t mock_swallowed;

/** Memory of which no part can be registered: ENOMEM, as at a limit, or EFAULT,
 *  as what the kernel does not pin */
void mock_refuse(const void *addr, size_t len, int error);

/** Calls of ibv_create_ah so far */
unsigned mock_num_ahs(void);

/** Address handles that exist */
unsigned mock_live_ahs(void);

/**
 * Memory behind a dma-buf that is about to be registered.
 *
 * @param [out] read   Where a device reads the byte at @a iova; by default, and
 *                     if this returns 0, dma-bufs are refused.
 * @param [out] write  And where it writes it.
 */
typedef struct mock_view {
    const void *(*read)(void *arg, uint64_t iova);
    void       *(*write)(void *arg, uint64_t iova);
    void       *arg;
} mock_view_t;

/** By the test: what a descriptor stands for; 0: nothing. May be NULL. */
extern int (*mock_find_view)(int fd, mock_view_t *view);

/** By the test: the errno that a region of @a len bytes on a dma-buf is refused
 *  with; 0: it is taken. May be NULL. */
extern int (*mock_refuse_view)(size_t len);

/** Regions on dma-bufs that exist */
unsigned mock_live_views(void);

/** A message over a queue pair of ours as if its peer had sent it: straight
 *  into the receive queue of @a qpn. Returns 0: there is no buffer, or no such
 *  pair. */
int mock_receive(uint32_t qpn, const void *data, size_t len);

/** And a write with immediate */
int mock_written(uint32_t qpn, uint32_t imm);

#endif
