/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What becomes of operations when their link's queue pair has failed (design,
 * section 4: recovery). The target has dropped its part of transfers: they are
 * asked for anew. Atomics that it has executed are asked for their answer
 * alone. The device sends messages again, and has all go in order
 * (dev/verbs/replay.h).
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vput.h"


void np_vreplay_lost(np_vlink_t *link)
{
    np_vop_t *op;

    link->flight.gate |= NP_GATE_REPLAY;
    ucs_list_for_each(op, &link->flight.ops, super.list) {
        if (op->super.kind == NP_OP_ONE) {
            np_vone_lost(op);
        } else if (op->super.kind == NP_OP_PUTS) {
            np_vput_lost(op);
        }
    }
}

void np_vreplay_renumber(np_vlink_t *link, uint32_t taken, uint32_t seq)
{
    np_op_t *flush;

    np_conn_renumber(&link->flight.put, taken, seq);
    ucs_list_for_each(flush, &link->flight.flushes, list) {
        np_conn_renumber(&flush->flush.put, taken, seq);
    }
}

/* What it has asked for; NULL: nothing */
static np_asked_t *np_vreplay_asked(np_vop_t *op)
{
    switch (op->super.kind) {
    case NP_OP_MOVE:
        return (op->stream.asked.ctl.msg.kind == NP_VMSG_AM) ? NULL :
               &op->stream.asked;
    case NP_OP_UNPACK:
        return &op->unpack.asked;
    case NP_OP_ATOMIC:
        return &op->atomic.asked;
    default:
        return NULL;
    }
}

void np_vreplay_taken(np_vlink_t *link, uint32_t taken, uint32_t later,
                      np_replay_t *replay)
{
    np_asked_t *asked;
    np_vop_t *op;

    ucs_list_for_each(op, &link->flight.ops, super.list) {
        asked = np_vreplay_asked(op);
        if (asked == NULL) {
            continue;
        }

        if ((int32_t)(asked->seq - taken) <= 0) {
            if (op->super.kind == NP_OP_ATOMIC) {
                /* executed: only its answer is missing */
                asked->ctl.msg.flags |= NP_VMSG_AGAIN;
            }
            np_replay_ask(replay, op->super.name);
        }
        asked->seq = later;
    }
}

int np_vreplay_ask(np_conn_t *conn, uint32_t name)
{
    np_vop_t *op = np_vop_find(conn, name);

    return (op == NULL) || /* it was cancelled */
           ((op->super.kind == NP_OP_MOVE) ?
            np_stream_ask_again(&op->stream) :
            np_conn_ask(conn, np_vreplay_asked(op)));
}

void np_vreplay_resumed(np_vlink_t *link)
{
    np_vop_t *op, *next;

    link->flight.gate &= ~NP_GATE_REPLAY;
    ucs_list_for_each_safe(op, next, &link->flight.ops, super.list) {
        if ((op->super.kind == NP_OP_ONE) || (op->super.kind == NP_OP_PUTS)) {
            np_vop_todo(op);
        }
    }
}
