/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Interfaces and endpoints: which devices there are, their settings, and what
 * all devices share.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "soft.h"
#ifdef HAVE_VERBS
#  include "verbs.h"
#endif

#include "../../nprdma/proto/unload.h"

#include <ucs/sys/string.h>

/* Bytes of the largest put that may be unloaded */
#define UCT_NPRDMA_UNLOAD_MAX 1024u


static ucs_config_field_t uct_nprdma_iface_config_table[] = {
    {"", "", NULL, ucs_offsetof(uct_nprdma_iface_config_t, super),
     UCS_CONFIG_TYPE_TABLE(uct_iface_config_table)},

    {"RING_SIZE", "128",
     "Messages that may be under way to a peer: a power of two up to 64k.",
     ucs_offsetof(uct_nprdma_iface_config_t, soft.ring_size),
     UCS_CONFIG_TYPE_UINT},

    {"RING_BYTES", "32k",
     "Payload that may be under way to a peer: a power of two from 1k to 1g.\n"
     "Half of it, at most 12352 bytes, is the largest active message.",
     ucs_offsetof(uct_nprdma_iface_config_t, soft.ring_bytes),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"RING_BYTES_WIDE", "2m",
     "The same for a peer that gets much payload; at least RING_BYTES. Of\n"
     "more than 512k all is used only where it is tried and faster.",
     ucs_offsetof(uct_nprdma_iface_config_t, soft.ring_bytes_wide),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"WIDE_RINGS", "8",
     "Peers at a time that may have a ring of RING_BYTES_WIDE; bounds memory.",
     ucs_offsetof(uct_nprdma_iface_config_t, soft.wide_rings),
     UCS_CONFIG_TYPE_UINT},

    {"EAGER_MAX", "auto",
     "Messages up to this size, at most 64m, go through the rings in one go,\n"
     "larger ones by rendezvous. A receive that has begun to get one never\n"
     "ends if its sender dies. auto: 256k in ranks of MPI, whose jobs end\n"
     "then, else what is one active message. Not with UCX_RNDV_THRESH.",
     ucs_offsetof(uct_nprdma_iface_config_t, soft.eager_max),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"IB_GID_INDEX", "auto",
     "RDMA devices: which of the port's GIDs to use. \"auto\" takes RoCE v2\n"
     "over IPv4 if there is one, then RoCE v2, then any.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.gid_index),
     UCS_CONFIG_TYPE_ULUNITS},

    {"VERBS_RECV_BUFFERS", "256",
     "RDMA devices: buffers for messages from all peers together, 2 to 32768.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.recv_buffers),
     UCS_CONFIG_TYPE_UINT},

    {"VERBS_SEND_BUFFERS", "128",
     "RDMA devices: buffers for messages to all peers together, 2 to 32768.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.send_buffers),
     UCS_CONFIG_TYPE_UINT},

    {"VERBS_QUEUE", "128",
     "RDMA devices: work requests that a queue pair holds, 4 to 32768.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.queue),
     UCS_CONFIG_TYPE_UINT},

    {"VERBS_CREDITS", "128",
     "RDMA devices: messages that may be under way to a peer, 2 to 32768.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.credits),
     UCS_CONFIG_TYPE_UINT},

    {"VERBS_DIRECT_MIN", "auto",
     "RDMA devices: size from which a transfer is registered by both sides\n"
     "while it lasts; smaller ones travel in messages. \"auto\" for the size from\n"
     "which that is cheaper, measured when the device is opened; \"inf\" for\n"
     "never.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.direct_min),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"VERBS_CHUNK", "auto",
     "RDMA devices: bytes of such a transfer that are registered at once,\n"
     "from 16k to 1g. auto: as suits its size, measured on the device, from\n"
     "64k to 4m.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.chunk),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"VERBS_DEPTH", "4",
     "RDMA devices: such chunks of a transfer at a time on each side, 1 to 8.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.depth),
     UCS_CONFIG_TYPE_UINT},

    {"VERBS_PIN_MAX", "8m",
     "RDMA devices: bytes that all transfers of an interface together register on\n"
     "this side, while they last. One that finds nothing left begins with 64k.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.pin_max),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"PUT_ONCE", "8",
     "RDMA devices with nprdma.ko: puts of at most this many bytes are done\n"
     "exactly once, by the target's CPU. A larger put is one-sided, and may be\n"
     "written twice if its page goes meanwhile, which a lock word or a flag\n"
     "that its target clears would show.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.put_once),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"UNLOAD", "off",
     "RDMA devices with nprdma.ko, and soft0 with SOFT_TLB: which small puts\n"
     "go by the target's CPU, in messages, though the device could write\n"
     "them itself. It is slow where it has no translation of the page.\n"
     " - off       - none.\n"
     " - always    - all.\n"
     " - hint      - all but what threads post after they have said\n"
     "               nprdma_set_hint(NPRDMA_HINT_HOT).\n"
     " - frequency - those to pages that are not written often.\n"
     " - auto      - as off, always or frequency, by what puts were measured\n"
     "               to cost.",
     ucs_offsetof(uct_nprdma_iface_config_t, unload.policy),
     UCS_CONFIG_TYPE_ENUM(np_unload_policy_names)},

    {"UNLOAD_MAX", "256",
     "Bytes of the largest put that UNLOAD is about, 1 to 1k. Over RDMA\n"
     "devices those of at most PUT_ONCE bytes go by the target's CPU in any\n"
     "case.",
     ucs_offsetof(uct_nprdma_iface_config_t, unload.max),
     UCS_CONFIG_TYPE_MEMUNITS},

    {"CONNECT_TIMEOUT", "30s",
     "RDMA devices: time after which a peer that does not answer the first\n"
     "message to it is given up.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.connect_timeout),
     UCS_CONFIG_TYPE_TIME},

    {"VERBS_TIMEOUT", "250ms",
     "RDMA devices: time after which the device sends again what was not\n"
     "acknowledged; rounded up to 4.096us times a power of two.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.timeout),
     UCS_CONFIG_TYPE_TIME},

    {"VERBS_RETRY_COUNT", "6",
     "RDMA devices: how often it does that before it gives up, 0 to 7. Soft-RoCE\n"
     "takes 7 for \"for ever\".",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.retry_count),
     UCS_CONFIG_TYPE_UINT},

    {"VERBS_RECONNECT", "3s",
     "RDMA devices: how long to try to replace a queue pair that has failed, if\n"
     "the peer does not answer; messages, puts, gets and atomics then go on as\n"
     "if nothing had happened. 0 to end the endpoint at once.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.reconnect),
     UCS_CONFIG_TYPE_TIME},

    {"VERBS_OVERLAP", "y",
     "RDMA devices: both sides of a transfer register chunks at the same time,\n"
     "while others move. \"n\" for the traditional order, to compare: all of one\n"
     "side, then all of the other, then the data.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.overlap),
     UCS_CONFIG_TYPE_BOOL},

    {"VERBS_BREAK", "0",
     "For tests. RDMA devices: each queue pair fails after this many\n"
     "messages; 0 for never.",
     ucs_offsetof(uct_nprdma_iface_config_t, verbs.break_every),
     UCS_CONFIG_TYPE_UINT},

    {NULL}
};

