/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The client's side of nprdma-filed: files.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "connect.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A file may get another size, or be lost and opened again, so often within a
 * call */
#define NF_ROUNDS  4

/* Bytes of a part of a large transfer, and parts that are under way */
#define NF_PART    (1u << 20)
#define NF_DEPTH   4

struct nf_remote {
    nf_server_t *server;
    char        *path;
    unsigned    flags;      /* NF_OPEN_.., for the next time */
    unsigned    epoch;      /* of the connection that it is open by */
    uint32_t    handle;
    ucp_rkey_h  rkey;       /* NULL: a directory */
    uint64_t    limit;      /* bytes that the key reaches */
    int         is_dirty;   /* something of ours may not be on the disk */
    uint64_t    boot;       /* of the host then */
    nf_stat_t   stat;       /* as it was last told */
};


/* Take what an answer says of a file */
static int nf_remote_take(nf_remote_t *file)
{
    nf_server_t *server = file->server;
    ucs_status_t status;
    ucp_rkey_h rkey;

    file->stat = server->reply.stat;
    if (server->reply.key_len == 0) {
        return 0;
    }

    if (server->reply.key_len > server->data_len) {
        return -EPROTO;
    }

    status = ucp_ep_rkey_unpack(server->ep, server->data, &rkey);
    if (status != UCS_OK) {
        return nf_errno(status);
    }

    if (file->rkey != NULL) {
        ucp_rkey_destroy(file->rkey);
    }
    file->rkey  = rkey;
    file->limit = server->reply.limit;
    return 0;
}

/* Open it, for the first time or again */
static int nf_remote_begin(nf_remote_t *file, mode_t mode)
{
    nf_request_t request = {
        .op       = NF_OP_OPEN,
        .flags    = file->flags,
        .mode     = mode,
        .path_len = strlen(file->path)
    };
    int ret;

    ret = nf_server_ask(file->server, &request, file->path, request.path_len);
    if (ret != 0) {
        return ret;
    }

    file->handle = file->server->reply.handle;
    file->epoch  = file->server->epoch;
    if (file->rkey != NULL) {
        ucp_rkey_destroy(file->rkey); /* of another connection, or handle */
        file->rkey = NULL;
    }
    return nf_remote_take(file);
}

/* It is open by the connection that there is now. If its name is another file's
 * by then, or what was written may be lost with its host, it is not, and stays
 * so. */
static int nf_remote_ready(nf_remote_t *file)
{
    nf_server_t *server  = file->server;
    const nf_stat_t was  = file->stat;
    nf_request_t request = {.op = NF_OP_CLOSE};
    int ret;

    if (file->epoch == server->epoch) {
        return nf_server_check(server);
    }

    if (file->is_dirty && (file->boot != server->boot)) {
        return -ESTALE;
    }

    ret = nf_remote_begin(file, 0);
    if ((ret != 0) ||
        (memcmp(&file->stat, &was, offsetof(nf_stat_t, size)) == 0)) {
        return ret;
    }

    request.handle = file->handle;
    (void)nf_server_ask(server, &request, NULL, 0);
    file->stat  = was;
    file->epoch = 0;
    return -ESTALE;
}

static void nf_remote_changed(nf_remote_t *file)
{
    file->is_dirty = 1;
    file->boot     = file->server->boot;
}

/* Ask for something that may be done twice */
static int nf_ask_again(nf_server_t *server, nf_request_t *request,
                        const void *rest, size_t len)
{
    int ret;

    do {
        ret = nf_server_ask(server, request, rest, len);
    } while (nf_server_is_again(server, ret));
    return ret;
}

/* The same of a file */
static int nf_remote_ask(nf_remote_t *file, nf_request_t *request)
{
    int ret;

    do {
        ret = nf_remote_ready(file);
        if (ret == 0) {
            request->handle = file->handle;
            ret             = nf_server_ask(file->server, request, NULL, 0);
        }
    } while (nf_server_is_again(file->server, ret));
    return ret;
}

/* Ask for a change that must not be made twice */
static int nf_remote_ask_once(nf_remote_t *file, nf_request_t *request,
                              const void *data, size_t len)
{
    int ret;

    do {
        ret = nf_remote_ready(file); /* that may be done again */
    } while (nf_server_is_again(file->server, ret));
    if (ret != 0) {
        return ret;
    }

    nf_remote_changed(file);
    request->handle = file->handle;
    return nf_server_ask(file->server, request, data, len);
}

