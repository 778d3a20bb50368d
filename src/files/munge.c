/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Credentials of MUNGE.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "munge.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef HAVE_MUNGE
#  include <munge.h>
#endif

#define NF_PURPOSE_NAME  "nprdma-filed 1"

/* A credential is good for so long, and clocks may differ by as much, s */
#define NF_MUNGE_TTL     60


int nf_munge_is_built(void)
{
#ifdef HAVE_MUNGE
    return 1;
#else
    return 0;
#endif
}

/* Addresses that each host has are told apart by the host's own number */
static void nf_munge_boot(char *boot, size_t size)
{
    int fd      = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t len = (fd < 0) ? -1 : read(fd, boot, size - 1);

    boot[(len < 0) ? 0 : len] = '\0';
    if (fd >= 0) {
        close(fd);
    }
}

ssize_t nf_munge_purpose(int fd, int is_client, const void *address,
                         size_t address_len, void *payload)
{
    static const uint8_t mapped[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255};
    nf_purpose_t purpose          = {.name = NF_PURPOSE_NAME};
    struct sockaddr_storage addr  = {.ss_family = AF_UNSPEC};
    const struct sockaddr_in *v4  = (void*)&addr;
    const struct sockaddr_in6 *v6 = (void*)&addr;
    socklen_t len                 = sizeof(addr);
    int is_any_hosts              = 0;

    if ((is_client ? getpeername(fd, (struct sockaddr*)&addr, &len) :
                     getsockname(fd, (struct sockaddr*)&addr, &len)) != 0) {
        return -errno;
    }

    if (address_len > NF_ADDRESS_MAX) {
        return -E2BIG;
    }

    switch (addr.ss_family) {
    case AF_INET:
        memcpy(purpose.host, mapped, sizeof(mapped));
        memcpy(purpose.host + sizeof(mapped), &v4->sin_addr, 4);
        purpose.port = v4->sin_port;
        is_any_hosts = purpose.host[sizeof(mapped)] == IN_LOOPBACKNET;
        break;
    case AF_INET6:
        memcpy(purpose.host, &v6->sin6_addr, sizeof(purpose.host));
        purpose.port = v6->sin6_port;
        is_any_hosts = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
        break;
    default:
        return -EAFNOSUPPORT;
    }

    if (is_any_hosts) {
        nf_munge_boot(purpose.boot, sizeof(purpose.boot));
    }
    memcpy(payload, &purpose, sizeof(purpose));
    memcpy((char*)payload + sizeof(purpose), address, address_len);
    return sizeof(purpose) + address_len;
}

#ifdef HAVE_MUNGE
/* NULL: no memory */
static munge_ctx_t nf_munge_open(const char *socket)
{
    munge_ctx_t ctx = munge_ctx_create();

    if ((ctx != NULL) && (socket != NULL) &&
        (munge_ctx_set(ctx, MUNGE_OPT_SOCKET, socket) != EMUNGE_SUCCESS)) {
        munge_ctx_destroy(ctx);
        ctx = NULL;
    }
    return ctx;
}

/* A credential that our user alone can have opened; NULL: there is none */
static char *nf_munge_make(const char *socket, const void *payload, size_t len,
                           char why[NF_WHY_MAX])
{
    munge_ctx_t ctx  = nf_munge_open(socket);
    char *credential = NULL;
    munge_err_t error;

    if (ctx == NULL) {
        snprintf(why, NF_WHY_MAX, "%s", strerror(ENOMEM));
        return NULL;
    }

    error = munge_ctx_set(ctx, MUNGE_OPT_TTL, NF_MUNGE_TTL);
    if (error == EMUNGE_SUCCESS) {
        error = munge_ctx_set(ctx, MUNGE_OPT_UID_RESTRICTION, geteuid());
    }
    if (error == EMUNGE_SUCCESS) {
        error = munge_encode(&credential, ctx, payload, len);
    }
    if (error != EMUNGE_SUCCESS) {
        snprintf(why, NF_WHY_MAX, "%s", (munge_ctx_strerror(ctx) != NULL) ?
                 munge_ctx_strerror(ctx) : munge_strerror(error));
    }
    munge_ctx_destroy(ctx);
    return credential;
}

int nf_munge_encode(const char *socket, int fd, const void *address,
                    size_t address_len, nf_proof_t *proof,
                    char why[NF_WHY_MAX])
{
    char *payload    = malloc(NF_PURPOSE_MAX);
    ssize_t len      = (payload == NULL) ? -ENOMEM :
                       nf_munge_purpose(fd, 1, address, address_len, payload);
    char *credential = NULL;
    int ret          = 0;

    if (len < 0) {
        snprintf(why, NF_WHY_MAX, "%s", strerror(-len));
        ret = len;
        goto out;
    }

    credential = nf_munge_make(socket, payload, len, why);
    if (credential == NULL) {
        ret = -ENOTCONN;
        goto out;
    }

    proof->auth = NF_AUTH_MUNGE;
    proof->len  = strlen(credential);
    if (proof->len > NF_AUTH_MAX) {
        snprintf(why, NF_WHY_MAX, "UCX's address of this process is too long "
                 "for it (%zu bytes): use a token", address_len);
        ret = -E2BIG;
        goto out;
    }

    memcpy(proof->bytes, credential, proof->len);
out:
    free(credential);
    free(payload);
    return ret;
}

