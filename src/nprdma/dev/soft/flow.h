/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The flow of a link's operations through its rings: what may start, what has
 * ended, and what is done about both in progress.
 */

#ifndef NP_SOFT_FLOW_H_
#define NP_SOFT_FLOW_H_

#include "carry.h"
#include "mail.h"

/** np_flight_ops_t::connect */
ucs_status_t np_flow_connect(np_flight_t *flight);

/** np_flight_ops_t::has_room */
int np_flow_has_room(np_flight_t *flight);

/** Nothing that is outstanding on a link moves after this, but for copies that
 *  are shared; in a forked child it goes on for its parent. No upcall tells of
 *  its end. */
void np_flow_stop(np_link_t *link);

/** Progress of the links that have anything outstanding; returns how many have
 *  ended */
unsigned np_flow_progress(np_port_t *port);

/** Is there anything on its links that only the next progress would move? If
 *  not, their targets are woken for what they have not taken. */
int np_flow_has_work(np_port_t *port);

#endif