ucs_status_t uct_nprdma_unload_check(const uct_nprdma_unload_config_t *config,
                                     size_t *max)
{
    char max_name[32];

    if ((config->max < 1) || (config->max > UCT_NPRDMA_UNLOAD_MAX)) {
        ucs_memunits_to_str(config->max, max_name, sizeof(max_name));
        np_error("UCX_NPRDMA_UNLOAD_MAX is %s: give it a value from 1 to %u",
                 max_name, UCT_NPRDMA_UNLOAD_MAX);
        return UCS_ERR_INVALID_PARAM;
    }

    *max = (config->policy == NP_UNLOAD_OFF) ? 0 : config->max;
    return UCS_OK;
}


void uct_nprdma_iface_query(uct_nprdma_iface_t *iface, uct_iface_attr_t *attr)
{
    const uint64_t ops = UCS_BIT(UCT_ATOMIC_OP_ADD) |
                         UCS_BIT(UCT_ATOMIC_OP_AND) |
                         UCS_BIT(UCT_ATOMIC_OP_OR) |
                         UCS_BIT(UCT_ATOMIC_OP_XOR);

    uct_base_iface_query(&iface->super, attr);

    attr->cap.flags              = UCT_IFACE_FLAG_CONNECT_TO_IFACE |
                                   UCT_IFACE_FLAG_AM_SHORT |
                                   UCT_IFACE_FLAG_AM_BCOPY |
                                   UCT_IFACE_FLAG_AM_ZCOPY |
                                   UCT_IFACE_FLAG_PUT_SHORT |
                                   UCT_IFACE_FLAG_PUT_BCOPY |
                                   UCT_IFACE_FLAG_PUT_ZCOPY |
                                   UCT_IFACE_FLAG_GET_BCOPY |
                                   UCT_IFACE_FLAG_GET_ZCOPY |
                                   UCT_IFACE_FLAG_ATOMIC_CPU |
                                   UCT_IFACE_FLAG_PENDING |
                                   UCT_IFACE_FLAG_CB_SYNC |
                                   UCT_IFACE_FLAG_EP_CHECK |
                                   UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE;
    attr->cap.event_flags        = UCT_IFACE_FLAG_EVENT_SEND_COMP |
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
    attr->cap.am.max_hdr          = uct_nprdma_iface_max_hdr(iface);
    attr->cap.am.max_iov          = NP_MAX_IOV;
    attr->cap.am.opt_zcopy_align  = 1;
    attr->cap.am.align_mtu        = 1;

    attr->cap.put.max_short       = iface->max_bcopy;
    attr->cap.put.max_bcopy       = iface->max_bcopy;
    attr->cap.put.max_zcopy       = SIZE_MAX;
    attr->cap.put.max_iov         = NP_MAX_IOV;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu       = 1;

    attr->cap.get.max_bcopy       = iface->max_bcopy;
    attr->cap.get.max_zcopy       = SIZE_MAX;
    attr->cap.get.max_iov         = NP_MAX_IOV;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu       = 1;
}

