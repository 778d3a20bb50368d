/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a call asks UCX and the server for.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "server.h"

#include <errno.h>
#include <string.h>


void nf_call_move_to(nf_call_t *call, ucs_list_link_t *list)
{
    ucs_list_del(&call->list);
    ucs_list_add_tail(list, &call->list);
}

size_t nf_iov_len(const struct iovec *iov, size_t count)
{
    size_t len = 0, i;

    for (i = 0; i < count; ++i) {
        len += iov[i].iov_len;
    }
    return len;
}

void nf_call_ready(nf_call_t *call)
{
    if (!call->is_ready) {
        call->is_ready = 1;
        nf_call_move_to(call, &call->server->ready);
    }
}

/* UCX has done a part of it */
static void nf_call_landed(void *request, ucs_status_t status, void *arg)
{
    nf_call_t *call = arg;

    ucp_request_free(request);
    --call->server->flying;
    --call->flying;
    if ((status != UCS_OK) && (call->status == 0)) {
        call->status = nf_errno(status);
    }
    if ((call->flying == 0) ? (!call->is_asking || (call->status != 0)) :
        (call->phase == NF_PHASE_MOVE)) {
        nf_call_ready(call);
    }
}

ucp_request_param_t nf_call_param(nf_call_t *call)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA,
        .user_data    = call
    };

    param.cb.send = nf_call_landed;
    return param;
}

void nf_call_asked_ucx(nf_call_t *call, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        ++call->flying;
        ++call->server->flying;
    } else if ((UCS_PTR_STATUS(request) != UCS_OK) && (call->status == 0)) {
        call->status = nf_errno(UCS_PTR_STATUS(request));
    }
}

void nf_call_flies(nf_call_t *call)
{
    if ((call->flying > 0) || (call->is_asking && (call->status == 0))) {
        if (!call->is_ready) {
            nf_call_move_to(call, &call->server->busy);
        }
    } else {
        nf_call_ready(call);
    }
}

/* Does the server fetch what follows its request? */
static int nf_call_is_large(const nf_call_t *call)
{
    return (call->request.op == NF_OP_APPEND) &&
           (nf_iov_len(call->iov, call->iov_count) > NF_EAGER_MAX);
}

/* Send its request. One piece goes as it is. */
static void nf_call_send(nf_call_t *call)
{
    nprdma_server_t *server   = call->server;
    ucp_request_param_t param = nf_call_param(call);
    const int is_large        = nf_call_is_large(call);
    const int is_one          = call->iov_count <= 1;
    const void *rest          = (call->iov_count == 0) ? NULL :
                                is_one ? call->iov[0].iov_base : call->iov;
    const size_t count        = (call->iov_count == 0) ? 0 :
                                is_one ? call->iov[0].iov_len : call->iov_count;

    do {
        call->request.seq = ++server->seq;
    } while (server->asks[call->request.seq % NF_ASKS] != NULL);
    server->asks[call->request.seq % NF_ASKS] = call;
    call->is_asking       = 1;
    call->is_sent         = 1;
    call->request.session = server->session;
    call->request.secret  = server->secret;
    if (call->file != NULL) {
        call->request.handle = call->file->handle;
    }

    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags         = is_large ? UCP_AM_SEND_FLAG_RNDV :
                          UCP_AM_SEND_FLAG_EAGER;
    if (!is_one) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype      = UCP_DATATYPE_IOV;
    }
    server->large = is_large ? call : server->large;
    nf_call_asked_ucx(call, ucp_am_send_nbx(server->ep, NF_AM_REQUEST,
                                            &call->request,
                                            sizeof(call->request), rest, count,
                                            &param));
    nf_call_flies(call);
}

/* Is there room for its request? Appends keep their order: while the server
 * fetches one, none follows. */
static int nf_call_may_send(const nf_call_t *call)
{
    const nprdma_server_t *server = call->server;
    const uint32_t seq            = server->seq + 1;
    unsigned i;

    if ((server->large != NULL) && (call->request.op == NF_OP_APPEND)) {
        return 0;
    }

    if (server->asks[seq % NF_ASKS] == NULL) {
        return 1;
    }

    for (i = 0; (i < NF_ASKS) && (server->asks[i] != NULL); ++i) {
    }
    return i < NF_ASKS;
}

void nf_call_ask(nf_call_t *call, nf_phase_t phase)
{
    nprdma_server_t *server = call->server;

    call->phase  = phase;
    call->status = 0;
    if (!ucs_list_is_empty(&server->unsent) || !nf_call_may_send(call)) {
        nf_call_move_to(call, &server->unsent);
        return;
    }

    nf_call_send(call);
}

void nf_call_forget_answer(nf_call_t *call)
{
    nprdma_server_t *server = call->server;

    if (call->is_asking) {
        server->asks[call->request.seq % NF_ASKS] = NULL;
        server->large   = (server->large == call) ? NULL : server->large;
        call->is_asking = 0;
    }
}

void nf_server_send(nprdma_server_t *server)
{
    nf_call_t *call;

    while (!server->is_broken && !ucs_list_is_empty(&server->unsent)) {
        call = ucs_list_head(&server->unsent, nf_call_t, list);
        if (!nf_call_may_send(call)) {
            break;
        }

        nf_call_send(call);
    }
}

/* An answer is taken: what comes with it must be copied */
static int nf_call_take_data(nf_call_t *call, const void *data, size_t len)
{
    if (call->request.op == NF_OP_LIST) {
        memcpy(call->data, data, len);
        call->done = len;
        return 0;
    }

    if (call->reply.key_len == 0) {
        return 0;
    }

    return (call->reply.key_len > len) ? -EPROTO :
           nf_errno(ucp_ep_rkey_unpack(call->server->ep, data, &call->rkey));
}

ucs_status_t nf_server_on_reply(void *arg, const void *header,
                                size_t header_len, void *data, size_t len,
                                const ucp_am_recv_param_t *param)
{
    nprdma_server_t *server = arg;
    const nf_reply_t *reply = header;
    nf_call_t *call;

    if ((header_len != sizeof(*reply)) || (len > NF_DATA_MAX) ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        nf_server_say(server, "the server has sent what is no answer");
        server->is_broken = 1;
        return UCS_OK;
    }

    call = server->asks[reply->seq % NF_ASKS];
    if ((call == NULL) || (call->request.seq != reply->seq)) {
        return UCS_OK; /* to what we do not wait for any more */
    }

    nf_call_forget_answer(call);
    memcpy(&call->reply, reply, sizeof(*reply));
    if (reply->status > 0) {
        call->reply.status = -EPROTO;
    } else if (reply->status == -ECONNRESET) {
        /* what it says is not what has become of the connection */
        call->reply.status = -EIO;
    } else if (reply->status == 0) {
        call->reply.status = nf_call_take_data(call, data, len);
    }
    if (call->flying == 0) {
        nf_call_ready(call);
    }
    return UCS_OK;
}
