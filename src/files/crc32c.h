/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * CRC-32C (Castagnoli), as iSCSI, ext4 and SSE 4.2 have it. UCX's ucs_crc32()
 * has another polynomial, and goes bit by bit.
 */

#ifndef NF_CRC32C_H_
#define NF_CRC32C_H_

#include <stddef.h>
#include <stdint.h>

/** Go on with @a crc, that of the bytes before; 0: there are none */
uint32_t nf_crc32c(uint32_t crc, const void *data, size_t length);

/** The same without the processor's instruction. Any thread. */
uint32_t nf_crc32c_by_tables(uint32_t crc, const void *data, size_t length);

#endif
