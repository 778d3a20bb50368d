/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Small puts that are confirmed together. Each is an inline Write into the
 * target's write view, posted at once; the Read of the target's entries behind
 * them is posted when somebody waits for it, when there are many, or soon.
 * Until it is back their bytes stay here. What was not there goes again, as a
 * message.
 *
 * The places of two are the same or have no byte in common: of one place only
 * the last put counts, so nothing older is ever written over it. Other
 * transfers of the same memory wait (np_vlink_t::overlap).
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vput.h"

#include "judge.h"
#include "order.h"

#include "../clock.h"

#include <stdlib.h>
#include <string.h>

/* Progress calls for which a put may stay without its Read: what the target's
 * black-hole page has swallowed is seen that much later by who polls for it. In
 * a program that is seldom in progress: until the kernel's next tick. */
#define NP_VPUT_TICKS  1024

/* Writes before one Read, unless the send queue is small */
#define NP_VPUT_WRITES 64u

/* The entries of a batch fit a buffer */
#define NP_VPUT_PAGES  (NP_VSEG_SIZE / sizeof(uint32_t))

typedef enum np_vput_state {
    NP_VPUT_DONE,
    NP_VPUT_LIVE,
    NP_VPUT_REPLACED          /* the other batch has a later put of its place */
} np_vput_state_t;

typedef struct np_vput {
    np_interval_t   interval; /**< of the remote side; LIVE: in the table */
    unsigned        len;
    np_vput_state_t state;
    np_entries_t    entry;    /**< of its page, before */
    uint8_t         data[NP_VPUT_SIZE];
} np_vput_t;

/** Those that one Read confirms. Owner: its link. */
typedef struct np_vbatch {
    np_vop_t     *op;         /**< NULL: not in use */
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
    int          is_checked;  /**< or will not be: what is LIVE goes again */
    int          is_behind;   /**< complete only when the other batch is, as
                                   that has replaced what was not there */
    np_vput_t    puts[NP_VPUT_COUNT];
} np_vbatch_t;

/** Owner: its link. One batch grows while the other is being confirmed. */
struct np_vputs {
    ucs_list_link_t list;     /**< of port->open_puts, or alone */
    np_vlink_t      *link;
    np_vbatch_t     *open;    /**< may grow; NULL: none */
    np_vbatch_t     batches[2];
};


static uint64_t np_vput_page(uint64_t addr)
{
    return addr & ~(NP_PAGE_SIZE - 1);
}

static void
np_vput_set(np_vlink_t *link, np_vput_t *put, np_vput_state_t state)
{
    if (put->state == NP_VPUT_LIVE) {
        np_overlap_remove(&link->flight.overlap, &put->interval);
    }
    put->state = state;
}

/* Nothing is added to it any more */
static void np_vbatch_close(np_vbatch_t *batch)
{
    struct np_vputs *puts = batch->op->link->puts;

    if (puts->open == batch) {
        puts->open = NULL;
        ucs_list_del(&puts->list);
        ucs_list_head_init(&puts->list);
    }
}

static np_vbatch_t *np_vbatch_other(const np_vbatch_t *batch)
{
    struct np_vputs *puts = batch->op->link->puts;

    return &puts->batches[batch == &puts->batches[0]];
}

static void np_vbatch_drop_scratch(np_vbatch_t *batch)
{
    if (batch->scratch != NULL) {
        np_vport_buffer_put(batch->op->port, batch->scratch);
        batch->scratch = NULL;
    }
}

/* Is there an older one, whose Read must be posted first? */
static int np_vbatch_is_second(const np_vbatch_t *batch)
{
    const np_vbatch_t *other = np_vbatch_other(batch);

    return (other->op != NULL) && !other->is_posted && !other->is_checked &&
           (other->op->super.sequence < batch->op->super.sequence);
}

/* Post its Read; returns 0: no room */
static int np_vbatch_look(np_vbatch_t *batch)
{
    np_vop_t *op = batch->op;

    if (!np_conn_has_rooms(op->conn, 1) || (op->conn->replay != NULL) ||
        np_vbatch_is_second(batch)) {
        return 0;
    }

    batch->is_posted = 1;
    np_vremote_look(batch->remote, batch->first,
                    batch->last + 1 - batch->first, batch->scratch, op, 0);
    return 1;
}

