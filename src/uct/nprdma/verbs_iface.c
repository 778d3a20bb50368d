/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Interfaces of RDMA devices: a port of the engine, and its progress.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "verbs.h"

#include "../../nprdma/mem/prepare.h"
#include "../../nprdma/proto/unload.h"

#include <ucs/sys/topo/base/topo.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* Limits of the settings */
#define UCT_NPRDMA_VERBS_BUFFERS  32768u
#define UCT_NPRDMA_VERBS_DEPTH    8u
#define UCT_NPRDMA_VERBS_RETRY    7u
#define UCT_NPRDMA_VERBS_TIMEOUT  31     /* exponents have 5 bits */

/* What UCP's addresses have room for */
#define UCT_NPRDMA_DEVICE_ADDR_MAX 31

/* Smaller gets are better copied out of one of the port's buffers, which needs
 * no look at our own pages before and after */
#define UCT_NPRDMA_VERBS_GET_ZCOPY 256

/* CPU time that posting and polling an operation takes */
#define UCT_NPRDMA_VERBS_OVERHEAD 80e-9


ucs_sys_device_t uct_nprdma_verbs_sys_device(const char *name)
{
    ucs_sys_device_t sys_device = UCS_SYS_DEVICE_ID_UNKNOWN;
    unsigned domain, bus, slot, function;
    char path[PATH_MAX], real[PATH_MAX];
    ucs_sys_bus_id_t bus_id;
    const char *last;

    snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s/device",
             (int)strcspn(name, ":"), name);
    if (realpath(path, real) == NULL) {
        return UCS_SYS_DEVICE_ID_UNKNOWN; /* a device of software */
    }

    last = strrchr(real, '/') + 1;
    if (sscanf(last, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) {
        return UCS_SYS_DEVICE_ID_UNKNOWN;
    }

    bus_id.domain   = domain;
    bus_id.bus      = bus;
    bus_id.slot     = slot;
    bus_id.function = function;
    if (ucs_topo_find_device_by_bus_id(&bus_id, &sys_device) != UCS_OK) {
        return UCS_SYS_DEVICE_ID_UNKNOWN;
    }
    return sys_device;
}

static ucs_status_t
uct_nprdma_verbs_iface_query(uct_iface_h tl_iface, uct_iface_attr_t *attr)
{
    uct_nprdma_verbs_iface_t *iface = ucs_derived_of(tl_iface,
                                                     uct_nprdma_verbs_iface_t);

    uct_nprdma_iface_query(&iface->super, attr);

    attr->device_addr_len     = sizeof(uct_nprdma_verbs_device_addr_t);
    attr->iface_addr_len      = sizeof(uct_nprdma_verbs_iface_addr_t);
    attr->cap.flags          |= UCT_NPRDMA_FLAG_INTER_NODE;
    attr->cap.get.min_zcopy   = UCT_NPRDMA_VERBS_GET_ZCOPY;
    attr->latency             = ucs_linear_func_make(iface->attr.latency, 0);
    attr->bandwidth.dedicated = 0;
    attr->bandwidth.shared    = iface->attr.bandwidth;
    attr->overhead            = UCT_NPRDMA_VERBS_OVERHEAD;
    return UCS_OK;
}

static ucs_status_t
uct_nprdma_verbs_iface_get_device_address(uct_iface_h tl_iface,
                                          uct_device_addr_t *addr)
{
    uct_nprdma_verbs_iface_t *iface = ucs_derived_of(tl_iface,
                                                     uct_nprdma_verbs_iface_t);
    uct_nprdma_verbs_device_addr_t *device_addr = (void*)addr;
    np_vdev_addr_t vdev;

    UCS_STATIC_ASSERT(sizeof(*device_addr) <= UCT_NPRDMA_DEVICE_ADDR_MAX);
    np_vport_get_dev_addr(iface->port, &vdev);
    device_addr->kind    = UCT_NPRDMA_VERBS;
    device_addr->version = vdev.host.version;
    device_addr->is_roce = vdev.is_roce;
    device_addr->host_id = vdev.host.host_id;
    device_addr->uid     = vdev.host.uid;
    memcpy(device_addr->gid, vdev.gid, sizeof(vdev.gid));
    return UCS_OK;
}

