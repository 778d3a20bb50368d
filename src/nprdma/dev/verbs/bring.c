/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pages that the requests of a port's peers wait for.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "bring.h"

#include "../../mem/kmod.h"
#include "../../mem/swapper.h"

#include <sched.h>
#include <time.h>

/* Attempts after which pages that seem to be absent, and that no swapper takes
 * away, are touched all the same: of some mappings mincore() always says so */
#define NP_BRING_ROUNDS  8

/* Attempts to get a turn while a swapper waits for us. Then it goes first: it
 * may have the port. */
#define NP_BRING_TRIES   64

/* Between two attempts to get a turn: ns */
#define NP_BRING_PAUSE   20000


/* Keep pages that a swapper may take away until they are used.
 * @param [out] phase  For np_swap_let_go.
 * Returns 0: they have gone. */
static int np_bring_hold(const np_errand_t *bring, int *phase)
{
    *phase = -1;
    if ((bring->status != UCS_OK) ||
        !np_swap_range_touches(bring->va, bring->len)) {
        return 1;
    }

    *phase = np_swap_copy_begin();
    if (np_mapper_is_mapped(bring->va, bring->len, bring->write)) {
        return 1;
    }

    np_swap_let_go(*phase);
    return 0;
}

/* A turn of the port. Returns 0: it is not wanted any more, or with @a
 * is_holding there is none soon. */
static int np_bring_turn(np_vport_t *port, np_errand_t *bring, int is_holding)
{
    const struct timespec pause = {.tv_nsec = NP_BRING_PAUSE};
    unsigned i;

    for (i = 0; !np_turn_take(&port->turn); ++i) {
        if (bring->is_left || (is_holding && (i == NP_BRING_TRIES))) {
            return 0;
        }

        if (is_holding) {
            sched_yield();
        } else {
            nanosleep(&pause, NULL);
        }
    }
    return 1;
}

/* Is it to be done, whether the pages seem to be there or not? */
static int np_bring_is_last(const np_errand_t *bring, int phase)
{
    return ((bring->status != UCS_OK) &&
            (bring->status != UCS_ERR_NO_RESOURCE)) ||
           ((phase < 0) && (bring->rounds >= NP_BRING_ROUNDS) &&
            !np_swap_range_touches(bring->va, bring->len));
}

/* np_errand_t::brought */
static int np_bring_brought(np_errand_t *bring)
{
    np_vport_t *port = bring->user;
    int is_again, phase;

    if (bring->status == UCS_ERR_NO_RESOURCE) {
        return 0;
    }

    if (!np_bring_hold(bring, &phase)) {
        return 0;
    }

    if (!np_bring_turn(port, bring, phase >= 0)) {
        np_swap_let_go(phase);
        return 0;
    }

    port->is_thread  = 1;
    port->is_patient = np_bring_is_last(bring, phase);
    port->retrying   = bring;
    bring->is_again  = 0;
    if (bring->waiter != NULL) {
        bring->retry(bring->waiter);
    }
    is_again         = bring->is_again;
    port->retrying   = NULL;
    port->is_patient = 0;
    np_swap_let_go(phase);
    if (!is_again) {
        if (bring->waiter != NULL) {
            np_errand_put(bring); /* the waiter's */
        }
        np_vport_brought(port);
    }
    port->is_thread  = 0;
    np_turn_give(&port->turn);
    return !is_again;
}

np_errand_t *np_bring_begin(np_vport_t *port, const np_vabsent_t *pages,
                            void (*retry)(void *waiter), void *waiter)
{
    np_errand_t *bring = port->retrying;

    if ((bring != NULL) && (bring->waiter == waiter)) {
        bring->is_again = 1;
    } else {
        bring = np_errand_create();
        if (bring == NULL) {
            return NULL;
        }
    }

    bring->va      = pages->va;
    bring->len     = pages->len;
    bring->write   = pages->write;
    bring->user    = port;
    bring->brought = np_bring_brought;
    bring->waiter  = waiter;
    bring->retry   = retry;
    if (!bring->is_again && !np_bringer_submit(bring)) {
        np_errand_put(bring);
        return NULL;
    }
    return bring;
}

void np_bring_end(np_errand_t **bring_p)
{
    np_errand_t *bring = *bring_p;

    if (bring != NULL) {
        *bring_p      = NULL;
        bring->waiter = NULL;
        np_bringer_cancel(bring);
    }
}

void np_bring_missed(np_vport_t *port)
{
    const np_vabsent_t *absent;

    while (port->num_absent > 0) {
        absent = &port->absent[--port->num_absent];
        np_kmod_prefetch(absent->va, absent->len, absent->write);
    }
}

void np_bring_later(np_vport_t *port, uint64_t va, uint64_t len, int write)
{
    if (port->num_absent == NP_VPORT_ABSENT) {
        np_bring_missed(port);
    }
    port->absent[port->num_absent++] = (np_vabsent_t){va, len, write};
}
