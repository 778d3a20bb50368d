/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts to what the target has lent, and small gets of it: through the rings
 * while it makes progress, else by the kernel, and each byte once. */

#include "lent_world.h"
#include "tap.h"

#include "nprdma/clock.h"
#include "nprdma/mem/lent.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/order.h"
#include "nprdma/proto/soft/lend.h"
#include "nprdma/proto/soft/rma.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PUT_LEN    200ul
#define PUT_COUNT  3
#define PUT_BEFORE 0x11
#define PUT_AFTER  0x77


static uint8_t put_unpacked[PUT_LEN];
static unsigned put_unpacks;

static uint64_t put_addr(const lent_world_t *world, unsigned n)
{
    return (uintptr_t)world->theirs + (n * LENT_PAGE);
}

/* The n-th small put: its bytes are n + 1 */
static int put_small(lent_world_t *world, unsigned n)
{
    uint8_t bytes[PUT_LEN];

    memset(bytes, n + 1, sizeof(bytes));
    return np_ep_put_copied(&world->pair.link.flight, world->key, bytes,
                            sizeof(bytes), put_addr(world, n)) == UCS_OK;
}

static int put_begin(lent_world_t *world, unsigned count)
{
    unsigned n;

    if (!lent_open(world, 1)) {
        return 0;
    }

    memset(world->theirs, PUT_BEFORE, LENT_SIZE);
    for (n = 0; n < count; ++n) {
        if (!put_small(world, n)) {
            return 0;
        }
    }
    return 1;
}

/* The target's bytes of the n-th put */
static int put_has(const lent_world_t *world, unsigned n, uint8_t value)
{
    const uint8_t *bytes = (const uint8_t*)put_addr(world, n);
    unsigned i;

    for (i = 0; i < PUT_LEN; ++i) {
        if (bytes[i] != value) {
            return 0;
        }
    }
    return bytes[PUT_LEN] == PUT_BEFORE;
}

/* Progress until nothing is outstanding */
static int put_flush(lent_world_t *world, int attended)
{
    return lent_wait_all(world, attended) &&
           np_flight_flush(&world->pair.link.flight, NULL) == UCS_OK;
}

/* The target looks again, and has what the program has written since */
static int put_stays(lent_world_t *world)
{
    unsigned i;

    memset(world->theirs, PUT_AFTER, LENT_SIZE);
    for (i = 0; i < 100; ++i) {
        pair_progress(world->pair.target);
        pair_progress(world->pair.initiator);
    }
    for (i = 0; i < LENT_SIZE; ++i) {
        if (world->theirs[i] != PUT_AFTER) {
            return 0;
        }
    }
    return !world->pair.peer->is_malformed;
}

/* The target executes the n-th slot that it has not passed, and is stopped
 * before it says how far it is */
static int put_execute(lent_world_t *world, unsigned n)
{
    np_ring_rx_t *ring   = &world->pair.peer->data;
    const uint32_t index = ring->head + n;
    np_slot_t *slot      = &ring->slots[index & ring->mask];

    int is_served;

    is_served = np_carry_serve(world->pair.peer, slot,
                               atomic_load(&slot->word));
    np_carry_lent(world->pair.peer);
    return is_served && (slot->rma.status == UCS_OK);
}

static int put_child_small(void)
{
    lent_world_t world;
    unsigned n;

    TAP_CHILD_CHECK(put_begin(&world, PUT_COUNT));
    TAP_CHILD_CHECK(put_has(&world, 0, PUT_BEFORE));
    TAP_CHILD_CHECK(np_flight_flush(&world.pair.link.flight, NULL) ==
                    UCS_INPROGRESS);
    /* nothing would wake it when it is late */
    TAP_CHILD_CHECK(np_port_arm(world.pair.initiator) == UCS_ERR_BUSY);
    TAP_CHILD_CHECK(put_flush(&world, 1));
    for (n = 0; n < PUT_COUNT; ++n) {
        TAP_CHILD_CHECK(put_has(&world, n, n + 1));
    }
    TAP_CHILD_CHECK(lent_count(&world, PUT_COUNT, 0));
    TAP_CHILD_CHECK(put_stays(&world));
    lent_close(&world);
    return 0;
}

