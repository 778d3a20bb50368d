/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Put and get: choosing the way.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "rma.h"

#include "copy.h"
#include "due.h"
#include "../ep.h"
#include "fault.h"
#include "lend.h"
#include "piece.h"
#include "sunload.h"

#include "../../dev/soft/fast.h"

#include "../../engine.h"
#include "../../mem/stage.h"
#include "../../pause.h"
#include "../../trace.h"

#include <stdlib.h>

/* No piece of a transfer through the rings takes more than this part of the
 * payload area, so that pieces can follow each other closely */
#define NP_RMA_RING_PARTS  4
#define NP_RMA_RING_PIECE  32768u


uint32_t np_rma_ring_piece(const np_link_t *link)
{
    return ucs_min((link->data.payload_mask + 1) / NP_RMA_RING_PARTS,
                   NP_RMA_RING_PIECE);
}

size_t np_rma_max_bcopy(const np_port_config_t *config)
{
    return ucs_min((size_t)NP_RMA_BCOPY,
                   (size_t)(config->payload_size / 2) - NP_LINE);
}

/* The port's buffer for what is packed, np_rma_max_bcopy() bytes */
static void *np_rma_bounce(np_port_t *port)
{
    if (ucs_unlikely(port->bounce == NULL)) {
        port->bounce = malloc(np_rma_max_bcopy(&port->config));
        if (port->bounce == NULL) {
            np_error("no memory for a buffer of %zu bytes",
                     np_rma_max_bcopy(&port->config));
        }
    }
    return port->bounce;
}

typedef enum np_rma_way {
    NP_RMA_SHARED, /* by both sides, if it is large */
    NP_RMA_RINGS,
    NP_RMA_LENT    /* through the rings, what the target has lent */
} np_rma_way_t;

static ucs_status_t
np_rma_post_copy(np_dir_t dir, np_link_t *link, np_key_t *key, void *direct,
                 const np_iov_t *iov, size_t iovcnt, size_t len, uint64_t addr,
                 np_rma_way_t way, void *comp)
{
    np_sop_t *op;

    op = np_copy_new(dir, link, key, direct, iov, iovcnt, len, addr, comp);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    op->copy.by_rings = way != NP_RMA_SHARED;
    op->copy.is_lent  = way == NP_RMA_LENT;
    if (op->copy.by_rings) {
        np_chunks_rest(&op->copy.chunks);
    } else {
        np_chunks_plan(&op->copy.chunks);
    }
    return np_copy_post(link, op);
}

/* Does it fit one piece? */
static int np_rma_is_one_piece(uint64_t addr, size_t len)
{
    return (len <= NP_DMA_MAX) && !np_model_is_on &&
           (len < np_engine.config.share_min) && np_arena_has(addr, len);
}

/* Does it go in pieces, and how? Else in one, here and now. */
static int np_rma_is_in_pieces(np_link_t *link, const np_key_t *key,
                               const np_piece_t *piece, np_rma_way_t *way)
{
    if ((piece->direct == NULL) && !np_link_has_vm(link)) {
        *way = NP_RMA_RINGS;
        return 1;
    }

    if (np_engine.config.lend && (piece->direct == NULL) &&
        np_lend_may_copy(link, key, piece->dir, piece->iov, piece->iovcnt,
                         piece->len, piece->addr)) {
        *way = NP_RMA_LENT;
        return 1;
    }

    *way = NP_RMA_SHARED;
    return !np_rma_is_one_piece(piece->addr, piece->len) ||
           np_chunks_is_cold(piece->dir, piece->iov, piece->iovcnt, piece->len);
}

/* All of it was tried; what is missing comes by the target's help */
static ucs_status_t
np_rma_post_missing(np_dir_t dir, np_link_t *link, np_key_t *key, void *direct,
                    const np_iov_t *iov, size_t iovcnt, size_t len,
                    uint64_t addr, const np_ranges_t *missing, void *comp)
{
    np_sop_t *op;

    op = np_copy_new(dir, link, key, direct, iov, iovcnt, len, addr, comp);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    np_chunks_stop(&op->copy.chunks);
    np_ranges_copy(&op->copy.todo, missing);
    return np_copy_post(link, op);
}