unsigned uct_nprdma_iface_end_later(uct_nprdma_iface_t *iface)
{
    const unsigned count = iface->num_later;
    uct_completion_t *later[UCT_NPRDMA_MAX_LATER];
    unsigned i;

    memcpy(later, iface->later, count * sizeof(*later));
    iface->num_later = 0;
    for (i = 0; i < count; ++i) {
        uct_invoke_completion(later[i], UCS_OK);
    }
    return count;
}

ucs_status_t uct_nprdma_iface_flush_later(uct_nprdma_iface_t *iface,
                                          uct_completion_t *comp)
{
    if (iface->num_later == UCT_NPRDMA_MAX_LATER) {
        uct_nprdma_iface_end_later(iface); /* there must be room */
        return UCS_OK;
    }
    return (comp == NULL) ? UCS_INPROGRESS :
           uct_nprdma_iface_later(iface, UCS_OK, comp);
}

ucs_status_t uct_nprdma_iface_flush(uct_iface_h tl_iface, unsigned flags,
                                    uct_completion_t *comp)
{
    uct_nprdma_iface_t *iface = ucs_derived_of(tl_iface, uct_nprdma_iface_t);
    ucs_status_t status;

    status = np_eps_flush(iface->links, comp);
    if ((status == UCS_OK) && (comp == NULL) &&
        !ucs_arbiter_is_empty(&iface->arbiter)) {
        status = UCS_INPROGRESS; /* what waits for room counts for UCP */
    }
    status = uct_nprdma_flushed(iface, status, comp);

    if (status == UCS_INPROGRESS) {
        UCT_TL_IFACE_STAT_FLUSH_WAIT(&iface->super);
    } else {
        UCT_TL_IFACE_STAT_FLUSH(&iface->super);
    }
    return status;
}

