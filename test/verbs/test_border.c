/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * One-sided transfers over the border of two memory regions of a view, with
 * nprdma.ko and a device that refuses large ones (Soft-RoCE's dmabuf_refuse).
 * Two processes, each a port. Prints TAP.
 *
 * test_border MIB: the size that regions are to have; the border is there.
 */

#define _GNU_SOURCE
#include "sides.h"

#include "nprdma/engine.h"
#include "nprdma/dev/verbs/vremote.h"
#include "nprdma/proto/ep.h"
#include "nprdma/stats.h"
#include "nprdma/svc/service.h"
#include "../engine/tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define MIB     (UINT64_C(1) << 20)
#define AROUND  (2 * MIB)                     /* on each side of the border */
#define THEIRS  UINT64_C(0x300000000000)      /* arenas of their own */
#define OURS    UINT64_C(0x310000000000)

typedef struct shared {
    _Atomic int stop;
    _Atomic int out;       /* the target's pages at the border are to go */
    _Atomic int has_gone;
} shared_t;

unsigned tap_count, tap_failures;

static shared_t *shared;
static side_t side;
static np_key_t *key;
static uint8_t *area;
static pid_t target_pid;
static uint64_t border;    /* within the arena */


/* Small pages, as huge ones would go as a whole */
static uint8_t *make_border(side_t *of, uint64_t arena)
{
    uint8_t *memory = make_area_at(of, (void*)(arena + border - AROUND),
                                   2 * AROUND);

    madvise(memory, 2 * AROUND, MADV_NOHUGEPAGE);
    memset(memory, 1, 2 * AROUND);
    return memory;
}

/* The last page before the border and the first one behind it */
static int take_border(void)
{
    return page_out(area + AROUND - getpagesize(), 2 * getpagesize());
}

static int target(const np_vport_config_t *config, int fd)
{
    side_t other;

    open_port(config, NULL);
    area = make_border(&side, THEIRS);
    if (!exchange_sides(fd, &side, &other)) {
        return 1;
    }
    np_service_start();
    while (!shared->stop) {
        np_vport_progress(port);
        if (shared->out) {
            shared->has_gone = take_border() ? 1 : -1;
            shared->out      = 0;
        }
    }
    np_vport_close(port);
    return 0;
}

/* The target's memory itself, not over the path under test */
static int target_copy(uint8_t *bytes, size_t len, uint64_t at, int to_target)
{
    struct iovec here = {bytes, len}, there = {(void*)at, len};

    return (to_target ? process_vm_writev(target_pid, &here, 1, &there, 1, 0) :
            process_vm_readv(target_pid, &here, 1, &there, 1, 0)) ==
           (ssize_t)len;
}

static int move(np_dir_t dir, uint8_t *local, size_t len, uint64_t remote)
{
    const np_iov_t iov = {local, len};
    comp_t comp        = {0};
    ucs_status_t status;

    POST(status, np_ep_move(dir, &link_.flight, key, &iov, 1, remote, &comp));
    return (status == UCS_OK) ||
           ((status == UCS_INPROGRESS) && wait_until(is_done, &comp) &&
            (comp.status == UCS_OK));
}

/* A put and a get of as many bytes, @a before of them on this side of the
 * border */
static int both_ways(size_t len, size_t before, size_t remote_before)
{
    static uint8_t seen[2 * AROUND];
    static uint64_t seed;
    uint8_t *local  = area + AROUND - before;
    uint64_t remote = side.area + AROUND - remote_before;
    int is_put;

    fill(local, ++seed, len);
    is_put = move(NP_DIR_PUT, local, len, remote) &&
             target_copy(seen, len, remote, 0) && is_right(seen, seed, len);
    fill(seen, ++seed, len);
    if (is_put && target_copy(seen, len, remote, 1) &&
        move(NP_DIR_GET, local, len, remote) && is_right(local, seed, len)) {
        return 1;
    }
    printf("# %s of %zu bytes, %zu and %zu of them before the border\n",
           is_put ? "get" : "put", len, before, remote_before);
    return 0;
}

static uint64_t one_sided(void)
{
    np_stats_t sum;

    np_stats_sum(&sum);
    return sum.reads + sum.writes;
}

/* Until a put and a get of all are one-sided */
static int settle(void)
{
    const double end = now() + LIMIT;
    uint64_t before;

    do {
        before = one_sided();
        if (!both_ways(2 * AROUND, AROUND, AROUND)) {
            return 0;
        }
    } while (((one_sided() - before) < 2) && (now() < end));
    return (one_sided() - before) == 2;
}

static void test_row(void)
{
    TAP_CHECK(settle(), "transfers over the border are one-sided");
    TAP_CHECK(link_.remotes->shift == ucs_ilog2(border),
              "the target's views are rows of regions of %lu MiB",
              (UINT64_C(1) << link_.remotes->shift) / MIB);
    TAP_CHECK(np_nic_view_size(port->nic) == border, "and so are ours");
}

static void test_sizes(void)
{
    static const size_t lens[] = {16, 64, 100, 4096, 12345, 65536, 1 << 20};
    const uint64_t before      = one_sided();
    unsigned i, wrong = 0, count = 0;
    size_t half;

    for (i = 0; i < ucs_static_array_size(lens); ++i) {
        half   = lens[i] / 2;
        wrong += !both_ways(lens[i], half, half);
        wrong += !both_ways(lens[i], half, 0);
        wrong += !both_ways(lens[i], lens[i], half);
        wrong += !both_ways(lens[i], half - 5, half + 3);
        count += 4;
    }
    TAP_CHECK(wrong == 0, "%u sizes and places over the border are right",
              count);
    TAP_CHECK((one_sided() - before) == (2 * count), "all of them one-sided");
}

/* Pages on both sides of the border go, of the target or of ours */
static void test_taken(void)
{
    const double end = now() + LIMIT;
    unsigned wrong = 0, round;

    for (round = 0; round < 5; ++round) {
        shared->out = 1;
        while (shared->out && (now() < end)) {
            np_vport_progress(port);
        }
        wrong += !both_ways(65536, 32768 + (16 * round), 32768) ||
                 (shared->has_gone != 1);
    }
    TAP_CHECK(wrong == 0, "right when the target's pages there have gone");
    for (round = 0, wrong = 0; round < 5; ++round) {
        wrong += !take_border() ||
                 !both_ways(65536, 32768, 32768 + (16 * round));
    }
    TAP_CHECK(wrong == 0, "and when ours have");
    TAP_CHECK(settle(), "and one-sided again");
}

int main(int argc, char **argv)
{
    np_vport_config_t config;
    side_t ours;
    int fd;

    border = ((argc > 1) ? strtoull(argv[1], NULL, 10) : 0) * MIB;
    if (!ucs_is_pow2(border) || (border < (16 * MIB)) ||
        (border > (1024 * MIB))) {
        fprintf(stderr, "Usage: test_border MIB\n");
        return 2;
    }
    if (!find_port(&config)) {
        printf("1..0 # SKIP no RNIC port\n");
        return 0;
    }

    shared     = share_memory(sizeof(*shared));
    target_pid = start_target(target, &config, &fd);
    open_port(&config, NULL);
    area = make_border(&ours, OURS);
    key  = link_sides(fd, &ours, &side);
    test_row();
    test_sizes();
    test_taken();
    TAP_CHECK((down == UCS_OK) && (link_.conn->epoch == 0),
              "no queue pair has failed");
    shared->stop = 1;
    TAP_CHECK(has_ended_well(target_pid), "the target ends well");
    leave_sides(key);
    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}
