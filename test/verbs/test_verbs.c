/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine over an RNIC, without UCX above it: two processes, each a port.
 * Prints TAP. The first RNIC port is used.
 *
 * test_verbs [N [MISCHIEF]]: each queue pair fails after every N messages (0:
 * none does); datagrams meet with this mischief alone, instead of each kind
 */

#define _GNU_SOURCE
#include "sides.h"

#include "nprdma/engine.h"
#include "nprdma/mem/arena.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/svc/service.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AREA   (8ul << 20)

/* Links that together have more credit than there are buffers */
#define FLOODS 12

/* Shared by both: what the target does and sees */
typedef struct shared {
    _Atomic uint64_t  received;
    _Atomic uint64_t  sum;
    _Atomic uint64_t  wrong;
    _Atomic int       stop;
    _Atomic int       compute;    /* the target is to leave its port alone */
    _Atomic int       computes;   /* and does */
    _Atomic int       fail;       /* its queue pairs are to fail */
    _Atomic unsigned  mischief;   /* to its handshake */
    _Atomic int       connect;    /* the target is to make links to us as well */
    _Atomic int       connects;   /* and has */
    _Atomic int       swap;       /* it is to swap by itself */
    _Atomic int       swaps;      /* and does */
    _Atomic uint64_t  swapped;    /* pages */
    _Atomic uint64_t  returned;   /* messages that came over those */
    _Atomic unsigned  conns;      /* connections that it has */
    _Atomic int       is_quiet;   /* no thread of it looks at its port either */
} shared_t;

static shared_t *shared;
static unsigned tap_count, tap_failures;
static int is_initiator;

static void check(int ok, const char *what)
{
    ++tap_count;
    tap_failures += !ok;
    printf("%sok %u - %s\n", ok ? "" : "not ", tap_count, what);
}

/* The first 8 bytes say with what the rest is filled */
static void on_am(void *arg, uint8_t id, void *data, unsigned len)
{
    uint64_t seed;

    memcpy(&seed, data, sizeof(seed));
    if (is_initiator) {
        ++shared->returned;
        return;
    }
    if ((id != (uint8_t)(seed % 32)) ||
        !is_right((uint8_t*)data + sizeof(seed), seed, len - sizeof(seed))) {
        ++shared->wrong;
    }
    shared->sum += seed;
    ++shared->received;
}

/* The first bytes of the area are swapped by the target itself */
#define SWAPPED    (1ul << 20)
#define PAGE       4096ul

static uint8_t *swap_area, *swap_store;
static uint8_t is_out[SWAPPED / PAGE];
static pthread_mutex_t swap_lock = PTHREAD_MUTEX_INITIALIZER;

static int swap_in(void *arg, void *va, size_t len, int write)
{
    size_t i, first = ((uint8_t*)va - swap_area) / PAGE;

    pthread_mutex_lock(&swap_lock);
    for (i = first; i < (first + (len / PAGE)); ++i) {
        if (is_out[i]) {
            mprotect(swap_area + (i * PAGE), PAGE, PROT_READ | PROT_WRITE);
            memcpy(swap_area + (i * PAGE), swap_store + (i * PAGE), PAGE);
            is_out[i] = 0;
        }
    }
    pthread_mutex_unlock(&swap_lock);
    return 0;
}

/* One page after the other loses its frame. Who touches it now has a fault. */
static void *swap_out(void *arg)
{
    unsigned i = 0;

    while (shared->swap) {
        i = (i + 97) % (SWAPPED / PAGE);
        pthread_mutex_lock(&swap_lock);
        if (!is_out[i]) {
            np_mapper_unmap((uintptr_t)swap_area + (i * PAGE), PAGE);
            memcpy(swap_store + (i * PAGE), swap_area + (i * PAGE), PAGE);
            mprotect(swap_area + (i * PAGE), PAGE, PROT_NONE);
            is_out[i] = 1;
            ++shared->swapped;
        }
        pthread_mutex_unlock(&swap_lock);
    }
    return NULL;
}

