/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps and unmaps that meet, in threads: some pages whose frames a swapper
 * hands out and takes back, a device that puts all the time, two threads that
 * map and one that evicts. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tap.h"

#include "nprdma/mem/mapper.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#define SWARM_PAGES     8
#define SWARM_EVICTIONS 100000
#define SWARM_PATIENCE  (100 * SWARM_EVICTIONS)
#define SWARM_ENOUGH    100

static struct {
    char             *mem;
    pthread_mutex_t  lock;                   /* the swapper's, of its frames */
    _Atomic int      frames[SWARM_PAGES];    /* is a frame there? */
    _Atomic int      stop;
    _Atomic uint32_t flushes;
    _Atomic uint32_t unit;                   /* odd: the device is in one */
    _Atomic unsigned maps;
    _Atomic unsigned landed;
    unsigned         failed_maps;
    unsigned         evictions;
    unsigned         lost, reached, uncovered;
} swarm = {.lock = PTHREAD_MUTEX_INITIALIZER};


static np_table_t *swarm_table(void)
{
    return np_table_find((uintptr_t)swarm.mem >> NP_ARENA_SHIFT);
}

static uint32_t swarm_random(uint32_t *seed)
{
    *seed = (*seed * 1103515245) + 12345;
    return *seed >> 16;
}

/* As a device should: no unit that goes by older translations is left */
static void swarm_flush(UCS_V_UNUSED uint64_t va, UCS_V_UNUSED uint64_t len)
{
    uint32_t unit;

    atomic_fetch_add(&swarm.flushes, 1);
    unit = atomic_load(&swarm.unit);
    while ((unit & 1) && (atomic_load(&swarm.unit) == unit)) {
        sched_yield();
    }
}

static int swarm_swap_in(void *arg, void *va, size_t len, int write)
{
    unsigned first = ((char*)va - swarm.mem) / NP_PAGE_SIZE, i;

    pthread_mutex_lock(&swarm.lock);
    for (i = 0; i < (len / NP_PAGE_SIZE); ++i) {
        atomic_store(&swarm.frames[first + i], 1);
    }
    pthread_mutex_unlock(&swarm.lock);
    return 0;
}

static void *swarm_map_thread(void *arg)
{
    uint32_t seed = 7;
    unsigned first, count;

    while (!atomic_load(&swarm.stop)) {
        first = swarm_random(&seed) % SWARM_PAGES;
        count = 1 + (swarm_random(&seed) % (SWARM_PAGES - first));
        /* the evictor may come in between each time */
        switch (np_mapper_fault_in((uintptr_t)swarm.mem +
                                   (first * NP_PAGE_SIZE),
                                   count * NP_PAGE_SIZE,
                                   swarm_random(&seed) % 4)) {
        case UCS_OK:
            atomic_fetch_add(&swarm.maps, 1);
            break;
        case UCS_ERR_NO_RESOURCE:
            break;
        default:
            ++swarm.failed_maps;
        }
    }

    return NULL;
}

/* The others have had their part: on a busy machine one thread may be done
 * before another begins */
static int swarm_has_enough(void)
{
    return (atomic_load(&swarm.landed) > SWARM_ENOUGH) &&
           (atomic_load(&swarm.maps) > SWARM_ENOUGH);
}

static void *swarm_evict_thread(void *arg)
{
    uint32_t seed = 9;
    unsigned i, first, count, page;

    for (i = 0; (i < SWARM_EVICTIONS) ||
                ((i < SWARM_PATIENCE) && !swarm_has_enough()); ++i) {
        first = swarm_random(&seed) % SWARM_PAGES;
        count = 1 + (swarm_random(&seed) % (SWARM_PAGES - first));
        pthread_mutex_lock(&swarm.lock);
        np_mapper_unmap((uintptr_t)swarm.mem + (first * NP_PAGE_SIZE),
                        count * NP_PAGE_SIZE);
        for (page = first; page < (first + count); ++page) {
            atomic_store(&swarm.frames[page], 0);
        }
        pthread_mutex_unlock(&swarm.lock);
    }

    swarm.evictions = i;
    atomic_store(&swarm.stop, 1);
    return NULL;
}

