/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the server of files and its clients have in common.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Digits of a token, and the end of the line */
#define NF_TOKEN_LINE    ((2 * NF_TOKEN_BYTES) + 1)


int nf_default_socket(char *path, size_t size)
{
    const char *dir = getenv("XDG_RUNTIME_DIR");
    struct sockaddr_un addr;
    int len;

    len = (dir != NULL) && (dir[0] == '/') ?
          snprintf(path, size, "%s/nprdma-filed.sock", dir) :
          snprintf(path, size, "/tmp/nprdma-filed-%u.sock", geteuid());
    return (size_t)len < nf_min(size, sizeof(addr.sun_path));
}

int nf_default_token(char *path, size_t size)
{
    const char *home = getenv("HOME");

    return (home != NULL) &&
           ((size_t)snprintf(path, size, "%s/.config/nprdma/token", home) <
            size);
}

static int nf_token_parse(const char *line, uint8_t token[NF_TOKEN_BYTES])
{
    unsigned i, byte;

    for (i = 0; i < NF_TOKEN_BYTES; ++i) {
        if ((strspn(line + (2 * i), "0123456789abcdef") < 2) ||
            (sscanf(line + (2 * i), "%2x", &byte) != 1)) {
            return -EINVAL;
        }
        token[i] = byte;
    }
    return (line[2 * i] == '\n') ? 0 : -EINVAL;
}

int nf_token_read(const char *path, uint8_t token[NF_TOKEN_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), ret;
    char line[NF_TOKEN_LINE + 1] = "";
    struct stat st;

    if (fd < 0) {
        return -errno;
    }

    if (fstat(fd, &st) != 0) {
        ret = -errno;
    } else if ((st.st_uid != geteuid()) || ((st.st_mode & 077) != 0)) {
        ret = -EPERM;
    } else if (read(fd, line, NF_TOKEN_LINE) < 0) {
        ret = -errno;
    } else {
        ret = nf_token_parse(line, token);
    }
    close(fd);
    return ret;
}

/* The directories that a file is to be in */
static void nf_make_directories(const char *path)
{
    char part[PATH_MAX], *slash = part;

    snprintf(part, sizeof(part), "%s", path);
    while ((slash = strchr(slash + 1, '/')) != NULL) {
        *slash = '\0';
        (void)mkdir(part, 0700); /* what fails is seen by the open */
        *slash = '/';
    }
}

int nf_token_make(const char *path, uint8_t token[NF_TOKEN_BYTES])
{
    char line[NF_TOKEN_LINE + 1];
    unsigned i;
    int fd, ret;

    if (getrandom(token, NF_TOKEN_BYTES, 0) != NF_TOKEN_BYTES) {
        return -errno;
    }

    for (i = 0; i < NF_TOKEN_BYTES; ++i) {
        sprintf(line + (2 * i), "%02x", token[i]);
    }
    line[2 * i] = '\n';

    nf_make_directories(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -errno;
    }

    ret = (write(fd, line, NF_TOKEN_LINE) == NF_TOKEN_LINE) ? 0 : -EIO;
    if (close(fd) != 0) {
        ret = -errno;
    }
    return ret;
}

static int nf_wait_fd(int fd, short events, uint64_t end)
{
    struct pollfd wait = {.fd = fd, .events = events};
    const uint64_t now = nf_now();

    return (now < end) && (poll(&wait, 1, ((end - now) / 1000000) + 1) >= 0);
}

/* @a to_peer: send, else receive */
static int nf_transfer(int fd, void *data, size_t len, int to_peer)
{
    const uint64_t end = nf_now() + (NF_CONNECT_LIMIT * UINT64_C(1000000000));
    size_t done        = 0;
    ssize_t ret;

    while (done < len) {
        ret = to_peer ?
              send(fd, (char*)data + done, len - done,
                   MSG_NOSIGNAL | MSG_DONTWAIT) :
              recv(fd, (char*)data + done, len - done, MSG_DONTWAIT);
        if (ret > 0) {
            done += ret;
        } else if ((ret == 0) && !to_peer) {
            return -ECONNRESET;
        } else if ((errno != EAGAIN) && (errno != EINTR)) {
            return -errno;
        } else if (!nf_wait_fd(fd, to_peer ? POLLOUT : POLLIN, end)) {
            return -ETIMEDOUT;
        }
    }
    return 0;
}

