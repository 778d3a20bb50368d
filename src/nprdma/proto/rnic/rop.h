/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations over queue pairs: what a link has outstanding. Both sides know an
 * operation by the name that the link's side gave it.
 */

#ifndef NP_ROP_H_
#define NP_ROP_H_

#include "../order.h"

#include "../../dev/verbs/fast.h"
#include "../../mem/entries.h"
#include "../../mem/key.h"

/** Operations of a link that may need its target's CPU at a time: as many again
 *  may be complete here before the target knows it */
#define NP_RASKED_MAX    (NP_STREAM_SERVED_MAX / 2)

/** Pieces of a one-sided transfer that are under way */
#define NP_RONE_DEPTH    4

typedef enum np_rpiece_step {
    NP_RPIECE_LOOKS,        /**< the target's entries are read */
    NP_RPIECE_MOVES,        /**< its bytes, and what confirms them */
    NP_RPIECE_WAITS,        /**< for room for the next step */
    NP_RPIECE_DONE
} np_rpiece_step_t;

/** What is confirmed together; within one memory region of a view on both
 *  sides */
typedef struct np_rpiece {
    size_t                      offset;     /**< in the transfer */
    size_t                      len;
    const struct np_kmod_region *region;    /**< ours */
    struct np_vremote           *remote;    /**< the target's arena */
    np_entries_t                ours;       /**< before */
    np_entries_t                theirs;     /**< write: before */
    void                        *scratch;   /**< a send buffer: entries arrive
                                                 here, or bytes to unpack */
    np_rpiece_step_t            step;
    int                         is_back;    /**< nothing of it is under way */
    int                         has_looked;
    unsigned                    rounds;
} np_rpiece_t;

/** A one-sided transfer (rone.c) */
typedef struct np_rone {
    np_dir_t    dir;
    np_unpack_t unpack;     /**< read: takes the bytes; NULL: base */
    void        *arg;
    void        *base;
    size_t      len;
    uint64_t    remote;
    size_t      next;       /**< offset after the last piece */
    uint32_t    head;       /**< of pieces that are not confirmed */
    uint32_t    tail;
    unsigned    posted;     /**< pieces that are not back */
    int         is_failed;  /**< the rest goes two-sided, once nothing is
                                 posted */
    np_rpiece_t pieces[NP_RONE_DEPTH]; /**< the last: only those in use are
                                            set */
} np_rone_t;

struct np_rop {
    np_op_t         super;     /**< first member */
    ucs_list_link_t todo;      /**< of port->todo, or alone */
    np_vport_t      *port;
    np_conn_t       *conn;
    np_vlink_t      *link;
    void            *copy;     /**< a send buffer with the bytes of a put, after
                                    room for a header, or NULL */
    union {
        np_stream_t     stream;    /**< NP_OP_MOVE */
        np_rone_t       one;
        struct np_rbatch *batch;   /**< NP_OP_PUTS (rput.c) */
        struct {
            np_asked_t  asked;     /**< NP_OP_ATOMIC, NP_OP_UNPACK */
            np_unpack_t unpack;
            void        *arg;
        };
    };
};

/** What a port must be opened with */
extern const np_vport_ops_t np_vlink_ops;

/** One of the port's; NULL: np_op_none says why */
np_rop_t *np_rop_get(np_vport_t *port, np_op_kind_t kind, void *comp);

/** Outstanding from now on, with a name of its own */
void np_rop_post(np_vlink_t *link, np_rop_t *op);

/** It has something to do in the next progress */
void np_rop_todo(np_rop_t *op);

/** Give back what it uses of the port and the device; its queue pair must not
 *  use that any more */
void np_rop_release(np_rop_t *op);

/** Make a posted operation a two-sided one, and ask the target for it; returns
 *  0: no room */
int np_rpost_begin_move(np_rop_t *op, np_dir_t dir, const np_iov_t *iov,
                        size_t iovcnt, uint64_t addr);
int np_rpost_begin_unpack(np_rop_t *op, np_unpack_t unpack, void *arg,
                          size_t len, uint64_t addr);

/** May a transfer begin one-sided? What is missing is asked for. */
int np_rone_is_possible(np_vlink_t *link, np_dir_t dir, const np_iov_t *iov,
                        size_t iovcnt, uint64_t addr);

/** The same for a transfer that fits a buffer of ours */
int np_rone_is_copyable(np_vlink_t *link, uint64_t addr, size_t len);

/** Do what can be done for a one-sided transfer; returns whether to come again.
 *  Owner's turn. */
int np_rone_run(np_rop_t *op);

void np_rone_posted_done(np_rop_t *op, uint32_t index);
void np_rone_release(np_rop_t *op);

/** Its queue pair has failed: the rest goes two-sided over the next one */
void np_rone_lost(np_rop_t *op);

/** May one more operation begin that needs the target's CPU? */
static UCS_F_ALWAYS_INLINE int np_rpost_may_ask(const np_vlink_t *link)
{
    return np_flight_asking(&link->flight) < NP_RASKED_MAX;
}

/** Slow half of np_rpost_enter */
ucs_status_t np_rpost_enter_slow(np_vlink_t *link);

/** May a message be sent? */
static UCS_F_ALWAYS_INLINE ucs_status_t np_rpost_enter(np_vlink_t *link)
{
    return ucs_likely((link->flight.gate == 0) &&
                      np_conn_has_room(link->conn) &&
                      np_conn_has_credit(link->conn)) ?
           UCS_OK : np_rpost_enter_slow(link);
}

/** The ways over RNICs (rpost.c), and what becomes of their operations */
extern const np_way_ops_t np_rop_ways;
void np_rop_hurry(np_flight_t *flight);
void np_rop_stopped(np_op_t *super);
void np_rop_ended(np_op_t *super);
void np_rop_left(np_flight_t *flight);

#endif
