/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Endpoints of RDMA devices: UCT's operations in the engine's words. What all
 * devices have in common is in ep.c, what waits for room in pending.c.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "verbs.h"

#include "../../nprdma/trace.h"


static UCS_CLASS_INIT_FUNC(uct_nprdma_verbs_ep_t,
                           const uct_ep_params_t *params)
{
    uct_nprdma_verbs_iface_t *iface = ucs_derived_of(params->iface,
                                                     uct_nprdma_verbs_iface_t);
    const uct_nprdma_verbs_iface_addr_t *iface_addr;
    np_vport_addr_t addr;
    np_vdev_addr_t vdev;

    UCS_CLASS_CALL_SUPER_INIT(uct_nprdma_ep_t, params, &self->link.flight);

    iface_addr = (const void*)params->iface_addr;
    uct_nprdma_verbs_unpack_addr((const void*)params->dev_addr, iface_addr,
                                 &vdev);
    memcpy(&addr, &iface_addr->port, sizeof(addr)); /* may lie anywhere */
    np_vlink_init(&self->link, iface->port, &vdev, &addr);
    return UCS_OK;
}

static UCS_CLASS_CLEANUP_FUNC(uct_nprdma_verbs_ep_t)
{
    uct_nprdma_ep_pending_purge(&self->super.super.super, NULL, NULL);
    np_ep_close(&self->link.flight);
}

UCS_CLASS_DEFINE(uct_nprdma_verbs_ep_t, uct_nprdma_ep_t)
static UCS_CLASS_DEFINE_NEW_FUNC(uct_nprdma_verbs_ep_t, uct_ep_t,
                                 const uct_ep_params_t*);
static UCS_CLASS_DEFINE_DELETE_FUNC(uct_nprdma_verbs_ep_t, uct_ep_t);

void uct_nprdma_verbs_ep_link_down(np_flight_t *flight, ucs_status_t status)
{
    uct_nprdma_verbs_ep_t *ep = ucs_container_of(flight, uct_nprdma_verbs_ep_t,
                                                 link.flight);
    char peer[64];

    ucs_snprintf_zero(peer, sizeof(peer), "peer at queue pair 0x%x",
                      ep->link.addr.qpn);
    uct_nprdma_ep_failed(&ep->super, status, peer);
}

static ucs_status_t
uct_nprdma_verbs_ep_am_short(uct_ep_h tl_ep, uint8_t id, uint64_t header,
                             const void *payload, unsigned length)
{
    uct_nprdma_verbs_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_verbs_ep_t);
    ucs_status_t status;

    UCT_CHECK_AM_ID(id);
    UCT_CHECK_LENGTH(sizeof(header) + length, 0,
                     uct_nprdma_ep_iface(&ep->super)->max_bcopy, "am_short");

    status = np_vlink_am_short(&ep->link, id, header, payload, length);
    if (ucs_likely(status == UCS_OK)) {
        np_trace(NP_TRACE_MESSAGE, 0, id, sizeof(header) + length);
    }
    UCT_TL_EP_STAT_OP_IF_SUCCESS(status, &ep->super.super, AM, SHORT,
                                 sizeof(header) + length);
    return status;
}

/* A message gathered from a header and buffers; none of them is needed any more
 * when this returns */
static ucs_status_t
uct_nprdma_verbs_ep_am_gather(uct_nprdma_verbs_ep_t *ep, uint8_t id,
                              const void *header, unsigned header_length,
                              const uct_iov_t *iov, size_t iovcnt)
{
    np_iov_t list[NP_MAX_IOV];

    UCT_CHECK_AM_ID(id);
    UCT_CHECK_IOV_SIZE(iovcnt, (size_t)NP_MAX_IOV, "am");
    UCT_CHECK_LENGTH(header_length, 0,
                     uct_nprdma_iface_max_hdr(uct_nprdma_ep_iface(&ep->super)),
                     "am_zcopy header");
    UCT_CHECK_LENGTH(header_length + uct_iov_total_length(iov, iovcnt), 0,
                     uct_nprdma_ep_iface(&ep->super)->max_bcopy, "am");

    return np_vlink_am_iov(&ep->link, id, header, header_length, list,
                           uct_nprdma_iov(iov, iovcnt, list));
}

static ucs_status_t
uct_nprdma_verbs_ep_am_short_iov(uct_ep_h tl_ep, uint8_t id,
                                 const uct_iov_t *iov, size_t iovcnt)
{
    uct_nprdma_verbs_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_verbs_ep_t);
    ucs_status_t status;

    status = uct_nprdma_verbs_ep_am_gather(ep, id, NULL, 0, iov, iovcnt);
    UCT_TL_EP_STAT_OP_IF_SUCCESS(status, &ep->super.super, AM, SHORT,
                                 uct_iov_total_length(iov, iovcnt));
    return status;
}

