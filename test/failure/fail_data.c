/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes exchange data by tags, puts, gets and atomics, under whatever
 * hardship the options make: another user, a process that may not be traced,
 * a limit on a resource.
 */
#define _GNU_SOURCE
#include "fail_ucp.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define AREA       (5ul << 20)
#define HEAP_ROOM  (64u << 20)

typedef struct {
    long          child_user;     /* -1: the same */
    int           undumpable;
    int           largest_first;
    int           limit;          /* RLIMIT_xxx, or -1 */
    unsigned long limit_extra;    /* above what is in use now */
} options_t;

typedef struct {
    uint64_t address;
    size_t   rkey_size;
    char     rkey[256];
} target_t;

static size_t sizes[] = {1, 8, 100, 4000, 8193, 70000, 1048577,
                               4194304};
#define NUM_SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))

/* The limit that leaves so many file descriptors free. */
static unsigned long fd_limit_for(unsigned long extra)
{
    unsigned long fd = 0;

    for (;; ++fd) {
        if (fcntl(fd, F_GETFD) < 0) {
            if (extra-- == 0) {
                return fd;
            }
        }
    }
}

static unsigned long address_space_in_use(void)
{
    unsigned long pages = 0;
    FILE          *file = fopen("/proc/self/statm", "r");

    if ((file == NULL) || (fscanf(file, "%lu", &pages) != 1)) {
        fu_fail("/proc/self/statm cannot be read");
    }
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/*
 * From now on malloc has HEAP_ROOM free bytes and asks the kernel for nothing:
 * UCX itself stops with an assertion where small allocations fail.
 */
static void fill_heap(void)
{
    enum { PIECE = 65536 };
    static void *pieces[HEAP_ROOM / PIECE];
    unsigned    i;

    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    for (i = 0; i < HEAP_ROOM / PIECE; ++i) {
        pieces[i] = malloc(PIECE);
        memset(pieces[i], 1, PIECE);
    }
    for (i = 0; i < HEAP_ROOM / PIECE; ++i) {
        free(pieces[i]);
    }
}

/*
 * What is in use when a first worker is open, and so much more. With the
 * worker come the threads and tables that UCX cannot do without.
 */
static void apply_limit(const options_t *options)
{
    static fu_node_t first;
    struct rlimit    limit;

    if (options->limit < 0) {
        return;
    }

    fill_heap();
    if (fu_node_open(&first) != UCS_OK) {
        fu_fail("UCP cannot start, even without a limit");
    }

    limit.rlim_cur = options->limit_extra;
    if (options->limit == RLIMIT_AS) {
        limit.rlim_cur += address_space_in_use();
    } else if (options->limit == RLIMIT_NOFILE) {
        limit.rlim_cur = fd_limit_for(options->limit_extra);
    }
    limit.rlim_max = limit.rlim_cur;
    if (setrlimit(options->limit, &limit) != 0) {
        fu_fail("setrlimit to %lu: %s", (unsigned long)limit.rlim_cur,
                strerror(errno));
    }
}

static void become_user(const options_t *options)
{
    gid_t gid = options->child_user;
    uid_t uid = options->child_user;

    if (options->child_user >= 0) {
        if ((setgroups(0, NULL) != 0) || (setresgid(gid, gid, gid) != 0) ||
            (setresuid(uid, uid, uid) != 0)) {
            fu_fail("cannot become user %ld: %s", options->child_user,
                    strerror(errno));
        }
        /* As after a login: a program of that user can be traced by him. */
        prctl(PR_SET_DUMPABLE, 1);
    }
    if (options->undumpable) {
        prctl(PR_SET_DUMPABLE, 0);
    }
}

static void require_ok(ucs_status_t status, const char *what, size_t size)
{
    if (status != UCS_OK) {
        fu_fail("%s of %zu bytes: %s", what, size, ucs_status_string(status));
    }
}

static void exchange_tags(fu_node_t *node, fu_peer_t *peer, int side,
                          uint8_t *tx, uint8_t *rx)
{
    ucs_status_ptr_t rx_req, tx_req;
    int              i;

    for (i = 0; i < NUM_SIZES; ++i) {
        fu_fill(tx, sizes[i], (10 * i) + side);
        memset(rx, 0, sizes[i]);
        rx_req = fu_recv(node, rx, sizes[i], i);
        tx_req = fu_send(peer, tx, sizes[i], i);
        require_ok(fu_wait(node, tx_req, "send"), "send", sizes[i]);
        require_ok(fu_wait(node, rx_req, "receive"), "receive", sizes[i]);
        fu_check("receive", rx, sizes[i], (10 * i) + !side);
    }
}

/* Meets the peer while UCP makes progress, as an emulated put needs. */
static void meet(fu_node_t *node, fu_peer_t *peer, ucp_tag_t tag)
{
    char             tx = 0, rx = 0;
    ucs_status_ptr_t rx_req = fu_recv(node, &rx, 1, 1000 + tag);
    ucs_status_ptr_t tx_req = fu_send(peer, &tx, 1, 1000 + tag);

    require_ok(fu_wait(node, tx_req, "meeting"), "meeting", 1);
    require_ok(fu_wait(node, rx_req, "meeting"), "meeting", 1);
}

static void exchange_rma(fu_node_t *node, fu_peer_t *peer, int side,
                         uint8_t *area, const target_t *target)
{
    ucp_request_param_t param  = {0};
    uint8_t             *local = malloc(AREA);
    uint64_t            old = 0, one = 1;
    ucp_rkey_h          rkey;
    int                 i;

    require_ok(ucp_ep_rkey_unpack(peer->ep, target->rkey, &rkey),
               "unpacking a key", target->rkey_size);
    for (i = 0; i < NUM_SIZES; ++i) {
        memset(area, 0, AREA);
        fu_fill(local, sizes[i], 500 + (10 * i) + side);
        meet(node, peer, 4 * i);
        require_ok(fu_wait(node, ucp_put_nbx(peer->ep, local, sizes[i],
                                             target->address + 64, rkey,
                                             &param), "put"),
                   "put", sizes[i]);
        require_ok(fu_wait(node, ucp_ep_flush_nbx(peer->ep, &param), "flush"),
                   "flush", sizes[i]);
        meet(node, peer, 4 * i + 1);
        fu_check("put", area + 64, sizes[i], 500 + (10 * i) + !side);

        memset(local, 0, sizes[i]);
        require_ok(fu_wait(node, ucp_get_nbx(peer->ep, local, sizes[i],
                                             target->address + 64, rkey,
                                             &param), "get"),
                   "get", sizes[i]);
        fu_check("get", local, sizes[i], 500 + (10 * i) + side);

        param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE |
                             UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param.datatype     = ucp_dt_make_contig(sizeof(one));
        param.reply_buffer = &old;
        require_ok(fu_wait(node, ucp_atomic_op_nbx(peer->ep,
                                                   UCP_ATOMIC_OP_ADD, &one, 1,
                                                   target->address, rkey,
                                                   &param), "atomic"),
                   "atomic", sizeof(one));
        param.op_attr_mask = 0;
        meet(node, peer, 4 * i + 2);
        if ((old != 0) || (*(uint64_t*)area != 1)) {
            fu_fail("atomic add: found %lu, made %lu; 0 and 1 wanted", old,
                    *(uint64_t*)area);
        }
        meet(node, peer, 4 * i + 3);
    }
    ucp_rkey_destroy(rkey);
    free(local);
}

static void reverse_sizes(void)
{
    size_t size;
    int    i;

    for (i = 0; i < NUM_SIZES / 2; ++i) {
        size                     = sizes[i];
        sizes[i]                 = sizes[NUM_SIZES - 1 - i];
        sizes[NUM_SIZES - 1 - i] = size;
    }
}

static void run(fu_peer_t *peer, int side, const options_t *options)
{
    ucp_mem_map_params_t params = {0};
    uint8_t              *area, *tx;
    target_t             mine = {0}, theirs;
    fu_node_t            node;
    ucp_mem_h            memh;
    ucs_status_t         status;
    void                 *rkey;

    area = aligned_alloc(64, AREA);
    tx   = malloc(AREA);
    apply_limit(options);
    status = fu_node_open(&node);
    if (status != UCS_OK) {
        fu_fail("UCP cannot start: %s", ucs_status_string(status));
    }

    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                        UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = area;
    params.length     = AREA;
    require_ok(ucp_mem_map(node.context, &params, &memh), "mapping", AREA);
    require_ok(ucp_rkey_pack(node.context, memh, &rkey, &mine.rkey_size),
               "packing a key", AREA);
    if (mine.rkey_size > sizeof(mine.rkey)) {
        fu_fail("a key of %zu bytes", mine.rkey_size);
    }
    memcpy(mine.rkey, rkey, mine.rkey_size);
    ucp_rkey_buffer_release(rkey);
    mine.address = (uintptr_t)area;

    fu_error_is_fatal = 1;
    require_ok(fu_connect(&node, peer, UCP_ERR_HANDLING_MODE_NONE),
               "connecting", 0);
    fu_oob_send(peer, &mine, sizeof(mine));
    fu_oob_recv(peer, &theirs, sizeof(theirs));

    exchange_tags(&node, peer, side, tx, area);
    exchange_rma(&node, peer, side, area, &theirs);

    fu_error_is_fatal = 0;
    fu_disconnect(peer);
    fu_oob_send(peer, "", 1);
    fu_oob_recv(peer, tx, 1);
    require_ok(ucp_mem_unmap(node.context, memh), "unmapping", AREA);
    fu_node_close(&node);
    free(area);
    free(tx);
}

static int parse(int argc, char **argv, options_t *options)
{
    static const struct option longs[] = {
        {"child-user", required_argument, NULL, 'u'},
        {"undumpable", no_argument, NULL, 'd'},
        {"largest-first", no_argument, NULL, 'l'},
        {"extra-as", required_argument, NULL, 'a'},
        {"extra-nofile", required_argument, NULL, 'n'},
        {"fsize", required_argument, NULL, 'f'},
        {NULL, 0, NULL, 0}
    };
    int opt;

    while ((opt = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (opt) {
        case 'u':
            options->child_user = strtol(optarg, NULL, 0);
            break;
        case 'd':
            options->undumpable = 1;
            break;
        case 'l':
            options->largest_first = 1;
            break;
        case 'a':
            options->limit       = RLIMIT_AS;
            options->limit_extra = strtoul(optarg, NULL, 0);
            break;
        case 'n':
            options->limit       = RLIMIT_NOFILE;
            options->limit_extra = strtoul(optarg, NULL, 0);
            break;
        case 'f':
            options->limit       = RLIMIT_FSIZE;
            options->limit_extra = strtoul(optarg, NULL, 0);
            break;
        default:
            return -1;
        }
    }
    return (optind == argc) ? 0 : -1;
}

int main(int argc, char **argv)
{
    options_t options = {.child_user = -1, .limit = -1};
    fu_peer_t peer;

    if (parse(argc, argv, &options) != 0) {
        fprintf(stderr, "usage: fail_data [--child-user UID] [--undumpable] "
                "[--largest-first]\n                 [--extra-as BYTES | "
                "--extra-nofile N | --fsize BYTES]\n");
        return 2;
    }

    if (options.largest_first) {
        reverse_sizes();
    }
    if (fu_fork(&peer) == 0) {
        become_user(&options);
        run(&peer, 1, &options);
        exit(0);
    }
    if (options.child_user < 0) {
        become_user(&options);
    }
    run(&peer, 0, &options);
    fu_reap(&peer);
    printf("data exchanged, all right\n");
    return 0;
}
