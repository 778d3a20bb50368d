/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What clients ask nprdma-filed for. Nothing that comes from a client is
 * believed: lengths, handles, flags and paths are looked at here, or by the
 * kernel.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "request.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* A request, and what follows it */
typedef struct nf_asked {
    nf_session_t       *session;
    const nf_export_t  *export;
    const nf_request_t *request;
    char               path[NF_PATH_MAX + 1];
    char               other[NF_PATH_MAX + 1]; /* what follows the path */
    const void         *data;
    size_t             data_len;
} nf_asked_t;


/* A path, with a zero at its end. Returns 0 or a negative errno. */
static int nf_take_path(char path[NF_PATH_MAX + 1], const void *from,
                        size_t len)
{
    if (len > NF_PATH_MAX) {
        return -ENAMETOOLONG;
    }

    if (memchr(from, '\0', len) != NULL) {
        return -EINVAL;
    }

    memcpy(path, from, len);
    path[len] = '\0';
    return 0;
}

/* NULL: it has no such handle */
static nf_opened_t *nf_find_opened(const nf_session_t *session, uint32_t handle)
{
    return (handle < session->thread->export->max_files) ?
           session->opened[handle] : NULL;
}

static nf_opened_t *nf_asked_opened(const nf_asked_t *asked)
{
    return nf_find_opened(asked->session, asked->request->handle);
}

/* The file as it is now, and its key if the client has not got it yet */
static int nf_tell_opened(nf_opened_t *opened, nf_answer_t *answer)
{
    int ret;

    answer->reply.limit = opened->limit;
    ret = nf_opened_stat(opened, &answer->reply.stat);
    if ((ret == 0) && (opened->packed != NULL) && !opened->is_told) {
        if (opened->packed_len > sizeof(answer->data)) {
            return -EIO;
        }
        memcpy(answer->data, opened->packed, opened->packed_len);
        answer->reply.key_len = opened->packed_len;
        answer->data_len      = opened->packed_len;
        opened->is_told       = 1;
    }
    return ret;
}

static int nf_do_open(nf_asked_t *asked, nf_answer_t *answer)
{
    nf_session_t *session = asked->session;
    nf_opened_t *opened;
    uint32_t handle;
    int ret;

    for (handle = 0; (handle < asked->export->max_files) &&
                     (session->opened[handle] != NULL); ++handle) {
    }
    if (handle == asked->export->max_files) {
        return -EMFILE;
    }

    ret = nf_opened_begin(asked->export, asked->path, asked->request->flags,
                          asked->request->mode, &opened);
    if (ret != 0) {
        return ret;
    }

    ret = nf_tell_opened(opened, answer);
    if (ret != 0) {
        nf_opened_end(opened);
        return ret;
    }

    session->opened[handle] = opened;
    ++session->num_opened;
    answer->reply.handle = handle;
    return 0;
}

static int nf_do_close(nf_asked_t *asked, nf_answer_t *answer)
{
    nf_opened_t *opened = nf_asked_opened(asked);

    if (opened == NULL) {
        return -EBADF;
    }

    asked->session->opened[asked->request->handle] = NULL;
    --asked->session->num_opened;
    nf_opened_end(opened);
    return 0;
}

static int nf_do_stat(nf_asked_t *asked, nf_answer_t *answer)
{
    nf_opened_t *opened = nf_asked_opened(asked);
    int ret;

    if (asked->request->path_len > 0) {
        return nf_path_stat(asked->export, asked->path, &answer->reply.stat);
    }

    ret = (opened == NULL) ? -EBADF : nf_opened_follow(asked->export, opened);
    return (ret != 0) ? ret : nf_tell_opened(opened, answer);
}

static int nf_do_list(nf_asked_t *asked, nf_answer_t *answer)
{
    nf_opened_t *opened = nf_asked_opened(asked);
    ssize_t ret;

    if (opened == NULL) {
        return -EBADF;
    }

    ret = nf_opened_list(opened, answer->data, sizeof(answer->data));
    answer->data_len = (ret > 0) ? ret : 0;
    return (ret < 0) ? ret : 0;
}

static int nf_do_mkdir(nf_asked_t *asked, nf_answer_t *answer)
{
    return nf_path_mkdir(asked->export, asked->path, asked->request->mode);
}

static int nf_do_rename(nf_asked_t *asked, nf_answer_t *answer)
{
    return nf_path_rename(asked->export, asked->path, asked->other);
}

static int nf_do_remove(nf_asked_t *asked, nf_answer_t *answer)
{
    if (asked->request->flags & ~NF_REMOVE_DIR) {
        return -EINVAL;
    }

    return nf_path_remove(asked->export, asked->path,
                          asked->request->flags & NF_REMOVE_DIR);
}

