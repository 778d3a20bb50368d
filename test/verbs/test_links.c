/* SPDX-License-Identifier: BSD-3-Clause */
/* Links whose queue pairs fail, that are closed or forgotten, of which there
 * are many at once, or that lead to a stranger. */

#define _GNU_SOURCE
#include "scene.h"

#include "nprdma/proto/ep.h"

#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

/* Links that together have more credit than there are buffers */
#define FLOODS  12


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

static uint32_t epoch(void)
{
    return (link_.conn == NULL) ? 0 : link_.conn->epoch;
}

static void test_failing_messages(void)
{
    uint64_t count      = shared->received + 300, sum = 0, seed;
    ucs_status_t status = UCS_OK;
    uint8_t data[4096];
    unsigned i;

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
    TAP_CHECK((status == UCS_OK) && wait_until(has_received, &count) &&
              flush() && (shared->received == count) && (shared->sum == sum) &&
              (shared->wrong == 0),
              "active messages arrive once, in spite of it");
}

static void test_failing_atomics(void)
{
    uint64_t value, was, results[20];
    struct iovec here = {&value, 8}, there = {(void*)(side.area + 64), 8};
    comp_t comp[20]   = {};
    ucs_status_t status;
    unsigned i;
    int ok;

    ok  = process_vm_readv(target_pid, &here, 1, &there, 1, 0) == 8;
    was = value;
    for (i = 0; (i < 20) && ok; ++i) {
        POST(status, np_ep_atomic(&link_.flight, key,
                                  &(np_atomic_t){.addr = side.area + 64,
                                                 .value = 1,
                                                 .op = NP_ATOMIC_ADD,
                                                 .size = 8},
                                  &results[i], &comp[i]));
        ok = status == UCS_INPROGRESS;
        if ((i % 4) == 3) {
            fail_one(i / 4);
        }
    }
    for (i = 0; (i < 20) && ok; ++i) {
        ok = goes_well(UCS_INPROGRESS, &comp[i]) && (comp[i].count == 1) &&
             (results[i] == (was + i));
    }
    TAP_CHECK(ok &&
              (process_vm_readv(target_pid, &here, 1, &there, 1, 0) == 8) &&
              (value == (was + 20)), "atomics are executed once");
}

/* Half of the area goes, and a queue pair fails meanwhile */
static int move_interrupted(np_dir_t dir, unsigned i)
{
    np_iov_t iov = {area, AREA / 2};
    comp_t comp  = {0, UCS_OK};
    ucs_status_t status;

    POST(status, np_ep_move(dir, &link_.flight, key, &iov, 1, side.area,
                            &comp));
    np_vport_progress(port);
    fail_one(i);
    return goes_well(status, &comp);
}

static void test_failing_move(unsigned i)
{
    struct iovec here  = {area, AREA / 2};
    struct iovec there = {(void*)side.area, AREA / 2};
    int ok;

    fill(area, i, AREA / 2);
    ok = move_interrupted(NP_DIR_PUT, i);
    memset(area, 0, AREA / 2);
    TAP_CHECK(ok && (process_vm_readv(target_pid, &here, 1, &there, 1, 0) ==
                     (ssize_t)(AREA / 2)) && is_right(area, i, AREA / 2),
              "a put that is interrupted");

    memset(area, 0, AREA / 2);
    TAP_CHECK(move_interrupted(NP_DIR_GET, i) && is_right(area, i, AREA / 2),
              "a get that is interrupted");
}

/* Queue pairs that fail between operations and in the middle of them */
void test_failing(void)
{
    const uint32_t before = epoch();
    unsigned i;

    test_failing_messages();
    test_failing_atomics();
    for (i = 0; i < 6; ++i) {
        test_failing_move(i);
    }
    test_small();
    TAP_CHECK(epoch() > before, "queue pairs have been replaced");
    printf("# %u times\n", epoch() - before);
}

static int has_skipped(const void *arg)
{
    return shared->skip == 0;
}

/* Messages of which there were so many that their numbers begin anew, with puts
 * at the beginning alone: what waits for puts does not wait for ever */