/* Until shared->swap is 0 again */
static void swap_for_a_while(void *area)
{
    const np_swapper_t swapper = {.swap_in = swap_in};
    pthread_t thread;

    swap_area  = area;
    swap_store = malloc(SWAPPED);
    if ((np_mapper_add_swapper((uintptr_t)area, SWAPPED, &swapper) == UCS_OK) &&
        (pthread_create(&thread, NULL, swap_out, NULL) == 0)) {
        while (shared->swap) {
            np_vport_progress(port);
        }
        pthread_join(thread, NULL);
        swap_in(NULL, area, SWAPPED, 1);
        np_mapper_remove_swapper((uintptr_t)area, SWAPPED);
    }
    free(swap_store);
    shared->swaps = 0;
}

#define LINKS  16

static void close_links(np_vlink_t *links)
{
    int i;

    for (i = 0; i < LINKS; ++i) {
        np_vlink_close(&links[i]);
    }
}

/* One message over each of so many new links, all at once */
static int talk(np_vlink_t *links, const side_t *to)
{
    double end = now() + LIMIT;
    int sent[LINKS] = {}, i, left = LINKS;

    for (i = 0; i < LINKS; ++i) {
        np_vlink_init(&links[i], port, &to->dev, &to->port);
    }
    while ((left > 0) && (now() < end) && (down == UCS_OK)) {
        for (i = 0; i < LINKS; ++i) {
            if (!sent[i] && (np_vlink_am_short(&links[i], 1, 1, NULL, 0) ==
                             UCS_OK)) {
                sent[i] = 1;
                --left;
            }
        }
        np_vport_progress(port);
    }
    return left == 0;
}

/* In our turn: a service thread may be about to replace its queue pair */
static void fail_conn(np_conn_t *conn)
{
    NP_TURN_WAIT(&port->turn);
    np_conn_break(conn);
}

static void fail_all(void)
{
    NP_TURN_WAIT(&port->turn);
    np_conn_t *conn;

    ucs_list_for_each(conn, &port->ready, list) {
        np_conn_break(conn);
    }
}

static int target(const np_vport_config_t *config, int fd)
{
    np_vlink_t links[LINKS];
    side_t side, other;
    void *area;

    open_port(config, on_am);
    area = make_area(&side, AREA);
    if (!exchange_sides(fd, &side, &other)) {
        return 1;
    }
    np_service_start();
    while (!shared->stop) {
        port->config.mischief = shared->mischief;
        if (shared->swap) {
            shared->swaps = 1;
            swap_for_a_while(area);
        }
        if (shared->connect) {
            shared->connects = 1;
            if (talk(links, &other)) {
                while (shared->connect) {
                    np_vport_progress(port);
                }
            }
            close_links(links);
            shared->connects = 0;
        }
        shared->conns    = kh_size(&port->conns);
        shared->is_quiet = shared->computes && !port->service.is_again &&
                           (port->service.users == 0);
        shared->computes = shared->compute;
        if (!shared->computes) {
            np_vport_progress(port);
        }
        if (shared->fail) {
            fail_all();
            shared->fail = 0;
        }
    }
    np_vport_close(port);
    return 0;
}

static int has_received(const void *arg)
{
    return shared->received >= *(const uint64_t*)arg;
}

static int flush(void)
{
    comp_t comp = {0, UCS_OK};
    ucs_status_t status;

    POST(status, np_vlink_flush(&link_, &comp));
    return (status == UCS_OK) ||
           ((status == UCS_INPROGRESS) && wait_until(is_done, &comp) &&
            (comp.status == UCS_OK));
}

static void test_am(void)
{
    static const unsigned sizes[] = {0, 1, 8, 100, 240, 241, 1000, 4096, 8000};
    static uint8_t data[16384];
    uint64_t count = 0, sum = 0, seed;
    ucs_status_t status = UCS_OK;
    unsigned i, j;

    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        for (j = 0; (j < 100) && (status == UCS_OK); ++j) {
            seed = count + 1;
            fill(data, seed, sizes[i]);
            POST(status, np_vlink_am_short(&link_, seed % 32, seed, data,
                                           sizes[i]));
            sum += seed;
            ++count;
        }
    }
    check(status == UCS_OK, "active messages of all sizes are taken");
    check(wait_until(has_received, &count) && (shared->received == count),
          "and arrive");
    check((shared->sum == sum) && (shared->wrong == 0), "unharmed");
}

