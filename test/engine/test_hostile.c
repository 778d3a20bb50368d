/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that writes what no peer writes: its connection ends, ours do not. */

#include "pair.h"
#include "tap.h"

#include "nprdma/engine.h"
#include "nprdma/dev/soft/dma.h"
#include "nprdma/dev/host.h"
#include "nprdma/dev/soft/sock.h"
#include "nprdma/mem/key.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/mem/table.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/rma.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>


/* A slot with this word, in the data or the control ring */
static void hostile_slot(const char *name, int ctl, unsigned kind, uint32_t len,
                         uint32_t offset)
{
    np_port_t *target = pair_port(), *bad = pair_port();
    np_port_t *good   = pair_port();
    np_link_t bad_link, good_link;
    np_ring_tx_t *ring;
    np_slot_t *slot;

    pair_received = 0;
    pair_link(bad, target, &bad_link);
    pair_link(good, target, &good_link);
    pair_send(&bad_link);
    pair_send(&good_link);
    TAP_CHECK(pair_wait_received(target, bad, 2), "%s: both can talk", name);

    ring         = ctl ? &bad_link.ctl : &bad_link.data;
    slot         = np_ring_tx_slot(ring);
    memset(slot->data, 0xff, sizeof(slot->data));
    slot->offset = offset;
    if ((kind == NP_SLOT_PUT) || (kind == NP_SLOT_GET)) {
        slot->rma.offset = offset;
    }
    np_ring_tx_publish(ring, slot, len, kind, 0);
    np_link_notify(&bad_link);
    TAP_CHECK(pair_wait_down(target, bad, &bad_link),
              "%s: its connection ends", name);

    pair_send(&good_link);
    TAP_CHECK(pair_wait_received(target, good, 3), "%s: others go on", name);

    np_ep_close(&bad_link.flight);
    np_ep_close(&good_link.flight);
    np_proto_close(bad);
    np_proto_close(good);
    np_proto_close(target);
}

/* A slot that was good when it was checked, and is not when it is served: both
 * look at it once */
static void hostile_changed_slot(void)
{
    np_port_t *target = pair_port(), *bad = pair_port();
    np_slot_t slot    = {.rma = {.offset = 0xffffff00}};
    np_link_t link;

    pair_received = 0;
    pair_link(bad, target, &link);
    pair_send(&link);
    TAP_CHECK(pair_wait_received(target, bad, 1), "changed slot: connected");
    slot.rma.addr = (uintptr_t)&pair_received;
    np_carry_serve(target->peers[0], &slot,
                   np_slot_word(0, 64, NP_SLOT_GET, 0));
    TAP_CHECK(slot.rma.status == UCS_ERR_INVALID_PARAM,
              "changed slot: refused, not for want of the address: %d",
              slot.rma.status);
    np_ep_close(&link.flight);
    np_proto_close(bad);
    np_proto_close(target);
}

/* Who has taken us in goes, before we have read his answer: the first transfer
 * notices that, in the middle of it, by asking for its segment. It must end. */
static void hostile_gone_meanwhile(void)
{
    ucs_status_t done = UCS_INPROGRESS, status;
    np_port_t *target = pair_port(), *port = pair_port();
    uint8_t bytes[64] = {0};
    np_iov_t iov      = {bytes, sizeof(bytes)};
    np_packed_key_t packed;
    np_key_t *key;
    np_link_t link;
    unsigned i;
    void *page;

    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    np_key_pack_segment(&packed, 4711, (uintptr_t)page, 4096);
    TAP_CHECK(np_key_unpack(&packed, &key) == UCS_OK, "gone: a key");
    pair_link(port, target, &link);
    TAP_CHECK(np_link_connect(&link) == UCS_OK, "gone: connected");
    for (i = 0; (i < PROGRESS_MAX) && !link.shm->accepted; ++i) {
        pair_progress(target);
    }
    np_port_arm(target); /* so that it must be told */
    np_proto_close(target);

    status = np_ep_move(NP_DIR_PUT, &link.flight, key, &iov, 1,
                        (uintptr_t)page, &done);
    for (i = 0; (i < PROGRESS_MAX) && (done == UCS_INPROGRESS); ++i) {
        pair_progress(port);
    }
    TAP_CHECK((status != UCS_INPROGRESS) || (done != UCS_INPROGRESS),
              "gone: the transfer ends (%d, %d)", status, done);
    np_ep_close(&link.flight);
    np_key_release(key);
    np_proto_close(port);
    munmap(page, 4096);
}