static int put_child_large(void)
{
    lent_world_t world;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    lent_fill(world.ours, 5);
    TAP_CHILD_CHECK(lent_put(&world, 0) == UCS_INPROGRESS);
    TAP_CHILD_CHECK(lent_wait(&world, 0, 1) && lent_is_right(&world, 0));
    TAP_CHILD_CHECK(lent_count(&world, 1, 0) && put_stays(&world));
    lent_close(&world);
    return 0;
}

/* The target does not come: the kernel does it, and when it comes it does not
 * do it once more */
static int put_child_left(void)
{
    lent_world_t world;
    unsigned n;

    TAP_CHILD_CHECK(put_begin(&world, PUT_COUNT));
    TAP_CHILD_CHECK(put_flush(&world, 0));
    for (n = 0; n < PUT_COUNT; ++n) {
        TAP_CHILD_CHECK(put_has(&world, n, n + 1));
    }
    TAP_CHILD_CHECK(lent_count(&world, 0, PUT_COUNT));

    /* nor is it tried again before that has passed */
    TAP_CHILD_CHECK(put_small(&world, 0) &&
                    (world.pair.link.flight.outstanding == 0));

    /* there is room beside what was left */
    TAP_CHILD_CHECK(np_flight_has_resources(&world.pair.link.flight));
    TAP_CHILD_CHECK(np_rma_may_put(&world.pair.link, put_addr(&world, 0),
                                   PUT_LEN) == UCS_OK);
    TAP_CHILD_CHECK(put_stays(&world));
    lent_close(&world);
    return 0;
}

/* It stops in the middle, before it has told how far it is: what it has
 * executed is not executed by the kernel as well */
static int put_child_once(void)
{
    lent_world_t world;

    TAP_CHILD_CHECK(put_begin(&world, PUT_COUNT));
    TAP_CHILD_CHECK(put_execute(&world, 0) && put_execute(&world, 1));
    TAP_CHILD_CHECK(put_has(&world, 1, 2) && put_has(&world, 2, PUT_BEFORE));
    memset(world.theirs, PUT_BEFORE, LENT_SIZE);
    TAP_CHILD_CHECK(put_flush(&world, 0));
    TAP_CHILD_CHECK(put_has(&world, 0, PUT_BEFORE) &&
                    put_has(&world, 1, PUT_BEFORE) && put_has(&world, 2, 3));
    TAP_CHILD_CHECK(lent_count(&world, 2, 1));

    /* nor is any lost if it closes its port now */
    atomic_store(&world.pair.link.shm->left, 1);
    TAP_CHILD_CHECK(!np_link_has_lost(&world.pair.link));
    atomic_store(&world.pair.link.shm->left, 0);
    TAP_CHILD_CHECK(put_stays(&world));
    lent_close(&world);
    return 0;
}

/* The same for pieces of a large one */
static int put_child_large_once(void)
{
    lent_world_t world;
    size_t piece;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    piece = np_rma_ring_piece(&world.pair.link);
    lent_fill(world.ours, 5);
    TAP_CHILD_CHECK(lent_put(&world, 0) == UCS_INPROGRESS);
    TAP_CHILD_CHECK(put_execute(&world, 0));
    TAP_CHILD_CHECK(memcmp(world.theirs, world.ours, piece) == 0);
    memset(world.theirs, PUT_BEFORE, LENT_SIZE);
    TAP_CHILD_CHECK(lent_wait(&world, 0, 0));
    TAP_CHILD_CHECK((world.theirs[0] == PUT_BEFORE) &&
                    (world.theirs[piece - 1] == PUT_BEFORE) &&
                    (memcmp(world.theirs + piece, world.ours + piece,
                            LENT_SIZE - piece) == 0));
    TAP_CHILD_CHECK(lent_count(&world, 0, 1) && put_stays(&world));
    lent_close(&world);
    return 0;
}

