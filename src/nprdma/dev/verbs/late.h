/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What comes over a connection is handled at once; by a service thread, if it
 * is not for the owner alone. Here are those that cannot be, since memory that
 * they are about is not there now: the first one is tried again when that has
 * been brought in (bring.h), or in each turn. What comes later over the same
 * connection waits until they are done: so the order of its messages stays as
 * it is, and none of them counts as taken (np_conn_t::rx_seq) before it is
 * handled. If the queue pair fails, they are dropped here, and the link sends
 * them again.
 */

#ifndef NP_LATE_H_
#define NP_LATE_H_

#include "conn.h"

/** A message has come, or a write with immediate; @a data is gone afterwards.
 *  Returns 1 in a service thread's turn if the owner must handle it: it is
 *  kept, and handed over in the owner's next progress (np_late_resume). */
int np_late_arrived(np_conn_t *conn, const struct ibv_wc *wc, void *data);
void np_late_resume(np_conn_t *conn, const struct ibv_wc *wc, void *data);

/** Try again what waits; returns how much was handled. Any turn. */
unsigned np_late_progress(np_vport_t *port);

/** Forget what waits: it was not taken */
void np_late_drop(np_conn_t *conn);

#endif
