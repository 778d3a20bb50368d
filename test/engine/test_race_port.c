/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ports of one process, and what connects them. */

#include "test_race.h"

#include "nprdma/proto/ep.h"

#include <string.h>
#include <sys/mman.h>

/* Page at which the second arena begins; most transfers touch the one before */
#define RACE_BORDER  2

/* Rounds until a connection is there: sockets are looked at now and then */
#define RACE_CONNECT 1000000

race_world_t race;


static void race_complete(void *arg, ucs_status_t status)
{
    race_comp_t *comp = arg;

    if (comp == NULL) {
        ++race.unexpected;
        return;
    }

    ++comp->count;
    comp->status = status;
}

static void race_link_down(np_flight_t *flight, ucs_status_t status)
{
    race_violation("a link is down: %s", ucs_status_string(status));
}

static const np_user_t race_user = {
    .complete  = race_complete,
    .link_down = race_link_down
};

static void race_receive(void *arg, uint8_t id, void *data, unsigned len)
{
    if (race.receive != NULL) {
        race.receive(data, len);
    }
}

void race_serve(void)
{
    const np_single_copy_t single_copy = np_engine.config.single_copy;

    if (race.to_is_busy) {
        return;
    }

    if (race.is_refusing) {
        np_engine.config.single_copy = NP_SINGLE_COPY_OFF;
    }
    race.to_is_busy = 1;
    np_port_poll(race.to, race_receive, NULL);
    np_port_work(race.to);
    race.to_is_busy              = 0;
    np_engine.config.single_copy = single_copy;
}

void race_progress(void)
{
    np_port_poll(race.from, race_receive, NULL);
    np_port_work(race.from);
    if (race.to_is_busy) {
        race_actors_finish(); /* one of them is in there */
    }
    race_serve();
}

int race_drain(void)
{
    unsigned i;

    for (i = 0; (race.link.flight.outstanding +
                 race.second.flight.outstanding) > 0; ++i) {
        if (i == RACE_PROGRESS) {
            return 0;
        }
        race_progress();
    }
    return 1;
}

static int race_connect(np_link_t *link)
{
    np_port_addr_t addr;
    unsigned i;

    np_port_get_addr(race.to, &addr);
    np_link_init(link, race.from, &addr);
    if (np_link_connect(link) != UCS_OK) {
        return 0;
    }

    for (i = 0; (i < RACE_CONNECT) && (link->remote == NULL); ++i) {
        race_progress();
    }
    return link->remote != NULL;
}

static int race_get_window(void)
{
    unsigned i;

    for (i = 0; i < RACE_CONNECT; ++i) {
        if (np_fast_direct(&race.link, race.key, race_va(&race_remote, 0)) !=
            NULL) {
            return 1;
        }
        race_progress();
    }
    return 0;
}

/* Memory of two arenas, or where the kernel likes; there until the end */
static void *race_map(int is_across)
{
    const size_t arena = UCS_BIT(NP_ARENA_SHIFT);
    size_t len         = is_across ? (2 * arena) + RACE_SIZE : RACE_SIZE;
    uintptr_t base;
    void *ptr;

    ptr = mmap(NULL, len, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if ((ptr == MAP_FAILED) || !is_across) {
        return (ptr == MAP_FAILED) ? NULL : ptr;
    }

    base = ucs_align_up_pow2((uintptr_t)ptr + RACE_SIZE, arena);
    return (void*)(base - (RACE_BORDER * NP_PAGE_SIZE));
}

/* Remote memory and its key */
static int race_open_remote(const race_setting_t *setting)
{
    size_t len = RACE_SIZE;
    np_packed_key_t packed;
    np_arenas_t arenas;
    void *base;

    if (setting->is_direct) {
        if (np_alloc_create(NULL, &len, &race.alloc) != UCS_OK) {
            return 0;
        }
        base = race.alloc->addr;
        np_key_pack_segment(&packed, race.alloc->id, (uintptr_t)base, len);
    } else {
        base = race_map(setting->is_across);
        if ((base == NULL) ||
            (np_arenas_share((uintptr_t)base, len, &arenas) != UCS_OK)) {
            return 0;
        }
        np_key_pack_arenas(&packed, arenas);
    }

    return race_region_open(&race_remote, 0, base) &&
           (np_key_unpack(&packed, &race.key) == UCS_OK);
}

int race_open(const race_setting_t *setting)
{
    const np_port_config_t config = {.data_slots = 32, .payload_size = 65536};
    void *base;

    memset(&race, 0, sizeof(race));
    race.is_direct   = setting->is_direct;
    race.is_refusing = setting->is_refusing;
    base             = race_map(setting->is_across);
    return (base != NULL) && race_region_open(&race_local, 1, base) &&
           race_open_remote(setting) &&
           (np_port_open(&config, &np_proto_ops, &race_user, &race.from) ==
            UCS_OK) &&
           (np_port_open(&config, &np_proto_ops, &race_user, &race.to) ==
            UCS_OK) &&
           race_connect(&race.link) && race_connect(&race.second) &&
           (!race.is_direct || race_get_window());
}

void race_close(void)
{
    np_ep_close(&race.link.flight);
    np_ep_close(&race.second.flight);
    np_proto_close(race.from);
    np_proto_close(race.to);
    np_key_release(race.key);
    np_mapper_unmap(race_va(&race_local, 0), RACE_SIZE);
    np_mapper_unmap(race_va(&race_remote, 0), RACE_SIZE);
    np_mapper_remove_swapper(race_va(&race_local, 0), RACE_SIZE);
    np_mapper_remove_swapper(race_va(&race_remote, 0), RACE_SIZE);
    if (race.is_direct) {
        np_alloc_free(race.alloc);
    }
}
