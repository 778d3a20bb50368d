/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations: beginning, completing, failure.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "order.h"

#include "../trace.h"

#include <stdlib.h>

/* Operations are made in blocks, which live as long as the port. The size of
 * their table is a power of two. */
#define NP_OP_BLOCK        16u

/* A name: an index, and a generation above it. 0 is no name. */
#define NP_OP_INDEX_BITS   16
#define NP_OP_INDEX_MASK   UCS_MASK(NP_OP_INDEX_BITS)

_Static_assert(NP_OP_NAMES == (NP_OP_INDEX_MASK + 1), "an index fits a name");


static np_op_t *np_op_at(const np_flights_t *all, uint32_t index)
{
    return (np_op_t*)(all->blocks[index / NP_OP_BLOCK] +
                      ((index % NP_OP_BLOCK) * all->ways->op_size));
}

/* One more block, whose operations are free */
static int np_op_grow(np_flights_t *all)
{
    const unsigned count = all->num_ops / NP_OP_BLOCK;
    uint8_t **blocks     = all->blocks;
    unsigned i;

    if ((count & (count - 1)) == 0) { /* the table is full, or none yet */
        blocks = realloc(blocks, ucs_max(2 * count, 1u) * sizeof(*blocks));
        if (blocks == NULL) {
            return 0;
        }
        all->blocks = blocks;
    }

    blocks[count] = calloc(NP_OP_BLOCK, all->ways->op_size);
    if (blocks[count] == NULL) {
        return 0;
    }

    for (i = 0; i < NP_OP_BLOCK; ++i, ++all->num_ops) {
        np_op_at(all, all->num_ops)->index = all->num_ops;
        np_op_put(all, np_op_at(all, all->num_ops));
    }
    return 1;
}

np_op_t *np_op_get(np_flights_t *all, np_op_kind_t kind, void *comp)
{
    np_op_t *op;

    if (ucs_unlikely(all->free_ops == NULL)) {
        if (all->num_ops >= all->max_ops) {
            return NULL;
        }
        if (!np_op_grow(all)) {
            np_error("no memory for %u more operations of %zu bytes beside %u",
                     NP_OP_BLOCK, all->ways->op_size, all->num_ops);
            return NULL;
        }
    }

    op             = all->free_ops;
    all->free_ops  = op->next_free;
    op->kind       = kind;
    op->comp       = comp;
    op->status     = UCS_OK;
    op->is_ordered = 0;
    return op;
}

void np_op_put(np_flights_t *all, np_op_t *op)
{
    op->flight    = NULL;
    op->name      = 0;
    op->next_free = all->free_ops;
    all->free_ops = op;
}

void np_op_post(np_flight_t *flight, np_op_t *op)
{
    op->flight       = flight;
    op->sequence     = ++flight->sequence;
    ++flight->count[op->kind];
    ++flight->outstanding;
    ucs_list_add_tail(&flight->ops, &op->list);
    np_flight_set_busy(flight);

    /* The link went down after this operation had entered, when nothing was
     * outstanding of which its user had to be told */
    if (ucs_unlikely(np_flight_is_down(flight))) {
        np_flight_report(flight);
    }
}

void np_op_name(np_op_t *op)
{
    op->name = (++op->generation << NP_OP_INDEX_BITS) | op->index;
    if (op->name == 0) {
        op->name = ++op->generation << NP_OP_INDEX_BITS;
    }
}

np_op_t *np_op_find(const np_flight_t *flight, uint32_t name)
{
    const uint32_t index = name & NP_OP_INDEX_MASK;
    np_op_t *op;

    if ((name == 0) || (index >= flight->all->num_ops)) {
        return NULL;
    }

    op = np_op_at(flight->all, index);
    return ((op->name == name) && (op->flight == flight)) ? op : NULL;
}

void np_op_turn(np_op_t *op, np_op_kind_t kind)
{
    --op->flight->count[op->kind];
    ++op->flight->count[kind];
    op->kind = kind;
}

/* Take it out of all lists of its link, and give back what it uses. What was
 * refused may be tried again. */
static void np_op_unpost(np_op_t *op)
{
    np_flight_t *flight = op->flight;

    np_assert((flight->outstanding > 0) && (flight->count[op->kind] > 0));
    --flight->count[op->kind];
    --flight->outstanding;
    flight->is_refused = 0;
    ucs_list_del(&op->list);
    if (op->is_ordered) {
        np_overlap_remove(&flight->overlap, &op->interval);
        op->is_ordered = 0;
    }
    if (op->kind != NP_OP_REFUSED) {
        flight->all->ways->ended(op);
    }
}

