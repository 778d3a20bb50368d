/* SPDX-License-Identifier: BSD-3-Clause */
/* What a program has lent, and gets of it, which come through the rings while
 * its owner fills them. Each case is a child with an engine of its own. */

#include "lent_world.h"
#include "tap.h"

#include "nprdma/clock.h"
#include "nprdma/mem/bypass.h"
#include "nprdma/mem/lent.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/order.h"
#include "nprdma/proto/soft/rma.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LENT_ROUNDS 3000


static int lent_reads(uint64_t va, void *area, size_t len)
{
    np_lent_range_t *kept = NULL;
    const int is_copied   = np_lent_copy(NP_DIR_GET, va, area, len, 0, &kept);

    np_lent_leave(&kept);
    return is_copied;
}

/* A get, to whose pieces the target does not come */
static int lent_is_left(lent_world_t *world, unsigned copy)
{
    return (lent_get(world, copy) == UCS_INPROGRESS) &&
           lent_wait(world, copy, 0) && lent_is_right(world, copy);
}

static int lent_child_comes(void)
{
    lent_world_t world;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    TAP_CHILD_CHECK(lent_get(&world, 0) == UCS_INPROGRESS);
    /* nothing would wake it when it is late */
    TAP_CHILD_CHECK(np_port_arm(world.pair.initiator) == UCS_ERR_BUSY);
    TAP_CHILD_CHECK(lent_wait(&world, 0, 1) && lent_is_right(&world, 0));
    TAP_CHILD_CHECK(lent_count(&world, 1, 0));

    /* and past the caches */
    np_bypass_min = LENT_SIZE;
    TAP_CHILD_CHECK(lent_get(&world, 1) == UCS_INPROGRESS);
    TAP_CHILD_CHECK(lent_wait(&world, 1, 1) && lent_is_right(&world, 1));
    TAP_CHILD_CHECK(lent_count(&world, 2, 0));
    lent_close(&world);
    return 0;
}

/* The target says so, and the rings are left at once */
static int lent_child_not_lent(void)
{
    lent_world_t world;

    TAP_CHILD_CHECK(lent_open(&world, 0));
    TAP_CHILD_CHECK(lent_get(&world, 0) == UCS_INPROGRESS);
    TAP_CHILD_CHECK(lent_wait(&world, 0, 1) && lent_is_right(&world, 0));
    TAP_CHILD_CHECK(lent_count(&world, 0, 1));
    pair_close(&world.pair);
    return 0;
}

/* It is lent no more when a part of it has come */
static int lent_child_ends(void)
{
    lent_world_t world;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    TAP_CHILD_CHECK(lent_get(&world, 0) == UCS_INPROGRESS);
    pair_progress(world.pair.target);
    pair_progress(world.pair.initiator);
    TAP_CHILD_CHECK(memcmp(world.ours, world.theirs, 1024) == 0);
    np_lent_end(world.id);
    TAP_CHILD_CHECK(lent_wait(&world, 0, 1) && lent_is_right(&world, 0));
    TAP_CHILD_CHECK(lent_count(&world, 0, 1));
    pair_close(&world.pair);
    return 0;
}

/* The target computes: some before the first piece, some in the middle of it,
 * and several that wait for room. What it does of that later changes
 * nothing. */
static int lent_child_computes(void)
{
    const struct timespec pause = {.tv_nsec = 8000000};
    lent_world_t world;
    unsigned i;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    for (i = 0; i < LENT_COPIES; ++i) {
        TAP_CHILD_CHECK(lent_get(&world, i) == UCS_INPROGRESS);
    }
    pair_progress(world.pair.target);
    for (i = 0; i < LENT_COPIES; ++i) {
        TAP_CHILD_CHECK(lent_wait(&world, i, 0) && lent_is_right(&world, i));
    }
    TAP_CHILD_CHECK(lent_count(&world, 0, LENT_COPIES));
    TAP_CHILD_CHECK(world.pair.link.flight.outstanding == 0);
    TAP_CHILD_CHECK(np_flight_flush(&world.pair.link.flight, NULL) == UCS_OK);

    /* the rings are not tried while it has not taken what is there */
    nanosleep(&pause, NULL);
    TAP_CHILD_CHECK(lent_get(&world, 0) == UCS_OK);

    memset(world.ours, 0x33, LENT_COPIES * LENT_SIZE);
    for (i = 0; i < 100; ++i) {
        pair_progress(world.pair.target);
        pair_progress(world.pair.initiator);
    }
    for (i = 0; i < (LENT_COPIES * LENT_SIZE); ++i) {
        TAP_CHILD_CHECK(world.ours[i] == 0x33);
    }

    /* room is there again, and it may come again */
    pair_received = 0;
    for (i = 0; i < 100; ++i) {
        pair_send(&world.pair.link);
        TAP_CHILD_CHECK(pair_wait_received(world.pair.target,
                                           world.pair.initiator, i + 1));
    }
    lent_fill(world.theirs, 77);
    TAP_CHILD_CHECK(lent_get(&world, 0) == UCS_INPROGRESS);
    TAP_CHILD_CHECK(lent_wait(&world, 0, 1) && lent_is_right(&world, 0));
    TAP_CHILD_CHECK(lent_count(&world, 1, LENT_COPIES));
    lent_close(&world);
    return 0;
}

