/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client of nprdma-filed that lies: about who it is, what it may, how long
 * things are. Its server must go on. Prints TAP.
 *
 *     files_liar SOCKET [ROUNDS]
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "files/common.h"
#include "files/wire.h"

#include "../engine/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LIMIT     10000000000ull  /* ns that an answer may take */
#define NO_ANSWER 4711            /* in place of a status */

unsigned tap_count, tap_failures;

static const char *socket_path;
static ucp_context_h context;
static nf_worker_t worker;
static ucp_ep_h ep;
static nf_welcome_t welcome;
static nf_reply_t reply;
static int is_answered, is_down;
static unsigned num_answers;
static uint32_t seq;
static uint64_t seed = 1;


static uint64_t any(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static int dial(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd                  = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strncpy(addr.sun_path, socket_path, sizeof(addr.sun_path) - 1);
    return (connect(fd, (struct sockaddr*)&addr, sizeof(addr)) == 0) ? fd : -1;
}

/* What the server says to a hello; NO_ANSWER: it closes its door. The socket is
 * closed if @a fd_p is NULL. */
static int greet(nf_hello_t hello, const void *rest, size_t len, int *fd_p)
{
    int fd = dial(), ret;

    memset(&welcome, 0, sizeof(welcome));
    ret = nf_send(fd, &hello, sizeof(hello));
    ret = (ret != 0) ? ret : nf_send(fd, rest, len);
    ret = (ret != 0) ? ret : nf_recv(fd, &welcome, sizeof(welcome));
    if (fd_p != NULL) {
        *fd_p = fd;
    } else {
        close(fd);
    }
    return (ret != 0) ? NO_ANSWER : welcome.status;
}

static nf_hello_t good_hello(void)
{
    return (nf_hello_t){
        .magic       = NF_MAGIC,
        .version     = NF_VERSION,
        .auth        = NF_AUTH_PEER,
        .address_len = worker.address_len
    };
}

static void on_error(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    is_down = 1;
}

static ucs_status_t on_reply(void *arg, const void *header, size_t header_len,
                             void *data, size_t len,
                             const ucp_am_recv_param_t *param)
{
    memcpy(&reply, header, sizeof(reply));
    ++num_answers;
    is_answered = reply.seq == seq;
    return UCS_OK;
}

/* An honest handshake. Returns its socket. */
static int enter(void)
{
    char address[NF_ADDRESS_MAX];
    int fd;

    if ((greet(good_hello(), worker.address, worker.address_len, &fd) != 0) ||
        (nf_recv(fd, address, welcome.address_len) != 0)) {
        return -1;
    }

    is_down = 0;
    return (nf_endpoint_create(&worker, (const ucp_address_t*)address, on_error,
                               NULL, &ep) == 0) ? fd : -1;
}

static void progress_until(const int *is_so, uint64_t limit)
{
    const uint64_t end = nf_now() + limit;

    while (!*is_so && !is_down && (nf_now() < end)) {
        ucp_worker_progress(worker.worker);
    }
}

/* Send @a header_len bytes of a request; returns whether it has been sent */
static int say(const nf_request_t *request, size_t header_len, const void *rest,
               size_t len)
{
    const ucp_request_param_t param = {0};
    const uint64_t end              = nf_now() + LIMIT;
    ucs_status_ptr_t sent;

    is_answered = 0;
    sent = ucp_am_send_nbx(ep, NF_AM_REQUEST, request, header_len, rest, len,
                           &param);
    if (UCS_PTR_IS_PTR(sent)) {
        while ((ucp_request_check_status(sent) == UCS_INPROGRESS) &&
               (nf_now() < end) && !is_down) {
            ucp_worker_progress(worker.worker);
        }
        ucp_request_free(sent);
        return 1;
    }
    return !UCS_PTR_IS_ERR(sent);
}

/* Returns the answer's status */
static int ask(nf_request_t request, const void *rest, size_t len)
{
    request.session = welcome.session;
    request.secret  = welcome.secret;
    request.seq     = ++seq;
    if (!say(&request, sizeof(request), rest, len)) {
        return NO_ANSWER;
    }

    progress_until(&is_answered, LIMIT);
    return is_answered ? reply.status : NO_ANSWER;
}

static int is_served(void)
{
    return ask((nf_request_t){.op = NF_OP_STAT, .path_len = 1}, "/", 1) == 0;
}

static void leave(int fd)
{
    const ucp_request_param_t param = {0};
    const uint64_t end              = nf_now() + LIMIT;
    ucs_status_ptr_t closing        = ucp_ep_close_nbx(ep, &param);

    while (UCS_PTR_IS_PTR(closing) && (nf_now() < end) &&
           (ucp_request_check_status(closing) == UCS_INPROGRESS)) {
        ucp_worker_progress(worker.worker);
    }
    close(fd);
}

/* At the door */
static void test_door(void)
{
    nf_hello_t hello = good_hello(); /* a false address has UCP itself fail */
    char junk[NF_AUTH_MAX + NF_ADDRESS_MAX + 2];
    int fd;

    memset(junk, 0x5a, sizeof(junk));
    hello.magic = 0x20544547; /* "GET " */
    TAP_CHECK(greet(hello, junk, 100, NULL) != 0, "no client of ours");
    hello         = good_hello();
    hello.version = 99;
    TAP_CHECK(greet(hello, worker.address, worker.address_len, NULL) ==
              -EPROTONOSUPPORT, "another version hears that");
    hello      = good_hello();
    hello.auth = 77;
    TAP_CHECK(greet(hello, worker.address, worker.address_len, NULL) ==
              -EPROTONOSUPPORT, "and one with another proof");
    hello          = good_hello();
    hello.auth     = NF_AUTH_TOKEN;
    hello.auth_len = NF_TOKEN_BYTES;
    TAP_CHECK(greet(hello, junk, NF_TOKEN_BYTES + worker.address_len, NULL) ==
              -EACCES, "a token where there is none");
    hello             = good_hello();
    hello.address_len = UINT32_MAX;
    /* it may not hear why, since more of it is on its way */
    TAP_CHECK(greet(hello, junk, 100, NULL) != 0, "a huge address");
    hello.address_len = 0;
    TAP_CHECK(greet(hello, junk, 0, NULL) == -EPROTO, "none");
    hello          = good_hello();
    hello.auth_len = UINT32_MAX;
    TAP_CHECK(greet(hello, junk, 100, NULL) != 0, "a huge proof");

    /* half a hello, and away */
    fd = dial();
    (void)nf_send(fd, &hello, sizeof(hello) / 2);
    close(fd);
    fd = enter();
    TAP_CHECK((fd >= 0) && is_served(), "an honest one comes in after all");
    leave(fd);
}

/* What follows a good handshake */
static void test_requests(void)
{
    const uint32_t trunc = NF_OPEN_WRITE | NF_OPEN_CREATE | NF_OPEN_TRUNCATE;
    char path[2 * NF_PATH_MAX], *large = calloc(1, 1 << 20);
    nf_request_t request = {.op = NF_OP_STAT, .path_len = 1};
    int fd               = enter();
    unsigned before;

    TAP_CHECK((fd >= 0) && is_served(), "an honest one is served");

    /* another one's session: no answer, and nothing is done */
    before          = num_answers;
    request.session = welcome.session;
    request.secret  = welcome.secret + 1;
    request.seq     = ++seq;
    TAP_CHECK(say(&request, sizeof(request), "/", 1), "a wrong secret");
    request.session = UINT32_MAX;
    TAP_CHECK(say(&request, sizeof(request), "/", 1), "no such session");
    request.session = welcome.session + 1;
    TAP_CHECK(say(&request, sizeof(request), "/", 1), "another session");
    request.session = welcome.session;
    request.secret  = welcome.secret;
    TAP_CHECK(say(&request, 8, "/", 1), "a short request");
    TAP_CHECK(is_served() && (num_answers == (before + 1)),
              "none was answered");

    memset(path, 'a', sizeof(path));
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_LAST}, NULL, 0) == -ENOSYS,
              "no such operation");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_STAT, .path_len = 9}, "/", 1) ==
              -EINVAL, "a path that is longer than the message");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_STAT,
                                 .path_len = UINT32_MAX}, "/", 1) == -EINVAL,
              "by far");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_STAT, .path_len = 1}, "/abc", 4) ==
              -EINVAL, "or shorter");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_STAT, .path_len = 3}, "a\0b", 3) ==
              -EINVAL, "a zero in a path");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_STAT,
                                 .path_len = NF_PATH_MAX + 1}, path,
                  NF_PATH_MAX + 1) == -ENAMETOOLONG, "a path too long");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_RENAME, .path_len = 1}, path,
                  NF_PATH_MAX + 2) == -ENAMETOOLONG, "and another one");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_MKDIR, .path_len = 300}, path,
                  300) == -ENAMETOOLONG, "a name too long");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_MKDIR, .path_len = 5}, "a/b/.",
                  5) == -EINVAL, "a directory's own name");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_OPEN, .flags = 1u << 30,
                                 .path_len = 1}, "x", 1) == -EINVAL,
              "flags that there are not");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_OPEN, .path_len = 1,
                                 .flags = NF_OPEN_TRUNCATE}, "x", 1) == -EINVAL,
              "to cut without writing");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_OPEN, .path_len = 1,
                                 .flags = NF_OPEN_WRITE | NF_OPEN_APPEND},
                  "x", 1) == -EINVAL, "to write what is appended to");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_CLOSE, .handle = 5}, NULL, 0) ==
              -EBADF, "no such handle");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_CLOSE, .handle = UINT32_MAX}, NULL,
                  0) == -EBADF, "by far");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_APPEND, .handle = 3}, large,
                  1 << 20) == -EBADF, "much data for it");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_STAT, .path_len = 1}, large,
                  1 << 20) == -EINVAL, "much data that nobody wants");

    TAP_CHECK(ask((nf_request_t){.op = NF_OP_OPEN, .flags = trunc, .mode = 0600,
                                 .path_len = 4}, "/own", 4) == 0,
              "a file of its own");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_LIST, .handle = reply.handle},
                  NULL, 0) == -ENOTDIR, "that is no directory");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_APPEND}, large, 100) == -EBADF,
              "nor to be appended to");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_RESIZE,
                                 .length = UINT64_MAX}, NULL, 0) == -EFBIG,
              "nor so large");
    TAP_CHECK(ask((nf_request_t){.op = NF_OP_RESIZE, .flags = 8}, NULL, 0) ==
              -EINVAL, "to resize it with flags that there are not");
    TAP_CHECK(is_served(), "it is still served");
    free(large);
    leave(fd);
}

