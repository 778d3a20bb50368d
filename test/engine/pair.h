/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ports of this process, and a link between them. No service thread looks
 * at them: what happens is what a test calls for. */

#ifndef NPRDMA_TEST_PAIR_H_
#define NPRDMA_TEST_PAIR_H_

#include "nprdma/dev/soft/link.h"
#include "nprdma/dev/soft/peer.h"

#define PROGRESS_MAX 100000
#define PAIR_SLOTS   8

/* Both have talked */
typedef struct pair {
    np_port_t *target;
    np_port_t *initiator;
    np_link_t link;
    np_peer_t *peer;
} pair_t;

/* Messages that pair_progress has taken since this was set to 0 */
extern unsigned pair_received;

void pair_open(const char *name, pair_t *pair);

void pair_close(pair_t *pair);

/* A port alone; where an operation has a completion, that is a ucs_status_t.
 * Its links have rings of PAIR_SLOTS slots. */
np_port_t *pair_port(void);
np_port_t *pair_port_of_slots(unsigned slots);
np_port_t *pair_port_of(const np_port_config_t *config);

/* A link that has not connected yet */
void pair_link(np_port_t *from, np_port_t *to, np_link_t *link);

void pair_progress(np_port_t *port);

/* Send a message over it, and progress until it knows its target's port;
 * returns whether it does */
int pair_meet(np_port_t *from, np_port_t *to, np_link_t *link);

/* The same in a child that has no engine yet: nothing is said but whether it
 * went well. The link knows its target's port. */
int pair_open_child(pair_t *pair);
int pair_open_child_of_slots(pair_t *pair, unsigned slots);

/* Send a message, if there is room */
void pair_send(np_link_t *link);

/* Both progress until @a count messages have come; returns whether they have */
int pair_wait_received(np_port_t *a, np_port_t *b, unsigned count);

/* Both progress until the link is down; returns whether it is */
int pair_wait_down(np_port_t *a, np_port_t *b, np_link_t *link);

/* Descriptors that this process has, and a few that count them: for
 * differences */
unsigned pair_count_files(void);

#endif
