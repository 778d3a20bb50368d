/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Atomics on our own memory.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "atomic.h"

#include "access.h"
#include "mapper.h"
#include "space.h"
#include "swapper.h"
#include "table.h"
#include "touch.h"

#include "../pause.h"
#include "../unit.h"

/* Times that a page may go again before its atomic could be executed */
#define NP_ATOMIC_ROUNDS 64


/* The value after an operation, if @a old is the one before */
static uint64_t np_atomic_apply(const np_atomic_t *request, uint64_t old)
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
np_atomic_touch(const np_atomic_t *request, uint64_t va, uint64_t *result)
{
    const int is_cswap = request->op == NP_ATOMIC_CSWAP;
    uint64_t old       = is_cswap ? request->compare : 0;
    int ret;

    do {
        ret = np_touch_cas(va, request->size, &old,
                           np_atomic_apply(request, old));
        if (ucs_unlikely(ret < 0)) {
            return UCS_ERR_INVALID_ADDR;
        }
    } while ((ret == 0) && !is_cswap);

    *result = old;
    return UCS_OK;
}

/* A thread that takes a page away from here on waits for the end. Returns 0 if
 * nothing may be touched any more. */
static int np_atomic_begin(np_atomic_unit_t *unit)
{
    if (unit != NULL) {
        return unit->begin(unit);
    }

    np_unit_enter();
    return 1;
}

static void np_atomic_end(np_atomic_unit_t *unit)
{
    if (unit != NULL) {
        unit->end(unit);
    } else {
        np_unit_leave();
    }
}

/* Execute if its page is there just now, within a unit. UCS_ERR_NO_PROGRESS: it
 * is not. */
static ucs_status_t
np_atomic_touch_mapped(const np_atomic_t *request, uint64_t va,
                       np_atomic_unit_t *unit, uint64_t *result)
{
    ucs_status_t status = UCS_ERR_NO_PROGRESS;
    int may_touch;

    may_touch = np_atomic_begin(unit);
    if (np_table_find(np_arena_of(va)) == NULL) {
        /* nothing is ever absent there */
        status = np_space_check_again(request->addr, request->size);
        if (status == UCS_OK) {
            status = np_atomic_touch(request, va, result);
        }
    } else if (may_touch && np_access_is_there(va, request->size, 1)) {
        status = np_atomic_touch(request, va, result);
    }
    np_atomic_end(unit);
    return status;
}

static int np_atomic_is_valid(const np_atomic_t *request)
{
    return ((request->size == sizeof(uint32_t)) ||
            (request->size == sizeof(uint64_t))) &&
           (request->op < NP_ATOMIC_LAST);
}

/* A page that the program swaps, and that must be there by now: tried once,
 * since the thread that has brought it in may still hold it; the caller tries
 * again */
static ucs_status_t
np_atomic_execute_swapped(const np_atomic_t *request, uint64_t va,
                          np_atomic_unit_t *unit, uint64_t *result)
{
    ucs_status_t status;
    int phase;

    status = np_touch_arm();
    if (status != UCS_OK) {
        return status;
    }

    phase  = np_swap_hold(va, request->size);
    status = np_atomic_touch_mapped(request, va, unit, result);
    np_swap_let_go(phase);
    return (status == UCS_ERR_NO_PROGRESS) ? UCS_ERR_NO_RESOURCE : status;
}

/* A swapper waits for this, and who ends a file's region: not every device has
 * its movers drained */
static int np_atomic_hold(uint64_t va, uint64_t size)
{
    return np_file_has(va) ? np_swap_copy_begin() : np_swap_hold(va, size);
}

ucs_status_t np_atomic_execute(const np_atomic_t *request,
                               np_atomic_unit_t *unit, int may_sleep,
                               uint64_t *result)
{
    const size_t size = request->size;
    ucs_status_t status;
    unsigned round;
    uint64_t va;
    int phase;

    *result = 0;
    if (!np_atomic_is_valid(request)) {
        return UCS_ERR_INVALID_PARAM;
    }

    if ((request->addr & (size - 1)) != 0) {
        return UCS_ERR_INVALID_ADDR;
    }

    status = np_space_resolve(request->addr, size, NP_RIGHT_BOTH, &va);
    if (status != UCS_OK) {
        return status;
    }

    if (!may_sleep && np_swap_range_touches(va, size)) {
        return np_atomic_execute_swapped(request, va, unit, result);
    }

    for (round = 0; round < NP_ATOMIC_ROUNDS; ++round) {
        if (!may_sleep && !np_access_is_present(va, size)) {
            return UCS_ERR_NO_RESOURCE;
        }

        status = np_access_fault_in(va, size, 1, NULL);
        if ((status != UCS_OK) && (status != UCS_ERR_EXCEEDS_LIMIT)) {
            return status;
        }

        status = np_touch_arm();
        if (status != UCS_OK) {
            return status;
        }

        NP_PAUSE(SERVE_MAPPED);
        phase  = np_atomic_hold(va, size);
        status = np_atomic_touch_mapped(request, va, unit, result);
        np_swap_let_go(phase);
        if (status == UCS_ERR_INVALID_ADDR) {
            /* mapped, but not there: the entry is of memory that the program
             * has unmapped since. Is there anything now? */
            np_mapper_unmap(va, size);
        } else if (status != UCS_ERR_NO_PROGRESS) {
            return status;
        }
    }

    return (status == UCS_ERR_INVALID_ADDR) ? status : UCS_ERR_NO_RESOURCE;
}