int nf_open(nf_server_t *server, const char *path, unsigned flags, mode_t mode,
            nf_remote_t **file_p)
{
    const unsigned once = NF_OPEN_CREATE | NF_OPEN_EXCLUSIVE | NF_OPEN_TRUNCATE;
    nf_remote_t *file   = calloc(1, sizeof(*file));
    int ret;

    if (file == NULL) {
        return -ENOMEM;
    }

    file->server = server;
    file->flags  = flags;
    file->path   = strdup((path[0] == '\0') ? "/" : path);
    ret          = (file->path == NULL) ? -ENOMEM : 0;
    while (ret == 0) {
        ret = nf_remote_begin(file, mode);
        if ((flags & NF_OPEN_EXCLUSIVE) || !nf_server_is_again(server, ret)) {
            break;
        }
        ret = 0;
    }
    if (ret != 0) {
        nf_close(file);
        return ret;
    }

    file->flags &= ~once;
    *file_p      = file;
    return 0;
}

void nf_close(nf_remote_t *file)
{
    nf_server_t *server = file->server;
    nf_request_t request;

    if (file->rkey != NULL) {
        ucp_rkey_destroy(file->rkey);
    }
    if ((file->epoch > 0) && (file->epoch == server->epoch) &&
        !server->is_broken) {
        request = (nf_request_t){.op = NF_OP_CLOSE, .handle = file->handle};
        (void)nf_server_ask(server, &request, NULL, 0);
    }
    free(file->path);
    free(file);
}

int nf_fstat(nf_remote_t *file, nf_stat_t *stat)
{
    nf_request_t request = {.op = NF_OP_STAT};
    int ret              = nf_remote_ask(file, &request);

    if (ret == 0) {
        ret = nf_remote_take(file);
    }
    if (ret == 0) {
        *stat = file->stat;
    }
    return ret;
}

int nf_resize(nf_remote_t *file, uint64_t size, unsigned flags)
{
    nf_request_t request = {
        .op     = NF_OP_RESIZE,
        .flags  = flags,
        .length = size
    };
    int ret;

    /* a second time it may cut what others have appended since */
    ret = (flags & (NF_RESIZE_GROW | NF_RESIZE_RESERVE)) ?
          nf_remote_ask(file, &request) :
          nf_remote_ask_once(file, &request, NULL, 0);
    return (ret != 0) ? ret : nf_remote_take(file);
}

static ucs_status_ptr_t
nf_remote_begin_move(nf_remote_t *file, int is_put, void *data, size_t len,
                     uint64_t offset)
{
    const ucp_request_param_t param = {0};
    ucp_ep_h ep                     = file->server->ep;

    return is_put ? ucp_put_nbx(ep, data, len, offset, file->rkey, &param) :
           ucp_get_nbx(ep, data, len, offset, file->rkey, &param);
}

/* One-sided, all of it. In parts, some at a time: while one is copied the
 * server brings in the pages of the next. */
static int nf_remote_move(nf_remote_t *file, int is_put, char *data, size_t len,
                          uint64_t offset)
{
    const ucp_request_param_t param = {0};
    nf_server_t *server             = file->server;
    ucs_status_ptr_t parts[NF_DEPTH];
    unsigned begun = 0, ended = 0;
    size_t done = 0, part;
    int ret = 0, status;

    while ((ended < begun) || ((done < len) && (ret == 0))) {
        if ((done < len) && (ret == 0) && ((begun - ended) < NF_DEPTH)) {
            part  = nf_min(len - done, NF_PART);
            parts[begun++ % NF_DEPTH] =
                    nf_remote_begin_move(file, is_put, data + done, part,
                                         offset + done);
            done += part;
        } else {
            status = nf_server_finish(server, parts[ended++ % NF_DEPTH]);
            ret    = (ret == 0) ? status : ret;
        }
    }

    if ((ret == 0) && is_put) {
        ret = nf_server_finish(server, ucp_ep_flush_nbx(server->ep, &param));
    }
    if (ret == 0) {
        server->resets = 0;
        server->used   = nf_now();
    }
    return nf_server_judge(server, ret);
}

ssize_t nf_pread(nf_remote_t *file, void *data, size_t len, uint64_t offset)
{
    const uint64_t end = offset + len;
    unsigned round     = 0;
    uint64_t part      = 0;
    nf_stat_t stat;
    int ret;

    if (file->flags & (NF_OPEN_APPEND | NF_OPEN_DIRECTORY)) {
        return -EBADF;
    }

    do {
        ret = nf_remote_ready(file);
        /* what is behind the size that is known may be there by now */
        if ((ret == 0) && ((end > file->stat.size) || (round > 0))) {
            ret = nf_fstat(file, &stat);
        }
        part = (offset >= file->stat.size) ? 0 :
               nf_min(len, file->stat.size - offset);
        if ((ret == 0) && (part > 0)) {
            ret = nf_remote_move(file, 0, data, part, offset);
        }
    } while ((nf_server_is_again(file->server, ret) || (ret == -EFAULT)) &&
             (round++ < NF_ROUNDS));
    return (ret == 0) ? (ssize_t)part : (ret == -EFAULT) ? -EIO : ret;
}

