/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a side: connect, post, wait for the moment, act, see what comes
 * of it, talk over a new endpoint, close. */
#include "side.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SETUP_SECONDS    30
#define WARM_TAG         100
#define AGAIN_TAG        200
#define GREETING         65536
#define PACKET_MAX       8192
#define IDLE_TURNS       64    /* with nothing to do, before others may run */
#define NAP_USEC         100
#define BUSY_FACTOR      10    /* waits may become so much longer */
#define NAPS_PER_SECOND  2500  /* about half of them, on an idle machine */

const ucp_request_param_t no_params;

/* What a side must know to connect */
typedef struct {
    uint64_t buf;
    uint32_t address_length, rkey_length;
    uint8_t  bytes[PACKET_MAX];
} hello_t;

void side_fail(const char *what)
{
    fprintf(stderr, "control: cannot go on: %s\n", what);
    _exit(3);
}

static void tell(side_t *s, word_t word)
{
    message_t message = {word, s->num_ok, s->is_flushed};

    if (send(s->fd, &message, sizeof(message), MSG_NOSIGNAL) < 0) {
        s->is_peer_gone = 1;
    }
}

static void listen_to_peer(side_t *s, int flags)
{
    message_t message;
    ssize_t ret;

    if (s->is_peer_gone) {
        return;
    }

    ret = recv(s->fd, &message, sizeof(message), flags);
    if (ret == sizeof(message)) {
        s->is_told[message.word] = 1;
        if (message.word == WORD_SETTLED) {
            s->settled = message;
        }
    } else if ((ret == 0) || !(flags & MSG_DONTWAIT)) {
        s->is_peer_gone = 1;
    }
}

void side_turn(side_t *s)
{
    static unsigned idle;

    if ((s->worker != NULL) && (ucp_worker_progress(s->worker) != 0)) {
        idle = 0;
        return;
    }

    listen_to_peer(s, MSG_DONTWAIT);
    if (++idle > (100 * IDLE_TURNS)) {
        usleep(NAP_USEC); /* many combinations run beside this one */
        ++s->naps;
    } else if (idle > IDLE_TURNS) {
        sched_yield();
    }
}

ucs_status_t side_wait(side_t *s, ucs_status_ptr_t req, double seconds)
{
    double end = time_now() + seconds;
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(req)) {
        return UCS_PTR_STATUS(req);
    }
    do {
        side_turn(s);
        status = ucp_request_check_status(req);
    } while ((status == UCS_INPROGRESS) && (time_now() < end));
    if (status != UCS_INPROGRESS) {
        ucp_request_free(req);
    }
    return status;
}

/* Progresses until the peer has said WORD */
static int await(side_t *s, word_t word, double seconds)
{
    double end = time_now() + seconds;

    while (!s->is_told[word] && !s->is_peer_gone && (time_now() < end)) {
        side_turn(s);
    }
    return s->is_told[word];
}

static void open_worker(side_t *s)
{
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features   = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA |
                      UCP_FEATURE_AMO64
    };
    ucp_worker_params_t worker_params = {
        .field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE
    };
    ucp_config_t *config;

    if ((ucp_config_read(NULL, NULL, &config) != UCS_OK) ||
        (ucp_init(&params, config, &s->context) != UCS_OK) ||
        (ucp_worker_create(s->context, &worker_params, &s->worker) !=
         UCS_OK)) {
        side_fail("context or worker");
    }
    ucp_config_release(config);
}

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    side_t *s = arg;

    (void)ep;
    s->seen->failure = status;
}

static void on_failure_again(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg;
    (void)ep;
    (void)status;
}

static ucp_ep_h connect_to_peer(side_t *s, ucp_err_handler_cb_t cb)
{
    ucp_ep_params_t params = {
        .field_mask      = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                           UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                           UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address         = (const ucp_address_t*)s->peer_address,
        .err_mode        = s->c->peer_errors ? UCP_ERR_HANDLING_MODE_PEER :
                                               UCP_ERR_HANDLING_MODE_NONE,
        .err_handler.cb  = cb,
        .err_handler.arg = s
    };
    ucp_ep_h ep;

    return (ucp_ep_create(s->worker, &params, &ep) == UCS_OK) ? ep : NULL;
}

