/* SPDX-License-Identifier: BSD-3-Clause */
/* TAP for the tests of the engine's parts. */

#ifndef NPRDMA_TEST_TAP_H_
#define NPRDMA_TEST_TAP_H_

#include <stdio.h>

/* Of the whole program; only its main thread tests */
extern unsigned tap_count, tap_failures;

#define TAP_CHECK(_condition, ...) \
    do { \
        int _ok = !!(_condition); \
        \
        ++tap_count; \
        tap_failures += !_ok; \
        printf("%sok %u - ", _ok ? "" : "not ", tap_count); \
        printf(__VA_ARGS__); \
        printf("\n"); \
        if (!_ok) { \
            printf("# %s:%d: %s\n", __FILE__, __LINE__, #_condition); \
        } \
    } while (0)

void test_signature(void);
void test_overlap(void);
void test_mem(void);
void test_ring(void);
void test_hostile(void);

#endif
