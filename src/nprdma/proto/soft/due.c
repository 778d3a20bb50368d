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
#include "sunload.h"


/* It has ended already: without times, or its copying took longer than they
 * are; or there is no memory, which makes it end too early */
static ucs_status_t
np_due_now(np_dir_t dir, np_link_t *link, size_t len, uint64_t addr)
{
    np_stats_moved(link->port->flights.stats, dir, len);
    if (dir == NP_DIR_PUT) {
        np_sunload_done(link, addr, len);
    }
    return UCS_OK;
}

ucs_status_t np_due_later(np_dir_t dir, np_link_t *link, const np_iov_t *iov,
                          size_t iovcnt, size_t len, uint64_t addr, void *comp)
{
    const uint64_t due = np_tlb_due(link->tlb, link->tlb->began,
                                    np_tlb_take(link->tlb));
    np_sop_t *op;

    if (due <= np_clock()) {
        return np_due_now(dir, link, len, addr);
    }

    op = np_copy_new(dir, link, NULL, NULL, iov, iovcnt, len, addr, comp);
    if (op == NULL) {
        return np_due_now(dir, link, len, addr);
    }

    op->copy.retry_at = due;
    op->copy.is_due   = 1;
    np_chunks_stop(&op->copy.chunks);
    /* nothing waits for it: its bytes are there. For the timeline alone: */
    op->super.interval.first    = addr;
    op->super.interval.last     = addr + len - 1;
    op->super.interval.is_write = dir == NP_DIR_PUT;
    ++link->num_dues;
    ucs_list_add_tail(&link->dues, &op->queue);
    np_sop_post(link, op);
    if (dir == NP_DIR_PUT) {
        np_sunload_posted(link, op, addr, len);
    }
    return UCS_INPROGRESS;
}

unsigned np_due_work(np_link_t *link)
{
    unsigned count = 0;
    np_sop_t *op;

    while (link->num_dues > 0) {
        op = ucs_list_head(&link->dues, np_sop_t, queue);
        if (op->copy.retry_at > np_clock()) {
            break;
        }
        np_copy_finish(link, op); /* which may change the list */
        ++count;
    }
    return count;
}

int np_due_get(np_link_t *link)
{
    if (link->get_due == 0) { /* else it has waited */
        link->get_due = np_tlb_due(link->tlb, link->tlb->began,
                                   np_tlb_take(link->tlb));
        if (np_due_get_waits(link)) {
            return 0;
        }
    }

    link->get_due = 0;
    return 1;
}
