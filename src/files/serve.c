/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Sessions of nprdma-filed, and the threads that serve them.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "serve.h"

#include "program.h"
#include "request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* Answers that a client may leave on their way: it waits for each */
#define NF_ANSWERS_MAX  256

/* Endpoints that UCX may keep until its worker is made anew */
#define NF_KEPT_MAX     16

/* A thread that has nothing to do looks again so long before it sleeps, ns */
#define NF_SPIN         20000

/* And waits so long for UCX to end what is under way when it stops, ns */
#define NF_STOP_LIMIT   1000000000

/* An answer that UCX sends */
typedef struct nf_sent {
    nf_session_t *session;
    nf_reply_t   reply;
    uint8_t      data[];
} nf_sent_t;

/* An append whose data comes */
typedef struct nf_coming {
    nf_session_t *session;
    nf_request_t request;
    size_t       len;
    uint8_t      data[];
} nf_coming_t;

static nf_answer_t *nf_scratch(void)
{
    static __thread nf_answer_t answer;

    return &answer;
}

/* One use less; of the last one there is no session */
static void nf_session_put(nf_session_t *session)
{
    if (--session->uses > 0) {
        return;
    }

    close(session->fd);
    free(session->opened);
    free(session->address);
    free(session);
}

/* The door sees that its socket has ended, and says so */
static void nf_session_fail(nf_session_t *session, const char *why)
{
    if (!session->is_failing) {
        nf_say("client %u: %s: its session ends", session->index, why);
        session->is_failing = 1;
        (void)shutdown(session->fd, SHUT_RDWR);
    }
}

static void nf_session_on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    nf_session_t *session = arg;

    session->is_broken = 1;
    (void)shutdown(session->fd, SHUT_RDWR);
}

static void nf_session_closed(void *request, ucs_status_t status, void *arg)
{
    ucp_request_free(request);
    nf_session_put(arg);
}

/* By force only if it is broken: UCP may still have to answer the other side's
 * request to connect, and 1.13 ends the process if it is kept from that
 * (ucp_request.c, "got REP message"). What is under way to a client that is
 * there but takes nothing is kept until it goes. */
static void nf_session_close_ep(nf_session_t *session)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags        = session->is_broken ? UCP_EP_CLOSE_FLAG_FORCE : 0,
        .user_data    = session
    };
    ucs_status_ptr_t request;

    if (session->ep == NULL) {
        return;
    }

    ++session->uses;
    param.cb.send = nf_session_closed;
    request = ucp_ep_close_nbx(session->ep, &param);
    if (UCS_PTR_IS_ERR(request) && (param.flags != 0)) {
        /* an endpoint without error handling is not closed by force */
        param.flags = 0;
        request     = ucp_ep_close_nbx(session->ep, &param);
    }
    /* of a client that is gone UCX keeps it as long as its worker, then */
    session->thread->num_kept += nf_endpoint_is_kept();
    if (!UCS_PTR_IS_PTR(request)) {
        --session->uses;
    }
    session->ep = NULL;
}

static void nf_session_over(nf_session_t *session)
{
    nf_thread_t *thread = session->thread;

    if ((session->index < thread->export->max_clients) &&
        (thread->sessions[session->index] == session)) {
        thread->sessions[session->index] = NULL;
        --thread->num_sessions;
        nf_request_close_all(session);
        nf_session_close_ep(session);
    }
    nf_session_put(session);
}

static int nf_session_welcome(nf_session_t *session, int status)
{
    const nf_worker_t *worker = &session->thread->worker;
    nf_welcome_t welcome      = {
        .magic       = NF_MAGIC,
        .version     = NF_VERSION,
        .status      = status,
        .session     = session->index,
        .secret      = session->secret,
        .boot        = session->thread->export->boot,
        .address_len = (status == 0) ? worker->address_len : 0
    };
    int ret;

    ret = nf_send(session->fd, &welcome, sizeof(welcome));
    if (ret == 0) {
        ret = nf_send(session->fd, worker->address, welcome.address_len);
    }
    return ret;
}

