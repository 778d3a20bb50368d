/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * libnprdma_remote: the calls of nprdma_remote.h.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* What an open takes, beside how the file is used */
#define NF_OPEN_FLAGS  (O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC | O_LARGEFILE)


/* May a file be used so? Returns 0 or a negative errno. */
static int nf_remote_check(const nprdma_remote_t *file, unsigned flags)
{
    return (file->server == NULL) ? -ENOTCONN :
           ((flags & ~file->flags) != 0) ? -EBADF : 0;
}

static nf_call_t nf_call_io(nprdma_remote_t *file, nf_kind_t kind, void *data,
                            size_t len, uint64_t offset)
{
    return (nf_call_t){
        .server    = file->server,
        .file      = file,
        .kind      = kind,
        .is_change = kind == NF_KIND_WRITE,
        .data      = data,
        .len       = len,
        .offset    = offset
    };
}

static nf_call_t nf_call_request(nprdma_server_t *server, nprdma_remote_t *file,
                                 nf_op_t op)
{
    return (nf_call_t){
        .server  = server,
        .file    = file,
        .request = {.op = op},
    };
}

/* The same of a path */
static nf_call_t nf_call_path(nprdma_server_t *server, nf_op_t op,
                              const char *path, struct iovec *iov)
{
    nf_call_t call = nf_call_request(server, NULL, op);

    iov->iov_base         = (void*)((path[0] == '\0') ? "/" : path);
    iov->iov_len          = strlen(iov->iov_base);
    call.request.path_len = nf_min(iov->iov_len, UINT32_MAX);
    call.iov              = iov;
    call.iov_count        = 1;
    return call;
}

/* Returns 0 or a negative errno */
static int nf_check_read(const nprdma_remote_t *file, size_t length,
                         uint64_t offset)
{
    return ((file->flags & NF_OPEN_APPEND) != 0) ? -EBADF :
           ((length > INT64_MAX) || (offset > (INT64_MAX - length))) ?
           -EINVAL : nf_remote_check(file, 0);
}

static int nf_check_write(const nprdma_remote_t *file, size_t length,
                          uint64_t offset)
{
    return ((length > INT64_MAX) || (offset > (INT64_MAX - length))) ?
           -EFBIG : nf_remote_check(file, NF_OPEN_WRITE);
}

ssize_t nprdma_remote_pread(nprdma_remote_t *file, void *data, size_t length,
                            uint64_t offset)
{
    const int ret  = nf_check_read(file, length, offset);
    nf_call_t call = nf_call_io(file, NF_KIND_READ, data, length, offset);

    return (ret != 0) ? ret : nf_call_run(&call);
}

int nprdma_remote_pread_nb(nprdma_remote_t *file, void *data, size_t length,
                           uint64_t offset, nprdma_remote_cb_t cb, void *arg)
{
    const int ret        = nf_check_read(file, length, offset);
    const nf_call_t call = nf_call_io(file, NF_KIND_READ, data, length, offset);

    return (ret != 0) ? ret : nf_call_run_nb(&call, cb, arg);
}

ssize_t nprdma_remote_pwrite(nprdma_remote_t *file, const void *data,
                             size_t length, uint64_t offset)
{
    const int ret  = nf_check_write(file, length, offset);
    nf_call_t call = nf_call_io(file, NF_KIND_WRITE, (void*)data, length,
                                offset);

    return (ret != 0) ? ret : nf_call_run(&call);
}

int nprdma_remote_pwrite_nb(nprdma_remote_t *file, const void *data,
                            size_t length, uint64_t offset,
                            nprdma_remote_cb_t cb, void *arg)
{
    const int ret        = nf_check_write(file, length, offset);
    const nf_call_t call = nf_call_io(file, NF_KIND_WRITE, (void*)data, length,
                                      offset);

    return (ret != 0) ? ret : nf_call_run_nb(&call, cb, arg);
}

/* What is appended follows its request. Returns 0 or a negative errno. */
static int nf_call_append(nprdma_remote_t *file, const struct iovec *iov,
                          int count, nf_call_t *call)
{
    if ((count < 0) || (count > NF_IOV_MAX)) {
        return -EINVAL;
    }

    *call           = nf_call_request(file->server, file, NF_OP_APPEND);
    call->iov       = iov;
    call->iov_count = count;
    call->is_once   = 1;
    call->is_change = 1;
    return (nf_iov_len(iov, count) > NF_APPEND_MAX) ? -EMSGSIZE :
           nf_remote_check(file, NF_OPEN_APPEND);
}

int nprdma_remote_appendv(nprdma_remote_t *file, const struct iovec *iov,
                          int count, uint64_t *offset)
{
    nf_call_t call;
    int64_t result = nf_call_append(file, iov, count, &call);

    result = (result != 0) ? result : nf_call_run(&call);
    if ((result >= 0) && (offset != NULL)) {
        *offset = result;
    }
    return nf_min(result, 0);
}

