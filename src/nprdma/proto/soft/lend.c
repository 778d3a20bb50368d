/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts and gets of what the target has lent.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "lend.h"

#include "copy.h"
#include "rma.h"

#include "../../clock.h"
#include "../../mem/mapper.h"
#include "../../mem/model.h"
#include "../../mem/region.h"
#include "../../trace.h"

/* A target that makes progress has come to the next piece of a large transfer
 * within this time, unless it computes, sleeps, or has no processor. As long as
 * the first touch of a wide ring takes. */
#define NP_LEND_PATIENCE_NS    200000

/* The same while small ones are out: some times as long as the kernel takes for
 * one, so that a target that comes seldom costs little */
#define NP_LEND_SMALL_NS       20000

/* Largest of the small ones */
#define NP_LEND_SMALL          4096

/* After what was left, the rings are not tried for so many times as long, and
 * twice as long after each time that follows, at most this */
#define NP_LEND_PAUSE          10
#define NP_LEND_PAUSE_MAX_NS   64000000


/* Has a target that was late passed what was left? */
static int np_lend_has_passed(np_link_t *link)
{
    /* what is more than a lap away has been passed long ago */
    return ((link->data.tail - link->left_end) > link->data.mask) ||
           np_ring_tx_is_read(&link->data, link->left_end - 1);
}

static int np_lend_may(np_link_t *link, const np_key_t *key, np_dir_t dir,
                       uint64_t addr, size_t len)
{
    const np_table_t *table;

    if (!np_engine.config.lend || ((key->segment_id | key->base) != 0) ||
        np_model_is_on ||
        link->port->is_model || np_region_is_exact() ||
        (link->process.uid != np_engine.uid) || !np_link_has_vm(link) ||
        (link->data.mask == 0) || !np_arena_has(addr, len)) {
        return 0;
    }

    /* relaxed: it sleeps, or seldom looks. It may as well in a moment. */
    if (!atomic_load_explicit(&link->shm->polled, memory_order_relaxed)) {
        return 0;
    }

    if (ucs_unlikely(np_lend_is_left(link)) ||
        (ucs_unlikely(link->lent_from != 0) &&
         ((np_clock() < link->lent_from) || !np_lend_has_passed(link)))) {
        return 0;
    }

    table = np_link_table(link, addr);
    return (table != NULL) &&
           np_views_have(table, np_page_index(addr), np_page_count(addr, len),
                         (dir == NP_DIR_PUT) ? NP_ENTRY_WRITE : NP_ENTRY_READ);
}

int np_lend_may_copy(np_link_t *link, const np_key_t *key, np_dir_t dir,
                     const np_iov_t *iov, size_t iovcnt, size_t len,
                     uint64_t addr)
{
    size_t i;

    if (!np_lend_may(link, key, dir, addr, len)) {
        return 0;
    }

    for (i = 0; i < iovcnt; ++i) {
        if ((iov[i].len > 0) &&
            !np_mapper_is_mapped((uintptr_t)iov[i].base, iov[i].len,
                                 dir == NP_DIR_GET)) {
            return 0;
        }
    }
    return 1;
}

/* Is there room for one, and for others beside it? The target makes room sooner
 * than the kernel would have moved it, or is left soon. */
static int np_lend_has_room(np_link_t *link, size_t len)
{
    return (ucs_likely(!np_link_is_busy(link)) ||
            np_link_busy_request(link)) &&
           (link->lent_count < NP_TRANSFERS_MAX) &&
           np_carry_has_room_beside(link, len);
}

/* Send one for which there is room */
static ucs_status_t
np_lend_send_one(np_link_t *link, np_op_kind_t kind, const np_iov_t *iov,
                 size_t iovcnt, size_t len, uint64_t addr, void *comp,
                 np_sop_t **op_p)
{
    ucs_status_t status;

    status = np_rma_send(link, kind, iov, iovcnt, len, addr, NP_CARRY_LENT,
                         op_p, comp);
    if (ucs_likely(status == UCS_OK)) {
        np_lend_begin(link, len > NP_LEND_SMALL);
        (*op_p)->super.begin = np_trace_begin();
        np_op_order(&link->flight, &(*op_p)->super, addr, len,
                    kind == NP_OP_PUT);
    }
    return status;
}

ucs_status_t np_lend_send(np_link_t *link, const np_key_t *key,
                          np_op_kind_t kind, const np_iov_t *iov, size_t len,
                          uint64_t addr, np_unpack_t unpack, void *arg,
                          void *comp)
{
    const int is_put = kind == NP_OP_PUT;
    ucs_status_t status;
    np_sop_t *op;

    if (!np_lend_may(link, key, is_put ? NP_DIR_PUT : NP_DIR_GET, addr, len)) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (!np_lend_has_room(link, len)) {
        return (link->lent_count > 0) ? UCS_ERR_NO_RESOURCE :
               UCS_ERR_UNSUPPORTED;
    }

    status = np_lend_send_one(link, kind, iov, is_put, len, addr, comp, &op);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    op->rma.buffer = NULL;
    op->rma.unpack = unpack;
    op->rma.arg    = arg;
    return is_put ? UCS_OK : UCS_INPROGRESS;
}

