/* SPDX-License-Identifier: BSD-3-Clause */
/* Maps and unmaps that meet, at each pause point, by construction. A model of a
 * device judges: it caches translations until they are flushed, and its puts
 * are confirmed by entries that did not change. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tap.h"

#include "nprdma/pause.h"
#include "nprdma/mem/mapper.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

/* The one page of these tests */
static char *race_page;

static struct {
    int      is_cached;
    uint32_t view;
    unsigned lost;      /* puts confirmed that went into the black hole */
    unsigned reached;   /* accesses to a page that was unmapped */
} race_device;

static struct {
    np_pause_point_t point;
    void             (*call)(void);
    int              is_repeated;
    unsigned         calls;
} race_hook;


static np_table_t *race_table(const void *va)
{
    return np_table_find((uintptr_t)va >> NP_ARENA_SHIFT);
}

/* As peers see it */
static uint32_t race_entry(void)
{
    np_table_t *table = race_table(race_page);

    return (table == NULL) ? 0 :
           atomic_load(&table->entries[np_page_index((uintptr_t)race_page)]) &
           ~NP_ENTRY_OWN(NP_ENTRY_BITS);
}

static uint32_t race_view(void)
{
    np_table_t *table = race_table(race_page);

    return (table == NULL) ? 0 :
           atomic_load(&table->views[np_page_index((uintptr_t)race_page)]) &
           NP_ENTRY_BITS;
}

static void race_flush(UCS_V_UNUSED uint64_t va, UCS_V_UNUSED uint64_t len)
{
    race_device.is_cached = 0;
}

static uint32_t race_device_view(void)
{
    if (!race_device.is_cached) {
        race_device.view      = race_view();
        race_device.is_cached = 1;
    }

    return race_device.view;
}

static void race_put_confirm(uint32_t before, uint32_t view)
{
    uint32_t entry = race_entry();

    race_device.lost += (before == entry) && (entry & NP_ENTRY_WRITE) &&
                        !(view & NP_ENTRY_WRITE);
}

/* A put with what the device has cached, and one without: translations may drop
 * out of the cache at any time */
static void race_put(void)
{
    uint32_t before = race_entry();
    int is_cached   = race_device.is_cached;
    uint32_t view   = race_device.view;

    race_put_confirm(before, race_device_view());
    race_device.is_cached = 0;
    race_put_confirm(before, race_device_view());
    if (is_cached) {
        race_device.is_cached = 1;
        race_device.view      = view;
    }
}

static void race_at_point(np_pause_point_t point)
{
    void (*call)(void) = race_hook.call;

    if ((point != race_hook.point) && (race_hook.point != NP_PAUSE_LAST)) {
        return;
    }

    ++race_hook.calls;
    if (!race_hook.is_repeated) {
        race_hook.call = NULL;
    }
    if (call != NULL) {
        np_pause_hook = NULL; /* not within the call */
        call();
        np_pause_hook = race_at_point;
    }
}

/* NP_PAUSE_LAST: at each point */
static void
race_set_hook(np_pause_point_t point, void (*call)(void), int is_repeated)
{
    race_hook.point       = point;
    race_hook.call        = call;
    race_hook.is_repeated = is_repeated;
    race_hook.calls       = 0;
    np_pause_hook         = race_at_point;
}

static void race_clear_hook(void)
{
    np_pause_hook = NULL;
}

static void race_map_read(void)
{
    np_mapper_fault_in((uintptr_t)race_page, 1, 0);
}

static void race_map_write(void)
{
    np_mapper_fault_in((uintptr_t)race_page, 1, 1);
}

static void race_unmap(void)
{
    np_mapper_unmap((uintptr_t)race_page, 1);
}

static void race_protect(void)
{
    np_mapper_protect((uintptr_t)race_page, 1);
}

/* The program gives the page up, as it should */
static void race_drop(void)
{
    race_unmap();
    madvise(race_page, NP_PAGE_SIZE, MADV_DONTNEED);
}

static void race_reset(void)
{
    race_clear_hook();
    race_unmap();
    race_flush(0, 0);
    race_device.lost    = 0;
    race_device.reached = 0;
}

/* A put that lasts from before an unmap until after the next map, and looks at
 * its translation in between */
static uint32_t race_long_view;

static void race_long_unit(void)
{
    race_device.is_cached = 0;
    race_long_view        = race_device_view();
}

static void race_long_put(void)
{
    uint32_t before = race_entry();

    race_set_hook(NP_PAUSE_UNMAP_TRANSLATED, race_long_unit, 0);
    race_unmap();
    race_clear_hook();
    race_map_write();
    race_put_confirm(before, race_long_view);
}

