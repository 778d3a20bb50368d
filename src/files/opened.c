/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Open files: their keys, their size, and what is appended to them.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "common.h"
#include "opened.h"
#include "path.h"
#include "program.h"

#include <nprdma/nprdma_file_ucp.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes that a key reaches at least, to write and to read: addresses of this
 * process are taken for them, and not used again */
#define NF_LIMIT_WRITE  (16ull << 20)
#define NF_LIMIT_READ   (1ull << 20)
#define NF_LIMIT_MAX    (1ull << 43)

/* A file may grow between a look at its size and its key: so often */
#define NF_KEY_TRIES    4

/* The disk has room for so many bytes more than have been appended: they need
 * not be asked for with each append */
#define NF_AHEAD      (256ull << 10)

/* Files are told apart by their inodes; two may have one log */
#define NF_LOGS       64

/* A file that something is appended to. Who appends sees what is there, and may
 * take back a part that it has written. */
typedef struct nf_log {
    pthread_mutex_t lock;      /* guards all of it, and our appends */
    dev_t           device;    /* what is known is of this file; inode 0: of
                                  none */
    ino_t           inode;
    uint64_t        end;       /* where we have appended last */
    uint64_t        reserved;  /* the disk has room up to here */
} nf_log_t;

static nf_log_t nf_logs[NF_LOGS] = {
    [0 ... NF_LOGS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER},
};


/* How many bytes a key is to reach, for a file of this size: one that is
 * written may double */
static uint64_t nf_opened_limit(const nf_opened_t *opened, uint64_t size)
{
    const int is_written = opened->flags & NF_OPEN_WRITE;
    const uint64_t least = is_written ? NF_LIMIT_WRITE : NF_LIMIT_READ;
    const uint64_t limit = is_written ? (size * 2) : size;

    return (size > (NF_LIMIT_MAX / 2)) ? NF_LIMIT_MAX :
           (limit < least) ? least : limit;
}

/* A key for a file that may become so large. The one that was there ends. */
static int nf_opened_make_key(const nf_export_t *export, nf_opened_t *opened,
                              uint64_t limit)
{
    const unsigned rights = NPRDMA_FILE_READ |
                            ((opened->flags & NF_OPEN_WRITE) ?
                             NPRDMA_FILE_WRITE : 0);
    nprdma_filekey_t key;
    nprdma_file_t *file;
    ucs_status_t status;
    size_t packed_len;
    void *packed;
    int ret;

    ret = nprdma_file_create(limit, &file);
    if (ret == 0) {
        ret = nprdma_file_bind(file, opened->fd, rights);
    }
    if (ret == 0) {
        ret = nprdma_file_key(file, rights, &key);
    }
    if (ret != 0) {
        nprdma_file_destroy(file);
        if (ret == -ENOSPC) {
            nf_say("all addresses for keys of files are used up: start the "
                   "server again");
            ret = -EADDRNOTAVAIL; /* ENOSPC is the disk's */
        }
        return ret;
    }

    status = nprdma_file_pack_key(export->context, &key, &packed, &packed_len);
    if (status != UCS_OK) {
        nprdma_file_destroy(file);
        return -EIO;
    }

    nprdma_file_destroy(opened->file);
    if (opened->packed != NULL) {
        ucp_rkey_buffer_release(opened->packed);
    }
    opened->file       = file;
    opened->packed     = packed;
    opened->packed_len = packed_len;
    opened->limit      = limit;
    opened->is_told    = 0;
    return 0;
}

/* A key that reaches all of the file, and to @a size if that is more */
static int nf_opened_make_key_for(const nf_export_t *export,
                                  nf_opened_t *opened, uint64_t size)
{
    struct stat st;
    unsigned i;
    int ret;

    for (i = 0, ret = -EFBIG; (i < NF_KEY_TRIES) && (ret == -EFBIG); ++i) {
        if (fstat(opened->fd, &st) != 0) {
            return -errno;
        }
        size = ((uint64_t)st.st_size > size) ? (uint64_t)st.st_size : size;
        ret  = nf_opened_make_key(export, opened,
                                  nf_opened_limit(opened, size));
    }
    return ret;
}

