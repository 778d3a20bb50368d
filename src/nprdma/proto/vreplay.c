/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What goes again over a link's next queue pair (design, section 4: recovery).
 * The target says how many messages it has taken. Messages behind that go
 * again, as they were; transfers that are not complete are asked for anew,
 * since the target has dropped its part of them; atomics that it has executed
 * are asked for their answer alone. All in the order in which they were first
 * sent.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vput.h"
#include "vremote.h"

#include "../pause.h"
#include "../work.h"

#include <stdlib.h>
#include <string.h>

/* A number that is not acknowledged before the replay is over */
#define NP_VREPLAY_LATER  (1u << 30)

typedef struct np_vreplay_item {
    uint32_t op;         /**< ask for this one, or 0 */
    uint32_t len;        /**< of bytes */
    void     *bytes;     /**< a message; allocated */
} np_vreplay_item_t;

/** Owner: its connection. */
struct np_vreplay {
    unsigned          count;
    unsigned          next;
    int               has_begun;
    uint32_t          later;    /**< stands for the last number, see above */
    np_vreplay_item_t items[];
};


void np_vreplay_drop(np_conn_t *conn)
{
    np_vreplay_t *replay = conn->replay;
    unsigned i;

    ucs_list_del(&conn->replaying);
    ucs_list_head_init(&conn->replaying);
    conn->replay = NULL;
    for (i = 0; (replay != NULL) && (i < replay->count); ++i) {
        free(replay->items[i].bytes);
    }
    free(replay);
}

void np_vreplay_lost(np_conn_t *conn)
{
    np_vop_t *op;

    ucs_list_del(&conn->replaying);
    ucs_list_head_init(&conn->replaying);
    if (conn->link == NULL) {
        return; /* closed: only messages are left */
    }

    conn->link->flight.gate |= NP_GATE_REPLAY;
    ucs_list_for_each(op, &conn->link->flight.ops, super.list) {
        if (op->super.kind == NP_OP_MOVE) {
            np_vmove_reset(op);
        } else if (op->super.kind == NP_OP_ONE) {
            np_vone_lost(op);
        } else if (op->super.kind == NP_OP_PUTS) {
            np_vput_lost(op);
        }
    }
    np_vremote_lost(conn->link);
}

/* A number of a message that will have another one */
static void np_vreplay_renumber(uint32_t *seq, uint32_t taken, uint32_t later)
{
    if ((int32_t)(*seq - taken) > 0) {
        *seq = later;
    }
}

static void np_vreplay_renumber_all(np_vlink_t *link, uint32_t taken,
                                    uint32_t later)
{
    np_op_t *flush;
    np_vop_t *op;

    if (link == NULL) {
        return;
    }

    np_vreplay_renumber(&link->flight.put, taken, later);
    ucs_list_for_each(flush, &link->flight.flushes, list) {
        np_vreplay_renumber(&flush->flush.put, taken, later);
    }
    ucs_list_for_each(op, &link->flight.ops, super.list) {
        if (op->super.kind == NP_OP_MOVE) {
            np_vreplay_renumber(&op->move.last_seq, taken, later);
        }
    }
}

static int np_vreplay_add_message(np_conn_t *conn, np_vreplay_t *replay,
                                  uint32_t seq)
{
    const np_vsent_t *sent  = &conn->sent[seq & conn->sent_mask];
    np_vreplay_item_t *item = &replay->items[replay->count];
    np_vop_t *op            = np_vop_find(conn, sent->op);

    if (op != NULL) {
        op->request_seq = replay->later; /* until it is asked for */
    }

    if ((sent->op == 0) && (sent->len == 0)) {
        return 1; /* of a transfer that begins anew */
    }

    *item = (np_vreplay_item_t){.op = sent->op, .len = sent->len};
    if (sent->op == 0) {
        item->bytes = malloc(sent->len);
        if (item->bytes == NULL) {
            return 0;
        }
        memcpy(item->bytes, np_conn_sent_bytes(conn, seq), sent->len);
    }
    ++replay->count;
    return 1;
}

/* Requests that were taken, but are not complete */
static void np_vreplay_add_taken(np_vlink_t *link, np_vreplay_t *replay,
                                 uint32_t taken)
{
    np_vop_t *op;

    ucs_list_for_each(op, &link->flight.ops, super.list) {
        if ((op->request.msg.kind == NP_VMSG_AM) ||
            ((int32_t)(op->request_seq - taken) > 0)) {
            continue;
        }

        if (op->super.kind == NP_OP_ATOMIC) {
            op->atomic.is_taken = 1;
        }
        op->request_seq                = replay->later;
        replay->items[replay->count++] = (np_vreplay_item_t){
            .op = op->super.name
        };
    }
}

/* What the last replay did not come to, the queue pair having failed again */
static void np_vreplay_add_rest(np_vreplay_t *replay, np_vreplay_t *last)
{
    for (; (last != NULL) && (last->next < last->count); ++last->next) {
        replay->items[replay->count++] = last->items[last->next];
        last->items[last->next].bytes  = NULL;
    }
}