/* It is in the middle of one: nobody knows whether it will have executed it */
static int put_child_executing(void)
{
    lent_world_t world;
    uint64_t end;

    TAP_CHILD_CHECK(put_begin(&world, 1));
    atomic_store(&world.pair.link.shm->lending, 7);
    for (end = np_clock() + 20000000; np_clock() < end;) {
        pair_progress(world.pair.initiator);
    }
    TAP_CHILD_CHECK(put_has(&world, 0, PUT_BEFORE));
    TAP_CHILD_CHECK(world.pair.link.flight.outstanding == 1);
    TAP_CHILD_CHECK(np_port_arm(world.pair.initiator) == UCS_ERR_BUSY);
    atomic_store(&world.pair.link.shm->lending, 8);
    TAP_CHILD_CHECK(put_flush(&world, 0) && put_has(&world, 0, 1));
    TAP_CHILD_CHECK(put_stays(&world));
    lent_close(&world);
    return 0;
}

/* It ends what is recalled just then. Later ones are recalled anew. */
static int put_child_later(void)
{
    lent_world_t world;
    uint64_t end;

    TAP_CHILD_CHECK(put_begin(&world, 1));
    TAP_CHILD_CHECK(put_execute(&world, 0));
    atomic_store(&world.pair.link.shm->lending, 7);
    for (end = np_clock() + 2000000; np_clock() < end;) {
        pair_progress(world.pair.initiator);
    }
    TAP_CHILD_CHECK(np_lend_is_left(&world.pair.link));
    np_ring_rx_advance(&world.pair.peer->data);
    np_ring_rx_publish(&world.pair.peer->data);
    atomic_store(&world.pair.link.shm->lending, 8);
    TAP_CHILD_CHECK(put_flush(&world, 0) && lent_count(&world, 1, 0));

    for (end = np_clock() + 2000000; np_clock() < end;) {
    }
    TAP_CHILD_CHECK(put_small(&world, 1) && put_has(&world, 1, PUT_BEFORE));
    TAP_CHILD_CHECK(put_flush(&world, 0) && put_has(&world, 1, 2));
    TAP_CHILD_CHECK(lent_count(&world, 1, 1) && put_stays(&world));
    lent_close(&world);
    return 0;
}

/* It has executed all, and closes its port in peace before we have looked */
static int put_child_closes(void)
{
    lent_world_t world;
    np_link_t *link = &world.pair.link;

    TAP_CHILD_CHECK(put_begin(&world, 2));
    pair_progress(world.pair.target);
    TAP_CHILD_CHECK(link->flight.outstanding == 2);
    atomic_store(&link->shm->left, 1);
    np_link_down(link, UCS_ERR_ENDPOINT_TIMEOUT);
    TAP_CHILD_CHECK(ucs_list_is_empty(&link->flight.down));
    pair_progress(world.pair.initiator);
    TAP_CHILD_CHECK((link->flight.outstanding == 0) &&
                    !link->flight.is_reported && lent_count(&world, 2, 0));
    lent_close(&world);
    return 0;
}

/* There is no room beside what others need: it waits for those before it, which
 * the target executes, or which are left */
static int put_child_waits(void)
{
    const uint8_t bytes[PUT_LEN] = {1};
    ucs_status_t status = UCS_OK;
    lent_world_t world;
    np_link_t *link = &world.pair.link;
    unsigned n, attended;

    TAP_CHILD_CHECK(put_begin(&world, 0));
    for (attended = 0; attended < 2; ++attended) {
        for (n = 0; (n < (LENT_SIZE / LENT_PAGE)) && (status == UCS_OK); ++n) {
            status = np_lend_put(link, world.key, bytes, PUT_LEN,
                                 put_addr(&world, n));
        }
        TAP_CHILD_CHECK((n > 2) && (status == UCS_ERR_NO_RESOURCE));
        TAP_CHILD_CHECK(!np_flight_has_resources(&link->flight));
        TAP_CHILD_CHECK(put_flush(&world, !attended));
        TAP_CHILD_CHECK(np_flight_has_resources(&link->flight));
        status = UCS_OK;
    }
    TAP_CHILD_CHECK(np_lend_put(link, world.key, bytes, PUT_LEN,
                                put_addr(&world, 0)) == UCS_ERR_UNSUPPORTED);
    TAP_CHILD_CHECK(put_stays(&world));
    lent_close(&world);
    return 0;
}