static void np_vbatch_confirm(np_vbatch_t *batch)
{
    np_vbatch_close(batch);
    if (!np_vbatch_look(batch)) {
        np_vop_todo(batch->op);
    }
}

void np_vput_confirm(np_vlink_t *link)
{
    if ((link->puts != NULL) && (link->puts->open != NULL)) {
        np_vbatch_confirm(link->puts->open);
    }
}

void np_vput_confirm_all(np_vport_t *port)
{
    struct np_vputs *puts, *next;

    ucs_list_for_each_safe(puts, next, &port->open_puts, list) {
        np_vput_confirm(puts->link);
    }
}

void np_vput_age(np_vport_t *port, unsigned ticks)
{
    struct np_vputs *puts, *next;
    const uint64_t now = np_clock_coarse();

    ucs_list_for_each_safe(puts, next, &port->open_puts, list) {
        if (((ticks - puts->open->ticks) >= NP_VPUT_TICKS) ||
            (puts->open->tick != now)) {
            np_vput_confirm(puts->link);
        }
    }
}

/* The put of just this place that is not confirmed yet, or NULL */
static np_vput_t *np_vput_find(np_vlink_t *link, uint64_t addr, size_t len)
{
    np_vbatch_t *batch;
    unsigned i, k;

    for (i = 0; (link->puts != NULL) && (i < 2); ++i) {
        batch = &link->puts->batches[i];
        if ((batch->op == NULL) || batch->is_checked) {
            continue; /* what goes again is waited for */
        }
        for (k = 0; k < batch->count; ++k) {
            if ((batch->puts[k].state == NP_VPUT_LIVE) &&
                (batch->puts[k].len == len) &&
                (batch->puts[k].interval.first == addr)) {
                return &batch->puts[k];
            }
        }
    }
    return NULL;
}

/* May it begin beside what is in flight? One of just its place is no reason to
 * wait: @a last_p. */
static int np_vput_may_begin(np_vlink_t *link, uint64_t addr, size_t len,
                             np_vput_t **last_p)
{
    *last_p = NULL;
    if ((link->flight.outstanding == 0) ||
        !np_order_waits(&link->flight.overlap, addr, len, 1)) {
        return 1;
    }

    if (np_order_now() == NP_ORDER_OVERLAP) {
        *last_p = np_vput_find(link, addr, len);
    }
    return *last_p != NULL;
}

/* Has it a place for one more, in this page? */
static int np_vbatch_has_place(const np_vbatch_t *batch,
                               const np_vremote_t *remote, uint64_t page)
{
    uint64_t first = ucs_min(batch->first, page);
    uint64_t last  = ucs_max(batch->last, page);

    return (batch->remote == remote) && (batch->count < NP_VPUT_COUNT) &&
           (((last - first) >> NP_PAGE_SHIFT) < NP_VPUT_PAGES);
}

/* UCS_ERR_NO_RESOURCE: others first; UCS_ERR_UNSUPPORTED: there is none to be
 * had */
static ucs_status_t
np_vbatch_begin(np_vlink_t *link, np_vremote_t *remote, uint64_t page,
                np_vbatch_t **batch_p)
{
    struct np_vputs *puts = link->puts;
    np_vbatch_t *batch    = (puts->batches[0].op == NULL) ? &puts->batches[0] :
                            &puts->batches[1];
    void *scratch;
    np_vop_t *op;

    if (batch->op != NULL) {
        return np_flight_refuse(&link->flight);
    }

    scratch = np_vport_buffer_get(link->port);
    if (scratch == NULL) {
        return UCS_ERR_NO_RESOURCE;
    }

    op = np_vop_get(link->port, NP_OP_PUTS, NULL);
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
    np_vop_post(link, op);
    *batch_p = batch;
    return UCS_OK;
}

/* The one that takes a put in this page; else as np_vbatch_begin() */
static ucs_status_t np_vput_batch(np_vlink_t *link, np_vremote_t *remote,
                                  uint64_t page, np_vbatch_t **batch_p)
{
    *batch_p = link->puts->open;
    if ((*batch_p != NULL) && np_vbatch_has_place(*batch_p, remote, page)) {
        return UCS_OK;
    }

    np_vput_confirm(link);
    return np_vbatch_begin(link, remote, page, batch_p);
}

