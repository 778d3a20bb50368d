/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The face of RDMA devices: interface and endpoint.
 */

#ifndef UCT_NPRDMA_VERBS_H_
#define UCT_NPRDMA_VERBS_H_

#include "nprdma.h"

#include "../../nprdma/face/rnic.h"

/** What tells whether a peer can be reached. UCP gives it 31 bytes at most. */
typedef struct uct_nprdma_verbs_device_addr {
    uint8_t  kind;      /**< UCT_NPRDMA_VERBS */
    uint8_t  version;
    uint8_t  is_roce;
    uint64_t host_id;
    uint32_t uid;
    uint8_t  gid[16];
} __attribute__((packed)) uct_nprdma_verbs_device_addr_t;

/** The rest of what is needed to connect */
typedef struct uct_nprdma_verbs_iface_addr {
    np_vport_addr_t port;
    uint16_t        lid;
    uint8_t         mtu;
} __attribute__((packed)) uct_nprdma_verbs_iface_addr_t;

/**
 * May these be the settings? Asked by each interface, of whatever device, so
 * that one line of a configuration is right or wrong on all hosts.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM (logged).
 */
ucs_status_t
uct_nprdma_verbs_check_config(const uct_nprdma_verbs_config_t *config);

typedef struct uct_nprdma_verbs_iface {
    uct_nprdma_iface_t super;
    np_vport_t         *port;
    np_vport_attr_t    attr; /**< of the port; constant */
} uct_nprdma_verbs_iface_t;

typedef struct uct_nprdma_verbs_ep {
    uct_nprdma_ep_t super;
    np_vlink_t      link;
} uct_nprdma_verbs_ep_t;

/** The endpoints' half of the table of operations */
extern const uct_iface_ops_t uct_nprdma_verbs_ep_ops;

/** What the engine tells us */
void uct_nprdma_verbs_ep_link_down(np_flight_t *flight, ucs_status_t status);

/** Where in the machine an RNIC's port is; UCS_SYS_DEVICE_ID_UNKNOWN where it
 *  is no PCI device */
ucs_sys_device_t uct_nprdma_verbs_sys_device(const char *name);

/** The engine's address from what UCP carries. If @a iface_addr is NULL, it is
 *  good only for np_vport_is_reachable. */
void uct_nprdma_verbs_unpack_addr(
        const uct_nprdma_verbs_device_addr_t *device_addr,
        const uct_nprdma_verbs_iface_addr_t *iface_addr, np_vdev_addr_t *vdev);


static UCS_F_ALWAYS_INLINE uct_nprdma_verbs_iface_t *
uct_nprdma_verbs_ep_iface(uct_nprdma_verbs_ep_t *ep)
{
    return ucs_derived_of(ep->super.super.super.iface,
                          uct_nprdma_verbs_iface_t);
}

#endif
