/* SPDX-License-Identifier: BSD-3-Clause */
/* Small puts that go by the target's CPU though the device could do them. */
#include "mocked.h"

#include "nprdma/proto/ep.h"
#include "nprdma/proto/rnic/runload.h"

#include <string.h>
#include <sys/mman.h>

static void always(np_vport_config_t *config)
{
    config->unload     = NP_UNLOAD_ALWAYS;
    config->unload_max = 256;
}

static void by_hint(np_vport_config_t *config)
{
    always(config);
    config->unload = NP_UNLOAD_HINT;
}

static void hint(int is_hot)
{
    (void)np_thread_set_flags(NP_THREAD_HOT, is_hot ? NP_THREAD_HOT : 0);
}

static ucs_status_t put(size_t offset, size_t len, int byte)
{
    memset(mine, byte, len);
    return np_ep_put_copied(&link_.flight, key, mine, len,
                            (uintptr_t)area + offset);
}

static int area_has(size_t offset, size_t len, int byte)
{
    for (; (len > 0) && (area[offset] == byte); ++offset, --len) {
    }
    return len == 0;
}

/* One-sided from now on, where a policy wants it so */
static int start(void (*change)(np_vport_config_t *config))
{
    return mocked_start(NP_SERVICE_OFF, 1, change) && mocked_warm() &&
           (mocked_flush() == UCS_OK);
}

/* What is small is left to the target's CPU, and nothing else */
static int small_are_unloaded(void)
{
    const np_stats_t *stats;
    ucs_status_t status;
    uint64_t writes;

    TAP_CHILD_CHECK(start(always));
    stats  = ours->flights.stats;
    writes = stats->writes;
    MOCKED_POST(status, put(4096, 16, 1));
    TAP_CHILD_CHECK(status == UCS_OK);
    MOCKED_POST(status, put(8192, 256, 2));
    TAP_CHILD_CHECK(status == UCS_OK);
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    TAP_CHILD_CHECK(area_has(4096, 16, 1) && area_has(8192, 256, 2));
    TAP_CHILD_CHECK((stats->unloaded == 2) && (stats->offloaded == 0) &&
                    (stats->writes == writes));
    MOCKED_POST(status, put(12288, 257, 3)); /* too large */
    TAP_CHILD_CHECK(status == UCS_OK);
    MOCKED_POST(status, put(4096, 8, 4));    /* a message in any case */
    TAP_CHILD_CHECK(status == UCS_OK);
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    TAP_CHILD_CHECK(area_has(12288, 257, 3) && area_has(4096, 8, 4));
    TAP_CHILD_CHECK((stats->unloaded == 2) && (stats->writes == writes + 1));
    mocked_end();
    return 0;
}

/* Their completion tells of a refusal */
static int moved_are_not(void)
{
    TAP_CHILD_CHECK(start(always));
    memset(mine, 6, 200);
    TAP_CHILD_CHECK(mocked_move(NP_DIR_PUT, mine, 200, area + 100) == UCS_OK);
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    TAP_CHILD_CHECK(area_has(100, 200, 6) &&
                    (ours->flights.stats->unloaded == 0));
    mocked_end();
    return 0;
}

static int hinted_are_not(void)
{
    const np_stats_t *stats;
    ucs_status_t status;
    uint64_t writes;
    int i;

    TAP_CHILD_CHECK(start(by_hint));
    stats  = ours->flights.stats;
    writes = stats->writes;
    for (i = 0; i < 10; ++i) {
        hint(i % 2);
        MOCKED_POST(status, put(4096 * i, 16, i));
        TAP_CHILD_CHECK(status == UCS_OK);
    }
    hint(0);
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    for (i = 0; i < 10; ++i) {
        TAP_CHILD_CHECK(area_has(4096 * i, 16, i));
    }
    TAP_CHILD_CHECK((stats->unloaded == 5) && (stats->offloaded == 5) &&
                    (stats->writes == writes + 5));
    mocked_end();
    return 0;
}

/* A put that is one-sided waits for an unloaded one of its memory, and for no
 * other */