/* Requests of a valid session, with anything in them */
static void test_anything(unsigned rounds)
{
    static const char *const paths[] = {"/", "/a", "b/c", "..", "/x/../..", "",
                                        "//", "/own", "dir/"};
    nf_request_t request;
    char rest[600];
    unsigned i, answered = 0;
    const char *path;
    size_t len;
    int fd = enter();

    for (i = 0; (i < rounds) && !is_down; ++i) {
        path    = paths[any() % (sizeof(paths) / sizeof(paths[0]))];
        len     = strlen(path);
        request = (nf_request_t){
            .op       = any() % (NF_OP_LAST + 1),
            .flags    = any() % ((any() % 2) ? 4 : 128),
            .handle   = any() % 4,
            .mode     = any(),
            .length   = any() % ((any() % 2) ? 100000 : (1ull << 50)),
            .path_len = (any() % 8) ? len : (any() % 700)
        };
        memset(rest, 'r', sizeof(rest));
        memcpy(rest, path, len);
        if (any() % 4 == 0) {
            len += any() % 500;
        }
        if (ask(request, rest, len) != NO_ANSWER) {
            ++answered;
        }
    }
    TAP_CHECK((fd >= 0) && (answered == rounds),
              "anything is answered (%u of %u)", answered, rounds);
    TAP_CHECK(is_served(), "and then it is served");
    leave(fd);
}

