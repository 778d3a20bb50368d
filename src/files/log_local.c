/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Logs in files of this host.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct nf_log_local {
    nprdma_log_t    super;
    int             fd;
    pthread_mutex_t lock;  /* of our appends: where the descriptor stands after
                              a write says where that went */
} nf_log_local_t;


static ssize_t nf_log_local_read(nprdma_log_t *log, void *data, size_t length,
                                 uint64_t at)
{
    const int fd = ((nf_log_local_t*)log)->fd;
    size_t done;
    ssize_t ret;

    for (done = 0; done < length; done += ret) {
        ret = pread(fd, (char*)data + done, length - done, at + done);
        if (ret == 0) {
            break;
        }

        if (ret < 0) {
            if (errno != EINTR) {
                return -errno;
            }
            ret = 0;
        }
    }
    return done;
}

static int nf_log_local_append(nprdma_log_t *log, const struct iovec *iov,
                               int count, size_t length, uint64_t *at)
{
    nf_log_local_t *local = (nf_log_local_t*)log;
    ssize_t done;
    int ret = 0;

    pthread_mutex_lock(&local->lock);
    do {
        done = writev(local->fd, iov, count);
    } while ((done < 0) && (errno == EINTR));
    if (done < 0) {
        ret = -errno;
    } else if ((size_t)done < length) {
        /* others may have appended since: nobody takes it back, and whoever
         * walks knows it by what follows */
        ret = -ENOSPC;
    } else if (at != NULL) {
        *at = lseek(local->fd, 0, SEEK_CUR) - done;
    }
    pthread_mutex_unlock(&local->lock);
    return ret;
}

static int64_t nf_log_local_size(nprdma_log_t *log)
{
    struct stat st;

    return (fstat(((nf_log_local_t*)log)->fd, &st) != 0) ? -errno : st.st_size;
}

static int nf_log_local_empty(nprdma_log_t *log)
{
    return (ftruncate(((nf_log_local_t*)log)->fd, 0) != 0) ? -errno : 0;
}

static int nf_log_local_sync(nprdma_log_t *log)
{
    return (fdatasync(((nf_log_local_t*)log)->fd) != 0) ? -errno : 0;
}

static void nf_log_local_close(nprdma_log_t *log)
{
    nf_log_local_t *local = (nf_log_local_t*)log;

    close(local->fd);
    pthread_mutex_destroy(&local->lock);
    free(local);
}

static const nf_log_ops_t nf_log_local_ops = {
    .read   = nf_log_local_read,
    .append = nf_log_local_append,
    .size   = nf_log_local_size,
    .empty  = nf_log_local_empty,
    .sync   = nf_log_local_sync,
    .close  = nf_log_local_close,
};

static int nf_log_local_start(nf_log_local_t *local, const char *path,
                              int flags, mode_t mode)
{
    struct stat st;

    /* a pipe is not waited for */
    local->fd = open(path, flags | O_APPEND | O_NOCTTY | O_NONBLOCK, mode);
    if (local->fd < 0) {
        return -errno;
    }

    if ((fstat(local->fd, &st) == 0) && S_ISREG(st.st_mode)) {
        return 0;
    }

    close(local->fd);
    return -EINVAL;
}

int nprdma_log_open(const char *path, int flags, mode_t mode,
                    nprdma_log_t **log)
{
    nf_log_local_t *local;
    int ret;

    *log = NULL;
    ret  = nf_log_check_flags(flags);
    if (ret != 0) {
        return ret;
    }

    local = calloc(1, sizeof(*local));
    if (local == NULL) {
        return -ENOMEM;
    }

    ret = nf_log_local_start(local, path, flags, mode);
    if (ret != 0) {
        free(local);
        return ret;
    }

    local->super.ops         = &nf_log_local_ops;
    local->super.is_writable = (flags & O_ACCMODE) == O_RDWR;
    pthread_mutex_init(&local->lock, NULL);
    *log = &local->super;
    return 0;
}
