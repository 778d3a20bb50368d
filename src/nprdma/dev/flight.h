/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What is in flight on a link, of any device: which operations, which memory of
 * the target they are about, what waits for them, and why no other one may
 * start now; and what the links of a port share of that. Both are part of the
 * device's link and port, and the layers above own them.
 */

#ifndef NP_FLIGHT_H_
#define NP_FLIGHT_H_

#include "../iov.h"
#include "../mem/key.h"
#include "../mem/overlap.h"
#include "../stats.h"
#include "../svc/turn.h"

#include <string.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct np_op np_op_t;
typedef struct np_flight np_flight_t;

typedef enum np_op_kind {
    NP_OP_ATOMIC,
    NP_OP_FLUSH,      /**< all earlier operations of a link */
    NP_OP_GROUP,      /**< several flushes */
    NP_OP_REFUSED,    /**< never begun; its user is told in the next progress */

    /* soft0 */
    NP_OP_PUT,        /**< slot; or a piece of a copy */
    NP_OP_GET,        /**< slot; or a piece of a copy */
    NP_OP_FAULT,      /**< request; or a piece of a copy, which is one too */
    NP_OP_COPY,

    /* RNICs */
    NP_OP_MOVE,       /**< a transfer that a stream carries */
    NP_OP_ONE,        /**< a transfer that is one-sided so far */
    NP_OP_PUTS,       /**< small puts that are confirmed together */
    NP_OP_UNPACK,     /**< a read whose bytes are handed over */
    NP_OP_KINDS
} np_op_kind_t;

/** Why an operation must not just start */
enum {
    NP_GATE_UNCONNECTED = 1u << 0,
    NP_GATE_FENCED      = 1u << 1,  /**< waits for what was before a fence */
    NP_GATE_PENDING     = 1u << 2,  /**< others wait, which came first */
    NP_GATE_DOWN        = 1u << 3,
    NP_GATE_REPLAY      = 1u << 4   /**< what went over the queue pair before
                                         this one goes again first */
};

/** What the user of a port provides */
typedef struct np_user {
    /** An operation that returned UCS_INPROGRESS is complete. Runs in progress,
     *  and where a link is cancelled or closed; may start operations. */
    void (*complete)(void *comp, ucs_status_t status);
    /** The link will not work again. Runs in progress, once a link; everything
     *  outstanding has completed with @a status. */
    void (*link_down)(np_flight_t *flight, ucs_status_t status);
} np_user_t;

/** What a device does for the layers above it. NULL: nothing is to be done. */
typedef struct np_dev_ops {
    /** UCS_OK; UCS_ERR_NO_RESOURCE: try again; else the link is down */
    ucs_status_t (*connect)(np_flight_t *flight);
    /** Would any operation find room? The link is up, and nothing else is in
     *  the way but NP_GATE_PENDING. */
    int (*has_room)(np_flight_t *flight);
    /** Has the target taken the put of this number (np_flight_t::put)? NULL: no
     *  put is without an operation. */
    int (*has_taken)(np_flight_t *flight, uint32_t put);
    /** An operation waits for that: have the target tell us */
    void (*want_taken)(np_flight_t *flight);
    /** An operation has failed on which others rely: the end of the link */
    void (*fail)(np_flight_t *flight, ucs_status_t status);
    /** The link does not work any more, its user says: callbacks that follow
     *  begin nothing more */
    void (*end)(np_flight_t *flight, ucs_status_t status);
    /** All is cancelled: nothing that is outstanding moves after this. In a
     *  forked child it goes on for its parent. */
    void (*stop)(np_flight_t *flight);
    /** Its user has left the link: leave before what is outstanding is
     *  cancelled, close when nothing is any more */
    void (*leave)(np_flight_t *flight);
    void (*close)(np_flight_t *flight);
    /** As np_ep_check */
    ucs_status_t (*check)(np_flight_t *flight);
} np_dev_ops_t;

/** And what the protocol does on links of a device: which ways transfers
 *  take */
