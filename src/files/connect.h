/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A client's connection: its socket, its endpoint, and one request at a time.
 */

#ifndef NF_CONNECT_H_
#define NF_CONNECT_H_

#include "client.h"

struct nf_server {
    const nf_where_t *where;
    ucp_context_h    context;
    nf_worker_t      worker;
    int              fd;         /**< -1: not connected */
    ucp_ep_h         ep;
    int              is_broken;  /**< the server is gone */
    unsigned         epoch;      /**< connections so far */
    unsigned         resets;     /**< since a request has been answered */
    uint64_t         boot;       /**< of its host */
    uint64_t         used;       /**< nf_now() of the last request */
    uint32_t         session;
    uint64_t         secret;
    uint32_t         seq;        /**< of the last request */
    int              is_answered;
    nf_reply_t       reply;      /**< to the last request, and what follows */
    size_t           data_len;
    uint8_t          data[NF_DATA_MAX];
};

/** A request's end: what UCX has begun ends, or the server goes (-ECONNRESET).
 *  Returns 0 or a negative errno. */
int nf_server_finish(nf_server_t *server, ucs_status_ptr_t request);

/** What a request has failed with, if not because the server is gone:
 *  -ECONNRESET */
int nf_server_judge(nf_server_t *server, int ret);

/**
 * Ask for something, and take the answer, which stays until the next call.
 *
 * @param [in] request  With op, flags and what else the op has.
 * @param [in] rest     What follows it: @a path_len of it is a path.
 *
 * @return the answer's status; -ECONNRESET.
 */
int nf_server_ask(nf_server_t *server, nf_request_t *request, const void *rest,
                  size_t len);

/** Is it still there, as far as its socket knows? Looked at where nothing has
 *  been asked for some time. Returns 0 or -ECONNRESET. */
int nf_server_check(nf_server_t *server);

/** A call has returned @a ret: is it to be made again? Waits until the server
 *  is there again. */
int nf_server_is_again(nf_server_t *server, int ret);

#endif