ucs_status_t uct_nprdma_iface_fence(uct_iface_h tl_iface, unsigned flags)
{
    uct_nprdma_iface_t *iface = ucs_derived_of(tl_iface, uct_nprdma_iface_t);

    ++iface->fences;
    np_eps_fence(iface->links);
    UCT_TL_IFACE_STAT_FENCE(&iface->super);
    return UCS_OK;
}

void uct_nprdma_complete(void *comp, ucs_status_t status)
{
    uct_invoke_completion(comp, status);
}

/* Messages are handed over where they lie, without descriptors; UCT aligns only
 * descriptors. Values that make no sense are refused, as by transports that
 * have some. An offset may be larger than the alignment, as it is for these:
 * UCP's is that of its header, whatever alignment its user wants. */
static ucs_status_t
uct_nprdma_iface_check_alignment(const uct_iface_params_t *params)
{
    const int has_align = !!(params->field_mask &
                             UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT);

    if (has_align && !ucs_is_pow2(params->am_alignment)) {
        np_error("active messages cannot be aligned to %zu bytes: that is no "
                 "power of two", params->am_alignment);
        return UCS_ERR_INVALID_PARAM;
    }

    if (!has_align &&
        (params->field_mask & UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET)) {
        np_error("there is an offset of what is aligned in active messages "
                 "(%zu), but no alignment", params->am_align_offset);
        return UCS_ERR_INVALID_PARAM;
    }

    return UCS_OK;
}

UCS_CLASS_INIT_FUNC(uct_nprdma_iface_t, uct_md_h md, uct_worker_h worker,
                    const uct_iface_params_t *params,
                    const uct_iface_config_t *config, uct_iface_ops_t *ops,
                    uct_iface_internal_ops_t *internal_ops)
{
    const uct_iface_ops_t plain = *ops;
    ucs_status_t status;

    UCT_CHECK_PARAM(params->field_mask & UCT_IFACE_PARAM_FIELD_OPEN_MODE,
                    "UCT_IFACE_PARAM_FIELD_OPEN_MODE is not defined");
    if (!(params->open_mode & UCT_IFACE_OPEN_MODE_DEVICE)) {
        np_error("nprdma supports only UCT_IFACE_OPEN_MODE_DEVICE");
        return UCS_ERR_UNSUPPORTED;
    }

    status = uct_nprdma_iface_check_alignment(params);
    if (status != UCS_OK) {
        return status;
    }

    if (uct_nprdma_thread_mode(worker) == UCS_THREAD_MODE_MULTI) {
        uct_nprdma_mt_wrap(ops);
    }

    UCS_CLASS_CALL_SUPER_INIT(
            uct_base_iface_t, ops, internal_ops, md, worker, params,
            config UCS_STATS_ARG(
                    (params->field_mask & UCT_IFACE_PARAM_FIELD_STATS_ROOT) ?
                    params->stats_root : NULL)
                    UCS_STATS_ARG(UCT_NPRDMA_NAME));

    status = ucs_recursive_spinlock_init(&self->lock, 0);
    if (status != UCS_OK) {
        return status;
    }

    self->ops       = plain;
    self->fences    = 0;
    self->num_later = 0;
    ucs_arbiter_init(&self->arbiter);
    return UCS_OK;
}

static UCS_CLASS_CLEANUP_FUNC(uct_nprdma_iface_t)
{
    uct_nprdma_iface_end_later(self);
    ucs_arbiter_cleanup(&self->arbiter);
    ucs_recursive_spinlock_destroy(&self->lock);
}

UCS_CLASS_DEFINE(uct_nprdma_iface_t, uct_base_iface_t)

UCS_CLASS_INIT_FUNC(uct_nprdma_ep_t, const uct_ep_params_t *params,
                    np_flight_t *link)
{
    uct_nprdma_iface_t *iface = ucs_derived_of(params->iface,
                                               uct_nprdma_iface_t);

    UCT_EP_PARAMS_CHECK_DEV_IFACE_ADDRS(params);
    UCS_CLASS_CALL_SUPER_INIT(uct_base_ep_t, &iface->super);

    self->link        = link;
    self->num_pending = 0;
    self->fences      = 0;
    self->fences_kept = 0;
    ucs_arbiter_group_init(&self->arb_group);
    return UCS_OK;
}