/* Messages use the room that dropped pieces had only when the target has passed
 * them */
static int lent_child_messages(void)
{
    lent_world_t world;
    unsigned i;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    pair_received = 0;
    TAP_CHILD_CHECK(lent_is_left(&world, 0));
    for (i = 0; i < 32; ++i) {
        pair_send(&world.pair.link); /* as far as there is room */
    }
    pair_progress(world.pair.target);
    TAP_CHILD_CHECK(!world.pair.peer->is_malformed);
    TAP_CHILD_CHECK((pair_received > 0) && (pair_received < 8));
    pair_received = 0;
    pair_send(&world.pair.link);
    TAP_CHILD_CHECK(pair_wait_received(world.pair.target,
                                       world.pair.initiator, 1));
    lent_close(&world);
    return 0;
}

/* A registration cache deregisters late: the memory may have gone when the
 * target comes to pieces that were left */
static int lent_child_gone(void)
{
    lent_world_t world;
    unsigned i;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    TAP_CHILD_CHECK(lent_is_left(&world, 0));
    munmap(world.theirs, LENT_SIZE);
    for (i = 0; i < 100; ++i) {
        pair_progress(world.pair.target);
    }
    TAP_CHILD_CHECK(!world.pair.peer->is_malformed);
    lent_close(&world);
    return 0;
}

/* A target that spins on memory, and never progresses: what was left in the
 * ring keeps back no message, and no small put */
static int lent_child_room(void)
{
    const uint8_t flag[1024] = {1};
    lent_world_t world;
    np_link_t *link;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    link = &world.pair.link;
    TAP_CHILD_CHECK(np_mapper_fault_in((uintptr_t)world.theirs, LENT_SIZE,
                                       1) == UCS_OK);
    TAP_CHILD_CHECK(lent_is_left(&world, 0));
    TAP_CHILD_CHECK(np_rma_may_put(link, (uintptr_t)world.theirs,
                                   sizeof(flag)) == UCS_OK);
    TAP_CHILD_CHECK(np_ep_put_copied(&link->flight, world.key, flag,
                                     sizeof(flag),
                                     (uintptr_t)world.theirs) == UCS_OK);
    TAP_CHILD_CHECK(memcmp(world.theirs, flag, sizeof(flag)) == 0);
    TAP_CHILD_CHECK(np_flight_has_resources(&link->flight));
    pair_received = 0;
    pair_send(link);
    TAP_CHILD_CHECK(pair_wait_received(world.pair.target,
                                       world.pair.initiator, 1));
    lent_close(&world);
    return 0;
}

/* After one that was left and passed there is no room, and a target that does
 * not come: that is late as well */
static int lent_child_full(void)
{
    const struct timespec pause = {.tv_nsec = 8000000};
    lent_world_t world;
    unsigned i;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    TAP_CHILD_CHECK(lent_is_left(&world, 0));
    for (i = 0; i < 100; ++i) {
        pair_progress(world.pair.target);
    }
    nanosleep(&pause, NULL);
    for (i = 0; i < 16; ++i) {
        pair_send(&world.pair.link);
    }
    TAP_CHILD_CHECK(lent_get(&world, 0) == UCS_INPROGRESS);
    TAP_CHILD_CHECK(lent_get(&world, 1) == UCS_INPROGRESS);
    TAP_CHILD_CHECK(lent_wait(&world, 0, 0) && lent_is_right(&world, 0));
    TAP_CHILD_CHECK(lent_wait(&world, 1, 0) && lent_is_right(&world, 1));
    TAP_CHILD_CHECK(lent_count(&world, 0, 3));
    lent_close(&world);
    return 0;
}

/* It is in the middle of a piece that was left: what the get was for may not go
 * before it has read */