int nf_opened_follow(const nf_export_t *export, nf_opened_t *opened)
{
    struct stat st;

    if ((opened->file == NULL) || (fstat(opened->fd, &st) != 0) ||
        ((uint64_t)st.st_size <= opened->limit)) {
        return 0;
    }

    return nf_opened_make_key_for(export, opened, 0);
}

static int nf_open_flags(unsigned flags)
{
    return ((flags & (NF_OPEN_WRITE | NF_OPEN_APPEND)) ? O_RDWR : O_RDONLY) |
           ((flags & NF_OPEN_APPEND) ? O_APPEND : 0) |
           ((flags & NF_OPEN_CREATE) ? O_CREAT : 0) |
           ((flags & NF_OPEN_EXCLUSIVE) ? O_EXCL : 0) |
           ((flags & NF_OPEN_DIRECTORY) ? O_DIRECTORY : 0) |
           O_NOCTTY | O_NONBLOCK; /* a pipe is not waited for */
}

static int nf_open_check(const nf_export_t *export, unsigned flags)
{
    const unsigned writes = NF_OPEN_WRITE | NF_OPEN_APPEND;

    if ((flags & ~NF_OPEN_ALL) || ((flags & writes) == writes) ||
        (!(flags & writes) && (flags & (NF_OPEN_CREATE | NF_OPEN_TRUNCATE))) ||
        ((flags & NF_OPEN_EXCLUSIVE) && !(flags & NF_OPEN_CREATE)) ||
        ((flags & NF_OPEN_DIRECTORY) && (flags != NF_OPEN_DIRECTORY)) ||
        ((flags & NF_OPEN_APPEND) && (flags & NF_OPEN_TRUNCATE))) {
        return -EINVAL;
    }

    return (export->is_readonly && (flags & writes)) ? -EROFS : 0;
}

/* What is open now, a file or a directory */
static int nf_opened_start(const nf_export_t *export, nf_opened_t *opened)
{
    struct stat st;
    int ret;

    if (fstat(opened->fd, &st) != 0) {
        return -errno;
    }

    if (opened->flags & NF_OPEN_DIRECTORY) {
        opened->dir = fdopendir(opened->fd);
        return (opened->dir == NULL) ? -errno : 0;
    }

    opened->device = st.st_dev;
    opened->inode  = st.st_ino;
    if (!S_ISREG(st.st_mode)) {
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    }

    if (opened->flags & NF_OPEN_APPEND) {
        return 0; /* nobody reads or writes it by a key */
    }

    /* what is there stays until all else is right */
    ret = nf_opened_make_key_for(export, opened, 0);
    return ((ret != 0) || !(opened->flags & NF_OPEN_TRUNCATE)) ? ret :
           nprdma_file_resize(opened->file, 0);
}

int nf_opened_begin(const nf_export_t *export, const char *path, unsigned flags,
                    mode_t mode, nf_opened_t **opened_p)
{
    int ret = nf_open_check(export, flags);
    nf_opened_t *opened;

    if (ret != 0) {
        return ret;
    }

    opened = calloc(1, sizeof(*opened));
    if (opened == NULL) {
        return -ENOMEM;
    }

    opened->flags = flags;
    opened->fd    = nf_path_open(export, path, nf_open_flags(flags), mode);
    ret           = (opened->fd < 0) ? opened->fd :
                    nf_opened_start(export, opened);
    if (ret != 0) {
        nf_opened_end(opened);
        return ret;
    }

    *opened_p = opened;
    return 0;
}

void nf_opened_end(nf_opened_t *opened)
{
    nprdma_file_destroy(opened->file);
    if (opened->packed != NULL) {
        ucp_rkey_buffer_release(opened->packed);
    }
    if (opened->dir != NULL) {
        closedir(opened->dir);
    } else if (opened->fd >= 0) {
        /* the room that it has behind its end stays its: others may be about to
         * append there */
        close(opened->fd);
    }
    free(opened);
}