static ssize_t
uct_nprdma_verbs_ep_am_bcopy(uct_ep_h tl_ep, uint8_t id,
                             uct_pack_callback_t pack_cb, void *arg,
                             unsigned flags)
{
    uct_nprdma_verbs_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_verbs_ep_t);
    ssize_t length;

    UCT_CHECK_AM_ID(id);
    length = np_vlink_am_bcopy(&ep->link, id, pack_cb, arg);
    if (length >= 0) {
        np_trace(NP_TRACE_MESSAGE, 0, id, length);
        UCT_TL_EP_STAT_OP(&ep->super.super, AM, BCOPY, length);
    }
    return length;
}

static ucs_status_t
uct_nprdma_verbs_ep_am_zcopy(uct_ep_h tl_ep, uint8_t id, const void *header,
                             unsigned header_length, const uct_iov_t *iov,
                             size_t iovcnt, unsigned flags,
                             uct_completion_t *comp)
{
    uct_nprdma_verbs_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_verbs_ep_t);
    ucs_status_t status;

    status = uct_nprdma_verbs_ep_am_gather(ep, id, header, header_length, iov,
                                           iovcnt);
    UCT_TL_EP_STAT_OP_IF_SUCCESS(status, &ep->super.super, AM, ZCOPY,
                                 header_length +
                                 uct_iov_total_length(iov, iovcnt));
    return status;
}

static ucs_status_t
uct_nprdma_verbs_ep_put_short(uct_ep_h tl_ep, const void *buffer,
                              unsigned length, uint64_t remote_addr,
                              uct_rkey_t rkey)
{
    uct_nprdma_verbs_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_verbs_ep_t);
    ucs_status_t status;

    UCT_CHECK_LENGTH(length, 0, uct_nprdma_ep_iface(&ep->super)->max_bcopy,
                     "put_short");
    status = np_ep_put_copied(ep->super.link, (np_key_t*)rkey, buffer, length,
                              remote_addr);
    UCT_TL_EP_STAT_OP_IF_SUCCESS(status, &ep->super.super, PUT, SHORT, length);
    return status;
}

static ucs_status_t
uct_nprdma_verbs_ep_get_bcopy(uct_ep_h tl_ep, uct_unpack_callback_t unpack_cb,
                              void *arg, size_t length, uint64_t remote_addr,
                              uct_rkey_t rkey, uct_completion_t *comp)
{
    uct_nprdma_verbs_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_verbs_ep_t);
    ucs_status_t status;

    UCT_CHECK_LENGTH(length, 0, uct_nprdma_ep_iface(&ep->super)->max_bcopy,
                     "get_bcopy");
    status = np_ep_get_unpack(ep->super.link, (np_key_t*)rkey, length,
                              remote_addr, unpack_cb, arg, comp);
    UCT_TL_EP_STAT_OP_IF_SUCCESS(status, &ep->super.super, GET, BCOPY, length);
    return status;
}

const uct_iface_ops_t uct_nprdma_verbs_ep_ops = {
    .ep_put_short      = uct_nprdma_verbs_ep_put_short,
    .ep_put_bcopy      = uct_nprdma_ep_put_bcopy,
    .ep_put_zcopy      = uct_nprdma_ep_put_zcopy,
    .ep_get_short      = UCT_NPRDMA_UNSUPPORTED(uct_ep_get_short_func_t),
    .ep_get_bcopy      = uct_nprdma_verbs_ep_get_bcopy,
    .ep_get_zcopy      = uct_nprdma_ep_get_zcopy,
    .ep_am_short       = uct_nprdma_verbs_ep_am_short,
    .ep_am_short_iov   = uct_nprdma_verbs_ep_am_short_iov,
    .ep_am_bcopy       = uct_nprdma_verbs_ep_am_bcopy,
    .ep_am_zcopy       = uct_nprdma_verbs_ep_am_zcopy,
    .ep_atomic_cswap64 = uct_nprdma_ep_atomic_cswap64,
    .ep_atomic_cswap32 = uct_nprdma_ep_atomic_cswap32,
    .ep_atomic32_post  = uct_nprdma_ep_atomic32_post,
    .ep_atomic64_post  = uct_nprdma_ep_atomic64_post,
    .ep_atomic32_fetch = uct_nprdma_ep_atomic32_fetch,
    .ep_atomic64_fetch = uct_nprdma_ep_atomic64_fetch,
    .ep_pending_add    = uct_nprdma_ep_pending_add,
    .ep_pending_purge  = uct_nprdma_ep_pending_purge,
    .ep_flush          = uct_nprdma_ep_flush,
    .ep_fence          = uct_nprdma_ep_fence,
    .ep_check          = uct_nprdma_ep_check,
    .ep_create         = UCS_CLASS_NEW_FUNC_NAME(uct_nprdma_verbs_ep_t),
    .ep_destroy        = UCS_CLASS_DELETE_FUNC_NAME(uct_nprdma_verbs_ep_t)
};