/* Returns 0 or a negative errno */
static int nf_session_start(nf_session_t *session)
{
    nf_thread_t *thread       = session->thread;
    const nf_export_t *export = thread->export;

    while ((session->index < export->max_clients) &&
           (thread->sessions[session->index] != NULL)) {
        ++session->index;
    }
    if (session->index == export->max_clients) {
        return -EUSERS;
    }

    session->opened = calloc(export->max_files, sizeof(*session->opened));
    if (session->opened == NULL) {
        return -ENOMEM;
    }

    if (getrandom(&session->secret, sizeof(session->secret), 0) !=
        sizeof(session->secret)) {
        return -EIO;
    }

    return nf_endpoint_create(&thread->worker,
                              (const ucp_address_t*)session->address,
                              nf_session_on_error, session, &session->ep);
}

static void nf_session_begin(nf_session_t *session)
{
    int ret;

    session->uses = 1;
    ret           = nf_session_start(session);
    if (ret == 0) {
        session->thread->sessions[session->index] = session;
        ++session->thread->num_sessions;
    }
    if ((nf_session_welcome(session, ret) != 0) || (ret != 0)) {
        (void)shutdown(session->fd, SHUT_RDWR);
    }
}

/* What the door has told */
static unsigned nf_thread_take_told(nf_thread_t *thread)
{
    nf_session_t *told, *session;
    unsigned count = 0;
    int is_over;

    if (!atomic_load_explicit(&thread->has_told, memory_order_relaxed)) {
        return 0; /* or with the next look: the eventfd says so too */
    }

    pthread_mutex_lock(&thread->lock);
    atomic_store_explicit(&thread->has_told, 0, memory_order_relaxed);
    told         = thread->told;
    thread->told = NULL;
    pthread_mutex_unlock(&thread->lock);

    while ((session = told) != NULL) {
        pthread_mutex_lock(&thread->lock);
        told             = session->next_told;
        session->is_told = 0;
        is_over          = session->is_over;
        pthread_mutex_unlock(&thread->lock);

        if (session->uses == 0) {
            nf_session_begin(session);
        }
        if (is_over) {
            nf_session_over(session);
        }
        ++count;
    }
    return count;
}

static void nf_thread_tell(nf_session_t *session, int is_over)
{
    nf_thread_t *thread = session->thread;

    pthread_mutex_lock(&thread->lock);
    session->is_over = is_over;
    if (!session->is_told) {
        session->is_told   = 1;
        session->next_told = thread->told;
        thread->told       = session;
    }
    atomic_store_explicit(&thread->has_told, 1, memory_order_relaxed);
    pthread_mutex_unlock(&thread->lock);
    (void)eventfd_write(thread->wake, 1);
}

void nf_serve_begin(nf_thread_t *thread, nf_session_t *session)
{
    session->thread = thread;
    nf_thread_tell(session, 0);
}

void nf_serve_end(nf_session_t *session)
{
    nf_thread_tell(session, 1);
}

static void nf_answer_sent(void *request, ucs_status_t status, void *arg)
{
    nf_sent_t *sent = arg;

    if (request != NULL) {
        ucp_request_free(request);
    }
    if ((status != UCS_OK) && (sent->session->ep != NULL)) {
        nf_session_fail(sent->session, ucs_status_string(status));
    }
    --sent->session->num_answers;
    nf_session_put(sent->session);
    free(sent);
}

static void nf_answer_send(nf_session_t *session, const nf_answer_t *answer)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags        = UCP_AM_SEND_FLAG_EAGER
    };
    ucs_status_ptr_t request;
    nf_sent_t *sent;

    if (session->ep == NULL) {
        return;
    }

    sent = malloc(sizeof(*sent) + answer->data_len);
    if (sent == NULL) {
        nf_session_fail(session, "no memory for an answer");
        return;
    }

    sent->session = session;
    sent->reply   = answer->reply;
    memcpy(sent->data, answer->data, answer->data_len);
    param.cb.send   = nf_answer_sent;
    param.user_data = sent;
    ++session->uses;
    ++session->num_answers;
    request = ucp_am_send_nbx(session->ep, NF_AM_REPLY, &sent->reply,
                              sizeof(sent->reply), sent->data,
                              answer->data_len, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        nf_answer_sent(NULL, UCS_PTR_STATUS(request), sent);
    }
}

