/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What goes again over a link's next queue pair (design, section 4: recovery).
 * The target says how many messages it has taken. Messages after that go again,
 * as they were. What a message that it has taken asked for, and is not
 * answered, is asked for again; of an atomic, which it has executed, its answer
 * alone. All in the order in which they were first sent, and what had been
 * taken first.
 */

#ifndef NP_REPLAY_H_
#define NP_REPLAY_H_

#include "conn.h"

/** A link has another queue pair; the target has taken @a taken messages. Any
 *  turn. */
void np_replay_begin(np_conn_t *conn, uint32_t taken);

/** The queue pair has failed again: what is left waits for the next one */
void np_replay_pause(np_conn_t *conn);

/** Send again what there is room for; returns how much. Owner's turn. */
unsigned np_replay_progress(np_vport_t *port);

/** Forget what was to be sent again */
void np_replay_drop(np_conn_t *conn);

#endif