static UCS_CLASS_CLEANUP_FUNC(uct_nprdma_ep_t)
{
    ucs_arbiter_group_cleanup(&self->arb_group);
}

UCS_CLASS_DEFINE(uct_nprdma_ep_t, uct_base_ep_t)

void uct_nprdma_ep_failed(uct_nprdma_ep_t *ep, ucs_status_t status,
                          const char *peer)
{
    uct_base_iface_t *iface = &uct_nprdma_ep_iface(ep)->super;
    ucs_status_t handled;

    /* UCP 1.13 ends the process if it is told of the failure while its answer
     * to the peer's request to connect waits (ucp_request.c, "got REP
     * message"); by itself it fails as it should */
    uct_nprdma_ep_pending_fail(ep);
    handled = uct_iface_handle_ep_err(&iface->super, &ep->super.super, status);
    ucs_log(uct_base_iface_failure_log_level(iface, handled, status),
            "nprdma: %s: %s", peer, ucs_status_string(status));
}

static void uct_nprdma_set_device(uct_tl_device_resource_t *device,
                                  const char *name, uct_device_type_t type,
                                  ucs_sys_device_t sys_device)
{
    memset(device, 0, sizeof(*device));
    ucs_snprintf_zero(device->name, sizeof(device->name), "%s", name);
    device->type       = type;
    device->sys_device = sys_device;
}

static ucs_status_t
uct_nprdma_query_devices(uct_md_h md, uct_tl_device_resource_t **devices_p,
                         unsigned *num_devices_p)
{
    uct_tl_device_resource_t *devices;
    unsigned num_nics = 0;
#ifdef HAVE_VERBS
    np_nic_name_t *nics;
    unsigned i;

    num_nics = np_nic_list(&nics);
#endif

    devices = ucs_malloc((num_nics + 1) * sizeof(*devices), "nprdma_devices");
    if (devices == NULL) {
        np_error("no memory for the names of %u devices", num_nics + 1);
    } else {
        uct_nprdma_set_device(&devices[0], UCT_NPRDMA_DEVICE,
                              UCT_DEVICE_TYPE_SHM, UCS_SYS_DEVICE_ID_UNKNOWN);
    }

#ifdef HAVE_VERBS
    for (i = 0; (devices != NULL) && (i < num_nics); ++i) {
        uct_nprdma_set_device(&devices[i + 1], nics[i].name,
                              UCT_DEVICE_TYPE_NET,
                              uct_nprdma_verbs_sys_device(nics[i].name));
    }
    free(nics);
#endif

    *devices_p     = devices;
    *num_devices_p = num_nics + 1;
    return (devices == NULL) ? UCS_ERR_NO_MEMORY : UCS_OK;
}

/* In place of the function that a class would define: there are several
 * classes */
static ucs_status_t
UCS_CLASS_NEW_FUNC_NAME(uct_nprdma_any_iface)(uct_md_h md,
                                              uct_worker_h worker,
                                              const uct_iface_params_t *params,
                                              const uct_iface_config_t *config,
                                              uct_iface_h *iface_p)
{
#ifdef HAVE_VERBS
    /* As uct_ib does: ucx_perftest names a device without its field's bit */
    if ((params->field_mask & UCT_IFACE_PARAM_FIELD_OPEN_MODE) &&
        (params->open_mode & UCT_IFACE_OPEN_MODE_DEVICE) &&
        strcmp(params->mode.device.dev_name, UCT_NPRDMA_DEVICE) != 0) {
        return UCS_CLASS_NEW_FUNC_NAME(uct_nprdma_verbs_iface_t)(
                md, worker, params, config, iface_p);
    }
#endif

    return UCS_CLASS_NEW_FUNC_NAME(uct_nprdma_soft_iface_t)(
            md, worker, params, config, iface_p);
}

UCT_TL_DEFINE_ENTRY(&uct_nprdma_component, nprdma, uct_nprdma_query_devices,
                    uct_nprdma_any_iface, "NPRDMA_",
                    uct_nprdma_iface_config_table, uct_nprdma_iface_config_t)
