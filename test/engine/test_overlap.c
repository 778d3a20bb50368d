/* SPDX-License-Identifier: BSD-3-Clause */
/* Overlaps of transfers in flight, against a model that looks at all of
 * them. */

#include "tap.h"

#include "nprdma/mem/overlap.h"

#include <stdlib.h>

#define STEPS     200000
#define MODEL_MAX 24

/* Some addresses around which all ranges lie, 16 MiB and more apart */
#define PLACES    5

/* In flight at a time, and how many of them one search may look at: a few times
 * the logarithm */
#define MANY       1000000
#define MANY_STEPS 100

typedef struct overlap_model {
    np_interval_t interval;
    int           is_used;
    uint64_t      va;
    uint64_t      len;
    int           is_write;
} overlap_model_t;

static overlap_model_t overlap_models[MODEL_MAX];


static uint64_t overlap_random_va(void)
{
    return ((uint64_t)(random() % PLACES) * 4111 << 20) + 0x7f0000000000 +
           (random() % 5000) * 61;
}

static uint64_t overlap_random_len(void)
{
    switch (random() % 4) {
    case 0:
        return 1 + (random() % 8);
    case 1:
        return 1 + (random() % 4096);
    case 2:
        return 1 + (random() % (UINT64_C(1) << 18));
    default:
        return ((random() % 50) == 0) ? (UINT64_C(1) << 33) :
               (1 + (random() % (UINT64_C(1) << 23)));
    }
}

static int overlap_model_check(uint64_t va, uint64_t len, int is_write)
{
    const overlap_model_t *model;

    for (model = overlap_models; model < overlap_models + MODEL_MAX; ++model) {
        if (model->is_used && (va < (model->va + model->len)) &&
            (model->va < (va + len)) && (is_write || model->is_write)) {
            return 1;
        }
    }

    return 0;
}

static void overlap_model_clear(np_overlap_t *overlap)
{
    overlap_model_t *model;

    for (model = overlap_models; model < overlap_models + MODEL_MAX; ++model) {
        if (model->is_used) {
            np_overlap_remove(overlap, &model->interval);
            model->is_used = 0;
        }
    }
}

static void test_overlap_model(void)
{
    unsigned failures = 0, hits = 0, empty = 0, both = 0, checks = 0, i;
    overlap_model_t *model;
    np_overlap_t overlap;
    uint64_t va, len;
    int is_write, expected;

    srandom(4);
    np_overlap_init(&overlap);
    for (i = 0; i < STEPS; ++i) {
        /* now nearly empty, now nearly full */
        model = &overlap_models[random() % (((i / 5000) % 2) ? 3 : MODEL_MAX)];
        if (model->is_used) {
            np_overlap_remove(&overlap, &model->interval);
            model->is_used = 0;
        } else {
            model->va       = overlap_random_va();
            model->len      = overlap_random_len();
            model->is_write = random() % 2;
            model->is_used  = 1;
            np_overlap_add(&overlap, &model->interval, model->va, model->len,
                           model->is_write);
        }

        if ((i % 1000) == 999) {
            overlap_model_clear(&overlap);
        }

        empty += (overlap.root == NULL) && (overlap.recent == NULL);
        both  += (overlap.root != NULL) && (overlap.recent != NULL);
        if (((i / 2500) % 2) && ((random() % 16) != 0)) {
            continue; /* searches are rare: many are added and removed first */
        }

        va        = overlap_random_va();
        len       = overlap_random_len();
        is_write  = random() % 2;
        expected  = overlap_model_check(va, len, is_write);
        failures += np_overlap_check(&overlap, va, len, is_write) != expected;
        hits     += expected;
        checks   += 1;
    }

    TAP_CHECK(failures == 0, "as the model says: %u of %u times not", failures,
              checks);
    TAP_CHECK((hits > (checks / 20)) && (hits < (checks - checks / 20)),
              "both answers were met: %u times an overlap", hits);
    TAP_CHECK((empty > 0) && (both > (STEPS / 20)),
              "nothing in flight: %u times; some in the tree and some not: %u",
              empty, both);

    overlap_model_clear(&overlap);
    TAP_CHECK((overlap.root == NULL) && (overlap.recent == NULL),
              "nothing in flight, nothing in the table");
}

static void test_overlap_borders(void)
{
    np_interval_t write, read;
    np_overlap_t overlap;

    np_overlap_init(&overlap);
    TAP_CHECK(!np_overlap_check(&overlap, 0, UINT64_MAX, 1), "nothing");

    np_overlap_add(&overlap, &write, 4096, 100, 1);
    np_overlap_add(&overlap, &read, 8192, 100, 0);
    TAP_CHECK(!np_overlap_check(&overlap, 4095, 1, 1), "one byte before");
    TAP_CHECK(np_overlap_check(&overlap, 4095, 2, 0), "the first byte");
    TAP_CHECK(np_overlap_check(&overlap, 4195, 1, 0), "the last byte");
    TAP_CHECK(!np_overlap_check(&overlap, 4196, 1, 1), "one byte behind");
    TAP_CHECK(!np_overlap_check(&overlap, 8192, 100, 0),
              "two that read may overlap");
    TAP_CHECK(np_overlap_check(&overlap, 8192, 100, 1),
              "a write waits for a read");
    np_overlap_remove(&overlap, &write);
    TAP_CHECK(!np_overlap_check(&overlap, 4096, 100, 1), "removed");
    np_overlap_remove(&overlap, &read);
}

