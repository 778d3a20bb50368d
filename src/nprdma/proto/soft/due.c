/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a transfer takes by the model.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "due.h"

#include "copy.h"
#include "fault.h"


ucs_status_t np_due_later(np_dir_t dir, np_link_t *link, np_key_t *key,
                          const np_iov_t *iov, size_t iovcnt, size_t len,
                          uint64_t addr, void *comp)
{
    const uint64_t due = np_tlb_due(link->tlb, link->tlb->began,
                                    np_tlb_take(link->tlb));
    np_sop_t *op;

    if (due <= np_clock()) {
        np_stats_moved(link->port->flights.stats, dir, len);
        return UCS_OK;
    }

    op = np_copy_new(dir, link, key, NULL, iov, iovcnt, len, addr, comp);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    np_copy_post_due(link, op, due);
    return UCS_INPROGRESS;
}

/* A short get returns with its data. Under the model the caller tries again
 * until it is due, and then has it. */
int np_due_get(np_link_t *link, np_key_t *key, size_t len, uint64_t addr)
{
    const unsigned misses = np_tlb_take(link->tlb);
    const int has_paid    = link->paid == np_fault_page(addr);
    const np_iov_t none   = {NULL, len};
    np_sop_t *op;
    uint64_t due;

    link->paid = 0;
    due        = has_paid ? 0 : np_tlb_due(link->tlb, link->tlb->began, misses);
    if (due <= np_clock()) {
        return 1;
    }

    op = np_copy_new(NP_DIR_GET, link, key, NULL, &none, 1, len, addr, NULL);
    if (op == NULL) {
        return 1; /* it is too early then, but right */
    }

    np_op_order(&link->flight, &op->super, addr, len, 1); /* it waits */
    np_copy_post_due(link, op, due);
    link->paid = np_fault_page(addr);
    return 0;
}
