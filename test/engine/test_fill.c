/* SPDX-License-Identifier: BSD-3-Clause */
/* How a wide link fills its payload area: which way is chosen, by what periods
 * take that the test makes up. */

#include "tap.h"

#include "nprdma/clock.h"
#include "nprdma/engine.h"
#include "nprdma/mem/bypass.h"
#include "nprdma/dev/soft/fill.h"

#include <string.h>

#define FILL_SIZE   (2 * 1024 * 1024u)
#define FILL_NEAR   (512 * 1024u)
#define FILL_LONG   100000u    /* periods: more than between any two trials */
#define FILL_PERIOD 1048576u

static struct {
    np_fill_t    fill;
    np_ring_tx_t ring;
    uint64_t     ns[NP_FILL_LAST];   /* what a period takes */
    unsigned     used[NP_FILL_LAST]; /* periods */
    unsigned     trials;
    uint32_t     least;
} fill;


/* A ring of @a size bytes that has just become wide */
static void fill_make(uint32_t size, uint32_t least)
{
    fill.ring.payload_full = size - 1;
    fill.least             = least;
    np_fill_init(&fill.fill);
    np_fill_begin(&fill.fill, &fill.ring, least);
    fill.fill.left = 1; /* the first trial is not waited for */
}

static void fill_set(uint64_t near, uint64_t past, uint64_t whole)
{
    fill.ns[NP_FILL_NEAR]  = near;
    fill.ns[NP_FILL_PAST]  = past;
    fill.ns[NP_FILL_WHOLE] = whole;
}

static void fill_run(unsigned periods)
{
    np_fill_way_t way;
    int is_tried;

    memset(fill.used, 0, sizeof(fill.used));
    fill.trials = 0;
    for (; periods > 0; --periods) {
        way      = fill.fill.way;
        is_tried = fill.fill.step != NP_FILL_LAST;
        ++fill.used[way];
        np_fill_period(&fill.fill, &fill.ring, fill.ns[way]);
        fill.trials += is_tried && (fill.fill.step == NP_FILL_LAST);
    }
}

/* What only a processor with non-temporal stores does */
static void fill_check_past(int is_right, const char *what)
{
    if (NP_BYPASS_IS_THERE) {
        TAP_CHECK(is_right, "%s", what);
    } else {
        printf("ok %u - %s # SKIP no non-temporal stores here\n", ++tap_count,
               what);
    }
}

/* Is that way in use, with what belongs to it? */
static int fill_is(np_fill_way_t way)
{
    return (fill.fill.step == NP_FILL_LAST) && (fill.fill.way == way) &&
           (fill.fill.is_past == (way == NP_FILL_PAST)) &&
           (fill.ring.payload_part ==
            ((way == NP_FILL_WHOLE) ? (fill.ring.payload_full + 1) :
             ucs_max(fill.least, ucs_min(fill.ring.payload_full + 1,
                                         FILL_NEAR))));
}

static void test_fill_choose(void)
{
    fill_make(FILL_SIZE, 0);
    TAP_CHECK(fill_is(NP_FILL_NEAR), "fill: near by default");

    fill_set(100, 100, 100);
    fill_run(40);
    TAP_CHECK(fill_is(NP_FILL_NEAR) && (fill.trials == 1) &&
              ((fill.used[NP_FILL_PAST] > 0) == NP_BYPASS_IS_THERE) &&
              (fill.used[NP_FILL_WHOLE] > 0),
              "fill: all are tried early; equal ones change nothing");

    fill_set(100, 90, 95);
    fill_run(FILL_LONG);
    TAP_CHECK(fill_is(NP_FILL_NEAR), "fill: nor does what is little better");

    fill_set(150, 90, 40);
    fill_run(2100);
    TAP_CHECK(fill_is(NP_FILL_WHOLE), "fill: cores that share a cache");
    fill_set(600, 97, 500);
    fill_run(2100);
    fill_check_past(fill_is(NP_FILL_PAST), "fill: cores that share none");
    fill_set(20, 97, 40);
    fill_run(2100);
    TAP_CHECK(fill_is(NP_FILL_NEAR), "fill: threads of a core");

    fill_run(FILL_LONG);
    TAP_CHECK((fill.trials >= (FILL_LONG / 2200)) &&
              (fill.trials <= (FILL_LONG / 2000)),
              "fill: one trial in 2048 periods while it changes nothing (%u)",
              fill.trials);
    TAP_CHECK((fill.used[NP_FILL_PAST] <= (3 * (fill.trials + 1))) &&
              (fill.used[NP_FILL_WHOLE] <= (9 * (fill.trials + 1))),
              "fill: what takes far longer is given up soon (%u, %u)",
              fill.used[NP_FILL_PAST], fill.used[NP_FILL_WHOLE]);
}

