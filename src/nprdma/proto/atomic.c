/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Atomics.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "atomic.h"

#include "rma.h"

#include "../dev/soft/fast.h"


static void np_atomic_store(void *result, size_t size, uint64_t value)
{
    if (result != NULL) {
        memcpy(result, &value, size); /* little-endian: the low bytes */
    }
}

void np_atomic_answered(np_link_t *link, np_sop_t *op)
{
    if (op->super.status == UCS_OK) {
        np_atomic_store(op->atomic.result, op->ask.atomic.size,
                        np_mail_answer(link, &op->ask)->result);
    }
}

/* Let the target's CPU do it */
static ucs_status_t
np_atomic_send(np_link_t *link, const np_atomic_t *request, void *result,
               void *comp)
{
    np_sop_t *op;

    if (!np_mail_has_room(link)) {
        return np_mail_no_room(link);
    }

    op = np_sop_ask(link, NP_OP_ATOMIC, comp);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    op->ask.atomic    = *request;
    op->atomic.result = result;
    np_op_order(&link->flight, &op->super, request->addr, request->size, 1);
    np_sop_send(link, op);
    return ((result == NULL) && (comp == NULL)) ? UCS_OK : UCS_INPROGRESS;
}

ucs_status_t np_atomic_post(np_flight_t *flight, np_key_t *key,
                            const np_atomic_t *request, void *result,
                            void *comp)
{
    np_link_t *link = np_link_of(flight);
    ucs_status_t status;
    uint64_t old = 0;
    void *ptr;

    status = np_flight_start_key(flight, key, request->addr, request->size);
    if (status != UCS_OK) {
        return status;
    }

    /* Atomics of one link are executed in order (np_inbox_take): not beside one
     * that waits */
    ptr = (flight->outstanding == 0) ?
          np_fast_direct(link, key, request->addr) : NULL;
    if (ptr != NULL) {
        status = np_fast_atomic(link, ptr, request, &old);
        if (ucs_likely(status == UCS_OK)) {
            np_atomic_store(result, request->size, old);
            return UCS_OK;
        } else if (status != UCS_ERR_NO_PROGRESS) {
            return status;
        }
    }

    return np_atomic_send(link, request, result, comp);
}
