/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a page that is not there adds to a Read or Write where the device itself
 * brings pages in (on-demand paging): as test/verbs/fault_cost.c for nprdma, in
 * units of a Send of 8 bytes, until both sides know of it. Then how long a
 * transfer behind it has to wait. One process; the device works on another
 * processor.
 *
 * odp_cost [ROUNDS]: of each (200). Prints figures; fails if bytes are wrong.
 * Exit code 77: the device has no on-demand paging.
 */

#define _GNU_SOURCE
#include "pair.h"

#include "../verbs/absence.h"
#include "../verbs/sides.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SETTLED  5000    /* microseconds */
#define PAGES    3       /* that nobody uses the last of: see fault_cost.c */
#define LOCAL    (IBV_ACCESS_LOCAL_WRITE)
#define REMOTE   (LOCAL | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

typedef struct area {
    uint8_t    *bytes;    /* PAGES */
    pair_mem_t mem;
} area_t;

static pair_t pair, other;
static area_t ours;       /* pinned, what a transfer comes from or goes to */
static area_t theirs;     /* on demand */


static void bail(const char *what)
{
    printf("Bail out! %s\n", what);
    exit(1);
}

static int is_odp(np_nic_t *nic)
{
    struct ibv_device_attr_ex attr;
    const uint32_t caps = IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE;

    return (ibv_query_device_ex(nic->ctx, NULL, &attr) == 0) &&
           (attr.odp_caps.general_caps & IBV_ODP_SUPPORT) &&
           ((attr.odp_caps.per_transport_caps.rc_odp_caps & caps) == caps);
}

static void make(area_t *area, np_nic_t *nic, int access)
{
    struct ibv_mr *mr;

    area->bytes = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mr          = ibv_reg_mr(nic->pd, area->bytes, PAGES * PAGE, access);
    if (mr == NULL) {
        bail("memory cannot be registered");
    }
    area->mem = (pair_mem_t){
        (uintptr_t)area->bytes,
        (access == LOCAL) ? mr->lkey : mr->rkey
    };
}

static pair_mem_t at(const area_t *area, size_t offset)
{
    return (pair_mem_t){area->mem.addr + offset, area->mem.key};
}

static void post_at(pair_t *by, enum ibv_wr_opcode opcode, size_t offset,
                    size_t len)
{
    pair_post(by, opcode, at(&ours, offset), at(&theirs, offset), len);
}

static void wait_for(pair_t *by)
{
    if (pair_wait(by) != IBV_WC_SUCCESS) {
        bail("a transfer has failed");
    }
}

/* Seconds */
static double move(enum ibv_wr_opcode opcode, size_t offset, size_t len)
{
    double start = now();

    post_at(&pair, opcode, offset, len);
    wait_for(&pair);
    return now() - start;
}

static double send_8(void)
{
    double start = now();

    if (pair_send(&pair, at(&ours, 0), at(&ours, PAGE), 8) != IBV_WC_SUCCESS) {
        bail("a message has failed");
    }
    return now() - start;
}

static void take_other(void)
{
    take_page(theirs.bytes + ((PAGES - 1) * PAGE), UNMAPPED, 0);
}

static void take(absence_t absence, uint64_t seed)
{
    if (!take_page(theirs.bytes, absence, seed)) {
        bail("a page does not go to swap");
    }
}

/* One transfer whose bytes are looked at */
static double checked(enum ibv_wr_opcode opcode, size_t len, uint64_t seed,
                      int is_zero)
{
    static const uint8_t zeroes[PAGE];
    double seconds;

    if (opcode == IBV_WR_RDMA_WRITE) {
        fill(ours.bytes, seed + 1, len);
    } else {
        memset(ours.bytes, 0xee, len);
    }
    seconds = move(opcode, 0, len);
    if ((opcode == IBV_WR_RDMA_WRITE) ?
        !is_right(theirs.bytes, seed + 1, len) :
        is_zero ? (memcmp(ours.bytes, zeroes, len) != 0) :
        !is_right(ours.bytes, seed, len)) {
        bail("wrong bytes");
    }
    return seconds;
}