/* It says that it moves, and never that it has moved */
static void hostile_moving(void)
{
    np_port_t *good = pair_port();
    np_link_t good_link;
    pair_t pair;

    pair_open("always moving", &pair);
    pair_link(good, pair.target, &good_link);
    pair_send(&good_link);
    TAP_CHECK(pair_wait_received(pair.target, good, 2),
              "always moving: another one");

    atomic_store(&pair.link.shm->moving[NP_MOVER_INITIATOR].word, 1);
    np_drain(0, 0);
    TAP_CHECK(atomic_load(&pair.peer->drain.is_over),
              "always moving: it is given up");
    TAP_CHECK(np_moving_is_ended(&pair.link.drain.own[NP_MOVER_INITIATOR]),
              "always moving: and told so");
    TAP_CHECK(pair_wait_down(pair.target, pair.initiator, &pair.link),
              "always moving: its connection ends");
    np_drain(0, 0);

    pair_send(&good_link);
    TAP_CHECK(pair_wait_received(pair.target, good, 3),
              "always moving: others go on");
    TAP_CHECK(!np_moving_is_ended(&good_link.drain.own[NP_MOVER_INITIATOR]),
              "always moving: nobody else is given up");
    np_ep_close(&good_link.flight);
    np_proto_close(good);
    pair_close(&pair);
}

/* It writes the words of others */
static void hostile_moving_ours(void)
{
    np_moving_own_t *own;
    np_moving_t *shared;
    pair_t pair;

    pair_open("our word", &pair);
    own    = &pair.peer->drain.own[NP_MOVER_TARGET];
    shared = &pair.link.shm->moving[NP_MOVER_TARGET];
    atomic_store(&shared->word, 1);
    /* what other threads of ours wait for */
    np_moving_begin(own);
    TAP_CHECK(atomic_load(&own->word) & 1, "our word: odd when we move");
    TAP_CHECK(atomic_load(&shared->word) & 1, "our word: to others too");
    np_moving_end(own);
    TAP_CHECK(!(atomic_load(&own->word) & 1), "our word: even when we do not");
    TAP_CHECK(!(atomic_load(&shared->word) & 1), "our word: to others too");
    pair_close(&pair);
}

/* A unit of an honest peer that was given up in the middle of it: what it has
 * moved counts as not moved, and it moves nothing more */
static void hostile_given_up(void)
{
    static uint8_t from[64], to[64];
    const np_iov_t iov = {from, sizeof(from)};
    np_moving_own_t *own;
    np_ranges_t absent;
    pair_t pair;
    np_dma_t dma;

    pair_open("given up", &pair);
    own = &pair.link.drain.own[NP_MOVER_INITIATOR];
    memset(from, 1, sizeof(from));
    dma = (np_dma_t){
        .dir    = NP_DIR_PUT,
        .direct = to,
        .table  = np_table_get((uintptr_t)to >> NP_ARENA_SHIFT),
        .moving = own
    };
    np_mapper_fault_in((uintptr_t)to, sizeof(to), 1);
    TAP_CHECK((np_dma_move(&dma, &iov, 1, (uintptr_t)to, sizeof(to),
                           &absent) == UCS_OK) && (to[63] == 1),
              "given up: it can move before");

    np_moving_begin(own);
    TAP_CHECK(!np_moving_is_ended(own), "given up: it begins a unit");
    np_drain_give_up(&pair.peer->drain);
    TAP_CHECK(!np_moving_end(own), "given up: what it has moved is not moved");

    memset(from, 2, sizeof(from));
    TAP_CHECK((np_dma_move(&dma, &iov, 1, (uintptr_t)to, sizeof(to),
                           &absent) == UCS_ERR_CONNECTION_RESET) &&
              (to[63] == 1), "given up: it moves nothing more");
    pair_close(&pair);
}

