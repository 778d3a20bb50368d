/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls of a client: what becomes of them from their begin to their end, also
 * if the server goes meanwhile.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A file may get another size, or be lost and opened again, so often within a
 * call */
#define NF_ROUNDS      4

/* Bytes of a part of a large transfer, and parts that are under way: while one
 * is copied the server brings in the pages of the next */
#define NF_PART        (1u << 20)
#define NF_DEPTH       4

/* A server that was silent for so long may be gone, ns */
#define NF_SILENCE     10000000

/* A server that dies fails what is under way, and its socket ends: so far
 * apart, ms */
#define NF_DEATH       200

/* Until a server that is away is tried again, ns */
#define NF_TRY_PAUSE   100000000

/* Connections that may end one after the other with nothing answered */
#define NF_RESETS      3


void nf_key_put(nf_key_t *key)
{
    if ((key != NULL) && (--key->uses == 0)) {
        ucp_rkey_destroy(key->rkey);
        free(key);
    }
}

static void nf_call_go(nf_call_t *call);

void nf_call_end(nf_call_t *call, int64_t result)
{
    nprdma_remote_t *file = call->file;

    ucs_list_del(&call->list);
    ucs_list_head_init(&call->list);
    nf_key_put(call->key);
    call->key = NULL;
    if (call->rkey != NULL) {
        ucp_rkey_destroy(call->rkey);
        call->rkey = NULL;
    }
    if (call->is_change && (file != NULL)) {
        --file->num_changing;
    }
    call->result = result;
    call->on_end(call);
}

/* All of it is done again when the server is there, but what may have been
 * done. */
static void nf_call_again(nf_call_t *call)
{
    nf_call_forget_answer(call);
    call->is_ready = 0;
    if (call->is_bound || (call->is_once && call->is_sent)) {
        nf_call_end(call, -ECONNRESET);
    } else {
        nf_call_move_to(call, &call->server->waiting);
    }
}

/* Take what an answer says of a file. Returns 0 or a negative errno. */
static int nf_call_take(nf_call_t *call)
{
    nprdma_remote_t *file = call->file;
    nf_key_t *key;

    file->stat = call->reply.stat;
    if (call->rkey == NULL) {
        return 0;
    }

    key = malloc(sizeof(*key));
    if (key == NULL) {
        return -ENOMEM;
    }

    key->rkey  = call->rkey;
    key->uses  = 1;
    call->rkey = NULL;
    nf_key_put(file->key);
    file->key   = key;
    file->limit = call->reply.limit;
    return 0;
}

/* One-sided, some parts at a time */
static void nf_call_move(nf_call_t *call)
{
    const ucp_request_param_t param = nf_call_param(call);
    ucp_ep_h ep                     = call->server->ep;
    ucs_status_ptr_t request;
    size_t part;
    char *data;

    while ((call->done < call->part) && (call->flying < NF_DEPTH) &&
           (call->status == 0)) {
        part    = nf_min(call->part - call->done, NF_PART);
        data    = call->data + call->done;
        request = (call->kind == NF_KIND_WRITE) ?
                  ucp_put_nbx(ep, data, part, call->offset + call->done,
                              call->key->rkey, &param) :
                  ucp_get_nbx(ep, data, part, call->offset + call->done,
                              call->key->rkey, &param);
        call->done += part;
        nf_call_asked_ucx(call, request);
    }
    nf_call_flies(call);
}

/* The size is known, and reaches as far as it must */
static void nf_call_begin_move(nf_call_t *call)
{
    const uint64_t size = call->file->stat.size;

    call->part = (call->kind == NF_KIND_WRITE) ? call->len :
                 (call->offset >= size) ? 0 :
                 nf_min(call->len, size - call->offset);
    if (call->part == 0) {
        nf_call_end(call, 0);
        return;
    }

    if (call->file->key == NULL) {
        nf_call_end(call, -EPROTO); /* it has given none */
        return;
    }

    nf_key_put(call->key);
    call->key = call->file->key;
    ++call->key->uses;
    call->done   = 0;
    call->status = 0;
    call->phase  = NF_PHASE_MOVE;
    nf_call_move(call);
}

