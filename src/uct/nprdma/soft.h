/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The face of soft0, the device of one host: interface and endpoint.
 */

#ifndef UCT_NPRDMA_SOFT_H_
#define UCT_NPRDMA_SOFT_H_

#include "nprdma.h"

#include "../../nprdma/dev/host.h"
#include "../../nprdma/dev/soft/peer.h"

#define UCT_NPRDMA_DEVICE  "soft0"

typedef struct uct_nprdma_soft_device_addr {
    uint8_t        kind; /**< UCT_NPRDMA_SOFT */
    np_host_addr_t host;
} __attribute__((packed)) uct_nprdma_soft_device_addr_t;

typedef struct uct_nprdma_soft_iface {
    uct_nprdma_iface_t super;
    np_port_t          *port;
    void               *packed;   /**< a message on its way to the ring, after
                                       NP_FAST_SKEW bytes; guarded as the port
                                       is */
    int                is_packing; /**< .. and is one on its way? */
    size_t             eager_max; /**< UCP is to send so much eagerly; less
                                       than a message: what one has */
} uct_nprdma_soft_iface_t;

typedef struct uct_nprdma_soft_ep {
    uct_nprdma_ep_t super;
    np_link_t       link;
} uct_nprdma_soft_ep_t;

/** The endpoints' half of the table of operations */
extern const uct_iface_ops_t uct_nprdma_soft_ep_ops;

/** What the engine tells us */
void uct_nprdma_soft_ep_link_down(np_flight_t *flight, ucs_status_t status);


static UCS_F_ALWAYS_INLINE uct_nprdma_soft_iface_t *
uct_nprdma_soft_ep_iface(uct_nprdma_soft_ep_t *ep)
{
    return ucs_derived_of(ep->super.super.super.iface,
                          uct_nprdma_soft_iface_t);
}

#endif