int nprdma_remote_append(nprdma_remote_t *file, const void *data, size_t length,
                         uint64_t *offset)
{
    const struct iovec iov = {(void*)data, length};

    return nprdma_remote_appendv(file, &iov, 1, offset);
}

int nprdma_remote_append_nb(nprdma_remote_t *file, const void *data,
                            size_t length, nprdma_remote_cb_t cb, void *arg)
{
    const struct iovec iov = {(void*)data, length};
    nf_call_t call;
    int ret                = nf_call_append(file, &iov, 1, &call);

    call.one = iov;
    call.iov = &call.one;
    return (ret != 0) ? ret : nf_call_run_nb(&call, cb, arg);
}

static nf_call_t nf_call_fsync(nprdma_remote_t *file)
{
    nf_call_t call = nf_call_request(file->server, file, NF_OP_COMMIT);

    /* what is under way now may come too late for it */
    call.covers = (file->num_changing == 0) ? file->changes : UINT64_MAX;
    return call;
}

int nprdma_remote_fsync(nprdma_remote_t *file)
{
    const int ret  = nf_remote_check(file, 0);
    nf_call_t call = nf_call_fsync(file);

    return (ret != 0) ? ret : nf_call_run(&call);
}

int nprdma_remote_fsync_nb(nprdma_remote_t *file, nprdma_remote_cb_t cb,
                           void *arg)
{
    const int ret        = nf_remote_check(file, 0);
    const nf_call_t call = nf_call_fsync(file);

    return (ret != 0) ? ret : nf_call_run_nb(&call, cb, arg);
}

static int nf_remote_resize(nprdma_remote_t *file, uint64_t size,
                            unsigned flags)
{
    const int ret  = nf_remote_check(file, NF_OPEN_WRITE);
    nf_call_t call = nf_call_request(file->server, file, NF_OP_RESIZE);

    call.request.length = size;
    call.request.flags  = flags;
    call.is_change      = 1;
    /* a second time it may cut what others have appended since */
    call.is_once        = flags == 0;
    return (ret != 0) ? ret : nf_call_run(&call);
}

int nprdma_remote_truncate(nprdma_remote_t *file, uint64_t size)
{
    return nf_remote_resize(file, size, 0);
}

int nprdma_remote_allocate(nprdma_remote_t *file, uint64_t size)
{
    return nf_remote_resize(file, size, NF_RESIZE_RESERVE);
}

static void nf_stat_give(const nf_stat_t *stat, struct stat *st)
{
    *st = (struct stat){
        .st_dev   = stat->device,
        .st_ino   = stat->inode,
        .st_mode  = stat->mode,
        .st_nlink = 1,
        .st_uid   = stat->uid,
        .st_gid   = stat->gid,
        .st_size  = stat->size,
        .st_mtim  = {stat->mtime_sec, stat->mtime_nsec},
    };
}

int nprdma_remote_fstat(nprdma_remote_t *file, struct stat *st)
{
    int ret        = nf_remote_check(file, 0);
    nf_call_t call = nf_call_request(file->server, file, NF_OP_STAT);

    ret = (ret != 0) ? ret : nf_call_run(&call);
    if (ret == 0) {
        nf_stat_give(&file->stat, st);
    }
    return ret;
}

int nprdma_remote_stat(nprdma_server_t *server, const char *path,
                       struct stat *st)
{
    struct iovec iov;
    nf_call_t call = nf_call_path(server, NF_OP_STAT, path, &iov);
    int ret        = nf_call_run(&call);

    if (ret == 0) {
        nf_stat_give(&call.reply.stat, st);
    }
    return ret;
}

int nprdma_remote_mkdir(nprdma_server_t *server, const char *path, mode_t mode)
{
    struct iovec iov;
    nf_call_t call = nf_call_path(server, NF_OP_MKDIR, path, &iov);

    call.request.mode = mode;
    call.is_once      = 1;
    return nf_call_run(&call);
}

static int nf_remote_remove(nprdma_server_t *server, const char *path,
                            unsigned flags)
{
    struct iovec iov;
    nf_call_t call = nf_call_path(server, NF_OP_REMOVE, path, &iov);

    call.request.flags = flags;
    call.is_once       = 1;
    return nf_call_run(&call);
}

int nprdma_remote_unlink(nprdma_server_t *server, const char *path)
{
    return nf_remote_remove(server, path, 0);
}

int nprdma_remote_rmdir(nprdma_server_t *server, const char *path)
{
    return nf_remote_remove(server, path, NF_REMOVE_DIR);
}

int nprdma_remote_rename(nprdma_server_t *server, const char *from,
                         const char *to)
{
    struct iovec iov[2] = {[1] = {(void*)to, strlen(to)}};
    nf_call_t call      = nf_call_path(server, NF_OP_RENAME, from, &iov[0]);

    if ((iov[0].iov_len > NF_PATH_MAX) || (iov[1].iov_len > NF_PATH_MAX)) {
        return -ENAMETOOLONG;
    }

    call.iov_count = 2;
    call.is_once   = 1;
    return nf_call_run(&call);
}