static void nf_call_begin_io(nf_call_t *call)
{
    const nprdma_remote_t *file = call->file;
    const uint64_t end          = call->offset + call->len;
    const int is_write          = call->kind == NF_KIND_WRITE;

    /* what is behind the size that is known may be there by now */
    if ((end <= file->stat.size) && (!is_write || (end <= file->limit)) &&
        (call->round == 0)) {
        nf_call_begin_move(call);
        return;
    }

    call->request = (nf_request_t){
        .op     = is_write ? NF_OP_RESIZE : NF_OP_STAT,
        .flags  = is_write ? NF_RESIZE_GROW : 0,
        .length = is_write ? end : 0
    };
    nf_call_ask(call, NF_PHASE_SIZE);
}

static void nf_call_free(nf_call_t *call)
{
    free(call);
}

void nf_server_drop(nprdma_server_t *server, uint32_t handle)
{
    nf_call_t *call = server->is_broken ? NULL : malloc(sizeof(*call));

    if (call == NULL) {
        return; /* the server closes it with the connection */
    }

    *call = (nf_call_t){
        .server   = server,
        .is_bound = 1,
        .request  = {.op = NF_OP_CLOSE, .handle = handle},
        .on_end   = nf_call_free,
    };
    nf_call_begin(call);
}

void nf_remote_put(nprdma_remote_t *file)
{
    if (--file->uses > 0) {
        return;
    }

    if (file->server != NULL) {
        ucs_list_del(&file->list);
        if (file->epoch == file->server->epoch) {
            nf_server_drop(file->server, file->handle);
        }
    }
    nf_key_put(file->key);
    free(file->path);
    free(file);
}

/* A file is open, for the first time or again. If its name is another file's by
 * then, it is not, and stays so. */
static int nf_call_opened(nf_call_t *call)
{
    nprdma_remote_t *file = call->file;

    if ((call == &file->opening) &&
        (memcmp(&call->reply.stat, &file->stat,
                offsetof(nf_stat_t, size)) != 0)) {
        nf_server_drop(call->server, call->reply.handle);
        return -ESTALE;
    }

    nf_key_put(file->key); /* of another connection, or handle */
    file->key    = NULL;
    file->handle = call->reply.handle;
    file->epoch  = call->server->epoch;
    return nf_call_take(call);
}

/* Calls that have waited for it go on, or fail as it has */
static void nf_remote_reopened(nf_call_t *call)
{
    nprdma_remote_t *file = call->file;
    const int64_t ret     = call->result;
    ucs_list_link_t waiting;

    file->is_opening = 0;
    ucs_list_head_init(&waiting);
    ucs_list_splice_tail(&waiting, &file->waiting);
    ucs_list_head_init(&file->waiting);
    while (!ucs_list_is_empty(&waiting)) {
        call = ucs_list_head(&waiting, nf_call_t, list);
        if (ret != 0) {
            nf_call_end(call, ret);
        } else {
            nf_call_go(call);
        }
    }
    nf_remote_put(file);
}

/* The call goes on when its file is open by the connection that there is now.
 * What was written may be lost with its host: then it does not. */
static void nf_remote_reopen(nprdma_remote_t *file, nf_call_t *call)
{
    if (file->is_dirty && (file->boot != file->server->boot)) {
        nf_call_end(call, -ESTALE);
        return;
    }

    nf_call_move_to(call, &file->waiting);
    if (file->is_opening) {
        return;
    }

    file->is_opening = 1;
    file->opening    = (nf_call_t){
        .server    = file->server,
        .file      = file,
        .request   = {
            .op       = NF_OP_OPEN,
            .flags    = file->flags,
            .path_len = file->path_iov.iov_len
        },
        .iov       = &file->path_iov,
        .iov_count = 1,
        .on_end    = nf_remote_reopened
    };
    nf_call_begin(&file->opening);
}

