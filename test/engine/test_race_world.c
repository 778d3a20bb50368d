/* SPDX-License-Identifier: BSD-3-Clause */
/* The storage engine: pages, frames and stores. */

#include "test_race.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

race_region_t race_remote, race_local;


/* Five bits that tell an offset, three that tell region and content: no byte of
 * one is a byte of another */
static uint8_t race_byte(size_t offset, unsigned id, race_content_t content)
{
    uint32_t hash = (uint32_t)offset * 2654435761u;

    return ((hash >> 21) & 0x1f) |
           ((content == RACE_POISON) ? (0xa0 + (id << 6)) & 0xe0 :
            ((id * 2) + content) << 5);
}

static const uint8_t *
race_content(const race_region_t *region, race_content_t content, unsigned page)
{
    return region->content[content] + (page * NP_PAGE_SIZE);
}

static uint8_t *race_frame(const race_region_t *region, unsigned page)
{
    return region->base + (page * NP_PAGE_SIZE);
}

const uint8_t *race_holds(const race_region_t *region, size_t offset)
{
    unsigned page = offset / NP_PAGE_SIZE;

    return (region->page[page].state == RACE_OUT) ?
           region->page[page].store + (offset % NP_PAGE_SIZE) :
           region->base + offset;
}

static void race_check_poison(const race_region_t *region, unsigned page)
{
    if (memcmp(race_frame(region, page),
               race_content(region, RACE_POISON, page), NP_PAGE_SIZE) != 0) {
        race_violation("page %u of %s memory was written after it was swapped "
                       "out", page, (region == &race_remote) ? "remote" :
                       "local");
    }
}

void race_evict(race_region_t *region, unsigned page)
{
    race_page_t *this = &region->page[page];

    if (this->state != RACE_IN) {
        return;
    }

    this->state = RACE_GOING;
    np_mapper_unmap(race_va(region, page * NP_PAGE_SIZE), NP_PAGE_SIZE);
    memcpy(this->store, race_frame(region, page), NP_PAGE_SIZE);
    memcpy(race_frame(region, page), race_content(region, RACE_POISON, page),
           NP_PAGE_SIZE);
    this->state = RACE_OUT;
}

void race_bring_in(race_region_t *region, unsigned page)
{
    race_page_t *this = &region->page[page];

    while (this->state == RACE_GOING) {
        if (race.is_threaded) {
            sched_yield();
        } else {
            race_actors_release_page(region, page);
        }
    }

    if (this->state == RACE_OUT) {
        race_check_poison(region, page);
        memcpy(race_frame(region, page), this->store, NP_PAGE_SIZE);
        this->state = RACE_IN;
    }
}

void race_replace(race_region_t *region, unsigned page)
{
    race_page_t *this = &region->page[page];

    if ((this->state != RACE_IN) || this->is_replaced) {
        return;
    }

    race_evict(region, page);
    memcpy(this->saved, this->store, NP_PAGE_SIZE);
    memcpy(this->store, race_content(region, RACE_NEW, page), NP_PAGE_SIZE);
    this->is_replaced = 1;
    race_bring_in(region, page);
}

/* The engine needs these pages */
static int race_swap_in(void *arg, void *va, size_t len, int write)
{
    race_region_t *region = arg;
    unsigned page         = ((uint8_t*)va - region->base) / NP_PAGE_SIZE;
    unsigned end          = page + (len / NP_PAGE_SIZE);

    for (; page < end; ++page) {
        race_bring_in(region, page);
    }
    return 0;
}

int race_region_open(race_region_t *region, unsigned id, void *base)
{
    const np_swapper_t swapper = {race_swap_in, region};
    np_arenas_t arenas;
    unsigned content;
    size_t i;

    memset(region, 0, sizeof(*region));
    region->base = base;
    for (content = 0; content < RACE_CONTENTS; ++content) {
        region->content[content] = malloc(RACE_SIZE);
        if (region->content[content] == NULL) {
            return 0;
        }

        for (i = 0; i < RACE_SIZE; ++i) {
            region->content[content][i] = race_byte(i, id, content);
        }
    }

    region->last = RACE_PAGES - 1;
    return (np_arenas_share(race_va(region, 0), RACE_SIZE, &arenas) ==
            UCS_OK) &&
           (np_mapper_add_swapper(race_va(region, 0), RACE_SIZE, &swapper) ==
            UCS_OK) &&
           race_region_reset(region);
}

int race_region_reset(race_region_t *region)
{
    unsigned page;

    for (page = region->first; page <= region->last; ++page) {
        race_bring_in(region, page);
        region->page[page].is_replaced = 0;
        memcpy(race_frame(region, page), race_content(region, RACE_OLD, page),
               NP_PAGE_SIZE);
    }

    return np_mapper_fault_in(race_va(region, region->first * NP_PAGE_SIZE),
                              (region->last - region->first + 1) * NP_PAGE_SIZE,
                              1) == UCS_OK;
}