ucs_status_t np_rma_move_piece(np_link_t *link, const np_piece_t *piece,
                               np_ranges_t *missing)
{
    ucs_status_t status;

    status = np_piece_move(link, piece, missing);
    if (ucs_likely(status == UCS_OK)) {
        return UCS_OK;
    }

    if (status == UCS_ERR_UNSUPPORTED) {
        status = np_link_vm_refused(link);
        return (status == UCS_OK) ? UCS_ERR_UNSUPPORTED : UCS_ERR_IO_ERROR;
    }

    if (status == UCS_ERR_CONNECTION_RESET) {
        np_link_down(link, status);
        np_flight_report(&link->flight);
        status = link->flight.status;
    }
    return status;
}

ucs_status_t np_rma_send(np_link_t *link, np_op_kind_t kind,
                         const np_iov_t *iov, size_t iovcnt, size_t len,
                         uint64_t addr, uint8_t id, np_sop_t **op_p,
                         void *comp)
{
    ucs_status_t status;
    np_carry_t carry;
    np_sop_t *op;

    if (!np_carry_begin(link, &carry, len)) {
        return np_link_full(link);
    }

    op = np_sop_get(link->port, kind, comp);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    if (kind == NP_OP_PUT) {
        status = np_stage_own(iov, iovcnt, carry.bytes,
                              np_fill_out(&link->fill));
        if (ucs_unlikely(status != UCS_OK)) {
            np_sop_put(link->port, op);
            return status;
        }
    }

    op->rma.carry = carry;
    op->rma.copy  = NULL;
    op->rma.len   = len;
    op->rma.addr  = addr;
    np_sop_post(link, op);
    np_carry_send(link, &op->rma.carry,
                  (kind == NP_OP_PUT) ? NP_DIR_PUT : NP_DIR_GET, len, addr,
                  id);
    *op_p = op;
    return UCS_OK;
}

static UCS_F_ALWAYS_INLINE ucs_status_t
np_rma_enter(np_link_t *link, np_key_t *key, uint64_t addr, size_t len,
             int is_write, void **direct)
{
    ucs_status_t status;

    status = np_flight_order(&link->flight, addr, len, is_write);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    *direct = np_fast_direct(link, key, addr);
    np_due_begin(link);
    return ((*direct == NULL) && ucs_unlikely(key->window != NULL)) ?
           UCS_ERR_INVALID_ADDR : UCS_OK; /* its owner has freed it */
}

ucs_status_t np_rma_begin(np_link_t *link, np_key_t *key, uint64_t addr,
                          size_t len, int is_write, void **direct)
{
    return np_rma_enter(link, key, addr, len, is_write, direct);
}

/* A put by the target's CPU, or at once. UCS_ERR_UNSUPPORTED: neither. */
static UCS_F_ALWAYS_INLINE ucs_status_t
np_rma_put_iov(np_link_t *link, np_key_t *key, const np_iov_t *iov,
               size_t iovcnt, size_t len, uint64_t addr, void *comp)
{
    ucs_status_t status;

    status = np_sunload_put(link, iov, iovcnt, len, addr, 1, comp);
    if (ucs_unlikely(status != UCS_ERR_UNSUPPORTED)) {
        return status;
    }

    if (!np_fast_put_iov(link, key, iov, iovcnt, len, addr)) {
        return UCS_ERR_UNSUPPORTED;
    }

    np_stats_moved(link->port->flights.stats, NP_DIR_PUT, len);
    return UCS_OK;
}

ucs_status_t np_rma_move(np_dir_t dir, np_flight_t *flight, np_key_t *key,
                         const np_iov_t *iov, size_t iovcnt, size_t len,
                         uint64_t addr, void *comp)
{
    np_link_t *link  = np_link_of(flight);
    np_piece_t piece = {
        .dir       = dir,
        .iov       = iov,
        .iovcnt    = iovcnt,
        .addr      = addr,
        .len       = len,
        .has_local = 1
    };
    const uint64_t begin = np_trace_begin();
    np_ranges_t missing;
    ucs_status_t status;
    np_rma_way_t way;

    status = np_rma_enter(link, key, addr, len, dir == NP_DIR_PUT,
                          &piece.direct);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    if (dir == NP_DIR_PUT) {
        status = np_rma_put_iov(link, key, iov, iovcnt, len, addr, comp);
        if (status != UCS_ERR_UNSUPPORTED) {
            return status;
        }
    }

    if (np_rma_is_in_pieces(link, key, &piece, &way)) {
        status = (way != NP_RMA_LENT) ? UCS_ERR_UNSUPPORTED :
                 np_lend_move(link, dir, iov, iovcnt, len, addr, comp);
        return (status != UCS_ERR_UNSUPPORTED) ? status :
               np_rma_post_copy(dir, link, key, piece.direct, iov, iovcnt, len,
                                addr, way, comp);
    }

    status = np_rma_move_piece(link, &piece, &missing);
    if (ucs_unlikely(status == UCS_ERR_UNSUPPORTED)) {
        if (dir == NP_DIR_GET) {
            return np_rma_post_copy(dir, link, key, NULL, iov, iovcnt, len,
                                    addr, NP_RMA_RINGS, comp);
        }
        status = UCS_OK; /* inside messages: a part may be written */
    }

    if (ucs_likely((status == UCS_OK) && (missing.count == 0))) {
        np_trace(NP_TRACE_MOVE, begin, addr, len);
        return np_due_moved(dir, link, iov, iovcnt, len, addr, comp);
    }

    return (status != UCS_OK) ? status :
           np_rma_post_missing(dir, link, key, piece.direct, iov, iovcnt, len,
                               addr, &missing, comp);
}

