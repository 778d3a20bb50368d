/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A page that is not there, and what it adds to a transfer: what figures of
 * nprdma and of a device's own on-demand paging have in common.
 */

#ifndef ABSENCE_H_
#define ABSENCE_H_

#include <stddef.h>
#include <stdint.h>

#define PAGE        4096ul
#define MAX_ROUNDS  2000

/* What becomes of the target's page */
typedef enum absence {
    UNMAPPED,   /* it is there, and the device does not reach it */
    MINOR,      /* given up; the next touch gets a new one */
    SWAPPED,    /* on swap */
    ABSENCES
} absence_t;

/* Seconds of each round: of a transfer with a page that is there, of one with a
 * page that is not, of a touch of such a page by the processor, of a message
 * after the same events as these, and of one right after others */
typedef struct rounds {
    double   there[MAX_ROUNDS], absent[MAX_ROUNDS], touch[MAX_ROUNDS];
    double   message[MAX_ROUNDS], again[MAX_ROUNDS];
    unsigned count;
    unsigned major;      /* touches that were major faults */
} rounds_t;

/* Seconds of transfers with a page that is there: alone, right behind another
 * such one, and right behind one whose page is not there; over the same queue
 * pair or link, or another one */
typedef struct behind {
    double   alone[MAX_ROUNDS], there[MAX_ROUNDS];
    double   absent[MAX_ROUNDS], other[MAX_ROUNDS];
    unsigned count;
    int      has_other;
} behind_t;

/* A new page of zeroes, or what @a seed says on swap; 0: it does not go
 * there */
int take_page(void *page, absence_t absence, uint64_t seed);

/* One byte by this processor: seconds. *major: grows by 1 if it was a major
 * fault */
double touch_page(void *page, int is_write, unsigned *major);

/* Does a page still hold what it did before take_page? Otherwise it is new */
int is_kept(absence_t absence);

/* The median of some, right after each other */
double repeat(double (*seconds)(void));

void print_rounds_title(unsigned count);
void print_rounds(const char *name, size_t len, absence_t absence,
                  rounds_t *rounds, const char *remark);

void print_behind_title(unsigned count);
void print_behind(const char *name, size_t len, absence_t absence,
                  behind_t *behind);

#endif