static int np_vput_init(np_vlink_t *link)
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

void np_vput_by_message(np_vlink_t *link, uint64_t addr, size_t len)
{
    if (np_vlink_has_acked(link, link->flight.put)) {
        link->put_first = addr;
        link->put_end   = addr + len;
    } else {
        link->put_first = ucs_min(link->put_first, addr);
        link->put_end   = ucs_max(link->put_end, addr + len);
    }
}

int np_vput_is_unacked(np_vlink_t *link)
{
    if (ucs_likely(np_vlink_has_acked(link, link->flight.put))) {
        link->is_overtaking = 0;
        return 0;
    }

    np_flight_hurry(&link->flight);
    return 1;
}

int np_vput_is_overtaken(np_vlink_t *link, uint64_t addr, size_t len)
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
         ((addr >= link->put_end) || ((addr + len) <= link->put_first)))) {
        return 0;
    }

    link->is_overtaking = np_vput_is_unacked(link);
    NP_STATS_ADD(link->port->flights.stats, order_waits, link->is_overtaking);
    return link->is_overtaking;
}

/* Its place in the open batch, where an older one may be */
static np_vput_t *np_vput_place(np_vlink_t *link, np_vbatch_t *batch,
                                np_vput_t *last, uint64_t addr, size_t len)
{
    np_vput_t *put = &batch->puts[batch->count];

    if ((last >= batch->puts) && (last < put)) {
        return last;
    }

    if (last != NULL) {
        np_vput_set(link, last, NP_VPUT_REPLACED);
    }
    ++batch->count;
    put->len   = len;
    put->state = NP_VPUT_LIVE;
    np_overlap_add(&link->flight.overlap, &put->interval, addr, len, 1);
    batch->first = ucs_min(batch->first, np_vput_page(addr));
    batch->last  = ucs_max(batch->last, np_vput_page(addr));
    return put;
}

ucs_status_t np_vput_post(np_vlink_t *link, const void *data, size_t len,
                          uint64_t addr)
{
    np_vport_t *port = link->port;
    np_vput_t *put, *last;
    np_vremote_t *remote;
    np_vbatch_t *batch;
    ucs_status_t status;
    np_entries_t entry;

    if ((len <= port->config.put_once) || (len > NP_VPUT_SIZE) ||
        (len > port->max_inline) ||
        (np_vput_page(addr) != np_vput_page(addr + len - 1))) {
        return UCS_ERR_UNSUPPORTED;
    }

    remote = np_vremote_get(link, addr, len);
    if (remote == NULL) {
        return UCS_ERR_UNSUPPORTED;
    }

    entry = np_vremote_entries(remote, addr, len);
    if (!np_entries_have(&entry, NP_ENTRY_WRITE) || !np_vput_init(link)) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (np_vput_is_overtaken(link, addr, len)) {
        return UCS_ERR_NO_RESOURCE;
    }

    if (!np_vput_may_begin(link, addr, len, &last)) {
        NP_STATS_INC(port->flights.stats, order_waits);
        np_vput_confirm(link);
        return np_flight_refuse(&link->flight);
    }

    if (!np_conn_has_rooms(link->conn, NP_VLINK_ROOMS)) {
        return UCS_ERR_NO_RESOURCE;
    }

    status = np_vput_batch(link, remote, np_vput_page(addr), &batch);
    if (status != UCS_OK) {
        return status;
    }

    put        = np_vput_place(link, batch, last, addr, len);
    put->entry = entry;
    memcpy(put->data, data, len);
    np_conn_write(link->conn, (np_place_t){.addr = (uintptr_t)put->data},
                  np_vremote_place(remote, addr, 1), len);
    if (++batch->writes >=
        ucs_min(NP_VPUT_WRITES, link->conn->sq_mask / 2)) {
        np_vbatch_confirm(batch);
    }
    return UCS_OK;
}

/* Has its page been there all the time? */
static int np_vput_is_right(const np_vbatch_t *batch, const np_vput_t *put)
{
    const np_entries_t now = np_vremote_entries(
            batch->remote, put->interval.first, put->len);

    return np_judge_theirs(NP_DIR_PUT, &put->entry, &now);
}

