/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Endpoints: what they do in the same way over all devices.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "nprdma.h"


static UCS_F_ALWAYS_INLINE ucs_status_t
uct_nprdma_ep_zcopy(np_dir_t dir, uct_nprdma_ep_t *ep, const uct_iov_t *iov,
                    size_t iovcnt, uint64_t remote_addr, uct_rkey_t rkey,
                    uct_completion_t *comp)
{
    np_iov_t list[NP_MAX_IOV];

    UCT_CHECK_IOV_SIZE(iovcnt, (size_t)NP_MAX_IOV, "zcopy");
    return np_ep_move(dir, ep->link, (np_key_t*)rkey, list,
                      uct_nprdma_iov(iov, iovcnt, list), remote_addr, comp);
}

ucs_status_t
uct_nprdma_ep_put_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt,
                        uint64_t remote_addr, uct_rkey_t rkey,
                        uct_completion_t *comp)
{
    uct_nprdma_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_ep_t);
    ucs_status_t status;

    status = uct_nprdma_ep_zcopy(NP_DIR_PUT, ep, iov, iovcnt, remote_addr,
                                 rkey, comp);
    UCT_TL_EP_STAT_OP_IF_SUCCESS(status, &ep->super, PUT, ZCOPY,
                                 uct_iov_total_length(iov, iovcnt));
    return status;
}

ucs_status_t
uct_nprdma_ep_get_zcopy(uct_ep_h tl_ep, const uct_iov_t *iov, size_t iovcnt,
                        uint64_t remote_addr, uct_rkey_t rkey,
                        uct_completion_t *comp)
{
    uct_nprdma_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_ep_t);
    ucs_status_t status;

    status = uct_nprdma_ep_zcopy(NP_DIR_GET, ep, iov, iovcnt, remote_addr,
                                 rkey, comp);
    UCT_TL_EP_STAT_OP_IF_SUCCESS(status, &ep->super, GET, ZCOPY,
                                 uct_iov_total_length(iov, iovcnt));
    return uct_nprdma_iface_later(uct_nprdma_ep_iface(ep), status, comp);
}

ssize_t
uct_nprdma_ep_put_bcopy(uct_ep_h tl_ep, uct_pack_callback_t pack_cb, void *arg,
                        uint64_t remote_addr, uct_rkey_t rkey)
{
    uct_nprdma_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_ep_t);
    ssize_t length;

    length = np_ep_put_packed(ep->link, (np_key_t*)rkey, pack_cb, arg,
                              remote_addr);
    if (length >= 0) {
        UCT_TL_EP_STAT_OP(&ep->super, PUT, BCOPY, length);
    }
    return length;
}

ucs_status_t
uct_nprdma_ep_check(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp)
{
    uct_nprdma_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_ep_t);

    UCT_NPRDMA_CHECK_PARAM(flags, comp);
    return np_ep_check(ep->link);
}

ucs_status_t
uct_nprdma_ep_flush(uct_ep_h tl_ep, unsigned flags, uct_completion_t *comp)
{
    uct_nprdma_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_ep_t);
    ucs_status_t status;

    if (flags & UCT_FLUSH_FLAG_CANCEL) {
        uct_nprdma_iface_end_later(uct_nprdma_ep_iface(ep));
        np_ep_cancel(ep->link, UCS_ERR_CANCELED);
        return UCS_OK;
    }

    status = uct_nprdma_flushed(uct_nprdma_ep_iface(ep),
                                np_ep_flush(ep->link, comp), comp);
    if (status == UCS_INPROGRESS) {
        UCT_TL_EP_STAT_FLUSH_WAIT(&ep->super);
    } else {
        UCT_TL_EP_STAT_FLUSH(&ep->super);
    }
    return status;
}

ucs_status_t uct_nprdma_ep_fence(uct_ep_h tl_ep, unsigned flags)
{
    uct_nprdma_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_ep_t);

    ++ep->fences;
    np_ep_fence(ep->link);
    UCT_TL_EP_STAT_FENCE(&ep->super);
    return UCS_OK;
}