static void
nf_session_refuse(nf_session_t *session, const nf_request_t *request, int error)
{
    nf_answer_t *answer = nf_scratch();

    answer->reply    = (nf_reply_t){.seq = request->seq, .status = error};
    answer->data_len = 0;
    nf_answer_send(session, answer);
}

static void nf_session_serve(nf_session_t *session, const nf_request_t *request,
                             const void *rest, size_t len)
{
    nf_answer_t *answer = nf_scratch();

    nf_request_do(session, request, rest, len, answer);
    nf_answer_send(session, answer);
}

/* All of an append's data is here, or it never comes */
static void nf_coming_done(nf_coming_t *coming, ucs_status_t status)
{
    nf_session_t *session = coming->session;

    session->is_coming = 0;
    if (session->ep != NULL) {
        if (status == UCS_OK) {
            nf_session_serve(session, &coming->request, coming->data,
                             coming->len);
        } else {
            nf_session_refuse(session, &coming->request, nf_errno(status));
        }
    }
    nf_session_put(session);
    free(coming);
}

static void nf_coming_received(void *request, ucs_status_t status,
                               size_t len, void *arg)
{
    ucp_request_free(request);
    nf_coming_done(arg, status);
}

/* Returns what UCX is to do with the data: drop it, or let it come */
static ucs_status_t
nf_session_receive(nf_session_t *session, const nf_request_t *request,
                   void *data, size_t len)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA
    };
    int error                 = nf_request_check_append(session, request, len);
    ucs_status_ptr_t receiving;
    nf_coming_t *coming;

    coming = (error == 0) ? malloc(sizeof(*coming) + len) : NULL;
    if (coming == NULL) {
        nf_session_refuse(session, request, (error != 0) ? error : -ENOMEM);
        return UCS_OK;
    }

    coming->session  = session;
    coming->request  = *request;
    coming->len      = len;
    param.cb.recv_am = nf_coming_received;
    param.user_data  = coming;
    session->is_coming = 1;
    ++session->uses;
    receiving = ucp_am_recv_data_nbx(session->thread->worker.worker, data,
                                     coming->data, len, &param);
    if (!UCS_PTR_IS_PTR(receiving)) {
        nf_coming_done(coming, UCS_PTR_STATUS(receiving));
    }
    return UCS_INPROGRESS;
}

/* The session that a message belongs to; NULL: none. A stranger's is dropped:
 * its secret may be one of a session that has just ended. */
static nf_session_t *
nf_thread_find(nf_thread_t *thread, const nf_request_t *request, size_t len)
{
    nf_session_t *session;

    if ((len != sizeof(*request)) ||
        (request->session >= thread->export->max_clients)) {
        return NULL;
    }

    session = thread->sessions[request->session];
    return ((session != NULL) && !session->is_failing &&
            (session->secret == request->secret)) ? session : NULL;
}

static ucs_status_t nf_thread_on_request(void *arg, const void *header,
                                         size_t header_len, void *data,
                                         size_t len,
                                         const ucp_am_recv_param_t *param)
{
    const nf_request_t *request = header;
    nf_session_t *session       = nf_thread_find(arg, request, header_len);

    if (session == NULL) {
        return UCS_OK;
    }

    if (session->num_answers >= NF_ANSWERS_MAX) {
        nf_session_fail(session, "it takes no answers");
        return UCS_OK;
    }

    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        return nf_session_receive(session, request, data, len);
    }

    nf_session_serve(session, request, data, len);
    return UCS_OK;
}