/* Put, then get it back into other memory; the target's memory is looked at by
 * reading it with process_vm_readv, not over the path under test */
static void test_move(const side_t *side, np_key_t *key, pid_t pid,
                      uint8_t *mine, size_t len, size_t offset)
{
    np_iov_t iov  = {mine + offset, len};
    comp_t comp   = {0, UCS_OK};
    uint8_t *seen = malloc(len);
    uint64_t addr = side->area + offset;
    struct iovec here = {seen, len}, there = {(void*)addr, len};
    ucs_status_t status;
    char what[128];
    int ok;

    fill(mine + offset, len, len);
    POST(status, np_vlink_move(NP_DIR_PUT, &link_, key, &iov, 1, addr, &comp));
    ok = ((status == UCS_OK) || ((status == UCS_INPROGRESS) &&
                                 wait_until(is_done, &comp))) &&
         (comp.status == UCS_OK);
    memset(seen, 0, len);
    ok = ok && (process_vm_readv(pid, &here, 1, &there, 1, 0) ==
                (ssize_t)len) && is_right(seen, len, len);
    snprintf(what, sizeof(what), "put of %zu bytes at offset %zu", len,
             offset);
    check(ok, what);

    fill(seen, len + 1, len);
    ok   = process_vm_writev(pid, &here, 1, &there, 1, 0) == (ssize_t)len;
    comp = (comp_t){0, UCS_OK};
    memset(mine + offset, 0, len);
    POST(status, np_vlink_move(NP_DIR_GET, &link_, key, &iov, 1, addr, &comp));
    ok = ok && ((status == UCS_OK) || ((status == UCS_INPROGRESS) &&
                                       wait_until(is_done, &comp))) &&
         (comp.status == UCS_OK) && is_right(mine + offset, len + 1, len);
    snprintf(what, sizeof(what), "get of %zu bytes at offset %zu", len,
             offset);
    check(ok, what);
    free(seen);
}

static void unpack(void *arg, const void *data, size_t len)
{
    memcpy(arg, data, len);
}

static void test_small(const side_t *side, np_key_t *key, pid_t pid)
{
    static uint8_t data[16384], back[16384];
    size_t sizes[] = {1, 8, 250, 4096, max_message}, i;
    struct iovec here, there;
    ucs_status_t status;
    comp_t comp;
    int ok = 1;

    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        here  = (struct iovec){back, sizes[i]};
        there = (struct iovec){(void*)side->area, sizes[i]};
        fill(data, sizes[i] + 5, sizes[i]);
        POST(status, np_vlink_put_copied(&link_, key, data, sizes[i],
                                         side->area));
        ok = ok && (status == UCS_OK) && flush() &&
             (process_vm_readv(pid, &here, 1, &there, 1, 0) ==
              (ssize_t)sizes[i]) && is_right(back, sizes[i] + 5, sizes[i]);
        memset(back, 0, sizes[i]);
        comp = (comp_t){0, UCS_OK};
        POST(status, np_vlink_get_unpack(&link_, key, sizes[i], side->area,
                                         unpack, back, &comp));
        ok = ok && (status == UCS_INPROGRESS) && wait_until(is_done, &comp) &&
             (comp.status == UCS_OK) && is_right(back, sizes[i] + 5, sizes[i]);
    }
    check(ok, "small puts and gets");
}

static void test_atomic(const side_t *side, np_key_t *key)
{
    uint64_t result = 1, i, before = ~0ul;
    ucs_status_t status;
    comp_t comp;
    int ok = 1;

    for (i = 0; i < 50; ++i) {
        comp = (comp_t){0, UCS_OK};
        POST(status, np_vlink_atomic(&link_, key, NP_ATOMIC_ADD, 8, 3, 0,
                                     side->area + 64, &result, &comp));
        ok = ok && (status == UCS_INPROGRESS) && wait_until(is_done, &comp) &&
             (comp.status == UCS_OK) && ((i == 0) || (result == before + 3));
        before = result;
    }
    check(ok, "50 atomics, each once");
}

