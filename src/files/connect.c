/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A client's connection.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "connect.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A client looks again for so long before it sleeps, ns */
#define NF_SPIN        50000

/* It looks so often whether the server is there while it sleeps, ms */
#define NF_LOOK        1000

/* A server that dies fails what is under way, and its socket ends: so far
 * apart, ms */
#define NF_DEATH       200

/* Until a server that is away is tried again, us */
#define NF_TRY_PAUSE   100000

/* UCX has so long to give up what was under way, ns */
#define NF_DOWN_LIMIT  UINT64_C(5000000000)

/* A server that was silent for so long may be gone, ns */
#define NF_SILENCE     10000000

/* Connections that may end one after the other with nothing answered */
#define NF_RESETS      3


static void nf_server_on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    ((nf_server_t*)arg)->is_broken = 1;
}

/* The server sends nothing over its socket: what can be read is its end.
 * @a patience: ms */
static int nf_server_is_gone(nf_server_t *server, int patience)
{
    struct pollfd look = {.fd = server->fd, .events = POLLIN | POLLRDHUP};

    if (!server->is_broken && (poll(&look, 1, patience) != 0)) {
        server->is_broken = 1;
    }
    return server->is_broken;
}

int nf_server_judge(nf_server_t *server, int ret)
{
    return ((ret != 0) && (ret != -EFAULT) &&
            nf_server_is_gone(server, NF_DEATH)) ? -ECONNRESET : ret;
}

/* Progress until it is so, or the server is gone. Returns 0 or -ECONNRESET. */
static int nf_server_wait(nf_server_t *server,
                          int (*is_so)(nf_server_t *server, void *arg),
                          void *arg)
{
    uint64_t idle_since = nf_now();

    while (!is_so(server, arg)) {
        if (ucp_worker_progress(server->worker.worker) > 0) {
            idle_since = nf_now();
        } else if ((nf_now() - idle_since) > NF_SPIN) {
            if (nf_server_is_gone(server, 0)) {
                return -ECONNRESET;
            }
            nf_worker_sleep(&server->worker, server->fd, NF_LOOK);
        }
    }
    return 0;
}

/* What is under way ends, with an error */
static void nf_server_down(nf_server_t *server)
{
    const uint64_t end        = nf_now() + NF_DOWN_LIMIT;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags        = server->is_broken ? UCP_EP_CLOSE_FLAG_FORCE : 0
    };
    ucs_status_ptr_t request;

    if (server->ep != NULL) {
        request = ucp_ep_close_nbx(server->ep, &param);
        if (UCS_PTR_IS_ERR(request)) {
            param.flags = 0; /* without error handling there is no force */
            request     = ucp_ep_close_nbx(server->ep, &param);
        }
        if (UCS_PTR_IS_PTR(request)) {
            while ((ucp_request_check_status(request) == UCS_INPROGRESS) &&
                   (nf_now() < end)) {
                ucp_worker_progress(server->worker.worker);
            }
            ucp_request_free(request);
        }
        server->ep = NULL;
    }
    if (server->fd >= 0) {
        close(server->fd);
        server->fd = -1;
    }
    server->is_broken = 1;
}

static int nf_request_is_done(nf_server_t *server, void *request)
{
    return ucp_request_check_status(request) != UCS_INPROGRESS;
}

int nf_server_finish(nf_server_t *server, ucs_status_ptr_t request)
{
    uint64_t end;
    int ret;

    if (!UCS_PTR_IS_PTR(request)) {
        return nf_errno(UCS_PTR_STATUS(request));
    }

    ret = nf_server_wait(server, nf_request_is_done, request);
    if (ret == 0) {
        ret = nf_errno(ucp_request_check_status(request));
    } else {
        /* its memory is the caller's again only when UCX has let it go */
        nf_server_down(server);
        for (end = nf_now() + NF_DOWN_LIMIT;
             !nf_request_is_done(server, request) && (nf_now() < end);) {
            ucp_worker_progress(server->worker.worker);
        }
        if (!nf_request_is_done(server, request)) {
            nf_die("the server is gone, and UCX does not give up what it had "
                   "to do with it");
        }
    }
    ucp_request_free(request);
    return ret;
}

static ucs_status_t nf_server_on_reply(void *arg, const void *header,
                                       size_t header_len, void *data,
                                       size_t len,
                                       const ucp_am_recv_param_t *param)
{
    nf_server_t *server = arg;

    if ((header_len != sizeof(server->reply)) || (len > sizeof(server->data)) ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        nf_say("the server has sent what is no answer");
        server->is_broken = 1;
        return UCS_OK;
    }

    if (((const nf_reply_t*)header)->seq != server->seq) {
        return UCS_OK; /* to what we do not wait for any more */
    }

    memcpy(&server->reply, header, sizeof(server->reply));
    memcpy(server->data, data, len);
    server->data_len    = len;
    server->is_answered = 1;
    return UCS_OK;
}

static int nf_server_has_answer(nf_server_t *server, void *arg)
{
    return server->is_answered;
}