static ucs_status_t
uct_nprdma_verbs_iface_get_address(uct_iface_h tl_iface,
                                   uct_iface_addr_t *addr)
{
    uct_nprdma_verbs_iface_t *iface = ucs_derived_of(tl_iface,
                                                     uct_nprdma_verbs_iface_t);
    uct_nprdma_verbs_iface_addr_t *iface_addr = (void*)addr;
    np_vdev_addr_t vdev;

    np_vport_get_dev_addr(iface->port, &vdev);
    np_vport_get_addr(iface->port, &iface_addr->port);
    iface_addr->lid = vdev.lid;
    iface_addr->mtu = vdev.mtu;
    return UCS_OK;
}

void uct_nprdma_verbs_unpack_addr(
        const uct_nprdma_verbs_device_addr_t *device_addr,
        const uct_nprdma_verbs_iface_addr_t *iface_addr, np_vdev_addr_t *vdev)
{
    vdev->host.host_id = device_addr->host_id;
    vdev->host.uid     = device_addr->uid;
    vdev->host.version = device_addr->version;
    vdev->is_roce      = device_addr->is_roce;
    vdev->lid          = (iface_addr == NULL) ? 0 : iface_addr->lid;
    vdev->mtu          = (iface_addr == NULL) ? 0 : iface_addr->mtu;
    memcpy(vdev->gid, device_addr->gid, sizeof(vdev->gid));
}

static int
uct_nprdma_verbs_iface_is_reachable(const uct_iface_h tl_iface,
                                    const uct_device_addr_t *dev_addr,
                                    const uct_iface_addr_t *iface_addr)
{
    uct_nprdma_verbs_iface_t *iface = ucs_derived_of(tl_iface,
                                                     uct_nprdma_verbs_iface_t);
    const uct_nprdma_verbs_device_addr_t *addr = (const void*)dev_addr;
    np_vdev_addr_t vdev;

    if (addr->kind != UCT_NPRDMA_VERBS) {
        return 0;
    }

    uct_nprdma_verbs_unpack_addr(addr, NULL, &vdev);
    return np_vport_is_reachable(iface->port, &vdev);
}

UCT_NPRDMA_INTERNAL_OPS_DEFINE(uct_nprdma_verbs_iface_internal_ops,
                               uct_base_iface_estimate_perf,
                               uct_nprdma_verbs_iface_is_reachable);

static unsigned uct_nprdma_verbs_iface_progress(uct_iface_h tl_iface)
{
    uct_nprdma_verbs_iface_t *iface = ucs_derived_of(tl_iface,
                                                     uct_nprdma_verbs_iface_t);
    unsigned count = uct_nprdma_iface_progress_later(&iface->super);

    count += np_vport_progress(iface->port);
    if (ucs_unlikely(!ucs_arbiter_is_empty(&iface->super.arbiter))) {
        count += uct_nprdma_iface_progress_pending(&iface->super);
    }
    if (ucs_unlikely(np_prepare_has_work()) && (count == 0)) {
        np_vport_prepare(iface->port);
    }
    return count;
}

static ucs_status_t
uct_nprdma_verbs_iface_event_fd_get(uct_iface_h tl_iface, int *fd_p)
{
    *fd_p = np_vport_event_fd(
            ucs_derived_of(tl_iface, uct_nprdma_verbs_iface_t)->port);
    return UCS_OK;
}

static ucs_status_t
uct_nprdma_verbs_iface_event_arm(uct_iface_h tl_iface, unsigned events)
{
    uct_nprdma_verbs_iface_t *iface = ucs_derived_of(tl_iface,
                                                     uct_nprdma_verbs_iface_t);

    if (uct_nprdma_iface_has_later(&iface->super) ||
        !ucs_arbiter_is_empty(&iface->super.arbiter)) {
        return UCS_ERR_BUSY; /* we are not told when there is room */
    }

    return np_vport_arm(iface->port);
}

static UCS_CLASS_DECLARE_DELETE_FUNC(uct_nprdma_verbs_iface_t, uct_iface_t);