/* One of two is refused: the other one goes another way, too, or pieces of a
 * large one might go twice. It is tried again all the same. */
static int put_child_refused(void)
{
    const unsigned other = LENT_SIZE / LENT_PAGE / 2;
    lent_world_t world;
    uint64_t end;

    TAP_CHILD_CHECK(put_begin(&world, 0));
    np_lent_end(world.id);
    world.id = np_lent_begin((uintptr_t)put_addr(&world, other),
                             LENT_SIZE / 2);
    TAP_CHILD_CHECK(put_small(&world, 0) && put_small(&world, other));
    TAP_CHILD_CHECK(put_flush(&world, 1));
    TAP_CHILD_CHECK(put_has(&world, 0, 1) && put_has(&world, other, other + 1));
    TAP_CHILD_CHECK(lent_count(&world, 0, 2) && put_stays(&world));

    memset(world.theirs, PUT_BEFORE, LENT_SIZE);
    for (end = np_clock() + 2000000; np_clock() < end;) {
    }
    TAP_CHILD_CHECK(put_small(&world, other) && put_flush(&world, 1));
    TAP_CHILD_CHECK(put_has(&world, other, other + 1));
    TAP_CHILD_CHECK(lent_count(&world, 1, 2) && put_stays(&world));
    lent_close(&world);
    return 0;
}

/* Without the kernel there is no other way to go */
static int put_child_no_vm(void)
{
    lent_world_t world;

    TAP_CHILD_CHECK(put_begin(&world, 0));
    world.pair.link.no_vm = 1;
    TAP_CHILD_CHECK(put_small(&world, 0) && put_flush(&world, 1));
    TAP_CHILD_CHECK(put_has(&world, 0, 1) && lent_count(&world, 0, 0));
    lent_close(&world);
    return 0;
}

/* A later one to the same bytes comes later, though it may go another way */
static int put_child_order(void)
{
    lent_world_t world;
    np_flight_t *flight;

    TAP_CHILD_CHECK(put_begin(&world, 1));
    flight = &world.pair.link.flight;
    TAP_CHILD_CHECK(np_flight_order(flight, put_addr(&world, 0), 8, 1) ==
                    UCS_ERR_NO_RESOURCE);
    TAP_CHILD_CHECK(np_flight_order(flight, put_addr(&world, 1), 8, 1) ==
                    UCS_OK);
    TAP_CHILD_CHECK(put_flush(&world, 1));
    TAP_CHILD_CHECK(np_flight_order(flight, put_addr(&world, 0), 8, 1) ==
                    UCS_OK);
    lent_close(&world);
    return 0;
}

static ucs_status_t put_refused(lent_world_t *world, uint64_t addr)
{
    np_slot_t slot = {.rma = {.addr = addr, .status = UCS_INPROGRESS}};
    int is_served;

    is_served = np_carry_serve(world->pair.peer, &slot,
                               np_slot_word(0, 8, NP_SLOT_PUT, NP_CARRY_LENT));
    np_carry_lent(world->pair.peer);
    return is_served ? slot.rma.status : UCS_INPROGRESS;
}