ucs_status_t np_rma_may_put(np_link_t *link, uint64_t addr, size_t len)
{
    ucs_status_t status;

    link->flight.is_full = 1; /* it may have to go through the data ring */
    if (!np_flight_has_resources(&link->flight)) {
        return UCS_ERR_NO_RESOURCE;
    }

    status = np_flight_start(&link->flight);
    if (status != UCS_OK) {
        return status;
    }

    if (!np_mail_has_room(link)) {
        return np_mail_no_room(link);
    }

    return np_flight_order(&link->flight, addr, len, 1);
}

/* What went through the ring: others that take the ring come after it, but
 * there may be a faster way to this memory, now or later */
static void np_rma_order(np_link_t *link, const np_key_t *key, np_sop_t *op,
                         uint64_t addr, size_t len)
{
    if ((key->segment_id != 0) || (link->segments_asked > 0) ||
        np_link_has_vm(link)) {
        np_op_order(&link->flight, &op->super, addr, len,
                    op->super.kind == NP_OP_PUT);
    }
}

static ucs_status_t
np_rma_send_put(np_link_t *link, const np_key_t *key, const np_iov_t *iov,
                size_t len, uint64_t addr)
{
    ucs_status_t status;
    np_sop_t *op;

    status = np_rma_send(link, NP_OP_PUT, iov, 1, len, addr, 0, &op, NULL);
    if (status == UCS_OK) {
        np_rma_order(link, key, op, addr, len);
        np_sunload_posted(link, op, addr, len);
    }
    return status;
}

/* By our CPU, or in messages. @a direct: where it is mapped here, or NULL */
static ucs_status_t
np_rma_put_now(np_link_t *link, np_key_t *key, const np_iov_t *iov, size_t len,
               uint64_t addr, void *direct)
{
    const np_piece_t piece = {
        .dir       = NP_DIR_PUT,
        .iov       = iov,
        .iovcnt    = 1,
        .addr      = addr,
        .len       = len,
        .direct    = direct,
        .is_prefix = 1     /* one FAULT takes what is missing, and no more */
    };
    np_ranges_t missing;
    ucs_status_t status;
    size_t done;

    /* what cannot be asked for is not begun */
    if (ucs_unlikely(!np_mail_has_room(link))) {
        return np_mail_no_room(link);
    }

    status = np_rma_move_piece(link, &piece, &missing);
    if (ucs_likely((status == UCS_OK) && (missing.count == 0))) {
        status = np_due_moved(NP_DIR_PUT, link, iov, 1, len, addr, NULL);
        return (status == UCS_INPROGRESS) ? UCS_OK : status;
    }

    if ((status != UCS_OK) && (status != UCS_ERR_UNSUPPORTED)) {
        return status;
    }

    /* Inside a message, at once: the bytes are not ours. As well if the kernel
     * has refused the rest: it must not be written again. */
    done = missing.range[0].offset;
    if ((status != UCS_OK) && (done == 0)) {
        return np_rma_send_put(link, key, iov, len, addr);
    }

    status = np_fault_put(link, UCS_PTR_BYTE_OFFSET(iov->base, done),
                          len - done, addr + done);
    if (NP_IS_MUTANT(FAULT_TOO_EARLY)) { /* the end of the attempt */
        (void)np_rma_move_piece(link, &piece, &missing);
    }
    return status;
}

