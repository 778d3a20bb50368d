/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unloaded puts over soft0.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "sunload.h"

#include "fault.h"

#include "../weigh.h"

#include "../../mem/access.h"
#include "../../trace.h"

#include <stdlib.h>


/* NULL: no memory. Then nothing is unloaded. */
static np_weigh_t *np_sunload_get(np_link_t *link)
{
    np_weigh_t *weigh = link->weigh;

    if (ucs_likely(weigh != NULL)) {
        return weigh;
    }

    weigh = calloc(1, sizeof(*weigh));
    if ((weigh != NULL) &&
        (np_unload_init(&weigh->policy, link->port->config.unload) != 0)) {
        free(weigh);
        weigh = NULL;
    }
    link->weigh = weigh;
    return weigh;
}

ucs_status_t np_sunload_weigh(np_link_t *link, const np_iov_t *iov,
                              size_t iovcnt, size_t len, uint64_t addr,
                              int is_program, void *comp)
{
    np_weigh_t *weigh = np_sunload_get(link);
    ucs_status_t status;
    np_sop_t *op;

    if ((weigh == NULL) || !np_weigh_decides(weigh, addr) ||
        (is_program && (np_access_refused(iov, iovcnt) != NULL))) {
        return UCS_ERR_UNSUPPORTED;
    }

    if (!np_mail_has_room(link)) {
        return np_mail_no_room(link);
    }

    status = np_fault_put_later(link, iov, iovcnt, len, addr, is_program,
                                link->tlb->began + link->tlb->wire, comp, &op);
    if (status == UCS_OK) {
        NP_STATS_INC(link->port->flights.stats, unloaded);
        np_trace(NP_TRACE_UNLOAD, 0, addr, len);
        (void)np_weigh_begin(weigh, op->super.sequence, link->tlb->began);
        status = UCS_INPROGRESS;
    } else if (status != UCS_ERR_NO_MEMORY) {
        return UCS_ERR_UNSUPPORTED; /* our own is not there just now */
    }
    return status;
}

/* Its time is taken if this returns 1 */
static int np_sunload_begin(np_link_t *link, uint64_t sequence, uint64_t addr,
                            size_t len)
{
    np_weigh_t *weigh = link->weigh;

    if (ucs_likely(weigh == NULL) || (len > link->port->config.unload_max) ||
        !np_weigh_is_left(weigh, addr)) {
        return 0;
    }

    NP_STATS_INC(link->port->flights.stats, offloaded);
    return np_weigh_begin(weigh, sequence, link->tlb->began);
}

void np_sunload_posted_it(np_link_t *link, const np_sop_t *op, uint64_t addr,
                          size_t len)
{
    (void)np_sunload_begin(link, op->super.sequence, addr, len);
}

void np_sunload_done(np_link_t *link, uint64_t addr, size_t len)
{
    if (np_sunload_begin(link, 0, addr, len)) {
        np_weigh_ended(link->weigh, 0, 1);
    }
}

void np_sunload_ended_it(np_link_t *link, const np_sop_t *op)
{
    np_weigh_ended(link->weigh, op->super.sequence,
                   op->super.status == UCS_OK);
}

void np_sunload_cleanup(np_link_t *link)
{
    if (link->weigh != NULL) {
        np_unload_cleanup(&link->weigh->policy);
        free(link->weigh);
        link->weigh = NULL;
    }
}