static nf_log_t *nf_opened_log(const nf_opened_t *opened)
{
    return &nf_logs[(opened->inode ^ opened->device) % NF_LOGS];
}

/* Room for so many bytes; its size stays. With the log's lock. Some file
 * systems (ext4) keep what they have taken before the disk was full: that is
 * given back. We do not make it longer meanwhile; what another program appends
 * in that moment is lost. */
static int nf_reserve(nf_log_t *log, const nf_opened_t *opened, uint64_t offset,
                      uint64_t len)
{
    struct stat st;
    int ret;

    if (fallocate(opened->fd, FALLOC_FL_KEEP_SIZE, offset, len) == 0) {
        return 0;
    }

    ret = -errno;
    if (((ret == -ENOSPC) || (ret == -EDQUOT)) &&
        (fstat(opened->fd, &st) == 0)) {
        log->inode = 0; /* the room that it had behind its end goes as well */
        (void)!ftruncate(opened->fd, st.st_size);
    }
    return ret;
}

/* Make it longer, if it is not so long. By fallocate(): that cuts nothing which
 * others have appended meanwhile. Where there is none, programs beside the
 * server must not append at the same time. With the log's lock. */
static int nf_grow(nf_opened_t *opened, uint64_t size, unsigned flags)
{
    const uint64_t first = (flags & NF_RESIZE_ALLOCATE) ? 0 : (size - 1);
    struct stat st;

    if (fallocate(opened->fd, 0, first, size - first) == 0) {
        return 0;
    }

    if (errno != EOPNOTSUPP) {
        return -errno;
    }

    return (fstat(opened->fd, &st) != 0) ? -errno :
           ((uint64_t)st.st_size >= size) ? 0 :
           (ftruncate(opened->fd, size) == 0) ? 0 : -errno;
}

/* What of a resize takes room, or makes it longer */
static int nf_opened_stretch(nf_opened_t *opened, uint64_t size, unsigned flags)
{
    nf_log_t *log = nf_opened_log(opened);
    int ret;

    if (size == 0) {
        return 0;
    }

    pthread_mutex_lock(&log->lock);
    if (flags & NF_RESIZE_RESERVE) {
        ret = nf_reserve(log, opened, 0, size);
        ret = (ret == -EOPNOTSUPP) ? 0 : ret;
    } else {
        ret = nf_grow(opened, size, flags);
    }
    pthread_mutex_unlock(&log->lock);
    return ret;
}

int nf_opened_resize(const nf_export_t *export, nf_opened_t *opened,
                     uint64_t size, unsigned flags)
{
    int ret = 0;

    if (flags & ~NF_RESIZE_ALL) {
        return -EINVAL;
    }

    if ((opened->file == NULL) || !(opened->flags & NF_OPEN_WRITE)) {
        return -EBADF;
    }

    if (size > NF_LIMIT_MAX) {
        return -EFBIG;
    }

    if (flags & NF_RESIZE_RESERVE) {
        return nf_opened_stretch(opened, size, flags);
    }

    if (size > opened->limit) {
        ret = nf_opened_make_key_for(export, opened, size);
    }
    if ((ret == 0) && !(flags & NF_RESIZE_GROW)) {
        ret = nprdma_file_resize(opened->file, size);
    }
    if ((ret == 0) && (flags & (NF_RESIZE_GROW | NF_RESIZE_ALLOCATE))) {
        ret = nf_opened_stretch(opened, size, flags);
    }
    return ret;
}

/* The disk has room for what is to be appended, or says that it has not. As far
 * as is known: if other programs append, or cut the file, the write says so. */