int nf_send(int fd, const void *data, size_t len)
{
    return nf_transfer(fd, (void*)data, len, 1);
}

int nf_recv(int fd, void *data, size_t len)
{
    return nf_transfer(fd, data, len, 0);
}

void nf_keep_alive(int fd)
{
    const int on = 1, idle = 5, interval = 5, count = 3;

    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval,
                     sizeof(interval));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

int nf_errno(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return 0;
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
        return -ENOMEM;
    case UCS_ERR_INVALID_PARAM:
        return -EINVAL;
    case UCS_ERR_INVALID_ADDR:
        return -EFAULT;
    case UCS_ERR_UNREACHABLE:
        return -EHOSTUNREACH;
    case UCS_ERR_CANCELED:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_TIMED_OUT:
        return -ECONNRESET;
    default:
        return -EIO;
    }
}

ucs_status_t nf_context_create(const char *tls, ucp_context_h *context)
{
    ucp_params_t params = {
        .field_mask        = UCP_PARAM_FIELD_FEATURES |
                             UCP_PARAM_FIELD_MT_WORKERS_SHARED,
        .features          = UCP_FEATURE_RMA | UCP_FEATURE_AM |
                             UCP_FEATURE_WAKEUP,
        .mt_workers_shared = 1
    };
    ucp_config_t *config;
    ucs_status_t status;

    status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) {
        return status;
    }

    if (tls != NULL) {
        status = ucp_config_modify(config, "TLS", tls);
    }
    if (status == UCS_OK) {
        status = ucp_init(&params, config, context);
    }
    ucp_config_release(config);
    return status;
}

ucs_status_t nf_worker_create(ucp_context_h context, nf_worker_t *worker)
{
    ucp_worker_params_t params = {
        .field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED
    };
    ucs_status_t status;

    status = ucp_worker_create(context, &params, &worker->worker);
    if (status != UCS_OK) {
        worker->worker = NULL;
        return status;
    }

    status = ucp_worker_get_efd(worker->worker, &worker->event_fd);
    if (status == UCS_OK) {
        status = ucp_worker_get_address(worker->worker, &worker->address,
                                        &worker->address_len);
    }
    if (status != UCS_OK) {
        ucp_worker_destroy(worker->worker);
        worker->worker = NULL;
    }
    return status;
}

ucs_status_t nf_worker_listen(nf_worker_t *worker, unsigned id,
                              ucp_am_recv_callback_t cb, void *arg)
{
    ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                      UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id         = id,
        .flags      = UCP_AM_FLAG_WHOLE_MSG,
        .cb         = cb,
        .arg        = arg
    };

    return ucp_worker_set_am_recv_handler(worker->worker, &param);
}

void nf_worker_destroy(nf_worker_t *worker)
{
    ucp_worker_release_address(worker->worker, worker->address);
    ucp_worker_destroy(worker->worker);
    worker->worker = NULL;
}

/* UCX 1.16 to 1.18 have no one-sided gets for endpoints with error handling:
 * they ask the owner's UCP, which knows nothing of offsets. Later ones have
 * with exact scope. The others tell of errors too. */
static ucp_err_handling_mode_t nf_error_mode(void)
{
    const char *scope  = getenv("UCX_NPRDMA_MR_SCOPE");
    const int is_exact = (scope != NULL) && (strcmp(scope, "exact") == 0);
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    return (minor < 16) || ((minor > 18) && is_exact) ?
           UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
}

int nf_endpoint_is_kept(void)
{
    return nf_error_mode() == UCP_ERR_HANDLING_MODE_NONE;
}

int nf_endpoint_create(nf_worker_t *worker, const ucp_address_t *address,
                       ucp_err_handler_cb_t on_error, void *arg, ucp_ep_h *ep)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                       UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = address,
        .err_mode    = nf_error_mode()
    };

    params.err_handler.cb  = on_error;
    params.err_handler.arg = arg;
    return nf_errno(ucp_ep_create(worker->worker, &params, ep));
}

void nf_worker_sleep(nf_worker_t *worker, int fd, int timeout)
{
    struct pollfd wait[] = {
        {.fd = worker->event_fd, .events = POLLIN},
        {.fd = fd, .events = POLLIN},
    };

    if (ucp_worker_arm(worker->worker) == UCS_OK) {
        (void)poll(wait, 2, timeout);
    }
}
