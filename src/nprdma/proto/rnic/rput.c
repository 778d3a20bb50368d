/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Small puts that are confirmed together. Each is an inline Write into the
 * target's write view, posted at once; the Read of the target's entries after
 * them is posted when it is waited for, when there are many, or soon. Until it
 * is back their bytes stay here. What was not there goes again, as a message.
 *
 * Two puts have the same place, or no byte in common. For each place only the
 * last put counts, so nothing older is ever written over it. Other transfers of
 * the same memory wait (np_flight_t::overlap).
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "rput.h"

#include "runload.h"

#include "../judge.h"
#include "../order.h"

#include "../../clock.h"

#include <stdlib.h>
#include <string.h>

/* Progress calls for which a put may stay without its Read: a put that the
 * target's black-hole page has swallowed is seen that much later by a program
 * that polls for it. A program that is seldom in progress sends the Read at the
 * kernel's next tick. */
#define NP_RPUT_TICKS  1024

/* Writes before one Read, unless the send queue is small */
#define NP_RPUT_WRITES 64u

/* The entries of a batch fit a buffer */
#define NP_RPUT_PAGES  (NP_VSEG_SIZE / sizeof(uint32_t))

typedef enum np_rput_state {
    NP_RPUT_DONE,
    NP_RPUT_LIVE,
    NP_RPUT_REPLACED          /* the other batch has a later put of its place */
} np_rput_state_t;

typedef struct np_rput {
    np_interval_t   interval; /**< of the remote side; LIVE: in the table */
    unsigned        len;
    np_rput_state_t state;
    np_entries_t    entry;    /**< of its page, before */
    uint8_t         data[NP_RPUT_SIZE];
} np_rput_t;

/** The puts that one Read confirms. Owner: its link. */
typedef struct np_rbatch {
    np_rop_t     *op;         /**< NULL: not in use */
    np_vremote_t *remote;     /**< the arena of all */
    uint64_t     first;       /**< of the first page */
    uint64_t     last;        /**< and of the last */
    void         *scratch;    /**< where its entries arrive, or NULL */
    unsigned     count;
    unsigned     writes;      /**< at least as many */
    unsigned     ticks;       /**< progress call in which it began */
    uint64_t     tick;        /**< and when; np_clock_coarse() */
    int          is_posted;   /**< its Read */
    int          is_back;
    int          is_checked;  /**< or will not be checked: what is LIVE is sent
                                   again */
    int          is_behind;   /**< complete only when the other batch is, since
                                   that one has replaced what was not there */
    np_rput_t    puts[NP_RPUT_COUNT];
} np_rbatch_t;

/** Owner: its link. One batch grows while the other is being confirmed. */
struct np_rputs {
    ucs_list_link_t list;     /**< of port->open_puts, or alone */
    np_vlink_t      *link;
    np_rbatch_t     *open;    /**< may grow; NULL: none */
    np_rbatch_t     batches[2];
};


static uint64_t np_rput_page(uint64_t addr)
{
    return addr & ~(NP_PAGE_SIZE - 1);
}

static void
np_rput_set(np_vlink_t *link, np_rput_t *put, np_rput_state_t state)
{
    if (put->state == NP_RPUT_LIVE) {
        np_overlap_remove(&link->flight.overlap, &put->interval);
    }
    put->state = state;
}

/* Nothing is added to it any more */
static void np_rbatch_close(np_rbatch_t *batch)
{
    struct np_rputs *puts = batch->op->link->puts;

    if (puts->open == batch) {
        puts->open = NULL;
        ucs_list_del(&puts->list);
        ucs_list_head_init(&puts->list);
    }
}

static np_rbatch_t *np_rbatch_other(const np_rbatch_t *batch)
{
    struct np_rputs *puts = batch->op->link->puts;

    return &puts->batches[batch == &puts->batches[0]];
}

static void np_rbatch_drop_scratch(np_rbatch_t *batch)
{
    if (batch->scratch != NULL) {
        np_vport_buffer_put(batch->op->port, batch->scratch);
        batch->scratch = NULL;
    }
}

