/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What goes again over a link's next queue pair.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "replay.h"

#include "stream.h"

#include "../../pause.h"
#include "../../work.h"

#include <stdlib.h>
#include <string.h>

/* A number that is not acknowledged before the replay is over */
#define NP_REPLAY_LATER  (1u << 30)

typedef struct np_replay_item {
    uint32_t op;         /* ask for that of this name, or 0 */
    uint32_t len;        /* of bytes */
    void     *bytes;     /* a message; allocated */
} np_replay_item_t;

/* Owner: its connection. */
struct np_replay {
    unsigned         count;
    unsigned         next;
    int              has_begun;
    uint32_t         later;    /* stands for the last number, see above */
    np_replay_item_t items[];
};


void np_replay_pause(np_conn_t *conn)
{
    ucs_list_del(&conn->replaying);
    ucs_list_head_init(&conn->replaying);
}

void np_replay_drop(np_conn_t *conn)
{
    np_replay_t *replay = conn->replay;
    unsigned i;

    np_replay_pause(conn);
    conn->replay = NULL;
    for (i = 0; (replay != NULL) && (i < replay->count); ++i) {
        free(replay->items[i].bytes);
    }
    free(replay);
}

/* What was asked for by a message that the target has taken is asked for again.
 * The rest is, too, as its messages go again; their numbers will be later than
 * any that is known now. */
static void np_replay_add_asks(np_conn_t *conn, np_replay_t *replay,
                               uint32_t taken)
{
    np_asked_t *asked;

    ucs_list_for_each(asked, &conn->asks, list) {
        if ((int32_t)(asked->seq - taken) <= 0) {
            if (asked->ctl.msg.kind == NP_VMSG_ATOMIC) {
                /* executed: only its answer is missing */
                asked->ctl.msg.flags |= NP_VMSG_AGAIN;
            }
            replay->items[replay->count++] = (np_replay_item_t){
                .op = asked->ctl.body.op
            };
        }
        asked->seq = replay->later;
    }
}

static int
np_replay_add_message(np_conn_t *conn, np_replay_t *replay, uint32_t seq)
{
    const np_vsent_t *sent = &conn->sent[seq & conn->sent_mask];
    np_replay_item_t *item = &replay->items[replay->count];

    if ((sent->op == 0) && (sent->len == 0)) {
        return 1; /* of a transfer that begins anew */
    }

    *item = (np_replay_item_t){.op = sent->op, .len = sent->len};
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

/* What the last replay did not come to, since the queue pair has failed
 * again */
static void np_replay_add_rest(np_replay_t *replay, np_replay_t *last)
{
    for (; (last != NULL) && (last->next < last->count); ++last->next) {
        replay->items[replay->count++] = last->items[last->next];
        last->items[last->next].bytes  = NULL;
    }
}

/* What is to be done, in order. Returns 0: no memory. */
static int np_replay_make(np_conn_t *conn, uint32_t taken)
{
    np_replay_t *last = conn->replay, *replay;
    unsigned count    = NP_HAS_MUTANT + ucs_list_length(&conn->asks) +
                        (conn->tx_seq - taken) +
                        ((last == NULL) ? 0 : (last->count - last->next));
    uint32_t seq;

    replay = calloc(1, sizeof(*replay) + count * sizeof(*replay->items));
    if (replay == NULL) {
        return 0;
    }

    replay->later = taken + NP_REPLAY_LATER;
    np_replay_add_asks(conn, replay, taken);
    seq = taken + 1 - (NP_IS_MUTANT(REPLAY_TAKEN) && (taken > 0)) +
          (NP_IS_MUTANT(REPLAY_LOSES) && (taken < conn->tx_seq));
    for (; seq != (conn->tx_seq + 1); ++seq) {
        if (!np_replay_add_message(conn, replay, seq)) {
            conn->replay = replay;
            np_replay_drop(conn);
            conn->replay = last;
            return 0;
        }
    }

    np_replay_add_rest(replay, last);
    np_replay_drop(conn); /* the last one */
    conn->replay = replay;
    return 1;
}

void np_replay_begin(np_conn_t *conn, uint32_t taken)
{
    if ((taken - conn->tx_acked) > (conn->tx_seq - conn->tx_acked)) {
        np_error("a peer has taken messages that were not sent");
        np_conn_fail(conn, UCS_ERR_CONNECTION_RESET);
        return;
    }

    if (!np_replay_make(conn, taken)) {
        np_error("no memory to repeat %u messages", conn->tx_seq - taken);
        np_conn_fail(conn, UCS_ERR_NO_MEMORY);
        return;
    }

    if (taken != conn->tx_acked) {
        conn->replaced = 0; /* the last one was good for something */
    }

    np_streams_renumber(conn, taken, conn->replay->later);
    if (conn->link != NULL) {
        conn->port->ops->renumber(conn->link, taken, conn->replay->later);
    }
    np_conn_acked(conn, conn->tx_seq);
    conn->tx_acked   = taken;
    conn->tx_seq     = taken;
    conn->tx_wanted  = taken;
    conn->tx_flagged = taken;
    ucs_list_add_tail(&conn->port->replaying, &conn->replaying);
}

/* As np_replay_send */
static int np_replay_ask(np_conn_t *conn, uint32_t name)
{
    np_asked_t *asked = np_ask_find(conn, name);

    return (asked == NULL) || /* it was cancelled */
           (asked->is_stream ? np_stream_ask_again(asked) :
            np_conn_ask_again(conn, asked));
}

/* Returns 0: no room */
static int np_replay_send(np_conn_t *conn, np_replay_item_t *item)
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

/* All has gone again: what waits may begin */
static void np_replay_end(np_conn_t *conn)
{
    uint32_t later = conn->replay->later;

    np_replay_drop(conn);
    if (conn->link == NULL) {
        np_conn_close(conn);
        return;
    }

    np_streams_renumber(conn, later - 1, conn->tx_seq);
    conn->port->ops->renumber(conn->link, later - 1, conn->tx_seq);
    np_conn_owe_ack(conn);
    np_streams_resumed(conn);
    conn->port->ops->resumed(conn->link);
}

/* Returns how much was done */
static unsigned np_replay_one(ucs_list_link_t *replaying)
{
    np_conn_t *conn     = ucs_container_of(replaying, np_conn_t, replaying);
    np_replay_t *replay = conn->replay;
    np_replay_item_t *item;
    unsigned count = 0;

    if (!replay->has_begun) {
        replay->has_begun = 1;
        np_streams_acked(conn); /* by the target's word */
        if (conn->link != NULL) {
            conn->port->ops->acked(conn->link);
        }
    }

    /* each step may end the connection, or tell the user, which may end it */
    while ((conn->replay == replay) && (replay->next < replay->count)) {
        item = &replay->items[replay->next];
        if (!np_conn_has_room(conn) || !np_conn_has_credit(conn) ||
            !((item->op != 0) ? np_replay_ask(conn, item->op) :
              np_replay_send(conn, item))) {
            return count;
        }
        if (conn->replay == replay) {
            ++replay->next;
        }
        ++count;
    }

    if (conn->replay == replay) {
        np_replay_end(conn);
    }
    return count + 1;
}

unsigned np_replay_progress(np_vport_t *port)
{
    return np_work(&port->replaying, np_replay_one);
}
