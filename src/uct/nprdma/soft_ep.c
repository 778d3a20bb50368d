/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Endpoints of soft0: UCT's operations in the engine's words. What all devices
 * have in common is in ep.c, what waits for room in pending.c.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "soft.h"

#include "../../nprdma/face/soft.h"
#include "../../nprdma/mem/bypass.h"

/* Payload of an active message that fits into a slot beside UCT's header */
#define UCT_NPRDMA_AM_INLINE  (NP_SLOT_INLINE - sizeof(uint64_t))


static UCS_CLASS_INIT_FUNC(uct_nprdma_soft_ep_t, const uct_ep_params_t *params)
{
    uct_nprdma_soft_iface_t *iface = ucs_derived_of(params->iface,
                                                    uct_nprdma_soft_iface_t);

    UCS_CLASS_CALL_SUPER_INIT(uct_nprdma_ep_t, params, &self->link.flight);

    np_link_init(&self->link, iface->port,
                 (const np_port_addr_t*)params->iface_addr);
    return UCS_OK;
}

static UCS_CLASS_CLEANUP_FUNC(uct_nprdma_soft_ep_t)
{
    uct_nprdma_ep_pending_purge(&self->super.super.super, NULL, NULL);
    np_ep_close(&self->link.flight);
}

UCS_CLASS_DEFINE(uct_nprdma_soft_ep_t, uct_nprdma_ep_t)
static UCS_CLASS_DEFINE_NEW_FUNC(uct_nprdma_soft_ep_t, uct_ep_t,
                                 const uct_ep_params_t*);
static UCS_CLASS_DEFINE_DELETE_FUNC(uct_nprdma_soft_ep_t, uct_ep_t);

void uct_nprdma_soft_ep_link_down(np_flight_t *flight, ucs_status_t status)
{
    uct_nprdma_soft_ep_t *ep = ucs_container_of(flight, uct_nprdma_soft_ep_t,
                                                link.flight);
    char peer[32];

    ucs_snprintf_zero(peer, sizeof(peer), "process %d", ep->link.process.pid);
    uct_nprdma_ep_failed(&ep->super, status, peer);
}

static UCS_F_ALWAYS_INLINE void
uct_nprdma_fill_short(int is_past, void *dst, uint64_t header,
                      const void *payload, unsigned length)
{
    memcpy(dst, &header, sizeof(header));
    if (length > 0) { /* else payload may be NULL */
        np_bypass_copy_if(is_past, UCS_PTR_BYTE_OFFSET(dst, sizeof(header)),
                          payload, length);
    }
}

/* Copy the buffers of a list end to end. An empty buffer may be at NULL. */
static UCS_F_ALWAYS_INLINE void
uct_nprdma_pack_iov(const np_link_t *link, void *dst, const uct_iov_t *iov,
                    size_t iovcnt)
{
    size_t i, len;

    for (i = 0; i < iovcnt; ++i) {
        len = uct_iov_get_length(&iov[i]);
        if (len > 0) {
            np_bypass_copy_if(link->fill.is_past, dst, iov[i].buffer, len);
            dst = UCS_PTR_BYTE_OFFSET(dst, len);
        }
    }
}

static ucs_status_t
uct_nprdma_soft_ep_am_short(uct_ep_h tl_ep, uint8_t id, uint64_t header,
                            const void *payload, unsigned length)
{
    uct_nprdma_soft_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_soft_ep_t);
    size_t total        = sizeof(header) + length;
    ucs_status_t status;
    np_slot_t *slot;
    uint32_t start;
    void *data;

    UCT_CHECK_AM_ID(id);
    UCT_CHECK_LENGTH(total, 0, uct_nprdma_ep_iface(&ep->super)->max_bcopy,
                     "am_short");

    if (ucs_likely(length <= UCT_NPRDMA_AM_INLINE)) {
        status = np_soft_reserve_inline(&ep->link, &slot);
        if (ucs_unlikely(status != UCS_OK)) {
            goto no_resource;
        }

        uct_nprdma_fill_short(0, slot->data, header, payload, length);
        np_fast_send_inline(&ep->link, slot, id, total);
    } else {
        status = np_soft_reserve(&ep->link, total, &data, &start);
        if (ucs_unlikely(status != UCS_OK)) {
            goto no_resource;
        }

        uct_nprdma_fill_short(ep->link.fill.is_past, data, header, payload,
                              length);
        np_fast_send(&ep->link, id, start, total);
    }

    UCT_TL_EP_STAT_OP(&ep->super.super, AM, SHORT, total);
    return UCS_OK;

