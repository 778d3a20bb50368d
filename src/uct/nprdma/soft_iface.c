/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Interfaces of soft0: a port of the engine, and its progress.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "soft.h"
#ifdef HAVE_VERBS
#  include "verbs.h"
#  include "../../nprdma/dev/verbs/nic.h"
#endif

#include "../../nprdma/proto/unload.h"
#include "../../nprdma/dev/soft/inbox.h"
#include "../../nprdma/mem/prepare.h"
#include "../../nprdma/mem/region.h"
#include "../../nprdma/proto/soft/rma.h"

#include <ucs/arch/cpu.h>

/* Limits of the rings: what a peer accepts */
#define UCT_NPRDMA_RING_SIZE    UCS_BIT(16)
#define UCT_NPRDMA_RING_BYTES   UCS_GBYTE

/* As measured on soft0 (docs/results/figures.md) */
#define UCT_NPRDMA_LATENCY      80e-9
#define UCT_NPRDMA_OVERHEAD     10e-9
#define UCT_NPRDMA_BANDWIDTH    (12179.0 * UCS_MBYTE)

/* What UCP's newer protocols are told. Rings cost a message nothing beside its
 * copies. A large transfer is copied by both processors at once, somewhat
 * faster than a message in fragments, after messages of rendezvous. */
#define UCT_NPRDMA_RING_BANDWIDTH 1e12
#define UCT_NPRDMA_ZCOPY_OVERHEAD 500e-9
#define UCT_NPRDMA_ZCOPY_FASTER   1.25
#define UCT_NPRDMA_RNDV_MESSAGES  300e-9

/* Up to here UCP is to send messages eagerly in ranks of MPI: through the
 * rings, where both sides copy at once and no system call is made. It is what
 * UCP itself takes for sends that may block (UCX_RNDV_SEND_NBR_THRESH). What
 * nobody receives waits in the receiver's memory. */
#define UCT_NPRDMA_EAGER_MPI    (256 * UCS_KBYTE)
#define UCT_NPRDMA_EAGER_LIMIT  (64 * UCS_MBYTE)

/* What the formulas below leave out is less than this, bytes */
#define UCT_NPRDMA_EAGER_MORE   4096
#define UCT_NPRDMA_EAGER_LESS   2048

/* Performance that UCP expects of a rendezvous in parts of that of eager
 * messages (UCX_RNDV_PERF_DIFF) */
#define UCT_NPRDMA_RNDV_DIFF    0.99


/* A short get returns with the data, and never waits. So there is none where
 * the target's CPU has a part in it: in all that goes through the rings, and at
 * the edges of registrations with exact scope. */
static int uct_nprdma_soft_can_get_short(void)
{
    return (np_engine.config.single_copy != NP_SINGLE_COPY_OFF) &&
           !np_region_is_exact();
}

/* UCP's older protocols know one latency and one bandwidth of an interface, for
 * messages as for zero-copy, and go to rendezvous from
 *
 *     (0.99 * (4 * latency + 3 * overhead) - overhead) /
 *     (0.01 / bandwidth + overhead / max_bcopy)
 *
 * bytes on (ucp_ep_config_calc_rndv_thresh, without the part of registration),
 * if the bandwidth is below that of their own copies, else from some kilobytes
 * on. So they are told what leads to the size that is wanted: no bandwidth
 * tells that our messages are copied by two processors, and zero-copy by one
 * and a system call. */
static void
uct_nprdma_soft_eager_perf(uct_iface_attr_t *attr, size_t eager_max)
{
    const double size = eager_max + UCT_NPRDMA_EAGER_MORE;
    double per_byte;

    attr->bandwidth.dedicated = 0.95 * uct_nprdma_memcpy_bw();
    per_byte = ((1 - UCT_NPRDMA_RNDV_DIFF) / attr->bandwidth.dedicated) +
               (attr->overhead / attr->cap.am.max_bcopy);
    attr->latency.c = (((size * per_byte) + attr->overhead) /
                       UCT_NPRDMA_RNDV_DIFF - (3 * attr->overhead)) / 4;
    attr->latency.c = ucs_max(attr->latency.c, UCT_NPRDMA_LATENCY);
}

