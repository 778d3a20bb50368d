/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that writes what no peer writes: its connection ends, ours do not. */

#include "tap.h"

#include "nprdma/engine.h"
#include "nprdma/dev/soft/peer.h"
#include "nprdma/dev/soft/sock.h"
#include "nprdma/mem/key.h"
#include "nprdma/proto/am.h"
#include "nprdma/proto/rma.h"
#include "nprdma/proto/serve.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PROGRESS_MAX 100000

static unsigned hostile_received;


static void hostile_complete(void *comp, ucs_status_t status)
{
    *(ucs_status_t*)comp = status;
}

static void hostile_link_down(np_link_t *link, ucs_status_t status)
{
}

static const np_user_t hostile_user = {
    .complete  = hostile_complete,
    .link_down = hostile_link_down
};

static void hostile_am(void *arg, uint8_t id, void *data, unsigned len)
{
    ++hostile_received;
}

static np_port_t *hostile_open(void)
{
    const np_port_config_t config = {.data_slots = 8, .payload_size = 4096};
    np_port_t *port;

    return (np_proto_open(&config, &hostile_user, &port) == UCS_OK) ? port :
           NULL;
}

static void hostile_progress(np_port_t *port)
{
    np_port_poll(port, hostile_am, NULL);
    np_port_work(port);
}

static void hostile_connect(np_port_t *from, np_port_t *to, np_link_t *link)
{
    np_port_addr_t addr;

    np_port_get_addr(to, &addr);
    np_link_init(link, from, &addr);
}

static void hostile_send(np_link_t *link)
{
    np_slot_t *slot;

    if (np_am_reserve_inline(link, &slot) == UCS_OK) {
        memset(slot->data, 1, 8);
        np_am_commit_inline(link, slot, 5, 8);
    }
}

/* Both progress until @a count messages have come */
static int hostile_wait_received(np_port_t *a, np_port_t *b, unsigned count)
{
    unsigned i;

    for (i = 0; (i < PROGRESS_MAX) && (hostile_received < count); ++i) {
        hostile_progress(a);
        hostile_progress(b);
    }
    return hostile_received == count;
}

static int hostile_wait_down(np_port_t *a, np_port_t *b, np_link_t *link)
{
    unsigned i;

    for (i = 0; (i < PROGRESS_MAX) && !(link->gate & NP_GATE_DOWN); ++i) {
        hostile_progress(a);
        hostile_progress(b);
    }
    return !!(link->gate & NP_GATE_DOWN);
}

/* A slot with this word, in the data or the control ring */
static void hostile_slot(const char *name, int ctl, unsigned kind, uint32_t len,
                         uint32_t offset)
{
    np_port_t *target = hostile_open(), *bad = hostile_open();
    np_port_t *good   = hostile_open();
    np_link_t bad_link, good_link;
    np_ring_tx_t *ring;
    np_slot_t *slot;

    hostile_received = 0;
    hostile_connect(bad, target, &bad_link);
    hostile_connect(good, target, &good_link);
    hostile_send(&bad_link);
    hostile_send(&good_link);
    TAP_CHECK(hostile_wait_received(target, bad, 2), "%s: both can talk", name);

    ring         = ctl ? &bad_link.ctl : &bad_link.data;
    slot         = np_ring_tx_slot(ring);
    memset(slot->data, 0xff, sizeof(slot->data));
    slot->offset = offset;
    if ((kind == NP_SLOT_PUT) || (kind == NP_SLOT_GET)) {
        slot->rma.offset = offset;
    }
    np_ring_tx_publish(ring, slot, len, kind, 0);
    np_link_notify(&bad_link);
    TAP_CHECK(hostile_wait_down(target, bad, &bad_link),
              "%s: its connection ends", name);

    hostile_send(&good_link);
    TAP_CHECK(hostile_wait_received(target, good, 3), "%s: others go on", name);

    np_proto_close_link(&bad_link);
    np_proto_close_link(&good_link);
    np_proto_close(bad);
    np_proto_close(good);
    np_proto_close(target);
}

/* A slot that was good when it was checked, and is not when it is served: both
 * look at it once */
static void hostile_changed_slot(void)
{
    np_port_t *target = hostile_open(), *bad = hostile_open();
    np_slot_t slot    = {.rma = {.offset = 0xffffff00}};
    np_link_t link;

    hostile_received = 0;
    hostile_connect(bad, target, &link);
    hostile_send(&link);
    TAP_CHECK(hostile_wait_received(target, bad, 1), "changed slot: connected");
    slot.rma.addr = (uintptr_t)&hostile_received;
    np_serve_data(target->peers[0], &slot, np_slot_word(0, 64, NP_SLOT_GET, 0));
    TAP_CHECK(slot.rma.status == UCS_ERR_INVALID_PARAM,
              "changed slot: refused, not for want of the address: %d",
              slot.rma.status);
    np_proto_close_link(&link);
    np_proto_close(bad);
    np_proto_close(target);
}

/* Who has taken us in goes, before we have read his answer: the first transfer
 * notices that, in the middle of it, by asking for its segment. It must end. */
static void hostile_gone_meanwhile(void)
{
    ucs_status_t done = UCS_INPROGRESS, status;
    np_port_t *target = hostile_open(), *port = hostile_open();
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
    hostile_connect(port, target, &link);
    TAP_CHECK(np_link_connect(&link) == UCS_OK, "gone: connected");
    for (i = 0; (i < PROGRESS_MAX) && !link.shm->accepted; ++i) {
        hostile_progress(target);
    }
    np_port_arm(target); /* so that it must be told */
    np_proto_close(target);

    status = np_rma_move(NP_DIR_PUT, &link, key, &iov, 1, (uintptr_t)page,
                         &done);
    for (i = 0; (i < PROGRESS_MAX) && (done == UCS_INPROGRESS); ++i) {
        hostile_progress(port);
    }
    TAP_CHECK((status != UCS_INPROGRESS) || (done != UCS_INPROGRESS),
              "gone: the transfer ends (%d, %d)", status, done);
    np_proto_close_link(&link);
    np_key_release(key);
    np_proto_close(port);
    munmap(page, 4096);
}

/* A first message that is none */
static void hostile_hello(const char *name, np_msg_t msg, int with_fds)
{
    np_port_t *target = hostile_open(), *good = hostile_open();
    np_sock_cred_t cred;
    np_port_addr_t addr;
    np_link_t link;
    int fd = -1, fds[2], i, gone = 0;
    char byte;

    hostile_received = 0;
    np_port_get_addr(target, &addr);
    if (np_sock_connect(addr.port_id, &fd, &cred) == UCS_OK) {
        fds[0] = good->shm_fd;
        fds[1] = good->shm_fd;
        np_sock_send(fd, &msg, fds, with_fds);
        for (i = 0; (i < PROGRESS_MAX) && !gone; ++i) {
            hostile_progress(target);
            gone = (read(fd, &byte, 1) == 0);
        }
    }
    TAP_CHECK(gone, "%s: refused", name);
    close(fd);

    hostile_connect(good, target, &link);
    hostile_send(&link);
    TAP_CHECK(hostile_wait_received(target, good, 1), "%s: others go on", name);
    np_proto_close_link(&link);
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