/* Somebody who is stopped, and for how long he is waited for */
static void hostile_stopped(void)
{
    np_process_t process, process_other;
    np_drain_entry_t ours  = {.process = &process};
    np_drain_entry_t other = {.process = &process_other};
    ucs_status_t status    = UCS_INPROGRESS, status_other = UCS_INPROGRESS;
    np_patience_t patience, patience_other;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        raise(SIGSTOP);
        _exit(0);
    }

    waitpid(pid, NULL, WUNTRACED);
    np_process_init(&process);
    process.pid        = pid;
    process.uid        = np_engine.uid;
    process.start_time = np_host_proc_start_time(pid);
    process_other      = process;
    process_other.uid  = np_engine.uid + 1;
    np_patience_init(&patience, &ours);
    np_patience_init(&patience_other, &other);
    while ((status == UCS_INPROGRESS) && (status_other == UCS_INPROGRESS)) {
        status       = np_patience_look(&patience);
        status_other = np_patience_look(&patience_other);
    }
    TAP_CHECK(status_other == UCS_ERR_TIMED_OUT,
              "stopped: of another user, for so long");
    TAP_CHECK(status == UCS_INPROGRESS, "stopped: of our own user, on and on");

    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    while (status == UCS_INPROGRESS) {
        status = np_patience_look(&patience);
    }
    TAP_CHECK(status == UCS_ERR_CONNECTION_RESET, "stopped: not when dead");
}

/* A first message that is none */
static void hostile_hello(const char *name, np_msg_t msg, int with_fds)
{
    np_port_t *target = pair_port(), *good = pair_port();
    np_sock_cred_t cred;
    np_port_addr_t addr;
    np_link_t link;
    int fd = -1, fds[2], i, gone = 0;
    char byte;

    pair_received = 0;
    np_port_get_addr(target, &addr);
    if (np_sock_connect(addr.port_id, &fd, &cred) == UCS_OK) {
        fds[0] = good->shm_fd;
        fds[1] = good->shm_fd;
        np_sock_send(fd, &msg, fds, with_fds);
        for (i = 0; (i < PROGRESS_MAX) && !gone; ++i) {
            pair_progress(target);
            gone = (read(fd, &byte, 1) == 0);
        }
    }
    TAP_CHECK(gone, "%s: refused", name);
    close(fd);

    pair_link(good, target, &link);
    pair_send(&link);
    TAP_CHECK(pair_wait_received(target, good, 1), "%s: others go on", name);
    np_ep_close(&link.flight);
    np_proto_close(good);
    np_proto_close(target);
}

void test_hostile(void)
{
    np_msg_t msg = {
        .type      = NP_MSG_CONNECT,
        .version   = NP_WIRE_VERSION,
        .engine_id = 99,
        .size      = 4096
    };

    hostile_slot("unknown kind", 0, 200, 0, 0);
    hostile_slot("message longer than its slot", 0, NP_SLOT_AM, 60, 0);
    hostile_slot("payload outside", 0, NP_SLOT_AM_LONG, 8, 5000);
    hostile_slot("payload across the end", 0, NP_SLOT_AM_LONG, 64, 4090);
    hostile_slot("offset that wraps", 0, NP_SLOT_AM_LONG, 64, 0xfffffff0);
    hostile_slot("put from outside", 0, NP_SLOT_PUT, 64, 4090);
    hostile_slot("get to outside", 0, NP_SLOT_GET, 64, 0xfffffff0);
    hostile_slot("unknown request", 1, 77, 0, 0);
    hostile_slot("share that is not there", 1, NP_SLOT_SHARE, 0, 1000);

    hostile_moving();
    hostile_moving_ours();
    hostile_given_up();
    hostile_stopped();
    test_hostile_share();
    hostile_changed_slot();
    hostile_gone_meanwhile();

    msg.cookie = np_engine.cookie + 1;
    hostile_hello("wrong cookie", msg, 2);
    msg.cookie = np_engine.cookie;
    hostile_hello("segment that is none", msg, 2);
    hostile_hello("no descriptors", msg, 0);
    msg.size = UINT64_MAX;
    hostile_hello("impossible size", msg, 2);
    msg.version = 77;
    hostile_hello("another version", msg, 2);
    msg.version = NP_WIRE_VERSION;
    msg.type    = 1234;
    hostile_hello("unknown message", msg, 0);
}
