/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided transfers over an RNIC, between memory that the kernel takes away
 * while they run: nprdma.ko's views on both sides. Two processes, each a port;
 * the target does to its memory what it is told to. Prints TAP.
 *
 * test_paging [SECONDS [N]]: of the random part (10); each queue pair fails
 * after every N requests
 */

#define _GNU_SOURCE
#include "events.h"
#include "sides.h"

#include "nprdma/engine.h"
#include "nprdma/mem/signature.h"
#include "nprdma/proto/ep.h"
#include "nprdma/stats.h"
#include "nprdma/svc/service.h"
#include "../engine/tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE    4096ul
#define AREA    (8ul << 20)
#define SLOTS   64      /* of the random part */
#define SLOT    (AREA / SLOTS)
#define PLACES  40      /* of small puts */

/* What the target is told to do beside events */
enum {
    FILL = EVENTS,  /* a pattern */
    CHECK,
    STILL,          /* the OS makes no huge pages of it by itself, which it
                       would after some seconds: its small ones go */
    STORM,          /* until CALM */
    CALM
};

typedef struct shared {
    _Atomic int      stop;
    _Atomic int      event;     /* 0: the last one is done */
    _Atomic uint64_t offset, len, seed;
    _Atomic int      result;
} shared_t;

unsigned tap_count, tap_failures;

static shared_t *shared;
static side_t side;
static np_key_t *key;
static uint8_t *area;           /* this side's */
static unsigned port_breaks;    /* its queue pairs fail after so many
                                   requests */


/* Seed 0: zeroes */
static int has(const uint8_t *data, uint64_t seed, size_t len)
{
    size_t i;

    if (seed != 0) {
        return is_right(data, seed, len);
    }

    for (i = 0; (i < len) && (data[i] == 0); ++i) {
    }
    return i == len;
}

static void obey(int event)
{
    uint8_t *at = area + shared->offset;

    switch (event) {
    case FILL:
        fill(at, shared->seed, shared->len);
        break;
    case CHECK:
        shared->result = has(at, shared->seed, shared->len);
        break;
    case STILL:
        madvise(at, shared->len, MADV_NOHUGEPAGE);
        break;
    case STORM:
        storm_begin(area, AREA);
        break;
    case CALM:
        storm_end();
        break;
    default:
        happen(event, at, shared->len);
        break;
    }
    shared->event = 0;
}

static int target(const np_vport_config_t *config, int fd)
{
    side_t other;

    open_port(config, NULL);
    area = make_area(&side, AREA);
    if (!exchange_sides(fd, &side, &other)) {
        return 1;
    }
    np_service_start();
    while (!shared->stop) {
        np_vport_progress(port);
        if (shared->event != 0) {
            obey(shared->event);
        }
    }
    np_vport_close(port);
    return 0;
}

static int is_obeyed(const void *arg)
{
    return shared->event == 0;
}

static int tell(int event, size_t offset, size_t len, uint64_t seed)
{
    shared->offset = offset;
    shared->len    = len;
    shared->seed   = seed;
    shared->event  = event;
    return wait_until(is_obeyed, NULL);
}

static int target_has(size_t offset, size_t len, uint64_t seed)
{
    return tell(CHECK, offset, len, seed) && shared->result;
}

static int move(np_dir_t dir, uint8_t *ours, size_t offset, size_t len)
{
    np_iov_t iov = {ours, len};
    comp_t comp  = {0};
    ucs_status_t status;

    POST(status, np_ep_move(dir, &link_.flight, key, &iov, 1,
                            side.area + offset, &comp));
    if ((status == UCS_INPROGRESS) && wait_until(is_done, &comp)) {
        status = comp.status;
    }
    if (status != UCS_OK) {
        printf("# %s of %zu bytes: %s\n", (dir == NP_DIR_PUT) ? "put" : "get",
               len, ucs_status_string(status));
    }
    return status == UCS_OK;
}

static void take(void *arg, const void *data, size_t len)
{
    memcpy(arg, data, len);
}

