/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The face to UCX: component and memory domain, and what the interfaces and
 * endpoints of all devices share.
 */

#ifndef UCT_NPRDMA_H_
#define UCT_NPRDMA_H_

#include "ucx_compat.h"

#include "../../nprdma/engine.h"
#include "../../nprdma/proto/ep.h"

#include <ucs/sys/string.h>
#include <ucs/type/spinlock.h>

#define UCT_NPRDMA_NAME  "nprdma"

/** Gets that were done at once and are complete in the next progress; if there
 *  are more, they are complete when they return */
#define UCT_NPRDMA_MAX_LATER 64

/** Settings of a memory domain: those of the engine */
typedef struct uct_nprdma_md_config {
    uct_md_config_t    super;
    np_engine_config_t engine;
} uct_nprdma_md_config_t;

/** As UCX reads them */
extern ucs_config_field_t uct_nprdma_md_config_table[];

typedef struct uct_nprdma_md {
    uct_md_t super;
    int      can_invalidate; /**< with exact scope, and soft0 alone */
} uct_nprdma_md_t;

typedef struct uct_nprdma_soft_config {
    unsigned ring_size;
    size_t   ring_bytes;
    size_t   ring_bytes_wide;
    size_t   eager_max; /**< or UCS_MEMUNITS_AUTO */
    unsigned wide_rings;
} uct_nprdma_soft_config_t;

typedef struct uct_nprdma_verbs_config {
    unsigned long gid_index;       /**< or UCS_ULUNITS_AUTO */
    unsigned      recv_buffers;
    unsigned      send_buffers;
    unsigned      queue;
    unsigned      credits;
    size_t        direct_min;
    size_t        chunk;
    unsigned      depth;
    size_t        pin_max;
    size_t        put_once;
    double        connect_timeout; /**< seconds */
    double        timeout;         /**< seconds */
    unsigned      retry_count;
    double        reconnect;       /**< seconds */
    int           overlap;
    unsigned      break_every;
} uct_nprdma_verbs_config_t;

/** Small puts that devices leave to the target's CPU */
typedef struct uct_nprdma_unload_config {
    int    policy; /**< np_unload_policy_t */
    size_t max;    /**< bytes that it is asked about */
} uct_nprdma_unload_config_t;

/** Settings of an interface, whatever its device */
typedef struct uct_nprdma_iface_config {
    uct_iface_config_t         super;
    uct_nprdma_soft_config_t   soft;
    uct_nprdma_verbs_config_t  verbs;
    uct_nprdma_unload_config_t unload;
} uct_nprdma_iface_config_t;

/** First part of a device address: UCP compares addresses of all devices of a
 *  transport with each other */
typedef enum uct_nprdma_kind {
    UCT_NPRDMA_SOFT  = 1,
    UCT_NPRDMA_VERBS = 2
} uct_nprdma_kind_t;

typedef struct uct_nprdma_ep uct_nprdma_ep_t;

/** What interfaces of all devices share. Used by one thread at a time, or under
 *  its lock (mt.c). */
typedef struct uct_nprdma_iface {
    uct_base_iface_t         super;
    np_flights_t             *links;    /**< the port's */
    ucs_arbiter_t            arbiter;   /**< operations that wait for room */
    unsigned                 max_bcopy;
    unsigned                 fences;    /**< of the interface, ever */
    unsigned                 num_later; /**< of what follows */
    uct_completion_t         *later[UCT_NPRDMA_MAX_LATER];
    ucs_recursive_spinlock_t lock;      /**< only for multi-threaded workers */
    uct_iface_ops_t          ops;       /**< the operations without the lock */
} uct_nprdma_iface_t;

struct uct_nprdma_ep {
    uct_base_ep_t       super;
    np_flight_t         *link;        /**< its link's */
    ucs_arbiter_group_t arb_group;
    unsigned            num_pending;
    unsigned            fences;       /**< of the endpoint alone, ever */
    unsigned            fences_kept;  /**< while others wait: of both, those
                                           that the engine knows */
};

UCS_CLASS_DECLARE(uct_nprdma_iface_t, uct_md_h, uct_worker_h,
                  const uct_iface_params_t*, const uct_iface_config_t*,
                  uct_iface_ops_t*, uct_iface_internal_ops_t*)
