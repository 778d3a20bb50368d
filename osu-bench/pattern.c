/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The data of -c. Every factor is odd: two patterns that differ by one in
 * iteration, author or slot differ in every byte, so that stale, misplaced and
 * foreign data are all seen.
 */

#include "osu.h"

#include <stdio.h>
#include <string.h>

#define OSU_BLOCK 256

static void osu_pattern_block(uint8_t *block, size_t offset, int iter,
                              int author, int slot)
{
    uint8_t base = iter * 101u + author * 37u + slot * 11u +
                   (offset >> 8) * 31u + (offset >> 16) * 17u;
    int i;

    for (i = 0; i < OSU_BLOCK; ++i) {
        block[i] = base + i * 131u;
    }
}

void osu_pattern_fill(void *buf, size_t size, int iter, int author, int slot)
{
    uint8_t *ptr = buf;
    uint8_t tail[OSU_BLOCK];
    size_t offset;

    for (offset = 0; offset + OSU_BLOCK <= size; offset += OSU_BLOCK) {
        osu_pattern_block(ptr + offset, offset, iter, author, slot);
    }

    if (offset < size) {
        osu_pattern_block(tail, offset, iter, author, slot);
        memcpy(ptr + offset, tail, size - offset);
    }
}

void osu_pattern_check(osu_run_t *run, const void *buf, size_t size, int iter,
                       int author, int slot)
{
    const uint8_t *ptr = buf;
    uint8_t wanted[OSU_BLOCK];
    size_t offset, length, i;

    for (offset = 0; offset < size; offset += OSU_BLOCK) {
        length = size - offset < OSU_BLOCK ? size - offset : OSU_BLOCK;
        osu_pattern_block(wanted, offset, iter, author, slot);
        if (memcmp(ptr + offset, wanted, length) == 0) {
            continue;
        }

        for (i = 0; ptr[offset + i] == wanted[i]; ++i) {
        }
        osu_data_error(run, iter, offset + i, wanted[i], ptr[offset + i]);
        return;
    }
}

void osu_data_error(osu_run_t *run, int iter, size_t offset, uint64_t wanted,
                    uint64_t found)
{
    /* The first one tells enough; thousands would hide it */
    if (run->errors++ == 0) {
        fprintf(stderr, "%s: wrong data: rank %d, size %zu, iteration %d, "
                "offset %zu: wanted 0x%llx, found 0x%llx\n", run->bench->name,
                run->rank, run->size, iter, offset,
                (unsigned long long)wanted, (unsigned long long)found);
    }
}
