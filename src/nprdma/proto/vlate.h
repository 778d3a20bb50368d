/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What comes over a connection is handled at once; by a service thread, if it
 * is not for the owner alone. Here are those that cannot be, since memory that
 * they are about is not there now: the first one is tried again when that has
 * been brought in (bring.h), or in each turn. What comes later over the same
 * connection waits behind them: so the order of its messages stays as it is,
 * and none of them counts as taken (np_conn_t::rx_seq) before it is handled.
 * Should the queue pair fail, they are dropped here, and the link sends them
 * again.
 */

#ifndef NP_VLATE_H_
#define NP_VLATE_H_

#include "../dev/verbs/conn.h"

/** Does a message of it wait? */
static UCS_F_ALWAYS_INLINE int np_vlate_any(const np_conn_t *conn)
{
    return ucs_unlikely(!ucs_queue_is_empty(&conn->late));
}

/** np_vport_ops_t::arrived */
int np_vlate_arrived(np_conn_t *conn, const struct ibv_wc *wc, void *data);

/** np_vport_ops_t::resume */
void np_vlate_resume(np_conn_t *conn, const struct ibv_wc *wc, void *data);

/** Try again what waits; returns how much was handled. Any turn. */
unsigned np_vlate_progress(np_vport_t *port);

/** Forget what waits: it was not taken */
void np_vlate_drop(np_conn_t *conn);

#endif
