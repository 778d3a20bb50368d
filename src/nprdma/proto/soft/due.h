/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Transfers under the model of a translation cache (dev/soft/tlb.h): their
 * bytes have moved, and they end when they are due.
 */

#ifndef NP_DUE_H_
#define NP_DUE_H_

#include "sop.h"

/** As np_due_moved; the link has a model */
ucs_status_t np_due_later(np_dir_t dir, np_link_t *link, np_key_t *key,
                          const np_iov_t *iov, size_t iovcnt, size_t len,
                          uint64_t addr, void *comp);

/** All of a short get has moved; the link has a model. Returns whether its
 *  caller may have the bytes: else it is to try again. */
int np_due_get(np_link_t *link, np_key_t *key, size_t len, uint64_t addr);

/** All of it has moved.
 *  @return UCS_OK: and it has ended; UCS_INPROGRESS: it ends later;
 *          UCS_ERR_NO_MEMORY. */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_due_moved(np_dir_t dir, np_link_t *link, np_key_t *key, const np_iov_t *iov,
             size_t iovcnt, size_t len, uint64_t addr, void *comp)
{
    if (ucs_unlikely(link->tlb != NULL)) {
        return np_due_later(dir, link, key, iov, iovcnt, len, addr, comp);
    }

    np_stats_moved(link->port->flights.stats, dir, len);
    return UCS_OK;
}

#endif
