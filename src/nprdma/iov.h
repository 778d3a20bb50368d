/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Scatter lists.
 */

#ifndef NP_IOV_H_
#define NP_IOV_H_

#include "np.h"

/** Bytes in all */
static inline size_t np_iov_length(const np_iov_t *iov, size_t iovcnt)
{
    size_t i, total = 0;

    for (i = 0; i < iovcnt; ++i) {
        total += iov[i].len;
    }
    return total;
}

/**
 * Elements that make up [offset, offset + len) of a list.
 *
 * @param [out] out  At most NP_MAX_IOV of them.
 *
 * @return how many.
 */
static inline size_t np_iov_slice(const np_iov_t *iov, size_t iovcnt,
                                  size_t offset, size_t len, np_iov_t *out)
{
    size_t i, count = 0, part;

    for (i = 0; (i < iovcnt) && (len > 0); ++i) {
        if (offset >= iov[i].len) {
            offset -= iov[i].len;
            continue;
        }

        part              = ucs_min(iov[i].len - offset, len);
        out[count].base   = UCS_PTR_BYTE_OFFSET(iov[i].base, offset);
        out[count++].len  = part;
        len              -= part;
        offset            = 0;
    }

    return count;
}

#endif