static void say_hello(side_t *s)
{
    static hello_t hello;
    ucp_address_t *address;
    size_t address_length, rkey_length;
    void *rkey;

    if ((ucp_worker_get_address(s->worker, &address, &address_length) !=
         UCS_OK) ||
        (ucp_rkey_pack(s->context, s->memh, &rkey, &rkey_length) != UCS_OK) ||
        (address_length + rkey_length > sizeof(hello.bytes))) {
        side_fail("address or key");
    }

    hello.buf            = (uintptr_t)s->buf;
    hello.address_length = address_length;
    hello.rkey_length    = rkey_length;
    memcpy(hello.bytes, address, address_length);
    memcpy(hello.bytes + address_length, rkey, rkey_length);
    ucp_worker_release_address(s->worker, address);
    ucp_rkey_buffer_release(rkey);
    if (send(s->fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
        side_fail("the peer is gone");
    }
}

static void connect_sides(side_t *s)
{
    static hello_t hello;

    say_hello(s);
    if (recv(s->fd, &hello, sizeof(hello), 0) != sizeof(hello)) {
        side_fail("the peer is gone");
    }
    s->remote       = hello.buf;
    s->peer_address = hello.bytes;
    s->ep           = connect_to_peer(s, on_failure);
    if ((s->ep == NULL) ||
        (ucp_ep_rkey_unpack(s->ep, hello.bytes + hello.address_length,
                            &s->rkey) != UCS_OK)) {
        side_fail("endpoint or key");
    }
}

/* A message each way over an endpoint. One that is no eager message makes UCP
 * learn how the peer calls the endpoint. */
static ucs_status_t greet(side_t *s, ucp_ep_h ep, ucp_tag_t tag, size_t size,
                          double seconds)
{
    static uint8_t out[GREETING], in[GREETING]; /* a request may outlive this */
    ucs_status_ptr_t send, recv;
    ucs_status_t status;

    recv   = ucp_tag_recv_nbx(s->worker, in, size, tag, ~0ul, &no_params);
    send   = ucp_tag_send_nbx(ep, out, size, tag, &no_params);
    status = side_wait(s, send, seconds);
    if (status != UCS_OK) {
        return status;
    }
    return side_wait(s, recv, seconds);
}

static void warm_up(side_t *s)
{
    if ((greet(s, s->ep, WARM_TAG, 8, SETUP_SECONDS) != UCS_OK) ||
        (greet(s, s->ep, WARM_TAG, GREETING, SETUP_SECONDS) != UCS_OK) ||
        (side_wait(s, ucp_ep_flush_nbx(s->ep, &no_params), SETUP_SECONDS) !=
         UCS_OK)) {
        side_fail("first message");
    }
    tell(s, WORD_WARM);
    if (!await(s, WORD_WARM, SETUP_SECONDS)) {
        side_fail("the peer's first message");
    }
}

/* Requests that have ended well are told, what is one-sided after a flush */
static void complete(side_t *s)
{
    if (s->is_flushed || (s->num_slots == 0) || !transfer_has_ended(s) ||
        (s->num_ok < s->num_slots) || (s->ep == NULL)) {
        return;
    }

    if (transfer_is_one_sided(s->c) &&
        (side_wait(s, ucp_ep_flush_nbx(s->ep, &no_params), s->bound) !=
         UCS_OK)) {
        return;
    }
    s->is_flushed = 1;
    tell(s, WORD_COMPLETE);
}

static void turn(side_t *s)
{
    side_turn(s);
    transfer_reap(s);
    complete(s);
}

static int has_come(side_t *s)
{
    int is_mine = (s->role == INITIATOR) && transfer_is_one_sided(s->c);

    if (s->c->moment == MOMENT_LOCAL) {
        return transfer_has_ended(s);
    }
    return is_mine ? s->is_flushed : s->is_told[WORD_COMPLETE];
}

static void await_moment(side_t *s)
{
    double end = time_now() + SETUP_SECONDS;
    int i;

    s->seen->stage = STAGE_MOMENT;
    while ((s->role == TARGET) && !s->is_told[WORD_POSTED] &&
           !s->is_peer_gone) {
        listen_to_peer(s, 0); /* without progress */
    }

    if ((s->c->moment == MOMENT_PROGRESS_1) ||
        (s->c->moment == MOMENT_PROGRESS_8)) {
        for (i = 0; i < ((s->c->moment == MOMENT_PROGRESS_1) ? 1 : 8); ++i) {
            ucp_worker_progress(s->worker);
            transfer_reap(s);
        }
    } else if ((s->c->moment == MOMENT_LOCAL) ||
               (s->c->moment == MOMENT_REMOTE)) {
        while (!has_come(s) && (time_now() < end) && !s->is_peer_gone) {
            turn(s);
        }
        s->seen->is_late = !has_come(s);
    }
}

static void close_ep(side_t *s, unsigned flags)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags        = flags
    };

    s->control_req   = ucp_ep_close_nbx(s->ep, &param);
    s->ep            = NULL;
    s->seen->control = UCS_PTR_IS_PTR(s->control_req) ?
                       UCS_INPROGRESS : UCS_PTR_STATUS(s->control_req);
}

