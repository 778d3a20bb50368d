/* SPDX-License-Identifier: BSD-3-Clause */
/* A pair of ports, and memory that the target has lent. */

#include "lent_world.h"
#include "tap.h"

#include "nprdma/clock.h"
#include "nprdma/mem/lent.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/proto/ep.h"

#include <string.h>
#include <sys/mman.h>


uint8_t *lent_map(size_t len)
{
    return mmap(NULL, len, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

void lent_fill(uint8_t *bytes, uint8_t seed)
{
    size_t i;

    for (i = 0; i < LENT_SIZE; ++i) {
        bytes[i] = seed + (i * 7) + (i >> 8);
    }
}

int lent_open(lent_world_t *world, int is_lent)
{
    return lent_open_of_slots(world, is_lent, PAIR_SLOTS);
}

int lent_open_of_slots(lent_world_t *world, int is_lent, unsigned slots)
{
    np_packed_key_t packed;
    np_arenas_t arenas;

    if (!pair_open_child_of_slots(&world->pair, slots) ||
        !pair_wait_received(world->pair.target, world->pair.initiator, 1)) {
        return 0;
    }

    np_engine.config.lend        = 1;
    np_engine.config.share_chunk = LENT_PAGE;
    world->theirs = lent_map(LENT_SIZE);
    world->ours   = lent_map(LENT_COPIES * LENT_SIZE);
    lent_fill(world->theirs, 1);
    np_arenas_share((uintptr_t)world->theirs, LENT_SIZE, &arenas);
    np_key_pack_arenas(&packed, arenas);
    packed.engine_id = ++world->pair.link.flight.engine_id;
    world->id = is_lent ? np_lent_begin((uintptr_t)world->theirs, LENT_SIZE) :
                0;
    return (np_key_unpack(&packed, &world->key) == UCS_OK) &&
           (np_mapper_fault_in((uintptr_t)world->theirs, LENT_SIZE, 1) ==
            UCS_OK) &&
           (np_mapper_fault_in((uintptr_t)world->ours,
                               LENT_COPIES * LENT_SIZE, 1) == UCS_OK) &&
           (is_lent == (world->id > 0));
}

ucs_status_t lent_get(lent_world_t *world, unsigned copy)
{
    const np_iov_t iov = {world->ours + (copy * LENT_SIZE), LENT_SIZE};

    world->done[copy] = UCS_INPROGRESS;
    memset(iov.base, 0, LENT_SIZE);
    return np_ep_move(NP_DIR_GET, &world->pair.link.flight, world->key, &iov,
                      1, (uintptr_t)world->theirs, &world->done[copy]);
}

ucs_status_t lent_put(lent_world_t *world, unsigned copy)
{
    const np_iov_t iov = {world->ours + (copy * LENT_SIZE), LENT_SIZE};

    world->done[copy] = UCS_INPROGRESS;
    return np_ep_move(NP_DIR_PUT, &world->pair.link.flight, world->key, &iov,
                      1, (uintptr_t)world->theirs, &world->done[copy]);
}

int lent_is_right(const lent_world_t *world, unsigned copy)
{
    return memcmp(world->ours + (copy * LENT_SIZE), world->theirs,
                  LENT_SIZE) == 0;
}

int lent_wait(lent_world_t *world, unsigned copy, int attended)
{
    const uint64_t end = np_clock() + UINT64_C(5000000000);

    while ((world->done[copy] == UCS_INPROGRESS) && (np_clock() < end)) {
        if (attended) {
            pair_progress(world->pair.target);
        }
        pair_progress(world->pair.initiator);
    }
    return world->done[copy] == UCS_OK;
}

int lent_wait_all(lent_world_t *world, int attended)
{
    const uint64_t end = np_clock() + UINT64_C(5000000000);

    while ((world->pair.link.flight.outstanding > 0) && (np_clock() < end)) {
        if (attended) {
            pair_progress(world->pair.target);
        }
        pair_progress(world->pair.initiator);
    }
    return world->pair.link.flight.outstanding == 0;
}

void lent_close(lent_world_t *world)
{
    np_lent_end(world->id);
    pair_close(&world->pair);
}

int lent_count(const lent_world_t *world, unsigned came, unsigned left)
{
    const np_stats_t *stats = world->pair.initiator->flights.stats;

    return (stats->lent == came) && (stats->lent_left == left);
}
