/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * nprdma for programs that know it: those that swap memory by themselves, that
 * want pages brought in ahead of a transfer, or transfers in order.
 *
 * The engine lies in the plug-in that UCX loads. This library (libnprdma, no
 * part of UCX in it) finds it at run time, so a program that links it runs
 * without UCX too. An engine runs in a process from the moment in which UCX has
 * opened nprdma there, that is after ucp_init() or MPI_Init(); in a forked
 * child not before the child has opened UCX by itself. Before that,
 * notifications return 0, since no peer can reach the memory; other calls
 * return -ENOTCONN.
 *
 * All functions: any thread at any time, but not in a signal handler. Errors
 * are negative errno values; do not look at errno itself. Addresses may have
 * any alignment unless the call says otherwise: it works on all pages (of
 * 4 KiB) that the range touches. A length of 0 is no page. Errors of all calls:
 *
 * -EINVAL    the range wraps, or is not in user space
 * -ENOTCONN  no engine runs in this process
 * -EPROTO    the plug-in of this process is not of this version of nprdma
 *
 * and of the calls that map memory for peers:
 *
 * -EFAULT    it is not there, or may not be touched so; what is before it is
 *            mapped
 * -ENOMEM    no memory to bring it in
 * -EAGAIN    it went away again each time
 * -ENOSPC    nprdma has no table for it: it has some for 4 TiB of used memory,
 *            none in a forked child, and none where it has warned that there is
 *            no directory of arenas. Transfers work, through the target's CPU.
 *
 * Manual: nprdma(3). Where it says "seed 000", the paper NP-RDMA is meant.
 */

#ifndef NPRDMA_H_
#define NPRDMA_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Version of the library.
 *
 * @param [out] major, minor, patch  Set in any case; each may be NULL.
 *
 * @return 0 if an engine runs in this process; -ENOTCONN; -EPROTO.
 */
int nprdma_version(unsigned *major, unsigned *minor, unsigned *patch);


/**
 * @defgroup nprdma_swap Programs that swap by themselves
 *
 * A storage engine that keeps more in its address space than in memory tells
 * nprdma here what comes and goes (seed 000, section 6.2). A page that the
 * kernel takes or gives needs none of this.
 * @{
 */

/**
 * A range's contents are about to go away: call it before the frames are used
 * for something else. When it returns, no device and no peer reads or writes
 * them any more; a transfer that needs them asks for them again. It waits for
 * what is in flight, some microseconds. This holds for memory that had a
 * swapper (below) when the transfer began: other memory is the kernel's to
 * page, and bytes of a transfer may be copied through the kernel, or the range
 * may be registered with a device for as long as the transfer takes.
 *
 * Until the page is really gone nprdma may find that it is there, and let peers
 * reach it again. So a program that takes pages by itself registers a swapper,
 * and uses one lock: it holds the lock in the swapper, and from before this
 * call until the page is gone. This holds for pagers that are driven by faults
 * (userfaultfd) too: their swap_in brings the page in by itself, since a touch
 * would wait for the thread that may be in this call.
 *
 * @param [in] va   Start.
 * @param [in] len  Bytes.
 *
 * @return 0, also if no engine runs; -EINVAL; -EPROTO: the range can still be
 *         reached, keep it.
 */
int nprdma_notify_swap_out(void *va, size_t len);

/**
 * A range has been brought in, and can be touched. A hint: the next transfer
 * need not call the swapper; this call does not call it either. Errors may be
 * ignored. May be called by a swapper, for the range that it was asked for or
 * for others.
 *
 * @param [in] va   Start.
 * @param [in] len  Bytes.
 *
 * @return 0, also if no engine runs; -EINVAL; -EPROTO; -EFAULT (but for a range
 *         with a swapper the program is believed); -ENOMEM; -EAGAIN; -ENOSPC.
 */
int nprdma_notify_swap_in(void *va, size_t len);

