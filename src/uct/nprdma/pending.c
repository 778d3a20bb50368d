/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Endpoints: operations that wait for room, or for others.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "nprdma.h"

#include "../../nprdma/thread_flags.h"

/* The private words of a request that waits */
typedef struct uct_nprdma_pending {
    uct_pending_req_priv_arb_t super;
    unsigned                   order;  /* flags of the thread that has posted
                                        * it */
    unsigned                   fences; /* number of fences before it */
} uct_nprdma_pending_t;


static UCS_F_ALWAYS_INLINE uct_nprdma_pending_t *
uct_nprdma_pending(uct_pending_req_t *req)
{
    UCS_STATIC_ASSERT(sizeof(uct_nprdma_pending_t) <=
                      UCT_PENDING_REQ_PRIV_LEN);
    return (uct_nprdma_pending_t*)&req->priv;
}

static UCS_F_ALWAYS_INLINE unsigned
uct_nprdma_ep_fences(const uct_nprdma_ep_t *ep, const uct_nprdma_iface_t *iface)
{
    return ep->fences + iface->fences;
}

/* The engine's fence is for what was posted. If a fence came while operations
 * waited, what came after it must wait until these are complete as well. */
static void uct_nprdma_ep_keep_fence(uct_nprdma_ep_t *ep, unsigned fences)
{
    if (ucs_unlikely(ep->fences_kept != fences)) {
        np_ep_fence(ep->link);
        ep->fences_kept = fences;
    }
}

ucs_status_t
uct_nprdma_ep_pending_add(uct_ep_h tl_ep, uct_pending_req_t *req,
                          unsigned flags)
{
    uct_nprdma_ep_t *ep       = ucs_derived_of(tl_ep, uct_nprdma_ep_t);
    uct_nprdma_iface_t *iface = uct_nprdma_ep_iface(ep);

    if ((ep->num_pending == 0) && np_ep_has_resources(ep->link)) {
        return UCS_ERR_BUSY;
    }

    if (ep->num_pending == 0) {
        ep->fences_kept = uct_nprdma_ep_fences(ep, iface);
    }

    uct_nprdma_pending(req)->order  = np_order_flags();
    uct_nprdma_pending(req)->fences = uct_nprdma_ep_fences(ep, iface);
    uct_pending_req_arb_group_push(&ep->arb_group, req);
    ucs_arbiter_group_schedule(&iface->arbiter, &ep->arb_group);

    /* Nothing overtakes what waits, active messages least of all */
    ++ep->num_pending;
    np_ep_set_pending(ep->link, 1);
    UCT_TL_EP_STAT_PEND(&ep->super);
    return UCS_OK;
}

static void uct_nprdma_ep_pending_removed(uct_nprdma_ep_t *ep)
{
    uct_nprdma_iface_t *iface = uct_nprdma_ep_iface(ep);

    np_assert(ep->num_pending > 0);
    if (--ep->num_pending == 0) {
        uct_nprdma_ep_keep_fence(ep, uct_nprdma_ep_fences(ep, iface));
        np_ep_set_pending(ep->link, 0);
    }
}

static ucs_arbiter_cb_result_t
uct_nprdma_ep_progress_pending(ucs_arbiter_t *arbiter,
                               ucs_arbiter_group_t *group,
                               ucs_arbiter_elem_t *elem, void *arg)
{
    uct_nprdma_ep_t *ep    = ucs_container_of(group, uct_nprdma_ep_t,
                                              arb_group);
    uct_pending_req_t *req = ucs_container_of(elem, uct_pending_req_t, priv);
    unsigned *count        = arg;
    ucs_status_t status;
    int is_lent;

    uct_nprdma_ep_keep_fence(ep, uct_nprdma_pending(req)->fences);
    if (!np_ep_has_resources(ep->link)) {
        return UCS_ARBITER_CB_RESULT_RESCHED_GROUP;
    }

    is_lent = np_order_lend(uct_nprdma_pending(req)->order);
    np_ep_set_pending(ep->link, 0);
    status = req->func(req);
    np_ep_set_pending(ep->link, 1);
    if (ucs_unlikely(is_lent)) {
        np_order_return();
    }

    if (status == UCS_OK) {
        ++(*count);
        uct_nprdma_ep_pending_removed(ep);
        return UCS_ARBITER_CB_RESULT_REMOVE_ELEM;
    } else if (status == UCS_INPROGRESS) {
        ++(*count);
        return UCS_ARBITER_CB_RESULT_NEXT_GROUP;
    }

    return UCS_ARBITER_CB_RESULT_RESCHED_GROUP;
}

unsigned uct_nprdma_iface_progress_pending(uct_nprdma_iface_t *iface)
{
    unsigned count = 0;

    ucs_arbiter_dispatch(&iface->arbiter, 1, uct_nprdma_ep_progress_pending,
                         &count);
    return count;
}

/* It fails by itself; what does not stays, for who purges it */
static ucs_arbiter_cb_result_t
uct_nprdma_ep_fail_one(ucs_arbiter_t *arbiter, ucs_arbiter_group_t *group,
                       ucs_arbiter_elem_t *elem, void *arg)
{
    uct_nprdma_ep_t *ep    = ucs_container_of(group, uct_nprdma_ep_t,
                                              arb_group);
    uct_pending_req_t *req = ucs_container_of(elem, uct_pending_req_t, priv);

    np_ep_set_pending(ep->link, 0);
    if (req->func(req) != UCS_OK) {
        np_ep_set_pending(ep->link, 1);
        return UCS_ARBITER_CB_RESULT_RESCHED_GROUP;
    }

    np_ep_set_pending(ep->link, 1);
    uct_nprdma_ep_pending_removed(ep);
    return UCS_ARBITER_CB_RESULT_REMOVE_ELEM;
}

void uct_nprdma_ep_pending_fail(uct_nprdma_ep_t *ep)
{
    ucs_arbiter_group_purge(&uct_nprdma_ep_iface(ep)->arbiter, &ep->arb_group,
                            uct_nprdma_ep_fail_one, NULL);
}

static ucs_arbiter_cb_result_t
uct_nprdma_ep_purge_one(ucs_arbiter_t *arbiter, ucs_arbiter_group_t *group,
                        ucs_arbiter_elem_t *elem, void *arg)
{
    uct_nprdma_ep_t *ep       = ucs_container_of(group, uct_nprdma_ep_t,
                                                 arb_group);
    uct_pending_req_t *req    = ucs_container_of(elem, uct_pending_req_t,
                                                 priv);
    uct_purge_cb_args_t *args = arg;

    uct_nprdma_ep_pending_removed(ep);
    if (args->cb != NULL) {
        args->cb(req, args->arg);
    } else {
        np_warn("ep %p drops pending request %p", ep, req);
    }
    return UCS_ARBITER_CB_RESULT_REMOVE_ELEM;
}

void uct_nprdma_ep_pending_purge(uct_ep_h tl_ep,
                                 uct_pending_purge_callback_t cb, void *arg)
{
    uct_nprdma_ep_t *ep      = ucs_derived_of(tl_ep, uct_nprdma_ep_t);
    uct_purge_cb_args_t args = {cb, arg};

    ucs_arbiter_group_purge(&uct_nprdma_ep_iface(ep)->arbiter, &ep->arb_group,
                            uct_nprdma_ep_purge_one, &args);
}