ucs_status_t np_rma_put_copied(np_flight_t *flight, np_key_t *key,
                               const void *data, size_t len, uint64_t addr)
{
    np_link_t *link    = np_link_of(flight);
    const np_iov_t iov = {(void*)data, len};
    ucs_status_t status;
    void *direct;

    status = np_rma_enter(link, key, addr, len, 1, &direct);
    if (status != UCS_OK) {
        return status;
    }

    status = np_sunload_put(link, &iov, 1, len, addr, 0, NULL);
    if (ucs_unlikely(status != UCS_ERR_UNSUPPORTED)) {
        return (status == UCS_INPROGRESS) ? UCS_OK : status;
    }

    if (direct == NULL) {
        status = np_lend_send(link, key, NP_OP_PUT, &iov, len, addr, NULL, NULL,
                              NULL);
        if ((status != UCS_ERR_UNSUPPORTED) &&
            (status != UCS_ERR_NO_RESOURCE)) { /* it may have been packed */
            return status;
        }
    }
    return ((direct != NULL) || np_link_has_vm(link)) ?
           np_rma_put_now(link, key, &iov, len, addr, direct) :
           np_rma_send_put(link, key, &iov, len, addr);
}

ssize_t np_rma_put_packed(np_flight_t *flight, np_key_t *key, np_pack_t pack,
                          void *arg, uint64_t addr)
{
    np_link_t *link  = np_link_of(flight);
    const size_t max = np_rma_max_bcopy(&link->port->config);
    ucs_status_t status;
    size_t len;
    void *bytes;

    /* before anything is packed: the caller cannot pack twice */
    status = np_rma_may_put(link, np_key_base(key) + addr, max);
    if (status != UCS_OK) {
        return status;
    }

    bytes = np_rma_bounce(link->port);
    if (bytes == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    np_unit_assert_outside();
    len    = pack(bytes, arg);
    np_assertv(len <= max, "%zu bytes were packed", len);
    status = np_ep_put_copied(flight, key, bytes, len, addr);
    np_assertv(status != UCS_ERR_NO_RESOURCE, "refused after it was packed");
    return (status == UCS_OK) ? (ssize_t)len : status;
}

static ucs_status_t
np_rma_send_get(np_link_t *link, const np_key_t *key, size_t len, uint64_t addr,
                np_unpack_t unpack, void *arg, void *comp)
{
    ucs_status_t status;
    np_sop_t *op;

    status = np_rma_send(link, NP_OP_GET, NULL, 0, len, addr, 0, &op, comp);
    if (status != UCS_OK) {
        return status;
    }

    op->rma.buffer = NULL;
    op->rma.unpack = unpack;
    op->rma.arg    = arg;
    np_rma_order(link, key, op, addr, len);
    return UCS_INPROGRESS;
}

ucs_status_t np_rma_get_unpack(np_flight_t *flight, np_key_t *key, size_t len,
                               uint64_t addr, np_unpack_t unpack, void *arg,
                               void *comp)
{
    np_link_t *link  = np_link_of(flight);
    uint8_t bytes[NP_RMA_BCOPY];
    np_iov_t iov     = {bytes, len};
    np_piece_t piece = {
        .dir    = NP_DIR_GET,
        .iov    = &iov,
        .iovcnt = 1,
        .addr   = addr,
        .len    = len
    };
    np_ranges_t missing;
    ucs_status_t status;

    if (ucs_unlikely(len > NP_RMA_BCOPY)) {
        return UCS_ERR_INVALID_PARAM;
    }

    status = np_rma_enter(link, key, addr, len, 0, &piece.direct);
    if (status != UCS_OK) {
        return status;
    }

    if (piece.direct == NULL) {
        status = np_lend_send(link, key, NP_OP_GET, NULL, len, addr, unpack,
                              arg, comp);
        if (status != UCS_ERR_UNSUPPORTED) {
            return (status == UCS_ERR_NO_RESOURCE) ?
                   np_flight_refuse(&link->flight) : status;
        }
    }

    if ((piece.direct != NULL) || np_link_has_vm(link)) {
        status = np_rma_move_piece(link, &piece, &missing);
        if (ucs_likely((status == UCS_OK) && (missing.count == 0))) {
            np_unit_assert_outside();
            unpack(arg, bytes, len);
            return np_due_moved(NP_DIR_GET, link, &iov, 1, len, addr, comp);
        }

        if (status != UCS_ERR_UNSUPPORTED) {
            return (status != UCS_OK) ? status :
                   np_fault_get(link, NULL, unpack, arg, len, addr, comp);
        }
    }

    return np_rma_send_get(link, key, len, addr, unpack, arg, comp);
}
