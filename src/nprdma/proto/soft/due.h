/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Transfers under the model of a translation cache (dev/soft/tlb.h): their
 * bytes have moved, and they end when they are due.
 */

#ifndef NP_DUE_H_
#define NP_DUE_H_

#include "sop.h"

/** A transfer begins */
static UCS_F_ALWAYS_INLINE void np_due_begin(np_link_t *link)
{
    if (ucs_unlikely(link->tlb != NULL)) {
        link->tlb->began  = np_clock();
        link->tlb->misses = 0;
    }
}

/** As np_due_moved; the link has a model */
ucs_status_t np_due_later(np_dir_t dir, np_link_t *link, const np_iov_t *iov,
                          size_t iovcnt, size_t len, uint64_t addr,
                          void *comp);

/** All of it has moved.
 *  @return UCS_OK: and it has ended; UCS_INPROGRESS: it ends later. */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_due_moved(np_dir_t dir, np_link_t *link, const np_iov_t *iov, size_t iovcnt,
             size_t len, uint64_t addr, void *comp)
{
    if (ucs_unlikely(link->tlb != NULL)) {
        return np_due_later(dir, link, iov, iovcnt, len, addr, comp);
    }

    np_stats_moved(link->port->flights.stats, dir, len);
    return UCS_OK;
}

/** End what is due; returns how many (np_port_ops_t::passed) */
unsigned np_due_work(np_link_t *link);

static UCS_F_ALWAYS_INLINE unsigned np_due_progress(np_link_t *link)
{
    return ucs_likely(link->num_dues == 0) ? 0 : np_due_work(link);
}

/**
 * Short gets return with their data, so under the model the caller tries again
 * until it may have them: one get of a link after the other.
 *
 * @return Must this one wait for the last that was tried?
 */
static UCS_F_ALWAYS_INLINE int np_due_get_waits(const np_link_t *link)
{
    return ucs_unlikely(link->get_due != 0) && (link->get_due > np_clock());
}

/** All of one has moved. Returns whether its caller may have the bytes. */
int np_due_get(np_link_t *link);

#endif