static void test_bad(const side_t *side, np_key_t *key, uint8_t *mine)
{
    np_iov_t iov = {mine, 1 << 20};
    comp_t comp  = {0, UCS_OK};
    uint64_t hole = (side->area + AREA + (64 << 20)) & ~4095ul;
    ucs_status_t status;

    /* shared by the arena, but nobody has mapped it */
    POST(status, np_vlink_move(NP_DIR_GET, &link_, key, &iov, 1, 8192, &comp));
    check(status == UCS_ERR_INVALID_ADDR, "an address outside the key");
    (void)hole;
    munmap(mine + AREA - (1 << 20), 1 << 20);
    comp = (comp_t){0, UCS_OK};
    iov  = (np_iov_t){mine + AREA - (1 << 20), 1 << 20};
    POST(status, np_vlink_move(NP_DIR_GET, &link_, key, &iov, 1, side->area,
                               &comp));
    check((status == UCS_INPROGRESS) && wait_until(is_done, &comp) &&
          (comp.status != UCS_OK),
          "memory of ours that is not there is an error of that get");
}

static int has_failed(const void *arg)
{
    return !shared->fail;
}

/* Ours, theirs, or none */
static void fail_one(unsigned i)
{
    if (link_.conn == NULL) {
        return; /* it has failed for good */
    }
    if ((i % 3) == 0) {
        fail_conn(link_.conn);
    } else if ((i % 3) == 1) {
        shared->fail = 1;
        (void)wait_until(has_failed, NULL);
    }
}

/* Queue pairs that fail between operations and in the middle of them */
static void test_failing(const side_t *side, np_key_t *key, pid_t pid,
                         uint8_t *mine)
{
    uint64_t count = shared->received, sum = 0, seed, i, value, was;
    struct iovec here = {&value, 8}, there = {(void*)(side->area + 64), 8};
    static uint8_t data[4096];
    ucs_status_t status = UCS_OK;
    uint32_t epoch = (link_.conn == NULL) ? 0 : link_.conn->epoch;
    np_iov_t iov = {mine, AREA / 2};
    comp_t comp[20] = {};
    int ok;

    shared->sum = 0;
    for (i = 0; (i < 300) && (status == UCS_OK); ++i) {
        seed = i + 1;
        fill(data, seed, i * 13);
        POST(status, np_vlink_am_short(&link_, seed % 32, seed, data, i * 13));
        sum += seed;
        if ((i % 50) == 49) {
            fail_one(i / 50);
        }
    }
    count += 300;
    check((status == UCS_OK) && wait_until(has_received, &count) && flush() &&
          (shared->received == count) && (shared->sum == sum) &&
          (shared->wrong == 0), "active messages arrive once, in spite of it");

    was = 0;
    ok  = process_vm_readv(pid, &here, 1, &there, 1, 0) == 8;
    was = value;
    for (i = 0; (i < 20) && ok; ++i) {
        POST(status, np_vlink_atomic(&link_, key, NP_ATOMIC_ADD, 8, 1, 0,
                                     side->area + 64, &data[i * 8], &comp[i]));
        ok = status == UCS_INPROGRESS;
        if ((i % 4) == 3) {
            fail_one(i / 4);
        }
    }
    for (i = 0; (i < 20) && ok; ++i) {
        ok = wait_until(is_done, &comp[i]) && (comp[i].status == UCS_OK) &&
             (comp[i].count == 1) &&
             (((uint64_t*)data)[i] == (was + i));
    }
    ok = ok && (process_vm_readv(pid, &here, 1, &there, 1, 0) == 8);
    check(ok && (value == (was + 20)), "atomics are executed once");

    for (i = 0; i < 6; ++i) {
        here    = (struct iovec){mine, AREA / 2};
        there   = (struct iovec){(void*)side->area, AREA / 2};
        comp[0] = (comp_t){0, UCS_OK};
        fill(mine, i, AREA / 2);
        POST(status, np_vlink_move(NP_DIR_PUT, &link_, key, &iov, 1,
                                   side->area, &comp[0]));
        np_vport_progress(port);
        fail_one(i);
        ok = (status == UCS_INPROGRESS) && wait_until(is_done, &comp[0]) &&
             (comp[0].status == UCS_OK);
        memset(mine, 0, AREA / 2);
        ok = ok && (process_vm_readv(pid, &here, 1, &there, 1, 0) ==
                    (ssize_t)(AREA / 2)) && is_right(mine, i, AREA / 2);
        check(ok, "a put that is interrupted");

        comp[0] = (comp_t){0, UCS_OK};
        memset(mine, 0, AREA / 2);
        POST(status, np_vlink_move(NP_DIR_GET, &link_, key, &iov, 1,
                                   side->area, &comp[0]));
        np_vport_progress(port);
        fail_one(i);
        ok = (status == UCS_INPROGRESS) && wait_until(is_done, &comp[0]) &&
             (comp[0].status == UCS_OK) && is_right(mine, i, AREA / 2);
        check(ok, "a get that is interrupted");
    }
    test_small(side, key, pid);
    epoch = (link_.conn == NULL) ? 0 : (link_.conn->epoch - epoch);
    check(epoch > 0, "queue pairs have been replaced");
    printf("# %u times\n", epoch);
}