/** What brings pages in when a transfer needs them */
typedef struct nprdma_swapper {
    /**
     * Bring a range in so that it can be touched. Called by any thread that
     * notices that it is missing, and by several at once; without a lock. That
     * thread may be one of nprdma, which has a stack of 1 MiB, and all signals
     * blocked but those of its own faults. The function may call
     * nprdma_notify_swap_out() and nprdma_notify_swap_in(), and must not wait
     * for a transfer.
     *
     * @param [in] arg    As registered.
     * @param [in] va     Start, a multiple of 4096.
     * @param [in] len    Bytes, a multiple of 4096; within the range that was
     *                    registered.
     * @param [in] write  Not 0: it will be written too.
     *
     * @return 0; -1: it cannot be brought in. The transfer fails then.
     */
    int  (*swap_in)(void *arg, void *va, size_t len, int write);

    /** Passed to swap_in; not touched by nprdma */
    void *arg;
} nprdma_swapper_t;

/**
 * Let @a swapper bring in the pages of a range from now on.
 *
 * @param [in] va       Start, a multiple of 4096.
 * @param [in] len      Bytes, a multiple of 4096, not 0.
 * @param [in] swapper  Copied.
 *
 * @return 0; -EINVAL: alignment, length, or no function; -EEXIST: a part of it
 *         has a swapper; -ENOMEM; -ENOTCONN; -EPROTO.
 */
int nprdma_register_swapper(void *va, size_t len,
                            const nprdma_swapper_t *swapper);

/**
 * The opposite, for exactly a range that was registered. When it returns, no
 * call of the swapper is in progress, and none will follow.
 *
 * @return 0; -ENOENT: there is none of exactly this range; -EDEADLK: called by
 *         a swapper; -EINVAL; -ENOTCONN; -EPROTO.
 */
int nprdma_unregister_swapper(void *va, size_t len);

/** @} */

/**
 * @defgroup nprdma_hints Hints
 * @{
 */

/** For nprdma_prefetch: to be written, too */
#define NPRDMA_PREFETCH_WRITE 1

/**
 * Bring a range in and let peers reach it, so that the next transfer from or to
 * it need not do so (seed 000, sections 3.2 and 4.2). Nothing is pinned: it may
 * go away again. Costs what touching each page costs; for a page that is in
 * already, one load.
 *
 * @param [in] va     Start.
 * @param [in] len    Bytes.
 * @param [in] flags  0: for reading, by peers and as a source; or
 *                    NPRDMA_PREFETCH_WRITE.
 *
 * @return 0; -EFAULT: also if its swapper could not bring it in; -EINVAL: also
 *         an unknown flag; -ENOMEM; -EAGAIN; -ENOSPC; -EDEADLK: called by a
 *         swapper; -ENOTCONN; -EPROTO.
 */
int nprdma_prefetch(void *va, size_t len, int flags);

/**
 * Look which pages of a range the kernel has taken meanwhile, and let peers ask
 * for these instead of reaching them. Without the kernel module nprdma is not
 * told about that.
 *
 * @param [in] va   Start.
 * @param [in] len  Bytes.
 *
 * @return Number of pages of 4 KiB; -EINVAL; -ENOTCONN; -EPROTO.
 */
int64_t nprdma_scan(void *va, size_t len);

/** @} */

/**
 * @defgroup nprdma_order Ordering
 *
 * Transfers that overlap are done in the order in which they were posted;
 * others may pass each other (seed 000, section 3.3). These flags change that
 * for what the calling thread posts; they apply within the endpoint on which it
 * posts.
 * @{
 */

/** What is posted waits for all that is in flight on its endpoint */
#define NPRDMA_ORDER_BEFORE 1u

/** What comes later on its endpoint waits for what is posted */
#define NPRDMA_ORDER_AFTER  2u

/**
 * Set the flags of the calling thread, for what it posts from now on. A
 * transfer that UCX keeps back, and posts from within ucp_worker_progress(),
 * keeps the flags with which it was posted first.
 *
 * @param [in] flags  0, the default, or NPRDMA_ORDER_BEFORE and
 *                    NPRDMA_ORDER_AFTER, or-ed.
 *
 * @return 0; -EINVAL: an unknown flag; -ENOTCONN: no plug-in is loaded, and
 *         nothing was set; -EPROTO.
 */
int nprdma_set_order(unsigned flags);

/** The flags of the calling thread; 0 before it has set any. */
unsigned nprdma_get_order(void);

/** @} */