/* Is there an older batch, whose Read must be posted first? */
static int np_rbatch_is_second(const np_rbatch_t *batch)
{
    const np_rbatch_t *other = np_rbatch_other(batch);

    return (other->op != NULL) && !other->is_posted && !other->is_checked &&
           (other->op->super.sequence < batch->op->super.sequence);
}

/* Post its Read; returns 0: no room */
static int np_rbatch_look(np_rbatch_t *batch)
{
    np_rop_t *op = batch->op;

    if (!np_conn_has_rooms(op->conn, 1) || (op->conn->replay != NULL) ||
        np_rbatch_is_second(batch)) {
        return 0;
    }

    batch->is_posted = 1;
    np_vremote_look(batch->remote, batch->first,
                    batch->last + 1 - batch->first, batch->scratch, op, 0);
    return 1;
}

static void np_rbatch_confirm(np_rbatch_t *batch)
{
    np_rbatch_close(batch);
    if (!np_rbatch_look(batch)) {
        np_rop_todo(batch->op);
    }
}

void np_rput_confirm(np_vlink_t *link)
{
    if ((link->puts != NULL) && (link->puts->open != NULL)) {
        np_rbatch_confirm(link->puts->open);
    }
}

void np_rput_confirm_all(np_vport_t *port)
{
    struct np_rputs *puts, *next;

    ucs_list_for_each_safe(puts, next, &port->open_puts, list) {
        np_rput_confirm(puts->link);
    }
}

void np_rput_age(np_vport_t *port, unsigned ticks)
{
    struct np_rputs *puts, *next;
    const uint64_t now = np_clock_coarse();

    ucs_list_for_each_safe(puts, next, &port->open_puts, list) {
        if (((ticks - puts->open->ticks) >= NP_RPUT_TICKS) ||
            (puts->open->tick != now)) {
            np_rput_confirm(puts->link);
        }
    }
}

/* The put of just this place that is not confirmed yet, or NULL */
static np_rput_t *np_rput_find(np_vlink_t *link, uint64_t addr, size_t len)
{
    np_rbatch_t *batch;
    unsigned i, k;

    for (i = 0; (link->puts != NULL) && (i < 2); ++i) {
        batch = &link->puts->batches[i];
        if ((batch->op == NULL) || batch->is_checked) {
            continue; /* what is sent again is waited for */
        }
        for (k = 0; k < batch->count; ++k) {
            if ((batch->puts[k].state == NP_RPUT_LIVE) &&
                (batch->puts[k].len == len) &&
                (batch->puts[k].interval.first == addr)) {
                return &batch->puts[k];
            }
        }
    }
    return NULL;
}

/* May it begin beside what is in flight? A put of the same place (@a last_p) is
 * no reason to wait. */
static int np_rput_may_begin(np_vlink_t *link, uint64_t addr, size_t len,
                             np_rput_t **last_p)
{
    *last_p = NULL;
    if ((link->flight.outstanding == 0) ||
        !np_order_waits(&link->flight.overlap, addr, len, 1)) {
        return 1;
    }

    if (np_order_now() == NP_ORDER_OVERLAP) {
        *last_p = np_rput_find(link, addr, len);
    }
    return *last_p != NULL;
}

/* Has the batch a place for one more put, in this page? */
static int np_rbatch_has_place(const np_rbatch_t *batch,
                               const np_vremote_t *remote, uint64_t page)
{
    uint64_t first = ucs_min(batch->first, page);
    uint64_t last  = ucs_max(batch->last, page);

    return (batch->remote == remote) && (batch->count < NP_RPUT_COUNT) &&
           (((last - first) >> NP_PAGE_SHIFT) < NP_RPUT_PAGES);
}

/* UCS_ERR_NO_RESOURCE: others must complete first; UCS_ERR_UNSUPPORTED: there
 * can be none */
