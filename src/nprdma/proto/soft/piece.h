/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One-sided first: move a piece, and find out what has not arrived (seed
 * NP-RDMA, section 3.1; design, section 4).
 */

#ifndef NP_PIECE_H_
#define NP_PIECE_H_

#include "sop.h"

/** Writes of at most this many bytes are seen at the target once and whole:
 *  programs use them for locks and mailbox flags */
#define NP_PIECE_ONCE   sizeof(uint64_t)

/** Attempts at a piece whose own memory changes each time */
#define NP_PIECE_ROUNDS 4

/** A piece of a transfer */
typedef struct np_piece {
    np_dir_t       dir;
    const np_iov_t *iov;       /**< local, @a len bytes in all */
    size_t         iovcnt;
    uint64_t       addr;       /**< remote; what lies in two arenas is all
                                    missing, only the target can move it */
    size_t         len;        /**< at most NP_DMA_MAX */
    void           *direct;    /**< where addr is mapped here, or NULL */
    int            has_local;  /**< local memory is the program's: it has
                                    views */
    int            is_prefix;  /**< stop at the first absent page: what is
                                    missing is one range, to the end */
    int            is_shared;  /**< the target works on its neighbours: only
                                    this is brought in */
    int            by_entries; /**< judge a read by entries too (retry mode) */
} np_piece_t;

/**
 * Move it.
 *
 * @param [out] missing  What has not arrived: of a write, what was never
 *                       written; of a read, what looks like the signature.
 *
 * @return UCS_OK: it has arrived, except @a missing; UCS_ERR_INVALID_ADDR: our
 *         own memory is not there; UCS_ERR_UNSUPPORTED: the kernel refuses
 *         process_vm_*, and it has arrived except @a missing;
 *         UCS_ERR_CONNECTION_RESET: no such process; others as np_vm_move.
 */
ucs_status_t np_piece_move(np_link_t *link, const np_piece_t *piece,
                           np_ranges_t *missing);

#endif