UCS_CLASS_DECLARE(uct_nprdma_ep_t, const uct_ep_params_t*, np_flight_t*)

/** One for each kind of device; what iface_open does */
UCS_CLASS_DECLARE_NEW_FUNC(uct_nprdma_soft_iface_t, uct_iface_t, uct_md_h,
                           uct_worker_h, const uct_iface_params_t*,
                           const uct_iface_config_t*);
UCS_CLASS_DECLARE_NEW_FUNC(uct_nprdma_verbs_iface_t, uct_iface_t, uct_md_h,
                           uct_worker_h, const uct_iface_params_t*,
                           const uct_iface_config_t*);

extern uct_component_t uct_nprdma_component;
extern uct_tl_t uct_nprdma_tl;

/** Attributes of any of our devices, all but those of its speed */
void uct_nprdma_iface_query(uct_nprdma_iface_t *iface, uct_iface_attr_t *attr);

/**
 * May these be the settings?
 *
 * @param [out] max  Bytes that the policy is asked about; 0: it is off.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM (logged).
 */
ucs_status_t uct_nprdma_unload_check(const uct_nprdma_unload_config_t *config,
                                     size_t *max);

/** An operation is complete */
void uct_nprdma_complete(void *comp, ucs_status_t status);

/** Complete what is complete later, and return how many there were. What is
 *  begun in their callbacks waits for the next call. */
unsigned uct_nprdma_iface_end_later(uct_nprdma_iface_t *iface);

/** Is anything complete later? */
static UCS_F_ALWAYS_INLINE int
uct_nprdma_iface_has_later(const uct_nprdma_iface_t *iface)
{
    return UCT_NPRDMA_GETS_END_LATER && ucs_unlikely(iface->num_later > 0);
}

/** At the begin of progress: a flush that this progress ends comes after
 *  them */
static UCS_F_ALWAYS_INLINE unsigned
uct_nprdma_iface_progress_later(uct_nprdma_iface_t *iface)
{
    return uct_nprdma_iface_has_later(iface) ?
           uct_nprdma_iface_end_later(iface) : 0;
}

/** An operation was done, which @a status says: is it complete later? Then
 *  returns UCS_INPROGRESS. */
static UCS_F_ALWAYS_INLINE ucs_status_t
uct_nprdma_iface_later(uct_nprdma_iface_t *iface, ucs_status_t status,
                       uct_completion_t *comp)
{
    if (!UCT_NPRDMA_GETS_END_LATER || (status != UCS_OK) || (comp == NULL) ||
        (iface->num_later == UCT_NPRDMA_MAX_LATER)) {
        return status;
    }

    iface->later[iface->num_later++] = comp;
    return UCS_INPROGRESS;
}

/** A flush was done, and something is complete later: so is the flush */
ucs_status_t uct_nprdma_iface_flush_later(uct_nprdma_iface_t *iface,
                                          uct_completion_t *comp);

/** The result of a flush, which completes after those */
static UCS_F_ALWAYS_INLINE ucs_status_t
uct_nprdma_flushed(uct_nprdma_iface_t *iface, ucs_status_t status,
                   uct_completion_t *comp)
{
    return (uct_nprdma_iface_has_later(iface) && (status == UCS_OK)) ?
           uct_nprdma_iface_flush_later(iface, comp) : status;
}

/** Members of every device's table of operations */
ucs_status_t uct_nprdma_iface_flush(uct_iface_h iface, unsigned flags,
                                    uct_completion_t *comp);
ucs_status_t uct_nprdma_iface_fence(uct_iface_h iface, unsigned flags);

/** The endpoint does not work any more; @a peer names the process it led to */
void uct_nprdma_ep_failed(uct_nprdma_ep_t *ep, ucs_status_t status,
                          const char *peer);

/** ep.c: members of every device's table of operations */
ucs_status_t
uct_nprdma_ep_put_zcopy(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt,
                        uint64_t remote_addr, uct_rkey_t rkey,
                        uct_completion_t *comp);
ucs_status_t
uct_nprdma_ep_get_zcopy(uct_ep_h ep, const uct_iov_t *iov, size_t iovcnt,
                        uint64_t remote_addr, uct_rkey_t rkey,
                        uct_completion_t *comp);
