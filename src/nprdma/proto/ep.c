/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What an endpoint asks of its link.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "ep.h"

#include "order.h"

#include <string.h>

/* A turn that ends with the function */
#define NP_EP_TURN  __attribute__((cleanup(np_turn_leave))) np_turn_t


/* The owner's turn; 0: a thread has it */
static UCS_F_ALWAYS_INLINE int
np_ep_enter(const np_flights_t *all, np_turn_t **turn_p)
{
    return (all->turn == NULL) ||
           ((*turn_p = np_turn_enter(all->turn)) != NULL);
}

/* The same, after a thread's turn has ended. 0: a forked child does not wait
 * for a turn that its parent's thread had. */
static int np_ep_wait(const np_flights_t *all, np_turn_t **turn_p)
{
    if (ucs_likely(np_ep_enter(all, turn_p))) {
        return 1;
    }

    if (!np_flights_are_ours(all)) {
        return 0;
    }
    *turn_p = np_turn_wait(all->turn);
    return 1;
}

/* The same, for what ends the link. If threads use the port, a forked child
 * leaves that to its parent. */
static int np_ep_wait_to_end(const np_flights_t *all, np_turn_t **turn_p)
{
    return ((all->turn == NULL) || np_flights_are_ours(all)) &&
           np_ep_wait(all, turn_p);
}

/* The owner's turn; and may what is not empty start, with this key? */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_ep_begin(np_flight_t *flight, const np_key_t *key, uint64_t *addr,
            size_t len, np_turn_t **turn_p)
{
    return np_ep_enter(flight->all, turn_p) ?
           np_flight_start_key(flight, key, addr, len) : UCS_ERR_NO_RESOURCE;
}

void np_ep_close(np_flight_t *flight)
{
    np_flights_t *all = flight->all;
    NP_EP_TURN *turn  = NULL;

    if (!np_ep_wait_to_end(all, &turn)) {
        return;
    }

    /* callbacks begin nothing more, and the user is not told that it is down */
    flight->is_reported = 1;
    (void)np_flight_end(flight, UCS_ERR_CANCELED);
    if (all->dev->leave != NULL) {
        all->dev->leave(flight);
    }
    np_flight_cancel(flight, UCS_ERR_CANCELED);
    if (all->ways->left != NULL) {
        all->ways->left(flight);
    }
    ucs_list_del(&flight->down);
    if (all->dev->close != NULL) {
        all->dev->close(flight);
    }
}

ucs_status_t np_ep_nothing(np_flight_t *flight)
{
    NP_EP_TURN *turn    = NULL;
    ucs_status_t status = UCS_OK;

    if (!np_ep_enter(flight->all, &turn)) {
        return UCS_ERR_NO_RESOURCE;
    }

    if (np_flight_is_down(flight)) {
        status = flight->status;
    } else if (!(flight->gate & NP_GATE_UNCONNECTED)) {
        (void)flight->all->dev->check(flight);
    }
    if (np_flight_is_down(flight)) {
        np_flight_report(flight);
    }
    return status;
}

ucs_status_t np_ep_move(np_dir_t dir, np_flight_t *flight, np_key_t *key,
                        const np_iov_t *iov, size_t iovcnt, uint64_t addr,
                        void *comp)
{
    NP_EP_TURN *turn = NULL;
    const size_t len = np_iov_length(iov, iovcnt);
    ucs_status_t status;

    if (ucs_unlikely(len == 0)) {
        return np_ep_nothing(flight);
    }

    status = np_ep_begin(flight, key, &addr, len, &turn);
    return ucs_likely(status == UCS_OK) ?
           flight->all->ways->move(dir, flight, key, iov, iovcnt, len, addr,
                                   comp) :
           (dir == NP_DIR_PUT) ? status :
           np_flight_refuse_op(flight, status, comp);
}

ucs_status_t np_ep_put_copied(np_flight_t *flight, np_key_t *key,
                              const void *data, size_t len, uint64_t addr)
{
    NP_EP_TURN *turn = NULL;
    ucs_status_t status;

    if (ucs_unlikely(len == 0)) {
        return np_ep_nothing(flight);
    }

    status = np_ep_begin(flight, key, &addr, len, &turn);
    return ucs_likely(status == UCS_OK) ?
           flight->all->ways->put_copied(flight, key, data, len, addr) : status;
}

ssize_t np_ep_put_packed(np_flight_t *flight, np_key_t *key, np_pack_t pack,
                         void *arg, uint64_t addr)
{
    NP_EP_TURN *turn = NULL;

    if (!np_ep_enter(flight->all, &turn)) {
        return UCS_ERR_NO_RESOURCE;
    }

    return flight->all->ways->put_packed(flight, key, pack, arg, addr);
}

