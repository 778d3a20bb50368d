/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Endpoints: atomics.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "nprdma.h"


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

    if (op == NP_ATOMIC_LAST) {
        return UCS_ERR_UNSUPPORTED;
    }

    UCT_TL_EP_STAT_ATOMIC(&ep->super);
    return uct_nprdma_ep_iface(ep)->device->atomic(ep, (np_key_t*)rkey, op,
                                                   size, value, compare,
                                                   remote_addr, result, comp);
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
