/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Message buffers: page aligned as in OSU, or new memory each time (--fresh).
 */

#include "osu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Addresses are handed out once in this range before any is used again, so
 * that --fresh meets neither known pages nor known addresses */
#define OSU_FRESH_RANGE (64ul << 30)

static size_t osu_round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

static void osu_buffer_fail(size_t bytes)
{
    fprintf(stderr, "osu: no memory for a buffer of %zu bytes: lower -m, -W "
            "or -M\n", bytes);
    MPI_Abort(MPI_COMM_WORLD, OSU_EXIT_USAGE);
    abort();
}

static char *osu_fresh_map(size_t bytes)
{
    static char *range = NULL;
    static size_t used;
    void *ptr;

    if (range == NULL) {
        ptr = mmap(NULL, OSU_FRESH_RANGE, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (ptr == MAP_FAILED) {
            osu_buffer_fail(OSU_FRESH_RANGE);
        }
        range = ptr;
    }

    if (bytes > (OSU_FRESH_RANGE / 4)) {
        osu_buffer_fail(bytes);
    }

    if (used + bytes > OSU_FRESH_RANGE) {
        used = 0;
    }

    ptr = mmap(range + used, bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (ptr == MAP_FAILED) {
        osu_buffer_fail(bytes);
    }

    used += bytes;
    return ptr;
}

void osu_buffer_alloc(osu_buffer_t *buf, size_t size, int slots, int multiple,
                      int fresh)
{
    size_t page = sysconf(_SC_PAGESIZE);
    size_t one  = osu_round_up(size, page);
    void *ptr;

    buf->stride = multiple ? one : 0;
    buf->bytes  = multiple ? one * slots : one;
    buf->fresh  = fresh;

    if (fresh) {
        buf->base = osu_fresh_map(buf->bytes);
        return;
    }

    if (posix_memalign(&ptr, page, buf->bytes) != 0) {
        osu_buffer_fail(buf->bytes);
    }

    buf->base = ptr;
    memset(buf->base, 'a', buf->bytes);
}

void osu_buffer_free(osu_buffer_t *buf)
{
    if (buf->base == NULL) {
        return;
    }

    if (!buf->fresh) {
        free(buf->base);
    } else if (mmap(buf->base, buf->bytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                    -1, 0) == MAP_FAILED) {
        osu_buffer_fail(buf->bytes);
    }

    buf->base = NULL;
}

char *osu_buffer_slot(const osu_buffer_t *buf, int slot)
{
    return buf->base + buf->stride * slot;
}
