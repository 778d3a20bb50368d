/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine over an RNIC, without UCX above it: two processes, each a port.
 * Prints TAP. The first RNIC port is used.
 *
 * test_verbs [N [MISCHIEF]]: each queue pair fails after every N messages (0:
 * none does); datagrams meet with this mischief alone, instead of each kind
 */

#define _GNU_SOURCE
#include "scene.h"

#include "nprdma/engine.h"
#include "nprdma/proto/ep.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

unsigned tap_count, tap_failures;


static void test_am(void)
{
    static const unsigned sizes[] = {0, 1, 8, 100, 240, 241, 1000, 4096, 8000};
    static uint8_t data[16384];
    uint64_t count = 0, sum = 0, seed;
    ucs_status_t status = UCS_OK;
    unsigned i, j;

    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        for (j = 0; (j < 100) && (status == UCS_OK); ++j) {
            seed = count + 1;
            fill(data, seed, sizes[i]);
            POST(status, np_vlink_am_short(&link_, seed % 32, seed, data,
                                           sizes[i]));
            sum += seed;
            ++count;
        }
    }
    TAP_CHECK(status == UCS_OK, "active messages of all sizes are taken");
    TAP_CHECK(wait_until(has_received, &count) && (shared->received == count),
              "and arrive");
    TAP_CHECK((shared->sum == sum) && (shared->wrong == 0), "unharmed");
}

/* A put or get, to its end; has it gone well? */
static int move(np_dir_t dir, void *bytes, size_t len, uint64_t addr)
{
    np_iov_t iov = {bytes, len};
    comp_t comp  = {0, UCS_OK};
    ucs_status_t status;

    POST(status, np_ep_move(dir, &link_.flight, key, &iov, 1, addr, &comp));
    return goes_well(status, &comp);
}

/* Put, then get it back into other memory; the target's memory is looked at by
 * reading it with process_vm_readv, not over the path under test */
void test_move(size_t len, size_t offset)
{
    uint8_t *mine = area + offset, *seen = malloc(len);
    uint64_t addr = side.area + offset;
    struct iovec here = {seen, len}, there = {(void*)addr, len};
    int ok;

    fill(mine, len, len);
    ok = move(NP_DIR_PUT, mine, len, addr);
    memset(seen, 0, len);
    TAP_CHECK(ok && (process_vm_readv(target_pid, &here, 1, &there, 1, 0) ==
                     (ssize_t)len) && is_right(seen, len, len),
              "put of %zu bytes at offset %zu", len, offset);

    fill(seen, len + 1, len);
    ok = process_vm_writev(target_pid, &here, 1, &there, 1, 0) == (ssize_t)len;
    memset(mine, 0, len);
    TAP_CHECK(ok && move(NP_DIR_GET, mine, len, addr) &&
              is_right(mine, len + 1, len),
              "get of %zu bytes at offset %zu", len, offset);
    free(seen);
}

/* More at once than the target works on */
void test_many(void)
{
    static comp_t comps[600];
    const unsigned count = ucs_static_array_size(comps);
    const size_t len     = AREA / count;
    ucs_status_t status  = UCS_OK;
    np_iov_t iov         = {area, AREA};
    unsigned i, done     = 0;

    fill(area, 7, AREA);
    TAP_CHECK(move(NP_DIR_PUT, area, AREA, side.area), "all is put");
    memset(area, 0, AREA);
    memset(comps, 0, sizeof(comps));
    for (i = 0; (status == UCS_OK) && (i < count); ++i) {
        iov = (np_iov_t){area + (i * len), len};
        POST(status, np_ep_move(NP_DIR_GET, &link_.flight, key, &iov, 1,
                                side.area + (i * len), &comps[i]));
        status = (status == UCS_INPROGRESS) ? UCS_OK : status;
    }
    for (i = 0; (status == UCS_OK) && (i < count); ++i) {
        done += goes_well(UCS_INPROGRESS, &comps[i]);
    }
    TAP_CHECK((done == count) && is_right(area, 7, count * len),
              "%u gets at once", count);
}

