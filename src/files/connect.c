/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A client's connection.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "server.h"
#include "munge.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* UCX has so long to give up what was under way, ns */
#define NF_DOWN_LIMIT  UINT64_C(5000000000)


void nf_server_say(const nprdma_server_t *server, const char *format, ...)
{
    char line[PATH_MAX + 512];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (server->params.say != NULL) {
        server->params.say(server->params.say_arg, line);
    } else {
        fprintf(stderr, "nprdma: %s\n", line);
    }
}

static void nf_server_on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    ((nprdma_server_t*)arg)->is_broken = 1;
}

/* The server sends nothing over its socket: what can be read is its end */
int nf_server_is_gone(nprdma_server_t *server, int patience)
{
    struct pollfd look = {.fd = server->fd, .events = POLLIN | POLLRDHUP};

    if (!server->is_broken && (poll(&look, 1, patience) > 0)) {
        server->is_broken = 1;
    }
    return server->is_broken;
}

/* Progress until a request of no call is done, and calls have nothing in
 * UCX. Returns 0: the time is over. */
static int nf_server_drain(nprdma_server_t *server, ucs_status_ptr_t request)
{
    const uint64_t end = nf_now() + NF_DOWN_LIMIT;

    while ((UCS_PTR_IS_PTR(request) &&
            (ucp_request_check_status(request) == UCS_INPROGRESS)) ||
           (server->flying > 0)) {
        if ((ucp_worker_progress(server->worker.worker) == 0) &&
            (nf_now() > end)) {
            return 0;
        }
    }
    return 1;
}

/* Without error handling UCX may keep what was under way. Its worker does not
 * outlive that. */
static void nf_server_renew(nprdma_server_t *server)
{
    nf_call_t *call;

    nf_worker_destroy(&server->worker);
    server->flying = 0;
    ucs_list_for_each(call, &server->busy, list) {
        call->flying = 0;
    }
    ucs_list_for_each(call, &server->ready, list) {
        call->flying = 0;
    }
    (void)nf_server_worker(server); /* or with the next connection */
}

void nf_server_down(nprdma_server_t *server)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags        = server->is_broken ? UCP_EP_CLOSE_FLAG_FORCE : 0
    };
    ucs_status_ptr_t request = NULL;

    server->is_broken = 1;
    if (server->ep != NULL) {
        request = ucp_ep_close_nbx(server->ep, &param);
        if (UCS_PTR_IS_ERR(request)) {
            param.flags = 0; /* without error handling there is no force */
            request     = ucp_ep_close_nbx(server->ep, &param);
        }
        server->ep = NULL;
        if (!nf_server_drain(server, request)) {
            nf_server_renew(server);
        } else if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
    }
    if (server->fd >= 0) {
        close(server->fd);
        server->fd = -1;
    }
}

/* connect() waits no longer than this */
static void nf_dial_limit(int fd)
{
    const struct timeval limit = {.tv_sec = NF_CONNECT_LIMIT};

    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static int nf_dial_here(const nprdma_server_params_t *where)
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

static int nf_dial_host(const nprdma_server_params_t *where)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found, *one;
    char port[16];
    int fd = -1, ret = -ENXIO;

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
            ret = (errno == EHOSTUNREACH) ? -ENETUNREACH : -errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return (fd < 0) ? ret : fd;
}

/* What shows who we are. Returns 0 or a negative errno: a line says why. */
static int nf_server_get_proof(const nprdma_server_t *server, nf_proof_t *proof)
{
    const nprdma_server_params_t *where = &server->params;
    char path[PATH_MAX] = "", why[NF_WHY_MAX] = "";
    int ret             = -ENOENT;

    *proof = (nf_proof_t){.auth = NF_AUTH_PEER};
    if (where->host == NULL) {
        return 0; /* the kernel says who we are */
    }

    if (where->token != NULL) {
        snprintf(path, sizeof(path), "%s", where->token);
    } else if (!nf_default_token(path, sizeof(path))) {
        path[0] = '\0';
    }
    if (server->way != NF_WAY_MUNGE) {
        ret         = nf_token_read(path, proof->bytes);
        proof->auth = NF_AUTH_TOKEN;
        proof->len  = NF_TOKEN_BYTES;
    }
    if ((ret == -ENOENT) && (server->way != NF_WAY_TOKEN) &&
        (where->token == NULL) &&
        (nf_munge_encode(where->munge_socket, server->fd,
                         server->worker.address, server->worker.address_len,
                         proof, why) == 0)) {
        return 0;
    }

    if (server->way == NF_WAY_MUNGE) {
        nf_server_say(server, "no credential from MUNGE: %s", why);
        return -ENOKEY; /* that was said */
    }

    if (ret != 0) {
        nf_server_say(server, "no token from '%s': %s. Copy the server's to "
                      "there, or name another file%s%s", path,
                      (ret == -EPERM) ? "it must be yours, and nobody else may "
                                        "read it (chmod 600)" :
                      (ret == -EINVAL) ? "there is no token in it" :
                      strerror(-ret),
                      (why[0] != '\0') ? "; nor from MUNGE: " : "", why);
        return -ENOKEY;
    }
    return 0;
}