void np_op_drop(np_op_t *op)
{
    np_flights_t *all = op->flight->all;

    np_op_unpost(op);
    np_op_put(all, op);
}

/* Does anything but its user rely on it? Yes if it has no completion, or if
 * operations after a fence wait for it: UCP must not tell the peer that a put
 * is there if it is not. */
static int np_op_is_relied_on(const np_op_t *op)
{
    /* a read or an atomic that never began: nobody waits for what it did */
    if (op->kind == NP_OP_REFUSED) {
        return 0;
    }

    return (op->comp == NULL) || ((op->flight->gate & NP_GATE_FENCED) &&
                                  (op->sequence <= op->flight->fence));
}

void np_op_trace(const np_op_t *op)
{
    if ((op->kind == NP_OP_COPY) || (op->kind == NP_OP_MOVE) ||
        (op->kind == NP_OP_ONE)) {
        np_trace(op->interval.is_write ? NP_TRACE_PUT : NP_TRACE_GET, op->begin,
                 op->interval.first,
                 op->interval.last + 1 - op->interval.first);
    }
}

void np_op_finish(np_op_t *op, ucs_status_t status)
{
    np_flight_t *flight = op->flight;
    void *comp          = op->comp;
    const int is_fatal  = (status != UCS_OK) && np_op_is_relied_on(op);

    op->status = status;
    np_op_trace(op);
    np_op_drop(op);
    if (ucs_unlikely(is_fatal)) {
        /* as on any RDMA device, the end of the connection */
        flight->all->dev->fail(flight, status);
        if (np_flight_is_down(flight)) {
            np_flight_report(flight);
        }
    }
    np_flights_tell(flight->all, comp, status);
    np_flight_check_flushes(flight, UCS_OK);
}

void np_flight_cancel(np_flight_t *flight, ucs_status_t status)
{
    np_flights_t *all = flight->all;
    np_op_t *op;
    void *comp;

    /* before the user is told: then the memory is the user's again */
    all->dev->stop(flight);
    ucs_list_for_each(op, &flight->ops, list) {
        if (op->kind != NP_OP_REFUSED) {
            all->ways->stopped(op);
        }
    }
    while (!ucs_list_is_empty(&flight->ops)) {
        op         = ucs_list_head(&flight->ops, np_op_t, list);
        op->status = status;
        comp       = op->comp;
        np_op_drop(op);
        np_flights_tell(all, comp, status);
    }
    np_flight_check_flushes(flight, status);
}

void np_flight_report(np_flight_t *flight)
{
    if (!flight->is_reported && ucs_list_is_empty(&flight->down)) {
        ucs_list_add_tail(&flight->all->down, &flight->down);
    }
}

static np_op_t *np_flights_find_refused(const np_flights_t *all)
{
    np_flight_t *flight;
    np_op_t *op;

    ucs_list_for_each(flight, &all->busy, busy) {
        if (flight->count[NP_OP_REFUSED] > 0) {
            ucs_list_for_each(op, &flight->ops, list) {
                if (op->kind == NP_OP_REFUSED) {
                    return op;
                }
            }
        }
    }
    return NULL;
}

/* Their users may have others refused: those are told in the next one */
static unsigned np_flights_end_refused(np_flights_t *all)
{
    unsigned count = 0, i;
    np_op_t *op;

    all->has_refused = 0;
    for (i = all->num_ops; (i > 0) &&
         ((op = np_flights_find_refused(all)) != NULL); --i) {
        np_op_finish(op, op->status);
        ++count;
    }
    return count;
}

unsigned np_flights_report(np_flights_t *all)
{
    unsigned count = 0;
    np_flight_t *flight;

    if (ucs_unlikely(all->has_refused) &&
        ((all->turn == NULL) || np_flights_are_ours(all))) {
        count = np_flights_end_refused(all);
    }

    if (ucs_unlikely(!ucs_list_is_empty(&all->down)) && (all->turn != NULL) &&
        !np_flights_are_ours(all)) {
        return 0; /* what is outstanding holds what its parent's device uses */
    }

    while (!ucs_list_is_empty(&all->down)) {
        flight = ucs_list_extract_head(&all->down, np_flight_t, down);
        ucs_list_head_init(&flight->down);
        if (!flight->is_reported) {
            flight->is_reported = 1;
            np_flight_cancel(flight, flight->status);
            np_unit_assert_outside();
            all->user.link_down(flight, flight->status); /* may end it */
            ++count;
        }
    }
    return count;
}

void np_flights_cleanup(np_flights_t *all)
{
    unsigned i;

    for (i = 0; i < (all->num_ops / NP_OP_BLOCK); ++i) {
        free(all->blocks[i]);
    }
    free(all->blocks);
}