ucs_status_t np_ep_get_unpack(np_flight_t *flight, np_key_t *key, size_t len,
                              uint64_t addr, np_unpack_t unpack, void *arg,
                              void *comp)
{
    NP_EP_TURN *turn = NULL;
    ucs_status_t status;

    if (ucs_unlikely(len == 0)) {
        return np_ep_nothing(flight);
    }

    status = np_ep_begin(flight, key, &addr, len, &turn);
    return ucs_likely(status == UCS_OK) ?
           flight->all->ways->get_unpack(flight, key, len, addr, unpack, arg,
                                         comp) :
           np_flight_refuse_op(flight, status, comp);
}

/* Only a fence is in the way of an atomic, which can be kept until that is
 * passed */
static int np_ep_is_kept(const np_flight_t *flight, ucs_status_t status)
{
    return (status == UCS_ERR_NO_RESOURCE) &&
           (flight->gate == NP_GATE_FENCED) && flight->all->ways->keeps_atomics;
}

ucs_status_t np_ep_atomic(np_flight_t *flight, np_key_t *key,
                          np_atomic_t *request, void *result, void *comp)
{
    const np_way_ops_t *ways = flight->all->ways;
    NP_EP_TURN *turn         = NULL;
    ucs_status_t status;
    uint64_t old;

    if (!np_ep_enter(flight->all, &turn)) {
        return UCS_ERR_NO_RESOURCE;
    }

    status = np_flight_fence_atomic(flight, request->addr, request->size);
    if (status == UCS_OK) {
        status = np_flight_start_key(flight, key, &request->addr,
                                     request->size);
    }
    if (ucs_unlikely(status != UCS_OK) && !np_ep_is_kept(flight, status)) {
        return np_flight_refuse_op(flight, status, comp);
    }

    /* A link's atomics are executed in order: none passes one that waits */
    if ((ways->atomic_now != NULL) && (flight->outstanding == 0)) {
        status = ways->atomic_now(flight, key, request, &old);
        if ((status == UCS_OK) && (result != NULL)) {
            memcpy(result, &old, request->size); /* little-endian */
        }
        if (status != UCS_ERR_NO_PROGRESS) {
            return status;
        }
    }

    status = ways->atomic(flight, request, result, comp);
    return ((status == UCS_INPROGRESS) && (result == NULL) && (comp == NULL)) ?
           UCS_OK : status;
}

ucs_status_t np_ep_flush(np_flight_t *flight, void *comp)
{
    NP_EP_TURN *turn = NULL;

    if (!np_ep_enter(flight->all, &turn)) {
        return UCS_ERR_NO_RESOURCE;
    }

    return np_flight_flush(flight, comp);
}

void np_ep_fence(np_flight_t *flight)
{
    NP_EP_TURN *turn = NULL;

    if (!np_ep_wait(flight->all, &turn)) {
        return;
    }

    np_flight_fence(flight);
}

int np_ep_has_resources(np_flight_t *flight)
{
    NP_EP_TURN *turn = NULL;

    if (!np_ep_enter(flight->all, &turn)) {
        return 0;
    }

    return np_flight_has_resources(flight);
}

ucs_status_t np_eps_flush(np_flights_t *all, void *comp)
{
    NP_EP_TURN *turn = NULL;

    if (!np_ep_wait(all, &turn)) {
        return UCS_OK;
    }

    return np_flights_flush(all, comp);
}

void np_eps_fence(np_flights_t *all)
{
    NP_EP_TURN *turn = NULL;

    if (!np_ep_wait(all, &turn)) {
        return;
    }

    np_flights_fence(all);
}

void np_ep_set_pending(np_flight_t *flight, int is_pending)
{
    NP_EP_TURN *turn = NULL;

    if (!np_ep_wait(flight->all, &turn)) {
        return;
    }

    np_flight_set_pending(flight, is_pending);
}

void np_ep_cancel(np_flight_t *flight, ucs_status_t status)
{
    NP_EP_TURN *turn = NULL;

    if (!np_ep_wait_to_end(flight->all, &turn)) {
        return;
    }

    flight->is_reported = 1; /* its user knows */
    flight->all->dev->end(flight, status);
    np_flight_cancel(flight, status);
}

ucs_status_t np_ep_check(np_flight_t *flight)
{
    NP_EP_TURN *turn = NULL;
    ucs_status_t status;

    if (!np_ep_wait(flight->all, &turn)) {
        return UCS_OK;
    }

    status = flight->all->dev->check(flight);
    if (np_flight_is_down(flight)) {
        np_flight_report(flight);
    }
    return status;
}
