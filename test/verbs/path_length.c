/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many instructions an operation takes, of user space and kernel, both
 * sides together: two workers of one thread on one processor, whose clock
 * counts instructions (the lab's --clock instructions). Medians are nearly the
 * same in each run, whatever the host does meanwhile. Nothing overlaps, and a
 * Read of memory or of the network costs as much as an addition: it is no time.
 *
 * path_length [NAME...]: of the operations whose names begin so; all without.
 * Prints lines of a name and the median.
 */
#define _GNU_SOURCE
#include "../failure/fail_ucp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define AREA    (16ul << 20)
#define BURST   64
#define WAITS   10     /* in a warm-up, for threads that prepare things */

#define MAX_ROUNDS 2000
#define TAG     1
#define AM_ID   7

typedef struct op {
    const char *name;
    void (*run)(size_t len);
    size_t     len;
    unsigned   rounds;
    unsigned   count;    /* operations of a round */
} op_t;

typedef struct side {
    fu_node_t  node;
    ucp_ep_h   ep;       /* to the other one */
    char       *area;
    ucp_rkey_h rkey;     /* of the other one's area */
    uint64_t   remote;
    unsigned   messages; /* active ones that have come */
} side_t;

static side_t sides[2];
static uint64_t done_at;     /* when what is measured was, if not at the end */

static uint64_t instructions(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (time.tv_sec * 1000000000ull) + time.tv_nsec;
}

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fu_fail("%s: %s", what, ucs_status_string(status));
    }
}

static void progress(void)
{
    ucp_worker_progress(sides[1].node.worker);
    ucp_worker_progress(sides[0].node.worker);
}

static void wait_for(ucs_status_ptr_t request)
{
    if (request == NULL) {
        return;
    } else if (UCS_PTR_IS_ERR(request)) {
        check(UCS_PTR_STATUS(request), "an operation");
    }

    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
        progress();
    }
    check(ucp_request_check_status(request), "an operation");
    ucp_request_free(request);
}

static ucs_status_ptr_t post_send(side_t *side, const void *data, size_t len)
{
    static const ucp_request_param_t param;

    return ucp_tag_send_nbx(side->ep, data, len, TAG, &param);
}

static ucs_status_ptr_t post_recv(side_t *side, void *data, size_t len)
{
    static const ucp_request_param_t param;

    return ucp_tag_recv_nbx(side->node.worker, data, len, TAG, UINT64_MAX,
                            &param);
}

static void send_between(int from, char *source, char *sink, size_t len)
{
    ucs_status_ptr_t recv = post_recv(&sides[!from], sink, len);

    wait_for(post_send(&sides[from], source, len));
    wait_for(recv);
}

static void run_tag(size_t len)
{
    send_between(0, sides[0].area, sides[1].area, len);
    send_between(1, sides[1].area, sides[0].area, len);
}

static void run_tags(size_t len)
{
    ucs_status_ptr_t recv[BURST], send[BURST];
    int i;

    for (i = 0; i < BURST; ++i) {
        recv[i] = post_recv(&sides[1], sides[1].area, len);
    }
    for (i = 0; i < BURST; ++i) {
        send[i] = post_send(&sides[0], sides[0].area, len);
    }
    for (i = 0; i < BURST; ++i) {
        wait_for(send[i]);
        wait_for(recv[i]);
    }
}

static void send_am(int from, size_t len)
{
    static const ucp_request_param_t param;
    const unsigned before = sides[!from].messages;

    wait_for(ucp_am_send_nbx(sides[from].ep, AM_ID, NULL, 0, sides[from].area,
                             len, &param));
    while (sides[!from].messages == before) {
        progress();
    }
}

static void run_am(size_t len)
{
    send_am(0, len);
    send_am(1, len);
}

static void run_get(size_t len)
{
    static const ucp_request_param_t param;

    wait_for(ucp_get_nbx(sides[0].ep, sides[0].area, len, sides[0].remote,
                         sides[0].rkey, &param));
}

/* Into the other side's memory, until it is seen there */
static void run_put(size_t len)
{
    static const ucp_request_param_t param;
    char *source        = sides[0].area;
    volatile char *sink = sides[1].area + len - 1;
    ucs_status_ptr_t request;

    source[len - 1] = *sink + 1;
    request         = ucp_put_nbx(sides[0].ep, source, len, sides[0].remote,
                                  sides[0].rkey, &param);
    while (*sink != source[len - 1]) {
        progress();
    }
    done_at = instructions();
    wait_for(request);
}

/* Until it is known to have arrived */
static void run_flush(size_t len)
{
    static const ucp_request_param_t param;

    wait_for(ucp_put_nbx(sides[0].ep, sides[0].area, len, sides[0].remote,
                         sides[0].rkey, &param));
    wait_for(ucp_ep_flush_nbx(sides[0].ep, &param));
}

