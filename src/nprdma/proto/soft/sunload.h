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

/** A put was left to the device, and is posted as this operation; or it has
 *  ended at once */
void np_sunload_posted(np_link_t *link, const np_sop_t *op, uint64_t addr,
                       size_t len);
void np_sunload_done(np_link_t *link, uint64_t addr, size_t len);

/** A put has ended */
void np_sunload_ended(np_link_t *link, const np_sop_t *op);

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