static void uct_nprdma_verbs_iface_fill_ops(uct_iface_ops_t *ops)
{
    *ops                          = uct_nprdma_verbs_ep_ops;
    ops->iface_flush              = uct_nprdma_iface_flush;
    ops->iface_fence              = uct_nprdma_iface_fence;
    ops->iface_progress_enable    = uct_base_iface_progress_enable;
    ops->iface_progress_disable   = uct_base_iface_progress_disable;
    ops->iface_progress           = uct_nprdma_verbs_iface_progress;
    ops->iface_event_fd_get       = uct_nprdma_verbs_iface_event_fd_get;
    ops->iface_event_arm          = uct_nprdma_verbs_iface_event_arm;
    ops->iface_close              =
            UCS_CLASS_DELETE_FUNC_NAME(uct_nprdma_verbs_iface_t);
    ops->iface_query              = uct_nprdma_verbs_iface_query;
    ops->iface_get_device_address = uct_nprdma_verbs_iface_get_device_address;
    ops->iface_get_address        = uct_nprdma_verbs_iface_get_address;
    ops->iface_is_reachable       = UCT_NPRDMA_IFACE_REACHABLE(
            uct_nprdma_verbs_iface_is_reachable);
}

static int uct_nprdma_verbs_is_within(const char *name, size_t value,
                                      size_t min, size_t max)
{
    if ((value < min) || (value > max)) {
        np_error("UCX_NPRDMA_%s is %zu: give it a value from %zu to %zu", name,
                 value, min, max);
        return 0;
    }

    return 1;
}

ucs_status_t
uct_nprdma_verbs_check_config(const uct_nprdma_verbs_config_t *config)
{
    if (!uct_nprdma_verbs_is_within("VERBS_RECV_BUFFERS",
                                    config->recv_buffers, 2,
                                    UCT_NPRDMA_VERBS_BUFFERS) ||
        !uct_nprdma_verbs_is_within("VERBS_SEND_BUFFERS",
                                    config->send_buffers, 2,
                                    UCT_NPRDMA_VERBS_BUFFERS) ||
        !uct_nprdma_verbs_is_within("VERBS_QUEUE", config->queue, 4,
                                    UCT_NPRDMA_VERBS_BUFFERS) ||
        !uct_nprdma_verbs_is_within("VERBS_CREDITS", config->credits, 2,
                                    UCT_NPRDMA_VERBS_BUFFERS) ||
        ((config->chunk != UCS_MEMUNITS_AUTO) &&
         !uct_nprdma_verbs_is_within("VERBS_CHUNK", config->chunk,
                                     NP_VPORT_CHUNK_MIN, UCS_GBYTE)) ||
        !uct_nprdma_verbs_is_within("VERBS_DEPTH", config->depth, 1,
                                    UCT_NPRDMA_VERBS_DEPTH) ||
        !uct_nprdma_verbs_is_within("VERBS_RETRY_COUNT", config->retry_count,
                                    0, UCT_NPRDMA_VERBS_RETRY)) {
        return UCS_ERR_INVALID_PARAM;
    }

    if ((config->gid_index != UCS_ULUNITS_AUTO) &&
        !uct_nprdma_verbs_is_within("IB_GID_INDEX", config->gid_index, 0,
                                    UINT8_MAX)) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (!(config->connect_timeout > 0)) {
        np_error("UCX_NPRDMA_CONNECT_TIMEOUT is %g s: give it more than 0",
                 config->connect_timeout);
        return UCS_ERR_INVALID_PARAM;
    }

    if (!(config->reconnect >= 0)) {
        np_error("UCX_NPRDMA_VERBS_RECONNECT is %g s: give it 0 or more",
                 config->reconnect);
        return UCS_ERR_INVALID_PARAM;
    }

    /* an exponent of 0 would mean: for ever */
    if (!(config->timeout >= NP_VPORT_TICK_TIME) ||
        (config->timeout >
         (NP_VPORT_TICK_TIME * UCS_BIT(UCT_NPRDMA_VERBS_TIMEOUT)))) {
        np_error("UCX_NPRDMA_VERBS_TIMEOUT is %g s: give it a time from 5us "
                 "to 8796s", config->timeout);
        return UCS_ERR_INVALID_PARAM;
    }

    return UCS_OK;
}

static unsigned uct_nprdma_verbs_timeout(double seconds)
{
    unsigned exponent = 1;

    while ((exponent < UCT_NPRDMA_VERBS_TIMEOUT) &&
           ((NP_VPORT_TICK_TIME * UCS_BIT(exponent)) < seconds)) {
        ++exponent;
    }
    return exponent;
}