typedef struct np_way_ops {
    size_t   op_size;   /**< bytes of an operation, np_op_t first */
    unsigned max_ops;   /**< operations that a port may have */

    /** Does nothing that was posted keep others from beginning? */
    int (*may_begin)(np_flight_t *flight);
    /** All that was posted is waited for: nothing is put off any more */
    void (*hurry)(np_flight_t *flight);
    /** Its link was stopped (np_dev_ops_t): nothing uses any more what it
     *  holds */
    void (*stopped)(np_op_t *op);
    /** An operation is not outstanding any more: give back what it holds. Its
     *  status is that of its end. */
    void (*ended)(np_op_t *op);
    /** Nothing is outstanding any more on a link that ends */
    void (*left)(np_flight_t *flight);

    /** What np_ep_move and the others do, in a turn of the port's. There is
     *  something to move, the key covers it, and the gate is open; but
     *  put_packed finds that out by itself, when it knows what there is. */
    ucs_status_t (*move)(np_dir_t dir, np_flight_t *flight, np_key_t *key,
                         const np_iov_t *iov, size_t iovcnt, size_t len,
                         uint64_t addr, void *comp);
    ucs_status_t (*put_copied)(np_flight_t *flight, np_key_t *key,
                               const void *data, size_t len, uint64_t addr);
    ssize_t (*put_packed)(np_flight_t *flight, np_key_t *key, np_pack_t pack,
                          void *arg, uint64_t addr);
    ucs_status_t (*get_unpack)(np_flight_t *flight, np_key_t *key, size_t len,
                               uint64_t addr, np_unpack_t unpack, void *arg,
                               void *comp);
    /** Execute an atomic here and now, where nothing is outstanding.
     *  UCS_ERR_NO_PROGRESS: it was not; NULL: it never is. */
    ucs_status_t (*atomic_now)(np_flight_t *flight, np_key_t *key,
                               const np_atomic_t *request, uint64_t *old);
    /** Ask the target for it: UCS_INPROGRESS, and np_op_store takes what it has
     *  given; or as np_ep_atomic. With NP_GATE_FENCED, if keeps_atomics: not
     *  before what the fence is for is complete. */
    ucs_status_t (*atomic)(np_flight_t *flight, const np_atomic_t *request,
                           void *result, void *comp);
    int      keeps_atomics;
} np_way_ops_t;

/** What the links of a port share. Guarded as its port is. */
typedef struct np_flights {
    const np_dev_ops_t    *dev;
    const np_way_ops_t    *ways;
    np_user_t             user;
    np_turn_t             *turn;    /**< the port's; NULL: service threads never
                                         touch links and operations (soft0) */
    pid_t                 pid;      /**< of the process that has the port: not
                                         of a forked child */
    np_stats_t            *stats;   /**< what the port's owner counts */
    ucs_list_link_t       busy;     /**< np_flight_t::busy */
    ucs_list_link_t       down;     /**< np_flight_t::down */
    np_op_t               *free_ops;
    uint8_t               **blocks; /**< of operations (proto/op.c) */
    unsigned              num_ops;  /**< in these */
    unsigned              max_ops;
    int                   has_refused; /**< there may be NP_OP_REFUSED */
} np_flights_t;

/** Guarded as its link is */
struct np_flight {
    unsigned        gate;         /**< NP_GATE_..; 0: go ahead */
    ucs_status_t    status;       /**< why it is down, or UCS_OK */
    unsigned        outstanding;  /**< operations but flushes */
    unsigned        count[NP_OP_KINDS]; /**< of these, by kind */
    uint64_t        sequence;     /**< of the last operation */
    uint64_t        fence;        /**< with NP_GATE_FENCED: up to this one */
    uint64_t        engine_id;    /**< of the target: whose memory it is */
    uint32_t        put;          /**< number of the last put without an
                                       operation, or a later one that was
                                       taken */
    int             is_refused;   /**< an operation must wait for one that is
                                       outstanding, not for room */
    int             is_full;      /**< the last one that was refused has found
                                       no room for its bytes (soft0) */
    int             is_reported;  /**< the user knows that it is down */
    np_flights_t    *all;         /**< its port's */
    ucs_list_link_t busy;         /**< of the port's with anything that a flush
                                       waits for, or alone */
    ucs_list_link_t down;         /**< of the port's that are to be reported, or
                                       alone */
    ucs_list_link_t ops;          /**< outstanding, in order of sequence */
    ucs_list_link_t flushes;      /**< which wait for some of these */
    np_overlap_t    overlap;      /**< remote ranges in flight */
};