static ucs_status_t
uct_nprdma_soft_iface_query(uct_iface_h tl_iface, uct_iface_attr_t *attr)
{
    uct_nprdma_soft_iface_t *iface = ucs_derived_of(tl_iface,
                                                    uct_nprdma_soft_iface_t);
    const size_t eager_max         = iface->eager_max;

    uct_nprdma_iface_query(&iface->super, attr);

    attr->device_addr_len         = sizeof(uct_nprdma_soft_device_addr_t);
    attr->iface_addr_len          = sizeof(np_port_addr_t);
    attr->latency                 = ucs_linear_func_make(UCT_NPRDMA_LATENCY,
                                                         0);
    attr->bandwidth.dedicated     = UCT_NPRDMA_BANDWIDTH;
    attr->bandwidth.shared        = 0;
    attr->overhead                = UCT_NPRDMA_OVERHEAD;
    if (UCT_NPRDMA_HAS_OLD_PROTO && (eager_max > attr->cap.am.max_bcopy)) {
        uct_nprdma_soft_eager_perf(attr, eager_max);
    }
    if (uct_nprdma_soft_can_get_short()) {
        attr->cap.flags         |= UCT_IFACE_FLAG_GET_SHORT;
        attr->cap.get.max_short  = iface->super.max_bcopy;
    }
    return UCS_OK;
}

static ucs_status_t
uct_nprdma_soft_iface_get_device_address(uct_iface_h tl_iface,
                                         uct_device_addr_t *addr)
{
    uct_nprdma_soft_device_addr_t *device_addr = (void*)addr;

    device_addr->kind = UCT_NPRDMA_SOFT;
    np_host_addr_get(&device_addr->host);
    return UCS_OK;
}

static ucs_status_t
uct_nprdma_soft_iface_get_address(uct_iface_h tl_iface, uct_iface_addr_t *addr)
{
    np_port_get_addr(ucs_derived_of(tl_iface, uct_nprdma_soft_iface_t)->port,
                     (np_port_addr_t*)addr);
    return UCS_OK;
}

static int
uct_nprdma_soft_iface_is_reachable(const uct_iface_h tl_iface,
                                   const uct_device_addr_t *dev_addr,
                                   const uct_iface_addr_t *iface_addr)
{
    const uct_nprdma_soft_device_addr_t *addr = (const void*)dev_addr;

    return (addr->kind == UCT_NPRDMA_SOFT) &&
           (np_engine.config.intra_node == NP_INTRA_NODE_SOFT) &&
           np_host_is_reachable(&addr->host);
}

/* What a large get or put is said to cost beside its bytes, so that UCP's newer
 * protocols begin with rendezvous above @a size bytes. They count of an eager
 * message each copy, one after the other in the first fragment and at the same
 * time in the others. */
static double uct_nprdma_soft_zcopy_overhead(size_t size, size_t fragment,
                                             double copy_bw)
{
    const double eager = (size + ucs_min(size, fragment)) / copy_bw;
    const double bytes = (size * UCT_NPRDMA_RNDV_DIFF) /
                         (copy_bw * UCT_NPRDMA_ZCOPY_FASTER);

    return ucs_max(eager - bytes - UCT_NPRDMA_RNDV_MESSAGES,
                   UCT_NPRDMA_ZCOPY_OVERHEAD);
}

/* What the newer protocols go by. Both copies of a message are counted by UCP,
 * with its own figure for a copy, so there is nothing for its bytes here,
 * unless UCP thinks that none is made. */
static ucs_status_t
uct_nprdma_soft_iface_estimate_perf(uct_iface_h tl_iface, uct_perf_attr_t *attr)
{
    uct_nprdma_soft_iface_t *iface = ucs_derived_of(tl_iface,
                                                    uct_nprdma_soft_iface_t);
    const size_t max_bcopy         = iface->super.max_bcopy;
    const double copy_bw           = uct_nprdma_memcpy_bw();
    double overhead                = UCT_NPRDMA_OVERHEAD;
    double bandwidth               = UCT_NPRDMA_RING_BANDWIDTH;
    ucs_status_t status;

    status = uct_base_iface_estimate_perf(tl_iface, attr);
    if (status != UCS_OK) {
        return status;
    }

    if (attr->field_mask & UCT_PERF_ATTR_FIELD_OPERATION) {
        switch (attr->operation) {
        case UCT_EP_OP_AM_ZCOPY:
            bandwidth = copy_bw;
            break;
        case UCT_EP_OP_PUT_ZCOPY:
        case UCT_EP_OP_GET_ZCOPY:
            /* else no message is to have two fragments */
            overhead  = uct_nprdma_soft_zcopy_overhead(
                    (iface->eager_max > max_bcopy) ? iface->eager_max :
                    (max_bcopy - UCT_NPRDMA_EAGER_LESS), max_bcopy, copy_bw);
            bandwidth = copy_bw * UCT_NPRDMA_ZCOPY_FASTER;
            break;
        default:
            break;
        }
    }

    if (attr->field_mask & UCT_PERF_ATTR_FIELD_SEND_PRE_OVERHEAD) {
        attr->send_pre_overhead = overhead;
    }
    if (attr->field_mask & UCT_PERF_ATTR_FIELD_RECV_OVERHEAD) {
        attr->recv_overhead = UCT_NPRDMA_OVERHEAD;
    }
    if (attr->field_mask & UCT_PERF_ATTR_FIELD_BANDWIDTH) {
        attr->bandwidth.dedicated = bandwidth;
    }
    if (attr->field_mask & UCT_PERF_ATTR_FIELD_LATENCY) {
        attr->latency.c = UCT_NPRDMA_LATENCY;
    }
    return UCS_OK;
}