/* From its first phase on */
static void nf_call_go(nf_call_t *call)
{
    nprdma_server_t *server = call->server;
    nprdma_remote_t *file   = call->file;
    const int is_open       = (call->kind == NF_KIND_ASK) &&
                              (call->request.op == NF_OP_OPEN);

    call->phase  = NF_PHASE_BEGIN;
    call->status = 0;
    if (server->is_broken && call->is_bound) {
        nf_call_end(call, -ECONNRESET);
    } else if (server->is_broken) {
        nf_call_move_to(call, &server->waiting);
    } else if ((file != NULL) && (file->epoch != server->epoch) && !is_open) {
        nf_remote_reopen(file, call);
    } else {
        if ((file != NULL) && call->is_change) {
            file->is_dirty = 1;
            file->boot     = server->boot;
        }
        if (call->kind == NF_KIND_ASK) {
            nf_call_ask(call, NF_PHASE_ASK);
        } else {
            nf_call_begin_io(call);
        }
    }
}

void nf_call_begin(nf_call_t *call)
{
    nprdma_server_t *server = call->server;
    nprdma_remote_t *file   = call->file;

    ucs_list_head_init(&call->list);
    if (file != NULL) {
        ++file->uses; /* its on_end sees to that */
        file->changes      += call->is_change;
        file->num_changing += call->is_change;
    }
    /* a server that was silent for some time may be gone */
    if ((nf_now() - server->used) > NF_SILENCE) {
        (void)nf_server_is_gone(server, 0);
    }
    nf_call_go(call);
}

/* Its access was refused: the file may have become shorter, or the disk full,
 * or the key another one */
static void nf_call_refused(nf_call_t *call)
{
    if (call->round++ < NF_ROUNDS) {
        nf_call_go(call);
    } else {
        nf_call_end(call, (call->kind == NF_KIND_WRITE) ? -ENOSPC : -EIO);
    }
}

static void nf_call_flush(nf_call_t *call)
{
    const ucp_request_param_t param = nf_call_param(call);

    call->phase = NF_PHASE_FLUSH;
    nf_call_asked_ucx(call, ucp_ep_flush_nbx(call->server->ep, &param));
    nf_call_flies(call);
}

/* Bytes were moved, or are flushed */
static void nf_call_moved(nf_call_t *call)
{
    if (call->status == -EFAULT) {
        nf_call_refused(call);
    } else if (call->status != 0) {
        nf_call_end(call, call->status);
    } else if ((call->kind == NF_KIND_WRITE) &&
               (call->phase == NF_PHASE_MOVE)) {
        nf_call_flush(call);
    } else {
        nf_call_end(call, call->part);
    }
}

/* What a request returns that was answered */
static int64_t nf_call_answered(nf_call_t *call)
{
    nprdma_remote_t *file = call->file;

    if (call->reply.status != 0) {
        return call->reply.status;
    }

    switch (call->request.op) {
    case NF_OP_OPEN:
        return (file == NULL) ? 0 : nf_call_opened(call);
    case NF_OP_STAT:
    case NF_OP_RESIZE:
        return (file == NULL) ? 0 : nf_call_take(call);
    case NF_OP_COMMIT:
        file->is_dirty = file->is_dirty && (file->changes != call->covers);
        return 0;
    case NF_OP_APPEND:
        return ((int64_t)call->reply.value < 0) ? -EPROTO :
               (int64_t)call->reply.value;
    default:
        return 0;
    }
}

/* What it had under way has ended */
static void nf_call_advance(nf_call_t *call)
{
    nprdma_server_t *server = call->server;
    int64_t ret;

    if ((call->phase == NF_PHASE_MOVE) && (call->flying > 0)) {
        nf_call_move(call);
        return;
    }

    if (call->status == 0) {
        server->resets = 0;
        server->used   = nf_now();
    } else if ((call->status != -EFAULT) &&
               nf_server_is_gone(server, NF_DEATH)) {
        nf_call_again(call);
        return;
    }

    switch (call->phase) {
    case NF_PHASE_MOVE:
        if ((call->status == 0) && (call->done < call->part)) {
            nf_call_move(call);
            break;
        }
        nf_call_moved(call);
        break;
    case NF_PHASE_FLUSH:
        nf_call_moved(call);
        break;
    default:
        nf_call_forget_answer(call);
        ret = (call->status != 0) ? call->status : nf_call_answered(call);
        if ((ret == 0) && (call->phase == NF_PHASE_SIZE)) {
            nf_call_begin_move(call);
        } else {
            nf_call_end(call, ret);
        }
    }
}