/* It takes no answers, and goes with all that is under way. That the server
 * goes on is for others to see. */
static void go_deaf(void)
{
    nf_request_t request = {.op = NF_OP_STAT, .path_len = 1};
    const ucp_request_param_t param = {0};
    unsigned i;
    char byte;
    int fd = enter();

    request.session = welcome.session;
    request.secret  = welcome.secret;
    for (i = 0; i < 20000; ++i) {
        request.seq = ++seq;
        (void)ucp_am_send_nbx(ep, NF_AM_REQUEST, &request, sizeof(request), "/",
                              1, &param);
        if (recv(fd, &byte, 1, MSG_DONTWAIT) == 0) {
            break;
        }
    }
    printf("# %u requests without taking an answer\n", i);
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: files_liar SOCKET [ROUNDS]\n");
        return 2;
    }

    socket_path = argv[1];
    if ((nf_context_create(NULL, &context) != UCS_OK) ||
        (nf_worker_create(context, &worker) != UCS_OK) ||
        (nf_worker_listen(&worker, NF_AM_REPLY, on_reply, NULL) != UCS_OK)) {
        return 1;
    }

    test_door();
    test_requests();
    test_anything((argc > 2) ? atoi(argv[2]) : 20000);
    go_deaf();
    printf("1..%u\n", tap_count);
    fflush(stdout);
    _exit(tap_failures != 0); /* what is under way is the server's affair */
}
