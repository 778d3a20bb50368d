/* SPDX-License-Identifier: BSD-3-Clause */
/* What the UCP failure programs share: children, workers, bounded waits. */
#include "fail_ucp.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int fu_wait_seconds = 25;

void fu_fail(const char *fmt, ...)
{
    char    text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(stderr, "failed (process %d): %s\n", (int)getpid(), text);
    fflush(stderr);
    _exit(1);
}

int fu_fork(fu_peer_t *peer)
{
    int fds[2];

    memset(peer, 0, sizeof(*peer));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        fu_fail("socketpair: %s", strerror(errno));
    }

    fflush(NULL);
    peer->pid = fork();
    if (peer->pid < 0) {
        fu_fail("fork: %s", strerror(errno));
    }

    if (peer->pid == 0) {
        /* The parent's end, however it comes, is the child's end too. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        peer->oob = fds[1];
        return 0;
    }

    close(fds[1]);
    peer->oob = fds[0];
    return 1;
}

ucs_status_t fu_node_open(fu_node_t *node)
{
    ucp_params_t        params        = {0};
    ucp_worker_params_t worker_params = {0};
    ucp_config_t        *config;
    ucs_status_t        status;

    status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) {
        return status;
    }

    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_TAG | UCP_FEATURE_RMA |
                        UCP_FEATURE_AMO64 | UCP_FEATURE_AM;
    status            = ucp_init(&params, config, &node->context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        return status;
    }

    worker_params.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
    status = ucp_worker_create(node->context, &worker_params, &node->worker);
    if (status != UCS_OK) {
        ucp_cleanup(node->context);
    }
    return status;
}

void fu_node_close(fu_node_t *node)
{
    ucp_worker_destroy(node->worker);
    ucp_cleanup(node->context);
}

void fu_oob_send(fu_peer_t *peer, const void *data, size_t size)
{
    const char *pos = data;
    ssize_t    ret;

    while (size > 0) {
        ret = send(peer->oob, pos, size, MSG_NOSIGNAL);
        if (ret <= 0) {
            fu_fail("the peer's socket: %s", strerror(errno));
        }
        pos  += ret;
        size -= ret;
    }
}

void fu_oob_recv(fu_peer_t *peer, void *data, size_t size)
{
    char    *pos = data;
    ssize_t ret;

    while (size > 0) {
        ret = recv(peer->oob, pos, size, 0);
        if (ret <= 0) {
            fu_fail("the peer is gone before it answered");
        }
        pos  += ret;
        size -= ret;
    }
}

int fu_error_is_fatal;

static void fu_on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    fu_peer_t *peer = arg;

    if (fu_error_is_fatal) {
        fu_fail("the endpoint has failed: %s", ucs_status_string(status));
    }

    (void)ep;
    peer->failure = status;
}

ucs_status_t fu_connect(fu_node_t *node, fu_peer_t *peer,
                        ucp_err_handling_mode_t err_mode)
{
    ucp_ep_params_t params = {0};
    ucp_address_t   *address;
    char            remote[4096];
    size_t          length;
    ucs_status_t    status;

    status = ucp_worker_get_address(node->worker, &address, &length);
    if (status != UCS_OK) {
        return status;
    }
    fu_oob_send(peer, &length, sizeof(length));
    fu_oob_send(peer, address, length);
    ucp_worker_release_address(node->worker, address);

    fu_oob_recv(peer, &length, sizeof(length));
    if (length > sizeof(remote)) {
        fu_fail("a worker address of %zu bytes", length);
    }
    fu_oob_recv(peer, remote, length);

    peer->node             = node;
    params.field_mask      = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                             UCP_EP_PARAM_FIELD_ERR_HANDLER |
                             UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address         = (ucp_address_t*)remote;
    params.err_mode        = err_mode;
    params.err_handler.cb  = fu_on_error;
    params.err_handler.arg = peer;
    return ucp_ep_create(node->worker, &params, &peer->ep);
}

double fu_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + (ts.tv_nsec * 1e-9);
}

ucs_status_t fu_wait(fu_node_t *node, ucs_status_ptr_t req, const char *what)
{
    double       end = fu_now() + fu_wait_seconds;
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(req)) {
        return UCS_PTR_STATUS(req);
    }

    for (;;) {
        status = ucp_request_check_status(req);
        if (status != UCS_INPROGRESS) {
            break;
        }
        if (ucp_worker_progress(node->worker) == 0 && (fu_now() > end)) {
            fu_fail("%s: still not done after %d s", what, fu_wait_seconds);
        }
    }
    ucp_request_free(req);
    return status;
}

void fu_wait_failure(fu_peer_t *peer)
{
    double end = fu_now() + fu_wait_seconds;

    while (peer->failure == UCS_OK) {
        ucp_worker_progress(peer->node->worker);
        if (fu_now() > end) {
            fu_fail("the peer is dead, but no error handler was called in "
                    "%d s", fu_wait_seconds);
        }
    }
}

void fu_disconnect(fu_peer_t *peer)
{
    ucp_request_param_t param = {0};

    if (peer->failure != UCS_OK) {
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags        = UCP_EP_CLOSE_FLAG_FORCE;
    }
    fu_wait(peer->node, ucp_ep_close_nbx(peer->ep, &param), "ep close");
}

ucs_status_ptr_t fu_send(fu_peer_t *peer, const void *data, size_t size,
                         ucp_tag_t tag)
{
    ucp_request_param_t param = {0};

    return ucp_tag_send_nbx(peer->ep, data, size, tag, &param);
}

ucs_status_ptr_t fu_recv(fu_node_t *node, void *data, size_t size,
                         ucp_tag_t tag)
{
    ucp_request_param_t param = {0};

    return ucp_tag_recv_nbx(node->worker, data, size, tag, ~0ul, &param);
}

static inline uint8_t fu_byte(size_t index, uint32_t seed)
{
    uint32_t value = ((uint32_t)index + seed * 7919) * 0x9e3779b1u;

    return (value ^ (value >> 15)) >> 16;
}

void fu_fill(void *data, size_t size, uint32_t seed)
{
    uint8_t *bytes = data;
    size_t  i;

    for (i = 0; i < size; ++i) {
        bytes[i] = fu_byte(i, seed);
    }
}

void fu_check(const char *what, const void *data, size_t size, uint32_t seed)
{
    const uint8_t *bytes = data;
    size_t        i;

    for (i = 0; i < size; ++i) {
        if (bytes[i] != fu_byte(i, seed)) {
            fu_fail("%s: byte %zu of %zu is 0x%02x, 0x%02x wanted", what, i,
                    size, bytes[i], fu_byte(i, seed));
        }
    }
}

void fu_reap(fu_peer_t *peer)
{
    int status;

    if (waitpid(peer->pid, &status, 0) != peer->pid) {
        fu_fail("waitpid: %s", strerror(errno));
    }
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0)) {
        fu_fail("child %d ended with status 0x%x", (int)peer->pid, status);
    }
}
