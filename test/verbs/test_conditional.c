/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conditional writes: a put waits in the engine until the key of its sink has
 * come, in READY messages that bear its name (docs/design/protocol.md,
 * "Leases"). What happens when these come for nobody, for another life, too
 * often or not in order, and when either end goes meanwhile. Prints TAP. The
 * first RNIC port is used.
 */

#define _GNU_SOURCE
#include "sides.h"

#include "../engine/tap.h"

#include "nprdma/proto/ep.h"
#include "nprdma/face/rnic.h"
#include "nprdma/svc/service.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#define AREA  (2ul << 20)

unsigned tap_count, tap_failures;

static side_t theirs;
static np_key_t *key;
static uint8_t *mine;
static pid_t target_pid;


static int target(const np_vport_config_t *config, int fd)
{
    side_t side, other;

    open_port(config, NULL);
    make_area(&side, AREA);
    if (!exchange_sides(fd, &side, &other)) {
        return 1;
    }
    np_service_start();
    for (;;) {
        np_vport_progress(port);
    }
}

static int start_put(np_vlink_t *link, comp_t *comp, uint64_t seed)
{
    const np_iov_t iov = {mine, AREA};
    ucs_status_t status;

    *comp = (comp_t){0, UCS_OK};
    fill(mine, seed, AREA);
    POST(status, np_ep_move(NP_DIR_PUT, &link->flight, key, &iov, 1,
                            theirs.area, comp));
    return status == UCS_INPROGRESS;
}

/* Between these no service thread has our port: none takes a key for us, and
 * what we see of an operation stays as it is */
static np_turn_t *hold_port(void)
{
    return np_turn_wait(&port->turn);
}

static void release_port(np_turn_t *turn)
{
    np_turn_leave(&turn);
}

/* The put has ended well, and this is what the target has */
static int put_is_right(const comp_t *comp, uint64_t seed)
{
    static uint8_t seen[AREA];
    struct iovec here = {seen, AREA}, there = {(void*)theirs.area, AREA};

    return wait_until(is_done, comp) && (comp->status == UCS_OK) &&
           (process_vm_readv(target_pid, &here, 1, &there, 1, 0) ==
            (ssize_t)AREA) && is_right(seen, seed, AREA);
}

/* The name of what this link does */
static uint32_t name_of(const np_vlink_t *link)
{
    return ucs_list_head(&link->flight.ops, np_op_t, list)->name;
}

/* A key comes, as if the target had sent it: of nothing, so that a write to it
 * would be seen */
static void bring_key(np_conn_t *conn, uint32_t name, uint64_t offset,
                      uint64_t len)
{
    np_vctl_t ctl = {
        .msg.kind    = NP_VMSG_READY,
        .msg.ack     = conn->tx_acked,
        .body.op     = name,
        .body.addr   = 4096,
        .body.offset = offset,
        .body.len    = len,
        .body.rkey   = 0xdead
    };

    np_conn_received(conn, &ctl.msg, sizeof(ctl));
}

static void test_names(void)
{
    uint32_t first, second;
    np_turn_t *turn;
    comp_t comp;

    turn = hold_port();
    TAP_CHECK(start_put(&link_, &comp, 1), "a put waits for its key");
    first = name_of(&link_);
    bring_key(link_.conn, first + 12345, 0, AREA);
    release_port(turn);
    TAP_CHECK(put_is_right(&comp, 1), "a key for an unknown name is ignored");
    turn = hold_port();
    bring_key(link_.conn, first, 0, AREA);
    TAP_CHECK(start_put(&link_, &comp, 2), "a second put");
    second = name_of(&link_);
    TAP_CHECK((second != first) && (np_op_find(&link_.flight, first) == NULL),
              "has another name");
    bring_key(link_.conn, first, 0, AREA);
    release_port(turn);
    TAP_CHECK(put_is_right(&comp, 2), "and takes no key of the first one");
}

