/* SPDX-License-Identifier: BSD-3-Clause */
/* soft0's timing model: what it charges, and when. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tap.h"

#include "nprdma/clock.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/mem/model.h"

#include <math.h>
#include <sys/mman.h>

#define KIB        UINT64_C(1024)
#define MIB        (1024 * KIB)

/* So slow that nothing ends while it is looked at */
#define SLOWDOWN   1e6

/* Nanoseconds: of a registration of so many bytes in so many pieces, and of the
 * link */
#define REG(_pieces, _len) (((_pieces) * 16000 + (_len) * 0.06) * SLOWDOWN)
#define LINK(_len)         ((_len) * 0.08 * SLOWDOWN)

static np_model_config_t model_config = {
    .rate     = 12.5e9,
    .latency  = 1e-6,
    .reg      = 16e-6,
    .reg_rate = 1e9 / 0.06,
    .slowdown = SLOWDOWN
};


static ucs_status_t model_start(np_model_order_t order)
{
    model_config.order = order;
    return np_model_start(&model_config);
}

/* Both round */
static int model_is(uint64_t time, double wanted)
{
    return fabs(time - wanted) < 16;
}

static uint64_t model_mmap(uint64_t len, int prot)
{
    return (uintptr_t)mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Later tests may get the same addresses */
static void model_munmap(uint64_t va, uint64_t len)
{
    np_mapper_unmap(va, len);
    munmap((void*)va, len);
}

static void model_test_config(void)
{
    const np_model_config_t config = model_config;

    TAP_CHECK((model_start(NP_MODEL_OFF) == UCS_OK) && !np_model_is_on,
              "off: nothing is modelled");
    model_config.rate = 0;
    TAP_CHECK(model_start(NP_MODEL_OVERLAP) == UCS_ERR_INVALID_PARAM,
              "a link that carries nothing is refused");
    model_config.rate = NAN;
    TAP_CHECK(model_start(NP_MODEL_OVERLAP) == UCS_ERR_INVALID_PARAM,
              "so is one of no rate");
    model_config          = config;
    model_config.slowdown = 0.5;
    TAP_CHECK(model_start(NP_MODEL_OVERLAP) == UCS_ERR_INVALID_PARAM,
              "and a world that is faster");
    model_config     = config;
    model_config.reg = -1;
    TAP_CHECK(model_start(NP_MODEL_CACHED) == UCS_ERR_INVALID_PARAM,
              "and a registration that gives time back");
    model_config = config;
}

/* By arithmetic: the costs of 64 KiB to all of it */
static void model_test_chunk(void)
{
    model_start(NP_MODEL_OVERLAP);
    TAP_CHECK(np_model_chunk(64 * KIB) == 64 * KIB, "64 KiB are one chunk");
    TAP_CHECK(np_model_chunk(1) == NP_PAGE_SIZE, "a byte is a page");
    TAP_CHECK(np_model_chunk(1 * MIB) == 512 * KIB, "1 MiB is best in two");
    TAP_CHECK(np_model_chunk(64 * MIB) == 1 * MIB,
              "64 MiB are best in chunks of 1 MiB");
    model_start(NP_MODEL_SEQUENTIAL);
    TAP_CHECK(np_model_chunk(64 * MIB) == 64 * MIB,
              "the traditional order registers all of it at once");
}

static void model_test_register(void)
{
    uint64_t va = model_mmap(2 * MIB, PROT_READ | PROT_WRITE);
    np_model_times_t first, again, next;
    uint64_t before, after;

    model_start(NP_MODEL_OVERLAP);
    before = np_clock();
    first  = np_model_register(va, 1 * MIB, 1, 0);
    after  = np_clock();
    TAP_CHECK((first.first >= before + REG(1, 512 * KIB) - 16) &&
              (first.first <= after + REG(1, 512 * KIB) + 16),
              "the first chunk is registered after its time");
    TAP_CHECK(model_is(first.last - first.first, REG(1, 512 * KIB)),
              "and the second one after as much");
    TAP_CHECK(np_mapper_is_mapped(va, 1 * MIB, 1), "its entries are mapped");

    again = np_model_register(va, 1 * MIB, 1, 0);
    TAP_CHECK((again.first == first.first) && (again.last == first.last),
              "asked once more, it takes no longer");
    again = np_model_register(va + 512 * KIB, 4 * KIB, 1, 0);
    TAP_CHECK((again.first == first.last) && (again.last == first.last),
              "nor does a part of it");

    next = np_model_register(va + 1 * MIB, 64 * KIB, 1, 0);
    TAP_CHECK(model_is(next.last - first.last, REG(1, 64 * KIB)),
              "other memory is registered after it");
    next = np_model_register(va, 2 * MIB, 1, 0);
    TAP_CHECK((next.first == first.first) &&
              model_is(next.last - first.last,
                       REG(1, 64 * KIB) + REG(2, 2 * 512 * KIB)),
              "what is new of a larger buffer is registered, chunk by chunk");

    model_start(NP_MODEL_OVERLAP);
    first = np_model_register(va, 2 * MIB, 1, 0);
    TAP_CHECK((first.first == 0) && (first.last == 0),
              "memory that is mapped costs nothing");
    np_mapper_unmap(va, 2 * MIB);
    first = np_model_register(va, 2 * MIB, 0, 0);
    TAP_CHECK(first.first > 0, "unmapped, it does");
    model_munmap(va, 2 * MIB);
}

static void model_test_orders(void)
{
    uint64_t va   = model_mmap(2 * MIB, PROT_READ | PROT_WRITE);
    uint64_t none = model_mmap(1 * MIB, PROT_NONE);
    uint64_t later;
    np_model_times_t times;

    model_start(NP_MODEL_SEQUENTIAL);
    later = np_clock() + (uint64_t)SLOWDOWN * 1000;
    times = np_model_register(va, 1 * MIB, 1, later);
    TAP_CHECK((times.first == times.last) &&
              model_is(times.last - later, REG(1, 1 * MIB)),
              "one registration, and not before it is told to");

    model_start(NP_MODEL_CACHED);
    times = np_model_register(va + 1 * MIB, 1 * MIB, 1, later);
    TAP_CHECK((times.first == 0) && (times.last == 0),
              "a cache that always hits costs nothing");
    TAP_CHECK(!np_mapper_is_mapped(va + 1 * MIB, 1, 1),
              "and leaves the memory alone");

    model_start(NP_MODEL_OVERLAP);
    times = np_model_register(none, 1 * MIB, 1, 0);
    TAP_CHECK((times.first == 0) && (times.last == 0),
              "what cannot be registered costs nothing either: its transfer "
              "fails");
    model_munmap(va, 2 * MIB);
    model_munmap(none, 1 * MIB);
}

static void model_test_link(void)
{
    uint64_t ready, first, second, third;

    model_start(NP_MODEL_OVERLAP);
    ready  = np_clock();
    first  = np_model_transfer(ready, 0, 1 * MIB);
    second = np_model_transfer(ready, 0, 1 * MIB);
    third  = np_model_transfer(second + 1000, 0, 1);
    TAP_CHECK(model_is(first - ready, LINK(1 * MIB)),
              "the link takes its time");
    TAP_CHECK(model_is(second - first, LINK(1 * MIB)),
              "one transfer after the other");
    TAP_CHECK(model_is(third - second - 1000, LINK(1)),
              "and waits for what is not ready");
    TAP_CHECK(model_is(np_model_latency(), 1000 * SLOWDOWN),
              "its latency is slower too");
}

void test_model(void)
{
    model_test_config();
    model_test_chunk();
    model_test_register();
    model_test_orders();
    model_test_link();
    model_start(NP_MODEL_OFF);
}
