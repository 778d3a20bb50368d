/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two hosts that go on exchanging data by tags, puts, gets and atomics while
 * somebody spoils the network between them or kills one of them. All data is
 * checked where it lies, and how often an atomic was executed.
 *
 *   fault_flow serve PORT
 *   fault_flow drive HOST PORT flow ROUNDS   nothing may fail
 *   fault_flow drive HOST PORT lose ROUNDS   goes on until the peer is lost
 *   fault_flow drive HOST PORT idle ROUNDS   waits in silence until it is lost
 *
 * After a loss it connects to who then listens there, and has ROUNDS with him.
 */
#include "../failure/fail_ucp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define AREA       (4ul << 20)
#define COUNTER    64        /* bytes before the data, for atomics */
#define ENDLESS    UINT32_MAX
#define TAG_DATA   1
#define TAG_MEET   2
#define NUM_SIZES  ((int)(sizeof(sizes) / sizeof(sizes[0])))

/* What the driver wants of the server */
typedef struct {
    uint32_t session;    /* counts, so that nobody takes an older one's data */
    uint32_t rounds;
    uint32_t may_fail;
    uint32_t then_idle;
} order_t;

typedef struct {
    uint64_t address;
    size_t   rkey_size;
    char     rkey[256];
} target_t;

typedef struct {
    fu_node_t  *node;
    fu_peer_t  peer;
    int        is_driver;
    uint8_t    *area;        /* the peer puts here */
    target_t   target;       /* where we put */
    ucp_rkey_h rkey;
    order_t    order;
    uint32_t   round;
} session_t;

/* Eager, by rendezvous, in one piece and in many; odd ones too */
static const size_t sizes[] = {8, 1000, 100001, 9000, 1048577, 65536, 1,
                               3145733};