/** Is there anything to tell users in the next progress? */
static inline int np_flights_have_news(np_flights_t *all)
{
    return all->has_refused || !ucs_list_is_empty(&all->down);
}

static inline void np_flights_init(np_flights_t *all,
                                   const np_dev_ops_t *dev,
                                   const np_way_ops_t *ways,
                                   const np_user_t *user, np_turn_t *turn)
{
    memset(all, 0, sizeof(*all));
    all->dev     = dev;
    all->ways    = ways;
    all->user    = *user;
    all->turn    = turn;
    all->stats   = np_stats_get();
    all->pid     = getpid();
    all->max_ops = ways->max_ops;
    ucs_list_head_init(&all->busy);
    ucs_list_head_init(&all->down);
}

static inline void
np_flight_init(np_flight_t *flight, np_flights_t *all, uint64_t engine_id)
{
    memset(flight, 0, sizeof(*flight));
    flight->gate      = NP_GATE_UNCONNECTED;
    flight->status    = UCS_OK;
    flight->engine_id = engine_id;
    flight->all       = all;
    ucs_list_head_init(&flight->busy);
    ucs_list_head_init(&flight->down);
    ucs_list_head_init(&flight->ops);
    ucs_list_head_init(&flight->flushes);
    np_overlap_init(&flight->overlap);
}

/** Does the port belong to this process? A forked child must leave alone what
 *  it has inherited: the device knows it as its parent's. */
static inline int np_flights_are_ours(const np_flights_t *all)
{
    return all->pid == getpid();
}

/** The user of the link has others that wait, or none any more */
static UCS_F_ALWAYS_INLINE void
np_flight_set_pending(np_flight_t *flight, int has_pending)
{
    if (has_pending) {
        flight->gate |= NP_GATE_PENDING;
    } else {
        flight->gate &= ~NP_GATE_PENDING;
    }
}

/** A flush of the port waits for this link, too */
static UCS_F_ALWAYS_INLINE void np_flight_set_busy(np_flight_t *flight)
{
    if (ucs_list_is_empty(&flight->busy)) {
        ucs_list_add_tail(&flight->all->busy, &flight->busy);
    }
}

/** An operation must wait for one that is outstanding: nothing is tried again
 *  before one completes. @return UCS_ERR_NO_RESOURCE. */
static inline ucs_status_t np_flight_refuse(np_flight_t *flight)
{
    flight->is_full    = 0;
    flight->is_refused = flight->outstanding > 0;
    return UCS_ERR_NO_RESOURCE;
}

/** RNICs: operations that do not need the target's CPU, as far as is known,
 *  and those that do */
static UCS_F_ALWAYS_INLINE unsigned
np_flight_one_sided(const np_flight_t *flight)
{
    return flight->count[NP_OP_ONE] + flight->count[NP_OP_PUTS];
}

/** Those that progress may have to look at each time, on any device */
static UCS_F_ALWAYS_INLINE unsigned
np_flight_transfers(const np_flight_t *flight)
{
    return np_flight_one_sided(flight) + flight->count[NP_OP_COPY];
}

static UCS_F_ALWAYS_INLINE unsigned
np_flight_asking(const np_flight_t *flight)
{
    return flight->outstanding - np_flight_one_sided(flight);
}

static UCS_F_ALWAYS_INLINE int np_flight_is_down(const np_flight_t *flight)
{
    return !!(flight->gate & NP_GATE_DOWN);
}

/** It does not work any more; returns 0 if that was so before. A peer that is
 *  gone has one status, whether it has hung up or does not answer: that which
 *  UCP gives to all that is posted later to an endpoint that has failed. */
static inline int np_flight_end(np_flight_t *flight, ucs_status_t status)
{
    if (np_flight_is_down(flight)) {
        return 0;
    }

    flight->gate  |= NP_GATE_DOWN;
    flight->status = (status == UCS_ERR_CONNECTION_RESET) ?
                     UCS_ERR_ENDPOINT_TIMEOUT : status;
    return 1;
}

#endif
