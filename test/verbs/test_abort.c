/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Queue pairs that fail because the IOMMU has no translation for a page just
 * then: nprdma.ko replaces it, and the module nprdma_gap of the tests makes
 * that moment long. Transfers that meet it must end right, over another queue
 * pair; those of another link go on over theirs. Two processes, each a port.
 * Prints TAP.
 *
 * test_abort never: translations are replaced in place, so no queue pair may
 * fail.
 */

#define _GNU_SOURCE
#include "sides.h"

#include "nprdma/engine.h"
#include "nprdma/proto/ep.h"
#include "nprdma/stats.h"
#include "nprdma/svc/service.h"
#include "../engine/tap.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE     4096ul
#define SLOT     (64ul << 10)
#define SLOTS    8              /* of the link whose pages come and go */
#define AREA     (2 * SLOTS * SLOT)
#define CALM     (SLOTS * SLOT) /* from here on nothing happens to pages */
#define GAPS     "/sys/module/nprdma_gap/parameters/"
#define GAP_US   4000
#define FAILURES 5              /* wanted */
#define ROUNDS   100            /* where none can be had for certain */

typedef struct shared {
    _Atomic int stop;
    _Atomic int storm;          /* the target's pages are to come and go */
} shared_t;

/* A link, and what moves over it */
typedef struct lane {
    np_vlink_t *link;
    size_t     first;           /* of both areas */
    comp_t     comps[SLOTS];
    np_dir_t   dirs[SLOTS];
    size_t     lens[SLOTS];
    uint64_t   seeds[SLOTS];    /* of what the target has */
    unsigned   count;           /* transfers that were right */
} lane_t;

unsigned tap_count, tap_failures;

static shared_t *shared;
static side_t side;
static np_key_t *key;
static uint8_t *area;
static pid_t target_pid;
static _Atomic int storm;       /* in this process */


static int set_gap(const char *name, int value)
{
    char path[128];
    FILE *file;
    int ok;

    snprintf(path, sizeof(path), GAPS "%s", name);
    file = fopen(path, "w");
    ok   = (file != NULL) && (fprintf(file, "%d", value) > 0);
    return (file != NULL) && (fclose(file) == 0) && ok;
}

/* The first page of each slot but the first one: taken slowly, for this thread
 * alone meets the gap, and mapped again with the next transfer */
static void *come_and_go(void *arg)
{
    unsigned i = 0;

    if (!set_gap("task", syscall(SYS_gettid))) {
        return NULL;
    }
    while (storm) {
        (void)page_out(area + ((1 + (i++ % (SLOTS - 1))) * SLOT),
                       getpagesize());
        usleep(1000);
    }
    return NULL;
}

/* A huge one would go as a whole */
static uint8_t *small_pages(void *memory)
{
    madvise(memory, AREA, MADV_NOHUGEPAGE);
    return memory;
}

static int target(const np_vport_config_t *config, int fd)
{
    pthread_t thread;
    side_t other;

    open_port(config, NULL);
    area = small_pages(make_area(&side, AREA));
    if (!exchange_sides(fd, &side, &other)) {
        return 1;
    }
    np_service_start();
    while (!shared->stop) {
        np_vport_progress(port);
        if (shared->storm == storm) {
            continue;
        }
        storm = shared->storm;
        if (!storm) {
            pthread_join(thread, NULL);
        } else if (pthread_create(&thread, NULL, come_and_go, NULL) != 0) {
            return 1;
        }
    }
    np_vport_close(port);
    return 0;
}

static unsigned epoch(const np_vlink_t *link)
{
    return (link->conn == NULL) ? 0 : link->conn->epoch;
}

/* The target's memory itself, not over the path under test */
static int target_has(size_t offset, size_t len, uint64_t seed)
{
    static uint8_t seen[SLOT];
    struct iovec here = {seen, len}, there = {(void*)(side.area + offset), len};

    return (process_vm_readv(target_pid, &here, 1, &there, 1, 0) ==
            (ssize_t)len) && is_right(seen, seed, len);
}

static int target_gets(size_t offset, size_t len, uint64_t seed)
{
    static uint8_t data[SLOT];
    struct iovec here = {data, len}, there = {(void*)(side.area + offset), len};

    fill(data, seed, len);
    return process_vm_writev(target_pid, &here, 1, &there, 1, 0) ==
           (ssize_t)len;
}

static int lane_post(lane_t *lane, unsigned i, np_dir_t dir, size_t len,
                     uint64_t seed)
{
    const size_t offset = lane->first + (i * SLOT);
    np_iov_t iov        = {area + offset, len};
    ucs_status_t status;

    lane->comps[i] = (comp_t){0};
    lane->dirs[i]  = dir;
    lane->lens[i]  = len;
    lane->seeds[i] = seed;
    if (lane->dirs[i] == NP_DIR_PUT) {
        fill(area + offset, seed, len);
    } else if (!target_gets(offset, len, seed)) {
        return 0;
    }
    POST(status, np_ep_move(lane->dirs[i], &lane->link->flight, key, &iov, 1,
                            side.area + offset, &lane->comps[i]));
    if (status == UCS_OK) {
        lane->comps[i].count = 1;
    }
    return (status == UCS_OK) || (status == UCS_INPROGRESS);
}