static void
uct_nprdma_verbs_check_unload(const uct_nprdma_unload_config_t *unload,
                              const np_vport_t *port)
{
    const size_t put_once = port->config.put_once;

    if ((unload->policy != NP_UNLOAD_OFF) && !port->has_views) {
        np_error("UCX_NPRDMA_UNLOAD=%s changes nothing over %s: where "
                 "nprdma.ko keeps no views of memory (nprdma_info says why), "
                 "small puts go by the target's CPU in any case. Unset it, or "
                 "load the module",
                 np_unload_policy_names[unload->policy], port->config.device);
    } else if ((unload->policy != NP_UNLOAD_OFF) && (unload->max <= put_once)) {
        np_error("UCX_NPRDMA_UNLOAD_MAX is %zu: puts of up to "
                 "UCX_NPRDMA_PUT_ONCE=%zu bytes go by the target's CPU all the "
                 "same. Give it more, or PUT_ONCE less", unload->max, put_once);
    }
}

static np_vport_config_t
uct_nprdma_verbs_port_config(const uct_nprdma_verbs_config_t *config,
                             const char *device)
{
    return (np_vport_config_t){
        .device            = device,
        .gid_index         = (config->gid_index == UCS_ULUNITS_AUTO) ?
                             -1 : (int)config->gid_index,
        .recv_buffers      = config->recv_buffers,
        .send_buffers      = config->send_buffers,
        .sq_size           = config->queue,
        .credits           = config->credits,
        .direct_min        = (config->direct_min == UCS_MEMUNITS_AUTO) ?
                             0 : ucs_max(config->direct_min, (size_t)1),
        .chunk             = (config->chunk == UCS_MEMUNITS_AUTO) ?
                             0 : config->chunk,
        .depth             = config->depth,
        .pin_max           = config->pin_max,
        .put_once          = config->put_once,
        .connect_timeout   = config->connect_timeout,
        .timeout           = uct_nprdma_verbs_timeout(config->timeout),
        .retry_count       = config->retry_count,
        .reconnect_timeout = config->reconnect,
        .break_every       = config->break_every,
        .is_sequential     = !config->overlap
    };
}

static UCS_CLASS_INIT_FUNC(uct_nprdma_verbs_iface_t, uct_md_h md,
                           uct_worker_h worker,
                           const uct_iface_params_t *params,
                           const uct_iface_config_t *tl_config)
{
    const uct_nprdma_iface_config_t *config =
            ucs_derived_of(tl_config, uct_nprdma_iface_config_t);
    np_vport_config_t port_config           =
            uct_nprdma_verbs_port_config(&config->verbs,
                                         params->mode.device.dev_name);
    const np_vuser_t user                   = {
        .am        = uct_nprdma_iface_am,
        .arg       = self,
        .complete  = uct_nprdma_complete,
        .link_down = uct_nprdma_verbs_ep_link_down
    };
    uct_iface_ops_t ops;
    ucs_status_t status;

    status = uct_nprdma_verbs_check_config(&config->verbs);
    if (status != UCS_OK) {
        return status;
    }

    port_config.unload = config->unload.policy;
    status = uct_nprdma_unload_check(&config->unload, &port_config.unload_max);
    if (status != UCS_OK) {
        return status;
    }

    uct_nprdma_verbs_iface_fill_ops(&ops);
    UCS_CLASS_CALL_SUPER_INIT(uct_nprdma_iface_t, md, worker, params,
                              tl_config, &ops,
                              &uct_nprdma_verbs_iface_internal_ops);

    status = np_vport_open(&port_config, &np_vlink_ops, &user, &self->port);
    if (status != UCS_OK) {
        return status;
    }

    uct_nprdma_verbs_check_unload(&config->unload, self->port);
    self->port->yield.is_never = uct_nprdma_never_yields(worker);
    np_vport_query(self->port, &self->attr);
    self->super.links     = &self->port->flights;
    self->super.max_bcopy = self->attr.max_message;
    return UCS_OK;
}

static UCS_CLASS_CLEANUP_FUNC(uct_nprdma_verbs_iface_t)
{
    uct_base_iface_progress_disable(&self->super.super.super,
                                    UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    np_vport_close(self->port);
}

UCS_CLASS_DEFINE(uct_nprdma_verbs_iface_t, uct_nprdma_iface_t)
static UCS_CLASS_DEFINE_DELETE_FUNC(uct_nprdma_verbs_iface_t, uct_iface_t);
UCS_CLASS_DEFINE_NEW_FUNC(uct_nprdma_verbs_iface_t, uct_iface_t, uct_md_h,
                          uct_worker_h, const uct_iface_params_t*,
                          const uct_iface_config_t*)