unsigned nf_server_go_on(nprdma_server_t *server)
{
    unsigned count = 0;
    nf_call_t *call;

    while (!ucs_list_is_empty(&server->ready)) {
        call           = ucs_list_head(&server->ready, nf_call_t, list);
        call->is_ready = 0;
        nf_call_advance(call);
        ++count;
    }
    nf_server_send(server);
    return count;
}

static void nf_calls_again(ucs_list_link_t *calls)
{
    nf_call_t *call, *next;

    ucs_list_for_each_safe(call, next, calls, list) {
        nf_call_again(call);
    }
}

static void nf_calls_end(ucs_list_link_t *calls, int result)
{
    ucs_list_link_t these;

    ucs_list_head_init(&these); /* others may come */
    ucs_list_splice_tail(&these, calls);
    ucs_list_head_init(calls);
    while (!ucs_list_is_empty(&these)) {
        nf_call_end(ucs_list_head(&these, nf_call_t, list), result);
    }
}

/* UCX gives back what it has, and all calls wait */
static void nf_server_lose(nprdma_server_t *server)
{
    nf_server_down(server);
    (void)nf_server_go_on(server); /* what has ended in time has */
    nf_calls_again(&server->ready);
    nf_calls_again(&server->busy);
    nf_calls_again(&server->unsent);
}

void nf_server_end_calls(nprdma_server_t *server, int result)
{
    nprdma_remote_t *file;

    nf_server_down(server);
    nf_calls_end(&server->ready, result);
    nf_calls_end(&server->busy, result);
    nf_calls_end(&server->unsent, result);
    nf_calls_end(&server->waiting, result);
    ucs_list_for_each(file, &server->files, list) {
        nf_calls_end(&file->waiting, result);
    }
}

/* It is given up: what waits for it ends */
static void nf_server_give_up(nprdma_server_t *server)
{
    server->gone   = 0;
    server->resets = 0;
    nf_calls_end(&server->waiting, -ECONNRESET);
}

/* It is there again: what has waited goes on */
static void nf_server_is_back(nprdma_server_t *server)
{
    ucs_list_link_t calls;

    server->gone = 0;
    ++server->resets;
    ucs_list_head_init(&calls);
    ucs_list_splice_tail(&calls, &server->waiting);
    ucs_list_head_init(&server->waiting);
    while (!ucs_list_is_empty(&calls)) {
        nf_call_go(ucs_list_head(&calls, nf_call_t, list));
    }
}

void nf_server_mend(nprdma_server_t *server)
{
    const uint64_t now = nf_now();
    int error;

    if (server->ep != NULL) {
        nf_server_lose(server);
    }
    if (ucs_list_is_empty(&server->waiting)) {
        return;
    }

    if (server->params.patience == 0) {
        nf_server_give_up(server);
        return;
    }

    if (server->resets >= NF_RESETS) {
        nf_server_say(server, "the server lets us in, but each request ends "
                      "the connection: is there a way for nprdma between the "
                      "hosts? Try nprdma_info on both");
        nf_server_give_up(server);
        return;
    }

    if (server->gone == 0) {
        server->gone            = now;
        server->next_try        = now;
        server->is_waiting_said = 0;
    }
    if (now < server->next_try) {
        return;
    }

    error = nf_server_up(server);
    if (error == 0) {
        nf_server_is_back(server);
    } else if (nf_server_is_final(error) ||
               ((now - server->gone) >
                (server->params.patience * UINT64_C(1000000000)))) {
        nf_server_say_why(server, error);
        nf_server_give_up(server);
    } else {
        if (!server->is_waiting_said) {
            nf_server_say(server, "the server is gone; waiting for it, up to "
                          "%u s", server->params.patience);
            server->is_waiting_said = 1;
        }
        server->next_try = nf_now() + NF_TRY_PAUSE;
    }
}