/* The names that have come. Returns what @a each has. */
static int nf_list_each(const char *data, size_t len,
                        int (*each)(void *arg, const char *name, int type),
                        void *arg)
{
    char name[NF_PATH_MAX + 1];
    nf_entry_t entry;
    int ret = 0;
    size_t done;

    for (done = 0; (ret == 0) && ((done + sizeof(entry)) <= len);
         done += sizeof(entry) + entry.name_len) {
        memcpy(&entry, data + done, sizeof(entry));
        if ((entry.name_len > NF_PATH_MAX) ||
            (entry.name_len > (len - done - sizeof(entry)))) {
            return -EPROTO;
        }
        memcpy(name, data + done + sizeof(entry), entry.name_len);
        name[entry.name_len] = '\0';
        ret                  = each(arg, name, entry.type);
    }
    return ret;
}

int nprdma_remote_list(nprdma_server_t *server, const char *path,
                       int (*each)(void *arg, const char *name, int type),
                       void *arg)
{
    struct iovec iov;
    nf_call_t call = nf_call_path(server, NF_OP_OPEN, path, &iov);
    unsigned epoch;
    uint32_t handle;
    char *data;
    int ret;

    call.request.flags = NF_OPEN_DIRECTORY;
    ret                = nf_call_run(&call);
    if (ret != 0) {
        return ret;
    }

    handle = call.reply.handle;
    epoch  = server->epoch;
    data   = malloc(NF_DATA_MAX);
    ret    = (data == NULL) ? -ENOMEM : 0;
    while (ret == 0) {
        call = nf_call_request(server, NULL, NF_OP_LIST);
        call.request.handle = handle;
        call.is_bound       = 1; /* another has no such handle */
        call.data           = data;
        ret                 = (epoch == server->epoch) ? nf_call_run(&call) :
                              -ECONNRESET;
        if ((ret != 0) || (call.done == 0)) {
            break;
        }
        ret = nf_list_each(data, call.done, each, arg);
    }
    if (epoch == server->epoch) {
        nf_server_drop(server, handle);
    }
    free(data);
    return ret;
}

/* As open() has them. Returns 0 or -EINVAL. */
static int nf_open_flags(int flags, unsigned *open_p)
{
    const int use = flags & ~NF_OPEN_FLAGS;

    *open_p = ((flags & O_CREAT) ? NF_OPEN_CREATE : 0) |
              ((flags & O_EXCL) ? NF_OPEN_EXCLUSIVE : 0) |
              ((flags & O_TRUNC) ? NF_OPEN_TRUNCATE : 0) |
              ((use == O_RDWR) ? NF_OPEN_WRITE : 0) |
              ((use == (O_WRONLY | O_APPEND)) ? NF_OPEN_APPEND : 0);
    return ((use == O_RDONLY) || (use == O_RDWR) ||
            (use == (O_WRONLY | O_APPEND))) ? 0 : -EINVAL;
}

/* Returns 0 or a negative errno */
static int nf_remote_make(nprdma_server_t *server, const char *path,
                          unsigned flags, nprdma_remote_t **file_p)
{
    nprdma_remote_t *file = calloc(1, sizeof(*file));

    if (file == NULL) {
        return -ENOMEM;
    }

    file->flags    = flags;
    file->uses     = 1;
    file->path     = strdup((path[0] == '\0') ? "/" : path);
    if (file->path == NULL) {
        free(file);
        return -ENOMEM;
    }

    file->path_iov = (struct iovec){file->path, strlen(file->path)};
    file->server   = server;
    ucs_list_head_init(&file->waiting);
    ucs_list_add_tail(&server->files, &file->list);
    *file_p = file;
    return 0;
}

int nprdma_remote_open(nprdma_server_t *server, const char *path, int flags,
                       mode_t mode, nprdma_remote_t **file_p)
{
    const unsigned once = NF_OPEN_CREATE | NF_OPEN_EXCLUSIVE | NF_OPEN_TRUNCATE;
    nprdma_remote_t *file;
    struct iovec iov;
    nf_call_t call;
    int ret;

    *file_p            = NULL;
    call               = nf_call_path(server, NF_OP_OPEN, path, &iov);
    call.request.mode  = mode;
    call.is_once       = (flags & O_EXCL) != 0;
    ret                = nf_open_flags(flags, &call.request.flags);
    ret                = (ret != 0) ? ret :
                         nf_remote_make(server, path, call.request.flags,
                                        &file);
    if (ret != 0) {
        return ret;
    }

    call.file    = file;
    ret          = nf_call_run(&call);
    file->flags &= ~once;
    if (ret != 0) {
        nf_remote_put(file);
        return ret;
    }

    *file_p = file;
    return 0;
}

void nprdma_remote_close(nprdma_remote_t *file)
{
    nprdma_server_t *server;

    if (file == NULL) {
        return;
    }

    server = file->server;
    while ((server != NULL) && !server->is_calling && (file->uses > 1)) {
        (void)nprdma_server_wait(server, -1);
    }
    nf_remote_put(file); /* a callback does not wait */
}
