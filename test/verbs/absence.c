/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A page that is not there, and what it adds to a transfer.
 */

#define _GNU_SOURCE
#include "absence.h"

#include "sides.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define REPEATS  5

static const char *const names[ABSENCES] = {
    "there, not mapped", "MADV_DONTNEED", "on zram"
};


int is_kept(absence_t absence)
{
    return absence == SWAPPED;
}

int take_page(void *page, absence_t absence, uint64_t seed)
{
    if (is_kept(absence)) {
        fill(page, seed, PAGE); /* there may be none */
        return page_out(page, PAGE);
    }

    madvise(page, PAGE, MADV_DONTNEED);
    if (absence == UNMAPPED) {
        memset(page, 0, PAGE);
    }
    return 1;
}

double touch_page(void *page, int is_write, unsigned *major)
{
    volatile uint8_t *byte = page;
    struct rusage before, after;
    double start, seconds;

    getrusage(RUSAGE_SELF, &before);
    start = now();
    if (is_write) {
        *byte = 1;
    } else {
        (void)*byte;
    }
    seconds = now() - start;
    getrusage(RUSAGE_SELF, &after);
    *major += after.ru_majflt - before.ru_majflt;
    return seconds;
}

/* Microseconds; sorts them */
static double median(double *seconds, unsigned count)
{
    unsigned i, j;
    double time;

    for (i = 1; i < count; ++i) {
        time = seconds[i];
        for (j = i; (j > 0) && (seconds[j - 1] > time); --j) {
            seconds[j] = seconds[j - 1];
        }
        seconds[j] = time;
    }
    return seconds[count / 2] * 1e6;
}

double repeat(double (*seconds)(void))
{
    double times[REPEATS];
    unsigned i;

    for (i = 0; i < REPEATS; ++i) {
        times[i] = seconds();
    }
    return median(times, REPEATS) * 1e-6;
}

void print_rounds_title(unsigned count)
{
    printf("%u rounds of each in turn, medians in us; added, without the "
           "system's, in messages of either kind\n", count);
    printf("                                 there    absent    system   "
           "message  added     again  added\n");
}

void print_rounds(const char *name, size_t len, absence_t absence,
                  rounds_t *rounds, const char *remark)
{
    double there   = median(rounds->there, rounds->count);
    double absent  = median(rounds->absent, rounds->count);
    double touch   = median(rounds->touch, rounds->count);
    double message = median(rounds->message, rounds->count);
    double again   = median(rounds->again, rounds->count), added;

    /* A page that the processor has costs it nothing */
    touch = (absence == UNMAPPED) ? 0 : touch;
    added = absent - there - touch;
    printf("%-4s%5zu B  %-18s %9.1f %9.1f %9.1f %9.1f %6.1f %9.1f %6.1f%s%s\n",
           name, len, names[absence], there, absent, touch, message,
           added / message, again, added / again,
           (rounds->major > (rounds->count / 2)) ? "  major faults" : "",
           remark);
}

void print_behind_title(unsigned count)
{
    printf("a transfer whose page is there, %u rounds of each, medians in us: "
           "alone, and behind another\n", count);
    printf("         first page's            alone     there    absent    "
           "other queue pair, absent\n");
}

void print_behind(const char *name, size_t len, absence_t absence,
                  behind_t *behind)
{
    printf("%-4s%5zu B  %-18s %9.1f %9.1f %9.1f", name, len, names[absence],
           median(behind->alone, behind->count),
           median(behind->there, behind->count),
           median(behind->absent, behind->count));
    if (behind->has_other) {
        printf(" %9.1f", median(behind->other, behind->count));
    }
    printf("\n");
}