ssize_t
uct_nprdma_ep_put_bcopy(uct_ep_h ep, uct_pack_callback_t pack_cb, void *arg,
                        uint64_t remote_addr, uct_rkey_t rkey);
ucs_status_t
uct_nprdma_ep_check(uct_ep_h ep, unsigned flags, uct_completion_t *comp);
ucs_status_t
uct_nprdma_ep_flush(uct_ep_h ep, unsigned flags, uct_completion_t *comp);
ucs_status_t uct_nprdma_ep_fence(uct_ep_h ep, unsigned flags);
ucs_status_t
uct_nprdma_ep_atomic_cswap64(uct_ep_h ep, uint64_t compare, uint64_t swap,
                             uint64_t remote_addr, uct_rkey_t rkey,
                             uint64_t *result, uct_completion_t *comp);
ucs_status_t
uct_nprdma_ep_atomic_cswap32(uct_ep_h ep, uint32_t compare, uint32_t swap,
                             uint64_t remote_addr, uct_rkey_t rkey,
                             uint32_t *result, uct_completion_t *comp);
ucs_status_t
uct_nprdma_ep_atomic64_post(uct_ep_h ep, unsigned opcode, uint64_t value,
                            uint64_t remote_addr, uct_rkey_t rkey);
ucs_status_t
uct_nprdma_ep_atomic32_post(uct_ep_h ep, unsigned opcode, uint32_t value,
                            uint64_t remote_addr, uct_rkey_t rkey);
ucs_status_t
uct_nprdma_ep_atomic64_fetch(uct_ep_h ep, unsigned opcode, uint64_t value,
                             uint64_t *result, uint64_t remote_addr,
                             uct_rkey_t rkey, uct_completion_t *comp);
ucs_status_t
uct_nprdma_ep_atomic32_fetch(uct_ep_h ep, unsigned opcode, uint32_t value,
                             uint32_t *result, uint64_t remote_addr,
                             uct_rkey_t rkey, uct_completion_t *comp);

/** pending.c: the same */
ucs_status_t
uct_nprdma_ep_pending_add(uct_ep_h tl_ep, uct_pending_req_t *req,
                          unsigned flags);
void uct_nprdma_ep_pending_purge(uct_ep_h tl_ep,
                                 uct_pending_purge_callback_t cb, void *arg);

/** The link is down: those that wait fail, as far as they do so by themselves.
 *  The rest is for who purges them. */
void uct_nprdma_ep_pending_fail(uct_nprdma_ep_t *ep);

/** Send the operations that wait for room; returns how many */
unsigned uct_nprdma_iface_progress_pending(uct_nprdma_iface_t *iface);

/** Replace every operation of a table by one that holds the iface's lock */
void uct_nprdma_mt_wrap(uct_iface_ops_t *ops);


/** How many threads use what belongs to it */
static inline ucs_thread_mode_t uct_nprdma_thread_mode(uct_worker_h worker)
{
    return ucs_derived_of(worker, uct_priv_worker_t)->thread_mode;
}

/** Is a lock held in progress, ours or UCP's, for which others may spin? */
static inline int uct_nprdma_never_yields(uct_worker_h worker)
{
    return uct_nprdma_thread_mode(worker) != UCS_THREAD_MODE_SINGLE;
}

static UCS_F_ALWAYS_INLINE uct_nprdma_iface_t *
uct_nprdma_ep_iface(uct_nprdma_ep_t *ep)
{
    return ucs_derived_of(ep->super.super.iface, uct_nprdma_iface_t);
}

/** Largest header of a message that its caller passes apart from the data */
static UCS_F_ALWAYS_INLINE size_t
uct_nprdma_iface_max_hdr(const uct_nprdma_iface_t *iface)
{
    return iface->max_bcopy / 2;
}

/** An active message has come; @a arg is the interface */
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

static UCS_F_ALWAYS_INLINE size_t
uct_nprdma_iov(const uct_iov_t *iov, size_t iovcnt, np_iov_t *out)
{
    size_t i;

    for (i = 0; i < iovcnt; ++i) {
        out[i].base = uct_iov_get_buffer(&iov[i]);
        out[i].len  = uct_iov_get_length(&iov[i]);
    }
    return iovcnt;
}

#endif
