/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Logs: where their file is, and what can be done to it there.
 */

#ifndef NF_LOG_H_
#define NF_LOG_H_

#include <nprdma/nprdma_log.h>

/** All return a negative errno on errors */
typedef struct nf_log_ops {
    /** Returns bytes; fewer than asked for only at the file's end */
    ssize_t (*read)(nprdma_log_t *log, void *data, size_t length, uint64_t at);

    /** All of it at the end, in one piece, or an error. At most IOV_MAX pieces,
     *  @a length bytes in all. @a at may be NULL. */
    int     (*append)(nprdma_log_t *log, const struct iovec *iov, int count,
                      size_t length, uint64_t *at);
    int64_t (*size)(nprdma_log_t *log);
    int     (*empty)(nprdma_log_t *log);
    int     (*sync)(nprdma_log_t *log);
    void    (*close)(nprdma_log_t *log);
} nf_log_ops_t;

struct nprdma_log {
    const nf_log_ops_t *ops;
    int                is_writable;
};

/** Flags that a log may be opened with. Returns 0 or -EINVAL. */
int nf_log_check_flags(int flags);

#endif
