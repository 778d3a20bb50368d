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

#include "../engine.h"

#include <stdlib.h>

/* No piece of a transfer through the rings takes more than this part of the
 * payload area, so that pieces can follow each other closely */
#define NP_RMA_RING_PARTS  4

/* Pieces of a shared copy: how many, and the largest */
#define NP_RMA_SHARE_PARTS      32
#define NP_RMA_SHARE_CHUNK_MAX  (256 * UCS_KBYTE)

/* Largest buffered message: 8 KiB and its headers */
#define NP_RMA_BCOPY       8256


uint32_t np_rma_ring_piece(const np_port_config_t *config)
{
    return ucs_min(config->payload_size / NP_RMA_RING_PARTS, 32768u);
}

size_t np_rma_max_bcopy(const np_port_config_t *config)
{
    return ucs_min((size_t)NP_RMA_BCOPY,
                   (size_t)(config->payload_size / 2) - NP_LINE);
}

void *np_rma_bounce(np_port_t *port)
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

/* Ask the target for the segment, so that later transfers find it */
static void np_rma_ask_segment(np_link_t *link, np_key_t *key)
{
    np_slot_t *slot;

    if (!np_ring_tx_has_slot(&link->ctl)) {
        return;
    }

    key->asked   = 1;
    slot         = np_ring_tx_slot(&link->ctl);
    slot->segment = (np_slot_segment_t){.id = key->segment_id};
    np_ring_tx_publish(&link->ctl, slot, 0, NP_SLOT_SEGMENT, 0);
    np_link_notify(link);
}

np_window_t *np_rma_resolve(np_link_t *link, np_key_t *key)
{
    np_window_t *window, *expected = NULL;

    /* Look only if something has come since the last look */
    if (key->tried == (link->num_windows + 1)) {
        return NULL;
    }
    key->tried = link->num_windows + 1;

    window = np_window_get(key->engine_id, key->segment_id);
    if (window == NULL) {
        if (!key->asked) {
            np_rma_ask_segment(link, key);
        }
        return NULL;
    }

    if ((UCS_PTR_BYTE_DIFF(window->head, window->base) + key->segment_len) >
        window->size) {
        np_error("segment %lu is shorter than its key says",
                 key->segment_id);
        np_window_put(window);
        return NULL;
    }

    /* release: whoever finds it in the key sees it filled in */
    if (!atomic_compare_exchange_strong_explicit(&key->window, &expected,
                                                 window, memory_order_release,
                                                 memory_order_acquire)) {
        np_window_put(window); /* another thread was first */
        window = expected;
    }
    return window;
}

static size_t np_iov_total(const np_iov_t *iov, size_t iovcnt)
{
    size_t i, total = 0;

    for (i = 0; i < iovcnt; ++i) {
        total += iov[i].len;
    }
    return total;
}

/* Copy between a list and mapped memory, in the caller */
static void np_iov_copy(np_dir_t dir, const np_iov_t *iov, size_t iovcnt,
                        void *ptr)
{
    size_t i;

    for (i = 0; i < iovcnt; ++i) {
        if (iov[i].len == 0) {
            continue; /* its base may be NULL */
        }

        if (dir == NP_DIR_PUT) {
            memcpy(ptr, iov[i].base, iov[i].len);
        } else {
            memcpy(iov[i].base, ptr, iov[i].len);
        }
        ptr = UCS_PTR_BYTE_OFFSET(ptr, iov[i].len);
    }
}

/* Pieces so small that both sides end at the same time, so large that claiming
 * and the system call do not count */
static uint32_t np_rma_share_chunk(size_t len)
{
    size_t part = ucs_align_up_pow2(len / NP_RMA_SHARE_PARTS, (size_t)4096);

    return ucs_max(np_engine.config.share_chunk,
                   ucs_min(part, (size_t)NP_RMA_SHARE_CHUNK_MAX));
}