static ucs_status_t
np_rbatch_begin(np_vlink_t *link, np_vremote_t *remote, uint64_t page,
                np_rbatch_t **batch_p)
{
    struct np_rputs *puts = link->puts;
    np_rbatch_t *batch    = (puts->batches[0].op == NULL) ? &puts->batches[0] :
                            &puts->batches[1];
    void *scratch;
    np_rop_t *op;

    if (batch->op != NULL) {
        return np_flight_refuse(&link->flight);
    }

    scratch = np_vport_buffer_get(link->port);
    if (scratch == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }

    op = np_rop_get(link->port, NP_OP_PUTS, NULL);
    if (op == NULL) {
        np_vport_buffer_put(link->port, scratch);
        return UCS_ERR_UNSUPPORTED;
    }

    op->batch         = batch;
    batch->op         = op;
    batch->remote     = remote;
    batch->first      = page;
    batch->last       = page;
    batch->scratch    = scratch;
    batch->count      = 0;
    batch->writes     = 0;
    batch->ticks      = link->port->ticks;
    batch->tick       = np_clock_coarse();
    batch->is_posted  = 0;
    batch->is_back    = 0;
    batch->is_checked = 0;
    batch->is_behind  = 0;
    puts->open        = batch;
    ucs_list_add_tail(&link->port->open_puts, &puts->list);
    np_rop_post(link, op);
    *batch_p = batch;
    return UCS_OK;
}

/* The batch that takes a put in this page; else as np_rbatch_begin() */
static ucs_status_t np_rput_batch(np_vlink_t *link, np_vremote_t *remote,
                                  uint64_t page, np_rbatch_t **batch_p)
{
    *batch_p = link->puts->open;
    if ((*batch_p != NULL) && np_rbatch_has_place(*batch_p, remote, page)) {
        return UCS_OK;
    }

    np_rput_confirm(link);
    return np_rbatch_begin(link, remote, page, batch_p);
}

static int np_rput_init(np_vlink_t *link)
{
    if (link->puts == NULL) {
        link->puts = calloc(1, sizeof(*link->puts));
        if (link->puts == NULL) {
            return 0;
        }
        link->puts->link = link;
        ucs_list_head_init(&link->puts->list);
    }
    return 1;
}

void np_rput_by_message(np_vlink_t *link, np_vctl_t *ctl, uint64_t addr,
                        size_t len, int is_unloaded)
{
    np_runload_sent(link, ctl, addr, len, is_unloaded);
    if (np_vlink_has_acked(link, link->flight.put)) {
        link->put_first = addr;
        link->put_end   = addr + len;
    } else {
        link->put_first = ucs_min(link->put_first, addr);
        link->put_end   = ucs_max(link->put_end, addr + len);
    }
}

int np_rput_is_unacked(np_vlink_t *link)
{
    if (ucs_likely(np_vlink_has_acked(link, link->flight.put))) {
        link->is_overtaking = 0;
        return 0;
    }

    np_flight_hurry(&link->flight);
    return 1;
}

int np_rput_is_overtaken(np_vlink_t *link, uint64_t addr, size_t len)
{
    np_order_t order;

    if (ucs_likely(np_vlink_has_acked(link, link->flight.put)) ||
        (np_vremote_get(link, addr, 1) == NULL) ||
        NP_IS_MUTANT(MESSAGE_OVERTAKEN)) {
        return 0; /* in the latter case it is a message, too */
    }

    order = np_order_now();
    if ((order == NP_ORDER_RELAXED) ||
        ((order != NP_ORDER_STRICT) &&
         ((addr >= link->put_end) || ((addr + len) <= link->put_first) ||
          !np_runload_is_near(link, addr, len)))) {
        return 0;
    }

    link->is_overtaking = np_rput_is_unacked(link);
    NP_STATS_ADD(link->port->flights.stats, order_waits, link->is_overtaking);
    return link->is_overtaking;
}