/* Puts until the evictor has done its work */
static void swarm_device(void)
{
    const uint32_t first = np_page_index((uintptr_t)swarm.mem);
    np_table_t *table    = swarm_table();
    int cached[SWARM_PAGES];
    uint32_t views[SWARM_PAGES], flushes = 0, seed = 3, before, entry, now;
    unsigned page;

    memset(cached, 0, sizeof(cached));
    while (!atomic_load(&swarm.stop)) {
        page   = swarm_random(&seed) % SWARM_PAGES;
        before = atomic_load(&table->entries[first + page]);

        atomic_fetch_add(&swarm.unit, 1);
        now = atomic_load(&swarm.flushes);
        if (now != flushes) {
            memset(cached, 0, sizeof(cached));
            flushes = now;
        }
        if (!cached[page]) {
            views[page]  = atomic_load(&table->views[first + page]);
            cached[page] = 1;
        }
        if (views[page] & NP_ENTRY_WRITE) {
            atomic_fetch_add(&swarm.landed, 1);
            swarm.reached += !atomic_load(&swarm.frames[page]);
        }
        atomic_fetch_add(&swarm.unit, 1);

        entry       = atomic_load(&table->entries[first + page]);
        swarm.lost += (before == entry) && (entry & NP_ENTRY_WRITE) &&
                      !(views[page] & NP_ENTRY_WRITE);
    }
}

void test_mapper_swarm(void)
{
    const np_swapper_t swapper = {swarm_swap_in, NULL};
    const size_t len           = SWARM_PAGES * NP_PAGE_SIZE;
    pthread_t threads[3];
    uint32_t entry, view;
    np_table_t *table;
    unsigned i, page;

    swarm.mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    np_mapper_add_swapper((uintptr_t)swarm.mem, len, &swapper);
    np_mapper_set_flush(swarm_flush);
    np_mapper_fault_in((uintptr_t)swarm.mem, len, 1);
    table = swarm_table();

    pthread_create(&threads[0], NULL, swarm_map_thread, NULL);
    pthread_create(&threads[1], NULL, swarm_map_thread, NULL);
    pthread_create(&threads[2], NULL, swarm_evict_thread, NULL);
    swarm_device();
    for (i = 0; i < 3; ++i) {
        pthread_join(threads[i], NULL);
    }

    for (i = 0; i < SWARM_PAGES; ++i) {
        page  = np_page_index((uintptr_t)swarm.mem) + i;
        entry = atomic_load(&table->entries[page]) & NP_ENTRY_BITS;
        view  = atomic_load(&table->views[page]);

        swarm.uncovered += (entry & ~view) ||
                           ((view != 0) && !atomic_load(&swarm.frames[i]));
    }

    TAP_CHECK(swarm_has_enough(), "%u puts landed, %u maps, %u evictions",
              atomic_load(&swarm.landed), atomic_load(&swarm.maps),
              swarm.evictions);
    TAP_CHECK(swarm.lost == 0, "no put is lost: %u are", swarm.lost);
    TAP_CHECK(swarm.reached == 0, "no frame is reached once it is gone: %u",
              swarm.reached);
    TAP_CHECK(swarm.failed_maps == 0, "no map fails: %u do",
              swarm.failed_maps);
    TAP_CHECK(swarm.uncovered == 0,
              "entries have views, and views have frames: %u have none",
              swarm.uncovered);

    np_mapper_set_flush(NULL);
    np_mapper_remove_swapper((uintptr_t)swarm.mem, len);
    np_mapper_unmap((uintptr_t)swarm.mem, len);
    munmap(swarm.mem, len);
}