static int get_copied(uint8_t *ours, size_t offset, size_t len)
{
    comp_t comp = {0};
    ucs_status_t status;

    POST(status, np_ep_get_unpack(&link_.flight, key, len, side.area + offset,
                                  take, ours, &comp));
    return (status == UCS_INPROGRESS) && wait_until(is_done, &comp) &&
           (comp.status == UCS_OK);
}

/* Of bytes that are the caller's again at once */
static int put_copied(const uint8_t *ours, size_t offset, size_t len)
{
    uint8_t data[8192];
    comp_t comp = {0};
    ucs_status_t status;

    memcpy(data, ours, len);
    POST(status, np_ep_put_copied(&link_.flight, key, data, len,
                                  side.area + offset));
    memset(data, 0xee, len);
    if (status == UCS_OK) {
        POST(status, np_ep_flush(&link_.flight, &comp));
    }
    return (status == UCS_OK) ||
           ((status == UCS_INPROGRESS) && wait_until(is_done, &comp) &&
            (comp.status == UCS_OK));
}

typedef struct counts {
    uint64_t one_sided, two_sided;
} counts_t;

static counts_t counts(void)
{
    np_stats_t sum;

    np_stats_sum(&sum);
    return (counts_t){sum.reads + sum.writes, sum.remote_faults};
}

/* Views are made in the background; until then transfers are two-sided */
static void warm_up(void)
{
    double end = now() + LIMIT;
    int ok     = 1;

    while (ok && (counts().one_sided == 0) && (now() < end)) {
        ok = move(NP_DIR_PUT, area, 0, PAGE) && move(NP_DIR_GET, area, 0, PAGE);
    }
    TAP_CHECK(ok && (counts().one_sided > 0),
              "transfers become one-sided, once there are views");
}

/* Twice, so that whatever is absent is brought in; then none is two-sided */
static int is_one_sided(np_dir_t dir, uint8_t *ours, size_t offset, size_t len)
{
    counts_t before;
    unsigned tries;

    for (tries = 0; tries < 100; ++tries) {
        before = counts();
        if (!move(dir, ours, offset, len)) {
            return 0;
        }
        if ((counts().two_sided == before.two_sided) &&
            (counts().one_sided == (before.one_sided + 1))) {
            return 1;
        }
        usleep(1000); /* the target brings pages in beside the transfer */
    }
    printf("# still two-sided\n");
    return 0;
}

static void test_event(event_t event, size_t len)
{
    const size_t offset = 5 * PAGE, shift = 100;
    const int is_lost   = (event == DROP) || (event == REPLACE);
    counts_t before;
    int ok;

    ok  = tell(FILL, offset, len + shift, 1);
    ok &= is_one_sided(NP_DIR_GET, area + 3, offset, len);
    ok &= has(area + 3, 1, len);
    fill(area, 2, len);
    ok &= is_one_sided(NP_DIR_PUT, area, offset, len);
    ok &= target_has(offset, len, 2);
    TAP_CHECK(ok, "%s, %zu bytes: first one-sided, both ways",
              event_names[event], len);

    ok  = tell(event, offset, ucs_align_up_pow2(len, PAGE), 0);
    ok &= move(NP_DIR_GET, area + 5, offset, len);
    ok &= has(area + 5, is_lost ? 0 : 2, len);
    TAP_CHECK(ok, "a get after it has what is there");

    fill(area, 3, len);
    ok  = tell(event, offset, ucs_align_up_pow2(len, PAGE), 0);
    before = counts();
    ok &= move(NP_DIR_PUT, area, offset, len) && target_has(offset, len, 3);
    ok &= (event == NOTHING) || (event == HUGE) || (event == MIGRATE) ||
          (counts().two_sided > before.two_sided);
    TAP_CHECK(ok, "a put after it arrives, %s",
              (counts().two_sided > before.two_sided) ? "two-sided" :
              "one-sided");

    happen(event, area, ucs_align_up_pow2(len, PAGE));
    ok  = is_one_sided(NP_DIR_GET, area, offset, len) &&
          has(area, 3, len);
    fill(area, 4, len);
    happen((is_lost) ? NOTHING : event, area, ucs_align_up_pow2(len, PAGE));
    ok &= is_one_sided(NP_DIR_PUT, area, offset, len) &&
          target_has(offset, len, 4);
    TAP_CHECK(ok, "and after it on our own side");
}