/* Links that are closed as soon as their messages are sent, while their queue
 * pairs fail */
static void test_closing(const side_t *side)
{
    uint64_t count = shared->received, seed;
    ucs_status_t status = UCS_OK;
    static uint8_t data[4000];
    np_vlink_t link;
    unsigned i, j;

    shared->wrong = 0;
    for (i = 0; i < 6; ++i) {
        np_vlink_init(&link, port, &side->dev, &side->port);
        for (j = 0; (j < 15) && (status == UCS_OK); ++j) {
            seed = ++count;
            fill(data, seed, j * 200);
            POST(status, np_vlink_am_short(&link, seed % 32, seed, data,
                                           j * 200));
            if (j == (i * 3)) {
                fail_conn(link.conn);
            }
        }
        np_vlink_close(&link);
    }
    check((status == UCS_OK) && wait_until(has_received, &count) &&
          (shared->received == count) && (shared->wrong == 0),
          "messages of links that are closed arrive once");
}

static int has_conns(const void *arg)
{
    return shared->conns == *(const unsigned*)arg;
}

/* A link that has been answered, without asking the device about the answers, and
 * is closed: the target forgets it */
static void test_forgetting(const side_t *side)
{
    const unsigned one = 1;
    ucs_status_t status;
    np_vlink_t link;
    unsigned i;

    check(wait_until(has_conns, &one), "nobody else is connected");
    np_vlink_init(&link, port, &side->dev, &side->port);
    POST(status, np_vlink_am_short(&link, 1, 1, NULL, 0));
    for (i = 0; (status == UCS_OK) && (link.conn != NULL) &&
                (i < (2 * link.conn->credits)); ++i) {
        POST(status, np_vlink_am_short(&link, 1, 1, NULL, 0));
    }
    np_vlink_close(&link);
    check((status == UCS_OK) && wait_until(has_conns, &one),
          "a link that is closed is forgotten");
}

static int has_returned(const void *arg)
{
    return shared->returned >= *(const uint64_t*)arg;
}

static int is_swapping(const void *arg)
{
    return shared->swaps == *(const int*)arg;
}