/* Ranges at the lowest addresses: none of a kind is no range that ends there */
static void test_overlap_zero(void)
{
    np_interval_t intervals[3];
    np_overlap_t overlap;

    np_overlap_init(&overlap);
    np_overlap_add(&overlap, &intervals[0], 0, 1, 0);
    np_overlap_add(&overlap, &intervals[1], 0, 2, 0);
    TAP_CHECK(!np_overlap_check(&overlap, 0, 1, 0), "none of them writes");
    np_overlap_add(&overlap, &intervals[2], 0, 3, 1);
    TAP_CHECK(np_overlap_check(&overlap, 0, 1, 0), "one of them writes");
    np_overlap_remove(&overlap, &intervals[2]);
    TAP_CHECK(!np_overlap_check(&overlap, 0, 1, 0), "none does any more");
    np_overlap_remove(&overlap, &intervals[0]);
    np_overlap_remove(&overlap, &intervals[1]);
    TAP_CHECK(!np_overlap_check(&overlap, 0, 1, 1), "nothing is left");
}

/* What nothing comes near is put into no tree; what was in the list before does
 * not count when the list was empty since */
static void test_overlap_recent(void)
{
    np_interval_t intervals[4];
    np_overlap_t overlap;
    unsigned i;

    np_overlap_init(&overlap);
    for (i = 0; i < 4; ++i) {
        np_overlap_add(&overlap, &intervals[i], 4096 * (i + 1), 64, i > 1);
    }
    TAP_CHECK(!np_overlap_check(&overlap, 0, 4096, 1) &&
              !np_overlap_check(&overlap, 4096 * 5, 4096, 1) &&
              !np_overlap_check(&overlap, 4096, 4096 * 2, 0) &&
              (overlap.root == NULL), "searches beside them need no tree");

    np_overlap_remove(&overlap, &intervals[1]);
    np_overlap_remove(&overlap, &intervals[3]);
    TAP_CHECK(np_overlap_check(&overlap, 4096 * 3, 1, 0) &&
              np_overlap_check(&overlap, 4096, 1, 1) &&
              !np_overlap_check(&overlap, 4096 * 2, 64, 1) &&
              !np_overlap_check(&overlap, 4096 * 4, 64, 1) &&
              (overlap.recent == NULL), "in the middle and at the end removed");

    np_overlap_remove(&overlap, &intervals[0]);
    np_overlap_remove(&overlap, &intervals[2]);
    np_overlap_add(&overlap, &intervals[0], 4096 * 8, 64, 1);
    TAP_CHECK(!np_overlap_check(&overlap, 4096, 4096 * 4, 1) &&
              (overlap.root == NULL), "what has ended is near nothing");
    TAP_CHECK(np_overlap_check(&overlap, (4096 * 8) + 63, 1, 0),
              "the last byte is near");
    np_overlap_remove(&overlap, &intervals[0]);
    np_overlap_add(&overlap, &intervals[0], 4096, 64, 0);
    TAP_CHECK(np_overlap_check(&overlap, 4095, 2, 1), "the first byte is near");
    np_overlap_remove(&overlap, &intervals[0]);
}

static unsigned overlap_height(const np_interval_t *tree)
{
    return (tree == NULL) ? 0 :
           (1 + ucs_max(overlap_height(tree->left),
                        overlap_height(tree->right)));
}

static uint64_t overlap_many_va(unsigned i, int is_spread)
{
    return is_spread ? (0x100000 + ((uint64_t)i * 8)) : 0x100000;
}

/* A million in flight: side by side, as the elements of a vector are, and all
 * of the same memory. Nothing is looked at but one way down. */
static void test_overlap_many(int is_spread)
{
    np_interval_t *intervals = calloc(MANY, sizeof(*intervals));
    unsigned max = 0, wrong = 0, steps, height, i;
    np_overlap_t overlap;

    TAP_CHECK(intervals != NULL, "memory for %u intervals", MANY);
    if (intervals == NULL) {
        return;
    }

    np_overlap_init(&overlap);
    for (i = 0; i < MANY; ++i) {
        np_overlap_add(&overlap, &intervals[i], overlap_many_va(i, is_spread),
                       4, 0);
    }

    for (i = 0; i < MANY; i += 97) {
        wrong += np_overlap_check_steps(&overlap, overlap_many_va(i, is_spread),
                                        4, 0, &steps); /* reads may overlap */
        max    = ucs_max(max, steps);
        wrong += !np_overlap_check_steps(&overlap,
                                         overlap_many_va(i, is_spread), 4, 1,
                                         &steps);
        max    = ucs_max(max, steps);
        wrong += np_overlap_check_steps(&overlap,
                                        overlap_many_va(i, is_spread) + 4, 4, 1,
                                        &steps);
        max    = ucs_max(max, steps);
    }
    height = overlap_height(overlap.root);
    TAP_CHECK((wrong == 0) && (max <= MANY_STEPS),
              "%u ranges %s: at most %u steps, %u wrong", MANY,
              is_spread ? "side by side" : "of the same memory", max, wrong);
    TAP_CHECK(height <= MANY_STEPS, "the tree is flat: %u levels", height);

    for (i = 0; i < MANY; ++i) { /* the oldest first, as they complete */
        np_overlap_remove(&overlap, &intervals[i]);
    }
    TAP_CHECK(overlap.root == NULL, "all are removed");
    free(intervals);
}

void test_overlap(void)
{
    test_overlap_model();
    test_overlap_borders();
    test_overlap_zero();
    test_overlap_recent();
    test_overlap_many(1);
    test_overlap_many(0);
}
