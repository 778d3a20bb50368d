/* SPDX-License-Identifier: BSD-3-Clause */
/* A pair of which one is hostile. */

#ifndef NP_TEST_HOSTILE_H_
#define NP_TEST_HOSTILE_H_

#include "nprdma/dev/soft/link.h"
#include "nprdma/dev/soft/peer.h"

#define PROGRESS_MAX 100000

/* Both talk, and then one of them is hostile */
typedef struct hostile_pair {
    np_port_t *target;
    np_port_t *bad;
    np_link_t link;
    np_peer_t *peer;
} hostile_pair_t;

void hostile_progress(np_port_t *port);

void hostile_pair_open(const char *name, hostile_pair_t *pair);

void hostile_pair_close(hostile_pair_t *pair);

/* Of copies that both sides work on */
void test_hostile_share(void);

#endif