/* Memory that its program takes away and brings back all the time */
static void test_swapper(const side_t *side, np_key_t *key, uint8_t *mine)
{
    static const size_t sizes[] = {8, 5000, 40000, 500000, SWAPPED};
    int on = 1, off = 0, ok = 1;
    comp_t comp[2];
    unsigned i, j;
    ucs_status_t status;
    np_iov_t iov;
    double end;

    shared->swapped = 0;
    shared->swap    = 1;
    ok              = wait_until(is_swapping, &on);
    end             = now() + LIMIT;
    for (j = 0; ok && (now() < end) && ((j < 10) || (shared->swapped < 200));
         ++j) {
        for (i = 0; ok && (i < ucs_static_array_size(sizes)); ++i) {
            /* a put by messages begins anew with each queue pair */
            if ((port->config.break_every != 0) &&
                (sizes[i] > (port->config.break_every * 2048))) {
                continue;
            }
            memset(comp, 0, sizeof(comp));
            iov = (np_iov_t){mine, sizes[i]};
            fill(mine, i + j, sizes[i]);
            POST(status, np_vlink_move(NP_DIR_PUT, &link_, key, &iov, 1,
                                       side->area, &comp[0]));
            ok = (status == UCS_INPROGRESS) && wait_until(is_done, &comp[0]) &&
                 (comp[0].status == UCS_OK);
            memset(mine, 0, sizes[i]);
            POST(status, np_vlink_move(NP_DIR_GET, &link_, key, &iov, 1,
                                       side->area, &comp[1]));
            ok = ok && (status == UCS_INPROGRESS) &&
                 wait_until(is_done, &comp[1]) && (comp[1].status == UCS_OK) &&
                 is_right(mine, i + j, sizes[i]);
        }
    }
    check(ok && (shared->swapped >= 200),
          "puts and gets of memory that its program swaps");
    shared->swap = 0;
    (void)wait_until(is_swapping, &off);
}

static int is_alone(const void *arg)
{
    return !shared->connects;
}

/* Both sides connect at once, while datagrams get lost, or come twice */
static void test_handshake(const side_t *side, int only)
{
    static const unsigned mischiefs[] = {0, NP_HELLO_LOSE, NP_HELLO_TWICE,
                                         NP_HELLO_LOSE | NP_HELLO_TWICE};
    np_vlink_t links[LINKS];
    uint64_t count, back;
    char what[64];
    unsigned i;

    for (i = 0; i < ucs_static_array_size(mischiefs); ++i) {
        if ((only >= 0) && (mischiefs[i] != (unsigned)only)) {
            continue;
        }
        count                 = shared->received + LINKS;
        back                  = shared->returned + LINKS;
        port->config.mischief = shared->mischief = mischiefs[i];
        shared->connect       = 1;
        snprintf(what, sizeof(what), "links both ways at once, mischief %u", i);
        check(talk(links, side) && wait_until(has_received, &count) &&
              wait_until(has_returned, &back) &&
              (shared->received == count) && (shared->returned == back), what);
        shared->connect = 0;
        close_links(links);
        (void)wait_until(is_alone, NULL);
    }
    port->config.mischief = shared->mischief = 0;
}

/* An address whose process is not there any more; the next one has its place */
static void test_stranger(const side_t *side)
{
    np_vport_addr_t addr = side->port;
    double start         = now();
    np_vlink_t links[1];

    addr.cookie ^= 1;
    np_vlink_init(&links[0], port, &side->dev, &addr);
    while ((down == UCS_OK) && (now() < (start + LIMIT))) {
        (void)np_vlink_am_short(&links[0], 1, 1, NULL, 0);
        np_vport_progress(port);
    }
    check((down != UCS_OK) && ((now() - start) < (LIMIT / 2)),
          "who does not know the cookie is refused");
    down = UCS_OK;
    np_vlink_close(&links[0]);
}

static int is_computing(const void *arg)
{
    return shared->computes == *(const int*)arg;
}

/* All of it while the target does not look at its port: its service thread
 * answers, and leaves active messages to it */
static void test_computing(const side_t *side, np_key_t *key, pid_t pid,
                           uint8_t *mine)
{
    uint64_t count = shared->received, seed;
    ucs_status_t status = UCS_OK;
    uint8_t data[100];
    int on = 1, off = 0, i;
    size_t len;

    shared->sum     = 0;
    shared->compute = 1;
    check(wait_until(is_computing, &on), "the target computes");
    for (i = 0; (i < 8) && (status == UCS_OK); ++i) {
        seed = i + 1;
        fill(data, seed, sizeof(data));
        POST(status, np_vlink_am_short(&link_, seed % 32, seed, data,
                                       sizeof(data)));
    }
    check(status == UCS_OK, "active messages are taken");
    test_small(side, key, pid);
    for (len = 1; len <= (1ul << 20); len *= 31) {
        test_move(side, key, pid, mine, len, len % 4093);
    }
    test_atomic(side, key);
    check(flush(), "flush");
    check(shared->received == count, "it has handled no active message");
    shared->compute = 0;
    count          += i;
    check(wait_until(is_computing, &off) && wait_until(has_received, &count) &&
          (shared->received == count) && (shared->sum == 36) &&
          (shared->wrong == 0), "until it looks");
}

