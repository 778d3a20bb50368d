/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations of any device: what an endpoint has outstanding, from its
 * beginning to its completion or failure. What a device has to know besides
 * follows in its own struct (soft/sop.h, rnic/rop.h).
 */

#ifndef NP_OP_H_
#define NP_OP_H_

#include "../dev/flight.h"
#include "../unit.h"

/** np_way_ops_t::max_ops, where operations have names */
#define NP_OP_NAMES  65536u

/** Owner: its link, from np_op_post on; its caller before that. Guarded as its
 *  link is. */
struct np_op {
    ucs_list_link_t list;        /**< of its link's */
    np_op_t         *next_free;
    np_flight_t     *flight;     /**< its link's; NULL: not outstanding */
    uint64_t        sequence;
    uint64_t        begin;       /**< np_trace_begin() */
    void            *comp;       /**< the user's, or NULL */
    np_op_kind_t    kind;
    ucs_status_t    status;      /**< of what is done so far */
    uint32_t        index;       /**< of the port's operations */
    uint32_t        generation;
    uint32_t        name;        /**< np_op_name; 0: none */
    int             is_ordered;  /**< interval is in the link's table */
    np_interval_t   interval;    /**< of the remote side */
    union {
        struct {
            uint32_t put;        /**< the last one before it */
            np_op_t  *group;     /**< or NULL */
        } flush;
        struct {
            unsigned pending;
        } group;
        struct {
            void     *result;    /**< where the value before goes, or NULL */
            size_t   size;
        } atomic;
    };
};

/** A free operation; NULL: np_op_none says why */
np_op_t *np_op_get(np_flights_t *all, np_op_kind_t kind, void *comp);
void np_op_put(np_flights_t *all, np_op_t *op);

/** Are as many operations in use as a port may have? */
static inline int np_op_is_full(const np_flights_t *all)
{
    return (all->free_ops == NULL) && (all->num_ops >= all->max_ops);
}

/** There was no free operation. UCS_ERR_NO_RESOURCE: others must complete
 *  first; UCS_ERR_NO_MEMORY. */
static inline ucs_status_t np_op_none(const np_flights_t *all)
{
    return np_op_is_full(all) ? UCS_ERR_NO_RESOURCE : UCS_ERR_NO_MEMORY;
}

/** It is outstanding from now on */
void np_op_post(np_flight_t *flight, np_op_t *op);

/** Give it a name that no other operation has had lately: a late answer to one
 *  is not taken for the answer to the next */
void np_op_name(np_op_t *op);

/** The link's operation of this name; NULL: it is over */
np_op_t *np_op_find(const np_flight_t *flight, uint32_t name);

/** It is outstanding, and goes on as an operation of another kind */
void np_op_turn(np_op_t *op, np_op_kind_t kind);

/** It is not outstanding any more; its user is not told */
void np_op_drop(np_op_t *op);

/** A transfer has ended: report it to np_trace, as np_op_order had it */
void np_op_trace(const np_op_t *op);

/** It is done: tell the user, and the operations that wait for all before them.
 *  An error that no completion reports ends the link. */
void np_op_finish(np_op_t *op, ucs_status_t status);

/** Complete everything that is outstanding with @a status. Answers may still
 *  come, and the link must not be used again. */
void np_flight_cancel(np_flight_t *flight, ucs_status_t status);

/** Tell the user that a link is down, at the next progress */
void np_flight_report(np_flight_t *flight);

/** The same, now, and of operations that were refused; returns how many */
unsigned np_flights_report(np_flights_t *all);

/** Free all operations of a port */
void np_flights_cleanup(np_flights_t *all);


/** Tell the user, if there is a completion */
static inline void
np_flights_tell(const np_flights_t *all, void *comp, ucs_status_t status)
{
    if (comp != NULL) {
        np_unit_assert_outside();
        all->user.complete(comp, status);
    }
}

/** An atomic was executed: @a value was there before, little-endian */
static inline void np_op_store(const np_op_t *op, const void *value)
{
    if (op->atomic.result != NULL) {
        memcpy(op->atomic.result, value, op->atomic.size);
    }
}

#endif