static void destroy_rkey(side_t *s)
{
    if (s->rkey != NULL) {
        ucp_rkey_destroy(s->rkey);
        s->rkey = NULL;
    }
}

static ucs_status_t unmap(side_t *s)
{
    ucp_mem_h memh = s->memh;

    s->memh = NULL;
    return (memh == NULL) ? UCS_OK : ucp_mem_unmap(s->context, memh);
}

static void destroy_worker(side_t *s)
{
    transfer_abandon(s);
    ucp_worker_destroy(s->worker);
    s->worker      = NULL;
    s->ep          = NULL;
    s->control_req = NULL;
}

static void act(side_t *s)
{
    s->seen->stage   = STAGE_CONTROL;
    s->seen->control = UCS_OK;
    switch (s->c->control->id) {
    case CONTROL_CLOSE_FORCE:
        close_ep(s, UCP_EP_CLOSE_FLAG_FORCE);
        break;
    case CONTROL_CLOSE_FLUSH:
        close_ep(s, 0);
        break;
    case CONTROL_UNMAP:
        s->seen->control = unmap(s);
        break;
    case CONTROL_RKEY_DESTROY:
        destroy_rkey(s);
        break;
    case CONTROL_CANCEL:
        transfer_cancel(s);
        break;
    case CONTROL_WORKER_DESTROY:
        destroy_rkey(s);
        destroy_worker(s);
        break;
    case CONTROL_CLEANUP:
        destroy_rkey(s);
        s->seen->control = unmap(s);
        destroy_worker(s);
        ucp_cleanup(s->context);
        s->context = NULL;
        break;
    case CONTROL_MUNMAP:
        s->is_readable = s->is_writable = 0;
        munmap(s->buf, s->len);
        break;
    case CONTROL_PROTECT:
        s->is_writable = 0;
        mprotect(s->buf, s->len, PROT_READ);
        break;
    case CONTROL_KILL:
        raise(SIGKILL);
        break;
    case CONTROL_EXIT:
        exit(0);
    }
}

/* True if nothing more will come: all has ended, and a peer that is gone was
 * reported */
static int is_settled(side_t *s)
{
    if (UCS_PTR_IS_PTR(s->control_req) &&
        (s->seen->control == UCS_INPROGRESS)) {
        s->seen->control = ucp_request_check_status(s->control_req);
    }

    return transfer_has_ended(s) && (s->seen->control != UCS_INPROGRESS) &&
           (!s->is_peer_gone || !s->c->peer_errors || (s->ep == NULL) ||
            (s->seen->failure != STATUS_NONE));
}

/* Something may still come. On a busy machine, where naps become long, it takes
 * its time: what counts is how often nothing was there to do. */
static int may_wait(const side_t *s, double end, unsigned naps)
{
    double now = time_now();

    return (now < end) ||
           ((now < (end + (BUSY_FACTOR * s->bound))) &&
            ((s->naps - naps) < (unsigned)(s->bound * NAPS_PER_SECOND)));
}