/* The server has refused us. Returns -ENOKEY: a line says why; or what its
 * status is. */
static int nf_server_refused(const nprdma_server_t *server, nf_auth_t auth,
                             const nf_welcome_t *welcome)
{
    char why[NF_WHY_MAX];

    if (!nf_way_refused(auth, welcome, why)) {
        return welcome->status;
    }

    nf_server_say(server, "no connection to the server on %s: %s",
                  server->params.host, why);
    return -ENOKEY;
}

/* Who we are; what the server says. Returns 0 or a negative errno. */
static int nf_server_greet(nprdma_server_t *server, void **address)
{
    nf_proof_t proof;
    int ret = nf_server_get_proof(server, &proof);
    nf_welcome_t welcome;
    nf_hello_t hello;

    if (ret != 0) {
        return ret;
    }

    hello = (nf_hello_t){
        .magic       = NF_MAGIC,
        .version     = NF_VERSION,
        .auth        = proof.auth,
        .auth_len    = proof.len,
        .address_len = server->worker.address_len
    };
    ret = nf_send(server->fd, &hello, sizeof(hello));
    ret = (ret != 0) ? ret : nf_send(server->fd, proof.bytes, proof.len);
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
        return (welcome.status > 0) ? -EPROTO :
               nf_server_refused(server, proof.auth, &welcome);
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

int nf_server_up(nprdma_server_t *server)
{
    void *address = NULL;
    int ret;

    if ((server->worker.worker == NULL) && (nf_server_worker(server) != 0)) {
        return -ENOMEM;
    }

    server->fd = (server->params.host == NULL) ? nf_dial_here(&server->params) :
                 nf_dial_host(&server->params);
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
    server->used = nf_now();
    return 0;
}

/* What to say of an error that a connection ends with */
static const char *nf_server_why(const nprdma_server_params_t *where, int error)
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
    case ENETUNREACH:
        return "no packet gets to that host: is it up, and is that its name?";
    case EHOSTUNREACH:
        return "there is no way for nprdma to it: between hosts it needs RDMA "
               "devices, on one host the same user";
    default:
        return strerror(-error);
    }
}

void nf_server_say_why(const nprdma_server_t *server, int error)
{
    const nprdma_server_params_t *where = &server->params;

    if (error != -ENOKEY) { /* that was said */
        nf_server_say(server, "no connection to %s%s: %s",
                      (where->host != NULL) ? "the server on " :
                      "a server of this host",
                      (where->host != NULL) ? where->host : "",
                      nf_server_why(where, error));
    }
}

int nf_server_is_final(int error)
{
    return (error == -EACCES) || (error == -EPROTONOSUPPORT) ||
           (error == -ENOKEY);
}

int nf_server_worker(nprdma_server_t *server)
{
    ucs_status_t status = nf_worker_create(server->context, &server->worker);

    if (status == UCS_OK) {
        status = nf_worker_listen(&server->worker, NF_AM_REPLY,
                                  nf_server_on_reply, server);
        if (status == UCS_OK) {
            return 0;
        }
        nf_worker_destroy(&server->worker);
    }

    nf_server_say(server, "UCX makes no worker: %s", ucs_status_string(status));
    return nf_errno(status);
}

/* UCX, for nprdma alone. Returns 0 or a negative errno; a line says why. */
static int nf_server_context(nprdma_server_t *server)
{
    ucs_status_t status = nf_context_create("nprdma", &server->context);

    if (status == UCS_OK) {
        return 0;
    }

    nf_server_say(server, "UCX has no nprdma here: %s. Start the program by "
                  "nprdma-run, and try nprdma_info", ucs_status_string(status));
    return (status == UCS_ERR_NO_DEVICE) ? -ENODEV : nf_errno(status);
}

/* Returns 0 or a negative errno; a line says why */
static int nf_server_start(nprdma_server_t *server)
{
    int ret = nf_server_context(server);

    if (ret != 0) {
        return ret;
    }

    ret = nf_server_worker(server);
    if (ret == 0) {
        ret = nf_server_up(server);
        if (ret == 0) {
            return 0;
        }
        nf_server_say_why(server, ret);
        nf_worker_destroy(&server->worker);
    }
    ucp_cleanup(server->context);
    return ret;
}

