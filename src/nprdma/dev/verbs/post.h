/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Work requests of a connection: what messages and movers are made of.
 */

#ifndef NP_POST_H_
#define NP_POST_H_

#include "conn.h"

/** The device has refused one: it is as if it had never been posted */
void np_conn_refused(np_conn_t *conn, int error, const np_sq_entry_t *entry);

/** The port's work request, which is filled for each post: to clear a new one
 *  takes longer than all else */
static UCS_F_ALWAYS_INLINE struct ibv_send_wr *
np_conn_request(np_conn_t *conn, np_place_t from, size_t len,
                enum ibv_wr_opcode opcode, unsigned flags)
{
    np_vport_t *port = conn->port;

    port->sge.addr      = from.addr;
    port->sge.length    = len;
    port->wr.opcode     = opcode;
    port->wr.send_flags = flags;
    if (!(flags & IBV_SEND_INLINE)) {
        port->sge.lkey  = from.key;
    }
    return &port->wr;
}

/** @a flags, @a waiter, @a number: as in np_sq_entry_t */
static UCS_F_ALWAYS_INLINE void
np_conn_post(np_conn_t *conn, struct ibv_send_wr *wr, void *buffer,
             unsigned flags, void *waiter, uint32_t number)
{
    np_sq_entry_t *entry = &conn->sq[conn->sq_tail & conn->sq_mask];
    struct ibv_send_wr *bad;
    int ret;

    wr->wr_id     = ((uint64_t)conn->generation << 32) | conn->sq_tail;
    entry->buffer = buffer;
    entry->waiter = waiter;
    entry->number = number;
    entry->flags  = flags;
    ret           = ibv_post_send(conn->qp, wr, &bad);
    if (ucs_unlikely(ret != 0)) {
        np_conn_refused(conn, ret, entry);
        return;
    }

    ++conn->sq_tail;
    ++conn->port->posted;
    if (waiter != NULL) {
        ++conn->port->awaited;
    }
}

/** For tests: see np_vport_config_t::break_every. The queue pair fails when
 *  what is in work is done, see np_vport_break_due. */
static UCS_F_ALWAYS_INLINE void np_conn_count(np_conn_t *conn)
{
    if (ucs_unlikely(conn->port->config.break_every != 0) &&
        ((++conn->num_posted % conn->port->config.break_every) == 0)) {
        conn->break_due = 1;
        np_vport_look_next(conn->port);
    }
}

#endif
