/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Puts that are unloaded: the policy of a link, what it is told, and which
 * memory they write.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "runload.h"

#include "../../hash.h"
#include "../../trace.h"

#include <stdlib.h>

/* Transfers of more bytes are near all puts under way */
#define NP_RUNLOAD_NEAR_MAX   4096u


/* NULL: no memory. Then nothing is unloaded. */
static struct np_runload *np_runload_get(np_vlink_t *link)
{
    struct np_runload *unload = link->unload;

    if (ucs_likely(unload != NULL)) {
        return unload;
    }

    unload = calloc(1, sizeof(*unload));
    if (unload == NULL) {
        return NULL;
    }

    if (np_unload_init(&unload->weigh.policy, link->port->config.unload) != 0) {
        free(unload);
        return NULL;
    }

    unload->before = link->flight.put;
    link->unload   = unload;
    return unload;
}

int np_runload_decides(np_vlink_t *link, uint64_t addr)
{
    struct np_runload *unload = np_runload_get(link);

    return ucs_likely(unload != NULL) &&
           np_weigh_decides(&unload->weigh, addr);
}

static uint32_t *np_runload_line(struct np_runload *unload, uint64_t addr)
{
    return &unload->lines[np_hash(addr / NP_RUNLOAD_LINE) >>
                          (64 - NP_RUNLOAD_LINE_BITS)];
}

void np_runload_sent(np_vlink_t *link, np_vctl_t *ctl, uint64_t addr,
                     size_t len, int is_unloaded)
{
    struct np_runload *unload = link->unload;
    const uint32_t seq        = link->conn->tx_seq + 1;
    uint64_t at;

    if (ucs_likely(unload == NULL)) {
        return;
    }

    for (at = addr & ~(NP_RUNLOAD_LINE - 1); at < (addr + len);
         at += NP_RUNLOAD_LINE) {
        *np_runload_line(unload, at) = seq;
    }

    if (is_unloaded) {
        NP_STATS_INC(link->port->flights.stats, unloaded);
        np_trace(NP_TRACE_UNLOAD, 0, addr, len);
    } else if (np_weigh_is_left(&unload->weigh, addr)) {
        NP_STATS_INC(link->port->flights.stats, offloaded);
    } else {
        return;
    }

    if (np_weigh_begin(&unload->weigh, 0, 0)) {
        unload->seq     = seq;
        ctl->msg.flags |= NP_VMSG_ACK_NOW;
    }
}

int np_runload_posted(np_vlink_t *link, const np_rop_t *op, uint64_t addr)
{
    struct np_runload *unload = link->unload;

    if (ucs_likely(unload == NULL) || !np_weigh_is_left(&unload->weigh, addr)) {
        return 0;
    }

    NP_STATS_INC(link->port->flights.stats, offloaded);
    return np_weigh_begin(&unload->weigh, op->super.sequence, 0);
}

void np_runload_ended(const np_rop_t *op, int is_right)
{
    struct np_runload *unload = op->link->unload;

    if (ucs_unlikely(unload != NULL)) {
        np_weigh_ended(&unload->weigh, op->super.sequence, is_right);
    }
}

void np_runload_acked(np_vlink_t *link)
{
    struct np_runload *unload = link->unload;

    if (ucs_unlikely(unload != NULL) &&
        (unload->weigh.timed != NP_UNLOAD_NONE) &&
        np_vlink_has_acked(link, unload->seq)) {
        np_weigh_ended(&unload->weigh, 0, 1);
    }
}

int np_runload_is_near(np_vlink_t *link, uint64_t addr, size_t len)
{
    struct np_runload *unload = link->unload;
    uint64_t at;

    if ((unload == NULL) || (len > NP_RUNLOAD_NEAR_MAX) ||
        !np_vlink_has_acked(link, unload->before)) {
        return 1;
    }

    for (at = addr & ~(NP_RUNLOAD_LINE - 1); at < (addr + len);
         at += NP_RUNLOAD_LINE) {
        if (!np_vlink_has_acked(link, *np_runload_line(unload, at))) {
            return !NP_IS_MUTANT(UNLOADED_FORGOTTEN);
        }
    }
    return 0;
}

void np_runload_renumber(np_vlink_t *link, uint32_t taken, uint32_t seq)
{
    struct np_runload *unload = link->unload;
    unsigned i;

    if (unload == NULL) {
        return;
    }

    /* it took another queue pair as well */
    unload->weigh.timed = NP_UNLOAD_NONE;
    np_conn_renumber(&unload->before, taken, seq);
    for (i = 0; i < (1u << NP_RUNLOAD_LINE_BITS); ++i) {
        np_conn_renumber(&unload->lines[i], taken, seq);
    }
}

void np_runload_cleanup(np_vlink_t *link)
{
    if (link->unload != NULL) {
        np_unload_cleanup(&link->unload->weigh.policy);
        free(link->unload);
        link->unload = NULL;
    }
}