/* Rendezvous between memory that nobody has used yet */
static void run_fresh(size_t len)
{
    char *data[2];
    int i;

    for (i = 0; i < 2; ++i) {
        data[i] = mmap(NULL, len, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(data[i], 1, len);
    }
    send_between(0, data[0], data[1], len);
    done_at = instructions();
    for (i = 0; i < 2; ++i) {
        munmap(data[i], len);
    }
}

static void run_reused(size_t len)
{
    send_between(0, sides[0].area, sides[1].area, len);
}

static const op_t ops[] = {
    {"tag-8", run_tag, 8, 2000, 2},
    {"tag-1024", run_tag, 1024, 1000, 2},
    {"am-8", run_am, 8, 2000, 2},
    {"tags-8", run_tags, 8, 100, BURST},
    {"get-8", run_get, 8, 2000, 1},
    {"get-4096", run_get, 4096, 1000, 1},
    {"get-65536", run_get, 65536, 200, 1},
    {"put-8", run_put, 8, 2000, 1},
    {"put-4096", run_put, 4096, 1000, 1},
    {"put-65536", run_put, 65536, 200, 1},
    {"flush-8", run_flush, 8, 1000, 1},
    {"flush-4096", run_flush, 4096, 1000, 1},
    {"flush-65536", run_flush, 65536, 200, 1},
    {"reused-16384", run_reused, 16384, 100, 1},
    {"reused-32768", run_reused, 32768, 100, 1},
    {"reused-65536", run_reused, 65536, 100, 1},
    {"reused-131072", run_reused, 131072, 60, 1},
    {"reused-262144", run_reused, 262144, 40, 1},
    {"reused-524288", run_reused, 524288, 20, 1},
    {"reused-1048576", run_reused, 1048576, 20, 1},
    {"reused-4194304", run_reused, 4194304, 10, 1},
    {"fresh-16384", run_fresh, 16384, 100, 1},
    {"fresh-32768", run_fresh, 32768, 100, 1},
    {"fresh-65536", run_fresh, 65536, 100, 1},
    {"fresh-131072", run_fresh, 131072, 60, 1},
    {"fresh-262144", run_fresh, 262144, 40, 1},
    {"fresh-524288", run_fresh, 524288, 20, 1},
    {"fresh-1048576", run_fresh, 1048576, 20, 1},
    {"fresh-4194304", run_fresh, 4194304, 10, 1}
};

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t*)a, y = *(const uint64_t*)b;

    return (x > y) - (x < y);
}

static void measure(const op_t *op)
{
    uint64_t taken[MAX_ROUNDS], begin;
    unsigned i;

    for (i = 0; i < op->rounds; ++i) {
        op->run(op->len);
        if ((i % (op->rounds / WAITS)) == 0) {
            usleep(300000); /* takes no instruction */
        }
    }
    for (i = 0; i < op->rounds; ++i) {
        done_at  = 0;
        begin    = instructions();
        op->run(op->len);
        taken[i] = ((done_at != 0) ? done_at : instructions()) - begin;
    }
    qsort(taken, op->rounds, sizeof(*taken), by_value);
    printf("%s %.0f\n", op->name,
           (double)taken[op->rounds / 2] / op->count);
    fflush(stdout);
}

static ucs_status_t on_am(void *arg, const void *header, size_t header_length,
                          void *data, size_t length,
                          const ucp_am_recv_param_t *param)
{
    ++((side_t*)arg)->messages;
    return UCS_OK;
}

static void open_side(side_t *side)
{
    ucp_am_handler_param_t am = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                      UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id         = AM_ID,
        .cb         = on_am,
        .arg        = side
    };

    check(fu_node_open(&side->node), "a worker");
    check(ucp_worker_set_am_recv_handler(side->node.worker, &am), "a handler");
    side->area = mmap(NULL, AREA, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(side->area, 0, AREA);
}

static void connect_side(side_t *side, side_t *peer)
{
    ucp_mem_map_params_t map = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address    = peer->area,
        .length     = AREA
    };
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *address;
    size_t size;
    void *packed;
    ucp_mem_h memh;

    check(ucp_worker_get_address(peer->node.worker, &address, &size),
          "an address");
    params.address = address;
    check(ucp_ep_create(side->node.worker, &params, &side->ep), "an endpoint");
    ucp_worker_release_address(peer->node.worker, address);

    check(ucp_mem_map(peer->node.context, &map, &memh), "memory");
    check(ucp_rkey_pack(peer->node.context, memh, &packed, &size), "a key");
    check(ucp_ep_rkey_unpack(side->ep, packed, &side->rkey), "a key");
    ucp_rkey_buffer_release(packed);
    side->remote = (uintptr_t)peer->area;
}

int main(int argc, char **argv)
{
    unsigned i;
    int j, is_wanted;

    for (i = 0; i < 2; ++i) {
        open_side(&sides[i]);
    }
    for (i = 0; i < 2; ++i) {
        connect_side(&sides[i], &sides[!i]);
    }
    for (i = 0; i < sizeof(ops) / sizeof(*ops); ++i) {
        is_wanted = argc == 1;
        for (j = 1; j < argc; ++j) {
            is_wanted |= strncmp(ops[i].name, argv[j], strlen(argv[j])) == 0;
        }
        if (is_wanted) {
            measure(&ops[i]);
        }
    }
    _exit(0);
}
