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
        if (op->super.kind == NP_OP_MOVE) {
            np_vmove_reset(op);
        } else if (op->super.kind == NP_OP_ONE) {
            np_vone_lost(op);
        } else if (op->super.kind == NP_OP_PUTS) {
            np_vput_lost(op);
        }
    }
}

/* A number of a message that has another one now */
static void np_vreplay_number(uint32_t *number, uint32_t taken, uint32_t seq)
{
    if ((int32_t)(*number - taken) > 0) {
        *number = seq;
    }
}

void np_vreplay_renumber(np_vlink_t *link, uint32_t taken, uint32_t seq)
{
    np_op_t *flush;
    np_vop_t *op;

    np_vreplay_number(&link->flight.put, taken, seq);
    ucs_list_for_each(flush, &link->flight.flushes, list) {
        np_vreplay_number(&flush->flush.put, taken, seq);
    }
    ucs_list_for_each(op, &link->flight.ops, super.list) {
        if (op->super.kind == NP_OP_MOVE) {
            np_vreplay_number(&op->move.last_seq, taken, seq);
        }
    }
}

void np_vreplay_taken(np_vlink_t *link, uint32_t taken, uint32_t later,
                      np_replay_t *replay)
{
    np_vop_t *op;

    ucs_list_for_each(op, &link->flight.ops, super.list) {
        if (op->request.msg.kind == NP_VMSG_AM) {
            continue; /* nothing was asked */
        }

        if ((int32_t)(op->request_seq - taken) <= 0) {
            if (op->super.kind == NP_OP_ATOMIC) {
                op->atomic.is_taken = 1;
            }
            np_replay_ask(replay, op->super.name);
        }
        op->request_seq = later;
    }
}

int np_vreplay_ask(np_conn_t *conn, uint32_t name)
{
    np_vop_t *op = np_vop_find(conn, name);
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

void np_vreplay_resumed(np_vlink_t *link)
{
    np_vop_t *op, *next;

    link->flight.gate &= ~NP_GATE_REPLAY;
    ucs_list_for_each_safe(op, next, &link->flight.ops, super.list) {
        if (op->super.kind == NP_OP_MOVE) {
            np_vmove_begin(op);
        } else if ((op->super.kind == NP_OP_ONE) ||
                   (op->super.kind == NP_OP_PUTS)) {
            np_vop_todo(op);
        }
    }
}
