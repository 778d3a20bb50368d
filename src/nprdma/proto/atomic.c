/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Atomics.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "atomic.h"

#include "piece.h"
#include "request.h"
#include "rma.h"

#include "../engine.h"
#include "../mem/access.h"
#include "../mem/mapper.h"
#include "../mem/swapper.h"
#include "../mem/touch.h"
#include "../pause.h"

/* Times that a page may go again before its atomic could be executed */
#define NP_ATOMIC_ROUNDS 64


/* The value after an operation, if @a old is the one before */
static uint64_t np_atomic_apply(const np_slot_atomic_t *request, uint64_t old)
{
    switch (request->op) {
    case NP_ATOMIC_ADD:
        return old + request->value;
    case NP_ATOMIC_AND:
        return old & request->value;
    case NP_ATOMIC_OR:
        return old | request->value;
    case NP_ATOMIC_XOR:
        return old ^ request->value;
    default: /* SWAP, CSWAP */
        return request->value;
    }
}

/* Our own memory, which the program may unmap just now. Execute, once, or not
 * at all. */
static ucs_status_t
np_atomic_touch(const np_slot_atomic_t *request, uint64_t *result)
{
    const int is_cswap = request->op == NP_ATOMIC_CSWAP;
    uint64_t old       = is_cswap ? request->compare : 0;
    int ret;

    do {
        ret = np_touch_cas(request->addr, request->size, &old,
                           np_atomic_apply(request, old));
        if (ucs_unlikely(ret < 0)) {
            return UCS_ERR_INVALID_ADDR;
        }
    } while ((ret == 0) && !is_cswap);

    *result = old;
    return UCS_OK;
}

/* The same if its page is there. UCS_ERR_NO_PROGRESS: it is not. */
static ucs_status_t
np_atomic_touch_mapped(const np_slot_atomic_t *request, np_moving_own_t *moving,
                       uint64_t *result)
{
    ucs_status_t status = UCS_ERR_NO_PROGRESS;

    np_moving_begin(moving);
    if (np_table_find(np_arena_of(request->addr)) == NULL) {
        /* nothing is ever absent there */
        status = np_access_check_again(request->addr, request->size);
        if (status == UCS_OK) {
            status = np_atomic_touch(request, result);
        }
    } else if (!np_moving_is_ended(moving) &&
               np_access_is_there(request->addr, request->size, 1)) {
        status = np_atomic_touch(request, result);
    }
    /* executed is executed: who has not waited for it takes no answer */
    (void)np_moving_end(moving);
    return status;
}

static int np_atomic_is_valid(const np_slot_atomic_t *request)
{
    return ((request->size == sizeof(uint32_t)) ||
            (request->size == sizeof(uint64_t))) &&
           (request->op < NP_ATOMIC_LAST);
}

/* A page that the program swaps, and that must be there by now: once, since
 * whoever has brought it in may hold it, and tries again */
static ucs_status_t
np_atomic_serve_swapped(const np_slot_atomic_t *request,
                        np_moving_own_t *moving, uint64_t *result)
{
    ucs_status_t status;
    int phase;

    status = np_touch_arm();
    if (status != UCS_OK) {
        return status;
    }

    phase  = np_swap_hold(request->addr, request->size);
    status = np_atomic_touch_mapped(request, moving, result);
    np_swap_let_go(phase);
    return (status == UCS_ERR_NO_PROGRESS) ? UCS_ERR_NO_RESOURCE : status;
}