/* The program computes for a while, once in each trial of each way */
static void test_fill_gap(void)
{
    const uint64_t gap = 1000000;
    unsigned at, i;
    int is_right = 1;

    for (at = 0; at < 14; ++at) {
        fill_make(FILL_SIZE, 0);
        fill_set(150, 90, 40);
        for (i = 0; i < 60; ++i) {
            np_fill_period(&fill.fill, &fill.ring,
                           fill.ns[fill.fill.way] +
                           (((i % 15) == at) ? gap : 0));
        }
        is_right &= fill.fill.chosen == NP_FILL_WHOLE;
    }
    TAP_CHECK(is_right, "fill: a pause of the program decides nothing");
}

static void test_fill_settings(void)
{
    np_engine.config.nt_stores = UCS_CONFIG_OFF;
    fill_make(FILL_SIZE, 0);
    fill_set(150, 10, 90);
    fill_run(40);
    TAP_CHECK(fill_is(NP_FILL_WHOLE) && (fill.used[NP_FILL_PAST] == 0),
              "fill: no non-temporal stores if off");

    np_engine.config.nt_stores = UCS_CONFIG_ON;
    fill_make(FILL_SIZE, 0);
    fill_set(10, 150, 10);
    fill_run(FILL_LONG);
    TAP_CHECK(fill_is(NP_FILL_PAST) && (fill.used[NP_FILL_PAST] == FILL_LONG),
              "fill: nothing else if on");
    np_engine.config.nt_stores = UCS_CONFIG_AUTO;
}

static void test_fill_area(void)
{
    fill_make(FILL_NEAR, 0);
    fill_set(150, 90, 10);
    fill_run(FILL_LONG);
    fill_check_past(fill_is(NP_FILL_PAST) && (fill.used[NP_FILL_WHOLE] == 0),
                    "fill: an area that is no larger than the part");

    fill_make(FILL_SIZE, FILL_SIZE / 2);
    fill_set(150, 90, 100);
    fill_run(FILL_LONG);
    fill_check_past(fill_is(NP_FILL_PAST) &&
                    (fill.ring.payload_part == (FILL_SIZE / 2)),
                    "fill: a part that is as large as a payload needs");
}

/* What counts, and when a period is over */
static void test_fill_count(void)
{
    uint64_t since;

    fill_make(FILL_SIZE, 0);
    np_fill_look_slow(&fill.fill, &fill.ring);
    since = fill.fill.since;
    np_fill_count(&fill.fill, NP_BYPASS_LEAST - 1);
    TAP_CHECK(fill.fill.bytes == FILL_PERIOD, "fill: small ones do not count");
    np_fill_count(&fill.fill, FILL_PERIOD - 1);
    np_fill_look(&fill.fill, &fill.ring);
    TAP_CHECK(fill.fill.since == since, "fill: a period is not over");
    np_fill_count(&fill.fill, NP_BYPASS_LEAST);
    np_fill_look(&fill.fill, &fill.ring);
    TAP_CHECK((fill.fill.since > since) && (fill.fill.bytes == FILL_PERIOD),
              "fill: and now it is");
}

/* What a period counts for that has lasted a second, and carried so much */
static uint64_t fill_second(uint32_t bytes)
{
    fill_make(FILL_SIZE, 0);
    fill.fill.step  = 0;
    fill.fill.left  = 1;
    fill.fill.timed = 0;
    fill.fill.sum   = 0;
    fill.fill.bytes = FILL_PERIOD;
    fill.fill.since = np_clock() - NP_CLOCK_SEC;
    np_fill_count(&fill.fill, bytes);
    np_fill_look(&fill.fill, &fill.ring);
    return fill.fill.sum / NP_CLOCK_MSEC;
}

static void test_fill_late(void)
{
    const uint64_t ms = fill_second(FILL_PERIOD);
    const uint64_t late = fill_second(4 * FILL_PERIOD);

    TAP_CHECK((ms >= 1000) && (ms < 1500), "fill: a second is one (%lu ms)",
              ms);
    TAP_CHECK((late >= 250) && (late < 375),
              "fill: but a quarter if four times as much was carried (%lu ms)",
              late);

    fill_make(FILL_SIZE, 0);
    while (fill.fill.bytes > NP_FILL_LATE_MAX) {
        np_fill_count(&fill.fill, 12345);
    }
    np_fill_count(&fill.fill, 12345);
    TAP_CHECK(fill.fill.bytes < 0, "fill: if never looked, it is late");
    np_fill_look(&fill.fill, &fill.ring);
    TAP_CHECK(fill.fill.bytes == FILL_PERIOD, "fill: and then begins anew");
}

void test_fill(void)
{
    const ucs_on_off_auto_value_t was = np_engine.config.nt_stores;

    np_engine.config.nt_stores = UCS_CONFIG_AUTO;
    test_fill_choose();
    test_fill_gap();
    test_fill_settings();
    test_fill_area();
    test_fill_count();
    test_fill_late();
    np_engine.config.nt_stores = was;
}