static void test_copied(void)
{
    uint8_t data[2000];
    ucs_status_t status;
    counts_t before;
    size_t len, i;
    int ok;

    ok     = tell(FILL, 10, sizeof(data), 9);
    ok    &= get_copied(data, 10, sizeof(data)) &&
             get_copied(data, 10, sizeof(data));
    usleep(100000);
    before = counts();
    ok    &= get_copied(data, 10, sizeof(data)) &&
             has(data, 9, sizeof(data));
    TAP_CHECK(ok && (port_breaks ||
                     (counts().one_sided == (before.one_sided + 1))),
              "bytes that are unpacked are read one-sided");
    ok  = tell(SWAP, 0, PAGE, 0);
    ok &= get_copied(data, 10, sizeof(data)) &&
          has(data, 9, sizeof(data));
    TAP_CHECK(ok, "and two-sided from swap");

    ok = put_copied(area, 4000, 8000) && put_copied(area, 4000, 8000);
    usleep(100000);
    for (len = 9; ok && (len <= 8000); len *= 5) {
        before = counts();
        fill(area, len, len);
        ok = put_copied(area, 4000, len) && target_has(4000, len, len) &&
             (port_breaks || (counts().one_sided == (before.one_sided + 1)));
    }
    TAP_CHECK(ok, "puts that are copied are written one-sided");
    before = counts();
    fill(area, 5625, 5625);
    ok = tell(SWAP, 0, 4 * PAGE, 0) && put_copied(area, 4000, 5625) &&
         target_has(4000, 5625, 5625);
    TAP_CHECK(ok && (counts().two_sided > before.two_sided),
              "and two-sided to swap");
    ok = 1;
    for (i = 0; ok && (i < 1000); ++i) {
        len    = 9 + (i % 5000);
        status = UCS_OK;
        fill(area, i, len);
        if ((i % 50) == 0) {
            ok = tell(SWAP, 0, 8 * PAGE, 0);
        }
        POST(status, np_ep_put_copied(&link_.flight, key, area, len,
                                      side.area + ((i % 3) * 7000)));
        ok &= status == UCS_OK;
    }
    ok &= put_copied(area, 30000, 100);
    for (i = 997; ok && (i < 1000); ++i) {
        ok = target_has((i % 3) * 7000, 9 + (i % 5000), i);
    }
    TAP_CHECK(ok, "many at once, those of the same memory in order");
}

/* Small puts, many of which are confirmed by one look at the target's entries:
 * to places of their own, and to one again and again, while pages go */
static void test_small(event_t event)
{
    static size_t lens[PLACES], seeds[PLACES];
    const size_t first = 3 * PAGE - 80, step = 1300, end = 20 * PAGE;
    const size_t all   = end + PAGE; /* with that of the put behind them */
    uint8_t data[64];
    counts_t before;
    size_t i, place, puts = 0;
    ucs_status_t status;
    uint64_t faults;
    int ok;

    ok = tell(FILL, 0, all, 1) && move(NP_DIR_PUT, area, 0, all) &&
         move(NP_DIR_PUT, area, 0, all);
    if (event == NOTHING) {
        ok &= tell(STILL, 0, AREA, 0);
    }
    usleep(100000);
    (void)is_one_sided(NP_DIR_PUT, area, 0, all);
    before = counts();
    memset(lens, 0, sizeof(lens));
    for (i = 0; ok && (i < 2000); ++i) {
        place        = (i % 3) ? (i % PLACES) : 0;
        lens[place]  = (i % 7) ? 8 : sizeof(data);
        seeds[place] = i + 2;
        fill(data, seeds[place], sizeof(data));
        if ((event != NOTHING) && ((i % 200) == 77)) {
            ok = tell(event, 0, end, 0);
        }
        POST(status, np_ep_put_copied(&link_.flight, key, data, lens[place],
                                      side.area + first + (place * step)));
        memset(data, 0xee, sizeof(data));
        puts += status == UCS_OK;
        if ((i % 400) == 399) {
            ok &= put_copied(data, end, sizeof(data));
            for (place = 0; ok && (place < PLACES); ++place) {
                ok = (lens[place] == 0) ||
                     target_has(first + (place * step), lens[place],
                                seeds[place]);
            }
        }
    }
    faults = counts().two_sided - before.two_sided;
    TAP_CHECK(ok && (puts == i) && (counts().one_sided > before.one_sided) &&
              (port_breaks || ((faults > 0) == (event != NOTHING))),
              "small puts, the last to each place is there: %s",
              event_names[event]);
    printf("# %zu puts, %lu faults\n", puts, faults);
}