/* Of sessions that are left, nobody else has the sockets any more */
static void nf_thread_end_sessions(nf_thread_t *thread)
{
    const uint64_t end = nf_now() + NF_STOP_LIMIT;
    uint32_t i;

    (void)nf_thread_take_told(thread);
    for (i = 0; i < thread->export->max_clients; ++i) {
        if (thread->sessions[i] != NULL) {
            nf_session_over(thread->sessions[i]);
        }
    }
    while (nf_now() < end && (ucp_worker_progress(thread->worker.worker) > 0)) {
    }
}

/* A worker, and what it takes. Returns 0 or a negative errno; a line says
 * why. */
static int nf_thread_open_worker(nf_thread_t *thread)
{
    ucs_status_t status;

    status = nf_worker_create(thread->export->context, &thread->worker);
    if (status == UCS_OK) {
        status = nf_worker_listen(&thread->worker, NF_AM_REQUEST,
                                  nf_thread_on_request, thread);
        if (status == UCS_OK) {
            return 0;
        }
        nf_worker_destroy(&thread->worker);
    }

    nf_say("UCX makes no worker: %s", ucs_status_string(status));
    return nf_errno(status);
}

/* Nobody is there: what UCX has kept of those who were goes with the worker */
static void nf_thread_renew_worker(nf_thread_t *thread)
{
    nf_worker_destroy(&thread->worker);
    thread->num_kept = 0;
    if (nf_thread_open_worker(thread) != 0) {
        exit(1);
    }
}

static void *nf_thread_run(void *arg)
{
    nf_thread_t *thread = arg;
    uint64_t idle_since = nf_now();
    eventfd_t count;

    while (!atomic_load_explicit(&thread->is_stopped, memory_order_relaxed)) {
        /* however much there is to do for those who are there already */
        if ((nf_thread_take_told(thread) > 0) ||
            (ucp_worker_progress(thread->worker.worker) > 0)) {
            idle_since = nf_now();
        } else if ((thread->num_sessions == 0) &&
                   (thread->num_kept >= NF_KEPT_MAX)) {
            nf_thread_renew_worker(thread);
        } else if ((nf_now() - idle_since) > NF_SPIN) {
            nf_worker_sleep(&thread->worker, thread->wake, -1);
            (void)eventfd_read(thread->wake, &count);
            idle_since = nf_now();
        }
    }

    nf_thread_end_sessions(thread);
    return NULL;
}

/* Returns 0 or a negative errno; a line says why */
static int nf_thread_start(nf_thread_t *thread, const nf_export_t *export)
{
    int ret;

    thread->export   = export;
    thread->wake     = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    thread->sessions = calloc(export->max_clients, sizeof(*thread->sessions));
    if ((thread->wake < 0) || (thread->sessions == NULL)) {
        nf_say("no memory for a thread");
        return -ENOMEM;
    }

    pthread_mutex_init(&thread->lock, NULL);
    ret = nf_thread_open_worker(thread);
    if (ret != 0) {
        return ret;
    }

    ret = -pthread_create(&thread->thread, NULL, nf_thread_run, thread);
    if (ret != 0) {
        nf_say("no thread can be started: %s", strerror(-ret));
        nf_worker_destroy(&thread->worker);
    }
    return ret;
}

nf_thread_t *nf_serve_start(const nf_export_t *export, unsigned count)
{
    nf_thread_t *threads = calloc(count, sizeof(*threads));
    unsigned i;

    if (threads == NULL) {
        nf_say("no memory for threads");
        return NULL;
    }

    for (i = 0; i < count; ++i) {
        if (nf_thread_start(&threads[i], export) != 0) {
            nf_serve_stop(threads, i);
            return NULL;
        }
    }
    return threads;
}

void nf_serve_stop(nf_thread_t *threads, unsigned count)
{
    unsigned i;

    for (i = 0; i < count; ++i) {
        atomic_store_explicit(&threads[i].is_stopped, 1, memory_order_relaxed);
        (void)eventfd_write(threads[i].wake, 1);
        pthread_join(threads[i].thread, NULL);
        nf_worker_destroy(&threads[i].worker);
        free(threads[i].sessions);
        close(threads[i].wake);
    }
    free(threads);
}
