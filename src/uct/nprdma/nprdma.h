/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The face to UCX: component and memory domain, interface, endpoint.
 */

#ifndef UCT_NPRDMA_H_
#define UCT_NPRDMA_H_

#include "ucx_compat.h"

#include "../../nprdma/engine.h"
#include "../../nprdma/proto/op.h"

#include <ucs/type/spinlock.h>

#define UCT_NPRDMA_NAME    "nprdma"
#define UCT_NPRDMA_DEVICE  "soft0"

/** Settings of a memory domain: those of the engine */
typedef struct uct_nprdma_md_config {
    uct_md_config_t    super;
    np_engine_config_t engine;
} uct_nprdma_md_config_t;

typedef struct uct_nprdma_md {
    uct_md_t super;
} uct_nprdma_md_t;

typedef struct uct_nprdma_iface_config {
    uct_iface_config_t super;
    unsigned           ring_size;
    size_t             ring_bytes;
    size_t             ring_bytes_wide;
    unsigned           wide_rings;
} uct_nprdma_iface_config_t;

/** Used by one thread at a time, or under its lock (mt.c) */
typedef struct uct_nprdma_iface {
    uct_base_iface_t         super;
    np_port_t                *port;
    ucs_arbiter_t            arbiter;
    unsigned                 max_bcopy;
    ucs_recursive_spinlock_t lock;  /**< only for multi-threaded workers */
} uct_nprdma_iface_t;

typedef struct uct_nprdma_ep {
    uct_base_ep_t       super;
    np_link_t           link;
    ucs_arbiter_group_t arb_group;
    unsigned            num_pending;
} uct_nprdma_ep_t;

extern uct_component_t uct_nprdma_component;
extern uct_tl_t uct_nprdma_tl;

/** The endpoints' half of the table of operations */
extern const uct_iface_ops_t uct_nprdma_ep_ops;

/** atomic.c: members of that table */
ucs_status_t
uct_nprdma_ep_atomic_cswap64(uct_ep_h ep, uint64_t compare, uint64_t swap,
                             uint64_t remote_addr, uct_rkey_t rkey,
                             uint64_t *result, uct_completion_t *comp);
ucs_status_t
uct_nprdma_ep_atomic_cswap32(uct_ep_h ep, uint32_t compare, uint32_t swap,
                             uint64_t remote_addr, uct_rkey_t rkey,
                             uint32_t *result, uct_completion_t *comp);
ucs_status_t
uct_nprdma_ep_atomic64_post(uct_ep_h ep, unsigned opcode, uint64_t value,
                            uint64_t remote_addr, uct_rkey_t rkey);
ucs_status_t
uct_nprdma_ep_atomic32_post(uct_ep_h ep, unsigned opcode, uint32_t value,
                            uint64_t remote_addr, uct_rkey_t rkey);
ucs_status_t
uct_nprdma_ep_atomic64_fetch(uct_ep_h ep, unsigned opcode, uint64_t value,
                             uint64_t *result, uint64_t remote_addr,
                             uct_rkey_t rkey, uct_completion_t *comp);
ucs_status_t
uct_nprdma_ep_atomic32_fetch(uct_ep_h ep, unsigned opcode, uint32_t value,
                             uint32_t *result, uint64_t remote_addr,
                             uct_rkey_t rkey, uct_completion_t *comp);

/** pending.c: the same */
ucs_status_t
uct_nprdma_ep_pending_add(uct_ep_h tl_ep, uct_pending_req_t *req,
                          unsigned flags);
void uct_nprdma_ep_pending_purge(uct_ep_h tl_ep,
                                 uct_pending_purge_callback_t cb, void *arg);

/** What the engine tells us */
void uct_nprdma_ep_link_down(np_link_t *link, ucs_status_t status);

/** Send what waits for room; returns how many */
unsigned uct_nprdma_iface_progress_pending(uct_nprdma_iface_t *iface);

/** Replace every operation of a table by one that holds the iface's lock */
void uct_nprdma_mt_wrap(uct_iface_ops_t *ops);


static UCS_F_ALWAYS_INLINE uct_nprdma_iface_t *
uct_nprdma_ep_iface(uct_nprdma_ep_t *ep)
{
    return ucs_derived_of(ep->super.super.iface, uct_nprdma_iface_t);
}

#endif
