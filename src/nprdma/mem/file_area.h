/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The addresses at which files are mapped for peers (file.h): one area of the
 * process, reserved when the first file needs it. Places in it are taken in
 * order, and never twice: an address that a peer knows stands for its file, or
 * for nothing.
 */

#ifndef NP_FILE_AREA_H_
#define NP_FILE_AREA_H_

#include "file.h"

#include <pthread.h>

/** Bytes of the area, if there are so many; and half of it, the most that a
 *  place has */
#define NP_FILE_AREA_SIZE  (UINT64_C(1) << 44)
#define NP_FILE_PLACE_MAX  (NP_FILE_AREA_SIZE / 2)

/** Places begin at multiples of it, and are multiples of it: the largest page
 *  of a kernel */
#define NP_FILE_ALIGN      (64 * UCS_KBYTE)

/** Of one key. Owner: the key. */
typedef struct np_file_place {
    uint64_t va;
    uint64_t len;
} np_file_place_t;

/** Guards all places, and what keys and files say is guarded by it. Held for no
 *  longer than a look at a file's size takes; the lock of the regions is taken
 *  under it. */
extern pthread_rwlock_t np_file_lock;


/**
 * Take a place of @a place->len bytes. With the lock, to write.
 *
 * @return 0, and va is set; -ENOMEM: no area (logged), or no memory; -ENOSPC:
 *         it is used up.
 */
int np_file_area_add(np_file_place_t *place);

/** The place that was taken last, under this same lock, is not needed: it can
 *  be taken again */
void np_file_area_undo(const np_file_place_t *place);

/** Nothing is found there any more. With the lock, to write. */
void np_file_area_remove(const np_file_place_t *place);

/** The place that has this address, or NULL. With the lock. */
np_file_place_t *np_file_area_find(uint64_t va);

/** A forked child has no places: @a forget is told of each that its parent
 *  had */
void np_file_area_forget(void (*forget)(np_file_place_t *place));

/** Map nothing at a place, which stays taken. Returns 0, or -1 with errno. */
int np_file_area_unmap(const np_file_place_t *place);

#endif
