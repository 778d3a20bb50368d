/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client of nprdma-filed that has credentials of MUNGE which are not for what
 * it uses them for. Prints TAP.
 *
 *     files_munge PORT SOCKET MUNGED
 *
 * PORT of a server on 127.0.0.1, SOCKET of the same, MUNGED the socket of a
 * munged. As another user than the server's it tries to come in as that.
 *
 *     files_munge PORT SOCKET
 *
 * The same while the server's munged does not answer: it comes many times.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "files/checker.h"
#include "files/munge.h"

#include "../engine/tap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#ifdef HAVE_MUNGE
#  include <munge.h>
#endif

#define NO_ANSWER 4711 /* in place of a status */
#define MORE      8    /* guests than may wait */

unsigned tap_count, tap_failures;

static int port;
static const char *socket_path, *munged;
static nf_worker_t worker;
static nf_proof_t proof;


static int dial(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    int fd                  = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    addr.sin_port        = htons(port);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return (connect(fd, (struct sockaddr*)&addr, sizeof(addr)) == 0) ? fd : -1;
}

static int dial_here(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd                  = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strncpy(addr.sun_path, socket_path, sizeof(addr.sun_path) - 1);
    return (connect(fd, (struct sockaddr*)&addr, sizeof(addr)) == 0) ? fd : -1;
}

static int say(int fd, nf_auth_t auth, const void *shown, size_t len)
{
    const nf_hello_t hello = {
        .magic       = NF_MAGIC,
        .version     = NF_VERSION,
        .auth        = auth,
        .auth_len    = len,
        .address_len = worker.address_len
    };
    int ret                = nf_send(fd, &hello, sizeof(hello));

    ret = (ret != 0) ? ret : nf_send(fd, shown, len);
    return (ret != 0) ? ret :
           nf_send(fd, worker.address, worker.address_len);
}

static int hear(int fd)
{
    nf_welcome_t welcome;
    int ret = nf_recv(fd, &welcome, sizeof(welcome));

    close(fd);
    return (ret != 0) ? NO_ANSWER : welcome.status;
}

/* What the server says to a credential; NO_ANSWER: it closes its door */
static int show(int fd, const void *shown, size_t len)
{
    return (say(fd, NF_AUTH_MUNGE, shown, len) != 0) ? NO_ANSWER : hear(fd);
}

#ifdef HAVE_MUNGE
/* A credential for another thing */
static int show_false(const void *payload, size_t len)
{
    munge_ctx_t ctx = munge_ctx_create();
    char *credential;
    int status;

    munge_ctx_set(ctx, MUNGE_OPT_SOCKET, munged);
    if (munge_encode(&credential, ctx, payload, len) != EMUNGE_SUCCESS) {
        return NO_ANSWER;
    }

    munge_ctx_destroy(ctx);
    status = show(dial(), credential, strlen(credential));
    free(credential);
    return status;
}

static void test_purpose(void)
{
    uint8_t *payload      = calloc(1, NF_PURPOSE_MAX);
    nf_purpose_t *purpose = (nf_purpose_t*)payload;
    int fd                = dial();
    ssize_t len           = nf_munge_purpose(fd, 1, worker.address,
                                             worker.address_len, payload);

    close(fd);
    TAP_CHECK(len == (ssize_t)(sizeof(*purpose) + worker.address_len),
              "what a credential is for");
    TAP_CHECK(show_false(payload, len) == 0, "one that is for that");
    TAP_CHECK(show_false(NULL, 0) == -EBADE, "one for nothing");
    TAP_CHECK(show_false(payload, sizeof(*purpose)) == -EBADE,
              "for no worker's address");
    TAP_CHECK(show_false(payload, len - 1) == -EBADE, "for a part of it");
    payload[len - 1] ^= 1;
    TAP_CHECK(show_false(payload, len) == -EBADE, "for another one");
    payload[len - 1] ^= 1;
    purpose->port ^= htons(1);
    TAP_CHECK(show_false(payload, len) == -EBADE, "for another port");
    purpose->port ^= htons(1);
    purpose->host[15] ^= 3;
    TAP_CHECK(show_false(payload, len) == -EBADE, "for another host");
    purpose->host[15] ^= 3;
    purpose->boot[0] ^= 1;
    TAP_CHECK(show_false(payload, len) == -EBADE,
              "for this address of another host");
    purpose->boot[0] ^= 1;
    purpose->name[0] ^= 1;
    TAP_CHECK(show_false(payload, len) == -EBADE, "for another service");
    free(payload);
}
/* Who can open what a client shows, and for how long */
static void test_restriction(void)
{
    char why[NF_WHY_MAX] = "", text[NF_AUTH_MAX + 1];
    munge_ctx_t ctx      = munge_ctx_create();
    int fd               = dial(), ttl = 0;
    uid_t uid            = -1;

    munge_ctx_set(ctx, MUNGE_OPT_SOCKET, munged);
    TAP_CHECK(nf_munge_encode(munged, fd, worker.address, worker.address_len,
                              &proof, why) == 0, "a credential %s", why);
    close(fd);
    snprintf(text, sizeof(text), "%.*s", (int)proof.len, (char*)proof.bytes);
    TAP_CHECK(munge_decode(text, ctx, NULL, NULL, NULL, NULL) ==
              EMUNGE_SUCCESS, "is opened by its user");
    munge_ctx_get(ctx, MUNGE_OPT_UID_RESTRICTION, &uid);
    munge_ctx_get(ctx, MUNGE_OPT_TTL, &ttl);
    TAP_CHECK(uid == geteuid(), "and by nobody else (%u)", uid);
    TAP_CHECK((ttl > 0) && (ttl <= 60), "within a minute (%d s)", ttl);
    munge_ctx_destroy(ctx);
}