static np_atomic_op_t uct_nprdma_atomic_op(unsigned opcode)
{
    switch (opcode) {
    case UCT_ATOMIC_OP_ADD:
        return NP_ATOMIC_ADD;
    case UCT_ATOMIC_OP_AND:
        return NP_ATOMIC_AND;
    case UCT_ATOMIC_OP_OR:
        return NP_ATOMIC_OR;
    case UCT_ATOMIC_OP_XOR:
        return NP_ATOMIC_XOR;
    case UCT_ATOMIC_OP_SWAP:
        return NP_ATOMIC_SWAP;
    default:
        return NP_ATOMIC_LAST;
    }
}

static ucs_status_t
uct_nprdma_ep_atomic(uct_ep_h tl_ep, np_atomic_op_t op, size_t size,
                     uint64_t value, uint64_t compare, uint64_t remote_addr,
                     uct_rkey_t rkey, void *result, uct_completion_t *comp)
{
    uct_nprdma_ep_t *ep = ucs_derived_of(tl_ep, uct_nprdma_ep_t);
    np_atomic_t request = {
        .addr    = remote_addr,
        .value   = value,
        .compare = compare,
        .op      = op,
        .size    = size
    };

    if (op == NP_ATOMIC_LAST) {
        return UCS_ERR_UNSUPPORTED;
    }

    UCT_TL_EP_STAT_ATOMIC(&ep->super);
    return np_ep_atomic(ep->link, (np_key_t*)rkey, &request, result, comp);
}

ucs_status_t
uct_nprdma_ep_atomic_cswap64(uct_ep_h ep, uint64_t compare, uint64_t swap,
                             uint64_t remote_addr, uct_rkey_t rkey,
                             uint64_t *result, uct_completion_t *comp)
{
    return uct_nprdma_ep_atomic(ep, NP_ATOMIC_CSWAP, sizeof(uint64_t), swap,
                                compare, remote_addr, rkey, result, comp);
}

ucs_status_t
uct_nprdma_ep_atomic_cswap32(uct_ep_h ep, uint32_t compare, uint32_t swap,
                             uint64_t remote_addr, uct_rkey_t rkey,
                             uint32_t *result, uct_completion_t *comp)
{
    return uct_nprdma_ep_atomic(ep, NP_ATOMIC_CSWAP, sizeof(uint32_t), swap,
                                compare, remote_addr, rkey, result, comp);
}

ucs_status_t
uct_nprdma_ep_atomic64_post(uct_ep_h ep, unsigned opcode, uint64_t value,
                            uint64_t remote_addr, uct_rkey_t rkey)
{
    return uct_nprdma_ep_atomic(ep, uct_nprdma_atomic_op(opcode),
                                sizeof(uint64_t), value, 0, remote_addr, rkey,
                                NULL, NULL);
}

ucs_status_t
uct_nprdma_ep_atomic32_post(uct_ep_h ep, unsigned opcode, uint32_t value,
                            uint64_t remote_addr, uct_rkey_t rkey)
{
    return uct_nprdma_ep_atomic(ep, uct_nprdma_atomic_op(opcode),
                                sizeof(uint32_t), value, 0, remote_addr, rkey,
                                NULL, NULL);
}

ucs_status_t
uct_nprdma_ep_atomic64_fetch(uct_ep_h ep, unsigned opcode, uint64_t value,
                             uint64_t *result, uint64_t remote_addr,
                             uct_rkey_t rkey, uct_completion_t *comp)
{
    return uct_nprdma_ep_atomic(ep, uct_nprdma_atomic_op(opcode),
                                sizeof(uint64_t), value, 0, remote_addr, rkey,
                                result, comp);
}

ucs_status_t
uct_nprdma_ep_atomic32_fetch(uct_ep_h ep, unsigned opcode, uint32_t value,
                             uint32_t *result, uint64_t remote_addr,
                             uct_rkey_t rkey, uct_completion_t *comp)
{
    return uct_nprdma_ep_atomic(ep, uct_nprdma_atomic_op(opcode),
                                sizeof(uint32_t), value, 0, remote_addr, rkey,
                                result, comp);
}
