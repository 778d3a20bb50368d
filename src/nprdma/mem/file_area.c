/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The addresses at which files are mapped for peers.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "file_area.h"

#include "arena.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* With less no area is made */
#define NP_FILE_AREA_LEAST  NP_ARENA_SIZE

/* Of addresses that are limited ('ulimit -v') so many parts are left to the
 * program for each that is taken */
#define NP_FILE_AREA_SHARE  8

np_file_area_t np_file_area;
pthread_rwlock_t np_file_lock =
        PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

/* First address that was never taken */
static uint64_t np_file_area_next;

/* Places by address; those that were removed are NULL */
static np_file_place_t **np_file_places;
static size_t np_file_count, np_file_room, np_file_gone;


static void *np_file_area_map(void *address, uint64_t len, int flags)
{
    void *ptr = mmap(address, len, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1,
                     0);

    if (ptr != MAP_FAILED) {
        (void)madvise(ptr, len, MADV_DONTFORK);
    }
    return ptr;
}

int np_file_area_unmap(const np_file_place_t *place)
{
    return (np_file_area_map((void*)place->va, place->len, MAP_FIXED) ==
            MAP_FAILED) ? -1 : 0;
}

/* A power of two */
static uint64_t np_file_area_wanted(void)
{
    uint64_t size = NP_FILE_AREA_SIZE;
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) == 0) {
        while ((size > NP_FILE_AREA_LEAST) &&
               (size > (limit.rlim_cur / NP_FILE_AREA_SHARE))) {
            size /= 2;
        }
    }
    return size;
}

/* Once. Where there are fewer addresses than are wanted less is taken, and most
 * of them are left. */
static int np_file_area_reserve(void)
{
    uint64_t size = np_file_area_wanted();
    void *area;

    if (np_file_area.size != 0) {
        return 0;
    }

    /* whole arenas: nothing else is in them */
    while ((area = np_file_area_map(NULL, size + NP_ARENA_SIZE, 0)) ==
           MAP_FAILED) {
        size /= NP_FILE_AREA_SHARE;
        if (size < NP_FILE_AREA_LEAST) {
            np_error("no addresses for files: %lu bytes cannot be reserved: "
                     "%m. Check 'ulimit -v'", NP_FILE_AREA_LEAST);
            return -ENOMEM;
        }
    }

    np_file_area.first = ucs_align_up_pow2((uintptr_t)area, NP_ARENA_SIZE);
    np_file_area_next  = np_file_area.first;
    atomic_store_explicit(&np_file_area.size, size, memory_order_release);
    return 0;
}

/* Leave out those that were removed */
static void np_file_area_compact(void)
{
    size_t i, count = 0;

    for (i = 0; i < np_file_count; ++i) {
        if (np_file_places[i] != NULL) {
            np_file_places[count++] = np_file_places[i];
        }
    }
    np_file_count = count;
    np_file_gone  = 0;
}

static int np_file_area_grow(void)
{
    const size_t room = ucs_max((size_t)16, 2 * np_file_room);
    np_file_place_t **places;

    if (np_file_count < np_file_room) {
        return 0;
    }

    places = realloc(np_file_places, room * sizeof(*places));
    if (places == NULL) {
        return -ENOMEM;
    }
    np_file_places = places;
    np_file_room   = room;
    return 0;
}

int np_file_area_add(np_file_place_t *place)
{
    uint64_t align = NP_FILE_ALIGN, end;
    np_arenas_t arenas;
    int ret;

    ret = np_file_area_reserve();
    if (ret == 0) {
        ret = np_file_area_grow();
    }
    if (ret != 0) {
        return ret;
    }

    /* as aligned as it is long, up to an arena's size: it touches no more
     * arenas than it must */
    while ((align < place->len) && (align < NP_ARENA_SIZE)) {
        align *= 2;
    }

    end       = np_file_area.first + np_file_area.size;
    place->va = ucs_align_up_pow2(np_file_area_next, align);
    if ((place->va > end) || (place->len > (end - place->va))) {
        return -ENOSPC;
    }

    if ((np_arenas_of(place->va, place->len, &arenas) != UCS_OK) ||
        (np_arenas_set_files(arenas) != UCS_OK)) {
        return -ENOMEM;
    }

    np_file_area_next               = place->va + place->len;
    np_file_places[np_file_count++] = place; /* addresses grow */
    return 0;
}

/* The number of the place that has this address; or how many there are */
static size_t np_file_area_search(uint64_t va)
{
    size_t first = 0, end = np_file_count, at, look;
    const np_file_place_t *place;

    while (first < end) {
        at = first + ((end - first) / 2);
        /* one that was removed has no address: the next one tells */
        for (look = at; (look < end) && (np_file_places[look] == NULL);
             ++look) {
        }

        place = (look < end) ? np_file_places[look] : NULL;
        if ((place == NULL) || (va < place->va)) {
            end = at;
        } else if ((va - place->va) < place->len) {
            return look;
        } else {
            first = look + 1;
        }
    }
    return np_file_count;
}

void np_file_area_undo(const np_file_place_t *place)
{
    np_file_area_remove(place);
    (void)np_file_area_unmap(place);
    np_file_area_next = place->va; /* no peer knows it */
}

void np_file_area_remove(const np_file_place_t *place)
{
    const size_t at = np_file_area_search(place->va);

    if ((at < np_file_count) && (np_file_places[at] == place)) {
        np_file_places[at] = NULL;
        if (++np_file_gone > (np_file_count / 2)) {
            np_file_area_compact();
        }
    }
}

np_file_place_t *np_file_area_find(uint64_t va)
{
    const size_t at = np_file_area_search(va);

    return (at < np_file_count) ? np_file_places[at] : NULL;
}

void np_file_area_forget(void (*forget)(np_file_place_t *place))
{
    np_arenas_t arenas;
    size_t i;

    for (i = 0; i < np_file_count; ++i) {
        if (np_file_places[i] != NULL) {
            forget(np_file_places[i]);
        }
    }
    np_file_count = 0;
    np_file_gone  = 0;
    if ((np_file_area.size != 0) &&
        (np_arenas_of(np_file_area.first,
                      np_file_area_next - np_file_area.first, &arenas) ==
         UCS_OK)) {
        np_arenas_unset_files(arenas);
    }
    atomic_store_explicit(&np_file_area.size, 0, memory_order_release);
}