void test_numbers(void)
{
    const uint32_t count = 1u << 30;
    comp_t comp          = {0};
    uint64_t received, value = 1;
    ucs_status_t status  = UCS_OK;
    int ok               = 1, j;
    unsigned i;

    if ((port->config.break_every != 0) || (link_.conn == NULL)) {
        return; /* something is under way */
    }

    POST(status, np_ep_put_copied(&link_.flight, key, &value, 8,
                                  side.area + 128));
    for (i = 0; ok && (i < 5); ++i) {
        ok           = (status == UCS_OK) && flush();
        shared->skip = count;
        ok           = ok && wait_until(has_skipped, NULL);
        skip_numbers(link_.conn, count);
        received     = shared->received + 200;
        for (j = 0; ok && (j < 200); ++j) {
            POST(status, np_vlink_am_short(&link_, 1, 1, NULL, 0));
            ok = status == UCS_OK;
        }
        ok = ok && wait_until(has_received, &received);
        POST(status, np_ep_flush(&link_.flight, &comp));
        ok = ok && ((status == UCS_OK) || (status == UCS_INPROGRESS));
        np_ep_fence(&link_.flight);
        POST(status, np_vlink_am_short(&link_, 1, 1, NULL, 0));
    }
    TAP_CHECK(ok && (status == UCS_OK), "message numbers begin anew");
    test_move(AREA / 4, 1);
    test_move(100, 1);
}

/* Links of which each sends now and then: together they fill what they share,
 * and none has reason to ask for a completion */
void test_crowd(void)
{
    const unsigned links = 24, rounds = 50;
    static uint8_t data[1000];
    uint64_t received    = shared->received + (links * rounds);
    ucs_status_t status  = UCS_OK;
    np_vlink_t crowd[24];
    unsigned i, stalls   = 0;
    double start;

    for (i = 0; i < links; ++i) {
        np_vlink_init(&crowd[i], port, &side.dev, &side.port);
    }
    for (i = 0; (status == UCS_OK) && (i < (links * rounds)); ++i) {
        fill(data, i, sizeof(data));
        start = now();
        POST(status, np_vlink_am_short(&crowd[i % links], i % 32, i, data,
                                       sizeof(data)));
        stalls += (i >= links) && ((now() - start) > 0.2);
    }
    TAP_CHECK((status == UCS_OK) && wait_until(has_received, &received) &&
              (shared->wrong == 0) &&
              ((stalls < 3) || (port->config.break_every != 0)),
              "many links do not wait for each other's completions");
    printf("# %u stalls\n", stalls);
    for (i = 0; i < links; ++i) {
        np_ep_close(&crowd[i].flight);
    }
}

/* Links that are closed as soon as their messages are sent, while their queue
 * pairs fail */
void test_closing(void)
{
    uint64_t count = shared->received, seed;
    ucs_status_t status = UCS_OK;
    static uint8_t data[4000];
    np_vlink_t link;
    unsigned i, j;

    shared->wrong = 0;
    for (i = 0; i < 6; ++i) {
        np_vlink_init(&link, port, &side.dev, &side.port);
        for (j = 0; (j < 15) && (status == UCS_OK); ++j) {
            seed = ++count;
            fill(data, seed, j * 200);
            POST(status, np_vlink_am_short(&link, seed % 32, seed, data,
                                           j * 200));
            if (j == (i * 3)) {
                fail_conn(link.conn);
            }
        }
        np_ep_close(&link.flight);
    }
    TAP_CHECK((status == UCS_OK) && wait_until(has_received, &count) &&
              (shared->received == count) && (shared->wrong == 0),
              "messages of links that are closed arrive once");
}

static int has_conns(const void *arg)
{
    return shared->conns == *(const unsigned*)arg;
}

/* A link that has been answered, without asking the device about the answers,
 * and is closed: the target forgets it */
void test_forgetting(void)
{
    const unsigned one = 1;
    ucs_status_t status;
    np_vlink_t link;
    unsigned i;

    TAP_CHECK(wait_until(has_conns, &one), "nobody else is connected");
    np_vlink_init(&link, port, &side.dev, &side.port);
    POST(status, np_vlink_am_short(&link, 1, 1, NULL, 0));
    for (i = 0; (status == UCS_OK) && (link.conn != NULL) &&
                (i < (2 * link.conn->credits)); ++i) {
        POST(status, np_vlink_am_short(&link, 1, 1, NULL, 0));
    }
    np_ep_close(&link.flight);
    TAP_CHECK((status == UCS_OK) && wait_until(has_conns, &one),
              "a link that is closed is forgotten");
}

static int is_quiet(const void *arg)
{
    return shared->is_quiet;
}