/**
 * @defgroup nprdma_hint Hints
 *
 * What a program knows of the memory that it writes (seed 002, section 3.2).
 * Hints never change what a transfer does, only the way that it takes.
 * @{
 */

/** Puts go to pages that are written often: the target's device is likely to
 *  keep their translations */
#define NPRDMA_HINT_HOT 1u

/**
 * Set the hints of the calling thread, for what it posts from now on. Used if
 * UCX_NPRDMA_UNLOAD=hint: small puts without NPRDMA_HINT_HOT go by the target's
 * CPU. What UCX keeps back, and posts from within ucp_worker_progress(), has
 * the hints of that moment.
 *
 * @param [in] flags  0, the default, or NPRDMA_HINT_HOT.
 *
 * @return 0; -EINVAL: an unknown flag; -ENOMEM; -ENOTCONN: no plug-in is
 *         loaded, and nothing was set; -EPROTO.
 */
int nprdma_set_hint(unsigned flags);

/** The hints of the calling thread; 0 before it has set any. */
unsigned nprdma_get_hint(void);

/** @} */

/**
 * @defgroup nprdma_counters Counters
 *
 * What nprdma did in this process; `nprdma_info --stats PID` shows the same
 * from outside.
 * @{
 */

/** They only grow. Later versions of nprdma may add some at the end. */
typedef struct nprdma_counters {
    uint64_t reads;           /**< reads completed one-sided */
    uint64_t writes;          /**< writes completed one-sided */
    uint64_t read_bytes;      /**< bytes read one-sided */
    uint64_t write_bytes;     /**< bytes written one-sided */
    uint64_t local_faults;    /**< transfers whose own memory had to be brought
                                   in */
    uint64_t remote_faults;   /**< transfers that found the target's memory
                                   absent */
    uint64_t false_alarms;    /**< FAULTs sent for data that only looked like
                                   the signature */
    uint64_t inlines;         /**< FAULTs whose data went inside the message */
    uint64_t reverses;        /**< FAULTs answered by a reverse transfer */
    uint64_t retries;         /**< FAULTs answered by READY, and retried
                                   one-sided */
    uint64_t replays;         /**< rounds of a FAULT that had to be repeated */
    uint64_t copies;          /**< pieces copied by the CPU after too many
                                   rounds */
    uint64_t naks;            /**< requests refused by the target */
    uint64_t atomics;         /**< atomics executed by the target's CPU */
    uint64_t order_waits;     /**< operations that waited for one that they
                                   overlap */
    uint64_t served_progress; /**< requests answered by the program's own
                                   progress */
    uint64_t served_thread;   /**< requests answered by the service thread */
    uint64_t rings;           /**< times that a service thread was woken */
    uint64_t fault_ins;       /**< ranges brought in for peers */
    uint64_t swap_outs;       /**< notifications of pages that go away */
    uint64_t flushes;         /**< translation flushes */
    uint64_t tlb_hits;        /**< hits in the model of the translation cache */
    uint64_t tlb_misses;      /**< misses in the model of the translation
                                   cache */
    uint64_t prepared;        /**< ranges of announced buffers that were
                                   brought in */
    uint64_t prepare_drops;   /**< times that announced buffers had to wait for
                                   lack of memory */
    uint64_t lent;            /**< transfers that went through the rings, copied
                                   by the target's progress */
    uint64_t lent_left;       /**< transfers for which it did not come to that
                                   in time */
    uint64_t yields;          /**< times that a progress that found nothing let
                                   others have the CPU */
    uint64_t unloaded;        /**< small puts that were left to the target's
                                   CPU, though the device could do them */
    uint64_t offloaded;       /**< small puts that were left to the device,
                                   though UCX_NPRDMA_UNLOAD is not "off" */
} nprdma_counters_t;

/**
 * Read the counters, one after the other: they are no snapshot.
 *
 * @param [out] counters  Set in any case; 0 where there is no such counter.
 * @param [in]  size      sizeof(nprdma_counters_t) of the caller: a program may
 *                        run with a newer or an older library.
 *
 * @return 0; -EINVAL: no pointer, or a size that is 0 or no multiple of 8;
 *         -ENOTCONN: no plug-in is loaded; -EPROTO.
 */
int nprdma_get_counters(nprdma_counters_t *counters, size_t size);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