static int put_child_rights(void)
{
    lent_world_t world;

    TAP_CHILD_CHECK(put_begin(&world, 0));
    TAP_CHILD_CHECK(put_refused(&world, LENT_PAGE) == UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(put_refused(&world, UINT64_MAX - 3) ==
                    UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(put_refused(&world, (uintptr_t)world.theirs + LENT_SIZE -
                                4) == UCS_ERR_NO_PROGRESS);
    /* of an epoch that has ended */
    atomic_fetch_add(&world.pair.link.shm->lent_epoch, 1);
    TAP_CHILD_CHECK(put_refused(&world, (uintptr_t)world.theirs) ==
                    UCS_ERR_NO_PROGRESS);
    TAP_CHILD_CHECK(put_stays(&world));
    lent_close(&world);
    return 0;
}

/* It is not lent any more when the target comes to it */
static int put_child_not_lent(void)
{
    lent_world_t world;

    TAP_CHILD_CHECK(put_begin(&world, PUT_COUNT));
    np_lent_end(world.id);
    TAP_CHILD_CHECK(put_flush(&world, 1));
    TAP_CHILD_CHECK(put_has(&world, 0, 1) && put_has(&world, 2, 3));
    TAP_CHILD_CHECK(lent_count(&world, 0, PUT_COUNT) && put_stays(&world));
    pair_close(&world.pair);
    return 0;
}

static int put_child_cancelled(void)
{
    lent_world_t world;

    TAP_CHILD_CHECK(put_begin(&world, PUT_COUNT));
    TAP_CHILD_CHECK(put_execute(&world, 0));
    np_ep_cancel(&world.pair.link.flight, UCS_ERR_CANCELED);
    TAP_CHILD_CHECK(world.pair.link.lent_count == 0);
    TAP_CHILD_CHECK(put_stays(&world));
    lent_close(&world);
    return 0;
}

static void put_unpack(void *arg, const void *data, size_t len)
{
    memcpy(put_unpacked, data, len);
    ++put_unpacks;
}

/* Small gets: they come, and they are left */
static int put_child_gets(void)
{
    lent_world_t world;
    int attended;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    for (attended = 1; attended >= 0; --attended) {
        put_unpacks   = 0;
        world.done[0] = UCS_INPROGRESS;
        lent_fill(world.theirs, 3 + attended);
        TAP_CHILD_CHECK(np_ep_get_unpack(&world.pair.link.flight, world.key,
                                         PUT_LEN, (uintptr_t)world.theirs,
                                         put_unpack, NULL, &world.done[0]) ==
                        UCS_INPROGRESS);
        TAP_CHILD_CHECK(put_unpacks == 0);
        TAP_CHILD_CHECK(lent_wait(&world, 0, attended));
        TAP_CHILD_CHECK((put_unpacks == 1) &&
                        (memcmp(put_unpacked, world.theirs, PUT_LEN) == 0));
    }
    TAP_CHILD_CHECK(lent_count(&world, 1, 1));
    memset(put_unpacked, 0, PUT_LEN);
    TAP_CHILD_CHECK(put_stays(&world) && (put_unpacks == 1));
    lent_close(&world);
    return 0;
}

/* Requests that follow each other are one turn of lending, and a message ends
 * it: what its receiver does takes as long as it likes */
static int put_child_turns(void)
{
    lent_world_t world;
    uint32_t before;

    TAP_CHILD_CHECK(lent_open_of_slots(&world, 1, 128));
    memset(world.theirs, PUT_BEFORE, LENT_SIZE);
    before        = atomic_load(&world.pair.link.shm->lending);
    pair_received = 0;
    TAP_CHILD_CHECK(put_small(&world, 0) && put_small(&world, 1));
    pair_send(&world.pair.link);
    TAP_CHILD_CHECK(put_small(&world, 2) && put_small(&world, 3));
    pair_progress(world.pair.target);
    TAP_CHILD_CHECK(pair_received == 1);
    TAP_CHILD_CHECK(atomic_load(&world.pair.link.shm->lending) == before + 4);
    TAP_CHILD_CHECK(put_has(&world, 0, 1) && put_has(&world, 3, 4));
    TAP_CHILD_CHECK(put_flush(&world, 1) && lent_count(&world, 4, 0));

    /* nothing is kept: it may end */
    np_lent_end(world.id);
    pair_close(&world.pair);
    return 0;
}

/* It is recalled between two requests of a row: what comes later in the row is
 * not executed, and goes once by the kernel */
static int put_child_row_recalled(void)
{
    lent_world_t world;
    np_ring_rx_t *ring;
    uint64_t word;

    TAP_CHILD_CHECK(lent_open_of_slots(&world, 1, 128));
    memset(world.theirs, PUT_BEFORE, LENT_SIZE);
    TAP_CHILD_CHECK(put_small(&world, 0) && put_small(&world, 1) &&
                    put_small(&world, 2));
    /* as if the number had been counted up then */
    ring = &world.pair.peer->data;
    ring->slots[(ring->head + 1) & ring->mask].rma.epoch -= 1;
    ring->slots[(ring->head + 2) & ring->mask].rma.epoch -= 1;
    TAP_CHILD_CHECK(np_ring_rx_is_ready(ring, &word) &&
                    np_carry_take_row(world.pair.peer, word));
    TAP_CHILD_CHECK(!(world.pair.peer->lending & 1) &&
                    (world.pair.peer->kept == NULL));
    TAP_CHILD_CHECK(put_has(&world, 0, 1) && put_has(&world, 1, PUT_BEFORE));
    TAP_CHILD_CHECK(put_flush(&world, 1));
    TAP_CHILD_CHECK(put_has(&world, 1, 2) && put_has(&world, 2, 3));
    TAP_CHILD_CHECK(lent_count(&world, 1, 2) && put_stays(&world));
    lent_close(&world);
    return 0;
}

static void *put_ender(void *arg)
{
    lent_world_t *world = arg;

    np_lent_end(world->id);
    __atomic_store_n(&world->done[0], UCS_OK, __ATOMIC_RELEASE);
    return NULL;
}

/* A range that is kept does not end; and nothing of it is copied any more, nor
 * of another one kept with it */
static int put_child_kept(void)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    np_lent_range_t *kept       = NULL, *before;
    uint8_t other[64], byte     = 0x5a;
    lent_world_t world;
    pthread_t thread;
    unsigned id;

    TAP_CHILD_CHECK(put_begin(&world, 0));
    TAP_CHILD_CHECK(np_lent_copy(NP_DIR_PUT, put_addr(&world, 0), &byte, 1, 0,
                                 &kept) && (kept != NULL));
    before        = kept;
    world.done[0] = UCS_INPROGRESS;
    TAP_CHILD_CHECK(pthread_create(&thread, NULL, put_ender, &world) == 0);
    nanosleep(&pause, NULL);
    TAP_CHILD_CHECK(__atomic_load_n(&world.done[0], __ATOMIC_ACQUIRE) ==
                    UCS_INPROGRESS);
    id = np_lent_begin((uintptr_t)other, sizeof(other));
    TAP_CHILD_CHECK(np_lent_copy(NP_DIR_PUT, (uintptr_t)other, &byte, 1, 0,
                                 &kept) && (kept != before));
    pthread_join(thread, NULL); /* what was kept was left for the other one */
    TAP_CHILD_CHECK(!np_lent_copy(NP_DIR_PUT, put_addr(&world, 0), &byte, 1, 0,
                                  &kept) && (kept == NULL));
    np_lent_end(id);
    pair_close(&world.pair);
    return 0;
}

void test_lent_put_children(void)
{
    TAP_CHECK(tap_child(put_child_small), "lent: small puts go through rings");
    TAP_CHECK(tap_child(put_child_large), "lent: and large ones");
    tap_vm_check(put_child_left,
              "lent: puts to a target that computes go by the kernel, once");
    tap_vm_check(put_child_once,
              "lent: of puts that it has executed none is executed again");
    tap_vm_check(put_child_large_once,
              "lent: nor any piece of a large one");
    tap_vm_check(put_child_executing,
              "lent: a put that it is executing is waited for");
    tap_vm_check(put_child_later,
              "lent: what comes after a recall is recalled anew");
    tap_vm_check(put_child_refused,
              "lent: one that is refused, and one beside it");
    tap_vm_check(put_child_waits,
              "lent: a put that finds no room waits for others");
    TAP_CHECK(tap_child(put_child_closes),
              "lent: a target that closes after it has executed all");
    TAP_CHECK(tap_child(put_child_no_vm),
              "lent: nothing where the kernel does not do it");
    TAP_CHECK(tap_child(put_child_order),
              "lent: a put to the same bytes waits for the one before");
    TAP_CHECK(tap_child(put_child_rights), "lent: rights and bounds of puts");
    TAP_CHECK(tap_child(put_child_not_lent),
              "lent: puts to what is not go by another way");
    TAP_CHECK(tap_child(put_child_cancelled), "lent: cancelled puts");
    tap_vm_check(put_child_gets, "lent: small gets come, or are left");
    TAP_CHECK(tap_child(put_child_turns),
              "lent: requests in a row are one turn, without what is between");
    TAP_CHECK(tap_child(put_child_row_recalled),
              "lent: a row that is recalled in its middle");
    TAP_CHECK(tap_child(put_child_kept),
              "lent: a range that is kept ends later");
}