int nf_server_ask(nf_server_t *server, nf_request_t *request, const void *rest,
                  size_t len)
{
    const ucp_request_param_t param = {
        .op_attr_mask = (request->op == NF_OP_APPEND) ? 0 :
                        UCP_OP_ATTR_FIELD_FLAGS,
        .flags        = UCP_AM_SEND_FLAG_EAGER /* data alone may come later */
    };
    int ret;

    if (server->is_broken) {
        return -ECONNRESET;
    }

    request->session    = server->session;
    request->secret     = server->secret;
    request->seq        = ++server->seq;
    server->is_answered = 0;
    ret = nf_server_finish(server, ucp_am_send_nbx(server->ep, NF_AM_REQUEST,
                                                   request, sizeof(*request),
                                                   rest, len, &param));
    if (ret == 0) {
        ret = nf_server_wait(server, nf_server_has_answer, NULL);
    }
    if (ret != 0) {
        return nf_server_judge(server, ret);
    }

    server->resets = 0;
    server->used   = nf_now();
    /* what it says is not what has become of the connection */
    return (server->reply.status == -ECONNRESET) ? -EIO : server->reply.status;
}

int nf_server_check(nf_server_t *server)
{
    return ((nf_now() - server->used) < NF_SILENCE) ?
           (server->is_broken ? -ECONNRESET : 0) :
           (nf_server_is_gone(server, 0) ? -ECONNRESET : 0);
}