UCT_NPRDMA_INTERNAL_OPS_DEFINE(uct_nprdma_soft_iface_internal_ops,
                               uct_nprdma_soft_iface_estimate_perf,
                               uct_nprdma_soft_iface_is_reachable);

static unsigned uct_nprdma_soft_iface_progress(uct_iface_h tl_iface)
{
    uct_nprdma_soft_iface_t *iface = ucs_derived_of(tl_iface,
                                                    uct_nprdma_soft_iface_t);
    unsigned count = uct_nprdma_iface_progress_later(&iface->super);

    count += np_port_poll(iface->port, uct_nprdma_iface_am, &iface->super);
    count += np_port_work(iface->port);
    if (ucs_unlikely(!ucs_arbiter_is_empty(&iface->super.arbiter))) {
        count += uct_nprdma_iface_progress_pending(&iface->super);
    }
    if (count == 0) {
        np_prepare_progress(iface->port->flights.stats);
    }
    return count;
}

static ucs_status_t
uct_nprdma_soft_iface_event_fd_get(uct_iface_h tl_iface, int *fd_p)
{
    *fd_p = ucs_derived_of(tl_iface, uct_nprdma_soft_iface_t)->port->epoll_fd;
    return UCS_OK;
}

static ucs_status_t
uct_nprdma_soft_iface_event_arm(uct_iface_h tl_iface, unsigned events)
{
    uct_nprdma_soft_iface_t *iface = ucs_derived_of(tl_iface,
                                                    uct_nprdma_soft_iface_t);

    if (uct_nprdma_iface_has_later(&iface->super) ||
        !ucs_arbiter_is_empty(&iface->super.arbiter)) {
        return UCS_ERR_BUSY; /* we are not told when there is room */
    }

    return np_port_arm(iface->port);
}

static const np_user_t uct_nprdma_user = {
    .complete  = uct_nprdma_complete,
    .link_down = uct_nprdma_soft_ep_link_down
};

static UCS_CLASS_DECLARE_DELETE_FUNC(uct_nprdma_soft_iface_t, uct_iface_t);

static void uct_nprdma_soft_iface_fill_ops(uct_iface_ops_t *ops)
{
    *ops                          = uct_nprdma_soft_ep_ops;
    ops->iface_flush              = uct_nprdma_iface_flush;
    ops->iface_fence              = uct_nprdma_iface_fence;
    ops->iface_progress_enable    = uct_base_iface_progress_enable;
    ops->iface_progress_disable   = uct_base_iface_progress_disable;
    ops->iface_progress           = uct_nprdma_soft_iface_progress;
    ops->iface_event_fd_get       = uct_nprdma_soft_iface_event_fd_get;
    ops->iface_event_arm          = uct_nprdma_soft_iface_event_arm;
    ops->iface_close              =
            UCS_CLASS_DELETE_FUNC_NAME(uct_nprdma_soft_iface_t);
    ops->iface_query              = uct_nprdma_soft_iface_query;
    ops->iface_get_device_address = uct_nprdma_soft_iface_get_device_address;
    ops->iface_get_address        = uct_nprdma_soft_iface_get_address;
    ops->iface_is_reachable       = UCT_NPRDMA_IFACE_REACHABLE(
            uct_nprdma_soft_iface_is_reachable);
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
uct_nprdma_soft_iface_check_config(const uct_nprdma_soft_config_t *config)
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

    if ((config->eager_max != UCS_MEMUNITS_AUTO) &&
        (config->eager_max > UCT_NPRDMA_EAGER_LIMIT)) {
        np_error("UCX_NPRDMA_EAGER_MAX is more than 64m: what nobody receives "
                 "would fill the receiver's memory. Give it a size up to 64m, "
                 "or auto");
        return UCS_ERR_INVALID_PARAM;
    }

    return UCS_OK;
}

