/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Interfaces: a port of the engine, and its progress.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "nprdma.h"

#include "../../nprdma/dev/soft/host.h"
#include "../../nprdma/dev/soft/peer.h"
#include "../../nprdma/proto/rma.h"
#include "../../nprdma/svc/service.h"

#include <ucs/async/async.h>

/* Limits of the rings: what a peer accepts */
#define UCT_NPRDMA_RING_SIZE    UCS_BIT(16)
#define UCT_NPRDMA_RING_BYTES   UCS_GBYTE

/* As measured on soft0 (docs/figures.md) */
#define UCT_NPRDMA_LATENCY      80e-9
#define UCT_NPRDMA_OVERHEAD     10e-9
#define UCT_NPRDMA_BANDWIDTH    (12179.0 * UCS_MBYTE)


static ucs_config_field_t uct_nprdma_iface_config_table[] = {
    {"", "", NULL, ucs_offsetof(uct_nprdma_iface_config_t, super),
     UCS_CONFIG_TYPE_TABLE(uct_iface_config_table)},

    {"RING_SIZE", "128",
     "Messages that may be under way to a peer: a power of two up to 64k.",
     ucs_offsetof(uct_nprdma_iface_config_t, ring_size),
     UCS_CONFIG_TYPE_UINT},

    {"RING_BYTES", "32k",
     "Payload that may be under way to a peer: a power of two from 1k to 1g.\n"
     "Half of it, at most 8256 bytes, is the largest active message.",
     ucs_offsetof(uct_nprdma_iface_config_t, ring_bytes),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"RING_BYTES_WIDE", "512k",
     "The same for a peer that gets much payload; at least RING_BYTES.",
     ucs_offsetof(uct_nprdma_iface_config_t, ring_bytes_wide),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"WIDE_RINGS", "8",
     "Peers at a time that may have a ring of RING_BYTES_WIDE; bounds memory.",
     ucs_offsetof(uct_nprdma_iface_config_t, wide_rings),
     UCS_CONFIG_TYPE_UINT},

    {NULL}
};


static ucs_status_t
uct_nprdma_iface_query(uct_iface_h tl_iface, uct_iface_attr_t *attr)
{
    uct_nprdma_iface_t *iface = ucs_derived_of(tl_iface, uct_nprdma_iface_t);
    const uint64_t ops        = UCS_BIT(UCT_ATOMIC_OP_ADD) |
                                UCS_BIT(UCT_ATOMIC_OP_AND) |
                                UCS_BIT(UCT_ATOMIC_OP_OR) |
                                UCS_BIT(UCT_ATOMIC_OP_XOR);

    uct_base_iface_query(&iface->super, attr);

    attr->device_addr_len       = sizeof(np_host_addr_t);
    attr->iface_addr_len        = sizeof(np_port_addr_t);
    attr->cap.flags             = UCT_IFACE_FLAG_CONNECT_TO_IFACE |
                                  UCT_IFACE_FLAG_AM_SHORT |
                                  UCT_IFACE_FLAG_AM_BCOPY |
                                  UCT_IFACE_FLAG_AM_ZCOPY |
                                  UCT_IFACE_FLAG_PUT_SHORT |
                                  UCT_IFACE_FLAG_PUT_BCOPY |
                                  UCT_IFACE_FLAG_PUT_ZCOPY |
                                  UCT_IFACE_FLAG_GET_SHORT |
                                  UCT_IFACE_FLAG_GET_BCOPY |
                                  UCT_IFACE_FLAG_GET_ZCOPY |
                                  UCT_IFACE_FLAG_ATOMIC_CPU |
                                  UCT_IFACE_FLAG_PENDING |
                                  UCT_IFACE_FLAG_CB_SYNC |
                                  UCT_IFACE_FLAG_EP_CHECK |
                                  UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE;
    attr->cap.event_flags       = UCT_IFACE_FLAG_EVENT_SEND_COMP |
                                  UCT_IFACE_FLAG_EVENT_RECV |
                                  UCT_IFACE_FLAG_EVENT_FD;

    attr->cap.atomic32.op_flags  =
    attr->cap.atomic64.op_flags  = ops;
    attr->cap.atomic32.fop_flags =
    attr->cap.atomic64.fop_flags = ops | UCS_BIT(UCT_ATOMIC_OP_SWAP) |
                                   UCS_BIT(UCT_ATOMIC_OP_CSWAP);

    attr->cap.am.max_short        = iface->max_bcopy;
    attr->cap.am.max_bcopy        = iface->max_bcopy;
    attr->cap.am.max_zcopy        = iface->max_bcopy;
    attr->cap.am.max_hdr          = iface->max_bcopy / 2;
    attr->cap.am.max_iov          = NP_MAX_IOV;
    attr->cap.am.opt_zcopy_align  = 1;
    attr->cap.am.align_mtu        = 1;

    attr->cap.put.max_short       = iface->max_bcopy;
    attr->cap.put.max_bcopy       = iface->max_bcopy;
    attr->cap.put.max_zcopy       = SIZE_MAX;
    attr->cap.put.max_iov         = NP_MAX_IOV;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu       = 1;

    attr->cap.get.max_short       = iface->max_bcopy;
    attr->cap.get.max_bcopy       = iface->max_bcopy;
    attr->cap.get.max_zcopy       = SIZE_MAX;
    attr->cap.get.max_iov         = NP_MAX_IOV;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu       = 1;

    attr->latency                 = ucs_linear_func_make(UCT_NPRDMA_LATENCY,
                                                         0);
    attr->bandwidth.dedicated     = UCT_NPRDMA_BANDWIDTH;
    attr->bandwidth.shared        = 0;
    attr->overhead                = UCT_NPRDMA_OVERHEAD;
    return UCS_OK;
}

