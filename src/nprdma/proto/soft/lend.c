/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Gets of what the target has lent.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "lend.h"

#include "../../clock.h"
#include "../../mem/mapper.h"
#include "../../mem/model.h"
#include "../../mem/region.h"

/* A target that fills the rings has come to its next piece within this time,
 * unless it computes, sleeps, or has no processor. As long as the first touch
 * of a wide ring takes. */
#define NP_LEND_PATIENCE_NS    200000

/* After one that did not come, the rings are not tried for this time, and twice
 * as long after each that follows */
#define NP_LEND_PAUSE_MIN_NS   2000000
#define NP_LEND_PAUSE_MAX_NS   64000000


/* Has a target that was late passed the pieces that were left? */
static int np_lend_has_passed(np_link_t *link)
{
    /* what is more than a lap away has been passed long ago */
    return ((link->data.tail - link->left_end) > link->data.mask) ||
           np_ring_tx_is_read(&link->data, link->left_end - 1);
}

int np_lend_may(np_link_t *link, const np_iov_t *iov, size_t iovcnt, size_t len,
                uint64_t addr)
{
    const np_table_t *table;
    size_t i;

    if ((np_engine.config.ring_get_min == 0) || np_model_is_on ||
        link->port->is_model || np_region_is_exact() ||
        (link->process.uid != np_engine.uid) || (link->data.mask == 0) ||
        !np_arena_has(addr, len)) {
        return 0;
    }

    if (ucs_unlikely(link->lent_from != 0) &&
        ((np_clock() < link->lent_from) || !np_lend_has_passed(link))) {
        return 0;
    }

    for (i = 0; i < iovcnt; ++i) {
        if ((iov[i].len > 0) &&
            !np_mapper_is_mapped((uintptr_t)iov[i].base, iov[i].len, 1)) {
            return 0;
        }
    }

    table = np_link_table(link, addr);
    return (table != NULL) &&
           np_views_have(table, np_page_index(addr), np_page_count(addr, len),
                         NP_ENTRY_READ);
}

/* Others that wait are left with it: they are no other time */
static void np_lend_pause(np_link_t *link)
{
    const uint64_t now = np_clock();

    if (now < link->lent_from) {
        return;
    }

    link->lent_pause = ucs_min(ucs_max(2 * link->lent_pause,
                                       (uint64_t)NP_LEND_PAUSE_MIN_NS),
                               (uint64_t)NP_LEND_PAUSE_MAX_NS);
    link->lent_from  = now + link->lent_pause;
}

void np_lend_begin(np_link_t *link)
{
    np_sop_t *op;

    ucs_list_for_each(op, &link->copies, queue) {
        if (op->copy.is_lent) {
            return;
        }
    }
    link->lent_since = 0;
}

void np_lend_leave(np_link_t *link, np_sop_t *copy_op)
{
    np_copy_t *copy = &copy_op->copy;
    size_t offset   = copy->chunks.offset;
    np_carry_t *carry, *next;
    np_sop_t *piece;

    np_assert(copy->by_rings && copy->is_lent);
    ucs_list_for_each_safe(carry, next, &link->carried, list) {
        piece = ucs_container_of(carry, np_sop_t, rma.carry);
        if (piece->rma.copy == copy_op) {
            offset = ucs_min(offset, piece->rma.offset);
            np_carry_leave(link, carry);
            np_op_drop(&piece->super);
            --copy->pending;
            /* For the next copy: it is late, or the target passes this one.
             * Where none was sent there is no such sign, and no new time. */
            link->lent_since = 0;
        }
    }

    /* they were sent, and would have come, in order */
    np_assertv(copy->pending == 0, "%u pieces are not in the ring",
               copy->pending);
    copy->by_rings = 0;
    copy->is_lent  = 0;
    copy->recalled = np_carry_recall(link);
    if (copy_op->super.status == UCS_OK) {
        np_chunks_again(&copy->chunks, offset);
    }
    np_lend_pause(link);
    NP_STATS_INC(link->port->flights.stats, lent_left);
}

int np_lend_is_late(np_link_t *link)
{
    uint64_t now;

    if (ucs_unlikely(link->lent_from != 0) &&
        ucs_list_is_empty(&link->carried) && !np_lend_has_passed(link)) {
        return 1;
    }

    now = np_clock();
    if (link->lent_since == 0) {
        link->lent_since = now;
    }
    return (now - link->lent_since) >= NP_LEND_PATIENCE_NS;
}

void np_lend_came(np_link_t *link)
{
    link->lent_from  = 0;
    link->lent_pause = 0;
    NP_STATS_INC(link->port->flights.stats, lent);
}
