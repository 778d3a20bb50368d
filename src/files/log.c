/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Logs: what is appended, wherever their file is. log_walk.c reads them.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "log.h"
#include "log_record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Records, and pieces of them, for which nothing is allocated */
#define NF_LOG_FEW  8

/* Records that are appended by one write. Neither moves: pieces have the
 * addresses of heads. */
typedef struct nf_log_batch {
    nf_log_record_t *records;
    struct iovec    *iov;
    int             num_records, num_iov;
    size_t          length;      /* of all of it in the file */
    nf_log_record_t few_records[NF_LOG_FEW];
    struct iovec    few_iov[2 * NF_LOG_FEW];
} nf_log_batch_t;


int nf_log_check_flags(int flags)
{
    const int others = flags & ~(O_ACCMODE | O_CREAT | O_EXCL | O_CLOEXEC);
    const int mode   = flags & O_ACCMODE;

    return ((others != 0) || ((mode != O_RDWR) && (mode != O_RDONLY)) ||
            ((flags & O_CREAT) && (mode != O_RDWR)) ||
            ((flags & O_EXCL) && !(flags & O_CREAT))) ? -EINVAL : 0;
}

/* For so many records of so many pieces */
static int nf_log_batch_begin(nf_log_batch_t *batch, int records, int pieces)
{
    const size_t num_iov = (size_t)records + pieces;

    batch->num_records = 0;
    batch->num_iov     = 0;
    batch->length      = 0;
    batch->records     = batch->few_records;
    batch->iov         = batch->few_iov;
    if (records > NF_LOG_FEW) {
        batch->records = malloc(records * sizeof(*batch->records));
    }
    if (num_iov > (2 * NF_LOG_FEW)) {
        batch->iov = malloc(num_iov * sizeof(*batch->iov));
    }
    return ((batch->records == NULL) || (batch->iov == NULL)) ? -ENOMEM : 0;
}

static void nf_log_batch_end(nf_log_batch_t *batch)
{
    int i;

    for (i = 0; i < batch->num_records; ++i) {
        free(batch->records[i].masked);
    }
    if (batch->records != batch->few_records) {
        free(batch->records);
    }
    if (batch->iov != batch->few_iov) {
        free(batch->iov);
    }
}

static void nf_log_batch_piece(nf_log_batch_t *batch, const void *data,
                               size_t length)
{
    if (length > 0) {
        batch->iov[batch->num_iov++] = (struct iovec){(void*)data, length};
        batch->length               += length;
    }
}

/* A record of these pieces */
static int nf_log_batch_add(nf_log_batch_t *batch, const struct iovec *iov,
                            int count)
{
    nf_log_record_t *record = &batch->records[batch->num_records];
    const size_t before     = batch->length + NPRDMA_LOG_HEAD;
    size_t length           = 0;
    int i, ret;

    for (i = 0; i < count; ++i) {
        if ((before > NPRDMA_LOG_BATCH) ||
            (iov[i].iov_len > (NPRDMA_LOG_BATCH - before - length))) {
            return -EMSGSIZE;
        }
        length += iov[i].iov_len;
    }

    ret = nf_log_record_make(record, iov, count, length);
    if (ret != 0) {
        return ret;
    }

    ++batch->num_records;
    nf_log_batch_piece(batch, &record->head, sizeof(record->head));
    if (record->masked != NULL) {
        nf_log_batch_piece(batch, record->masked, length);
        return 0;
    }

    for (i = 0; i < count; ++i) {
        nf_log_batch_piece(batch, iov[i].iov_base, iov[i].iov_len);
    }
    return 0;
}

/* More pieces than a call takes */
static int nf_log_batch_write_copy(nprdma_log_t *log,
                                   const nf_log_batch_t *batch, uint64_t *at)
{
    struct iovec all = {malloc(batch->length), batch->length};
    uint8_t *to      = all.iov_base;
    int i, ret;

    if (to == NULL) {
        return -ENOMEM;
    }

    for (i = 0; i < batch->num_iov; ++i) {
        to = mempcpy(to, batch->iov[i].iov_base, batch->iov[i].iov_len);
    }
    ret = log->ops->append(log, &all, 1, batch->length, at);
    free(all.iov_base);
    return ret;
}

static int nf_log_batch_write(nprdma_log_t *log, const nf_log_batch_t *batch,
                              uint64_t *at)
{
    return (batch->num_iov > IOV_MAX) ?
           nf_log_batch_write_copy(log, batch, at) :
           log->ops->append(log, batch->iov, batch->num_iov, batch->length, at);
}

int nprdma_log_appendv(nprdma_log_t *log, const struct iovec *iov, int count,
                       uint64_t *at)
{
    nf_log_batch_t batch;
    int ret;

    if (!log->is_writable || (count < 0)) {
        return (count < 0) ? -EINVAL : -EBADF;
    }

    ret = nf_log_batch_begin(&batch, 1, count);
    if (ret == 0) {
        ret = nf_log_batch_add(&batch, iov, count);
    }
    if (ret == 0) {
        ret = nf_log_batch_write(log, &batch, at);
    }
    nf_log_batch_end(&batch);
    return ret;
}

int nprdma_log_append(nprdma_log_t *log, const void *data, size_t length,
                      uint64_t *at)
{
    const struct iovec iov = {(void*)data, length};

    return nprdma_log_appendv(log, &iov, 1, at);
}

int nprdma_log_append_many(nprdma_log_t *log, const struct iovec *iov,
                           int count, uint64_t *at)
{
    nf_log_batch_t batch;
    uint64_t begin;
    int i, ret;

    if (!log->is_writable || (count < 0)) {
        return (count < 0) ? -EINVAL : -EBADF;
    }

    ret = nf_log_batch_begin(&batch, count, count);
    for (i = 0; (ret == 0) && (i < count); ++i) {
        ret = nf_log_batch_add(&batch, &iov[i], 1);
    }
    if ((ret == 0) && (count > 0)) {
        ret = nf_log_batch_write(log, &batch, (at != NULL) ? &begin : NULL);
    }
    nf_log_batch_end(&batch);
    for (i = 0; (ret == 0) && (at != NULL) && (i < count); ++i) {
        at[i]  = begin;
        begin += NPRDMA_LOG_HEAD + iov[i].iov_len;
    }
    return ret;
}

int64_t nprdma_log_tell(nprdma_log_t *log)
{
    return log->ops->size(log);
}

int nprdma_log_rewind(nprdma_log_t *log)
{
    return log->is_writable ? log->ops->empty(log) : -EBADF;
}

int nprdma_log_sync(nprdma_log_t *log)
{
    return log->ops->sync(log);
}

void nprdma_log_close(nprdma_log_t *log)
{
    if (log != NULL) {
        log->ops->close(log);
    }
}
