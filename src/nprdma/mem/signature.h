/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a read of an absent page gives: the signature. The page holds a pattern
 * of four bytes, so the byte at address A is byte A modulo 4 of the pattern
 * (seed NP-RDMA, section 3.1.1).
 */

#ifndef NP_SIGNATURE_H_
#define NP_SIGNATURE_H_

#include "../np.h"

/** As a little-endian word at an address that is a multiple of 4 */
#define NP_SIGNATURE  UINT32_C(0xd5ea5e1f)

/** The largest DMA unit, and the one of soft0 */
#define NP_DMA_UNIT   256

/** Fill as a read of [@a remote, @a remote + @a len) from an absent page
 *  would */
void np_signature_fill(void *dst, uint64_t remote, size_t len);

/**
 * Look for the signature: in each DMA unit (aligned at the remote side) that
 * the transfer touches, four bytes are compared, or all if there are fewer.
 * Never misses an absent unit; may suspect a unit whose data looks the same.
 *
 * @param [in]  data    What has arrived from [@a remote, @a remote + @a len).
 * @param [in]  unit    Bytes, a power of two from 4 to NP_DMA_UNIT.
 * @param [in]  from    Where to begin to look, an offset into data.
 * @param [out] end     One past the last byte of the run of suspected units
 *                      that begins at the result.
 *
 * @return offset of the first byte of a suspected unit, at least @a from;
 *         @a len if there is none.
 */
size_t np_signature_find(const void *data, uint64_t remote, size_t len,
                         unsigned unit, size_t from, size_t *end);

#endif