static int lane_wait(lane_t *lane, unsigned i)
{
    const size_t offset = lane->first + (i * SLOT);
    int ok;

    if (!wait_until(is_done, &lane->comps[i]) ||
        (lane->comps[i].status != UCS_OK) || (lane->comps[i].count != 1)) {
        printf("# %s of %zu bytes: %s\n",
               (lane->dirs[i] == NP_DIR_PUT) ? "put" : "get", lane->lens[i],
               ucs_status_string(lane->comps[i].status));
        return 0;
    }
    ok = (lane->dirs[i] == NP_DIR_PUT) ?
         target_has(offset, lane->lens[i], lane->seeds[i]) :
         is_right(area + offset, lane->seeds[i], lane->lens[i]);
    lane->count += ok;
    return ok;
}

/* A transfer in each slot of both, all of them under way at once */
static int one_round(lane_t *lanes)
{
    static const size_t sizes[] = {64, PAGE, 3 * PAGE + 17};
    static uint64_t seed;
    unsigned i, j;
    np_dir_t dir;
    size_t len;
    int ok = 1;

    for (i = 0; ok && (i < SLOTS); ++i) {
        for (j = 0; ok && (j < 2); ++j) {
            len = (i == 0) ? SLOT :
                  sizes[random() % ucs_static_array_size(sizes)];
            dir = ((i == 0) || (random() % 2)) ? NP_DIR_PUT : NP_DIR_GET;
            ok  = lane_post(&lanes[j], i, dir, len, ++seed);
        }
    }
    for (i = 0; ok && (i < SLOTS); ++i) {
        ok = lane_wait(&lanes[0], i) && lane_wait(&lanes[1], i);
    }
    return ok;
}

static uint64_t one_sided(void)
{
    np_stats_t sum;

    np_stats_sum(&sum);
    return sum.reads + sum.writes;
}

/* Until all transfers of a round are one-sided */
static int settle(lane_t *lanes)
{
    double end = now() + LIMIT;
    uint64_t before;
    int ok;

    do {
        before = one_sided();
        ok     = one_round(lanes);
    } while (ok && ((one_sided() - before) < (2 * SLOTS)) && (now() < end));
    return ok && ((one_sided() - before) == (2 * SLOTS));
}

/* Rounds until so many queue pairs have failed, and no more. A transfer looks
 * at its own pages just before it is posted, so one of those rarely goes in
 * time to fail one. */
static void test_aborts(lane_t *lanes, const char *whose, unsigned wanted,
                        unsigned most)
{
    const unsigned before = epoch(lanes[0].link), calm = epoch(lanes[1].link);
    const unsigned count  = lanes[1].count;
    uint64_t moved        = one_sided();
    double end            = now() + LIMIT;
    unsigned failed, rounds = 0;
    int ok = 1;

    do {
        ok     = one_round(lanes);
        failed = epoch(lanes[0].link) - before;
        ++rounds;
    } while (ok && (now() < end) && ((failed < wanted) || (rounds < ROUNDS)));
    TAP_CHECK(ok, "transfers end right while %s pages go slowly", whose);
    TAP_CHECK((failed >= wanted) && (failed <= most),
              "with %u queue pairs replaced", failed);
    TAP_CHECK((epoch(lanes[1].link) == calm) && (lanes[1].count > count),
              "another link's %u went on over the same one",
              lanes[1].count - count);
    printf("# %u rounds, %lu transfers one-sided\n", rounds,
           one_sided() - moved);
}

static void test_all(lane_t *lanes, int is_never)
{
    const unsigned wanted = is_never ? 0 : FAILURES;
    const unsigned most   = is_never ? 0 : UINT_MAX;
    pthread_t thread;
    unsigned before;

    TAP_CHECK(settle(lanes), "transfers of both links are one-sided");
    before = epoch(lanes[0].link) + epoch(lanes[1].link);
    TAP_CHECK(one_round(lanes) && (before == (epoch(lanes[0].link) +
                                              epoch(lanes[1].link))),
              "no queue pair fails while pages stay");
    TAP_CHECK(set_gap("microseconds", GAP_US), "pages stay without a translation for longer");
    shared->storm = 1;
    test_aborts(lanes, "the target's", wanted, most);
    shared->storm = 0;
    storm         = 1;
    TAP_CHECK(pthread_create(&thread, NULL, come_and_go, NULL) == 0,
              "now ours come and go");
    test_aborts(lanes, "our", 0, most);
    storm = 0;
    pthread_join(thread, NULL);
    TAP_CHECK(set_gap("microseconds", 0) && settle(lanes), "after that all is one-sided again");
    TAP_CHECK(down == UCS_OK, "both links are as they were");
}

int main(int argc, char **argv)
{
    lane_t lanes[2] = {{.link = &link_}, {.first = CALM}};
    np_vport_config_t config;
    np_vlink_t other;
    int fd;
    side_t ours;

    if (!find_port(&config) || !set_gap("microseconds", 0)) {
        printf("1..0 # SKIP no RNIC port, or no module nprdma_gap\n");
        return 0;
    }

    shared     = share_memory(sizeof(*shared));
    target_pid = start_target(target, &config, &fd);
    open_port(&config, NULL);
    area = small_pages(make_area(&ours, AREA));
    key  = link_sides(fd, &ours, &side);
    lanes[1].link = &other;
    np_vlink_init(&other, port, &side.dev, &side.port);
    test_all(lanes, (argc > 1) && (strcmp(argv[1], "never") == 0));
    set_gap("microseconds", 0);
    shared->stop = 1;
    TAP_CHECK(has_ended_well(target_pid), "the target ends well");
    np_ep_close(&other.flight);
    leave_sides(key);
    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}