static ucs_status_t
uct_nprdma_iface_get_device_address(uct_iface_h tl_iface,
                                    uct_device_addr_t *addr)
{
    np_host_addr_get((np_host_addr_t*)addr);
    return UCS_OK;
}

static ucs_status_t
uct_nprdma_iface_get_address(uct_iface_h tl_iface, uct_iface_addr_t *addr)
{
    np_port_get_addr(ucs_derived_of(tl_iface, uct_nprdma_iface_t)->port,
                     (np_port_addr_t*)addr);
    return UCS_OK;
}

static int
uct_nprdma_iface_is_reachable(const uct_iface_h tl_iface,
                              const uct_device_addr_t *dev_addr,
                              const uct_iface_addr_t *iface_addr)
{
    return np_host_is_reachable((const np_host_addr_t*)dev_addr);
}

UCT_NPRDMA_INTERNAL_OPS_DEFINE(uct_nprdma_iface_internal_ops,
                               uct_nprdma_iface_is_reachable);

static UCS_F_ALWAYS_INLINE void
uct_nprdma_iface_am(void *arg, uint8_t id, void *data, unsigned len)
{
    uct_nprdma_iface_t *iface = arg;

    if (ucs_unlikely(id >= UCT_AM_ID_MAX)) {
        np_error("dropped active message %d of %u bytes: no such id",
                  id, len);
        return;
    }

    uct_iface_trace_am(&iface->super, UCT_AM_TRACE_TYPE_RECV, id, data, len,
                       "RX: AM");
    uct_iface_invoke_am(&iface->super, id, data, len, 0);
}

static unsigned uct_nprdma_iface_progress(uct_iface_h tl_iface)
{
    uct_nprdma_iface_t *iface = ucs_derived_of(tl_iface, uct_nprdma_iface_t);
    unsigned count;

    count  = np_port_poll(iface->port, uct_nprdma_iface_am, iface);
    count += np_port_work(iface->port);
    if (ucs_unlikely(!ucs_arbiter_is_empty(&iface->arbiter))) {
        count += uct_nprdma_iface_progress_pending(iface);
    }
    return count;
}

