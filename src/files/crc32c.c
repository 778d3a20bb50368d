/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * CRC-32C: by the processor, or eight bytes at a time by tables.
 */

#include "crc32c.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

/* Bits reversed: the lowest bit is the first one */
#define NF_CRC32C_POLYNOMIAL  0x82f63b78u

/* Of [n][b]: the byte b, and n bytes of zeroes after it */
static uint32_t nf_crc32c_tables[8][256];
static pthread_once_t nf_crc32c_once = PTHREAD_ONCE_INIT;


static void nf_crc32c_start(void)
{
    uint32_t crc;
    unsigned byte, i;

    for (byte = 0; byte < 256; ++byte) {
        for (crc = byte, i = 0; i < 8; ++i) {
            crc = (crc >> 1) ^ ((crc & 1) ? NF_CRC32C_POLYNOMIAL : 0);
        }
        nf_crc32c_tables[0][byte] = crc;
    }
    for (i = 1; i < 8; ++i) {
        for (byte = 0; byte < 256; ++byte) {
            crc                       = nf_crc32c_tables[i - 1][byte];
            nf_crc32c_tables[i][byte] = (crc >> 8) ^
                                        nf_crc32c_tables[0][crc & 255];
        }
    }
}

uint32_t nf_crc32c_by_tables(uint32_t crc, const void *data, size_t length)
{
    const uint8_t *at = data;
    uint64_t word;
    unsigned i;

    pthread_once(&nf_crc32c_once, nf_crc32c_start);
    crc = ~crc;
    for (; length >= sizeof(word); length -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        word = le64toh(word) ^ crc;
        for (crc = 0, i = 0; i < sizeof(word); ++i, word >>= 8) {
            crc ^= nf_crc32c_tables[7 - i][word & 255];
        }
    }
    for (; length > 0; --length) {
        crc = (crc >> 8) ^ nf_crc32c_tables[0][(crc ^ *at++) & 255];
    }
    return ~crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t
nf_crc32c_by_processor(uint32_t crc, const void *data, size_t length)
{
    const uint8_t *at = data;
    uint64_t wide     = (uint32_t)~crc;
    uint64_t word;

    for (; length >= sizeof(word); length -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        wide = __builtin_ia32_crc32di(wide, word);
    }

    crc = wide;
    for (; length > 0; --length) {
        crc = __builtin_ia32_crc32qi(crc, *at++);
    }
    return ~crc;
}
#endif

uint32_t nf_crc32c(uint32_t crc, const void *data, size_t length)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2")) {
        return nf_crc32c_by_processor(crc, data, length);
    }
#endif

    return nf_crc32c_by_tables(crc, data, length);
}