static void *map(size_t size)
{
    void *ptr = mmap(NULL, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (ptr == MAP_FAILED) {
        fu_fail("mmap of %zu bytes: %s", size, strerror(errno));
    }
    return ptr;
}

/* A receive does not end by itself when its sender is lost */
static ucs_status_t done(session_t *session, ucs_status_ptr_t req,
                         int is_receive, const char *what)
{
    fu_peer_t *peer = &session->peer;
    double    end   = fu_now() + fu_wait_seconds;

    while (UCS_PTR_IS_PTR(req) && (peer->failure == UCS_OK) &&
           (ucp_request_check_status(req) == UCS_INPROGRESS)) {
        ucp_worker_progress(session->node->worker);
        if (fu_now() > end) {
            fu_fail("round %u, %s: neither done nor an error after %d s",
                    session->round, what, fu_wait_seconds);
        }
    }
    if (is_receive && UCS_PTR_IS_PTR(req) && (peer->failure != UCS_OK)) {
        ucp_request_cancel(session->node->worker, req);
    }
    return fu_wait(session->node, req, what);
}

static ucs_status_t first_error(ucs_status_t one, ucs_status_t two)
{
    return (one != UCS_OK) ? one : two;
}

/* Both send and receive */
static ucs_status_t swap(session_t *session, const void *tx, void *rx,
                         size_t size, ucp_tag_t tag)
{
    ucs_status_ptr_t send, receive;
    ucs_status_t     sent;

    tag    |= (ucp_tag_t)session->order.session << 8;
    receive = fu_recv(session->node, rx, size, tag);
    send    = fu_send(&session->peer, tx, size, tag);
    sent    = done(session, send, 0, "send");
    return first_error(sent, done(session, receive, 1, "receive"));
}

static ucs_status_t meet(session_t *session)
{
    char tx = 0, rx;

    return swap(session, &tx, &rx, 1, TAG_MEET);
}

static uint32_t seed(const session_t *session, int by_driver, int kind)
{
    return (session->round * 16) + (kind * 2) + by_driver;
}

/* In every second round memory that was never used before */
static ucs_status_t messages(session_t *session, size_t size)
{
    static uint8_t *kept[2];
    int            is_fresh = session->round & 1;
    uint8_t        *buf[2];
    ucs_status_t   status;
    int            i;

    for (i = 0; i < 2; ++i) {
        if (kept[i] == NULL) {
            kept[i] = map(AREA);
        }
        buf[i] = is_fresh ? map(size) : kept[i];
    }
    if (!is_fresh) {
        memset(buf[1], 0, size);
    }
    fu_fill(buf[0], size, seed(session, session->is_driver, 0));
    status = swap(session, buf[0], buf[1], size, TAG_DATA);
    if (status == UCS_OK) {
        fu_check("a message", buf[1], size,
                 seed(session, !session->is_driver, 0));
    }
    for (i = 0; is_fresh && (i < 2); ++i) {
        munmap(buf[i], size);
    }
    return status;
}

static ucs_status_t put(session_t *session, size_t size)
{
    ucp_request_param_t param = {0};
    uint8_t             *data = map(size);
    ucs_status_ptr_t    req;
    ucs_status_t        status;

    fu_fill(data, size, seed(session, 1, 1));
    req    = ucp_put_nbx(session->peer.ep, data, size,
                         session->target.address + COUNTER, session->rkey,
                         &param);
    status = done(session, req, 0, "put");
    if (status == UCS_OK) {
        req    = ucp_ep_flush_nbx(session->peer.ep, &param);
        status = done(session, req, 0, "flush");
    }
    munmap(data, size);
    return status;
}

static ucs_status_t get(session_t *session, size_t size)
{
    ucp_request_param_t param = {0};
    uint8_t             *data = map(size);
    ucs_status_t        status;

    status = done(session,
                  ucp_get_nbx(session->peer.ep, data, size,
                              session->target.address + COUNTER, session->rkey,
                              &param), 0, "get");
    if (status == UCS_OK) {
        fu_check("got", data, size, seed(session, 0, 2));
    }
    munmap(data, size);
    return status;
}

static ucs_status_t add_one(session_t *session)
{
    ucp_request_param_t param = {0};
    uint64_t            one   = 1, old = ~0ul;
    ucs_status_t        status;

    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE |
                         UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    param.datatype     = ucp_dt_make_contig(sizeof(one));
    param.reply_buffer = &old;
    status             = done(session,
                              ucp_atomic_op_nbx(session->peer.ep,
                                                UCP_ATOMIC_OP_ADD, &one, 1,
                                                session->target.address,
                                                session->rkey, &param), 0,
                              "atomic");
    if ((status == UCS_OK) && (old != session->round)) {
        fu_fail("atomic add %u found %lu", session->round, old);
    }
    return status;
}

/* The driver puts, the server looks; the server writes, the driver gets. */
static ucs_status_t memory(session_t *session, size_t size)
{
    uint8_t      *data  = session->area + COUNTER;
    ucs_status_t status = UCS_OK;

    if (session->is_driver) {
        status = put(session, size);
    }
    if ((status != UCS_OK) || ((status = meet(session)) != UCS_OK)) {
        return status;
    }
    if (!session->is_driver) {
        fu_check("put", data, size, seed(session, 1, 1));
        fu_fill(data, size, seed(session, 0, 2));
    }
    status = meet(session);
    if ((status == UCS_OK) && session->is_driver) {
        status = get(session, size);
        status = (status == UCS_OK) ? add_one(session) : status;
    }
    return (status == UCS_OK) ? meet(session) : status;
}

static ucs_status_t flow(session_t *session)
{
    ucs_status_t status = UCS_OK;
    size_t       size;

    for (session->round = 0; (status == UCS_OK) &&
         (session->round < session->order.rounds); ++session->round) {
        size = sizes[session->round % NUM_SIZES];
        memset(session->area + COUNTER, 0, size); /* the put comes later */
        status = messages(session, size);
        if (status == UCS_OK) {
            status = memory(session, size);
        }
        if (status == UCS_OK) {
            printf("round %u: %zu bytes\n", session->round, size);
        }
    }
    if (!session->is_driver && (status == UCS_OK) &&
        (*(uint64_t*)session->area != session->round)) {
        fu_fail("%u atomics were executed %lu times", session->round,
                *(uint64_t*)session->area);
    }
    return status;
}

static void give_target(session_t *session, ucp_mem_h *memh_p)
{
    ucp_mem_map_params_t params = {0};
    target_t             own    = {0};
    void                 *rkey;

    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                        UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = session->area;
    params.length     = AREA;
    if ((ucp_mem_map(session->node->context, &params, memh_p) != UCS_OK) ||
        (ucp_rkey_pack(session->node->context, *memh_p, &rkey,
                       &own.rkey_size) != UCS_OK) ||
        (own.rkey_size > sizeof(own.rkey))) {
        fu_fail("%lu bytes cannot be mapped and packed", AREA);
    }
    memcpy(own.rkey, rkey, own.rkey_size);
    own.address = (uintptr_t)session->area;
    ucp_rkey_buffer_release(rkey);
    fu_oob_send(&session->peer, &own, sizeof(own));
}

/* The peer may need our progress for its last steps */
static void part(session_t *session)
{
    double end = fu_now() + fu_wait_seconds;
    char   byte;

    fu_disconnect(&session->peer);
    fu_oob_send(&session->peer, "", 1);
    while (recv(session->peer.oob, &byte, 1, MSG_DONTWAIT) < 0) {
        ucp_worker_progress(session->node->worker);
        if (fu_now() > end) {
            fu_fail("the peer does not end in %d s", fu_wait_seconds);
        }
    }
}

/* With who is at the other end of the socket: until its end, or a loss */
static ucs_status_t run(fu_node_t *node, int oob, int is_driver, order_t order)
{
    session_t    session = {.node      = node,
                            .is_driver = is_driver,
                            .peer.oob  = oob,
                            .area      = map(AREA)};
    ucp_mem_h    memh;
    ucs_status_t status;

    if (is_driver) {
        fu_oob_send(&session.peer, &order, sizeof(order));
    } else {
        fu_oob_recv(&session.peer, &order, sizeof(order));
    }
    session.order     = order;
    fu_error_is_fatal = !order.may_fail;
    give_target(&session, &memh);
    fu_oob_recv(&session.peer, &session.target, sizeof(session.target));
    if ((fu_connect(node, &session.peer,
                    order.may_fail ? UCP_ERR_HANDLING_MODE_PEER :
                                     UCP_ERR_HANDLING_MODE_NONE) != UCS_OK) ||
        (ucp_ep_rkey_unpack(session.peer.ep, session.target.rkey,
                            &session.rkey) != UCS_OK)) {
        fu_fail("no endpoint, or no key of the peer's memory");
    }

    status = flow(&session);
    if ((status == UCS_OK) && order.then_idle) {
        printf("idle\n");
    }
    if ((status != UCS_OK) || order.then_idle) {
        fu_wait_failure(&session.peer);
        status = session.peer.failure;
        printf("lost in round %u: %s\n", session.round,
               ucs_status_string(status));
    }
    ucp_rkey_destroy(session.rkey);
    if (status == UCS_OK) {
        part(&session);
    } else {
        fu_disconnect(&session.peer);
    }
    ucp_mem_unmap(node->context, memh);
    munmap(session.area, AREA);
    close(oob);
    return status;
}

static int serve(fu_node_t *node, const char *port)
{
    struct sockaddr_in addr  = {.sin_family = AF_INET};
    order_t            order = {0};
    int                fd    = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int                on    = 1;
    int                oob;

    addr.sin_port = htons(atoi(port));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if ((bind(fd, (struct sockaddr*)&addr, sizeof(addr)) != 0) ||
        (listen(fd, 4) != 0)) {
        fu_fail("port %s: %s", port, strerror(errno));
    }
    do {
        oob = accept(fd, NULL, NULL);
        if (oob < 0) {
            fu_fail("accept: %s", strerror(errno));
        }
    } while (run(node, oob, 0, order) != UCS_OK);
    close(fd);
    return 0;
}

/* Who restarts does not listen at once */
static int dial(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_family   = AF_INET,
                             .ai_socktype = SOCK_STREAM};
    struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    double          end   = fu_now() + fu_wait_seconds;
    int             on    = 1;
    struct addrinfo *addr;
    int             fd, ret;

    ret = getaddrinfo(host, port, &hints, &addr);
    if (ret != 0) {
        fu_fail("%s port %s: %s", host, port, gai_strerror(ret));
    }
    for (;;) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, addr->ai_addr, addr->ai_addrlen) == 0) {
            break;
        }
        if (fu_now() > end) {
            fu_fail("%s port %s: %s", host, port, strerror(errno));
        }
        close(fd);
        nanosleep(&pause, NULL);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    freeaddrinfo(addr);
    return fd;
}