/* Its place in the open batch, where an older put may be */
static np_rput_t *np_rput_place(np_vlink_t *link, np_rbatch_t *batch,
                                np_rput_t *last, uint64_t addr, size_t len)
{
    np_rput_t *put = &batch->puts[batch->count];

    if ((last >= batch->puts) && (last < put)) {
        return last;
    }

    if (last != NULL) {
        np_rput_set(link, last, NP_RPUT_REPLACED);
    }
    ++batch->count;
    put->len   = len;
    put->state = NP_RPUT_LIVE;
    np_overlap_add(&link->flight.overlap, &put->interval, addr, len, 1);
    batch->first = ucs_min(batch->first, np_rput_page(addr));
    batch->last  = ucs_max(batch->last, np_rput_page(addr));
    return put;
}

ucs_status_t np_rput_post(np_vlink_t *link, const void *data, size_t len,
                          uint64_t addr)
{
    np_vport_t *port = link->port;
    np_rput_t *put, *last;
    np_vremote_t *remote;
    np_rbatch_t *batch;
    ucs_status_t status;
    np_entries_t entry;

    if ((len > NP_RPUT_SIZE) || (len > port->max_inline) ||
        (np_rput_page(addr) != np_rput_page(addr + len - 1))) {
        return UCS_ERR_UNSUPPORTED;
    }

    remote = np_vremote_get(link, addr, len);
    if (remote == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    entry = np_vremote_entries(remote, addr, len);
    if (!np_entries_have(&entry, NP_ENTRY_WRITE) || !np_rput_init(link)) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (np_rput_is_overtaken(link, addr, len)) {
        return UCS_ERR_NO_RESOURCE;
    }

    if (!np_rput_may_begin(link, addr, len, &last)) {
        NP_STATS_INC(port->flights.stats, order_waits);
        np_rput_confirm(link);
        return np_flight_refuse(&link->flight);
    }

    if (!np_conn_has_rooms(link->conn, NP_VLINK_ROOMS)) {
        return UCS_ERR_NO_RESOURCE;
    }

    status = np_rput_batch(link, remote, np_rput_page(addr), &batch);
    if (status != UCS_OK) {
        return status;
    }

    put        = np_rput_place(link, batch, last, addr, len);
    put->entry = entry;
    memcpy(put->data, data, len);
    np_conn_write(link->conn, (np_place_t){.addr = (uintptr_t)put->data},
                  np_vremote_place(remote, addr, 1), len);
    if (np_runload_posted(link, batch->op, addr) ||
        (++batch->writes >=
         ucs_min(NP_RPUT_WRITES, link->conn->sq_mask / 2))) {
        np_rbatch_confirm(batch);
    }
    return UCS_OK;
}

/* Has its page been there all the time? */
static int np_rput_is_right(const np_rbatch_t *batch, const np_rput_t *put)
{
    const np_entries_t now = np_vremote_entries(
            batch->remote, put->interval.first, put->len);

    return np_judge_theirs(NP_DIR_PUT, &put->entry, &now);
}

/* The operation whose flushes wait for what is sent again */
static np_rop_t *np_rbatch_first(const np_rbatch_t *batch)
{
    const np_rbatch_t *other = np_rbatch_other(batch);

    return ((other->op != NULL) && other->is_behind) ? other->op : batch->op;
}

/* The puts for which that is so are complete; without entries, none */
static void np_rbatch_check(np_rbatch_t *batch, int has_entries)
{
    np_stats_t *stats = batch->op->port->flights.stats;
    int is_right       = has_entries;
    np_rput_t *put;
    unsigned i;

    batch->is_checked = 1;
    for (i = 0; i < batch->count; ++i) {
        put = &batch->puts[i];
        if (has_entries && np_rput_is_right(batch, put)) {
            np_rput_set(batch->op->link, put, NP_RPUT_DONE);
            np_stats_moved(stats, NP_DIR_PUT, put->len);
        } else if (put->state == NP_RPUT_REPLACED) {
            batch->is_behind = !NP_IS_MUTANT(BATCH_COUNTS_OLDER);
        }
        is_right &= put->state != NP_RPUT_LIVE;
    }
    /* one that is alone, and sent again, ends then */
    if (is_right || (batch->count > 1) ||
        (np_rbatch_first(batch) != batch->op)) {
        np_runload_ended(batch->op, is_right);
    }
}

/* Send it again as a message; returns 0: no room */
static int np_rput_again(np_rop_t *op, np_rput_t *put)
{
    np_rop_t *first  = np_rbatch_first(op->batch);
    np_vlink_t *link = op->link;
    np_vctl_t *ctl   = (np_vctl_t*)np_conn_begin(op->conn, NP_VMSG_PUT);
    np_rop_t *again;

    if (ctl == NULL) {
        return 0;
    }

    again = np_rop_get(op->port, NP_OP_ONE, NULL);
    if (again == NULL) {
        np_conn_drop(op->conn, &ctl->msg);
        return 0;
    }

    memcpy(ctl + 1, put->data, put->len);
    again->copy          = ctl;
    again->one.dir       = NP_DIR_PUT;
    again->one.base      = ctl + 1;
    again->one.len       = put->len;
    again->one.remote    = put->interval.first;
    again->one.is_failed = 1;
    np_rop_post(link, again);
    again->super.sequence = first->super.sequence;
    ucs_list_del(&again->super.list);
    ucs_list_insert_after(&first->super.list, &again->super.list);
    np_rput_set(link, put, NP_RPUT_DONE);
    np_op_order(&link->flight, &again->super, again->one.remote,
                again->one.len, 1);
    if (np_rone_run(again)) {
        np_rop_todo(again);
    }
    return 1;
}

static void np_rbatch_finish(np_rbatch_t *batch)
{
    np_rbatch_t *other = np_rbatch_other(batch);
    np_rop_t *op       = batch->op;

    if ((other->op != NULL) && other->is_behind) {
        other->is_behind = 0;
        np_rop_todo(other->op);
    }
    np_rput_release(op);
    np_op_finish(&op->super, UCS_OK);
}

int np_rput_run(np_rop_t *op)
{
    np_rbatch_t *batch = op->batch;
    unsigned i;

    if (!batch->is_checked) {
        if (!batch->is_posted) {
            return !np_rbatch_look(batch);
        }
        if (!batch->is_back) {
            return 0;
        }
        np_vremote_learn(batch->remote, batch->first,
                         batch->last + 1 - batch->first, batch->scratch);
        np_rbatch_drop_scratch(batch);
        np_rbatch_check(batch, 1);
    }

    for (i = 0; i < batch->count; ++i) {
        if ((batch->puts[i].state == NP_RPUT_LIVE) &&
            !np_rput_again(op, &batch->puts[i])) {
            return 1;
        }
    }
    if (batch->is_behind && (np_rbatch_other(batch)->op != NULL)) {
        np_rput_confirm(op->link);
        return 0; /* the other one's end says more */
    }
    np_rbatch_finish(batch);
    return 0;
}

void np_rput_posted_done(np_rop_t *op)
{
    op->batch->is_back = 1;
    np_rop_todo(op);
}

void np_rput_release(np_rop_t *op)
{
    np_rbatch_t *batch = op->batch;
    unsigned i;

    if (batch->op == NULL) {
        return; /* it was: its link is cancelled in a completion of that */
    }

    np_rbatch_close(batch);
    np_rbatch_drop_scratch(batch);
    for (i = 0; i < batch->count; ++i) {
        np_rput_set(op->link, &batch->puts[i], NP_RPUT_DONE);
    }
    batch->op = NULL;
}

void np_rput_lost(np_rop_t *op)
{
    np_rbatch_close(op->batch);
    np_rbatch_drop_scratch(op->batch);
    if (!op->batch->is_checked) {
        np_rbatch_check(op->batch, 0);
    }
}

void np_rput_cleanup(np_vlink_t *link)
{
    free(link->puts);
    link->puts = NULL;
}