static ucs_status_t
np_rma_post_copy(np_dir_t dir, np_link_t *link, np_key_t *key, void *direct,
                 const np_iov_t *iov, size_t iovcnt, size_t len, uint64_t addr,
                 int by_rings, void *comp)
{
    np_op_t *op;

    op = np_op_get(link->port, NP_OP_COPY, comp);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    op->copy = (np_copy_t){
        .dir         = dir,
        .iovcnt      = iovcnt,
        .remote      = addr,
        .len         = len,
        .window      = (direct == NULL) ? NULL :
                       atomic_load_explicit(&key->window,
                                            memory_order_relaxed),
        .window_addr = direct,
        .by_rings    = by_rings,
        .chunk       = by_rings ? np_rma_ring_piece(&link->port->config) :
                       np_rma_share_chunk(len)
    };
    memcpy(op->copy.iov, iov, iovcnt * sizeof(*iov));
    return np_copy_post(link, op);
}

/* Is the way by process_vm_* open? */
static int np_rma_has_vm(const np_link_t *link)
{
    return !link->no_vm && (link->pid != 0) &&
           (np_engine.config.single_copy != NP_SINGLE_COPY_OFF);
}

ucs_status_t np_rma_vm_refused(np_link_t *link)
{
    if (np_engine.config.single_copy == NP_SINGLE_COPY_VM) {
        np_error("UCX_NPRDMA_SINGLE_COPY=vm, but the kernel refuses access "
                 "to process %d. See 'nprdma_info --check', or set "
                 "UCX_NPRDMA_SINGLE_COPY=auto", link->pid);
        return UCS_ERR_UNSUPPORTED;
    }

    link->no_vm = 1;
    np_vm_explain_refusal(link->pid);
    return UCS_OK;
}

/* Try one call of process_vm_*.
 * UCS_ERR_UNSUPPORTED: take the rings instead. */
static ucs_status_t
np_rma_move_vm(np_dir_t dir, np_link_t *link, const np_iov_t *iov,
               size_t iovcnt, uint64_t addr)
{
    ucs_status_t status;

    status = np_vm_move(dir, link->pid, iov, iovcnt, addr);
    if (ucs_likely(status == UCS_OK)) {
        return UCS_OK;
    }

    if (status == UCS_ERR_UNSUPPORTED) {
        status = np_rma_vm_refused(link);
        return (status == UCS_OK) ? UCS_ERR_UNSUPPORTED : UCS_ERR_IO_ERROR;
    }

    if (status == UCS_ERR_CONNECTION_RESET) {
        np_link_down(link, status);
        np_link_report(link);
    }
    return status;
}

ucs_status_t np_rma_send(np_link_t *link, np_op_kind_t kind,
                         const np_iov_t *iov, size_t iovcnt, size_t len,
                         uint64_t addr, np_op_t **op_p, void *comp)
{
    np_ring_tx_t *ring = &link->data;
    np_slot_t *slot;
    uint32_t start;
    np_op_t *op;

    if (!np_ring_tx_has_slot(ring) ||
        !np_ring_tx_has_payload(ring, len, &start)) {
        return UCS_ERR_NO_RESOURCE;
    }

    op = np_op_get(link->port, kind, comp);
    if (op == NULL) {
        return UCS_ERR_NO_MEMORY;
    }

    slot      = np_ring_tx_slot(ring);
    slot->rma = (np_slot_rma_t){
        .addr   = addr,
        .offset = start & ring->payload_mask,
        .status = UCS_ERR_NO_PROGRESS
    };
    if (kind == NP_OP_PUT) {
        np_iov_copy(NP_DIR_PUT, iov, iovcnt, ring->payload + slot->rma.offset);
    }

    op->index    = ring->tail;
    op->rma.copy = NULL;
    op->rma.len  = len;
    np_op_post(link, NP_QUEUE_DATA, op);
    np_ring_tx_commit_payload(ring, start, len);
    np_ring_tx_publish(ring, slot, len,
                       (kind == NP_OP_PUT) ? NP_SLOT_PUT : NP_SLOT_GET, 0);
    np_link_notify(link);
    *op_p = op;
    return UCS_OK;
}