static void settle(side_t *s)
{
    double end    = time_now() + s->bound;
    unsigned naps = s->naps;
    int has_told  = 0;

    s->seen->stage = STAGE_SETTLE;
    while (may_wait(s, end, naps)) {
        turn(s);
        if (!is_settled(s)) {
            continue;
        }
        if (!has_told) {
            /* a close that has flushed is as good as a flush */
            s->is_flushed |= (s->c->control->id == CONTROL_CLOSE_FLUSH) &&
                             (s->seen->control == UCS_OK) &&
                             (s->num_ok == s->num_slots);
            /* UCP's flush says nothing of puts that have failed: its handler
             * does */
            s->is_flushed &= (s->seen->failure == STATUS_NONE);
            tell(s, WORD_SETTLED);
            has_told = 1;
            continue; /* that may have shown that the peer is gone */
        }
        if (s->is_told[WORD_SETTLED] || s->is_peer_gone) {
            break;
        }
    }
    if (!has_told) {
        tell(s, WORD_SETTLED);
    }
    transfer_freeze(s);
}

/* The workers are as good as before */
static void talk_again(side_t *s)
{
    /* the other side may still wait for something that does not come */
    double seconds = (BUSY_FACTOR + 2) * s->bound;
    ucp_ep_h ep;

    s->seen->stage = STAGE_AGAIN;
    ep             = connect_to_peer(s, on_failure_again);
    s->seen->again = (ep == NULL) ? UCS_ERR_UNREACHABLE :
                     greet(s, ep, AGAIN_TAG, 8, seconds);
    tell(s, WORD_AGAIN);
    await(s, WORD_AGAIN, seconds);
    if (s->c->peer_errors && (ep != NULL)) {
        ucp_request_param_t param = {
            .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
            .flags        = UCP_EP_CLOSE_FLAG_FORCE
        };
        side_wait(s, ucp_ep_close_nbx(ep, &param), s->bound);
    }
}

static void close_side(side_t *s)
{
    s->seen->stage = STAGE_CLOSE;
    if (s->worker != NULL) {
        destroy_rkey(s);
        if ((s->ep != NULL) && s->c->peer_errors) {
            ucp_request_param_t param = {
                .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                .flags        = UCP_EP_CLOSE_FLAG_FORCE
            };
            side_wait(s, ucp_ep_close_nbx(s->ep, &param), s->bound);
        } else if ((s->ep != NULL) && (s->seen->pending == 0) &&
                   !s->is_peer_gone) {
            side_wait(s, ucp_ep_close_nbx(s->ep, &no_params), s->bound);
        }
    }
    tell(s, WORD_CLOSED);
    await(s, WORD_CLOSED, s->bound);

    if (s->context != NULL) {
        unmap(s);
    }
    if (s->worker != NULL) {
        ucp_worker_destroy(s->worker);
    }
    if (s->context != NULL) {
        ucp_cleanup(s->context);
    }
}

void side_run(const case_t *c, role_t role, int fd, double bound,
              seen_t *seen)
{
    side_t side = {.c = c, .role = role, .bound = bound, .seen = seen,
                   .fd = fd};
    side_t *s   = &side;

    open_worker(s);
    transfer_open(s);
    seen->stage = STAGE_CONNECT;
    connect_sides(s);
    if (c->moment != MOMENT_COLD) {
        warm_up(s);
    }

    seen->stage = STAGE_POST;
    if (role == INITIATOR) {
        while (!s->is_told[WORD_READY] && !s->is_peer_gone) {
            listen_to_peer(s, 0);
        }
        transfer_post(s);
        tell(s, WORD_POSTED);
    } else {
        transfer_post(s);
        tell(s, WORD_READY);
    }

    if (c->control->actor == role) {
        await_moment(s);
        act(s);
    }
    settle(s);
    if (control_leaves_workers(c->control) && !s->is_peer_gone) {
        talk_again(s);
    }
    transfer_judge(s);
    close_side(s);
    seen->stage = STAGE_DONE;
    exit(0);
}
