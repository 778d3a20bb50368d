/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Atomics.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "atomic.h"

#include "request.h"
#include "rma.h"


static void np_atomic_store(void *result, size_t size, uint64_t value)
{
    if (result != NULL) {
        memcpy(result, &value, size); /* little-endian: the low bytes */
    }
}

void np_atomic_answered(np_link_t *link, np_sop_t *op)
{
    if (op->super.status == UCS_OK) {
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
    np_sop_t *request;

    if (!np_mail_has_room(link)) {
        return np_link_no_room(link);
    }

    request = np_request_begin(link, NP_OP_ATOMIC, comp, &slot);
    if (request == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    slot->atomic = (np_atomic_t){
        .addr    = addr,
        .value   = value,
        .compare = compare,
        .op      = op,
        .size    = size
    };
    request->atomic.result  = result;
    request->atomic.request = slot->atomic;
    np_op_order(&link->flight, &request->super, addr, size, 1);
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

    status = np_flight_enter_atomic(&link->flight, addr, size);
    if (status == UCS_OK) {
        status = np_rma_enter(link, key, addr, size);
    }
    if (status != UCS_OK) {
        return status;
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