/* What is to be done, in order. Returns 0: no memory. */
static int np_vreplay_make(np_conn_t *conn, uint32_t taken)
{
    np_vlink_t *link   = conn->link;
    np_vreplay_t *last = conn->replay, *replay;
    unsigned count     = NP_HAS_MUTANT +
                         ((link == NULL) ? 0 : link->flight.outstanding) +
                         (conn->tx_seq - taken) +
                         ((last == NULL) ? 0 : (last->count - last->next));
    uint32_t seq;

    replay = calloc(1, sizeof(*replay) + count * sizeof(*replay->items));
    if (replay == NULL) {
        return 0;
    }

    replay->later = taken + NP_VREPLAY_LATER;
    if (link != NULL) {
        np_vreplay_add_taken(link, replay, taken);
    }
    seq = taken + 1 - (NP_IS_MUTANT(REPLAY_TAKEN) && (taken > 0)) +
          (NP_IS_MUTANT(REPLAY_LOSES) && (taken < conn->tx_seq));
    for (; seq != (conn->tx_seq + 1); ++seq) {
        if (!np_vreplay_add_message(conn, replay, seq)) {
            conn->replay = replay;
            np_vreplay_drop(conn);
            conn->replay = last;
            return 0;
        }
    }

    np_vreplay_add_rest(replay, last);
    np_vreplay_drop(conn); /* the last one */
    conn->replay = replay;
    return 1;
}

void np_vreplay_begin(np_conn_t *conn, uint32_t taken)
{
    if ((taken - conn->tx_acked) > (conn->tx_seq - conn->tx_acked)) {
        np_error("a peer has taken messages that were not sent");
        np_conn_fail(conn, UCS_ERR_CONNECTION_RESET);
        return;
    }

    if (!np_vreplay_make(conn, taken)) {
        np_error("no memory to repeat %u messages", conn->tx_seq - taken);
        np_conn_fail(conn, UCS_ERR_NO_MEMORY);
        return;
    }

    if (taken != conn->tx_acked) {
        conn->replaced = 0; /* the last one was good for something */
    }

    np_vreplay_renumber_all(conn->link, taken, conn->replay->later);
    np_conn_acked(conn, conn->tx_seq);
    conn->tx_acked   = taken;
    conn->tx_seq     = taken;
    conn->tx_wanted  = taken;
    conn->tx_flagged = taken;
    ucs_list_add_tail(&conn->port->replaying, &conn->replaying);
}

/* Returns 0: no room */
static int np_vreplay_send_message(np_conn_t *conn, np_vreplay_item_t *item)
{
    np_vmsg_t *msg = item->bytes, *copy;

    msg->flags = 0;
    if (item->len <= conn->port->max_inline) {
        return np_conn_send_copied(conn, msg, item->len);
    }

    copy = np_conn_begin(conn, msg->kind);
    if (copy == NULL) {
        return 0;
    }

    memcpy(copy, msg, item->len);
    np_conn_send(conn, copy, item->len);
    return 1;
}

/* Returns 0: no room */
static int np_vreplay_ask(np_conn_t *conn, const np_vreplay_item_t *item)
{
    np_vop_t *op = np_vop_find(conn, item->op);
    np_vctl_t ctl;

    if (op == NULL) {
        return 1; /* it was cancelled */
    }

    if (op->super.status != UCS_OK) {
        /* nobody writes to it any more */
        np_op_finish(&op->super, op->super.status);
        return 1;
    }

    ctl = op->request;
    if ((op->super.kind == NP_OP_ATOMIC) && op->atomic.is_taken) {
        ctl.msg.flags |= NP_VMSG_AGAIN;
    }
    if (!np_conn_send_copied(conn, &ctl.msg, sizeof(ctl))) {
        return 0;
    }

    op->request_seq = conn->tx_seq;
    return 1;
}

/* All has gone again: what waits may begin */
static void np_vreplay_end(np_conn_t *conn)
{
    np_vlink_t *link = conn->link;
    uint32_t later   = conn->replay->later;
    np_vop_t *op, *next;

    np_vreplay_drop(conn);
    if (link == NULL) {
        np_conn_close(conn);
        return;
    }

    np_vreplay_renumber_all(link, later - 1, conn->tx_seq);
    link->flight.gate &= ~NP_GATE_REPLAY;
    np_conn_owe_ack(conn);
    ucs_list_for_each_safe(op, next, &link->flight.ops, super.list) {
        if (op->super.kind == NP_OP_MOVE) {
            np_vmove_begin(op);
        } else if ((op->super.kind == NP_OP_ONE) ||
                   (op->super.kind == NP_OP_PUTS)) {
            np_vop_todo(op);
        }
    }
}

/* Returns how much was done */
static unsigned np_vreplay_one(ucs_list_link_t *replaying)
{
    np_conn_t *conn      = ucs_container_of(replaying, np_conn_t, replaying);
    np_vreplay_t *replay = conn->replay;
    np_vreplay_item_t *item;
    unsigned count = 0;

    if (!replay->has_begun) {
        replay->has_begun = 1;
        if (conn->link != NULL) {
            np_vlink_acked(conn->link); /* by the target's word */
        }
    }

    /* each step may end the connection, or tell the user, who does */
    while ((conn->replay == replay) && (replay->next < replay->count)) {
        item = &replay->items[replay->next];
        if (!np_conn_has_room(conn) || !np_conn_has_credit(conn) ||
            !((item->op != 0) ? np_vreplay_ask(conn, item) :
              np_vreplay_send_message(conn, item))) {
            return count;
        }
        if (conn->replay == replay) {
            ++replay->next;
        }
        ++count;
    }

    if (conn->replay == replay) {
        np_vreplay_end(conn);
    }
    return count + 1;
}

unsigned np_vreplay_progress(np_vport_t *port)
{
    return np_work(&port->replaying, np_vreplay_one);
}