static int same_memory_waits(void)
{
    ucs_status_t status;

    TAP_CHILD_CHECK(start(by_hint));
    mock_hold();
    TAP_CHILD_CHECK(put(4096, 16, 1) == UCS_OK);
    hint(1);
    TAP_CHILD_CHECK(put(8192, 16, 2) == UCS_OK);
    TAP_CHILD_CHECK(put(4096 - 128, 16, 2) == UCS_OK);
    TAP_CHILD_CHECK(put(4096 + 8, 16, 3) == UCS_ERR_NO_RESOURCE);
    mock_release();
    MOCKED_POST(status, put(4096 + 8, 16, 3));
    TAP_CHILD_CHECK(status == UCS_OK);
    hint(0);
    MOCKED_POST(status, put(4096 + 12, 16, 4)); /* and the other way round */
    TAP_CHILD_CHECK(status == UCS_OK);
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    TAP_CHILD_CHECK(area_has(4096, 8, 1) && area_has(4096 + 8, 4, 3) &&
                    area_has(4096 + 12, 16, 4) && area_has(8192, 16, 2));
    mocked_end();
    return 0;
}

/* As well for one that was a message before any was unloaded */
static int earlier_message_counts(void)
{
    ucs_status_t status;

    TAP_CHILD_CHECK(start(by_hint));
    mock_hold();
    TAP_CHILD_CHECK(put(4096, 8, 1) == UCS_OK);
    hint(1);
    TAP_CHILD_CHECK(put(4096 + 4, 16, 2) == UCS_ERR_NO_RESOURCE);
    mock_release();
    MOCKED_POST(status, put(4096 + 4, 16, 2));
    TAP_CHILD_CHECK(status == UCS_OK);
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    TAP_CHILD_CHECK(area_has(4096, 4, 1) && area_has(4096 + 4, 16, 2));
    mocked_end();
    return 0;
}

static void by_cost(np_vport_config_t *config)
{
    always(config);
    config->unload = NP_UNLOAD_AUTO;
}

/* Both ways are measured. Which one is better here nobody knows. */
static int costs_are_learnt(void)
{
    const np_unload_auto_t *choice;
    ucs_status_t status;
    unsigned i;

    TAP_CHILD_CHECK(start(by_cost));
    for (i = 0; i < 40000; ++i) {
        MOCKED_POST(status, put(((size_t)i * 4096) % MOCKED_AREA, 16, i));
        TAP_CHILD_CHECK(status == UCS_OK);
        if (i % 4 == 0) {
            TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
        }
    }
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    choice = link_.unload->weigh.policy.choice;
    printf("# hit %.0f ns, miss %.0f ns, unloaded %.0f ns\n",
           choice->cost[NP_UNLOAD_HIT], choice->cost[NP_UNLOAD_MISS],
           choice->cost[NP_UNLOAD_UNLOADED]);
    TAP_CHILD_CHECK((choice->cost[NP_UNLOAD_HIT] > 0) &&
                    (choice->cost[NP_UNLOAD_MISS] > 0) &&
                    (choice->cost[NP_UNLOAD_UNLOADED] > 0));
    TAP_CHILD_CHECK((ours->flights.stats->unloaded > 0) &&
                    (ours->flights.stats->offloaded > 0));
    mocked_end();
    return 0;
}

/* What a put costs is known as well where the device could not do it: each goes
 * to a page that is not in the target's view */
static int absent_puts_are_timed(void)
{
    const np_unload_auto_t *choice;
    const np_stats_t *stats;
    ucs_status_t status;
    size_t at;

    TAP_CHILD_CHECK(start(by_cost));
    stats = ours->flights.stats;
    for (at = 0; at < MOCKED_AREA; at += 4096) {
        mock_kmod_take(area + at, 4096);
        MOCKED_POST(status, put(at, 16, 1));
        TAP_CHILD_CHECK((status == UCS_OK) && (mocked_flush() == UCS_OK));
        TAP_CHILD_CHECK(area_has(at, 16, 1));
    }
    TAP_CHILD_CHECK(stats->unloaded < 16);
    choice = link_.unload->weigh.policy.choice;
    printf("# %u puts were timed: miss %.0f ns\n",
           choice->firsts[NP_UNLOAD_MISS], choice->cost[NP_UNLOAD_MISS]);
    TAP_CHILD_CHECK(choice->firsts[NP_UNLOAD_MISS] > 0);
    TAP_CHILD_CHECK(stats->unloaded + stats->offloaded == MOCKED_AREA / 4096);
    mocked_end();
    return 0;
}

