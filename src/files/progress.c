/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How calls of a client come to their end: those that block, and those that are
 * told of.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "server.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

/* A client looks again for so long before it sleeps, ns */
#define NF_SPIN   50000

/* It looks so often whether the server is there, ns, and while it sleeps, ms */
#define NF_LOOK   1000000
#define NF_WAKE   1000

/* A server that is away is tried again so often, ms */
#define NF_RETRY  100


/* What a callback begins may end at once: that is told the next time */
unsigned nf_server_tell(nprdma_server_t *server)
{
    unsigned count = 0;
    ucs_list_link_t calls;
    nprdma_remote_cb_t cb;
    nf_call_t *call;
    int64_t result;
    void *arg;

    if (ucs_list_is_empty(&server->ended) || server->is_calling) {
        return 0;
    }

    ucs_list_head_init(&calls);
    ucs_list_splice_tail(&calls, &server->ended);
    ucs_list_head_init(&server->ended);
    server->is_calling = 1;
    while (!ucs_list_is_empty(&calls)) {
        call   = ucs_list_extract_head(&calls, nf_call_t, list);
        cb     = call->cb;
        arg    = call->arg;
        result = call->result;
        ucs_list_add_head(&server->spare, &call->list);
        --server->num_calls;
        nf_remote_put(call->file);
        cb(arg, result);
        ++count;
    }
    server->is_calling = 0;
    return count;
}

unsigned nprdma_server_progress(nprdma_server_t *server)
{
    unsigned count = (server->worker.worker == NULL) ? 0 :
                     ucp_worker_progress(server->worker.worker);
    uint64_t now;

    count += nf_server_go_on(server);
    if (!server->is_broken && (count == 0)) {
        now = nf_now();
        if ((now - server->looked) > NF_LOOK) {
            server->looked = now;
            (void)nf_server_is_gone(server, 0);
        }
    }
    if (server->is_broken) {
        nf_server_mend(server);
        count += nf_server_go_on(server);
    }
    return count + nf_server_tell(server);
}

/* Sleep until there may be something to do, for @a limit ns at most */
static void nf_server_sleep(nprdma_server_t *server, uint64_t limit)
{
    const int wake = server->is_broken ? NF_RETRY : NF_WAKE;

    if (server->worker.worker == NULL) {
        (void)poll(NULL, 0, NF_RETRY);
        return;
    }

    nf_worker_sleep(&server->worker, server->fd,
                    nf_min((uint64_t)wake, (limit / 1000000) + 1));
}

unsigned nprdma_server_wait(nprdma_server_t *server, int timeout)
{
    const uint64_t begin = nf_now();
    const uint64_t limit = (timeout < 0) ? UINT64_MAX :
                           (timeout * UINT64_C(1000000));
    unsigned count;
    uint64_t past;

    for (;;) {
        count = nprdma_server_progress(server);
        past  = nf_now() - begin;
        if ((count > 0) || (server->num_calls == 0) || (past >= limit) ||
            server->is_calling) { /* a callback does not block */
            return count;
        }
        if (past > NF_SPIN) {
            nf_server_sleep(server, limit - past);
        }
    }
}

size_t nprdma_server_pending(const nprdma_server_t *server)
{
    return server->num_calls;
}

/* Go on until it is so */
static void nf_server_until(nprdma_server_t *server, const int *is_so)
{
    uint64_t idle_since = 0;

    (void)nf_server_go_on(server);
    while (!*is_so) {
        if (nprdma_server_progress(server) > 0) {
            idle_since = 0;
        } else if (idle_since == 0) {
            idle_since = nf_now();
        } else if ((nf_now() - idle_since) > NF_SPIN) {
            nf_server_sleep(server, UINT64_MAX);
        }
    }
}

static void nf_call_is_over(nf_call_t *call)
{
    *(int*)call->arg = 1;
    if (call->file != NULL) {
        nf_remote_put(call->file);
    }
}

int64_t nf_call_run(nf_call_t *call)
{
    int is_over = 0;

    if (call->server->is_calling) {
        return -EDEADLK; /* a callback must not block */
    }

    call->on_end = nf_call_is_over;
    call->arg    = &is_over;
    nf_call_begin(call);
    nf_server_until(call->server, &is_over);
    return call->result;
}

static void nf_call_to_tell(nf_call_t *call)
{
    ucs_list_add_tail(&call->server->ended, &call->list);
}

int nf_call_run_nb(const nf_call_t *what, nprdma_remote_cb_t cb,
                          void *arg)
{
    nprdma_server_t *server = what->server;
    nf_call_t *call;

    if (cb == NULL) {
        return -EINVAL;
    }

    if (server->is_over) {
        return -ENOTCONN;
    }

    if (ucs_list_is_empty(&server->spare)) {
        call = malloc(sizeof(*call));
        if (call == NULL) {
            return -ENOMEM;
        }
    } else {
        call = ucs_list_extract_head(&server->spare, nf_call_t, list);
    }

    *call        = *what;
    call->on_end = nf_call_to_tell;
    call->cb     = cb;
    call->arg    = arg;
    if (call->iov == &what->one) {
        call->iov = &call->one;
    }
    ++server->num_calls;
    nf_call_begin(call);
    (void)nf_server_go_on(server);
    return 0;
}
