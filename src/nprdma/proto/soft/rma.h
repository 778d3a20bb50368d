/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Put and get. The way is chosen for each transfer: a mapped segment, else
 * process_vm_*, else the rings; large ones are shared with the target.
 */

#ifndef NP_RMA_H_
#define NP_RMA_H_

#include "piece.h"
#include "sop.h"

/** Largest buffered message: 12 KiB and its headers. A message costs both sides
 *  some 50 ns each, whatever its size (decisions.md). */
#define NP_RMA_BCOPY  12352

/** Largest put_packed and get_unpack: what surely fits the rings at once */
size_t np_rma_max_bcopy(const np_port_config_t *config);

/** Bytes of one piece of a transfer through the rings */
uint32_t np_rma_ring_piece(const np_link_t *link);

/**
 * Send one request through the data ring.
 *
 * @param [in]  kind  NP_OP_PUT: @a iov is copied; NP_OP_GET: the caller fills
 *                    into the operation what to do with the bytes.
 * @param [in]  id    See np_carry_send.
 * @param [out] op_p  The operation, which is outstanding.
 *
 * @return UCS_OK; UCS_ERR_NO_RESOURCE; UCS_ERR_NO_MEMORY; UCS_ERR_INVALID_ADDR:
 *         a swapper cannot bring it in.
 */
ucs_status_t np_rma_send(np_link_t *link, np_op_kind_t kind,
                         const np_iov_t *iov, size_t iovcnt, size_t len,
                         uint64_t addr, uint8_t id, np_sop_t **op_p,
                         void *comp);

/** May a transfer start beside others, and which way does it go? @a direct:
 *  where @a addr is mapped here, or NULL. */
ucs_status_t np_rma_begin(np_link_t *link, np_key_t *key, uint64_t addr,
                          size_t len, int is_write, void **direct);

/** Move one piece, one-sided. UCS_ERR_UNSUPPORTED: take the rings instead. */
ucs_status_t np_rma_move_piece(np_link_t *link, const np_piece_t *piece,
                               np_ranges_t *missing);

/** np_way_ops_t */
ucs_status_t np_rma_move(np_dir_t dir, np_flight_t *flight, np_key_t *key,
                         const np_iov_t *iov, size_t iovcnt, size_t len,
                         uint64_t addr, void *comp);
ucs_status_t np_rma_put_copied(np_flight_t *flight, np_key_t *key,
                               const void *data, size_t len, uint64_t addr);
ssize_t np_rma_put_packed(np_flight_t *flight, np_key_t *key, np_pack_t pack,
                          void *arg, uint64_t addr);
ucs_status_t np_rma_get_unpack(np_flight_t *flight, np_key_t *key, size_t len,
                               uint64_t addr, np_unpack_t unpack, void *arg,
                               void *comp);

/** Would np_rma_put_copied of up to @a len bytes find all that it may need? If
 *  so, a call that follows at once is not refused for lack of room. */
ucs_status_t np_rma_may_put(np_link_t *link, uint64_t addr, size_t len);

/** As np_ep_move with a get, but complete when this returns UCS_OK; it never
 *  returns UCS_INPROGRESS. UCS_ERR_NO_RESOURCE also while a page is brought in;
 *  UCS_ERR_UNSUPPORTED: only the target itself can read that, since the kernel
 *  refuses direct access, or since the page has no entry. */
ucs_status_t np_rma_get_now(np_link_t *link, np_key_t *key, void *buffer,
                            size_t len, uint64_t addr);

#endif
