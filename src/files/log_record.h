/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Records of a log: how they are stored.
 *
 * A record is its head and its data. Where one begins, a search finds: no
 * record has the magic anywhere but in its first bytes, nor does it end with a
 * part that a magic may begin with. Data of which this is not true is stored
 * masked. Hence
 *
 *   1. data is never taken for a record, also if a log is what it is;
 *   2. a record that lacks its end is known by the next magic, wherever its
 *      length leads;
 *   3. one pass finds all records, whatever is in the file.
 */

#ifndef NF_LOG_RECORD_H_
#define NF_LOG_RECORD_H_

#include <nprdma/nprdma_log.h>

/** Before the data; each number has its lowest byte first. Checksums are those
 *  of crc32c.h, rotated right by 15 bits, plus 0x9e3779b9. */
typedef struct nf_log_head {
    uint8_t  magic[4];
    uint32_t length;    /**< of the data */
    uint32_t mask;      /**< each four bytes of the data are stored XOR this */
    uint32_t data_crc;  /**< of the data as it is stored */
    uint32_t head_crc;  /**< of what is before it here */
} nf_log_head_t;

/** A record to be written */
typedef struct nf_log_record {
    nf_log_head_t head;
    void          *masked;  /**< its data, to be freed; NULL: as it was given */
} nf_log_record_t;

/**
 * Find the magic in a piece of something.
 *
 * @param [in,out] seen  Bytes of a magic that the pieces before have ended
 *                       with, at first 0.
 *
 * @return Behind it; NULL: not in this piece.
 */
const void *nf_log_find_magic(const void *data, size_t length, unsigned *seen);

/** Make a record of these pieces, @a length bytes in all, up to NPRDMA_LOG_MAX.
 *  Returns 0 or -ENOMEM. */
int nf_log_record_make(nf_log_record_t *record, const struct iovec *iov,
                       int count, size_t length);

/** Is it one? With the length in @a length, if so. */
int nf_log_head_read(const nf_log_head_t *head, size_t *length);

/** Is this the data that it was written with? Takes away the mask. */
int nf_log_data_read(const nf_log_head_t *head, void *data, size_t length);

#endif