static int is_quiet(const void *arg)
{
    return shared->is_quiet;
}

static unsigned replaced(const np_vlink_t *links)
{
    unsigned i, count = link_.conn->epoch;

    for (i = 0; i < FLOODS; ++i) {
        count += links[i].conn->epoch;
    }
    return count;
}

/* More messages than the target has buffers, while it computes, of links that have
 * room for more: nobody wakes its thread, and no request could. In the end queue
 * pairs that are silent would be replaced. */
static void test_flood(const side_t *side, np_key_t *key, pid_t pid,
                       uint8_t *mine)
{
    ucs_status_t status = UCS_OK;
    int on              = 1, off = 0;
    np_vlink_t links[FLOODS];
    unsigned i, sent, total, epochs;
    uint64_t count;

    for (i = 0; i < FLOODS; ++i) {
        np_vlink_init(&links[i], port, &side->dev, &side->port);
        POST(status, np_vlink_am_short(&links[i], 1, 1, NULL, 0));
    }
    if ((status != UCS_OK) || (link_.conn == NULL)) {
        check(0, "all links work"); /* what comes now looks at their queue pairs */
        goto out;
    }

    total           = FLOODS * (ucs_max(links[0].conn->credits, 3u) - 2);
    count           = shared->received + total;
    epochs          = replaced(links);
    shared->compute = 1;
    check((status == UCS_OK) && wait_until(is_computing, &on) &&
          wait_until(is_quiet, NULL), "the target computes again");
    for (sent = 0; (status == UCS_OK) && (sent < total); ++sent) {
        status = np_vlink_am_short(&links[sent % FLOODS], 1, 1, NULL, 0);
    }
    check((status == UCS_OK) && (sent > port->recv_buffers),
          "more messages than it has buffers");
    test_move(side, key, pid, mine, 100000, 1);
    if (port->config.break_every == 0) {
        check(replaced(links) == epochs, "its thread was woken in time");
    }
    shared->compute = 0;
    check(wait_until(is_computing, &off) && wait_until(has_received, &count),
          "it gets them all");
out:
    for (i = 0; i < FLOODS; ++i) {
        np_vlink_close(&links[i]);
    }
}

int main(int argc, char **argv)
{
    np_vport_config_t config;
    side_t side, ours;
    np_key_t *key;
    int fd, status;
    uint8_t *mine;
    double end;
    size_t len;
    pid_t pid;

    if (!find_port(&config)) {
        printf("1..0 # SKIP no RNIC port is up\n");
        return 0;
    }

    config.break_every = (argc > 1) ? atoi(argv[1]) : 0;
    shared             = share_memory(sizeof(*shared));
    pid                = start_target(target, &config, &fd);
    is_initiator       = 1;
    open_port(&config, on_am);
    mine = make_area(&ours, AREA);
    key  = link_sides(fd, &ours, &side);
    test_am();
    test_small(&side, key, pid);
    for (len = 1; len <= (4ul << 20); len *= 7) {
        test_move(&side, key, pid, mine, len, len % 4093);
    }
    test_move(&side, key, pid, mine, 5 << 20, 1);
    test_atomic(&side, key);
    check(flush(), "flush");
    test_computing(&side, key, pid, mine);
    test_failing(&side, key, pid, mine);
    test_closing(&side);
    test_forgetting(&side);
    test_flood(&side, key, pid, mine);
    test_swapper(&side, key, mine);
    test_handshake(&side, (argc > 2) ? atoi(argv[2]) : -1);
    test_stranger(&side);
    test_bad(&side, key, mine);
    check(down == UCS_OK, "the link is as it was");

    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    end = now() + LIMIT;
    np_vlink_check(&link_);
    while ((down == UCS_OK) && (now() < end)) {
        np_vport_progress(port);
    }
    check(down != UCS_OK, "the death of the target is noticed");
    printf("# after %.1f s: %s\n", LIMIT - (end - now()),
           ucs_status_string(down));

    leave_sides(key);
    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}