no_resource:
    UCS_STATS_UPDATE_COUNTER(ep->super.super.stats, UCT_EP_STAT_NO_RES, 1);
    return status;
}

static ucs_status_t
uct_nprdma_soft_ep_am_short_iov(uct_ep_h tl_ep, uint8_t id,
                                const uct_iov_t *iov, size_t iovcnt)
{
    uct_nprdma_soft_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_soft_ep_t);
    size_t total        = uct_iov_total_length(iov, iovcnt);
    ucs_status_t status;
    np_slot_t *slot;
    uint32_t start;
    void *data;

    UCT_CHECK_AM_ID(id);
    UCT_CHECK_IOV_SIZE(iovcnt, (size_t)NP_MAX_IOV, "am_short_iov");
    UCT_CHECK_LENGTH(total, 0, uct_nprdma_ep_iface(&ep->super)->max_bcopy,
                     "am_short_iov");

    if (total <= NP_SLOT_INLINE) {
        status = np_soft_reserve_inline(&ep->link, &slot);
        if (status == UCS_OK) {
            uct_nprdma_pack_iov(&ep->link, slot->data, iov, iovcnt);
            np_fast_send_inline(&ep->link, slot, id, total);
        }
    } else {
        status = np_soft_reserve(&ep->link, total, &data, &start);
        if (status == UCS_OK) {
            uct_nprdma_pack_iov(&ep->link, data, iov, iovcnt);
            np_fast_send(&ep->link, id, start, total);
        }
    }

    UCT_TL_EP_STAT_OP_IF_SUCCESS(status, &ep->super.super, AM, SHORT, total);
    return status;
}

/* Which stores the program packs with is not ours to say: into lines of our
 * own, and from there */
static size_t
uct_nprdma_soft_ep_pack_past(uct_nprdma_soft_ep_t *ep, void *data,
                             uct_pack_callback_t pack_cb, void *arg)
{
    uct_nprdma_soft_iface_t *iface = uct_nprdma_soft_ep_iface(ep);
    void *packed = UCS_PTR_BYTE_OFFSET(iface->packed, NP_FAST_SKEW);
    size_t length;

    if (ucs_unlikely(iface->is_packing)) {
        return pack_cb(data, arg); /* the program sends while it packs */
    }

    iface->is_packing = 1;
    length            = pack_cb(packed, arg);
    iface->is_packing = 0;
    np_bypass_copy_if(1, data, packed, length);
    return length;
}

static ssize_t
uct_nprdma_soft_ep_am_bcopy(uct_ep_h tl_ep, uint8_t id,
                            uct_pack_callback_t pack_cb, void *arg,
                            unsigned flags)
{
    uct_nprdma_soft_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_soft_ep_t);
    ucs_status_t status;
    uint32_t start;
    size_t length;
    void *data;

    UCT_CHECK_AM_ID(id);

    status = np_soft_reserve(&ep->link,
                           uct_nprdma_ep_iface(&ep->super)->max_bcopy, &data,
                           &start);
    if (ucs_unlikely(status != UCS_OK)) {
        UCS_STATS_UPDATE_COUNTER(ep->super.super.stats, UCT_EP_STAT_NO_RES, 1);
        return status;
    }

    length = ucs_likely(!ep->link.fill.is_past) ? pack_cb(data, arg) :
             uct_nprdma_soft_ep_pack_past(ep, data, pack_cb, arg);
    np_assertv(length <= uct_nprdma_ep_iface(&ep->super)->max_bcopy,
               "%zu bytes were packed", length);
    np_fast_send(&ep->link, id, start, length);
    UCT_TL_EP_STAT_OP(&ep->super.super, AM, BCOPY, length);
    return length;
}

