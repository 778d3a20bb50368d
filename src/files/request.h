/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What clients ask nprdma-filed for.
 */

#ifndef NF_REQUEST_H_
#define NF_REQUEST_H_

#include "serve.h"

/** An answer that is being made */
typedef struct nf_answer {
    nf_reply_t reply;
    size_t     data_len;
    uint8_t    data[NF_DATA_MAX];
} nf_answer_t;

/**
 * Do what a client asks for. In the session's thread.
 *
 * @param [in]  rest    What follows the request: paths, or data.
 * @param [out] answer  All of it, with an error in it if there is one.
 */
void nf_request_do(nf_session_t *session, const nf_request_t *request,
                   const void *rest, size_t len, nf_answer_t *answer);

/** May this append begin, whose data is still to come? 0 or a negative
 *  errno. */
int nf_request_check_append(const nf_session_t *session,
                            const nf_request_t *request, size_t len);

/** All that a session has open ends */
void nf_request_close_all(nf_session_t *session);

#endif
