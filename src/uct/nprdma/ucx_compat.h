/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What differs between UCX versions. This is the only file that knows them.
 *
 * Supported: 1.13, and 1.15 and later. docs/guide/user-guide.md says which were
 * run, and which were only compiled.
 */

#ifndef UCT_NPRDMA_UCX_COMPAT_H_
#define UCT_NPRDMA_UCX_COMPAT_H_

#include <uct/api/version.h>
#include <uct/base/uct_iface.h>
#include <uct/base/uct_md.h>
#include <uct/base/uct_log.h>
#include <uct/base/uct_iov.inl>
#include <ucs/arch/cpu.h>

#define UCT_NPRDMA_UCX_AT_LEAST(_major, _minor) \
    (UCT_VERSION(UCT_VERNO_MAJOR, UCT_VERNO_MINOR) >= \
     UCT_VERSION(_major, _minor))

#if UCT_NPRDMA_UCX_AT_LEAST(1, 14) && !UCT_NPRDMA_UCX_AT_LEAST(1, 15)
#  error "nprdma supports UCX 1.13, and 1.15 and later"
#endif

/* Entry of a table of functions, of this type, that is not offered. By way of a
 * type that fits any function: what is called takes no arguments. */
#define UCT_NPRDMA_STUB(_type, _function) ((_type)(void (*)(void))(_function))
#define UCT_NPRDMA_UNSUPPORTED(_type) \
    UCT_NPRDMA_STUB(_type, ucs_empty_function_return_unsupported)

/* UCP's newer protocols call a user back within the call that has begun a
 * receive, if the data is there at once. No transport of UCX's own has it at
 * once, and MPICH 4.2 crashes: a get must not be complete when it returns. */
#define UCT_NPRDMA_GETS_END_LATER UCT_NPRDMA_UCX_AT_LEAST(1, 16)

/* UCP's older protocols (UCX_PROTO_ENABLE=n) are the default */
#define UCT_NPRDMA_HAS_OLD_PROTO !UCT_NPRDMA_UCX_AT_LEAST(1, 16)

/* Memory domain: attributes, and parameters that came later */
#if UCT_NPRDMA_UCX_AT_LEAST(1, 15)
typedef uct_md_attr_v2_t uct_nprdma_md_attr_t;
#  define UCT_NPRDMA_MD_CAP(_attr) (*(_attr))
#  define UCT_NPRDMA_MEM_REG_ARG   const uct_md_mem_reg_params_t *params
#  define UCT_NPRDMA_MD_INVALIDATE \
    (UCT_MD_FLAG_INVALIDATE | UCT_MD_FLAG_INVALIDATE_RMA | \
     UCT_MD_FLAG_INVALIDATE_AMO)
#  define UCT_NPRDMA_MD_OPS_ATTACH \
    .mem_attach = UCT_NPRDMA_UNSUPPORTED(uct_md_mem_attach_func_t),
#else
typedef uct_md_attr_t uct_nprdma_md_attr_t;
#  define UCT_NPRDMA_MD_CAP(_attr) ((_attr)->cap)
#  define UCT_NPRDMA_MEM_REG_ARG   unsigned flags
#  define UCT_NPRDMA_MD_INVALIDATE UCT_MD_FLAG_INVALIDATE
#  define UCT_NPRDMA_MD_OPS_ATTACH
#endif

#if UCT_NPRDMA_UCX_AT_LEAST(1, 16)
#  define UCT_NPRDMA_MKEY_PACK_ARGS void *address, size_t length,
#  define UCT_NPRDMA_MD_OPS_SOCKADDR
#  define UCT_NPRDMA_COMPONENT_VERSIONED \
    .rkey_compare = uct_nprdma_rkey_compare,
/* A function of the component: keys by what @a _compare says of them */
#  define UCT_NPRDMA_RKEY_COMPARE(_name, _type, _compare) \
    static ucs_status_t \
    _name(uct_component_t *component, uct_rkey_t rkey1, uct_rkey_t rkey2, \
          const uct_rkey_compare_params_t *params, int *result) \
    { \
        if ((params->field_mask != 0) || (result == NULL)) { \
            return UCS_ERR_INVALID_PARAM; \
        } \
        *result = _compare((const _type*)rkey1, (const _type*)rkey2); \
        return UCS_OK; \
    }
