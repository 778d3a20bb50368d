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

#include "../engine.h"
#include "../mem/access.h"

/* Sequentially consistent: an atomic is what programs order other memory by */
#define NP_ATOMIC_EXECUTE(_type, _ptr, _op, _value, _compare) \
    ({ \
        _Atomic _type *_word = (_Atomic _type*)(_ptr); \
        _type _old = (_type)(_compare); \
        switch (_op) { \
        case NP_ATOMIC_ADD: \
            _old = atomic_fetch_add(_word, (_type)(_value)); \
            break; \
        case NP_ATOMIC_AND: \
            _old = atomic_fetch_and(_word, (_type)(_value)); \
            break; \
        case NP_ATOMIC_OR: \
            _old = atomic_fetch_or(_word, (_type)(_value)); \
            break; \
        case NP_ATOMIC_XOR: \
            _old = atomic_fetch_xor(_word, (_type)(_value)); \
            break; \
        case NP_ATOMIC_SWAP: \
            _old = atomic_exchange(_word, (_type)(_value)); \
            break; \
        default: \
            atomic_compare_exchange_strong(_word, &_old, (_type)(_value)); \
            break; \
        } \
        (uint64_t)_old; \
    })


static uint64_t np_atomic_execute(void *ptr, np_atomic_op_t op, size_t size,
                                  uint64_t value, uint64_t compare)
{
    return (size == sizeof(uint64_t)) ?
           NP_ATOMIC_EXECUTE(uint64_t, ptr, op, value, compare) :
           NP_ATOMIC_EXECUTE(uint32_t, ptr, op, value, compare);
}

/* Execute on our own memory, whatever the address is */
static ucs_status_t
np_atomic_execute_checked(uint64_t addr, np_atomic_op_t op, size_t size,
                          uint64_t value, uint64_t compare, uint64_t *result)
{
    ucs_status_t status;

    if (((size != sizeof(uint32_t)) && (size != sizeof(uint64_t))) ||
        (op >= NP_ATOMIC_LAST)) {
        return UCS_ERR_INVALID_PARAM;
    }

    status = np_access_check(addr, size);
    if (status != UCS_OK) {
        return status;
    }

    status = np_access_probe_word(addr, size);
    if (status != UCS_OK) {
        return status;
    }

    *result = np_atomic_execute((void*)addr, op, size, value, compare);
    return UCS_OK;
}

void np_atomic_serve(np_slot_atomic_t *request)
{
    np_slot_atomic_t args = *request; /* what it writes later does not count */
    uint64_t result       = 0;

    request->status = np_atomic_execute_checked(args.addr, args.op, args.size,
                                                args.value, args.compare,
                                                &result);
    request->result = result;
}

static void np_atomic_store(void *result, size_t size, uint64_t value)
{
    if (result != NULL) {
        memcpy(result, &value, size); /* little-endian: the low bytes */
    }
}

/* Let the target's CPU do it */
static ucs_status_t
np_atomic_send(np_link_t *link, np_atomic_op_t op, size_t size, uint64_t value,
               uint64_t compare, uint64_t addr, void *result, void *comp)
{
    np_ring_tx_t *ring = &link->ctl;
    np_slot_t *slot;
    np_op_t *request;

    if (!np_ring_tx_has_slot(ring)) {
        return UCS_ERR_NO_RESOURCE;
    }

    request = np_op_get(link->port, NP_OP_ATOMIC, comp);
    if (request == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    slot         = np_ring_tx_slot(ring);
    slot->atomic = (np_slot_atomic_t){
        .addr    = addr,
        .value   = value,
        .compare = compare,
        .status  = UCS_ERR_NO_PROGRESS,
        .op      = op,
        .size    = size
    };
    request->index         = ring->tail;
    request->atomic.result = result;
    request->atomic.size   = size;
    np_op_post(link, NP_QUEUE_CTL, request);
    np_ring_tx_publish(ring, slot, 0, NP_SLOT_ATOMIC, 0);
    np_link_notify(link);
    return ((result == NULL) && (comp == NULL)) ? UCS_OK : UCS_INPROGRESS;
}

ucs_status_t np_atomic_post(np_link_t *link, np_key_t *key, np_atomic_op_t op,
                            size_t size, uint64_t value, uint64_t compare,
                            uint64_t addr, void *result, void *comp)
{
    ucs_status_t status;
    uint64_t old;
    void *ptr;

    /* An atomic takes effect, and completes, after the puts and gets before
     * it, as on a reliable queue pair: Open MPI's request-based one-sided calls
     * use one as their end marker, without a fence. */
    if (ucs_unlikely(!ucs_queue_is_empty(&link->queues[NP_QUEUE_COPY]) ||
                     !ucs_queue_is_empty(&link->queues[NP_QUEUE_DATA]))) {
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

    ptr = np_rma_direct(link, key, addr);
    if (ptr != NULL) {
        np_atomic_store(result, size,
                        np_atomic_execute(ptr, op, size, value, compare));
        return UCS_OK;
    }

    if (key->engine_id == np_engine.id) { /* to oneself */
        status = np_atomic_execute_checked(addr, op, size, value, compare,
                                           &old);
        if (status == UCS_OK) {
            np_atomic_store(result, size, old);
        }
        return status;
    }

    return np_atomic_send(link, op, size, value, compare, addr, result, comp);
}