static int lent_child_reads(void)
{
    lent_world_t world;
    uint64_t end;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    TAP_CHILD_CHECK(lent_get(&world, 0) == UCS_INPROGRESS);
    atomic_store(&world.pair.link.shm->lending, 7);
    for (end = np_clock() + 20000000; np_clock() < end;) {
        pair_progress(world.pair.initiator);
    }
    TAP_CHILD_CHECK(lent_count(&world, 0, 0) &&
                    (world.done[0] == UCS_INPROGRESS));
    TAP_CHILD_CHECK(np_port_arm(world.pair.initiator) == UCS_ERR_BUSY);
    atomic_store(&world.pair.link.shm->lending, 8);
    TAP_CHILD_CHECK(lent_wait(&world, 0, 0) && lent_is_right(&world, 0));
    TAP_CHILD_CHECK(lent_count(&world, 0, 1));
    lent_close(&world);
    return 0;
}

static int lent_child_closes(void)
{
    lent_world_t world;
    np_link_t *link;
    unsigned i;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    link = &world.pair.link;
    TAP_CHILD_CHECK(lent_is_left(&world, 0));
    atomic_store(&link->shm->left, 1);
    TAP_CHILD_CHECK(!np_link_has_lost(link));
    pair_send(link); /* but a message would be */
    TAP_CHILD_CHECK(np_link_has_lost(link));
    for (i = 0; i < 100; ++i) {
        pair_progress(world.pair.target);
    }
    TAP_CHILD_CHECK(!np_link_has_lost(link));
    atomic_store(&link->shm->left, 0);
    lent_close(&world);
    return 0;
}

/* It is cancelled, or its link closed, with pieces in the ring */
static int lent_child_cancelled(void)
{
    lent_world_t world;
    unsigned i;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    TAP_CHILD_CHECK(lent_get(&world, 0) == UCS_INPROGRESS);
    TAP_CHILD_CHECK(lent_get(&world, 1) == UCS_INPROGRESS);
    pair_progress(world.pair.target);
    pair_progress(world.pair.initiator); /* and sends more */
    np_ep_cancel(&world.pair.link.flight, UCS_ERR_CANCELED);
    TAP_CHILD_CHECK((world.done[0] == UCS_ERR_CANCELED) &&
                    (world.done[1] == UCS_ERR_CANCELED));
    memset(world.ours, 0x33, LENT_COPIES * LENT_SIZE);
    munmap(world.theirs, LENT_SIZE); /* nobody reads it any more */
    for (i = 0; i < 100; ++i) {
        pair_progress(world.pair.target);
        pair_progress(world.pair.initiator);
    }
    for (i = 0; i < (LENT_COPIES * LENT_SIZE); ++i) {
        TAP_CHILD_CHECK(world.ours[i] == 0x33);
    }
    lent_close(&world);
    return 0;
}

/* What a peer may ask for of it is what it may ask for at all */
static int lent_child_rights(void)
{
    uint8_t *mem = lent_map(LENT_SIZE), byte[8];
    lent_world_t world;
    np_slot_t slot;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    slot.rma = (np_slot_rma_t){.addr = LENT_PAGE}; /* no shared arena */
    TAP_CHILD_CHECK(np_carry_serve(world.pair.peer, &slot,
                                   np_slot_word(0, 8, NP_SLOT_GET,
                                                NP_CARRY_LENT)));
    TAP_CHILD_CHECK(slot.rma.status == UCS_ERR_INVALID_ADDR);
    slot.rma = (np_slot_rma_t){.addr = UINT64_MAX - 3};
    TAP_CHILD_CHECK(np_carry_serve(world.pair.peer, &slot,
                                   np_slot_word(0, 8, NP_SLOT_GET,
                                                NP_CARRY_LENT)));
    TAP_CHILD_CHECK(slot.rma.status == UCS_ERR_INVALID_ADDR);

    /* beyond its end, and what is not mapped: no byte is touched */
    slot.rma = (np_slot_rma_t){.addr = (uintptr_t)world.theirs + LENT_SIZE - 4};
    TAP_CHILD_CHECK(np_carry_serve(world.pair.peer, &slot,
                                   np_slot_word(0, 8, NP_SLOT_GET,
                                                NP_CARRY_LENT)));
    TAP_CHILD_CHECK(slot.rma.status == UCS_ERR_NO_PROGRESS);
    np_carry_lent(world.pair.peer);
    munmap(mem, LENT_SIZE);
    TAP_CHILD_CHECK(!lent_reads((uintptr_t)mem, byte, sizeof(byte)));
    lent_close(&world);
    return 0;
}

