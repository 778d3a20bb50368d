/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Logs in files of a server.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>

typedef struct nf_log_remote {
    nprdma_log_t    super;
    nprdma_remote_t *file;      /* to read, and to empty it */
    nprdma_remote_t *appender;  /* the same file; NULL: open for reading */
} nf_log_remote_t;


static ssize_t nf_log_remote_read(nprdma_log_t *log, void *data, size_t length,
                                  uint64_t at)
{
    return nprdma_remote_pread(((nf_log_remote_t*)log)->file, data, length, at);
}

static int nf_log_remote_append(nprdma_log_t *log, const struct iovec *iov,
                                int count, size_t length, uint64_t *at)
{
    return nprdma_remote_appendv(((nf_log_remote_t*)log)->appender, iov, count,
                                 at);
}

static int64_t nf_log_remote_size(nprdma_log_t *log)
{
    struct stat st;
    int ret = nprdma_remote_fstat(((nf_log_remote_t*)log)->file, &st);

    return (ret != 0) ? ret : st.st_size;
}

static int nf_log_remote_empty(nprdma_log_t *log)
{
    return nprdma_remote_truncate(((nf_log_remote_t*)log)->file, 0);
}

static int nf_log_remote_sync(nprdma_log_t *log)
{
    nf_log_remote_t *remote = (nf_log_remote_t*)log;

    /* that of which the library knows what it has appended */
    return nprdma_remote_fsync((remote->appender != NULL) ? remote->appender :
                               remote->file);
}

static void nf_log_remote_close(nprdma_log_t *log)
{
    nf_log_remote_t *remote = (nf_log_remote_t*)log;

    nprdma_remote_close(remote->appender);
    nprdma_remote_close(remote->file);
    free(remote);
}

static const nf_log_ops_t nf_log_remote_ops = {
    .read   = nf_log_remote_read,
    .append = nf_log_remote_append,
    .size   = nf_log_remote_size,
    .empty  = nf_log_remote_empty,
    .sync   = nf_log_remote_sync,
    .close  = nf_log_remote_close,
};

/* The file is there; once more, to append */
static int nf_log_remote_start(nf_log_remote_t *remote, nprdma_server_t *server,
                               const char *path)
{
    struct stat file, appender;
    int ret;

    ret = nprdma_remote_open(server, path, O_WRONLY | O_APPEND, 0,
                             &remote->appender);
    ret = (ret != 0) ? ret : nprdma_remote_fstat(remote->file, &file);
    ret = (ret != 0) ? ret : nprdma_remote_fstat(remote->appender, &appender);
    return (ret != 0) ? ret :
           ((file.st_ino == appender.st_ino) &&
            (file.st_dev == appender.st_dev)) ? 0 : -ESTALE;
}

int nprdma_log_open_remote(nprdma_server_t *server, const char *path, int flags,
                           mode_t mode, nprdma_log_t **log)
{
    nf_log_remote_t *remote;
    int ret;

    *log = NULL;
    ret  = nf_log_check_flags(flags);
    if (ret != 0) {
        return ret;
    }

    remote = calloc(1, sizeof(*remote));
    if (remote == NULL) {
        return -ENOMEM;
    }

    remote->super.ops         = &nf_log_remote_ops;
    remote->super.is_writable = (flags & O_ACCMODE) == O_RDWR;
    ret = nprdma_remote_open(server, path, flags, mode, &remote->file);
    if ((ret == 0) && remote->super.is_writable) {
        ret = nf_log_remote_start(remote, server, path);
    }
    if (ret != 0) {
        nf_log_remote_close(&remote->super);
        return ret;
    }

    *log = &remote->super;
    return 0;
}