static const char *name(enum ibv_wr_opcode opcode)
{
    return (opcode == IBV_WR_RDMA_WRITE) ? "put" : "get";
}

static void measure(enum ibv_wr_opcode opcode, size_t len, absence_t absence,
                    unsigned count)
{
    static rounds_t rounds;
    unsigned i;

    rounds.major = 0;
    for (i = 0; i < count; ++i) {
        take(absence, i);
        rounds.touch[i] = touch_page(theirs.bytes, opcode == IBV_WR_RDMA_WRITE,
                                     &rounds.major);
        fill(theirs.bytes, i, PAGE);
        move(opcode, 0, len);
        usleep(SETTLED);
        take_other();
        rounds.message[i] = send_8();
        rounds.again[i]   = repeat(send_8);
        fill(theirs.bytes, i, PAGE);
        take_other();
        rounds.there[i] = checked(opcode, len, i, 0);
        take(absence, i);
        rounds.absent[i] = checked(opcode, len, i, !is_kept(absence));
    }
    rounds.count = count;
    print_rounds(name(opcode), len, absence, &rounds, "");
}

/* Seconds of a transfer with the second page by @a by, posted right behind one
 * with the first */
static double move_behind(pair_t *by, enum ibv_wr_opcode opcode, size_t len)
{
    double start = now(), seconds;

    post_at(&pair, opcode, 0, len);
    post_at(by, opcode, PAGE, len);
    if (by == &pair) {
        wait_for(&pair); /* a queue pair's completions are in order */
    }
    wait_for(by);
    seconds = now() - start;
    if (by != &pair) {
        wait_for(&pair);
    }
    return seconds;
}

static void measure_behind(enum ibv_wr_opcode opcode, size_t len,
                           absence_t absence, unsigned count)
{
    static behind_t behind;
    unsigned i;

    for (i = 0; i < count; ++i) {
        move(opcode, 0, len);
        move(opcode, PAGE, len);
        usleep(SETTLED);
        take_other();
        behind.alone[i] = move(opcode, PAGE, len);
        take_other();
        behind.there[i] = move_behind(&pair, opcode, len);
        take(absence, i);
        behind.absent[i] = move_behind(&pair, opcode, len);
        move(opcode, 0, len);
        take(absence, i);
        behind.other[i] = move_behind(&other, opcode, len);
    }
    behind.count     = count;
    behind.has_other = 1;
    print_behind(name(opcode), len, absence, &behind);
}

int main(int argc, char **argv)
{
    static const enum ibv_wr_opcode opcodes[] = {
        IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE
    };
    static const size_t sizes[]               = {8, PAGE};
    unsigned count = (argc > 1) ? atoi(argv[1]) : 200, i, j;
    np_vport_config_t config;
    absence_t absence;
    np_nic_t *nic;

    if (!find_port(&config) ||
        (np_nic_open(config.device, -1, &nic) != UCS_OK)) {
        bail("no RNIC port is up");
    }
    if (!is_odp(nic)) {
        printf("SKIP %s has no on-demand paging\n", config.device);
        return 77;
    }

    count = ucs_min(ucs_max(count, 1u), (unsigned)MAX_ROUNDS);
    make(&ours, nic, LOCAL);
    make(&theirs, nic, REMOTE | IBV_ACCESS_ON_DEMAND);
    pair_open(&pair, nic);
    pair_open(&other, nic);
    print_rounds_title(count);
    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        for (j = 0; j < ucs_static_array_size(opcodes); ++j) {
            for (absence = 0; absence < ABSENCES; ++absence) {
                measure(opcodes[j], sizes[i], absence, count);
            }
        }
    }

    print_behind_title(count);
    for (j = 0; j < ucs_static_array_size(opcodes); ++j) {
        for (absence = MINOR; absence < ABSENCES; ++absence) {
            measure_behind(opcodes[j], PAGE, absence, count);
        }
    }
    pair_close(&other);
    pair_close(&pair);
    return 0;
}
