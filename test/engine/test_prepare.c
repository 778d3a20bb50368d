/* SPDX-License-Identifier: BSD-3-Clause */
/* Preparing announced buffers where no peer uses soft0: their pages come in, once,
 * and nothing is kept of them. Before anything else makes a directory. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tap.h"

#include "nprdma/mem/prepare.h"
#include "nprdma/mem/table.h"

#include <sys/mman.h>

#define PREPARE_PAGES 40

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

/* Announces all but the edges of the first and last page; returns progress calls */
static unsigned prepare_all(char *mem, np_stats_t *stats)
{
    unsigned calls = 0;

    np_prepare((uintptr_t)mem + 100, PREPARE_PAGES * NP_PAGE_SIZE - 200,
               NP_PREPARE_RECV);
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
        np_prepare((uintptr_t)mem + i * len, len, NP_PREPARE_RECV);
    }
    TAP_CHECK(np_prepare_waiting == 1, "buffers that follow each other are one "
              "range");
    TAP_CHECK(!np_prepare_now(&stats, (uintptr_t)mem + len) &&
              np_prepare_now(&stats, (uintptr_t)mem),
              "the next can be brought in at once, and no other");
    while (np_prepare_has_work()) {
        np_prepare_progress(&stats);
        ++calls;
    }
    TAP_CHECK((prepare_resident(mem) == PREPARE_PAGES) && (calls > 0),
              "and the rest by quanta");

    np_prepare((uintptr_t)mem, len, NP_PREPARE_SEND);
    np_prepare((uintptr_t)mem + len, 2 * len, NP_PREPARE_RECV);
    TAP_CHECK((np_prepare_waiting == 2) &&
              !np_prepare_now(&stats, (uintptr_t)mem),
              "what is read and what is written are two ranges");
    while (np_prepare_has_work()) {
        np_prepare_progress(&stats);
    }
    munmap(mem, PREPARE_PAGES * NP_PAGE_SIZE);
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
    np_prepare((uintptr_t)mem, PREPARE_PAGES * NP_PAGE_SIZE, NP_PREPARE_RECV);
    while (np_prepare_has_work()) {
        np_prepare_progress(&stats);
    }
    TAP_CHECK(np_directory_own() == NULL, "nor has one that is gone");
    munmap(mem, PREPARE_PAGES / 2 * NP_PAGE_SIZE);
    test_prepare_window();
}