ucs_status_t np_atomic_serve(const np_slot_atomic_t *request,
                             np_moving_own_t *moving, int may_sleep,
                             uint64_t *result)
{
    const uint64_t addr = request->addr;
    const size_t size   = request->size;
    ucs_status_t status;
    unsigned round;
    int phase;

    *result = 0;
    if (!np_atomic_is_valid(request)) {
        return UCS_ERR_INVALID_PARAM;
    }

    if ((addr & (size - 1)) != 0) {
        return UCS_ERR_INVALID_ADDR;
    }

    status = np_access_check(addr, size);
    if (status != UCS_OK) {
        return status;
    }

    if (!may_sleep && np_swap_range_touches(addr, size)) {
        return np_atomic_serve_swapped(request, moving, result);
    }

    for (round = 0; round < NP_ATOMIC_ROUNDS; ++round) {
        if (!may_sleep && !np_access_is_present(addr, size)) {
            return UCS_ERR_NO_RESOURCE;
        }

        status = np_access_fault_in(addr, size, 1, NULL);
        if ((status != UCS_OK) && (status != UCS_ERR_EXCEEDS_LIMIT)) {
            return status;
        }

        status = np_touch_arm();
        if (status != UCS_OK) {
            return status;
        }

        NP_PAUSE(SERVE_MAPPED);
        /* who swaps it waits: not every device has its movers drained */
        phase  = np_swap_hold(addr, size);
        status = np_atomic_touch_mapped(request, moving, result);
        np_swap_let_go(phase);
        if (status == UCS_ERR_INVALID_ADDR) {
            /* mapped, and not there: the entry is of memory that the program
             * has unmapped since. Is there anything by now? */
            np_mapper_unmap(addr, size);
        } else if (status != UCS_ERR_NO_PROGRESS) {
            return status;
        }
    }

    return (status == UCS_ERR_INVALID_ADDR) ? status : UCS_ERR_NO_RESOURCE;
}

static void np_atomic_store(void *result, size_t size, uint64_t value)
{
    if (result != NULL) {
        memcpy(result, &value, size); /* little-endian: the low bytes */
    }
}

void np_atomic_answered(np_link_t *link, np_op_t *op)
{
    if (op->status == UCS_OK) {
        np_atomic_store(op->atomic.result, op->atomic.request.size,
                        np_mail_answer(link, &op->ask)->result);
    }
}

/* Let the target's CPU do it */
static ucs_status_t
np_atomic_send(np_link_t *link, np_atomic_op_t op, size_t size, uint64_t value,
               uint64_t compare, uint64_t addr, void *result, void *comp)
{
    np_slot_t *slot;
    np_op_t *request;

    if (!np_mail_has_room(link)) {
        return np_link_no_room(link);
    }

    request = np_request_begin(link, NP_OP_ATOMIC, comp, &slot);
    if (request == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    slot->atomic = (np_slot_atomic_t){
        .addr    = addr,
        .value   = value,
        .compare = compare,
        .op      = op,
        .size    = size
    };
    request->atomic.result  = result;
    request->atomic.request = slot->atomic;
    np_op_order(link, request, addr, size, 1);
    np_request_send(link, request, NP_SLOT_ATOMIC);
    return ((result == NULL) && (comp == NULL)) ? UCS_OK : UCS_INPROGRESS;
}

ucs_status_t np_atomic_post(np_link_t *link, np_key_t *key, np_atomic_op_t op,
                            size_t size, uint64_t value, uint64_t compare,
                            uint64_t addr, void *result, void *comp)
{
    ucs_status_t status;
    uint64_t old = 0;
    void *ptr;

    /* An atomic takes effect, and completes, after the puts and gets before
     * it, as on a reliable queue pair: Open MPI's request-based one-sided calls
     * use one as their end marker, without a fence. */
    if (ucs_unlikely(link->flight.outstanding != link->flight.atomics)) {
        np_link_fence(link);
    }

    status = np_rma_enter(link, key, addr, size);
    if (status != UCS_OK) {
        return status;
    }

    if (ucs_unlikely((addr & (size - 1)) != 0)) {
        np_error("atomic of %zu bytes on the unaligned address %#lx", size,
                 addr);
        return UCS_ERR_INVALID_ADDR;
    }

    /* Atomics of one link are executed in order (np_inbox_take): not beside one
     * that waits */
    ptr = (link->flight.outstanding == 0) ? np_fast_direct(link, key, addr) :
          NULL;
    if (ptr != NULL) {
        status = np_fast_atomic(link, ptr, op, size, value, compare, addr,
                                &old);
        if (ucs_likely(status == UCS_OK)) {
            np_atomic_store(result, size, old);
            return UCS_OK;
        } else if (status != UCS_ERR_NO_PROGRESS) {
            return status;
        }
    }

    return np_atomic_send(link, op, size, value, compare, addr, result, comp);
}