/* Those of which that is so are complete; without entries, none */
static void np_vbatch_check(np_vbatch_t *batch, int has_entries)
{
    np_stats_t *stats = batch->op->port->flights.stats;
    np_vput_t *put;
    unsigned i;

    batch->is_checked = 1;
    for (i = 0; i < batch->count; ++i) {
        put = &batch->puts[i];
        if (has_entries && np_vput_is_right(batch, put)) {
            np_vput_set(batch->op->link, put, NP_VPUT_DONE);
            np_stats_moved(stats, NP_DIR_PUT, put->len);
        } else if (put->state == NP_VPUT_REPLACED) {
            batch->is_behind = !NP_IS_MUTANT(BATCH_COUNTS_OLDER);
        }
    }
}

/* The operation whose flushes wait for what goes again */
static np_vop_t *np_vbatch_first(const np_vbatch_t *batch)
{
    const np_vbatch_t *other = np_vbatch_other(batch);

    return ((other->op != NULL) && other->is_behind) ? other->op : batch->op;
}

/* As a message; returns 0: no room */
static int np_vput_again(np_vop_t *op, np_vput_t *put)
{
    np_vop_t *first  = np_vbatch_first(op->batch);
    np_vlink_t *link = op->link;
    np_vctl_t *ctl   = (np_vctl_t*)np_conn_begin(op->conn, NP_VMSG_PUT);
    np_vop_t *again;

    if (ctl == NULL) {
        return 0;
    }

    again = np_vop_get(op->port, NP_OP_ONE, NULL);
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
    np_vop_post(link, again);
    again->super.sequence = first->super.sequence;
    ucs_list_del(&again->super.list);
    ucs_list_insert_after(&first->super.list, &again->super.list);
    np_vput_set(link, put, NP_VPUT_DONE);
    np_op_order(&link->flight, &again->super, again->one.remote,
                again->one.len, 1);
    if (np_vone_run(again)) {
        np_vop_todo(again);
    }
    return 1;
}

static void np_vbatch_finish(np_vbatch_t *batch)
{
    np_vbatch_t *other = np_vbatch_other(batch);
    np_vop_t *op       = batch->op;

    if ((other->op != NULL) && other->is_behind) {
        other->is_behind = 0;
        np_vop_todo(other->op);
    }
    np_vput_release(op);
    np_op_finish(&op->super, UCS_OK);
}

int np_vput_run(np_vop_t *op)
{
    np_vbatch_t *batch = op->batch;
    unsigned i;

    if (!batch->is_checked) {
        if (!batch->is_posted) {
            return !np_vbatch_look(batch);
        }
        if (!batch->is_back) {
            return 0;
        }
        np_vremote_learn(batch->remote, batch->first,
                         batch->last + 1 - batch->first, batch->scratch);
        np_vbatch_drop_scratch(batch);
        np_vbatch_check(batch, 1);
    }

    for (i = 0; i < batch->count; ++i) {
        if ((batch->puts[i].state == NP_VPUT_LIVE) &&
            !np_vput_again(op, &batch->puts[i])) {
            return 1;
        }
    }
    if (batch->is_behind && (np_vbatch_other(batch)->op != NULL)) {
        np_vput_confirm(op->link);
        return 0; /* the other one's end says more */
    }
    np_vbatch_finish(batch);
    return 0;
}

void np_vput_posted_done(np_vop_t *op)
{
    op->batch->is_back = 1;
    np_vop_todo(op);
}

void np_vput_release(np_vop_t *op)
{
    np_vbatch_t *batch = op->batch;
    unsigned i;

    if (batch->op == NULL) {
        return; /* it was: its link is cancelled in a completion of that */
    }

    np_vbatch_close(batch);
    np_vbatch_drop_scratch(batch);
    for (i = 0; i < batch->count; ++i) {
        np_vput_set(op->link, &batch->puts[i], NP_VPUT_DONE);
    }
    batch->op = NULL;
}

void np_vput_lost(np_vop_t *op)
{
    np_vbatch_close(op->batch);
    np_vbatch_drop_scratch(op->batch);
    if (!op->batch->is_checked) {
        np_vbatch_check(op->batch, 0);
    }
}

void np_vput_cleanup(np_vlink_t *link)
{
    free(link->puts);
    link->puts = NULL;
}