int nf_munge_probe(const char *socket, char why[NF_WHY_MAX])
{
    char *credential = nf_munge_make(socket, NULL, 0, why);

    free(credential);
    return (credential == NULL) ? -ENOTCONN : 0;
}

/* What the client hears: see nf_way_refusals */
static int nf_munge_errno(munge_err_t error)
{
    switch (error) {
    case EMUNGE_SUCCESS:
        return 0;
    case EMUNGE_NO_MEMORY:
        return -ENOMEM;
    case EMUNGE_SNAFU:
    case EMUNGE_SOCKET:
    case EMUNGE_TIMEOUT:
        return -ENOTCONN;
    case EMUNGE_CRED_INVALID:
        return -EKEYREJECTED;
    case EMUNGE_CRED_EXPIRED:
        return -EKEYEXPIRED;
    case EMUNGE_CRED_REWOUND:
        return -ETIME;
    case EMUNGE_CRED_REPLAYED:
        return -EKEYREVOKED;
    case EMUNGE_CRED_UNAUTHORIZED:
        return -EACCES;
    default:
        return -EBADMSG;
    }
}

int nf_munge_decode(const char *socket, const char *credential,
                    const void *payload, size_t len)
{
    munge_ctx_t ctx = nf_munge_open(socket);
    void *found     = NULL;
    int found_len   = 0;
    uid_t uid       = -1;
    int ret;

    if (ctx == NULL) {
        return -ENOMEM;
    }

    ret = nf_munge_errno(munge_decode(credential, ctx, &found, &found_len, &uid,
                                      NULL));
    if ((ret == 0) && (uid != geteuid())) {
        ret = -EACCES;
    }
    if ((ret == 0) && ((found_len < 0) || ((size_t)found_len != len) ||
                       (memcmp(found, payload, len) != 0))) {
        ret = -EBADE;
    }
    free(found);
    munge_ctx_destroy(ctx);
    return ret;
}
#else
int nf_munge_encode(const char *socket, int fd, const void *address,
                    size_t address_len, nf_proof_t *proof,
                    char why[NF_WHY_MAX])
{
    snprintf(why, NF_WHY_MAX, "this nprdma was built without it");
    return -EOPNOTSUPP;
}

int nf_munge_probe(const char *socket, char why[NF_WHY_MAX])
{
    snprintf(why, NF_WHY_MAX, "this nprdma was built without it");
    return -EOPNOTSUPP;
}

int nf_munge_decode(const char *socket, const char *credential,
                    const void *payload, size_t len)
{
    return -EOPNOTSUPP;
}
#endif

static const struct {
    int        error;
    const char *why;
} nf_way_refusals[] = {
    {ENOPROTOOPT, "it takes MUNGE alone (--auth munge): do the same here"},
    {EOPNOTSUPP, "it takes no MUNGE, but its token: copy its "
                 "~/.config/nprdma/token"},
    {ENOTCONN, "munged on its host does not answer: start it, or copy the "
               "server's token"},
    {EBUSY, "munged on its host does not keep up: try again"},
    {EKEYREJECTED, "its munged has another key: both hosts need the same "
                   "munge.key"},
    {EKEYEXPIRED, "our credential of MUNGE was too old when it came: set the "
                  "clocks of both hosts"},
    {ETIME, "our credential of MUNGE is of its future: set the clocks of both "
            "hosts"},
    {EKEYREVOKED, "our credential of MUNGE has come before: somebody else "
                  "uses what this host sends"},
    {EBADE, "our credential of MUNGE is for another address: if something "
            "between the hosts changes addresses, use a token"},
    {EBADMSG, "its munged cannot read our credential: are both of one "
              "version?"},
};

static void nf_way_whose(uid_t uid, char why[NF_WHY_MAX])
{
    struct passwd user, *found = NULL;
    char names[1024];

    (void)getpwuid_r(uid, &user, names, sizeof(names), &found);
    snprintf(why, NF_WHY_MAX, "it is user %s%s%u%s, and serves nobody else",
             (found == NULL) ? "" : user.pw_name, (found == NULL) ? "" : " (",
             uid, (found == NULL) ? "" : ")");
}

int nf_way_refused(nf_auth_t auth, const nf_welcome_t *welcome,
                   char why[NF_WHY_MAX])
{
    size_t i;

    if (auth == NF_AUTH_PEER) {
        return 0;
    }

    if ((auth == NF_AUTH_MUNGE) && (welcome->status == -EACCES)) {
        nf_way_whose(welcome->user, why);
        return 1;
    }

    for (i = 0; i < (sizeof(nf_way_refusals) / sizeof(*nf_way_refusals)); ++i) {
        if (welcome->status == -nf_way_refusals[i].error) {
            snprintf(why, NF_WHY_MAX, "%s", nf_way_refusals[i].why);
            return 1;
        }
    }
    return 0;
}