static int lent_child_ranges(void)
{
    uint8_t *mem = lent_map((NP_LENT_MAX + 2) * LENT_SIZE), byte = 0;
    unsigned ids[NP_LENT_MAX], i;

    TAP_CHILD_CHECK(np_lent_begin((uintptr_t)mem, 0) == 0);
    TAP_CHILD_CHECK(np_lent_begin(UINT64_MAX - LENT_PAGE, LENT_SIZE) == 0);
    np_lent_end(0);
    for (i = 0; i < NP_LENT_MAX; ++i) {
        mem[i * LENT_SIZE] = i;
        ids[i] = np_lent_begin((uintptr_t)mem + (i * LENT_SIZE), LENT_SIZE);
        TAP_CHILD_CHECK(ids[i] > 0);
    }
    TAP_CHILD_CHECK(np_lent_begin((uintptr_t)mem, LENT_SIZE) == 0);
    for (i = 0; i < NP_LENT_MAX; ++i) {
        TAP_CHILD_CHECK(lent_reads((uintptr_t)mem + (i * LENT_SIZE), &byte,
                                   1) && (byte == (uint8_t)i));
    }

    /* two beside each other are not one */
    TAP_CHILD_CHECK(!lent_reads((uintptr_t)mem + LENT_SIZE - 1,
                                mem + (NP_LENT_MAX * LENT_SIZE), 2));
    np_lent_end(ids[77]);
    TAP_CHILD_CHECK(!lent_reads((uintptr_t)mem + (77 * LENT_SIZE), &byte, 1));
    TAP_CHILD_CHECK(np_lent_begin((uintptr_t)mem + (77 * LENT_SIZE),
                                  LENT_SIZE) == ids[77]);
    TAP_CHILD_CHECK(lent_reads((uintptr_t)mem + (77 * LENT_SIZE), &byte, 1));
    for (i = 0; i < NP_LENT_MAX; ++i) {
        np_lent_end(ids[i]);
    }
    return 0;
}

static uint8_t *_Atomic lent_target;
static _Atomic int lent_is_over;

static void *lent_reader(void *arg)
{
    uintptr_t reads = 0;
    uint8_t bytes[LENT_PAGE];

    while (!lent_is_over) {
        reads += lent_reads((uintptr_t)lent_target + 100, bytes,
                            sizeof(bytes));
    }
    return (void*)reads;
}

/* Memory goes as soon as it is lent no more: a late reader would crash */
static int lent_child_race(void)
{
    uint8_t *const mem = lent_map(LENT_SIZE);
    pthread_t threads[2];
    void *reads, *more;
    unsigned i, id;

    lent_target = mem;
    TAP_CHILD_CHECK(!pthread_create(&threads[0], NULL, lent_reader, NULL) &&
                    !pthread_create(&threads[1], NULL, lent_reader, NULL));
    for (i = 0; i < LENT_ROUNDS; ++i) {
        mmap(mem, LENT_SIZE, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        id = np_lent_begin((uintptr_t)mem, LENT_SIZE);
        TAP_CHILD_CHECK(id > 0);
        if ((i % 8) == 0) {
            sched_yield();
        }
        np_lent_end(id);
        mprotect(mem, LENT_SIZE, PROT_NONE);
    }
    lent_is_over = 1;
    pthread_join(threads[0], &reads);
    pthread_join(threads[1], &more);
    printf("# %lu reads\n", (uintptr_t)reads + (uintptr_t)more);
    TAP_CHILD_CHECK(((uintptr_t)reads + (uintptr_t)more) > 0);
    return 0;
}

void test_lent_children(void)
{
    TAP_CHECK(tap_child(lent_child_ranges), "lent: ranges");
    TAP_CHECK(tap_child(lent_child_race),
              "lent: no reader comes after the end");
    TAP_CHECK(tap_child(lent_child_comes),
              "lent: a get comes through the rings");
    tap_vm_check(lent_child_gone,
              "lent: what nobody waits for is not read");
    tap_vm_check(lent_child_room,
              "lent: there is room for others beside it");
    tap_vm_check(lent_child_full,
              "lent: what finds no room is late as well");
    tap_vm_check(lent_child_reads,
              "lent: the end of a get waits for a target that reads for it");
    tap_vm_check(lent_child_closes,
              "lent: a target that closes loses nothing of it");
    TAP_CHECK(tap_child(lent_child_not_lent),
              "lent: what is not comes by another way");
    TAP_CHECK(tap_child(lent_child_ends),
              "lent: and what is not any more in the middle of it");
    tap_vm_check(lent_child_computes,
              "lent: of a target that computes, by another way meanwhile");
    tap_vm_check(lent_child_messages,
              "lent: messages wait for the room of what was dropped");
    TAP_CHECK(tap_child(lent_child_cancelled), "lent: cancelled");
    TAP_CHECK(tap_child(lent_child_rights), "lent: rights and bounds");
}
