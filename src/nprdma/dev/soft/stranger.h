/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Strangers: processes that have connected with a port, and have not shown that
 * they were given the port's address. Any process on this host can. So there
 * are but few of them at a time, and none for long; what one of them sends is
 * looked at, not taken; and the port's owner spends but a few percent of its
 * time on them.
 */

#ifndef NP_SOFT_STRANGER_H_
#define NP_SOFT_STRANGER_H_

#include "sock.h"

typedef struct np_port np_port_t;

/** Strangers that a port keeps while they say nothing; for one more the oldest
 *  has to go */
#define NP_PORT_STRANGERS      32

/** ns for which it keeps one */
#define NP_STRANGER_PATIENCE   UINT64_C(1000000000)

/** Connections that are accepted at once, by the owner and by a service
 *  thread */
#define NP_STRANGER_OWNER      4
#define NP_STRANGER_SERVICE    16

/** ns for which the owner accepts none after it has met strangers; a service
 *  thread may */
#ifndef NP_STRANGER_PAUSE
#  define NP_STRANGER_PAUSE    UINT64_C(1000000)
#endif

/** Owner: the port; under its lock. */
typedef struct np_stranger {
    int            fd;      /**< -1: none */
    np_sock_cred_t cred;
    uint64_t       until;   /**< when it goes; np_clock() */
} np_stranger_t;

/** Accept some connections. @a met: whether there was a stranger among them.
 *  @return whether there may be more. */
int np_port_accept_some(np_port_t *port, int is_owner, int *met);

/** Hear those that said nothing when they came, and let go those whose time has
 *  passed.
 *  @return how many are left. */
unsigned np_port_hear_strangers(np_port_t *port, int is_owner);

/** Let go all */
void np_port_drop_strangers(np_port_t *port);

#endif