/* All that a device can do while a page is mapped and unmapped some times */
static void race_life(np_mutant_t mutant)
{
    unsigned i;

    race_reset();
    np_mutant = mutant;
    for (i = 0; i < 3; ++i) {
        race_set_hook(NP_PAUSE_LAST, race_put, 1);
        race_put();
        race_map_write();
        race_put();
        race_unmap();
        /* the page may be anybody's now */
        race_device.reached += race_device_view() != 0;
        race_put();
        race_map_read();
        race_map_write(); /* upgrade */
        race_protect();
        race_device.reached += !!(race_device_view() & NP_ENTRY_WRITE);
        race_map_write();
        race_long_put();
    }
    race_clear_hook();
    np_mutant = NP_MUTANT_NONE;
}

static void test_race_mutants(void)
{
    static const struct {
        np_mutant_t mutant;
        const char  *name;
        int         loses;
        int         reaches;
    } mutants[] = {
        {NP_MUTANT_NONE, "no mutant", 0, 0},
        {NP_MUTANT_ENTRY_AFTER_TRANSLATION, "ENTRY_AFTER_TRANSLATION", 1, 0},
        {NP_MUTANT_ENTRY_BEFORE_FLUSH, "ENTRY_BEFORE_FLUSH", 1, 0},
        {NP_MUTANT_COUNT_NOT_BUMPED, "COUNT_NOT_BUMPED", 1, 0},
        {NP_MUTANT_SWAP_OUT_NO_DRAIN, "SWAP_OUT_NO_DRAIN", 0, 1}
    };
    unsigned i;

    for (i = 0; i < ucs_static_array_size(mutants); ++i) {
        race_life(mutants[i].mutant);
        TAP_CHECK((race_device.lost != 0) == mutants[i].loses,
                  "%s: %u puts are lost", mutants[i].name, race_device.lost);
        TAP_CHECK((race_device.reached != 0) == mutants[i].reaches,
                  "%s: %u accesses to what was unmapped", mutants[i].name,
                  race_device.reached);
        race_reset();
    }
}

typedef struct race_call {
    const char *name;
    void       (*call)(void);
    int        is_map;
    uint32_t   bits;   /* that it sets, or clears */
} race_call_t;

static const race_call_t race_calls[] = {
    {"map to read", race_map_read, 1, NP_ENTRY_READ},
    {"map to write", race_map_write, 1, NP_ENTRY_BITS},
    {"protect", race_protect, 0, NP_ENTRY_WRITE},
    {"unmap", race_unmap, 0, NP_ENTRY_BITS}
};

static uint32_t race_apply(const race_call_t *call, uint32_t bits)
{
    return call->is_map ? (bits | call->bits) : (bits & ~call->bits);
}

/* What is mapped in the end when @a inner runs at a point of @a outer */
static uint32_t race_expect(const race_call_t *outer, const race_call_t *inner,
                            np_pause_point_t point, uint32_t bits)
{
    /* a disturbed map maps again; an unmap counts by its second step */
    int inner_is_last = (point == NP_PAUSE_MAP_DONE) ||
                        (point == NP_PAUSE_UNMAP_TRANSLATED) ||
                        (point == NP_PAUSE_UNMAP_DONE);

    return inner_is_last ? race_apply(inner, race_apply(outer, bits)) :
                           race_apply(outer, race_apply(inner, bits));
}

static void test_race_points(void)
{
    static const np_pause_point_t points[] = {
        NP_PAUSE_MAP_PRESENT, NP_PAUSE_MAP_TRANSLATED, NP_PAUSE_MAP_FLUSHED,
        NP_PAUSE_MAP_DONE, NP_PAUSE_UNMAP_ENTRY, NP_PAUSE_UNMAP_TRANSLATED,
        NP_PAUSE_UNMAP_DONE
    };
    unsigned wrong = 0, stale = 0, runs = 0, uncovered = 0;
    const race_call_t *outer, *inner;
    uint32_t bits, expected;
    unsigned i, o, n;

    for (i = 0; i < ucs_static_array_size(points); ++i) {
        for (o = 0; o < ucs_static_array_size(race_calls); ++o) {
            for (n = 0; n < ucs_static_array_size(race_calls); ++n) {
                outer = &race_calls[o];
                inner = &race_calls[n];

                race_reset();
                if (!outer->is_map) {
                    race_map_write();
                }
                bits = race_entry() & NP_ENTRY_BITS;
                race_put(); /* something is cached */
                race_set_hook(points[i], inner->call, 0);
                outer->call();
                race_clear_hook();
                if (race_hook.calls == 0) {
                    continue; /* not a point of this call */
                }

                ++runs;
                race_put();
                expected = race_expect(outer, inner, points[i], bits);
                if (((race_entry() & NP_ENTRY_BITS) != expected) ||
                    (race_view() != expected)) {
                    printf("# %s, point %u, %s: entry %u, view %u, not %u\n",
                           outer->name, points[i], inner->name,
                           race_entry() & NP_ENTRY_BITS, race_view(), expected);
                    ++wrong;
                }
                stale     += race_device_view() != race_view();
                uncovered += race_device.lost;
            }
        }
    }

    TAP_CHECK(runs == ((4 * 2 * 4) + (3 * 2 * 4)),
              "a call within each step of another: %u runs", runs);
    TAP_CHECK(wrong == 0, "what is mapped in the end: %u times wrong", wrong);
    TAP_CHECK(stale == 0, "nothing stale is cached: %u times", stale);
    TAP_CHECK(uncovered == 0, "no put is lost: %u are", uncovered);
}

