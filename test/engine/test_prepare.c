/* SPDX-License-Identifier: BSD-3-Clause */
/* Preparing announced buffers where no peer uses soft0: their pages come in,
 * once, and nothing is kept of them. Before anything else makes a directory. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tap.h"

#include "nprdma/clock.h"
#include "nprdma/mem/prepare.h"
#include "nprdma/mem/table.h"

#include <sys/mman.h>

#define PREPARE_PAGES 40

/* An operation that is over if its request says so */
static int prepare_is_over(void *request)
{
    return *(const int*)request;
}

static int prepare_goes_on;

/* Announces memory of an operation that goes on */
static void prepare_add(char *mem, size_t len, np_prepare_use_t use)
{
    const np_prepare_op_t op = {
        .request    = &prepare_goes_on,
        .is_over    = prepare_is_over,
        .given_back = np_prepare_begin()
    };

    np_prepare((uintptr_t)mem, len, use, &op);
    np_prepare_end();
}

static unsigned prepare_resident(void *mem)
{
    unsigned char vec[PREPARE_PAGES];
    unsigned count = 0, i;

    if (mincore(mem, PREPARE_PAGES * NP_PAGE_SIZE, vec) == 0) {
        for (i = 0; i < PREPARE_PAGES; ++i) {
            count += vec[i] & 1;
        }
    }
    return count;
}

/* Announces all but the edges of the first and last page; returns progress
 * calls */
static unsigned prepare_all(char *mem, np_stats_t *stats)
{
    unsigned calls = 0;

    prepare_add(mem + 100, PREPARE_PAGES * NP_PAGE_SIZE - 200, NP_PREPARE_RECV);
    while (np_prepare_has_work()) {
        np_prepare_progress(stats);
        ++calls;
    }
    return calls;
}

/* A window of small buffers that follow each other is brought in as one */
static void test_prepare_window(void)
{
    const size_t len = PREPARE_PAGES / 8 * NP_PAGE_SIZE;
    np_stats_t stats = {};
    unsigned calls   = 0, i;
    char *mem        = mmap(NULL, PREPARE_PAGES * NP_PAGE_SIZE,
                            PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    for (i = 0; i < 8; ++i) {
        prepare_add(mem + i * len, len, NP_PREPARE_RECV);
    }
    TAP_CHECK(!np_prepare_now(&stats, (uintptr_t)mem + len) &&
              np_prepare_now(&stats, (uintptr_t)mem),
              "the next can be brought in at once, and no other");
    while (np_prepare_has_work()) {
        np_prepare_progress(&stats);
        ++calls;
    }
    TAP_CHECK((prepare_resident(mem) == PREPARE_PAGES) && (calls > 0) &&
              (calls < 7), "and the rest by quanta, as if they were one: %u",
              calls);

    prepare_add(mem, len, NP_PREPARE_SEND);
    prepare_add(mem + len, 2 * len, NP_PREPARE_RECV);
    TAP_CHECK((np_prepare_waiting == 2) &&
              !np_prepare_now(&stats, (uintptr_t)mem),
              "what is read and what is written are two ranges");
    while (np_prepare_has_work()) {
        np_prepare_progress(&stats);
    }
    munmap(mem, PREPARE_PAGES * NP_PAGE_SIZE);
}

/* Progress until nothing waits; how many of the pages are there */
static unsigned prepare_rest(char *mem)
{
    np_stats_t stats = {};

    while (np_prepare_has_work()) {
        np_prepare_progress(&stats);
    }
    return prepare_resident(mem);
}

/* An announcement ends with its operation */
static void test_prepare_ends(void)
{
    const size_t len   = PREPARE_PAGES * NP_PAGE_SIZE;
    np_prepare_op_t op = {
        .request = &prepare_goes_on,
        .is_over = prepare_is_over
    };
    np_stats_t stats   = {};
    char *mem          = mmap(NULL, len, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t begin;
    unsigned some;

    prepare_add(mem, len, NP_PREPARE_RECV);
    np_prepare_progress(&stats);
    some = prepare_resident(mem);
    prepare_goes_on = 1; /* over */
    TAP_CHECK((some > 0) && (some < PREPARE_PAGES) &&
              (prepare_rest(mem) == some), "of an operation that is over the "
              "rest is left alone");
    TAP_CHECK(np_prepare_watched == 0, "and nobody needs to tell of requests");

    prepare_goes_on = 0;
    madvise(mem, len, MADV_DONTNEED);
    prepare_add(mem, len - NP_PAGE_SIZE, NP_PREPARE_RECV);
    TAP_CHECK(np_prepare_watched == 1, "while it waits somebody does");
    np_prepare_forget(&stats);
    np_prepare_progress(&stats);
    some = prepare_resident(mem);
    np_prepare_forget(&prepare_goes_on);
    TAP_CHECK((some > 0) && (prepare_rest(mem) == some), "nor is it asked about "
              "when its request is given back");

    /* given back before it is announced: it may be another's by now */
    madvise(mem, len, MADV_DONTNEED);
    op.given_back = np_prepare_begin();
    np_prepare_forget(&stats);
    np_prepare((uintptr_t)mem, len - 2 * NP_PAGE_SIZE, NP_PREPARE_RECV, &op);
    np_prepare_end();
    begin = np_clock();
    while (np_clock() < (begin + NP_PREPARE_LIFE_NSEC)) {
        /* only this end is certain: it may be earlier by what comes before */
    }
    TAP_CHECK(prepare_rest(mem) == 0, "an operation that nobody knows ends after "
              "a millisecond");

    np_prepare((uintptr_t)mem, len - 3 * NP_PAGE_SIZE, NP_PREPARE_RECV, NULL);
    prepare_add(mem, len - 4 * NP_PAGE_SIZE, NP_PREPARE_RECV);
    np_prepare_forget(NULL);
    prepare_rest(mem);
    TAP_CHECK(!np_prepare_has_work() && (np_prepare_watched == 0),
              "all can be ended");
    munmap(mem, len);
}

void test_prepare(void)
{
    np_stats_t stats = {};
    char *mem        = mmap(NULL, PREPARE_PAGES * NP_PAGE_SIZE,
                            PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    np_prepare_enable();
    TAP_CHECK((prepare_all(mem, &stats) > 1) &&
              (prepare_resident(mem) == PREPARE_PAGES),
              "an announced buffer is brought in, by quanta");
    TAP_CHECK(prepare_all(mem, &stats) == 0, "and not again");
    TAP_CHECK(np_directory_own() == NULL, "without peers on soft0 it has no "
              "table");

    /* gone with half of its memory: an error that nobody hears of */
    munmap(mem + PREPARE_PAGES / 2 * NP_PAGE_SIZE,
           PREPARE_PAGES / 2 * NP_PAGE_SIZE);
    prepare_add(mem, PREPARE_PAGES * NP_PAGE_SIZE, NP_PREPARE_RECV);
    while (np_prepare_has_work()) {
        np_prepare_progress(&stats);
    }
    TAP_CHECK(np_directory_own() == NULL, "nor has one that is gone");
    munmap(mem, PREPARE_PAGES / 2 * NP_PAGE_SIZE);
    test_prepare_window();
    test_prepare_ends();
}