static ucs_status_t
uct_nprdma_soft_ep_am_zcopy(uct_ep_h tl_ep, uint8_t id, const void *header,
                            unsigned header_length, const uct_iov_t *iov,
                            size_t iovcnt, unsigned flags,
                            uct_completion_t *comp)
{
    uct_nprdma_soft_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_soft_ep_t);
    size_t total        = header_length + uct_iov_total_length(iov, iovcnt);
    ucs_status_t status;
    uint32_t start;
    void *data;

    UCT_CHECK_AM_ID(id);
    UCT_CHECK_IOV_SIZE(iovcnt, (size_t)NP_MAX_IOV, "am_zcopy");
    UCT_CHECK_LENGTH(header_length, 0,
                     uct_nprdma_iface_max_hdr(uct_nprdma_ep_iface(&ep->super)),
                     "am_zcopy header");
    UCT_CHECK_LENGTH(total, 0, uct_nprdma_ep_iface(&ep->super)->max_bcopy,
                     "am_zcopy");

    status = np_soft_reserve(&ep->link, total, &data, &start);
    if (ucs_unlikely(status != UCS_OK)) {
        UCS_STATS_UPDATE_COUNTER(ep->super.super.stats, UCT_EP_STAT_NO_RES, 1);
        return status;
    }

    if (header_length > 0) {
        memcpy(data, header, header_length);
    }
    uct_nprdma_pack_iov(&ep->link, UCS_PTR_BYTE_OFFSET(data, header_length),
                        iov, iovcnt);
    np_fast_send(&ep->link, id, start, total);
    UCT_TL_EP_STAT_OP(&ep->super.super, AM, ZCOPY, total);
    return UCS_OK; /* copied: the buffer is free */
}

static ucs_status_t
uct_nprdma_soft_ep_put_short(uct_ep_h tl_ep, const void *buffer,
                             unsigned length, uint64_t remote_addr,
                             uct_rkey_t rkey)
{
    uct_nprdma_soft_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_soft_ep_t);
    ucs_status_t status;

    UCT_CHECK_LENGTH(length, 0, uct_nprdma_ep_iface(&ep->super)->max_bcopy,
                     "put_short");
    status = np_soft_put_short(&ep->link, (np_key_t*)rkey, buffer, length,
                              remote_addr);
    UCT_TL_EP_STAT_OP_IF_SUCCESS(status, &ep->super.super, PUT, SHORT, length);
    return status;
}

static ucs_status_t
uct_nprdma_soft_ep_get_short(uct_ep_h tl_ep, void *buffer, unsigned length,
                             uint64_t remote_addr, uct_rkey_t rkey)
{
    uct_nprdma_soft_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_soft_ep_t);
    ucs_status_t status;

    UCT_CHECK_LENGTH(length, 0, uct_nprdma_ep_iface(&ep->super)->max_bcopy,
                     "get_short");
    status = np_rma_get_now(&ep->link, (np_key_t*)rkey, buffer, length,
                            remote_addr);
    UCT_TL_EP_STAT_OP_IF_SUCCESS(status, &ep->super.super, GET, SHORT, length);
    return status;
}

static ucs_status_t
uct_nprdma_soft_ep_get_bcopy(uct_ep_h tl_ep, uct_unpack_callback_t unpack_cb,
                             void *arg, size_t length, uint64_t remote_addr,
                             uct_rkey_t rkey, uct_completion_t *comp)
{
    uct_nprdma_soft_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_soft_ep_t);
    ucs_status_t status;

    UCT_CHECK_LENGTH(length, 0, uct_nprdma_ep_iface(&ep->super)->max_bcopy,
                     "get_bcopy");
    status = np_soft_get_bcopy(&ep->link, (np_key_t*)rkey, length, remote_addr,
                              unpack_cb, arg, comp);
    UCT_TL_EP_STAT_OP_IF_SUCCESS(status, &ep->super.super, GET, BCOPY, length);
    return status;
}

const uct_iface_ops_t uct_nprdma_soft_ep_ops = {
    .ep_put_short      = uct_nprdma_soft_ep_put_short,
    .ep_put_bcopy      = uct_nprdma_ep_put_bcopy,
    .ep_put_zcopy      = uct_nprdma_ep_put_zcopy,
    .ep_get_short      = uct_nprdma_soft_ep_get_short,
    .ep_get_bcopy      = uct_nprdma_soft_ep_get_bcopy,
    .ep_get_zcopy      = uct_nprdma_ep_get_zcopy,
    .ep_am_short       = uct_nprdma_soft_ep_am_short,
    .ep_am_short_iov   = uct_nprdma_soft_ep_am_short_iov,
    .ep_am_bcopy       = uct_nprdma_soft_ep_am_bcopy,
    .ep_am_zcopy       = uct_nprdma_soft_ep_am_zcopy,
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
    .ep_create         = UCS_CLASS_NEW_FUNC_NAME(uct_nprdma_soft_ep_t),
    .ep_destroy        = UCS_CLASS_DELETE_FUNC_NAME(uct_nprdma_soft_ep_t)
};