ssize_t nf_pwrite(nf_remote_t *file, const void *data, size_t len,
                  uint64_t offset)
{
    const uint64_t end = offset + len;
    unsigned round     = 0;
    int ret;

    if (!(file->flags & NF_OPEN_WRITE)) {
        return -EBADF;
    }

    do {
        ret = nf_remote_ready(file);
        if (ret == 0) {
            nf_remote_changed(file);
        }
        if ((ret == 0) &&
            ((end > file->stat.size) || (end > file->limit) || (round > 0))) {
            ret = nf_resize(file, end, NF_RESIZE_GROW);
        }
        if ((ret == 0) && (len > 0)) {
            ret = nf_remote_move(file, 1, (void*)data, len, offset);
        }
    } while ((nf_server_is_again(file->server, ret) || (ret == -EFAULT)) &&
             (round++ < NF_ROUNDS));
    return (ret == 0) ? (ssize_t)len : (ret == -EFAULT) ? -ENOSPC : ret;
}

int nf_append(nf_remote_t *file, const void *data, size_t len, uint64_t *at)
{
    nf_request_t request = {.op = NF_OP_APPEND};
    int ret;

    if (!(file->flags & NF_OPEN_APPEND)) {
        return -EBADF;
    }

    ret = nf_remote_ask_once(file, &request, data, len);
    if (ret == 0) {
        *at = file->server->reply.value;
    }
    return ret;
}

int nf_commit(nf_remote_t *file)
{
    nf_request_t request = {.op = NF_OP_COMMIT};
    int ret              = nf_remote_ask(file, &request);

    file->is_dirty = file->is_dirty && (ret != 0);
    return ret;
}

int nf_stat(nf_server_t *server, const char *path, nf_stat_t *stat)
{
    const char *name     = (path[0] == '\0') ? "/" : path;
    nf_request_t request = {.op = NF_OP_STAT, .path_len = strlen(name)};
    int ret              = nf_ask_again(server, &request, name,
                                        request.path_len);

    if (ret == 0) {
        *stat = server->reply.stat;
    }
    return ret;
}

int nf_list(nf_remote_t *dir,
            int (*each)(void *arg, const char *name, int type), void *arg)
{
    nf_server_t *server  = dir->server;
    nf_request_t request = {.op = NF_OP_LIST, .handle = dir->handle};
    uint8_t data[NF_DATA_MAX];
    char name[NF_PATH_MAX + 1];
    nf_entry_t entry;
    size_t len, done;
    int ret;

    for (;;) {
        ret = nf_server_ask(server, &request, NULL, 0);
        len = server->data_len;
        if ((ret != 0) || (len == 0)) {
            return ret;
        }

        memcpy(data, server->data, len); /* @a each may ask for something */
        for (done = 0; (done + sizeof(entry)) <= len;
             done += sizeof(entry) + entry.name_len) {
            memcpy(&entry, data + done, sizeof(entry));
            if ((entry.name_len > NF_PATH_MAX) ||
                (entry.name_len > (len - done - sizeof(entry)))) {
                return -EPROTO;
            }
            memcpy(name, data + done + sizeof(entry), entry.name_len);
            name[entry.name_len] = '\0';
            ret = each(arg, name, entry.type);
            if (ret != 0) {
                return ret;
            }
        }
    }
}

/* Ask for something that has a path and is not to be done twice */
static int nf_ask_path(nf_server_t *server, nf_op_t op, const char *path,
                       unsigned flags, mode_t mode)
{
    nf_request_t request = {
        .op       = op,
        .flags    = flags,
        .mode     = mode,
        .path_len = strlen(path)
    };

    return nf_server_ask(server, &request, path, request.path_len);
}

int nf_mkdir(nf_server_t *server, const char *path, mode_t mode)
{
    return nf_ask_path(server, NF_OP_MKDIR, path, 0, mode);
}

int nf_rename(nf_server_t *server, const char *from, const char *to)
{
    nf_request_t request = {.op = NF_OP_RENAME, .path_len = strlen(from)};
    char paths[2 * NF_PATH_MAX];
    size_t to_len        = strlen(to);

    if ((request.path_len > NF_PATH_MAX) || (to_len > NF_PATH_MAX)) {
        return -ENAMETOOLONG;
    }

    memcpy(paths, from, request.path_len);
    memcpy(paths + request.path_len, to, to_len);
    return nf_server_ask(server, &request, paths, request.path_len + to_len);
}

int nf_remove(nf_server_t *server, const char *path, unsigned flags)
{
    return nf_ask_path(server, NF_OP_REMOVE, path, flags, 0);
}
