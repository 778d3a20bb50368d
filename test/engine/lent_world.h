/* SPDX-License-Identifier: BSD-3-Clause */
/* A pair of ports, and memory that the target has lent. */

#ifndef NPRDMA_TEST_LENT_WORLD_H_
#define NPRDMA_TEST_LENT_WORLD_H_

#include "pair.h"

#include "nprdma/mem/key.h"

#define LENT_PAGE   4096ul
#define LENT_SIZE   (64 * UCS_KBYTE)
#define LENT_COPIES 4

/* A pair, and memory of the target's that looks like another process's */
typedef struct lent_world {
    pair_t       pair;
    np_key_t     *key;
    uint8_t      *theirs;
    uint8_t      *ours;
    unsigned     id;
    ucs_status_t done[LENT_COPIES];
} lent_world_t;

uint8_t *lent_map(size_t len);

void lent_fill(uint8_t *bytes, uint8_t seed);

/* In a child; returns whether it went well */
int lent_open(lent_world_t *world, int is_lent);
int lent_open_of_slots(lent_world_t *world, int is_lent, unsigned slots);

void lent_close(lent_world_t *world);

/* The copy-th get, or put, of all of it */
ucs_status_t lent_get(lent_world_t *world, unsigned copy);
ucs_status_t lent_put(lent_world_t *world, unsigned copy);

int lent_is_right(const lent_world_t *world, unsigned copy);

/* Progress, the target's too if it is @a attended, until it is done */
int lent_wait(lent_world_t *world, unsigned copy, int attended);

/* The same until nothing is outstanding */
int lent_wait_all(lent_world_t *world, int attended);

/* Have so many come or gone through the rings, and been left? */
int lent_count(const lent_world_t *world, unsigned came, unsigned left);

#endif
