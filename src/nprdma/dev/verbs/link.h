/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Links over an RNIC's reliable queue pairs: which port is reached, and how far
 * it is.
 */

#ifndef NP_VERBS_LINK_H_
#define NP_VERBS_LINK_H_

#include "../flight.h"
#include "../host.h"

#include <ucs/datastruct/list.h>
#include <ucs/type/status.h>

typedef struct np_vport np_vport_t;
typedef struct np_vlink np_vlink_t;

/** Where a port's RNIC is, and whose host it is part of */
typedef struct np_vdev_addr {
    np_host_addr_t host;
    uint8_t        gid[16];
    uint16_t       lid;       /**< InfiniBand; 0 on RoCE */
    uint8_t        is_roce;
    uint8_t        mtu;       /**< enum ibv_mtu */
} __attribute__((packed)) np_vdev_addr_t;

/** A port of a process */
typedef struct np_vport_addr {
    uint64_t engine_id;
    uint64_t cookie;          /**< only a process that has the address may
                                   connect */
    uint32_t qpn;             /**< of its datagram queue pair */
} __attribute__((packed)) np_vport_addr_t;

struct np_conn;

/** An endpoint's link. Owner: the caller of np_vlink_init. Guarded by the turn
 *  of its port. */
struct np_vlink {
    np_flight_t     flight;
    np_vport_t      *port;
    struct np_conn  *conn;        /**< NULL: not connected */
    np_vdev_addr_t  dev_addr;
    np_vport_addr_t addr;
    struct np_vremote *remotes;   /**< what is known of the target's memory */
    ucs_list_link_t blocks;       /**< of its entries (vremote.h) */
    unsigned        num_blocks;

    /* owned by proto */
    int             is_overtaking; /**< one would, if it began before a put is
                                        acknowledged: np_rput_is_overtaken */
    uint64_t        put_first;    /**< with views: from here to put_end write
                                       puts that are messages (flight.put) */
    uint64_t        put_end;      /**< if not all are acknowledged */
    struct np_rputs *puts;        /**< small ones under way (rput.c), or NULL */
    struct np_runload *unload;    /**< which of them are messages (runload.c),
                                       or NULL */
};

void np_vlink_init(np_vlink_t *link, np_vport_t *port,
                   const np_vdev_addr_t *dev_addr, const np_vport_addr_t *addr);

#endif
