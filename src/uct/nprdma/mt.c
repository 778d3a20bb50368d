/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Multi-threaded workers: the same operations, under the interface's lock.
 * Workers of one thread have a table without these and pay nothing. The lock
 * is recursive, since callbacks run under it and may start operations.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "nprdma.h"

#define UCT_NPRDMA_MT_CALL(_tl_iface, _type, _call) \
    ({ \
        uct_nprdma_iface_t *_iface = ucs_derived_of(_tl_iface, \
                                                    uct_nprdma_iface_t); \
        _type _ret; \
        \
        ucs_recursive_spin_lock(&_iface->lock); \
        _ret = _iface->ops._call; \
        ucs_recursive_spin_unlock(&_iface->lock); \
        _ret; \
    })

/* An operation of an endpoint: name, type, parameters and arguments */
#define UCT_NPRDMA_MT_EP(_type, _name, _args, ...) \
    static _type uct_nprdma_mt_##_name(uct_ep_h ep, ## __VA_ARGS__) \
    { \
        return UCT_NPRDMA_MT_CALL(ep->iface, _type, _name _args); \
    }

#define UCT_NPRDMA_MT_IFACE(_type, _name, _args, ...) \
    static _type uct_nprdma_mt_##_name(uct_iface_h iface, ## __VA_ARGS__) \
    { \
        return UCT_NPRDMA_MT_CALL(iface, _type, _name _args); \
    }


UCT_NPRDMA_MT_EP(ucs_status_t, ep_put_short, (ep, buffer, length, addr, rkey),
                 const void *buffer, unsigned length, uint64_t addr,
                 uct_rkey_t rkey)
UCT_NPRDMA_MT_EP(ssize_t, ep_put_bcopy, (ep, pack_cb, arg, addr, rkey),
                 uct_pack_callback_t pack_cb, void *arg, uint64_t addr,
                 uct_rkey_t rkey)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_put_zcopy, (ep, iov, iovcnt, addr, rkey,
                                              comp),
                 const uct_iov_t *iov, size_t iovcnt, uint64_t addr,
                 uct_rkey_t rkey, uct_completion_t *comp)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_get_short, (ep, buffer, length, addr, rkey),
                 void *buffer, unsigned length, uint64_t addr, uct_rkey_t rkey)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_get_bcopy, (ep, unpack_cb, arg, length, addr,
                                              rkey, comp),
                 uct_unpack_callback_t unpack_cb, void *arg, size_t length,
                 uint64_t addr, uct_rkey_t rkey, uct_completion_t *comp)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_get_zcopy, (ep, iov, iovcnt, addr, rkey,
                                              comp),
                 const uct_iov_t *iov, size_t iovcnt, uint64_t addr,
                 uct_rkey_t rkey, uct_completion_t *comp)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_am_short, (ep, id, header, payload, length),
                 uint8_t id, uint64_t header, const void *payload,
                 unsigned length)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_am_short_iov, (ep, id, iov, iovcnt),
                 uint8_t id, const uct_iov_t *iov, size_t iovcnt)
UCT_NPRDMA_MT_EP(ssize_t, ep_am_bcopy, (ep, id, pack_cb, arg, flags),
                 uint8_t id, uct_pack_callback_t pack_cb, void *arg,
                 unsigned flags)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_am_zcopy, (ep, id, header, header_length,
                                             iov, iovcnt, flags, comp),
                 uint8_t id, const void *header, unsigned header_length,
                 const uct_iov_t *iov, size_t iovcnt, unsigned flags,
                 uct_completion_t *comp)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_atomic_cswap64, (ep, compare, swap, addr,
                                                   rkey, result, comp),
                 uint64_t compare, uint64_t swap, uint64_t addr,
                 uct_rkey_t rkey, uint64_t *result, uct_completion_t *comp)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_atomic_cswap32, (ep, compare, swap, addr,
                                                   rkey, result, comp),
                 uint32_t compare, uint32_t swap, uint64_t addr,
                 uct_rkey_t rkey, uint32_t *result, uct_completion_t *comp)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_atomic32_post, (ep, op, value, addr, rkey),
                 unsigned op, uint32_t value, uint64_t addr, uct_rkey_t rkey)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_atomic64_post, (ep, op, value, addr, rkey),
                 unsigned op, uint64_t value, uint64_t addr, uct_rkey_t rkey)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_atomic32_fetch, (ep, op, value, result, addr,
                                                   rkey, comp),
                 unsigned op, uint32_t value, uint32_t *result, uint64_t addr,
                 uct_rkey_t rkey, uct_completion_t *comp)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_atomic64_fetch, (ep, op, value, result, addr,
                                                   rkey, comp),
                 unsigned op, uint64_t value, uint64_t *result, uint64_t addr,
                 uct_rkey_t rkey, uct_completion_t *comp)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_pending_add, (ep, req, flags),
                 uct_pending_req_t *req, unsigned flags)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_flush, (ep, flags, comp), unsigned flags,
                 uct_completion_t *comp)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_fence, (ep, flags), unsigned flags)
