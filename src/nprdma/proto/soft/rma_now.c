/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Short gets, which return with their data.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "rma.h"

#include "due.h"
#include "../ep.h"
#include "fault.h"
#include "piece.h"

#include "../../dev/soft/fast.h"

#include <string.h>


/* Only the target's CPU could read it, at an unknown time, and the caller does
 * not wait */
static ucs_status_t np_rma_cannot_now(const np_link_t *link, uint64_t addr,
                                      size_t len)
{
    np_error("only process %d itself can read %#lx..%#lx, and a short get does "
             "not wait for it. Use uct_ep_get_bcopy", link->process.pid, addr,
             addr + len);
    return UCS_ERR_UNSUPPORTED;
}

/* The part that lies in one arena */
static ucs_status_t np_rma_get_part(np_link_t *link, const np_piece_t *piece)
{
    np_ranges_t missing;
    ucs_status_t status;

    if ((piece->direct == NULL) && !np_link_has_vm(link)) {
        return np_rma_cannot_now(link, piece->addr, piece->len);
    }

    status = np_rma_move_piece(link, piece, &missing);
    if ((status == UCS_ERR_UNSUPPORTED) ||
        ((status == UCS_OK) && (missing.count > 0) &&
         (link->no_fetch == np_fault_page(piece->addr)))) {
        return np_rma_cannot_now(link, piece->addr, piece->len);
    }

    return ((status != UCS_OK) || (missing.count == 0)) ? status :
           np_fault_fetch(link, piece->len, piece->addr);
}

ucs_status_t np_rma_get_now(np_link_t *link, np_key_t *key, void *buffer,
                            size_t len, uint64_t addr)
{
    uint8_t bytes[NP_RMA_BCOPY]; /* the program's pager may have to bring in its
                                    own */
    void *direct = NULL;
    ucs_status_t status;
    np_piece_t piece;
    np_iov_t taken;
    size_t done;

    if (ucs_unlikely(len > NP_RMA_BCOPY)) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (len == 0) {
        return np_ep_nothing(&link->flight);
    }

    status = np_flight_start_key(&link->flight, key, &addr, len);
    if ((status == UCS_OK) && np_due_get_waits(link)) {
        status = np_flight_refuse(&link->flight);
    }
    if (status == UCS_OK) {
        status = np_rma_begin(link, key, addr, len, 0, &direct);
    }
    if (status != UCS_OK) {
        return status;
    }

    for (done = 0; done < len; done += piece.len) {
        taken = (np_iov_t){
            bytes + done,
            ucs_min(len - done, np_arena_left(addr + done))
        };
        piece = (np_piece_t){
            .dir        = NP_DIR_GET,
            .iov        = &taken,
            .iovcnt     = 1,
            .addr       = addr + done,
            .len        = taken.len,
            .direct     = (direct == NULL) ? NULL :
                          UCS_PTR_BYTE_OFFSET(direct, done),
            .by_entries = 1 /* what looks like the signature is right as well */
        };
        status = np_rma_get_part(link, &piece);
        if (status != UCS_OK) {
            return status;
        }
    }

    if (ucs_unlikely(link->tlb != NULL) && !np_due_get(link)) {
        return np_flight_refuse(&link->flight);
    }

    np_stats_moved(link->port->flights.stats, NP_DIR_GET, len);
    memcpy(buffer, bytes, len);
    return UCS_OK;
}
