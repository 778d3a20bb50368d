/* SPDX-License-Identifier: BSD-3-Clause */
/* The model of a translation cache: what peers share, what a flush takes, and
 * what a transfer takes. */

#include "tap.h"

#include "nprdma/clock.h"
#include "nprdma/engine.h"
#include "nprdma/dev/soft/tlb.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A page in the middle of an arena */
#define TLB_PAGE ((UINT64_C(5) * NP_ARENA_PAGES) + 4711)

/* A target, and two peers of it */
static struct {
    np_tlb_cache_t *cache;
    np_directory_t *directory;
    np_table_t     *table;
    np_tlb_t       one, other;
    np_stats_t     stats, others;
} tlb;


static void tlb_begin(np_tlb_mode_t mode)
{
    np_engine.config.tlb.mode = mode;
    memset(&tlb, 0, sizeof(tlb));
    tlb.cache       = calloc(1, sizeof(*tlb.cache));
    tlb.directory   = calloc(1, sizeof(*tlb.directory));
    tlb.table       = calloc(1, sizeof(*tlb.table));
    tlb.one.cache   = tlb.cache;
    tlb.one.stats   = &tlb.stats;
    tlb.other.cache = tlb.cache;
    tlb.other.stats = &tlb.others;
}

static void tlb_end(void)
{
    np_engine.config.tlb.mode = NP_TLB_OFF;
    free(tlb.cache);
    free(tlb.directory);
    free(tlb.table);
}

static void tlb_set(uint64_t page, uint8_t view)
{
    atomic_store(&tlb.table->views[page % NP_ARENA_PAGES], view);
}

static void tlb_flush(uint64_t page)
{
    atomic_fetch_add(&tlb.directory->flushes[page % NP_DIRECTORY_FLUSHES], 1);
}

static uint8_t tlb_see(np_tlb_t *peer, uint64_t page)
{
    return np_tlb_translate(peer, tlb.directory, tlb.table, page);
}

static void test_tlb_shared(void)
{
    tlb_begin(NP_TLB_PAGE);
    tlb_set(TLB_PAGE, NP_VIEW_ALL(NP_ENTRY_BITS));
    TAP_CHECK((tlb_see(&tlb.one, TLB_PAGE) == NP_ENTRY_BITS) &&
              (tlb.stats.tlb_misses == 1) && (np_tlb_take(&tlb.one) == 1),
              "tlb: the first look misses");
    TAP_CHECK((tlb_see(&tlb.other, TLB_PAGE) == NP_ENTRY_BITS) &&
              (tlb.others.tlb_hits == 1) && (tlb.others.tlb_misses == 0) &&
              (np_tlb_take(&tlb.other) == 0),
              "tlb: another peer finds what the first has brought in");
    tlb_end();
}

/* As an IOTLB: what was there is believed until it is flushed */
static void test_tlb_stale(void)
{
    tlb_begin(NP_TLB_PAGE);
    tlb_set(TLB_PAGE, NP_ENTRY_BITS);
    tlb_set(TLB_PAGE + 1, NP_ENTRY_READ);
    (void)tlb_see(&tlb.one, TLB_PAGE);
    (void)tlb_see(&tlb.one, TLB_PAGE + 1);
    tlb_set(TLB_PAGE, 0);
    TAP_CHECK(tlb_see(&tlb.other, TLB_PAGE) == NP_ENTRY_BITS,
              "tlb: a page that went is still believed to be there");
    tlb_flush(TLB_PAGE);
    TAP_CHECK((tlb_see(&tlb.other, TLB_PAGE) == 0) &&
              (tlb.others.tlb_misses == 1), "tlb: until it is flushed");
    TAP_CHECK((tlb_see(&tlb.other, TLB_PAGE + 1) == NP_ENTRY_READ) &&
              (tlb.others.tlb_misses == 1),
              "tlb: its neighbour is not flushed with it");
    tlb_end();
}