/* The target computes: its service thread does them */
static int computing_target(void)
{
    mocked_comp_t flush = {0, UCS_OK};
    ucs_status_t status;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_EVENT, 1, always) &&
                    mocked_warm() && (mocked_flush() == UCS_OK));
    MOCKED_POST(status, put(4096, 16, 9));
    TAP_CHILD_CHECK(status == UCS_OK);
    MOCKED_POST(status, np_ep_flush(&link_.flight, &flush));
    TAP_CHILD_CHECK(mocked_wait(mocked_is_done, &flush, theirs));
    TAP_CHILD_CHECK((flush.status == UCS_OK) && area_has(4096, 16, 9));
    mocked_end();
    return 0;
}

/* The target's memory ends while a put is under way: it is refused, and whoever
 * flushes is told */
static int target_unmaps(void)
{
    ucs_status_t status;

    TAP_CHILD_CHECK(start(always));
    mock_hold();
    TAP_CHILD_CHECK(put(4096, 16, 1) == UCS_OK);
    TAP_CHILD_CHECK(munmap(area, MOCKED_AREA) == 0);
    mock_release();
    status = mocked_flush();
    TAP_CHILD_CHECK((status != UCS_OK) && (status != UCS_ERR_TIMED_OUT));
    np_vport_progress(ours);
    TAP_CHILD_CHECK(down != UCS_OK);
    mocked_end();
    return 0;
}

/* As well if it may not be written; nothing of it is */
static int target_is_read_only(void)
{
    TAP_CHILD_CHECK(start(always));
    area[4096] = 5;
    TAP_CHILD_CHECK(mprotect(area, MOCKED_AREA, PROT_READ) == 0);
    TAP_CHILD_CHECK(put(4096, 16, 1) == UCS_OK);
    TAP_CHILD_CHECK((mocked_flush() != UCS_OK) && (area[4096] == 5));
    mocked_end();
    return 0;
}

static void breaking(np_vport_config_t *config)
{
    by_hint(config);
    config->break_every = 7;
}

/* Queue pairs fail: none is lost, none is done twice or too late */
static int replaced_queue_pairs(void)
{
    enum { PLACES = 64, PUTS = 3000 };
    uint8_t last[PLACES] = {0};
    ucs_status_t status;
    unsigned i, place;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, breaking) &&
                    mocked_warm());
    for (i = 0; i < PUTS; ++i) {
        place = (i * 7919u) % PLACES;
        hint((i / 3) % 2);
        MOCKED_POST(status, put(place * 48, 40, i & 0xff));
        TAP_CHILD_CHECK(status == UCS_OK);
        last[place] = i & 0xff;
    }
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    for (place = 0; place < PLACES; ++place) {
        TAP_CHILD_CHECK(area_has(place * 48, 40, last[place]));
    }
    TAP_CHILD_CHECK((ours->flights.stats->unloaded > 0) &&
                    (ours->flights.stats->offloaded > 0) && (down == UCS_OK));
    mocked_end();
    return 0;
}

void test_unloaded(void)
{
    TAP_CHECK(tap_child(small_are_unloaded),
              "unloading: small puts go by the target's CPU");
    TAP_CHECK(tap_child(moved_are_not), "unloading: but no zero-copy ones");
    TAP_CHECK(tap_child(hinted_are_not),
              "unloading: by hint, those to hot pages do not");
    TAP_CHECK(tap_child(same_memory_waits),
              "unloading: a one-sided put waits for those of its memory alone");
    TAP_CHECK(tap_child(earlier_message_counts),
              "unloading: and for a message before any of them");
    TAP_CHECK(tap_child(costs_are_learnt),
              "unloading: auto measures both ways");
    TAP_CHECK(tap_child(absent_puts_are_timed),
              "unloading: auto measures puts to pages that are not there");
    TAP_CHECK(tap_child(computing_target),
              "unloading: to a target that computes");
    TAP_CHECK(tap_child(target_unmaps),
              "unloading: to memory that ends meanwhile");
    TAP_CHECK(tap_child(target_is_read_only),
              "unloading: to memory that may not be written");
    TAP_CHECK(tap_child(replaced_queue_pairs),
              "unloading: over queue pairs that fail");
}
