/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers of the program's own memory to and from what the target has lent
 * that fit into one slot: one request, and no copy in pieces. */

#include "lent_world.h"
#include "tap.h"

#include "nprdma/clock.h"
#include "nprdma/mem/lent.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/rma.h"

#include <string.h>

#define MOVE_BEFORE 0x11

/* Slots, and 64 bytes of payload for each: for pieces of 32 KiB */
#define MOVE_SLOTS  2048u

/* Of many */
#define MOVE_STEP   1024u
#define MOVE_LEN    40u


static int move_has_before(const uint8_t *bytes)
{
    size_t i;

    for (i = 0; (i < LENT_SIZE) && (bytes[i] == MOVE_BEFORE); ++i) {
    }
    return i == LENT_SIZE;
}

static ucs_status_t move_post(lent_world_t *world, np_dir_t dir, size_t len)
{
    const np_iov_t iov = {world->ours, len};

    world->done[0] = UCS_INPROGRESS;
    lent_fill((dir == NP_DIR_PUT) ? world->ours : world->theirs, len);
    return np_ep_move(dir, &world->pair.link.flight, world->key, &iov, 1,
                      (uintptr_t)world->theirs, &world->done[0]);
}

/* What fits into one slot is no copy in pieces: it comes, or is left and then
 * comes as one */
static int move_all(np_dir_t dir)
{
    const size_t lens[] = {1, 8, 32, 33, 1000, 1025, 5000, 32768};
    lent_world_t world;
    np_flight_t *flight;
    unsigned i;
    int is_left;

    TAP_CHILD_CHECK(lent_open_of_slots(&world, 1, MOVE_SLOTS));
    TAP_CHILD_CHECK(np_rma_ring_piece(&world.pair.link) == 32768);
    flight = &world.pair.link.flight;
    for (i = 0; i < (2 * ucs_static_array_size(lens)); ++i) {
        const size_t len = lens[i / 2];

        is_left = i % 2;
        for (; world.pair.link.lent_from > np_clock();) {
        }
        TAP_CHILD_CHECK(move_post(&world, dir, len) == UCS_INPROGRESS);
        TAP_CHILD_CHECK((flight->outstanding == 1) &&
                        (flight->count[NP_OP_COPY] == 0));
        TAP_CHILD_CHECK(lent_wait(&world, 0, !is_left));
        TAP_CHILD_CHECK(memcmp(world.ours, world.theirs, len) == 0);
        TAP_CHILD_CHECK(flight->outstanding == 0);

        memset((dir == NP_DIR_PUT) ? world.theirs : world.ours, MOVE_BEFORE,
               LENT_SIZE);
        pair_progress(world.pair.target);
        pair_progress(world.pair.initiator);
        TAP_CHILD_CHECK(move_has_before((dir == NP_DIR_PUT) ? world.theirs :
                                        world.ours));
    }
    TAP_CHILD_CHECK(lent_count(&world, i / 2, i / 2));
    lent_close(&world);
    return 0;
}

/* The n-th of many, without a completion */
static ucs_status_t move_one(lent_world_t *world, np_dir_t dir, unsigned n)
{
    const size_t offset = n * MOVE_STEP;
    const np_iov_t iov  = {world->ours + offset, MOVE_LEN};

    return np_ep_move(dir, &world->pair.link.flight, world->key, &iov, 1,
                      (uintptr_t)world->theirs + offset, NULL);
}

/* Many at once: they come in rows; or the target stops in the middle, and what
 * it has not executed is left, and all comes once */
static int move_many(np_dir_t dir, int is_left)
{
    const unsigned count = LENT_SIZE / MOVE_STEP;
    lent_world_t world;
    np_stats_t *stats;
    uint64_t word;
    unsigned i;

    TAP_CHILD_CHECK(lent_open_of_slots(&world, 1, MOVE_SLOTS));
    memset((dir == NP_DIR_PUT) ? world.theirs : world.ours, 0, LENT_SIZE);
    lent_fill((dir == NP_DIR_PUT) ? world.ours : world.theirs, 5);
    for (i = 0; i < count; ++i) {
        TAP_CHILD_CHECK(move_one(&world, dir, i) == UCS_INPROGRESS);
    }
    if (is_left) {
        /* one row, and it is stopped before it says how far it is */
        TAP_CHILD_CHECK(np_ring_rx_is_ready(&world.pair.peer->data, &word) &&
                        np_carry_take_row(world.pair.peer, word));
    }
    TAP_CHILD_CHECK(lent_wait_all(&world, !is_left));
    for (i = 0; i < count; ++i) {
        TAP_CHILD_CHECK(memcmp(world.ours + (i * MOVE_STEP),
                               world.theirs + (i * MOVE_STEP), MOVE_LEN) == 0);
    }
    stats = world.pair.initiator->flights.stats;
    TAP_CHILD_CHECK((stats->lent + stats->lent_left) == count);
    TAP_CHILD_CHECK((stats->lent > 1) && ((stats->lent_left > 0) == is_left));
    lent_close(&world);
    return 0;
}

static int move_child_many(void)
{
    return move_many(NP_DIR_PUT, 0);
}

static int move_child_many_gets(void)
{
    return move_many(NP_DIR_GET, 0);
}

static int move_child_many_left(void)
{
    return move_many(NP_DIR_PUT, 1);
}

static int move_child_many_gets_left(void)
{
    return move_many(NP_DIR_GET, 1);
}

static int move_child_puts(void)
{
    return move_all(NP_DIR_PUT);
}

static int move_child_gets(void)
{
    return move_all(NP_DIR_GET);
}

/* Its memory is the program's again */
static int move_child_cancelled(void)
{
    lent_world_t world;

    TAP_CHILD_CHECK(lent_open(&world, 1));
    TAP_CHILD_CHECK(move_post(&world, NP_DIR_GET, 64) == UCS_INPROGRESS);
    pair_progress(world.pair.target);
    memset(world.ours, MOVE_BEFORE, 64);
    np_ep_cancel(&world.pair.link.flight, UCS_ERR_CANCELED);
    TAP_CHILD_CHECK((world.done[0] == UCS_ERR_CANCELED) &&
                    (world.ours[0] == MOVE_BEFORE));
    pair_progress(world.pair.initiator);
    TAP_CHILD_CHECK(world.ours[63] == MOVE_BEFORE);
    lent_close(&world);
    return 0;
}

void test_lent_move_children(void)
{
    tap_vm_check(move_child_puts,
              "lent: puts in one slot come, or are left");
    tap_vm_check(move_child_gets, "lent: and such gets");
    TAP_CHECK(tap_child(move_child_many), "lent: many puts in rows");
    TAP_CHECK(tap_child(move_child_many_gets), "lent: many gets in rows");
    tap_vm_check(move_child_many_left,
              "lent: many puts, of which the target executes some");
    tap_vm_check(move_child_many_gets_left, "lent: and many gets");
    TAP_CHECK(tap_child(move_child_cancelled),
              "lent: one of these is cancelled");
}