/* connect() waits no longer than this */
static void nf_dial_limit(int fd)
{
    const struct timeval limit = {.tv_sec = NF_CONNECT_LIMIT};

    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static int nf_dial_here(const nf_where_t *where)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct ucred cred       = {.uid = -1};
    socklen_t len           = sizeof(cred);
    char path[PATH_MAX];
    int fd, ret;

    if (where->socket != NULL) {
        snprintf(path, sizeof(path), "%s", where->socket);
    } else if (!nf_default_socket(path, sizeof(path))) {
        path[0] = '\0';
    }
    if (strlen(path) >= sizeof(addr.sun_path)) {
        return -ENAMETOOLONG;
    }

    strcpy(addr.sun_path, path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    nf_dial_limit(fd);
    if (connect(fd, (struct sockaddr*)&addr, sizeof(addr)) != 0) {
        ret = -errno;
        close(fd);
        return ret;
    }

    /* anybody may have made a socket in /tmp */
    if ((getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0) ||
        (cred.uid != geteuid())) {
        close(fd);
        return -EACCES;
    }
    return fd;
}

static int nf_dial_host(const nf_where_t *where)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found, *one;
    char port[16];
    int fd = -1, ret = -EHOSTUNREACH;

    snprintf(port, sizeof(port), "%d", NF_PORT);
    if (getaddrinfo(where->host, (where->port != NULL) ? where->port : port,
                    &hints, &found) != 0) {
        return -ENXIO;
    }

    for (one = found; (one != NULL) && (fd < 0); one = one->ai_next) {
        fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0) {
            nf_dial_limit(fd);
            nf_keep_alive(fd);
        }
        if ((fd >= 0) && (connect(fd, one->ai_addr, one->ai_addrlen) != 0)) {
            ret = -errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return (fd < 0) ? ret : fd;
}

/* Returns bytes of the token, or a negative errno: a line says why */
static int nf_server_get_token(const nf_where_t *where,
                               uint8_t token[NF_TOKEN_BYTES])
{
    char path[PATH_MAX] = "";
    int ret;

    if (where->host == NULL) {
        return 0; /* the kernel says who we are */
    }

    if (where->token != NULL) {
        snprintf(path, sizeof(path), "%s", where->token);
    } else if (!nf_default_token(path, sizeof(path))) {
        path[0] = '\0';
    }
    ret = nf_token_read(path, token);
    if (ret != 0) {
        nf_say("no token from '%s': %s. Copy the server's to there, or name a "
               "file with --token", path,
               (ret == -EPERM) ? "it must be yours, and nobody else may read "
                                 "it (chmod 600)" :
               (ret == -EINVAL) ? "there is no token in it" : strerror(-ret));
        return -ENOKEY; /* that was said */
    }
    return NF_TOKEN_BYTES;
}

/* Who we are; what the server says. Returns 0 or a negative errno. */
static int nf_server_greet(nf_server_t *server, void **address)
{
    uint8_t token[NF_TOKEN_BYTES];
    int auth_len = nf_server_get_token(server->where, token), ret;
    nf_welcome_t welcome;
    nf_hello_t hello;

    if (auth_len < 0) {
        return auth_len;
    }

    hello = (nf_hello_t){
        .magic       = NF_MAGIC,
        .version     = NF_VERSION,
        .auth        = (auth_len > 0) ? NF_AUTH_TOKEN : NF_AUTH_PEER,
        .auth_len    = auth_len,
        .address_len = server->worker.address_len
    };
    ret = nf_send(server->fd, &hello, sizeof(hello));
    ret = (ret != 0) ? ret : nf_send(server->fd, token, auth_len);
    ret = (ret != 0) ? ret : nf_send(server->fd, server->worker.address,
                                     server->worker.address_len);
    ret = (ret != 0) ? ret : nf_recv(server->fd, &welcome, sizeof(welcome));
    if (ret != 0) {
        return ret;
    }

    if ((welcome.magic != NF_MAGIC) || (welcome.version != NF_VERSION)) {
        return -EPROTONOSUPPORT;
    }

    if (welcome.status != 0) {
        return (welcome.status < 0) ? welcome.status : -EPROTO;
    }

    if ((welcome.address_len == 0) || (welcome.address_len > NF_ADDRESS_MAX)) {
        return -EPROTO;
    }

    server->session = welcome.session;
    server->secret  = welcome.secret;
    server->boot    = welcome.boot;
    *address        = calloc(1, NF_ADDRESS_ROOM);
    return (*address == NULL) ? -ENOMEM :
           nf_recv(server->fd, *address, welcome.address_len);
}

/* Returns 0 or a negative errno */
static int nf_server_up(nf_server_t *server)
{
    void *address = NULL;
    int ret;

    server->fd = (server->where->host == NULL) ? nf_dial_here(server->where) :
                 nf_dial_host(server->where);
    if (server->fd < 0) {
        ret        = server->fd;
        server->fd = -1;
        return ret;
    }

    server->is_broken = 0;
    ret = nf_server_greet(server, &address);
    if (ret == 0) {
        ret = nf_endpoint_create(&server->worker, address, nf_server_on_error,
                                 server, &server->ep);
    }
    free(address);
    if (ret != 0) {
        nf_server_down(server);
        return ret;
    }

    ++server->epoch;
    return 0;
}

/* What to say of an error that a connection ends with */
static const char *nf_server_why(const nf_where_t *where, int error)
{
    switch (-error) {
    case ENOENT:
    case ECONNREFUSED:
        return (where->host == NULL) ?
               "no server runs here: start one with 'nprdma-filed DIRECTORY', "
               "or name its host" :
               "no server listens there: start it with 'nprdma-filed --listen "
               "PORT DIRECTORY', and name its port";
    case EACCES:
        return (where->host == NULL) ?
               "it is another user's" :
               "it has another token: copy its ~/.config/nprdma/token";
    case EPROTONOSUPPORT:
        return "it has another version: install one of them again";
    case EUSERS:
        return "it has as many clients as it may have (--clients)";
    case ENXIO:
        return "no such host is known";
    case EHOSTUNREACH:
        return "there is no way for nprdma to it: between hosts it needs RDMA "
               "devices, on one host the same user";
    default:
        return strerror(-error);
    }
}

static void nf_server_say_why(const nf_where_t *where, int error)
{
    if (error == -ENOKEY) {
        return;
    }

    nf_say("no connection to %s%s: %s",
           (where->host != NULL) ? "the server on " : "a server of this host",
           (where->host != NULL) ? where->host : "",
           nf_server_why(where, error));
}

int nf_server_is_again(nf_server_t *server, int ret)
{
    const uint64_t end = nf_now() +
                         (server->where->patience * UINT64_C(1000000000));
    int said           = 0, error;

    if ((ret != -ECONNRESET) || (server->where->patience == 0)) {
        return 0;
    }

    if (++server->resets > NF_RESETS) {
        nf_say("the server lets us in, but each request ends the connection: "
               "is there a way for nprdma between the hosts? Try nprdma_info "
               "on both");
        return 0;
    }

    nf_server_down(server);
    while ((error = nf_server_up(server)) != 0) {
        if ((error == -EACCES) || (error == -EPROTONOSUPPORT) ||
            (error == -ENOKEY) ||
            (nf_now() > end)) {
            nf_server_say_why(server->where, error);
            return 0;
        }
        if (!said) {
            nf_say("the server is gone; waiting for it, up to %u s",
                   server->where->patience);
            said = 1;
        }
        usleep(NF_TRY_PAUSE);
    }
    return 1;
}

/* Returns 0 or a negative errno; a line says why */
static int nf_server_start(nf_server_t *server)
{
    int ret = nf_context_create(&server->context);

    if (ret != 0) {
        return ret;
    }

    ret = nf_worker_create(server->context, &server->worker);
    if (ret != 0) {
        goto out_cleanup;
    }

    ret = nf_worker_listen(&server->worker, NF_AM_REPLY, nf_server_on_reply,
                           server);
    if (ret != 0) {
        goto out_destroy;
    }

    ret = nf_server_up(server);
    if (ret == 0) {
        return 0;
    }

    nf_server_say_why(server->where, ret);
out_destroy:
    nf_worker_destroy(&server->worker);
out_cleanup:
    ucp_cleanup(server->context);
    return ret;
}

int nf_connect(const nf_where_t *where, nf_server_t **server_p)
{
    nf_server_t *server = calloc(1, sizeof(*server));
    int ret;

    if (server == NULL) {
        return -ENOMEM;
    }

    server->where = where;
    server->fd    = -1;
    ret           = nf_server_start(server);
    if (ret != 0) {
        free(server);
        return ret;
    }

    *server_p = server;
    return 0;
}

void nf_disconnect(nf_server_t *server)
{
    nf_server_down(server);
    nf_worker_destroy(&server->worker);
    ucp_cleanup(server->context);
    free(server);
}