static void test_tlb_ways(void)
{
    unsigned i;

    tlb_begin(NP_TLB_PAGE);
    for (i = 0; i < NP_TLB_WAYS; ++i) {
        (void)tlb_see(&tlb.one, TLB_PAGE + (i * NP_TLB_SETS));
    }
    (void)tlb_see(&tlb.one, TLB_PAGE);
    (void)tlb_see(&tlb.one, TLB_PAGE + (NP_TLB_WAYS * NP_TLB_SETS));
    TAP_CHECK((tlb.stats.tlb_hits == 1) &&
              (tlb.stats.tlb_misses == NP_TLB_WAYS + 1),
              "tlb: a set has %u ways", NP_TLB_WAYS);
    (void)tlb_see(&tlb.one, TLB_PAGE);
    TAP_CHECK(tlb.stats.tlb_hits == 2, "tlb: what was used last stays");
    (void)tlb_see(&tlb.one, TLB_PAGE + NP_TLB_SETS);
    TAP_CHECK(tlb.stats.tlb_misses == NP_TLB_WAYS + 2,
              "tlb: what was not used for longest goes");
    tlb_end();
}

static void test_tlb_range(void)
{
    tlb_begin(NP_TLB_RANGE);
    tlb_set(TLB_PAGE, NP_ENTRY_READ);
    (void)tlb_see(&tlb.one, TLB_PAGE);
    TAP_CHECK((tlb_see(&tlb.other, TLB_PAGE + 1000) == 0) &&
              (tlb_see(&tlb.other, TLB_PAGE) == NP_ENTRY_READ) &&
              (tlb.others.tlb_hits == 2) && (tlb.stats.tlb_misses == 1),
              "tlb: one range serves an arena, its pages are looked up");
    tlb_flush(TLB_PAGE);
    (void)tlb_see(&tlb.one, TLB_PAGE);
    TAP_CHECK(tlb.stats.tlb_misses == 1, "tlb: pages that go take no range");
    tlb_end();
}

static void test_tlb_due(void)
{
    np_tlb_t peer = {.wire = 1000, .miss = 700, .gap = 100};

    TAP_CHECK(np_tlb_due(&peer, 5000, 0) == 6000, "tlb: a hit takes the wire");
    TAP_CHECK(np_tlb_due(&peer, 5000, 0) == 6100,
              "tlb: one that follows at once comes after a gap");
    TAP_CHECK(np_tlb_due(&peer, 20000, 1) == 21700,
              "tlb: one that misses takes longer");
    TAP_CHECK(np_tlb_due(&peer, 20000, 0) == 21700,
              "tlb: none ends before one that began before");
    TAP_CHECK(np_tlb_due(&peer, 20000, 0) == 21700,
              "tlb: while the cache is filled others pass");
    TAP_CHECK(peer.free_at == 20364, "tlb: but it takes the device's time");
    peer = (np_tlb_t){0};
    TAP_CHECK(np_tlb_due(&peer, 5000, 3) == 0, "tlb: no times, no charge");
}

static void test_tlb_settings(void)
{
    const np_tlb_config_t wrong[] = {
        {NP_TLB_OFF, 1e-6, 0, 0},
        {NP_TLB_OFF, 0, 0, 1e-6},
        {NP_TLB_PAGE, -1, 0, 0},
        {NP_TLB_PAGE, 0, 1e9, 0},
        {NP_TLB_PAGE, 0, 0, NAN}};
    const np_tlb_config_t right = {NP_TLB_PAGE, 2.6e-6, 2.5e-6, 0};
    unsigned i;

    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        TAP_CHECK(np_tlb_config_check(&wrong[i], NP_PEER_USERS_SAME) ==
                  UCS_ERR_INVALID_PARAM,
                  "tlb: wrong settings %u are refused", i);
    }
    TAP_CHECK(np_tlb_config_check(&right, NP_PEER_USERS_SAME) == UCS_OK,
              "tlb: right ones are taken");
    TAP_CHECK(np_tlb_config_check(&right, NP_PEER_USERS_ANY) ==
              UCS_ERR_INVALID_PARAM, "tlb: but not with peers of any user");
}

void test_tlb(void)
{
    test_tlb_shared();
    test_tlb_stale();
    test_tlb_ways();
    test_tlb_range();
    test_tlb_due();
    test_tlb_settings();
}
