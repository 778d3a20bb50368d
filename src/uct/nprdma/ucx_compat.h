/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What differs between UCX versions. This is the only file that knows them.
 *
 * Supported: 1.13, and 1.17 and later. The signatures of those after 1.13 were
 * read in UCX's sources; see docs/design/decisions.md for what CI can compile.
 */

#ifndef UCT_NPRDMA_UCX_COMPAT_H_
#define UCT_NPRDMA_UCX_COMPAT_H_

#include <uct/api/version.h>
#include <uct/base/uct_iface.h>
#include <uct/base/uct_md.h>
#include <uct/base/uct_log.h>
#include <uct/base/uct_iov.inl>

#define UCT_NPRDMA_UCX_AT_LEAST(_major, _minor) \
    (UCT_VERSION(UCT_VERNO_MAJOR, UCT_VERNO_MINOR) >= \
     UCT_VERSION(_major, _minor))

#if UCT_NPRDMA_UCX_AT_LEAST(1, 14) && !UCT_NPRDMA_UCX_AT_LEAST(1, 17)
#  error "nprdma supports UCX 1.13, and 1.17 and later"
#endif

/* UCP's older protocols (UCX_PROTO_ENABLE=n) are the default */
#define UCT_NPRDMA_HAS_OLD_PROTO !UCT_NPRDMA_UCX_AT_LEAST(1, 16)

/* Memory domain: attributes, and parameters that came later */
#if UCT_NPRDMA_UCX_AT_LEAST(1, 17)
typedef uct_md_attr_v2_t uct_nprdma_md_attr_t;
#  define UCT_NPRDMA_MD_CAP(_attr)    (*(_attr))
#  define UCT_NPRDMA_MEM_REG_ARG      const uct_md_mem_reg_params_t *params
#  define UCT_NPRDMA_MKEY_PACK_ARGS   void *address, size_t length,
#  define UCT_NPRDMA_MD_INVALIDATE    (UCT_MD_FLAG_INVALIDATE | \
                                       UCT_MD_FLAG_INVALIDATE_RMA | \
                                       UCT_MD_FLAG_INVALIDATE_AMO)
#  define UCT_NPRDMA_MD_OPS_VERSIONED \
    .mem_attach = (uct_md_mem_attach_func_t) \
            ucs_empty_function_return_unsupported
#  define UCT_NPRDMA_COMPONENT_VERSIONED \
    .rkey_compare = uct_base_rkey_compare,
static inline void uct_nprdma_md_attr_init(uct_nprdma_md_attr_t *attr)
{
    uct_md_base_md_query(attr);
}
#else
typedef uct_md_attr_t uct_nprdma_md_attr_t;
#  define UCT_NPRDMA_MD_CAP(_attr)    ((_attr)->cap)
#  define UCT_NPRDMA_MEM_REG_ARG      unsigned flags
#  define UCT_NPRDMA_MKEY_PACK_ARGS
#  define UCT_NPRDMA_MD_INVALIDATE    UCT_MD_FLAG_INVALIDATE
#  define UCT_NPRDMA_MD_OPS_VERSIONED \
    .is_sockaddr_accessible = (uct_md_is_sockaddr_accessible_func_t) \
            ucs_empty_function_return_zero_int
#  define UCT_NPRDMA_COMPONENT_VERSIONED
static inline void uct_nprdma_md_attr_init(uct_nprdma_md_attr_t *attr)
{
}
#endif

#if UCT_NPRDMA_UCX_AT_LEAST(1, 20)
#  define UCT_NPRDMA_RKEY_UNPACK_ARG  const uct_rkey_unpack_params_t *params,
#  define UCT_NPRDMA_MEM_ALLOC_ARG    ucs_sys_device_t sys_dev,
#else
#  define UCT_NPRDMA_RKEY_UNPACK_ARG
#  define UCT_NPRDMA_MEM_ALLOC_ARG
#endif

/* Interface: a device that leads to other hosts must say so, where asked */
#ifdef UCT_IFACE_FLAG_INTER_NODE
#  define UCT_NPRDMA_FLAG_INTER_NODE  UCT_IFACE_FLAG_INTER_NODE
#else
#  define UCT_NPRDMA_FLAG_INTER_NODE  0
#endif

/* Interface: the internal table. @a _reachable decides about a device
 * address. */
#if UCT_NPRDMA_UCX_AT_LEAST(1, 17)
#  define UCT_NPRDMA_IFACE_REACHABLE(_v1)  uct_base_iface_is_reachable
#  if UCT_NPRDMA_UCX_AT_LEAST(1, 20)
#    define UCT_NPRDMA_QUERY_V2       .iface_query_v2 = uct_iface_base_query_v2,
#  else
#    define UCT_NPRDMA_QUERY_V2
#  endif
#  define UCT_NPRDMA_INTERNAL_OPS_DEFINE(_name, _estimate, _reachable) \
    static int \
    _name##_is_reachable_v2(const uct_iface_h iface, \
                            const uct_iface_is_reachable_params_t *params) \
    { \
        return (params->field_mask & \
                UCT_IFACE_IS_REACHABLE_FIELD_DEVICE_ADDR) && \
               (params->device_addr != NULL) && \
               _reachable(iface, params->device_addr, NULL); \
    } \
    \
    static uct_iface_internal_ops_t _name = { \
        UCT_NPRDMA_QUERY_V2 \
        .iface_estimate_perf   = _estimate, \
        .iface_vfs_refresh     = (uct_iface_vfs_refresh_func_t) \
                                 ucs_empty_function, \
        .ep_query              = (uct_ep_query_func_t) \
                                 ucs_empty_function_return_unsupported, \
        .ep_invalidate         = (uct_ep_invalidate_func_t) \
                                 ucs_empty_function_return_unsupported, \
        .ep_connect_to_ep_v2   = (uct_ep_connect_to_ep_v2_func_t) \
                                 ucs_empty_function_return_unsupported, \
        .iface_is_reachable_v2 = _name##_is_reachable_v2, \
        .ep_is_connected       = uct_base_ep_is_connected \
    }
#else
#  define UCT_NPRDMA_IFACE_REACHABLE(_v1)  _v1
#  define UCT_NPRDMA_INTERNAL_OPS_DEFINE(_name, _estimate, _reachable) \
    static uct_iface_internal_ops_t _name = { \
        .iface_estimate_perf = _estimate, \
        .iface_vfs_refresh   = (uct_iface_vfs_refresh_func_t) \
                               ucs_empty_function, \
        .ep_query            = (uct_ep_query_func_t) \
                               ucs_empty_function_return_unsupported, \
        .ep_invalidate       = (uct_ep_invalidate_func_t) \
                               ucs_empty_function_return_unsupported \
    }
#endif

#endif