static ucs_status_t uct_nprdma_iface_flush(uct_iface_h tl_iface, unsigned flags,
                                           uct_completion_t *comp)
{
    uct_nprdma_iface_t *iface = ucs_derived_of(tl_iface, uct_nprdma_iface_t);
    ucs_status_t status;

    status = np_port_flush(iface->port, comp);
    if ((status == UCS_OK) && (comp == NULL) &&
        !ucs_arbiter_is_empty(&iface->arbiter)) {
        status = UCS_INPROGRESS; /* what waits for room counts for UCP */
    }

    if (status == UCS_INPROGRESS) {
        UCT_TL_IFACE_STAT_FLUSH_WAIT(&iface->super);
    } else {
        UCT_TL_IFACE_STAT_FLUSH(&iface->super);
    }
    return status;
}

static ucs_status_t uct_nprdma_iface_fence(uct_iface_h tl_iface, unsigned flags)
{
    uct_nprdma_iface_t *iface = ucs_derived_of(tl_iface, uct_nprdma_iface_t);

    np_port_fence(iface->port);
    UCT_TL_IFACE_STAT_FENCE(&iface->super);
    return UCS_OK;
}

static ucs_status_t uct_nprdma_iface_event_fd_get(uct_iface_h tl_iface,
                                                  int *fd_p)
{
    *fd_p = ucs_derived_of(tl_iface, uct_nprdma_iface_t)->port->epoll_fd;
    return UCS_OK;
}

static ucs_status_t uct_nprdma_iface_event_arm(uct_iface_h tl_iface,
                                               unsigned events)
{
    uct_nprdma_iface_t *iface = ucs_derived_of(tl_iface, uct_nprdma_iface_t);

    if (!ucs_arbiter_is_empty(&iface->arbiter)) {
        return UCS_ERR_BUSY; /* nobody tells us when there is room */
    }

    return np_port_arm(iface->port);
}

static void uct_nprdma_complete(void *comp, ucs_status_t status)
{
    uct_invoke_completion(comp, status);
}

static const np_user_t uct_nprdma_user = {
    .complete  = uct_nprdma_complete,
    .link_down = uct_nprdma_ep_link_down
};

static UCS_CLASS_DECLARE_DELETE_FUNC(uct_nprdma_iface_t, uct_iface_t);

static void uct_nprdma_iface_fill_ops(uct_iface_ops_t *ops)
{
    *ops                          = uct_nprdma_ep_ops;
    ops->iface_flush              = uct_nprdma_iface_flush;
    ops->iface_fence              = uct_nprdma_iface_fence;
    ops->iface_progress_enable    = uct_base_iface_progress_enable;
    ops->iface_progress_disable   = uct_base_iface_progress_disable;
    ops->iface_progress           = uct_nprdma_iface_progress;
    ops->iface_event_fd_get       = uct_nprdma_iface_event_fd_get;
    ops->iface_event_arm          = uct_nprdma_iface_event_arm;
    ops->iface_close              =
            UCS_CLASS_DELETE_FUNC_NAME(uct_nprdma_iface_t);
    ops->iface_query              = uct_nprdma_iface_query;
    ops->iface_get_device_address = uct_nprdma_iface_get_device_address;
    ops->iface_get_address        = uct_nprdma_iface_get_address;
    ops->iface_is_reachable       = UCT_NPRDMA_IFACE_REACHABLE;
}

static int uct_nprdma_is_ring_bytes(const char *name, size_t bytes)
{
    if ((bytes < UCS_KBYTE) || !ucs_is_pow2(bytes) ||
        (bytes > UCT_NPRDMA_RING_BYTES)) {
        np_error("UCX_NPRDMA_%s is %zu: give it a power of two from 1k to 1g",
                 name, bytes);
        return 0;
    }

    return 1;
}

static ucs_status_t
uct_nprdma_iface_check_config(const uct_nprdma_iface_config_t *config)
{
    if ((config->ring_size == 0) || !ucs_is_pow2(config->ring_size) ||
        (config->ring_size > UCT_NPRDMA_RING_SIZE)) {
        np_error("UCX_NPRDMA_RING_SIZE is %u: give it a power of two from 1 "
                  "to %lu", config->ring_size, UCT_NPRDMA_RING_SIZE);
        return UCS_ERR_INVALID_PARAM;
    }

    if (!uct_nprdma_is_ring_bytes("RING_BYTES", config->ring_bytes) ||
        !uct_nprdma_is_ring_bytes("RING_BYTES_WIDE",
                                  config->ring_bytes_wide)) {
        return UCS_ERR_INVALID_PARAM;
    }

    return UCS_OK;
}

