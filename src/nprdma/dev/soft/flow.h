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

/** What soft0 does for the layers above */
extern const np_dev_ops_t np_soft_ops;

/** Progress of the links that have anything outstanding; returns how many have
 *  ended */
unsigned np_flow_progress(np_port_t *port);

/** Is there anything on its links that only the next progress would move? If
 *  not, their targets are woken for what they have not taken. */
int np_flow_has_work(np_port_t *port);

#endif
