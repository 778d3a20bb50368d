/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pages that the requests of a port's peers wait for. No thread sleeps in a
 * page while it has the port: a request that would is put off until a bringer
 * (svc/bringer.h) has brought the page in. The bringer then takes a turn of the
 * port and tries it again at once.
 */

#ifndef NP_BRING_H_
#define NP_BRING_H_

#include "vport.h"

#include "../../svc/bringer.h"

/**
 * Have pages brought in, and then @a retry called, in a turn of the port. It
 * may ask for more pages, by this function again. Any turn.
 *
 * @return for np_bring_end, if it is not wanted any more, before @a retry is
 *         called; NULL: no bringer can, and it must be done all the same.
 */
np_errand_t *np_bring_begin(np_vport_t *port, const np_vabsent_t *pages,
                            void (*retry)(void *waiter), void *waiter);

/** The message that is put off just now is tried again when these pages are
 *  there; @a len 0: in the next turn */
static inline void
np_bring_want(np_vport_t *port, uint64_t va, uint64_t len, int write)
{
    port->wanted = (np_vabsent_t){va, port->is_patient ? 0 : len, write};
}

/** Not wanted any more; *@a bring_p may be NULL, and is then. Any turn. */
void np_bring_end(np_errand_t **bring_p);

/** A peer has missed these pages in our views: they are brought in there when
 *  no answer is waited for any more, since the kernel's thread may need our
 *  processor for it. Any turn. */
void np_bring_later(np_vport_t *port, uint64_t va, uint64_t len, int write);

/** The port has nothing else to do. Any turn. */
void np_bring_missed(np_vport_t *port);

#endif