static UCS_CLASS_INIT_FUNC(uct_nprdma_iface_t, uct_md_h md,
                           uct_worker_h worker,
                           const uct_iface_params_t *params,
                           const uct_iface_config_t *tl_config)
{
    uct_nprdma_iface_config_t *config =
            ucs_derived_of(tl_config, uct_nprdma_iface_config_t);
    np_port_config_t port_config = {
        .data_slots   = config->ring_size,
        .payload_size = config->ring_bytes,
        .payload_wide = config->ring_bytes_wide,
        .wide_links   = config->wide_rings
    };
    uct_iface_ops_t ops;
    ucs_status_t status;

    UCT_CHECK_PARAM(params->field_mask & UCT_IFACE_PARAM_FIELD_OPEN_MODE,
                    "UCT_IFACE_PARAM_FIELD_OPEN_MODE is not defined");
    if (!(params->open_mode & UCT_IFACE_OPEN_MODE_DEVICE)) {
        np_error("nprdma supports only UCT_IFACE_OPEN_MODE_DEVICE");
        return UCS_ERR_UNSUPPORTED;
    }

    status = uct_nprdma_iface_check_config(config);
    if (status != UCS_OK) {
        return status;
    }

    uct_nprdma_iface_fill_ops(&ops);
    if (ucs_derived_of(worker, uct_priv_worker_t)->thread_mode ==
        UCS_THREAD_MODE_MULTI) {
        uct_nprdma_mt_wrap(&ops);
    }

    UCS_CLASS_CALL_SUPER_INIT(
            uct_base_iface_t, &ops, &uct_nprdma_iface_internal_ops, md, worker,
            params, tl_config UCS_STATS_ARG(
                    (params->field_mask & UCT_IFACE_PARAM_FIELD_STATS_ROOT) ?
                    params->stats_root : NULL)
                    UCS_STATS_ARG(UCT_NPRDMA_NAME));

    status = ucs_recursive_spinlock_init(&self->lock, 0);
    if (status != UCS_OK) {
        return status;
    }

    status = np_proto_open(&port_config, &uct_nprdma_user, &self->port);
    if (status != UCS_OK) {
        goto err_lock;
    }

    np_service_add(self->port);
    self->max_bcopy = np_rma_max_bcopy(&port_config);
    ucs_arbiter_init(&self->arbiter);
    return UCS_OK;

err_lock:
    ucs_recursive_spinlock_destroy(&self->lock);
    return status;
}

static UCS_CLASS_CLEANUP_FUNC(uct_nprdma_iface_t)
{
    uct_base_iface_progress_disable(&self->super.super,
                                    UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    np_service_remove(self->port);
    np_proto_close(self->port);
    ucs_arbiter_cleanup(&self->arbiter);
    ucs_recursive_spinlock_destroy(&self->lock);
}

UCS_CLASS_DEFINE(uct_nprdma_iface_t, uct_base_iface_t);
static UCS_CLASS_DEFINE_DELETE_FUNC(uct_nprdma_iface_t, uct_iface_t);
static UCS_CLASS_DEFINE_NEW_FUNC(uct_nprdma_iface_t, uct_iface_t, uct_md_h,
                                 uct_worker_h, const uct_iface_params_t*,
                                 const uct_iface_config_t*);

static ucs_status_t
uct_nprdma_query_devices(uct_md_h md, uct_tl_device_resource_t **devices_p,
                         unsigned *num_devices_p)
{
    return uct_single_device_resource(md, UCT_NPRDMA_DEVICE,
                                      UCT_DEVICE_TYPE_SHM,
                                      UCS_SYS_DEVICE_ID_UNKNOWN, devices_p,
                                      num_devices_p);
}

UCT_TL_DEFINE_ENTRY(&uct_nprdma_component, nprdma, uct_nprdma_query_devices,
                    uct_nprdma_iface_t, "NPRDMA_",
                    uct_nprdma_iface_config_table, uct_nprdma_iface_config_t)