/* A page that goes while it is brought in comes in again */
static void test_race_present(void)
{
    static const np_pause_point_t points[] = {
        NP_PAUSE_MAP_PRESENT, NP_PAUSE_MAP_TRANSLATED, NP_PAUSE_MAP_FLUSHED
    };
    unsigned char vec;
    unsigned i;

    for (i = 0; i < ucs_static_array_size(points); ++i) {
        race_reset();
        race_page[0] = 5;
        race_set_hook(points[i], race_drop, 0);
        race_map_write();
        race_clear_hook();
        TAP_CHECK(((race_entry() & NP_ENTRY_BITS) == NP_ENTRY_BITS) &&
                  (mincore(race_page, 1, &vec) == 0) && (vec & 1) &&
                  (race_page[0] == 0), "what is mapped is present (%u)", i);
    }
}

static unsigned race_round;
static uint32_t race_seen_views[NP_MAPPER_ROUNDS];

static void race_drop_before_views(np_pause_point_t point)
{
    if (point == NP_PAUSE_MAP_PRESENT) {
        if (race_round == 0) {
            race_drop();
        }
    } else if (point == NP_PAUSE_MAP_TRANSLATED) {
        race_seen_views[race_round++] = race_view();
    }
}

/* A page that has gone before its views are set: no device is led to it */
static void test_race_no_views(void)
{
    race_reset();
    race_round    = 0;
    np_pause_hook = race_drop_before_views;
    race_map_write();
    np_pause_hook = NULL;
    TAP_CHECK((race_round == 2) && (race_seen_views[0] == 0) &&
              (race_seen_views[1] == NP_ENTRY_BITS),
              "no view of what has gone: %u, then %u", race_seen_views[0],
              race_seen_views[1]);
}

static void race_revoke(void)
{
    race_map_read();
    mprotect(race_page, NP_PAGE_SIZE, PROT_NONE);
}

static void test_race_gives_up(void)
{
    ucs_status_t status;

    race_reset();
    race_set_hook(NP_PAUSE_MAP_TRANSLATED, race_unmap, 1);
    status = np_mapper_fault_in((uintptr_t)race_page, 1, 1);
    race_clear_hook();
    TAP_CHECK((status == UCS_ERR_NO_RESOURCE) &&
              (race_hook.calls == NP_MAPPER_ROUNDS) &&
              !(race_entry() & NP_ENTRY_BITS) && (race_view() == 0),
              "unmapped each time: it gives up after %u rounds",
              race_hook.calls);
    TAP_CHECK(np_mapper_fault_in((uintptr_t)race_page, 1, 1) == UCS_OK,
              "once it is left alone it maps");

    /* another map comes in between, and then the page cannot be had */
    race_reset();
    race_set_hook(NP_PAUSE_MAP_TRANSLATED, race_revoke, 0);
    status = np_mapper_fault_in((uintptr_t)race_page, 1, 1);
    race_clear_hook();
    TAP_CHECK(status == UCS_ERR_INVALID_ADDR, "its second round fails");
    race_put();
    np_mapper_unmap((uintptr_t)race_page, 1);
    TAP_CHECK((race_device_view() == 0) && (race_view() == 0),
              "an unmap clears what it has left");
    mprotect(race_page, NP_PAGE_SIZE, PROT_READ | PROT_WRITE);
}

static void race_unmap_and_reach(void)
{
    race_unmap();
    race_device.reached += race_device_view() != 0;
}

/* An unmap that finds all absent, while the one that made it so has not flushed
 * yet: the page goes when the second one returns, too */