ucs_status_t np_lend_move(np_link_t *link, np_dir_t dir, const np_iov_t *iov,
                          size_t iovcnt, size_t len, uint64_t addr, void *comp)
{
    ucs_status_t status;
    np_sop_t *op;

    if ((iovcnt != 1) || (len > np_rma_ring_piece(link)) ||
        !ucs_list_is_empty(&link->copies) || !np_lend_has_room(link, len)) {
        return UCS_ERR_UNSUPPORTED;
    }

    status = np_lend_send_one(link,
                              (dir == NP_DIR_PUT) ? NP_OP_PUT : NP_OP_GET, iov,
                              1, len, addr, comp, &op);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    op->rma.buffer = iov->base;
    return UCS_INPROGRESS;
}

ucs_status_t np_lend_put(np_link_t *link, const np_key_t *key, const void *data,
                         size_t len, uint64_t addr)
{
    const np_iov_t iov = {(void*)data, len};
    ucs_status_t status;

    status = np_flight_order(&link->flight, addr, len, 1);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    status = np_lend_send(link, key, NP_OP_PUT, &iov, len, addr, NULL, NULL,
                          NULL);
    return (status == UCS_ERR_NO_RESOURCE) ? np_flight_refuse(&link->flight) :
           status;
}

void np_lend_begin(np_link_t *link, int is_large)
{
    np_assert(!np_lend_is_left(link));
    if (link->lent_count++ == 0) {
        link->lent_since = 0;
    }
    link->lent_large += is_large;
}

void np_lend_end(np_link_t *link, int is_large, int is_done)
{
    np_assert((link->lent_count > 0) &&
              (link->lent_large >= (unsigned)is_large));
    link->lent_large -= is_large;
    link->lent_since  = 0;
    if (is_done) {
        NP_STATS_INC(link->port->flights.stats, lent);
    } else {
        NP_STATS_INC(link->port->flights.stats, lent_left);
    }

    if (is_done && !np_lend_is_left(link)) {
        link->lent_from  = 0;
        link->lent_pause = 0;
    }
    if (--link->lent_count == 0) {
        link->lent_state = NP_LENT_TRIED; /* nothing is left to be recalled */
    }
}

void np_lend_end_one(np_link_t *link, const np_sop_t *op, int is_done)
{
    np_lend_end(link, op->rma.len > NP_LEND_SMALL, is_done);
}

static uint64_t np_lend_patience(const np_link_t *link)
{
    return (link->lent_large == 0) ? NP_LEND_SMALL_NS : NP_LEND_PATIENCE_NS;
}

/* Have the target execute nothing more of what is out */
static void np_lend_leave(np_link_t *link)
{
    if (np_lend_is_left(link)) {
        return;
    }

    link->lent_state    = NP_LENT_LEFT;
    link->lent_recalled = np_carry_recall(link);
    link->lent_pause    = ucs_min(ucs_max(2 * link->lent_pause,
                                          NP_LEND_PAUSE *
                                          np_lend_patience(link)),
                                  (uint64_t)NP_LEND_PAUSE_MAX_NS);
    link->lent_from     = np_clock() + link->lent_pause;
}

/* A request that the target has not executed, and will not */
static void np_lend_take_back(np_link_t *link, np_sop_t *op)
{
    np_sop_t *copy_op = op->rma.copy;

    if (copy_op == NULL) {
        np_lend_end_one(link, op, 0);
        np_copy_turn(link, op);
        return;
    }

    np_carry_leave(link, &op->rma.carry);
    copy_op->copy.left = ucs_min(copy_op->copy.left, op->rma.offset);
    np_op_drop(&op->super);
    --copy_op->copy.pending;
}

void np_lend_refused(np_link_t *link, np_sop_t *op)
{
    np_lend_leave(link);
    np_lend_take_back(link, op);
}

/* What was recalled, and is: it goes by other ways, but for what the target has
 * executed, which ends. That may have to wait for memory of ours: then this is
 * called again. */
static unsigned np_lend_go_on(np_link_t *link)
{
    np_carry_t *carry, *next;
    unsigned count;
    np_sop_t *op;

    ucs_list_for_each_safe(carry, next, &link->carried, list) {
        op = ucs_container_of(carry, np_sop_t, rma.carry);
        if (carry->is_lent &&
            (np_carry_answer(link, carry) == UCS_ERR_NO_PROGRESS)) {
            np_lend_take_back(link, op);
        }
    }

    count = np_carry_take_executed(link);
    ucs_list_for_each(op, &link->copies, queue) {
        if (op->copy.is_lent && (op->copy.pending == 0)) {
            np_copy_leave_rings(op);
            np_lend_end(link, 1, 0);
        }
    }

    return count;
}

/* Is it time to leave? After what was left before nothing is waited for, unless
 * the target has come since. */
static int np_lend_is_late(np_link_t *link)
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
    return (now - link->lent_since) >= np_lend_patience(link);
}

unsigned np_lend_progress_slow(np_link_t *link)
{
    if (!np_lend_is_left(link) && np_lend_is_late(link)) {
        np_lend_leave(link);
    }

    return (np_lend_is_left(link) &&
            np_carry_is_recalled(link, link->lent_recalled)) ?
           np_lend_go_on(link) : 0;
}