#else
#  define UCT_NPRDMA_MKEY_PACK_ARGS
#  define UCT_NPRDMA_MD_OPS_SOCKADDR \
    .is_sockaddr_accessible = \
            UCT_NPRDMA_STUB(uct_md_is_sockaddr_accessible_func_t, \
                            ucs_empty_function_return_zero_int),
#  define UCT_NPRDMA_COMPONENT_VERSIONED
#  define UCT_NPRDMA_RKEY_COMPARE(_name, _type, _compare)
#endif

/* UCP may ask its cache for what can be registered. Where it does, it must: its
 * assertions say so. */
static inline void uct_nprdma_md_attr_init(uct_nprdma_md_attr_t *attr)
{
#if UCT_NPRDMA_UCX_AT_LEAST(1, 17)
    uct_md_base_md_query(attr);
#endif
#if UCT_NPRDMA_UCX_AT_LEAST(1, 15)
    attr->cache_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
#endif
}

#if UCT_NPRDMA_UCX_AT_LEAST(1, 19)
#  define UCT_NPRDMA_RKEY_UNPACK_ARG const uct_rkey_unpack_params_t *params,
#  define UCT_NPRDMA_MEM_ALLOC_ARG   ucs_sys_device_t sys_dev,
#else
#  define UCT_NPRDMA_RKEY_UNPACK_ARG
#  define UCT_NPRDMA_MEM_ALLOC_ARG
#endif

#if UCT_NPRDMA_UCX_AT_LEAST(1, 21)
#  define UCT_NPRDMA_MD_OPS_ELEM_PACK \
    .mem_elem_pack = UCT_NPRDMA_UNSUPPORTED(uct_md_mem_elem_pack_func_t),
#else
#  define UCT_NPRDMA_MD_OPS_ELEM_PACK
#endif

#if UCT_NPRDMA_UCX_AT_LEAST(1, 23)
#  define UCT_NPRDMA_MD_OPS_ELEM_RELEASE \
    .mem_elem_release = UCT_NPRDMA_STUB(uct_md_mem_elem_release_func_t, \
                                        ucs_empty_function),
#else
#  define UCT_NPRDMA_MD_OPS_ELEM_RELEASE
#endif

#define UCT_NPRDMA_MD_OPS_VERSIONED \
    UCT_NPRDMA_MD_OPS_ATTACH \
    UCT_NPRDMA_MD_OPS_SOCKADDR \
    UCT_NPRDMA_MD_OPS_ELEM_PACK \
    UCT_NPRDMA_MD_OPS_ELEM_RELEASE

/* Bytes a second of a copy, which the older protocols reckon with */
static inline double uct_nprdma_memcpy_bw(void)
{
#if UCT_NPRDMA_UCX_AT_LEAST(1, 18)
    return 8.0 * UCS_GBYTE; /* they are not the default, and have their own */
#else
    return ucs_cpu_get_memcpy_bw();
#endif
}

/* Endpoint: from 1.22 on the check may have a completion, which is needed only
 * if it goes on */
#if UCT_NPRDMA_UCX_AT_LEAST(1, 22)
#  define UCT_NPRDMA_CHECK_PARAM(_flags, _comp) \
    UCT_EP_KEEPALIVE_CHECK_PARAM(_flags)
#else
#  define UCT_NPRDMA_CHECK_PARAM(_flags, _comp) \
    UCT_EP_KEEPALIVE_CHECK_PARAM(_flags, _comp)
#endif

/* Interface: a device that leads to other hosts must say so, where asked */
#ifdef UCT_IFACE_FLAG_INTER_NODE
#  define UCT_NPRDMA_FLAG_INTER_NODE  UCT_IFACE_FLAG_INTER_NODE
#else
#  define UCT_NPRDMA_FLAG_INTER_NODE  0
#endif

/* Interface: entries of the internal table that came later */
#if UCT_NPRDMA_UCX_AT_LEAST(1, 15)
#  define UCT_NPRDMA_OPS_CONNECT \
    .ep_connect_to_ep_v2 = \
            UCT_NPRDMA_UNSUPPORTED(uct_ep_connect_to_ep_v2_func_t),
#  define UCT_NPRDMA_OPS_REACHABLE(_function) \
    .iface_is_reachable_v2 = _function,
#else
#  define UCT_NPRDMA_OPS_CONNECT
#  define UCT_NPRDMA_OPS_REACHABLE(_function)
#endif

