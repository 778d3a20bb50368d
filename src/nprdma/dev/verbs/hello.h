/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The handshake: datagrams that make a queue pair known to the other side.
 * Requests are repeated until they are answered; a repeated request is answered
 * as the first was.
 */

#ifndef NP_HELLO_H_
#define NP_HELLO_H_

#include "conn.h"

/** A key that all ports share: what protects a port is its cookie */
#define NP_HELLO_QKEY  0x4e505244u

/** Ask for a connection's new queue pair; repeated by np_hello_progress */
void np_hello_again(np_conn_t *conn);

/** Tell the link that its queue pair has failed here, or that the port closes.
 *  May get lost. */
void np_hello_reset(np_conn_t *conn);
void np_hello_gone(np_conn_t *conn);

/** A datagram has come */
void np_hello_received(np_vport_t *port, const void *data, size_t len);

/** The oldest datagram that we have sent is on its way */
void np_hello_sent(np_vport_t *port);

/** Repeat what was not answered, give up what was not for too long */
void np_hello_progress(np_vport_t *port);

#endif