/* All that it says is true, and the server can open it */
static void test_other_user(void)
{
    uint8_t *payload = malloc(NF_PURPOSE_MAX);
    int fd           = dial();
    ssize_t len      = nf_munge_purpose(fd, 1, worker.address,
                                        worker.address_len, payload);

    close(fd);
    TAP_CHECK(show_false(payload, len) == -EACCES,
              "another user's, for everybody");
    free(payload);
}
#endif

static void test_credentials(void)
{
    char why[NF_WHY_MAX] = "";
    int fd               = dial();

    TAP_CHECK(nf_munge_encode(munged, fd, worker.address, worker.address_len,
                              &proof, why) == 0,
              "a credential %s(%u bytes, for an address of %zu)", why,
              proof.len, worker.address_len);
    TAP_CHECK(show(fd, proof.bytes, proof.len) == 0, "an honest one comes in");
    TAP_CHECK(show(dial(), proof.bytes, proof.len) == -EKEYREVOKED,
              "a credential is good once");
    TAP_CHECK(show(dial(), proof.bytes, 0) == -EBADMSG, "none");
    TAP_CHECK(show(dial(), proof.bytes, proof.len / 2) == -EBADMSG,
              "half of one");
    proof.bytes[proof.len / 2] = '\0';
    TAP_CHECK(show(dial(), proof.bytes, proof.len) == -EBADMSG,
              "a zero in one");
    memset(proof.bytes, 'A', sizeof(proof.bytes));
    TAP_CHECK(show(dial(), proof.bytes, sizeof(proof.bytes)) == -EBADMSG,
              "as much as may be");
    TAP_CHECK(show(dial_here(), proof.bytes, 100) == -EPROTONOSUPPORT,
              "over a socket of this host the kernel says who it is");
    fd = dial();
    close(fd);
    fd = dial();
    TAP_CHECK((nf_munge_encode(munged, fd, worker.address, worker.address_len,
                               &proof, why) == 0) &&
              (show(fd, proof.bytes, proof.len) == 0),
              "an honest one comes in after all");
}

/* More than may wait: who is one too many hears that at once, and who has
 * nothing to do with munged is let in */
static void test_flood(void)
{
    static const char shown[] = "MUNGE:AAAA:";
    int fds[NF_CHECKS_MAX + MORE], fd, i, busy = 0;

    for (i = 0; i < (NF_CHECKS_MAX + MORE); ++i) {
        fds[i] = dial();
        TAP_CHECK(say(fds[i], NF_AUTH_MUNGE, shown, strlen(shown)) == 0,
                  "guest %d", i);
    }
    for (i = NF_CHECKS_MAX; i < (NF_CHECKS_MAX + MORE); ++i) {
        busy += hear(fds[i]) == -EBUSY;
    }
    TAP_CHECK(busy == MORE, "%d of %d hear that there are too many", busy,
              MORE);
    fd = dial_here();
    TAP_CHECK((say(fd, NF_AUTH_PEER, NULL, 0) == 0) && (hear(fd) == 0),
              "one of this host comes in");
    fd = dial();
    TAP_CHECK((say(fd, NF_AUTH_TOKEN, shown, 8) == 0) && (hear(fd) == -EACCES),
              "one with a token is looked at");
    for (i = 0; i < NF_CHECKS_MAX; ++i) {
        close(fds[i]);
    }
}

int main(int argc, char **argv)
{
    ucp_context_h context;
    struct stat st;

    if (argc < 3) {
        fprintf(stderr, "usage: files_munge PORT SOCKET [MUNGED]\n");
        return 2;
    }

    port        = atoi(argv[1]);
    socket_path = argv[2];
    munged      = argv[3];
    if ((nf_context_create(NULL, &context) != UCS_OK) ||
        (nf_worker_create(context, &worker) != UCS_OK) ||
        (stat(socket_path, &st) != 0)) {
        return 1;
    }

    if (munged == NULL) {
        test_flood();
    } else if (st.st_uid == geteuid()) {
        test_credentials();
    }
#ifdef HAVE_MUNGE
    if ((munged != NULL) && (st.st_uid == geteuid())) {
        test_purpose();
        test_restriction();
    } else if (munged != NULL) {
        test_other_user();
    }
#endif
    printf("1..%u\n", tap_count);
    fflush(stdout);
    _exit(tap_failures != 0);
}