static void test_race_two_unmaps(void)
{
    race_reset();
    race_map_write();
    race_put();
    TAP_CHECK(race_device_view() == NP_ENTRY_BITS, "a translation is cached");
    race_set_hook(NP_PAUSE_UNMAP_TRANSLATED, race_unmap_and_reach, 0);
    race_unmap();
    race_clear_hook();
    TAP_CHECK((race_hook.calls == 1) && (race_device.reached == 0),
              "an unmap within an unmap flushes, too");
}

/*
 * A map that sets its views between the two steps of an unmap, and its entry
 * after them: two threads that wait for each other at pause points.
 */

#define RACE_YIELDS 1000000

static _Atomic int race_stage;
static _Thread_local int race_is_unmapper;

static void race_wait_for(int stage)
{
    unsigned i;

    for (i = 0; (i < RACE_YIELDS) && (atomic_load(&race_stage) < stage); ++i) {
        sched_yield();
    }
}

static void race_between_steps(np_pause_point_t point)
{
    if (race_is_unmapper && (point == NP_PAUSE_UNMAP_ENTRY)) {
        atomic_store(&race_stage, 1);
        race_wait_for(2);
    } else if (race_is_unmapper && (point == NP_PAUSE_UNMAP_TRANSLATED)) {
        atomic_store(&race_stage, 3);
    } else if (!race_is_unmapper && (point == NP_PAUSE_MAP_TRANSLATED) &&
               (atomic_load(&race_stage) == 1)) {
        atomic_store(&race_stage, 2);
        race_wait_for(3);
    }
}

static void *race_unmap_thread(void *arg)
{
    race_is_unmapper = 1;
    race_unmap();
    return NULL;
}

static void test_race_between_steps(void)
{
    ucs_status_t status;
    pthread_t thread;
    uint32_t entry;

    race_reset();
    race_map_write();
    entry = race_entry();
    np_mapper_set_flush(NULL);
    np_pause_hook = race_between_steps;
    pthread_create(&thread, NULL, race_unmap_thread, NULL);
    race_wait_for(1);
    status = np_mapper_fault_in((uintptr_t)race_page, 1, 1);
    pthread_join(thread, NULL);
    np_pause_hook = NULL;
    np_mapper_set_flush(race_flush);

    TAP_CHECK((status == UCS_OK) && (atomic_load(&race_stage) == 3),
              "a map between the steps of an unmap");
    TAP_CHECK((race_view() == NP_ENTRY_BITS) &&
              ((race_entry() & NP_ENTRY_BITS) == NP_ENTRY_BITS),
              "maps in the end: entry %u, view %u",
              race_entry() & NP_ENTRY_BITS, race_view());
    TAP_CHECK(race_entry() == (entry + (3 * NP_ENTRY_STEP)),
              "each transition has counted");
}

/* A page that its program takes away while a map has brought it in, and that is
 * there a moment longer than the program's word */
static void race_taken_meanwhile(np_pause_point_t point)
{
    if ((point == NP_PAUSE_MAP_PRESENT) && (atomic_load(&race_stage) == 0)) {
        atomic_store(&race_stage, 1);
        np_pause_hook = NULL;
        race_unmap();
        np_pause_hook = race_taken_meanwhile;
    } else if (point == NP_PAUSE_MAP_LOST) {
        atomic_store(&race_stage, 2);
        madvise(race_page, NP_PAGE_SIZE, MADV_DONTNEED);
    }
}

static void test_race_taken(void)
{
    unsigned char is_there;

    race_reset();
    np_mapper_set_paged(1);
    *race_page = 1;
    atomic_store(&race_stage, 0);
    np_pause_hook = race_taken_meanwhile;
    race_map_write();
    np_pause_hook = NULL;
    np_mapper_set_paged(0);
    TAP_CHECK(atomic_load(&race_stage) == 2,
              "a page that goes under a map is given time to go");
    TAP_CHECK((mincore(race_page, NP_PAGE_SIZE, &is_there) == 0) &&
              (is_there & 1) && (race_view() != 0) && (*race_page == 0),
              "and is mapped anew when it has gone");
}

void test_mapper_race(void)
{
    race_page = mmap(NULL, NP_PAGE_SIZE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    np_mapper_set_flush(race_flush);
    test_race_mutants();
    test_race_points();
    test_race_present();
    test_race_no_views();
    test_race_gives_up();
    test_race_two_unmaps();
    test_race_between_steps();
    test_race_taken();
    race_reset();
    np_mapper_set_flush(NULL);
    munmap(race_page, NP_PAGE_SIZE);
}