static int nf_do_resize(nf_asked_t *asked, nf_answer_t *answer)
{
    nf_opened_t *opened = nf_asked_opened(asked);
    int ret;

    if (opened == NULL) {
        return -EBADF;
    }

    ret = nf_opened_resize(asked->export, opened, asked->request->length,
                           asked->request->flags);
    return (ret != 0) ? ret : nf_tell_opened(opened, answer);
}

static int nf_do_append(nf_asked_t *asked, nf_answer_t *answer)
{
    nf_opened_t *opened = nf_asked_opened(asked);

    return (opened == NULL) ? -EBADF :
           nf_opened_append(opened, asked->data, asked->data_len,
                            &answer->reply.value);
}

static int nf_do_commit(nf_asked_t *asked, nf_answer_t *answer)
{
    nf_opened_t *opened = nf_asked_opened(asked);

    return (opened == NULL) ? -EBADF : nf_opened_commit(opened);
}

/* What follows a request */
enum {
    NF_REST_NONE,
    NF_REST_PATH,
    NF_REST_PATHS,
    NF_REST_DATA
};

static const struct {
    int rest;
    int (*run)(nf_asked_t *asked, nf_answer_t *answer);
} nf_ops[NF_OP_LAST] = {
    [NF_OP_OPEN]   = {NF_REST_PATH, nf_do_open},
    [NF_OP_CLOSE]  = {NF_REST_NONE, nf_do_close},
    [NF_OP_STAT]   = {NF_REST_PATH, nf_do_stat},
    [NF_OP_LIST]   = {NF_REST_NONE, nf_do_list},
    [NF_OP_MKDIR]  = {NF_REST_PATH, nf_do_mkdir},
    [NF_OP_RENAME] = {NF_REST_PATHS, nf_do_rename},
    [NF_OP_REMOVE] = {NF_REST_PATH, nf_do_remove},
    [NF_OP_RESIZE] = {NF_REST_NONE, nf_do_resize},
    [NF_OP_APPEND] = {NF_REST_DATA, nf_do_append},
    [NF_OP_COMMIT] = {NF_REST_NONE, nf_do_commit},
};

/* Take apart what follows. Returns 0 or a negative errno. */
static int nf_take_rest(nf_asked_t *asked, const void *rest, size_t len)
{
    const size_t path_len = asked->request->path_len;
    int ret;

    if (path_len > len) {
        return -EINVAL;
    }

    asked->data     = (const char*)rest + path_len;
    asked->data_len = len - path_len;
    ret = nf_take_path(asked->path, rest, path_len);
    switch (nf_ops[asked->request->op].rest) {
    case NF_REST_PATHS:
        return (ret != 0) ? ret :
               nf_take_path(asked->other, asked->data, asked->data_len);
    case NF_REST_DATA:
        return (path_len == 0) ? 0 : -EINVAL;
    default:
        return (asked->data_len == 0) ? ret : -EINVAL;
    }
}

void nf_request_do(nf_session_t *session, const nf_request_t *request,
                   const void *rest, size_t len, nf_answer_t *answer)
{
    nf_asked_t asked; /* paths are long, and often there are none */
    int ret;

    asked.session = session;
    asked.export  = session->thread->export;
    asked.request = request;
    memset(&answer->reply, 0, sizeof(answer->reply));
    answer->data_len = 0;
    ret = (request->op >= NF_OP_LAST) ? -ENOSYS :
          nf_take_rest(&asked, rest, len);
    if (ret == 0) {
        ret = nf_ops[request->op].run(&asked, answer);
    }
    if (ret != 0) {
        memset(&answer->reply, 0, sizeof(answer->reply));
        answer->data_len = 0;
    }
    answer->reply.seq    = request->seq;
    answer->reply.status = ret;
}

int nf_request_check_append(const nf_session_t *session,
                            const nf_request_t *request, size_t len)
{
    const nf_opened_t *opened;

    if ((request->op != NF_OP_APPEND) || (request->path_len != 0)) {
        return -EINVAL;
    }

    opened = nf_find_opened(session, request->handle);
    if ((opened == NULL) || !(opened->flags & NF_OPEN_APPEND)) {
        return -EBADF;
    }

    if (session->is_coming) {
        return -EBUSY; /* the last one's data is not here yet */
    }

    return (len > NF_APPEND_MAX) ? -EMSGSIZE : 0;
}

void nf_request_close_all(nf_session_t *session)
{
    uint32_t handle;

    for (handle = 0; session->num_opened > 0; ++handle) {
        if (session->opened[handle] != NULL) {
            nf_opened_end(session->opened[handle]);
            session->opened[handle] = NULL;
            --session->num_opened;
        }
    }
}