static int drive(fu_node_t *node, const char *host, const char *port,
                 const char *mode, unsigned rounds)
{
    int     is_idle = strcmp(mode, "idle") == 0;
    int     is_flow = strcmp(mode, "flow") == 0;
    order_t order   = {.rounds    = is_flow || is_idle ? rounds : ENDLESS,
                       .may_fail  = !is_flow,
                       .then_idle = is_idle};

    if (!is_flow) {
        if (run(node, dial(host, port), 1, order) == UCS_OK) {
            fu_fail("the peer was to be lost, and was not");
        }
        order.session   = 1;
        order.rounds    = rounds;
        order.then_idle = 0;
    }
    if (run(node, dial(host, port), 1, order) != UCS_OK) {
        fu_fail("the peer was lost");
    }
    printf("%s: %u rounds right\n", mode, rounds);
    return 0;
}

int main(int argc, char **argv)
{
    const char *limit = getenv("NPRDMA_TEST_SECONDS");
    int        is_server = (argc == 3) && (strcmp(argv[1], "serve") == 0);
    fu_node_t  node;
    int        ret;

    if (!is_server && ((argc != 6) || (strcmp(argv[1], "drive") != 0) ||
                       (strcmp(argv[4], "flow") && strcmp(argv[4], "lose") &&
                        strcmp(argv[4], "idle")))) {
        fprintf(stderr, "usage: fault_flow serve PORT | "
                "drive HOST PORT flow|lose|idle ROUNDS\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (limit != NULL) {
        fu_wait_seconds = atoi(limit);
    }
    if (fu_node_open(&node) != UCS_OK) {
        fu_fail("UCP does not start");
    }
    ret = is_server ? serve(&node, argv[2]) :
                      drive(&node, argv[2], argv[3], argv[4], atoi(argv[5]));
    fu_node_close(&node);
    return ret;
}