/* Without progress, which would make room: again only while a service thread of
 * ours has the port */
static ucs_status_t send_in_turn(np_vlink_t *link)
{
    const double end = now() + 1;
    ucs_status_t status;

    do {
        status = np_vlink_am_short(link, 1, 1, NULL, 0);
    } while ((status == UCS_ERR_NO_RESOURCE) && (now() < end));
    return status;
}

static unsigned replaced(const np_vlink_t *links)
{
    unsigned i, count = link_.conn->epoch;

    for (i = 0; i < FLOODS; ++i) {
        count += links[i].conn->epoch;
    }
    return count;
}

/* More messages than the target has buffers, while it computes, of links that
 * have room for more: nobody wakes its thread, and no request could. In the end
 * queue pairs that are silent would be replaced. */
void test_flood(void)
{
    ucs_status_t status = UCS_OK;
    int on              = 1, off = 0;
    np_vlink_t links[FLOODS];
    unsigned i, sent, total, epochs;
    uint64_t count;

    for (i = 0; i < FLOODS; ++i) {
        np_vlink_init(&links[i], port, &side.dev, &side.port);
        POST(status, np_vlink_am_short(&links[i], 1, 1, NULL, 0));
    }
    if ((status != UCS_OK) || (link_.conn == NULL)) {
        /* what comes now looks at their queue pairs */
        TAP_CHECK(0, "all links work");
        goto out;
    }

    total           = FLOODS * (ucs_max(links[0].conn->credits, 3u) - 2);
    count           = shared->received + total;
    epochs          = replaced(links);
    shared->compute = 1;
    TAP_CHECK((status == UCS_OK) && wait_until(is_computing, &on) &&
              wait_until(is_quiet, NULL), "the target computes again");
    for (sent = 0; (status == UCS_OK) && (sent < total); ++sent) {
        status = send_in_turn(&links[sent % FLOODS]);
    }
    TAP_CHECK((status == UCS_OK) && (sent > port->recv_buffers),
              "more messages than it has buffers");
    test_move(100000, 1);
    if (port->config.break_every == 0) {
        TAP_CHECK(replaced(links) == epochs, "its thread was woken in time");
    }
    shared->compute = 0;
    TAP_CHECK(wait_until(is_computing, &off) &&
              wait_until(has_received, &count),
              "it gets them all");
out:
    for (i = 0; i < FLOODS; ++i) {
        np_ep_close(&links[i].flight);
    }
}

static int has_returned(const void *arg)
{
    return shared->returned >= *(const uint64_t*)arg;
}

static int is_alone(const void *arg)
{
    return !shared->connects;
}

/* Both sides connect at once, while datagrams get lost, or come twice */
void test_handshake(int only)
{
    static const unsigned mischiefs[] = {0, NP_HELLO_LOSE, NP_HELLO_TWICE,
                                         NP_HELLO_LOSE | NP_HELLO_TWICE};
    np_vlink_t links[LINKS];
    uint64_t count, back;
    unsigned i;

    for (i = 0; i < ucs_static_array_size(mischiefs); ++i) {
        if ((only >= 0) && (mischiefs[i] != (unsigned)only)) {
            continue;
        }
        count                 = shared->received + LINKS;
        back                  = shared->returned + LINKS;
        port->config.mischief = shared->mischief = mischiefs[i];
        shared->connect       = 1;
        TAP_CHECK(talk(links) && wait_until(has_received, &count) &&
                  wait_until(has_returned, &back) &&
                  (shared->received == count) && (shared->returned == back),
                  "links both ways at once, mischief %u", i);
        shared->connect = 0;
        close_links(links);
        (void)wait_until(is_alone, NULL);
    }
    port->config.mischief = shared->mischief = 0;
}

/* An address whose process is not there any more; the next one has its place */
void test_stranger(void)
{
    np_vport_addr_t addr = side.port;
    double start         = now();
    np_vlink_t link;

    addr.cookie ^= 1;
    np_vlink_init(&link, port, &side.dev, &addr);
    while ((down == UCS_OK) && (now() < (start + LIMIT))) {
        (void)np_vlink_am_short(&link, 1, 1, NULL, 0);
        np_vport_progress(port);
    }
    TAP_CHECK((down != UCS_OK) && ((now() - start) < (LIMIT / 2)),
              "who does not know the cookie is refused");
    down = UCS_OK;
    np_ep_close(&link.flight);
}