/* All that the target can say comes before we have registered anything */
static void test_early(void)
{
    np_turn_t *turn = hold_port();
    comp_t comp;
    np_rop_t *op;

    TAP_CHECK(start_put(&link_, &comp, 3), "a put whose source is not ready");
    usleep(200000); /* the target needs no progress of ours */
    op = ucs_list_head(&link_.flight.ops, np_rop_t, super.list);
    TAP_CHECK(op->stream.moved == 0, "nothing of it has moved");
    release_port(turn);
    TAP_CHECK(put_is_right(&comp, 3), "its keys are held until it is");
}

static int is_down(const void *arg)
{
    return np_flight_is_down(&((const np_vlink_t*)arg)->flight);
}

/* A link of its own whose put gets a wrong key: the link ends, and what else
 * there is goes on */
static void test_wrong(const char *name, uint64_t offset, uint64_t len,
                       unsigned times)
{
    np_vlink_t link;
    comp_t comp, other;
    np_turn_t *turn;
    unsigned i;

    np_vlink_init(&link, port, &theirs.dev, &theirs.port);
    turn = hold_port();
    if (!start_put(&link, &comp, 4)) {
        TAP_CHECK(0, "%s: a put", name);
        release_port(turn);
        return;
    }
    for (i = 0; (i < times) && !np_flight_is_down(&link.flight); ++i) {
        bring_key(link.conn, name_of(&link), offset + (i * len), len);
    }
    release_port(turn);
    TAP_CHECK(is_down(&link), "%s ends the connection", name);
    while (!is_done(&comp)) {
        np_vport_progress(port);
    }
    TAP_CHECK((comp.count == 1) && (comp.status != UCS_OK),
              "and its put, with an error");
    down = UCS_OK;
    np_ep_close(&link.flight);
    TAP_CHECK(start_put(&link_, &other, 5) && put_is_right(&other, 5),
              "another link goes on");
}

static void test_cancel(void)
{
    np_vlink_t link;
    comp_t comp, other;
    unsigned i;

    for (i = 0; i < 20; ++i) {
        np_vlink_init(&link, port, &theirs.dev, &theirs.port);
        if (!start_put(&link, &comp, 6)) {
            break;
        }
        usleep(i * 500); /* its keys come sooner or later */
        if (i % 2) {
            np_vport_progress(port);
        }
        np_ep_cancel(&link.flight, UCS_ERR_CANCELED);
        np_ep_close(&link.flight);
        if ((comp.count != 1) || ((comp.status != UCS_OK) &&
                                  (comp.status != UCS_ERR_CANCELED))) {
            break;
        }
    }
    TAP_CHECK(i == 20, "puts that are given up end at once: %u of 20", i);
    TAP_CHECK(start_put(&link_, &other, 7) && put_is_right(&other, 7),
              "another link goes on");
}

static void test_death(void)
{
    double end;
    comp_t comp;

    kill(target_pid, SIGSTOP);
    TAP_CHECK(start_put(&link_, &comp, 8), "a put to a target that has stopped");
    kill(target_pid, SIGKILL);
    waitpid(target_pid, NULL, 0);
    for (end = now() + LIMIT; !is_done(&comp) && (now() < end);) {
        np_vport_progress(port);
    }
    TAP_CHECK((comp.count == 1) && (comp.status != UCS_OK),
              "its death ends the put, with an error");
}

int main(void)
{
    np_vport_config_t config;
    side_t ours;
    int fd;

    if (!find_port(&config)) {
        printf("1..0 # SKIP no RNIC port is up\n");
        return 0;
    }

    target_pid = start_target(target, &config, &fd);
    open_port(&config, NULL);
    mine = make_area(&ours, AREA);
    key  = link_sides(fd, &ours, &theirs);
    test_names();
    test_early();
    test_wrong("a key that is not the next", AREA / 2, 4096, 1);
    test_wrong("a key beyond the transfer", 0, AREA + 1, 1);
    test_wrong("a key of nothing", 0, 0, 1);
    test_wrong("one key more than are held", 0, 4096, NP_STREAM_DEPTH + 1);
    test_cancel();
    test_death();

    leave_sides(key);
    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}