static ucs_status_t
uct_nprdma_soft_check_all(const uct_nprdma_iface_config_t *config,
                          size_t *unload_max)
{
    ucs_status_t status;

    status = uct_nprdma_soft_iface_check_config(&config->soft);
#ifdef HAVE_VERBS
    if (status == UCS_OK) {
        status = uct_nprdma_verbs_check_config(&config->verbs);
    }
#endif
    return (status != UCS_OK) ? status :
           uct_nprdma_unload_check(&config->unload, unload_max);
}

/* soft0 asks only where its cache is modelled; is there anything else that
 * would? */
static void
uct_nprdma_soft_check_unload(const uct_nprdma_unload_config_t *config)
{
    unsigned num_nics = 0;
#ifdef HAVE_VERBS
    np_nic_name_t *nics;
#endif

    if ((config->policy == NP_UNLOAD_OFF) ||
        (np_engine.config.tlb.mode != NP_TLB_OFF)) {
        return;
    }

#ifdef HAVE_VERBS
    num_nics = np_nic_list(&nics);
    free(nics);
#endif
    if (num_nics == 0) {
        np_error("UCX_NPRDMA_UNLOAD=%s changes nothing here: there is no RDMA "
                 "device, and soft0 asks it only with UCX_NPRDMA_SOFT_TLB. "
                 "Unset it, or set that",
                 np_unload_policy_names[config->policy]);
    }
}

/* A job of MPI ends when a rank dies. Elsewhere a receive must not wait for the
 * rest of a message whose sender has died, as UCP lets it: only a rendezvous
 * ends then. */
static size_t uct_nprdma_soft_eager_max(const uct_nprdma_soft_config_t *config)
{
    static const char *ranks[] = {"PMIX_RANK", "PMI_RANK",
                                  "OMPI_COMM_WORLD_RANK"};
    unsigned i;

    if (config->eager_max != UCS_MEMUNITS_AUTO) {
        return config->eager_max;
    }

    for (i = 0; i < ucs_static_array_size(ranks); ++i) {
        if (getenv(ranks[i]) != NULL) {
            return UCT_NPRDMA_EAGER_MPI;
        }
    }
    return 0;
}

static UCS_CLASS_INIT_FUNC(uct_nprdma_soft_iface_t, uct_md_h md,
                           uct_worker_h worker,
                           const uct_iface_params_t *params,
                           const uct_iface_config_t *tl_config)
{
    const uct_nprdma_iface_config_t *all   =
            ucs_derived_of(tl_config, uct_nprdma_iface_config_t);
    const uct_nprdma_soft_config_t *config = &all->soft;
    np_port_config_t port_config           = {
        .data_slots   = config->ring_size,
        .payload_size = config->ring_bytes,
        .payload_wide = config->ring_bytes_wide,
        .wide_links   = config->wide_rings,
        .unload       = all->unload.policy
    };
    uct_iface_ops_t ops;
    ucs_status_t status;

    status = uct_nprdma_soft_check_all(all, &port_config.unload_max);
    if (status != UCS_OK) {
        return status;
    }

    uct_nprdma_soft_iface_fill_ops(&ops);
    UCS_CLASS_CALL_SUPER_INIT(uct_nprdma_iface_t, md, worker, params,
                              tl_config, &ops,
                              &uct_nprdma_soft_iface_internal_ops);

    self->super.max_bcopy = np_rma_max_bcopy(&port_config);
    self->packed          = aligned_alloc(NP_LINE,
                                          ucs_align_up(self->super.max_bcopy +
                                                       NP_LINE, NP_LINE));
    if (self->packed == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    status = np_port_open(&port_config, &np_proto_ops, &uct_nprdma_user,
                          &self->port);
    if (status != UCS_OK) {
        free(self->packed);
        return status;
    }

    uct_nprdma_soft_check_unload(&all->unload);
    self->port->yield.is_never = uct_nprdma_never_yields(worker);
    np_inbox_begin(self->port);
    self->super.links     = &self->port->flights;
    self->is_packing      = 0;
    self->eager_max       = uct_nprdma_soft_eager_max(config);
    return UCS_OK;
}

static UCS_CLASS_CLEANUP_FUNC(uct_nprdma_soft_iface_t)
{
    uct_base_iface_progress_disable(&self->super.super.super,
                                    UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    np_inbox_end(self->port);
    np_proto_close(self->port);
    free(self->packed);
}

UCS_CLASS_DEFINE(uct_nprdma_soft_iface_t, uct_nprdma_iface_t)
static UCS_CLASS_DEFINE_DELETE_FUNC(uct_nprdma_soft_iface_t, uct_iface_t);
UCS_CLASS_DEFINE_NEW_FUNC(uct_nprdma_soft_iface_t, uct_iface_t, uct_md_h,
                          uct_worker_h, const uct_iface_params_t*,
                          const uct_iface_config_t*)