#if UCT_NPRDMA_UCX_AT_LEAST(1, 16)
#  define UCT_NPRDMA_IFACE_REACHABLE(_v1) uct_base_iface_is_reachable
#  define UCT_NPRDMA_OPS_CONNECTED \
    .ep_is_connected = uct_base_ep_is_connected,
#else
#  define UCT_NPRDMA_IFACE_REACHABLE(_v1) _v1
#  define UCT_NPRDMA_OPS_CONNECTED
#endif

#if UCT_NPRDMA_UCX_AT_LEAST(1, 20)
#  define UCT_NPRDMA_OPS_DEVICE \
    .ep_get_device_ep = UCT_NPRDMA_UNSUPPORTED(uct_ep_get_device_ep_func_t),
#else
#  define UCT_NPRDMA_OPS_DEVICE
#endif

/* 1.21 has none */
#if UCT_NPRDMA_UCX_AT_LEAST(1, 22) || \
    (UCT_NPRDMA_UCX_AT_LEAST(1, 20) && !UCT_NPRDMA_UCX_AT_LEAST(1, 21))
#  define UCT_NPRDMA_OPS_QUERY .iface_query_v2 = uct_iface_base_query_v2,
#else
#  define UCT_NPRDMA_OPS_QUERY
#endif

/* 1.20 alone */
#if UCT_NPRDMA_UCX_AT_LEAST(1, 20) && !UCT_NPRDMA_UCX_AT_LEAST(1, 21)
#  define UCT_NPRDMA_OPS_ELEMENT \
    .iface_mem_element_pack = \
            UCT_NPRDMA_UNSUPPORTED(uct_iface_mem_element_pack_func_t),
#else
#  define UCT_NPRDMA_OPS_ELEMENT
#endif

#if UCT_NPRDMA_UCX_AT_LEAST(1, 22)
#  define UCT_NPRDMA_OPS_PUT_SGL \
    .ep_put_sgl_zcopy = UCT_NPRDMA_UNSUPPORTED(uct_ep_put_sgl_zcopy_func_t),
#else
#  define UCT_NPRDMA_OPS_PUT_SGL
#endif

#if UCT_NPRDMA_UCX_AT_LEAST(1, 23)
#  define UCT_NPRDMA_OPS_GET_SGL \
    .ep_get_sgl_zcopy = UCT_NPRDMA_UNSUPPORTED(uct_ep_get_sgl_zcopy_func_t), \
    .ep_outstanding_purge = \
            UCT_NPRDMA_STUB(uct_ep_outstanding_purge_func_t, \
                            ucs_empty_function),
#else
#  define UCT_NPRDMA_OPS_GET_SGL
#endif

/* Interface: the internal table. @a _reachable decides about a device
 * address. */
#if UCT_NPRDMA_UCX_AT_LEAST(1, 15)
#  define UCT_NPRDMA_REACHABLE_DEFINE(_name, _reachable) \
    static int _name(const uct_iface_h iface, \
                     const uct_iface_is_reachable_params_t *params) \
    { \
        return (params->field_mask & \
                UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR) && \
               (params->device_addr != NULL) && \
               _reachable(iface, params->device_addr, NULL); \
    }
#else
#  define UCT_NPRDMA_REACHABLE_DEFINE(_name, _reachable)
#endif

#define UCT_NPRDMA_INTERNAL_OPS_DEFINE(_name, _estimate, _reachable) \
    UCT_NPRDMA_REACHABLE_DEFINE(_name##_is_reachable_v2, _reachable) \
    \
    static uct_iface_internal_ops_t _name = { \
        UCT_NPRDMA_OPS_QUERY \
        UCT_NPRDMA_OPS_ELEMENT \
        UCT_NPRDMA_OPS_CONNECT \
        UCT_NPRDMA_OPS_REACHABLE(_name##_is_reachable_v2) \
        UCT_NPRDMA_OPS_CONNECTED \
        UCT_NPRDMA_OPS_DEVICE \
        UCT_NPRDMA_OPS_PUT_SGL \
        UCT_NPRDMA_OPS_GET_SGL \
        .iface_estimate_perf = _estimate, \
        .iface_vfs_refresh   = UCT_NPRDMA_STUB(uct_iface_vfs_refresh_func_t, \
                                               ucs_empty_function), \
        .ep_query            = UCT_NPRDMA_UNSUPPORTED(uct_ep_query_func_t), \
        .ep_invalidate       = \
                UCT_NPRDMA_UNSUPPORTED(uct_ep_invalidate_func_t) \
    }

#endif