static void unpack(void *arg, const void *data, size_t len)
{
    memcpy(arg, data, len);
}

void test_small(void)
{
    static uint8_t data[16384], back[16384];
    size_t sizes[] = {1, 8, 250, 4096, max_message}, i;
    struct iovec here, there;
    ucs_status_t status;
    comp_t comp;
    int ok = 1;

    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        here  = (struct iovec){back, sizes[i]};
        there = (struct iovec){(void*)side.area, sizes[i]};
        fill(data, sizes[i] + 5, sizes[i]);
        POST(status, np_ep_put_copied(&link_.flight, key, data, sizes[i],
                                      side.area));
        ok = ok && (status == UCS_OK) && flush() &&
             (process_vm_readv(target_pid, &here, 1, &there, 1, 0) ==
              (ssize_t)sizes[i]) && is_right(back, sizes[i] + 5, sizes[i]);
        memset(back, 0, sizes[i]);
        comp = (comp_t){0, UCS_OK};
        POST(status, np_ep_get_unpack(&link_.flight, key, sizes[i], side.area,
                                      unpack, back, &comp));
        ok = ok && goes_well(status, &comp) && is_right(back, sizes[i] + 5, sizes[i]);
    }
    TAP_CHECK(ok, "small puts and gets");
}

void test_atomic(void)
{
    uint64_t result = 1, i, before = ~0ul;
    ucs_status_t status;
    comp_t comp;
    int ok = 1;

    for (i = 0; i < 50; ++i) {
        comp = (comp_t){0, UCS_OK};
        POST(status, np_ep_atomic(&link_.flight, key,
                                  &(np_atomic_t){.addr = side.area + 64,
                                                 .value = 3,
                                                 .op = NP_ATOMIC_ADD,
                                                 .size = 8},
                                  &result, &comp));
        ok = ok && goes_well(status, &comp) &&
             ((i == 0) || (result == before + 3));
        before = result;
    }
    TAP_CHECK(ok, "50 atomics, each once");
}

static void test_bad(void)
{
    const size_t gone = 1 << 20;
    uint8_t *hole     = area + AREA - gone;
    np_iov_t iov      = {area, gone};
    comp_t comp       = {0, UCS_OK};
    ucs_status_t status;

    POST(status, np_ep_move(NP_DIR_GET, &link_.flight, key, &iov, 1, 8192,
                            &comp));
    TAP_CHECK((status == UCS_INPROGRESS) && wait_until(is_done, &comp) &&
              (comp.status == UCS_ERR_INVALID_ADDR),
              "an address outside the key is an error of that get");

    comp = (comp_t){0, UCS_OK};
    munmap(hole, gone);
    iov = (np_iov_t){hole, gone};
    POST(status, np_ep_move(NP_DIR_GET, &link_.flight, key, &iov, 1,
                            side.area, &comp));
    TAP_CHECK((status == UCS_INPROGRESS) && wait_until(is_done, &comp) &&
              (comp.status != UCS_OK),
              "memory of ours that is not there is an error of that get");
}

static int is_swapping(const void *arg)
{
    return shared->swaps == *(const int*)arg;
}

/* Memory that its program takes away and brings back all the time */
static void test_swapper(void)
{
    static const size_t sizes[] = {8, 5000, 40000, 500000, SWAPPED};
    const int on = 1, off = 0;
    double end = now() + LIMIT;
    unsigned i, j;
    int ok;

    shared->swapped = 0;
    shared->swap    = 1;
    ok              = wait_until(is_swapping, &on);
    for (j = 0; ok && (now() < end) && ((j < 10) || (shared->swapped < 200));
         ++j) {
        for (i = 0; ok && (i < ucs_static_array_size(sizes)); ++i) {
            /* a put by messages begins anew with each queue pair */
            if ((port->config.break_every != 0) &&
                (sizes[i] > (port->config.break_every * 2048))) {
                continue;
            }
            fill(area, i + j, sizes[i]);
            ok = move(NP_DIR_PUT, area, sizes[i], side.area);
            memset(area, 0, sizes[i]);
            ok = ok && move(NP_DIR_GET, area, sizes[i], side.area) &&
                 is_right(area, i + j, sizes[i]);
        }
    }
    TAP_CHECK(ok && (shared->swapped >= 200),
              "puts and gets of memory that its program swaps");
    shared->swap = 0;
    (void)wait_until(is_swapping, &off);
}