ucs_status_t np_rma_move(np_dir_t dir, np_link_t *link, np_key_t *key,
                         const np_iov_t *iov, size_t iovcnt, uint64_t addr,
                         void *comp)
{
    size_t len = np_iov_total(iov, iovcnt);
    ucs_status_t status;
    void *direct;

    status = np_rma_enter(link, key, addr, len);
    if (ucs_unlikely((status != UCS_OK) || (len == 0))) {
        return status;
    }

    direct = np_rma_direct(link, key, addr);
    if (direct == NULL) {
        if (ucs_unlikely(key->window != NULL)) {
            return UCS_ERR_INVALID_ADDR; /* its owner has freed it */
        }

        if (!np_rma_has_vm(link)) {
            return np_rma_post_copy(dir, link, key, NULL, iov, iovcnt, len,
                                    addr, 1, comp);
        }
    }

    if (len >= np_engine.config.share_min) {
        return np_rma_post_copy(dir, link, key, direct, iov, iovcnt, len, addr,
                                0, comp);
    }

    if (direct != NULL) {
        np_iov_copy(dir, iov, iovcnt, direct);
        return UCS_OK;
    }

    status = np_rma_move_vm(dir, link, iov, iovcnt, addr);
    return ucs_likely(status != UCS_ERR_UNSUPPORTED) ? status :
           np_rma_post_copy(dir, link, key, NULL, iov, iovcnt, len, addr, 1,
                            comp);
}

ucs_status_t np_rma_put_copied(np_link_t *link, np_key_t *key,
                               const void *data, size_t len, uint64_t addr)
{
    const np_iov_t iov = {(void*)data, len};
    ucs_status_t status;
    np_op_t *op;
    void *direct;

    status = np_rma_enter(link, key, addr, len);
    if ((status != UCS_OK) || (len == 0)) {
        return status;
    }

    direct = np_rma_direct(link, key, addr);
    if (direct != NULL) {
        np_iov_copy(NP_DIR_PUT, &iov, 1, direct);
        return UCS_OK;
    }

    if (key->window != NULL) {
        return UCS_ERR_INVALID_ADDR;
    }

    if (np_rma_has_vm(link)) {
        status = np_rma_move_vm(NP_DIR_PUT, link, &iov, 1, addr);
        if (status != UCS_ERR_UNSUPPORTED) {
            return status;
        }
    }

    return np_rma_send(link, NP_OP_PUT, &iov, 1, len, addr, &op, NULL);
}

ucs_status_t np_rma_get_unpack(np_link_t *link, np_key_t *key, size_t len,
                               uint64_t addr, np_unpack_t unpack, void *arg,
                               void *comp)
{
    np_iov_t iov;
    ucs_status_t status;
    np_op_t *op;
    void *direct;

    status = np_rma_enter(link, key, addr, len);
    if ((status != UCS_OK) || (len == 0)) {
        return status;
    }

    direct = np_rma_direct(link, key, addr);
    if (direct != NULL) {
        unpack(arg, direct, len);
        return UCS_OK;
    }

    if (key->window != NULL) {
        return UCS_ERR_INVALID_ADDR;
    }

    if (np_rma_has_vm(link)) {
        iov.base = np_rma_bounce(link->port);
        iov.len  = len;
        if (iov.base == NULL) {
            return UCS_ERR_NO_MEMORY;
        }

        status = np_rma_move_vm(NP_DIR_GET, link, &iov, 1, addr);
        if (status == UCS_OK) {
            unpack(arg, iov.base, len);
        }
        if (status != UCS_ERR_UNSUPPORTED) {
            return status;
        }
    }

    status = np_rma_send(link, NP_OP_GET, NULL, 0, len, addr, &op, comp);
    if (status != UCS_OK) {
        return status;
    }

    op->rma.buffer = NULL;
    op->rma.unpack = unpack;
    op->rma.arg    = arg;
    return UCS_INPROGRESS;
}