static int nf_log_reserve(nf_log_t *log, const nf_opened_t *opened, size_t len)
{
    const uint64_t ahead = (len < NF_AHEAD) ? NF_AHEAD : len;
    const int is_known   = (log->inode == opened->inode) &&
                           (log->device == opened->device);
    struct stat st;
    int ret;

    if (is_known && ((log->end + len) <= log->reserved)) {
        return 0;
    }

    if (fstat(opened->fd, &st) != 0) {
        return -errno;
    }

    log->reserved = is_known ? log->reserved : 0;
    log->device   = opened->device;
    log->inode    = opened->inode;
    log->end      = st.st_size;
    if ((log->end + len) <= log->reserved) {
        return 0;
    }

    ret = nf_reserve(log, opened, log->end, ahead);
    if (ret == 0) {
        log->reserved = log->end + ahead;
        return 0;
    }

    /* without a word about room the write says it */
    return ((ret != -ENOSPC) && (ret != -EDQUOT)) ? 0 :
           nf_reserve(log, opened, log->end, len);
}

/* With the log's lock */
static int nf_log_append(nf_log_t *log, const nf_opened_t *opened,
                         const void *data, size_t len, uint64_t *at)
{
    const uint64_t end = log->end;
    struct stat st;
    ssize_t done;

    done = write(opened->fd, data, len);
    if (done < 0) {
        return -errno;
    }

    log->end = lseek(opened->fd, 0, SEEK_CUR);
    *at      = log->end - done;
    if (*at != end) {
        log->inode = 0; /* others have been there: look the next time */
    }
    if (done == (ssize_t)len) {
        return 0;
    }

    /* a part of it: taken back, if no other program has appended since */
    log->inode = 0;
    if ((fstat(opened->fd, &st) != 0) ||
        ((uint64_t)st.st_size != (*at + done)) ||
        (ftruncate(opened->fd, *at) != 0)) {
        nf_say("%zd bytes of an append of %zu stay in the file", done, len);
        return -EIO;
    }
    return -ENOSPC;
}

int nf_opened_append(nf_opened_t *opened, const void *data, size_t len,
                     uint64_t *at)
{
    nf_log_t *log = nf_opened_log(opened);
    int ret;

    if (!(opened->flags & NF_OPEN_APPEND)) {
        return -EBADF;
    }

    if ((len == 0) || (len > NF_APPEND_MAX)) {
        return (len == 0) ? -EINVAL : -EMSGSIZE;
    }

    pthread_mutex_lock(&log->lock);
    ret = nf_log_reserve(log, opened, len);
    if (ret == 0) {
        ret = nf_log_append(log, opened, data, len, at);
    }
    pthread_mutex_unlock(&log->lock);
    return ret;
}

int nf_opened_commit(nf_opened_t *opened)
{
    return ((opened->dir == NULL) ? fdatasync(opened->fd) :
            fsync(opened->fd)) == 0 ? 0 : -errno;
}

int nf_opened_stat(const nf_opened_t *opened, nf_stat_t *stat)
{
    return nf_path_fill(opened->fd, stat);
}

ssize_t nf_opened_list(nf_opened_t *opened, void *entries, size_t size)
{
    struct dirent *entry;
    nf_entry_t head;
    size_t len = 0;
    long before;

    if (opened->dir == NULL) {
        return -ENOTDIR;
    }

    for (;;) {
        before = telldir(opened->dir);
        errno  = 0;
        entry  = readdir(opened->dir);
        if (entry == NULL) {
            return (errno != 0) ? -errno : (ssize_t)len;
        }

        if ((strcmp(entry->d_name, ".") == 0) ||
            (strcmp(entry->d_name, "..") == 0)) {
            continue;
        }

        head = (nf_entry_t){
            .type     = entry->d_type,
            .name_len = strlen(entry->d_name)
        };
        if ((len + sizeof(head) + head.name_len) > size) {
            seekdir(opened->dir, before);
            return len;
        }

        memcpy((char*)entries + len, &head, sizeof(head));
        memcpy((char*)entries + len + sizeof(head), entry->d_name,
               head.name_len);
        len += sizeof(head) + head.name_len;
    }
}