/* All of it while the target does not look at its port: its service thread
 * answers, and leaves active messages to it */
static void test_computing(void)
{
    uint64_t count = shared->received, seed;
    ucs_status_t status = UCS_OK;
    uint8_t data[100];
    int on = 1, off = 0, i;
    size_t len;

    shared->sum     = 0;
    shared->compute = 1;
    TAP_CHECK(wait_until(is_computing, &on), "the target computes");
    for (i = 0; (i < 8) && (status == UCS_OK); ++i) {
        seed = i + 1;
        fill(data, seed, sizeof(data));
        POST(status, np_vlink_am_short(&link_, seed % 32, seed, data,
                                       sizeof(data)));
    }
    TAP_CHECK(status == UCS_OK, "active messages are taken");
    test_small();
    for (len = 1; len <= (1ul << 20); len *= 31) {
        test_move(len, len % 4093);
    }
    test_atomic();
    TAP_CHECK(flush(), "flush");
    TAP_CHECK(shared->received == count, "it has handled no active message");
    shared->compute = 0;
    count          += i;
    TAP_CHECK(wait_until(is_computing, &off) &&
              wait_until(has_received, &count) && (shared->received == count) &&
              (shared->sum == 36) && (shared->wrong == 0), "until it looks");
}

int main(int argc, char **argv)
{
    np_vport_config_t config;
    int fd, status;
    side_t ours;
    double end;
    size_t len;

    if (!find_port(&config)) {
        printf("1..0 # SKIP no RNIC port is up\n");
        return 0;
    }

    config.break_every = (argc > 1) ? atoi(argv[1]) : 0;
    shared             = share_memory(sizeof(*shared));
    target_pid         = start_target(target, &config, &fd);
    is_initiator       = 1;
    open_port(&config, on_am);
    area = make_area(&ours, AREA);
    key  = link_sides(fd, &ours, &side);
    test_am();
    test_small();
    for (len = 1; len <= (4ul << 20); len *= 7) {
        test_move(len, len % 4093);
    }
    test_move(5 << 20, 1);
    test_many();
    test_atomic();
    TAP_CHECK(flush(), "flush");
    test_computing();
    test_numbers();
    test_failing();
    test_crowd();
    test_closing();
    test_forgetting();
    test_flood();
    test_swapper();
    test_handshake((argc > 2) ? atoi(argv[2]) : -1);
    test_stranger();
    test_bad();
    TAP_CHECK(down == UCS_OK, "the link is as it was");

    kill(target_pid, SIGKILL);
    waitpid(target_pid, &status, 0);
    end = now() + LIMIT;
    np_ep_check(&link_.flight);
    while ((down == UCS_OK) && (now() < end)) {
        np_vport_progress(port);
    }
    if ((down == UCS_OK) && (link_.conn != NULL)) {
        NP_TURN_WAIT(&port->turn);
        printf("# state %d, requests %u to %u, stuck %u, silent %u, epoch %u\n",
               link_.conn->state, link_.conn->sq_head, link_.conn->sq_tail,
               link_.conn->stuck, link_.conn->silent, link_.conn->epoch);
    }
    TAP_CHECK(down != UCS_OK, "the death of the target is noticed");
    printf("# after %.1f s: %s\n", LIMIT - (end - now()),
           ucs_status_string(down));

    leave_sides(key);
    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}