/* Transfers that the target's CPU has no part in, right behind a put that is a
 * message: a get finds it, and a put is not written over by it */
static void test_order(void)
{
    const size_t small = 4, all = 64; /* of which the first are a message */
    uint64_t one_sided = counts().one_sided;
    uint8_t new[64], old[64];
    ucs_status_t status;
    unsigned i, gets = 0, puts = 0;

    for (i = 0; i < 200; ++i) {
        fill(new, 2 * i, all);
        fill(old, (2 * i) + 1, all);
        POST(status, np_ep_put_copied(&link_.flight, key, new, small,
                                      side.area));
        gets += (status == UCS_OK) && move(NP_DIR_GET, area, 0, all) &&
                (memcmp(area, new, small) == 0);

        POST(status, np_ep_put_copied(&link_.flight, key, old, small,
                                      side.area));
        if (status == UCS_OK) {
            POST(status, np_ep_put_copied(&link_.flight, key, new, all,
                                          side.area));
        }
        puts += (status == UCS_OK) && target_has(0, 0, 0) &&
                move(NP_DIR_GET, area, 0, all) && (memcmp(area, new, all) == 0);
    }
    TAP_CHECK((gets == i) && (puts == i) &&
              (port_breaks || ((counts().one_sided - one_sided) >= (2 * i))),
              "one-sided transfers overtake no put that is a message");
    printf("# %u gets and %u puts of %u right\n", gets, puts, i);
}

/* Who is told that there is room, and tries again at once, finds some: UCP
 * tries so without progress in between. Puts of all ways, more than there is
 * room for. */
static void test_word(void)
{
    static const size_t lens[] = {4, 16, 64, 100, PAGE};
    unsigned i, j, lies = 0, waits = 0;
    ucs_status_t status = UCS_OK;
    double end          = now() + LIMIT;

    for (i = 0; i < ucs_static_array_size(lens); ++i) {
        for (j = 0; (j < 1000) && (now() < end) && (down == UCS_OK);
             j += status == UCS_OK) {
            status = np_ep_put_copied(&link_.flight, key, area, lens[i],
                                      side.area + (((j * 8) % 3) * PAGE));
            if ((status == UCS_ERR_NO_RESOURCE) &&
                np_ep_has_resources(&link_.flight)) {
                status = np_ep_put_copied(&link_.flight, key, area, lens[i],
                                          side.area + (((j * 8) % 3) * PAGE));
                lies  += status == UCS_ERR_NO_RESOURCE;
            }
            if (status == UCS_ERR_NO_RESOURCE) {
                ++waits;
                np_vport_progress(port);
            }
        }
    }
    TAP_CHECK((status == UCS_OK) && (lies == 0) && (waits > 0),
              "who is told that there is room finds some");
    printf("# %u times not, of %u waits\n", lies, waits);
}

/* Data that looks like what an absent page reads as */
static void test_lookalike(void)
{
    const uint32_t word = NP_SIGNATURE;
    size_t i;
    int ok = 1;

    for (i = 0; i < (2 * PAGE); i += sizeof(word)) {
        memcpy(area + i, &word, sizeof(word));
    }
    ok = move(NP_DIR_PUT, area, 0, 2 * PAGE);
    memset(area, 0, 2 * PAGE);
    ok &= move(NP_DIR_GET, area, 0, 2 * PAGE);
    for (i = 0; i < (2 * PAGE); i += sizeof(word)) {
        ok &= memcmp(area + i, &word, sizeof(word)) == 0;
    }
    TAP_CHECK(ok, "data like the signature is data");
}

