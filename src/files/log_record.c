/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Records of a log: heads, checksums, and how the magic is kept out of data.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "crc32c.h"
#include "log_record.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* The first byte is in no text, and no other byte of it is the same: so two of
 * them never overlap, and a search goes back never */
static const uint8_t nf_log_magic[4] = {0xf9, 'l', 'o', 'g'};

_Static_assert(sizeof(nf_log_head_t) == NPRDMA_LOG_HEAD, "nprdma_log.h");


const void *nf_log_find_magic(const void *data, size_t length, unsigned *seen)
{
    const uint8_t *at        = data;
    const uint8_t *const end = at + length;

    while (at < end) {
        if (*seen == 0) {
            at = memchr(at, nf_log_magic[0], end - at);
            if (at == NULL) {
                return NULL;
            }
        } else if (*at != nf_log_magic[*seen]) {
            *seen = 0;
            continue;
        }

        ++at;
        if (++*seen == sizeof(nf_log_magic)) {
            *seen = 0;
            return at;
        }
    }
    return NULL;
}

/* A checksum as it is stored. Data may have stored checksums within it, as a
 * log in a log, and a CRC does not tell one such part from another: each of
 * them leaves the same rest. A rotation and a sum make that untrue. */
static uint32_t nf_log_store_crc(uint32_t crc)
{
    return htole32(((crc >> 15) | (crc << 17)) + 0x9e3779b9u);
}

static uint32_t nf_log_data_crc(const struct iovec *iov, int count)
{
    uint32_t crc = 0;
    int i;

    for (i = 0; i < count; ++i) {
        crc = nf_crc32c(crc, iov[i].iov_base, iov[i].iov_len);
    }
    return nf_log_store_crc(crc);
}

static uint32_t nf_log_head_crc(const nf_log_head_t *head)
{
    return nf_log_store_crc(nf_crc32c(0, head, offsetof(nf_log_head_t,
                                                        head_crc)));
}

static void nf_log_head_make(nf_log_head_t *head, uint32_t mask,
                             const struct iovec *iov, int count, size_t length)
{
    memcpy(head->magic, nf_log_magic, sizeof(nf_log_magic));
    head->length   = htole32(length);
    head->mask     = htole32(mask);
    head->data_crc = nf_log_data_crc(iov, count);
    head->head_crc = nf_log_head_crc(head);
}

/* Beside its own magic it has another one, or the begin of one as its end: with
 * what follows in the file that would be one */
static int nf_log_has_magic(const nf_log_head_t *head, const struct iovec *iov,
                            int count)
{
    unsigned seen = 0;
    int i;

    if (nf_log_find_magic((const uint8_t*)head + 1, sizeof(*head) - 1, &seen)) {
        return 1;
    }

    for (i = 0; i < count; ++i) {
        if (nf_log_find_magic(iov[i].iov_base, iov[i].iov_len, &seen)) {
            return 1;
        }
    }
    return seen > 0;
}

/* Nobody who gives us data knows it before */
static uint32_t nf_log_any_mask(void)
{
    struct timespec now;
    uint32_t mask;

    if (getrandom(&mask, sizeof(mask), 0) != sizeof(mask)) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        mask = now.tv_nsec * 2654435769u;
    }
    return mask;
}

static void nf_log_mask(void *data, size_t length, uint32_t mask)
{
    const uint32_t stored = htole32(mask);
    uint8_t bytes[sizeof(stored)];
    uint8_t *at = data;
    uint32_t word;
    size_t i;

    for (; length >= sizeof(word); length -= sizeof(word), at += sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        word ^= stored;
        memcpy(at, &word, sizeof(word));
    }

    memcpy(bytes, &stored, sizeof(bytes));
    for (i = 0; i < length; ++i) {
        at[i] ^= bytes[i];
    }
}

/* A mask is good for 64 MiB of any data 98 times of 100 */
static int nf_log_record_mask(nf_log_record_t *record, const struct iovec *iov,
                              int count, size_t length)
{
    uint32_t last = 0, mask;
    struct iovec masked;
    uint8_t *to;
    int i;

    to = malloc((length > 0) ? length : 1);
    if (to == NULL) {
        return -ENOMEM;
    }

    masked         = (struct iovec){to, length};
    record->masked = to;
    for (i = 0; i < count; ++i) {
        if (iov[i].iov_len > 0) {
            to = mempcpy(to, iov[i].iov_base, iov[i].iov_len);
        }
    }
    do {
        mask = nf_log_any_mask();
        nf_log_mask(masked.iov_base, length, last ^ mask);
        nf_log_head_make(&record->head, mask, &masked, 1, length);
        last = mask;
    } while (nf_log_has_magic(&record->head, &masked, 1));
    return 0;
}

int nf_log_record_make(nf_log_record_t *record, const struct iovec *iov,
                       int count, size_t length)
{
    record->masked = NULL;
    nf_log_head_make(&record->head, 0, iov, count, length);
    return nf_log_has_magic(&record->head, iov, count) ?
           nf_log_record_mask(record, iov, count, length) : 0;
}

int nf_log_head_read(const nf_log_head_t *head, size_t *length)
{
    *length = le32toh(head->length);
    return (memcmp(head->magic, nf_log_magic, sizeof(nf_log_magic)) == 0) &&
           (head->head_crc == nf_log_head_crc(head)) &&
           (*length <= NPRDMA_LOG_MAX);
}

int nf_log_data_read(const nf_log_head_t *head, void *data, size_t length)
{
    const struct iovec iov = {data, length};

    if (nf_log_data_crc(&iov, 1) != head->data_crc) {
        return 0;
    }

    if (head->mask != 0) {
        nf_log_mask(data, length, le32toh(head->mask));
    }
    return 1;
}
