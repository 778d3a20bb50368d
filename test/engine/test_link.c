/* SPDX-License-Identifier: BSD-3-Clause */
/* Links: connecting when there is no room, ends of numbers, failure, forks. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "pair.h"
#include "tap.h"

#include "nprdma/start.h"
#include "nprdma/pause.h"
#include "nprdma/dev/host.h"
#include "nprdma/dev/soft/mail.h"
#include "nprdma/dev/soft/segments.h"
#include "nprdma/dev/soft/sock.h"
#include "nprdma/mem/alloc.h"
#include "nprdma/mem/key.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/segment.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/sop.h"
#include "nprdma/proto/soft/rma.h"
#include "nprdma/proto/soft/serve.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINK_PAGE 4096ul

/* Of no allocation */
#define LINK_NO_SEGMENT 77

/* A pair, and memory that its initiator may reach, though not directly: as if
 * the target were another process */
typedef struct link_world {
    pair_t   pair;
    uint8_t  *mem;   /* two pages, an arena's last and the next one's first */
    np_key_t *key;
} link_world_t;


/* Two pages where an arena ends */
static uint8_t *link_map(void)
{
    const uint64_t arena = UINT64_C(1) << NP_ARENA_SHIFT;
    uint64_t va;
    void *mem;

    for (va = 64 * arena; va < 1024 * arena; va += arena) {
        mem = mmap((void*)(va - LINK_PAGE), 2 * LINK_PAGE,
                   PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (mem != MAP_FAILED) {
            return mem;
        }
    }
    return NULL;
}

static void link_world_open(const char *name, link_world_t *world)
{
    np_link_t *link = &world->pair.link;
    np_packed_key_t packed;
    np_arenas_t arenas;
    unsigned i;

    pair_open(name, &world->pair);
    for (i = 0; (i < PROGRESS_MAX) && (link->target == NULL); ++i) {
        np_port_housekeep(world->pair.initiator);
    }

    world->mem = link_map();
    np_arenas_share((uintptr_t)world->mem, 2 * LINK_PAGE, &arenas);
    np_key_pack_arenas(&packed, arenas);
    packed.engine_id = ++link->flight.engine_id;
    TAP_CHECK((np_key_unpack(&packed, &world->key) == UCS_OK) &&
              (link->target != NULL), "%s: a key", name);
}

static void link_world_close(link_world_t *world)
{
    pair_close(&world->pair);
    np_key_release(world->key);
    np_mapper_unmap((uintptr_t)world->mem, 2 * LINK_PAGE);
    munmap(world->mem, 2 * LINK_PAGE);
}

static ucs_status_t link_add(link_world_t *world, uint64_t *result, void *done)
{
    return np_ep_atomic(&world->pair.link.flight, world->key,
                        &(np_atomic_t){.addr = (uintptr_t)world->mem,
                                       .value = 1, .op = NP_ATOMIC_ADD,
                                       .size = sizeof(uint64_t)},
                        result, done);
}

static ucs_status_t link_put(link_world_t *world, uint64_t offset, size_t len)
{
    static const uint8_t data[128];

    return np_ep_put_copied(&world->pair.link.flight, world->key, data, len,
                            (uintptr_t)world->mem + offset);
}

/* One that the data ring carries, whatever other ways there are */
static ucs_status_t link_put_carried(link_world_t *world)
{
    static uint8_t data[128];
    const np_iov_t iov = {data, sizeof(data)};
    np_sop_t *op;

    return np_rma_send(&world->pair.link, NP_OP_PUT, &iov, 1, sizeof(data),
                       (uintptr_t)world->mem + LINK_PAGE, 0, &op, NULL);
}

static int link_wait(pair_t *pair, const ucs_status_t *done)
{
    unsigned i;

    for (i = 0; (i < PROGRESS_MAX) && (*done == UCS_INPROGRESS); ++i) {
        pair_progress(pair->target);
        pair_progress(pair->initiator);
    }
    return *done == UCS_OK;
}

/* The 2^32nd request of a link, whose number is 0 */
static void link_numbers(void)
{
    const uint32_t number = -3;
    uint64_t result;
    ucs_status_t done;
    link_world_t world;
    np_link_t *link;
    unsigned i, right = 0;

    link_world_open("numbers", &world);
    link                      = &world.pair.link;
    link->ctl.tail            = number;
    link->ctl.limit           = number + NP_CTL_SLOTS;
    world.pair.peer->ctl.head = number;
    world.pair.peer->ctl.next =
            &world.pair.peer->ctl.slots[number & (NP_CTL_SLOTS - 1)];
    atomic_store(&link->shm->ctl_head, number);
    for (i = 0; i < 6; ++i) {
        done = UCS_INPROGRESS;
        right += (link_add(&world, &result, &done) == UCS_INPROGRESS) &&
                 link_wait(&world.pair, &done) && (result == i);
    }
    TAP_CHECK(right == 6, "numbers: 2^32 requests, and more (%u)", right);
    link_world_close(&world);
}

/* What overlaps an atomic, or a put that takes the ring, waits for it */
static void link_order(void)
{
    ucs_status_t done = UCS_INPROGRESS;
    link_world_t world;
    uint64_t result;

    link_world_open("order", &world);
    TAP_CHECK(link_add(&world, &result, &done) == UCS_INPROGRESS,
              "order: an atomic");
    TAP_CHECK((link_put(&world, 0, 8) == UCS_ERR_NO_RESOURCE) &&
              (link_put(&world, 4, 64) == UCS_ERR_NO_RESOURCE),
              "order: a put to the same word waits");
    TAP_CHECK(link_put(&world, 8, 8) == UCS_OK,
              "order: one to the next does not");
    TAP_CHECK(link_wait(&world.pair, &done) &&
              (link_put(&world, 0, 8) == UCS_OK), "order: until it is done");

    TAP_CHECK((link_put(&world, LINK_PAGE - 64, 128) == UCS_OK) &&
              (world.pair.link.flight.outstanding > 0),
              "order: a put across the end of an arena");
    TAP_CHECK(link_put(&world, LINK_PAGE - 8, 8) == UCS_ERR_NO_RESOURCE,
              "order: a put to a part of it waits");
    done = UCS_INPROGRESS;
    TAP_CHECK((np_flight_flush(&world.pair.link.flight, &done) ==
               UCS_INPROGRESS) &&
              link_wait(&world.pair, &done) &&
              (link_put(&world, LINK_PAGE - 8, 8) == UCS_OK),
              "order: until it is done");
    link_world_close(&world);
}

/* Whoever takes the second of two atomics must not be faster than the
 * first's */
static void link_atomics(void)
{
    ucs_status_t done[2] = {UCS_INPROGRESS, UCS_INPROGRESS};
    uint64_t results[2]  = {7, 7};
    link_world_t world;
    np_job_t first, second;
    np_peer_t *peer;
    int is_taken;

    link_world_open("atomics", &world);
    peer = world.pair.peer;
    link_add(&world, &results[0], &done[0]);
    link_add(&world, &results[1], &done[1]);
    TAP_CHECK(np_inbox_take(peer, &first), "atomics: one is taken");
    is_taken = np_inbox_take(peer, &second);
    TAP_CHECK(!is_taken, "atomics: the next one waits");
    np_serve_job(&first, NP_MOVER_TARGET, peer->port->flights.stats);
    TAP_CHECK(link_wait(&world.pair, &done[0]) &&
              link_wait(&world.pair, &done[1]) && (results[0] == 0) &&
              (results[1] == 1), "atomics: both are executed, in order");
    link_world_close(&world);
}

/* It has gone down, and what is outstanding has not ended yet */
static void link_flush_down(void)
{
    ucs_status_t added = UCS_INPROGRESS, flushed = UCS_INPROGRESS;
    link_world_t world;
    np_link_t *link;
    uint64_t result;

    link_world_open("down", &world);
    link = &world.pair.link;
    link_add(&world, &result, &added);
    np_link_down(link, UCS_ERR_ENDPOINT_TIMEOUT);
    TAP_CHECK(np_flight_flush(&link->flight, &flushed) == UCS_INPROGRESS,
              "down: a flush waits for what is outstanding");
    np_port_work(world.pair.initiator);
    TAP_CHECK((added == UCS_ERR_ENDPOINT_TIMEOUT) &&
              (flushed == UCS_ERR_ENDPOINT_TIMEOUT),
              "down: and ends with it (%d, %d)", added, flushed);
    TAP_CHECK(np_flight_flush(&link->flight, &flushed) ==
              UCS_ERR_ENDPOINT_TIMEOUT,
              "down: later there is nothing to wait for");
    link_world_close(&world);
}

static uint8_t *link_swapped;

static int link_swap_in(void *arg, void *va, size_t len, int write)
{
    ++*(unsigned*)arg;
    return mprotect(va, len, PROT_READ | PROT_WRITE);
}

/* The program takes its buffer away when the data is in, and nobody has
 * looked */
static void link_swap_out(np_pause_point_t point)
{
    if (point == NP_PAUSE_MOVED) {
        np_pause_hook = NULL;
        np_mapper_unmap((uintptr_t)link_swapped, LINK_PAGE);
        mprotect(link_swapped, LINK_PAGE, PROT_NONE);
    }
}

/* Whatever is looked at of our own memory while a transfer is under way, a
 * program that swaps may have taken */
static void link_swap(void)
{
    unsigned calls             = 0;
    const np_swapper_t swapper = {link_swap_in, &calls};
    ucs_status_t done          = UCS_INPROGRESS;
    ucs_status_t status;
    link_world_t world;
    np_iov_t iov;

    link_world_open("swapped", &world);
    memset(world.mem, 0x5a, 2 * LINK_PAGE);
    link_swapped = mmap(NULL, LINK_PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TAP_CHECK(np_mapper_add_swapper((uintptr_t)link_swapped, LINK_PAGE,
                                    &swapper) == UCS_OK, "swapped: a buffer");
    np_mapper_fault_in((uintptr_t)world.mem, LINK_PAGE, 1);
    iov           = (np_iov_t){link_swapped, LINK_PAGE};
    np_pause_hook = link_swap_out;
    status        = np_ep_move(NP_DIR_GET, &world.pair.link.flight, world.key,
                               &iov, 1, (uintptr_t)world.mem, &done);
    TAP_CHECK((status == UCS_OK) ||
              ((status == UCS_INPROGRESS) && link_wait(&world.pair, &done)),
              "swapped: it goes while it is read into (%d)", status);
    TAP_CHECK((np_pause_hook == NULL) && (calls >= 2),
              "swapped: and is brought back (%u)", calls);
    TAP_CHECK(memcmp(link_swapped, world.mem, LINK_PAGE) == 0,
              "swapped: the data is right");
    np_pause_hook = NULL;
    np_mapper_remove_swapper((uintptr_t)link_swapped, LINK_PAGE);
    np_mapper_unmap((uintptr_t)link_swapped, LINK_PAGE);
    munmap(link_swapped, LINK_PAGE);
    link_world_close(&world);
}

static link_world_t link_parents;

/* A child gives back what it has inherited, and uses what is common to all */
static int link_child(void)
{
    np_drain(0, 0);
    np_ep_close(&link_parents.pair.link.flight);
    np_proto_close(link_parents.pair.initiator);
    np_proto_close(link_parents.pair.target);
    return 0;
}

static void link_fork(void)
{
    ucs_status_t done = UCS_INPROGRESS;
    np_link_t *link   = &link_parents.pair.link;
    uint64_t result;

    link_world_open("fork", &link_parents);
    TAP_CHECK(link_add(&link_parents, &result, &done) == UCS_INPROGRESS,
              "fork: an atomic is outstanding");
    atomic_store(&link->shm->moving[NP_MOVER_INITIATOR].word, 1);
    TAP_CHECK(tap_child(link_child), "fork: a child closes everything");
    atomic_store(&link->shm->moving[NP_MOVER_INITIATOR].word, 0);
    TAP_CHECK(atomic_load(&link->shm->epoch) == 0,
              "fork: its parent's operations are not cancelled");
    TAP_CHECK(link_wait(&link_parents.pair, &done),
              "fork: but go on (%d)", done);
    np_port_housekeep(link_parents.pair.initiator);
    TAP_CHECK(!(link->flight.gate & NP_GATE_DOWN),
              "fork: nor is its connection ended");
    link_world_close(&link_parents);
}

/* A put through the data ring that is refused when a part of it is there
 * already: that part is not left out of the next one. Its bytes are in the
 * slot, or in the payload area. */
static void link_refused_part(uint32_t len)
{
    static const uint8_t bytes[64] = "sixteen of them, or sixty-four";
    np_slot_t slot = {.rma = {.addr = LINK_PAGE}}; /* in no shared arena */
    link_world_t world;
    np_peer_t *peer;

    link_world_open("refused part", &world);
    peer         = world.pair.peer;
    peer->served = 8;
    TAP_CHECK(np_carry_serve(peer, &slot,
                            np_slot_word(0, len, NP_SLOT_PUT, 0)) &&
              (slot.rma.status == UCS_ERR_INVALID_ADDR),
              "refused part: %d", slot.rma.status);
    memcpy((len <= NP_SLOT_RMA_INLINE) ? slot.rma.data : peer->data.payload,
           bytes, len);
    slot.rma.addr = (uintptr_t)world.mem;
    TAP_CHECK(np_carry_serve(peer, &slot,
                            np_slot_word(1, len, NP_SLOT_PUT, 0)) &&
              (slot.rma.status == UCS_OK) &&
              (memcmp(world.mem, bytes, len) == 0),
              "refused part: the next one is whole, %u bytes", len);
    link_world_close(&world);
}

/* Notes need no answer, and may fill the ring of requests but for a slot:
 * whoever waits for room behind them has the target's threads woken */
static void link_notes(void)
{
    const np_slot_t slot = {.segment = {.id = LINK_NO_SEGMENT}};
    link_world_t world;
    np_link_t *link;
    unsigned i, told;

    link_world_open("notes", &world);
    link = &world.pair.link;
    link_put(&world, LINK_PAGE - 64, 128);
    for (told = 0; np_mail_tell(link, &slot, NP_SLOT_SEGMENT); ++told) {
    }
    TAP_CHECK((told > 1) && (link->flight.outstanding > 0) &&
              (link_put(&world, 128, 64) == UCS_OK) && /* notes leave one
                                                          slot */
              (link_put(&world, 256, 64) == UCS_ERR_NO_RESOURCE),
              "notes: there is no room (%u)", told);
    atomic_store(&link->target->service_armed, 1);
    for (i = 0; (i < PROGRESS_MAX) &&
         atomic_load(&link->target->service_armed); ++i) {
        np_flight_has_resources(&link->flight);
        np_port_work(world.pair.initiator);
    }
    TAP_CHECK(atomic_load(&link->target->service_armed) == 0,
              "notes: the target is rung");
    link_world_close(&world);
}

/* A note must not take the room that a put was promised: whoever packs its
 * bytes has asked before, and cannot pack them once more */
static void link_note_room(void)
{
    uint8_t byte = 1;
    link_world_t world;
    ucs_status_t status;
    np_link_t *link;
    unsigned count;

    link_world_open("note room", &world);
    link = &world.pair.link;
    for (count = 1; count < NP_CTL_SLOTS; ++count) {
        if (link_put(&world, count, 1) != UCS_OK) {
            break;
        }
    }
    TAP_CHECK((count == NP_CTL_SLOTS) && np_mail_has_room(link) &&
              (np_rma_may_put(link, (uintptr_t)world.mem, 1) == UCS_OK),
              "note room: there is room for one request (%u are sent)",
              count - 1);
    world.key->segment_id = LINK_NO_SEGMENT; /* to be asked for, by a note */
    status = np_ep_put_copied(&link->flight, world.key, &byte, 1,
                              (uintptr_t)world.mem);
    TAP_CHECK(status == UCS_OK, "note room: which the put finds (%s)",
              ucs_status_string(status));
    TAP_CHECK(np_rma_may_put(link, (uintptr_t)world.mem + 1, 1) ==
              UCS_ERR_NO_RESOURCE, "note room: and there is no more");
    world.key->segment_id = 0;
    link_world_close(&world);
}

/* What a hook gives back to a link: the word that its target counts in */
static struct {
    np_ring_tx_t     *ring;
    _Atomic uint32_t *head;
} link_late;

/* The target reads on, just after it was seen not to have */
static void link_late_hook(np_pause_point_t point)
{
    if (point == NP_PAUSE_REFUSED) {
        link_late.ring->head = link_late.head;
    }
}

/* Notes may fill the ring of requests: there is no room, nothing is
 * outstanding, and a moment later there is room. That is no lack of memory. */
static void link_late_room(int is_beside)
{
    const char *name = is_beside ? "late room, beside others" : "late room";
    _Atomic uint32_t before;
    link_world_t world;
    ucs_status_t status;
    np_link_t *link;
    unsigned i;

    link_world_open(name, &world);
    link = &world.pair.link;
    for (i = 0; (i < NP_CTL_SLOTS) && (link_put(&world, i, 1) == UCS_OK); ++i) {
    }
    TAP_CHECK(i == NP_CTL_SLOTS, "%s: the ring is full (%u)", name, i);
    link_late.ring = &link->ctl;
    link_late.head = link->ctl.head;
    atomic_init(&before, atomic_load(link->ctl.head));
    link->ctl.head = &before; /* as if these were notes that nobody has read */
    for (i = 0; (i < PROGRESS_MAX) && (link->flight.outstanding > 0); ++i) {
        pair_progress(world.pair.target);
        pair_progress(world.pair.initiator);
    }
    if (is_beside) {
        link_put_carried(&world);
    }
    np_pause_hook = link_late_hook;
    status        = link_put(&world, 0, 1);
    np_pause_hook = NULL;
    TAP_CHECK((link->flight.outstanding == (unsigned)is_beside) &&
              (status == UCS_ERR_NO_RESOURCE),
              "%s: no room is not no memory (%s)", name,
              ucs_status_string(status));
    TAP_CHECK((link->ctl.head != &before) &&
              np_flight_has_resources(&link->flight) &&
              (link_put(&world, 0, 1) == UCS_OK),
              "%s: and it is tried again", name);
    link_world_close(&world);
}

/* READY needs no thanks: what a target brings in for a peer it keeps no account
 * of */
static void link_ready(void)
{
    uint8_t byte = 1;
    link_world_t world;
    ucs_status_t status;
    np_link_t *link;
    unsigned i;

    link_world_open("ready", &world);
    link   = &world.pair.link;
    status = np_rma_get_now(link, world.key, &byte, 1, (uintptr_t)world.mem);
    TAP_CHECK((status == UCS_ERR_NO_RESOURCE) && (link->ctl.tail == 1),
              "ready: a page is asked for (%s)", ucs_status_string(status));
    for (i = 0; (i < PROGRESS_MAX) && (link->flight.outstanding > 0); ++i) {
        pair_progress(world.pair.target);
        pair_progress(world.pair.initiator);
    }
    TAP_CHECK((link->flight.outstanding == 0) && (link->ctl.tail == 1),
              "ready: once it is there nothing more is sent (%u slots)",
              link->ctl.tail);
    status = np_rma_get_now(link, world.key, &byte, 1, (uintptr_t)world.mem);
    TAP_CHECK((status == UCS_OK) && (byte == 0), "ready: and it is read (%s)",
              ucs_status_string(status));
    link_world_close(&world);
}

/* Ask until it is not for lack of room; what is outstanding meanwhile ends */
static ucs_status_t link_get_now(link_world_t *world, uint8_t *bytes,
                                 size_t offset, size_t len)
{
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    unsigned i;

    for (i = 0; (i < PROGRESS_MAX) && (status == UCS_ERR_NO_RESOURCE); ++i) {
        status = np_rma_get_now(&world->pair.link, world->key, bytes, len,
                                (uintptr_t)world->mem + offset);
        pair_progress(world->pair.target);
        pair_progress(world->pair.initiator);
    }
    return status;
}

/* A get that is complete when it returns: never in progress */
static void link_now(void)
{
    uint8_t bytes[128] = {1};
    link_world_t world;
    ucs_status_t status;
    size_t i, right = 0;
    uint32_t slots;

    link_world_open("now", &world);
    slots = world.pair.link.data.tail;
    for (i = 0; i < sizeof(bytes); ++i) {
        world.mem[LINK_PAGE - 64 + i] = i + 7;
    }
    status = link_get_now(&world, bytes, LINK_PAGE - 64, sizeof(bytes));
    for (i = 0; i < sizeof(bytes); ++i) {
        right += bytes[i] == (uint8_t)(i + 7);
    }
    TAP_CHECK((status == UCS_OK) && (right == sizeof(bytes)) &&
              (world.pair.link.data.tail == slots),
              "now: across the end of an arena (%s, %zu bytes, %u slots)",
              ucs_status_string(status), right,
              world.pair.link.data.tail - slots);

    bytes[0]              = 1;
    world.pair.link.no_vm = 1;
    status                = link_get_now(&world, bytes, 0, 8);
    TAP_CHECK((status == UCS_ERR_UNSUPPORTED) && (bytes[0] == 1) &&
              (world.pair.link.flight.outstanding == 0),
              "now: not where the kernel refuses (%s)",
              ucs_status_string(status));
    link_world_close(&world);
}

#define LINK_MANY (NP_PORT_HOT + 2)

/* A batch has been read to its end, and its peer then leaves the few that are
 * looked at each time: what it has sent must have been freed */
static void link_evicted(void)
{
    np_port_t *target = pair_port_of_slots(128);
    np_port_t *port   = pair_port_of_slots(128);
    np_link_t links[LINK_MANY], *link = &links[1];
    unsigned i;

    pair_received = 0;
    for (i = 0; i < LINK_MANY; ++i) {
        pair_link(port, target, &links[i]);
        pair_send(&links[i]);
        pair_wait_received(target, port, i + 1);
    }
    pair_send(link);
    TAP_CHECK(pair_wait_received(target, port, LINK_MANY + 1) &&
              target->peers[1]->is_hot, "evicted: one is looked at");
    for (i = 0; i < NP_PORT_BATCH; ++i) {
        pair_send(link);
    }
    pair_send(&links[LINK_MANY - 1]);
    pair_progress(target);
    TAP_CHECK(!target->peers[1]->is_hot, "evicted: and then another");
    pair_wait_received(target, port, LINK_MANY + NP_PORT_BATCH + 2);
    TAP_CHECK(atomic_load(link->data.head) == link->data.tail,
              "evicted: all of the ring is free (%u of %u)",
              atomic_load(link->data.head), link->data.tail);
    for (i = 0; i < LINK_MANY; ++i) {
        np_ep_close(&links[i].flight);
    }
    np_proto_close(port);
    np_proto_close(target);
}

static unsigned link_count_files(void)
{
    unsigned fd, count = 0;

    for (fd = 0; fd < 1024; ++fd) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Four descriptors, where three are the most that any message has: it is left
 * where it is */
static void link_many_files(void)
{
    char buf[CMSG_SPACE(4 * sizeof(int))] = {0};
    np_msg_t msg      = {.type = NP_MSG_CONNECT, .version = NP_WIRE_VERSION};
    struct iovec iov  = {&msg, sizeof(msg)};
    struct msghdr hdr = {
        .msg_iov        = &iov,
        .msg_iovlen     = 1,
        .msg_control    = buf,
        .msg_controllen = sizeof(buf)
    };
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&hdr);
    int fds[NP_MSG_MAX_FDS], sent[4] = {0, 0, 0, 0}, pair[2];
    const struct timespec wait = {.tv_nsec = 1000000};
    unsigned num_fds, before, i;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
        TAP_CHECK(0, "files: no pair of sockets");
        return;
    }

    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type  = SCM_RIGHTS;
    cmsg->cmsg_len   = CMSG_LEN(sizeof(sent));
    memcpy(CMSG_DATA(cmsg), sent, sizeof(sent));
    before = link_count_files();
    TAP_CHECK((sendmsg(pair[0], &hdr, 0) == sizeof(msg)) &&
              (np_sock_recv(pair[1], &msg, fds, &num_fds) ==
               UCS_ERR_INVALID_PARAM) && (num_fds == 0),
              "files: a message with one more than it may have");
    np_sock_close(pair[1]);
    for (i = 0; (i < 20000) && (link_count_files() != (before - 1)); ++i) {
        nanosleep(&wait, NULL);
    }
    TAP_CHECK(link_count_files() == (before - 1), "files: none is left");
    close(pair[0]);
}

/* No descriptor is left: that is no sign of death, and no reason for one */
static void link_no_files(void)
{
    const np_msg_t msg   = {.type = NP_MSG_SEGMENT, .version = NP_WIRE_VERSION};
    struct rlimit before = {0}, none;
    int is_alive, has_file, has_port;
    void *addr = NULL;
    np_link_t *link;
    pair_t pair;
    pid_t pid;
    int file;

    pair_open("no files", &pair);
    link = &pair.link;
    np_sock_send(pair.peer->fd, &msg, &pair.target->shm_fd, 1);
    getrlimit(RLIMIT_NOFILE, &before);
    none = (struct rlimit){0, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    is_alive = np_link_is_connected(link);
    has_file = open("/dev/null", O_RDONLY);
    np_port_housekeep(pair.initiator);
    setrlimit(RLIMIT_NOFILE, &before);
    TAP_CHECK((has_file < 0) && is_alive, "no files: a peer is alive");
    TAP_CHECK(!(link->flight.gate & NP_GATE_DOWN),
              "no files: a segment that cannot be had ends no link");

    pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    TAP_CHECK(!np_host_proc_runs(pid, 1) && !np_host_proc_runs(pid, 0) &&
              np_host_proc_runs(getpid(), 0) && !np_host_proc_runs(getpid(), 1),
              "no files: the dead are dead, and others are others");
    pair_close(&pair);

    has_port = np_segment_create("no-port", SIZE_MAX / 2, &addr, &file) ==
               UCS_OK;
    TAP_CHECK(!has_port && (file == -1),
              "no files: what could not be made has none");
}

/* Segments of the target that it frees, one after the other */
static void link_segments(void)
{
    unsigned i, most = 0;
    np_alloc_t *alloc;
    size_t len, size;
    pair_t pair;
    int fd;

    pair_open("segments", &pair);
    for (i = 0; i < 4; ++i) {
        len = LINK_PAGE;
        if (np_alloc_create(NULL, &len, &alloc) != UCS_OK) {
            break;
        }

        fd = np_alloc_dup_fd(alloc->id, &size);
        ++pair.link.segments_asked;
        np_segments_take(&pair.link, alloc->id, fd, size);
        most = ucs_max(most, pair.link.num_windows);
        close(fd);
        np_alloc_free(alloc);
    }
    TAP_CHECK((i == 4) && (most == 1),
              "segments: what was freed is not kept (%u)", most);

    len = LINK_PAGE;
    np_alloc_create(NULL, &len, &alloc);
    fd = np_alloc_dup_fd(alloc->id, &size);
    for (i = 0; i < 4; ++i) {
        np_segments_take(&pair.link, alloc->id + i, fd, size);
    }
    TAP_CHECK((pair.link.segments == 4) && (pair.link.num_windows == 1),
              "segments: nor what nobody has asked for (%u)",
              pair.link.num_windows);
    close(fd);
    np_alloc_free(alloc);
    pair_close(&pair);
}

/* The target has as many that wait to be taken in as it can have */
static void link_backlog(void)
{
    const struct timespec wait = {.tv_nsec = 2000000};
    np_port_t *target = pair_port(), *port = pair_port();
    int fds[8], count = 0;
    ucs_status_t status;
    np_sock_cred_t cred;
    np_link_t link;

    pair_received = 0;
    pair_link(port, target, &link);
    listen(target->listen_fd, 0);
    do {
        status = np_sock_connect(link.addr.port_id, &fds[count], &cred);
        count += (status == UCS_OK);
    } while ((status == UCS_OK) && (count < 8));
    TAP_CHECK(status == UCS_ERR_NO_RESOURCE, "backlog: full (%d)", status);

    TAP_CHECK(np_flight_start(&link.flight) == UCS_ERR_NO_RESOURCE,
              "backlog: no room to connect");
    TAP_CHECK(!np_flight_has_resources(&link.flight),
              "backlog: and nobody is told to try at once");
    pair_progress(target);
    np_port_housekeep(target);
    nanosleep(&wait, NULL);
    TAP_CHECK(np_flight_has_resources(&link.flight), "backlog: but later");
    pair_send(&link);
    TAP_CHECK(pair_wait_received(target, port, 1), "backlog: and that arrives");

    while (count > 0) {
        close(fds[--count]);
    }
    np_ep_close(&link.flight);
    np_proto_close(port);
    np_proto_close(target);
}

/* A service thread takes somebody in while the owner sleeps: who has been woken
 * by the connection finds nothing, and would sleep on */
static void link_sleeper(void)
{
    np_port_t *target = pair_port(), *port = pair_port();
    struct pollfd pfd = {.fd = target->epoll_fd, .events = POLLIN};
    np_link_t link;

    pair_received = 0;
    pair_link(port, target, &link);
    TAP_CHECK((np_port_arm(target) == UCS_OK) && (poll(&pfd, 1, 0) == 0),
              "sleeper: asleep");
    pair_send(&link);
    TAP_CHECK(np_port_accept(target, 0) == 0, "sleeper: somebody is taken in");
    TAP_CHECK(poll(&pfd, 1, 0) == 1, "sleeper: awake");
    TAP_CHECK(pair_wait_received(target, port, 1), "sleeper: and hears of it");
    TAP_CHECK((np_port_arm(target) == UCS_OK) && (poll(&pfd, 1, 0) == 0),
              "sleeper: asleep again");
    np_ep_close(&link.flight);
    np_proto_close(port);
    np_proto_close(target);
}

void test_link(void)
{
    link_numbers();
    link_order();
    link_atomics();
    link_flush_down();
    link_swap();
    link_fork();
    link_refused_part(16);
    link_refused_part(64);
    link_notes();
    link_note_room();
    link_late_room(0);
    link_late_room(1);
    link_ready();
    link_now();
    link_evicted();
    link_many_files();
    link_no_files();
    link_segments();
    link_backlog();
    link_sleeper();
}