static int is_mixed(const counts_t *before)
{
    counts_t since = counts();

    return (since.one_sided > before->one_sided) &&
           (since.two_sided > before->two_sided);
}

/* Puts and gets of one slot after the other while both sides' pages come and
 * go */
static void test_storm(double seconds)
{
    static uint64_t seeds[SLOTS];
    const size_t sizes[] = {1, 8, 100, PAGE, 3 * PAGE + 17, 50000, SLOT};
    double end           = now() + seconds;
    uint64_t count = 0;
    size_t slot, len;
    uint8_t *ours;
    counts_t before = counts();
    int ok = 1;

    for (slot = 0; slot < SLOTS; ++slot) {
        ok &= tell(FILL, slot * SLOT, SLOT, slot + 1);
        seeds[slot] = slot + 1;
    }
    ok &= tell(STORM, 0, 0, 0);
    ok &= storm_begin(area, AREA);
    for (; ok && ((now() < end) || ((now() < (end + LIMIT)) &&
                                    !is_mixed(&before))); ++count) {
        slot = random() % SLOTS;
        ours = area + (slot * SLOT);
        len  = sizes[random() % (sizeof(sizes) / sizeof(sizes[0]))];
        if ((random() % 2) && (len == SLOT)) {
            seeds[slot] += SLOTS;
            fill(ours, seeds[slot], len);
            ok = move(NP_DIR_PUT, ours, slot * SLOT, len) &&
                 target_has(slot * SLOT, len, seeds[slot]);
        } else if (random() % 2) {
            /* the same bytes, so that the rest stays right */
            fill(ours, seeds[slot], len);
            ok = move(NP_DIR_PUT, ours, slot * SLOT, len) &&
                 target_has(slot * SLOT, len, seeds[slot]);
        } else {
            ok = move(NP_DIR_GET, ours, slot * SLOT, len) &&
                 has(ours, seeds[slot], len);
        }
    }
    storm_end();
    ok &= tell(CALM, 0, 0, 0);
    for (slot = 0; slot < SLOTS; ++slot) {
        ok &= target_has(slot * SLOT, SLOT, seeds[slot]);
    }
    TAP_CHECK(ok, "no byte is wrong while pages come and go on both sides");
    printf("# %lu transfers, %lu one-sided, %lu two-sided\n", count,
           counts().one_sided - before.one_sided,
           counts().two_sided - before.two_sided);
    TAP_CHECK(is_mixed(&before), "some were one-sided, some were not");
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {64, 3 * PAGE, 300000, 3ul << 20};
    np_vport_config_t config;
    side_t ours;
    event_t event;
    int fd;
    size_t i;
    pid_t pid;

    if (!find_port(&config)) {
        printf("1..0 # SKIP no RNIC port is up\n");
        return 0;
    }

    port_breaks        = (argc > 2) ? atoi(argv[2]) : 0;
    config.break_every = port_breaks;
    config.put_once    = 7; /* so that the smallest take both ways */
    shared = share_memory(sizeof(*shared));
    pid    = start_target(target, &config, &fd);
    open_port(&config, NULL);
    area = make_area(&ours, AREA);
    key  = link_sides(fd, &ours, &side);
    warm_up();
    for (event = NOTHING; event < EVENTS; ++event) {
        for (i = 0; i < (sizeof(sizes) / sizeof(sizes[0])); ++i) {
            test_event(event, sizes[i]);
        }
    }
    test_copied();
    test_small(NOTHING);
    test_small(SWAP);
    test_small(FORK);
    test_order();
    test_word();
    test_lookalike();
    test_storm((argc > 1) ? atof(argv[1]) : 10);
    TAP_CHECK(down == UCS_OK, "the link is as it was");

    shared->stop = 1;
    TAP_CHECK(has_ended_well(pid), "the target ends well");
    leave_sides(key);
    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}