UCT_NPRDMA_MT_EP(ucs_status_t, ep_check, (ep, flags, comp), unsigned flags,
                 uct_completion_t *comp)

UCT_NPRDMA_MT_IFACE(ucs_status_t, iface_flush, (iface, flags, comp),
                    unsigned flags, uct_completion_t *comp)
UCT_NPRDMA_MT_IFACE(ucs_status_t, iface_fence, (iface, flags), unsigned flags)
UCT_NPRDMA_MT_IFACE(unsigned, iface_progress, (iface))
UCT_NPRDMA_MT_IFACE(ucs_status_t, iface_event_arm, (iface, events),
                    unsigned events)

static void
uct_nprdma_mt_ep_pending_purge(uct_ep_h ep, uct_pending_purge_callback_t cb,
                               void *arg)
{
    uct_nprdma_iface_t *iface = ucs_derived_of(ep->iface, uct_nprdma_iface_t);

    ucs_recursive_spin_lock(&iface->lock);
    iface->ops.ep_pending_purge(ep, cb, arg);
    ucs_recursive_spin_unlock(&iface->lock);
}

static ucs_status_t
uct_nprdma_mt_ep_create(const uct_ep_params_t *params, uct_ep_h *ep_p)
{
    return UCT_NPRDMA_MT_CALL(params->iface, ucs_status_t,
                              ep_create(params, ep_p));
}

static void uct_nprdma_mt_ep_destroy(uct_ep_h ep)
{
    uct_nprdma_iface_t *iface = ucs_derived_of(ep->iface, uct_nprdma_iface_t);

    ucs_recursive_spin_lock(&iface->lock);
    iface->ops.ep_destroy(ep);
    ucs_recursive_spin_unlock(&iface->lock);
}

#define UCT_NPRDMA_MT_SET(_ops, _name) \
    (_ops)->_name = uct_nprdma_mt_##_name

void uct_nprdma_mt_wrap(uct_iface_ops_t *ops)
{
    UCT_NPRDMA_MT_SET(ops, ep_put_short);
    UCT_NPRDMA_MT_SET(ops, ep_put_bcopy);
    UCT_NPRDMA_MT_SET(ops, ep_put_zcopy);
    UCT_NPRDMA_MT_SET(ops, ep_get_short);
    UCT_NPRDMA_MT_SET(ops, ep_get_bcopy);
    UCT_NPRDMA_MT_SET(ops, ep_get_zcopy);
    UCT_NPRDMA_MT_SET(ops, ep_am_short);
    UCT_NPRDMA_MT_SET(ops, ep_am_short_iov);
    UCT_NPRDMA_MT_SET(ops, ep_am_bcopy);
    UCT_NPRDMA_MT_SET(ops, ep_am_zcopy);
    UCT_NPRDMA_MT_SET(ops, ep_atomic_cswap64);
    UCT_NPRDMA_MT_SET(ops, ep_atomic_cswap32);
    UCT_NPRDMA_MT_SET(ops, ep_atomic32_post);
    UCT_NPRDMA_MT_SET(ops, ep_atomic64_post);
    UCT_NPRDMA_MT_SET(ops, ep_atomic32_fetch);
    UCT_NPRDMA_MT_SET(ops, ep_atomic64_fetch);
    UCT_NPRDMA_MT_SET(ops, ep_pending_add);
    UCT_NPRDMA_MT_SET(ops, ep_pending_purge);
    UCT_NPRDMA_MT_SET(ops, ep_flush);
    UCT_NPRDMA_MT_SET(ops, ep_fence);
    UCT_NPRDMA_MT_SET(ops, ep_check);
    UCT_NPRDMA_MT_SET(ops, ep_create);
    UCT_NPRDMA_MT_SET(ops, ep_destroy);
    UCT_NPRDMA_MT_SET(ops, iface_flush);
    UCT_NPRDMA_MT_SET(ops, iface_fence);
    UCT_NPRDMA_MT_SET(ops, iface_progress);
    UCT_NPRDMA_MT_SET(ops, iface_event_arm);
}