/* A copy of what the program says, or NULL. Returns 0: no memory. */
static int nf_params_copy(const char **text)
{
    if (*text != NULL) {
        *text = strdup(*text);
        return *text != NULL;
    }
    return 1;
}

static void nf_server_free(nprdma_server_t *server)
{
    nf_call_t *call;

    while (!ucs_list_is_empty(&server->spare)) {
        call = ucs_list_extract_head(&server->spare, nf_call_t, list);
        free(call);
    }
    free((char*)server->params.host);
    free((char*)server->params.port);
    free((char*)server->params.socket);
    free((char*)server->params.token);
    free((char*)server->params.munge_socket);
    free(server);
}

static nprdma_server_t *nf_server_make(const nprdma_server_params_t *params)
{
    nprdma_server_t *server = calloc(1, sizeof(*server));

    if (server == NULL) {
        return NULL;
    }

    server->params = *params;
    server->fd     = -1;
    ucs_list_head_init(&server->files);
    ucs_list_head_init(&server->busy);
    ucs_list_head_init(&server->ready);
    ucs_list_head_init(&server->unsent);
    ucs_list_head_init(&server->waiting);
    ucs_list_head_init(&server->ended);
    ucs_list_head_init(&server->spare);
    if (!(nf_params_copy(&server->params.host) &
          nf_params_copy(&server->params.port) &
          nf_params_copy(&server->params.socket) &
          nf_params_copy(&server->params.token) &
          nf_params_copy(&server->params.munge_socket))) {
        nf_server_free(server);
        return NULL;
    }

    return server;
}

/* What of it does not fit together; NULL: nothing */
static const char *nf_params_misfit(const nprdma_server_params_t *params,
                                    nf_way_t way)
{
    if (params->host == NULL) {
        return (params->port != NULL) ? "a port is of a host: name that too" :
               ((params->token != NULL) || (params->auth != NULL) ||
                (params->munge_socket != NULL)) ?
               "a token and MUNGE are for a host: name that too; on this one "
               "the kernel says who you are" : NULL;
    }

    return (params->socket != NULL) ? "a socket is of this host: name no host "
                                      "with it" :
           (((params->auth != NULL) && (strcmp(params->auth, "munge") == 0)) ||
            (params->munge_socket != NULL)) && !nf_munge_is_built() ?
           "this nprdma was built without MUNGE: use a token" :
           ((params->auth != NULL) && (way == NF_WAY_ANY)) ?
           "auth is neither 'token' nor 'munge'" :
           ((way == NF_WAY_MUNGE) && (params->token != NULL)) ?
           "a token is of no use with MUNGE: leave one of them out" :
           ((way == NF_WAY_TOKEN) && (params->munge_socket != NULL)) ?
           "a socket of munged is of no use with a token: leave one of them "
           "out" : NULL;
}

/* Returns 0, or -EINVAL: a line says why */
static int nf_server_check(nprdma_server_t *server)
{
    const char *auth = server->params.auth;
    const char *what;

    server->way = (auth == NULL) ? NF_WAY_ANY :
                  (strcmp(auth, "token") == 0) ? NF_WAY_TOKEN :
                  (strcmp(auth, "munge") == 0) ? NF_WAY_MUNGE : NF_WAY_ANY;
    what        = nf_params_misfit(&server->params, server->way);
    server->params.auth = NULL; /* it is the caller's */
    if (what == NULL) {
        return 0;
    }

    nf_server_say(server, "%s", what);
    return -EINVAL;
}

int nprdma_server_connect(const nprdma_server_params_t *params,
                          nprdma_server_t **server_p)
{
    static const nprdma_server_params_t defaults = {.size = sizeof(defaults)};
    nprdma_server_t *server;
    int ret;

    *server_p = NULL;
    params    = (params == NULL) ? &defaults : params;
    if (params->size != sizeof(*params)) {
        return -EINVAL; /* of another version */
    }

    server = nf_server_make(params);
    if (server == NULL) {
        return -ENOMEM;
    }

    ret = nf_server_check(server);
    ret = (ret != 0) ? ret : nf_server_start(server);
    if (ret != 0) {
        nf_server_free(server);
        return ret;
    }

    *server_p = server;
    return 0;
}

void nprdma_server_disconnect(nprdma_server_t *server)
{
    nprdma_remote_t *file;

    if (server == NULL) {
        return;
    }

    server->is_over = 1;
    nf_server_end_calls(server, -ECANCELED);
    nf_server_tell(server);
    ucs_list_for_each(file, &server->files, list) {
        nf_key_put(file->key);
        file->key    = NULL;
        file->server = NULL;
    }
    if (server->worker.worker != NULL) {
        nf_worker_destroy(&server->worker);
    }
    ucp_cleanup(server->context);
    nf_server_free(server);
}
