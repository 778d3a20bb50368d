/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Small puts that the target's CPU does though soft0 could (unload.h), where
 * the translation cache of an RNIC is modelled: else there is nothing to gain.
 * An unloaded put is a FAULT that carries its bytes, which is sent when a
 * message would have arrived.
 */

#ifndef NP_SUNLOAD_H_
#define NP_SUNLOAD_H_

#include "sop.h"

/** As np_sunload_put; the link has a model */
ucs_status_t np_sunload_weigh(np_link_t *link, const np_iov_t *iov,
                              size_t iovcnt, size_t len, uint64_t addr,
                              int is_program, void *comp);

/** As those without _it; a policy was asked */
void np_sunload_posted_it(np_link_t *link, const np_sop_t *op, uint64_t addr,
                          size_t len);
void np_sunload_done(np_link_t *link, uint64_t addr, size_t len);
void np_sunload_ended_it(np_link_t *link, const np_sop_t *op);

/** A put was left to the device, and is posted as this operation; if it has
 *  ended at once, np_sunload_done */
static UCS_F_ALWAYS_INLINE void
np_sunload_posted(np_link_t *link, const np_sop_t *op, uint64_t addr,
                  size_t len)
{
    if (ucs_unlikely(link->weigh != NULL)) {
        np_sunload_posted_it(link, op, addr, len);
    }
}

/** An operation has ended */
static UCS_F_ALWAYS_INLINE void
np_sunload_ended(np_link_t *link, const np_sop_t *op)
{
    if (ucs_unlikely(link->weigh != NULL)) {
        np_sunload_ended_it(link, op);
    }
}

/** The link ends */
void np_sunload_cleanup(np_link_t *link);

/** A put that may begin: is it unloaded? @a is_program: of the program's
 *  memory, which may not be there, or not be registered any more.
 *  @return UCS_INPROGRESS: it is on its way; UCS_ERR_UNSUPPORTED: the device
 *          does it; UCS_ERR_NO_RESOURCE; UCS_ERR_NO_MEMORY. */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_sunload_put(np_link_t *link, const np_iov_t *iov, size_t iovcnt, size_t len,
               uint64_t addr, int is_program, void *comp)
{
    return ucs_likely((link->tlb == NULL) ||
                      (len > link->port->config.unload_max)) ?
           UCS_ERR_UNSUPPORTED :
           np_sunload_weigh(link, iov, iovcnt, len, addr, is_program, comp);
}

#endif
