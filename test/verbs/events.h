/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens to memory while others use it. */
#ifndef EVENTS_H_
#define EVENTS_H_

#include <stddef.h>
#include <stdint.h>

typedef enum event {
    NOTHING,
    SWAP,       /* pages go to swap */
    DROP,       /* they are given up: zeroes */
    FORK,       /* a child shares them, then they are written */
    MOVE,       /* to another address and back */
    REPLACE,    /* other memory comes to the same place: zeroes */
    MIGRATE,    /* to the other NUMA node, or the same */
    PROTECT,    /* read-only, then writable again */
    HUGE,       /* they may become one */
    EVENTS
} event_t;

extern const char *const event_names[EVENTS];

/* To whole pages */
void happen(event_t event, uint8_t *at, size_t len);

/* From now on what loses no data, in a thread, again and again; 0: no thread */
int storm_begin(void *area, size_t len);
void storm_end(void);

#endif
