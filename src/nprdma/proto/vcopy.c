/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Bytes between messages and memory.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vcopy.h"

#include "../mem/access.h"
#include "../mem/swapper.h"
#include "../mem/table.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Times that a swapper may take the memory away between bringing it in and the
 * copy */
#define NP_VCOPY_ROUNDS  1024


static ucs_status_t
np_vcopy_now(uint64_t addr, void *data, size_t len, int to_memory, int is_peers)
{
    if (is_peers) {
        return to_memory ? np_access_write(addr, data, len) :
               np_access_read(data, addr, len);
    }

    if (to_memory) {
        memcpy((void*)addr, data, len);
    } else {
        memcpy(data, (void*)addr, len);
    }
    return UCS_OK;
}

/* A swapper that takes the memory away after np_mapper_is_mapped has said that it
 * is there waits for the end of the copy (np_swap_wait_copies) */
static ucs_status_t
np_vcopy_swapped(uint64_t addr, void *data, size_t len, int to_memory,
                 int is_peers)
{
    ucs_status_t status;
    unsigned round;
    int phase, has_table;

    for (round = 0; round < NP_VCOPY_ROUNDS; ++round) {
        status    = np_mapper_fault_in(addr, len, to_memory);
        has_table = status != UCS_ERR_EXCEEDS_LIMIT;
        if (has_table && (status != UCS_OK)) {
            if (status == UCS_ERR_NO_RESOURCE) {
                continue;
            }
            return status;
        }

        phase = np_swap_copy_begin();
        if (!has_table || np_mapper_is_mapped(addr, len, to_memory)) {
            status = np_vcopy_now(addr, data, len, to_memory, is_peers);
            np_swap_copy_end(phase);
            return status;
        }
        np_swap_copy_end(phase);
    }
    return UCS_ERR_NO_RESOURCE;
}

/* Of memory that is swapped: nobody asks who has no table of it */
static int np_vcopy_is_mapped(uint64_t addr, size_t len, int to_memory)
{
    return (np_table_find(addr >> NP_ARENA_SHIFT) == NULL) ||
           (np_table_find((addr + len - 1) >> NP_ARENA_SHIFT) == NULL) ||
           np_mapper_is_mapped(addr, len, to_memory);
}

int np_vcopy_is_there(uint64_t addr, size_t len, int to_memory)
{
    return np_swap_range_touches(addr, len) ?
           np_vcopy_is_mapped(addr, len, to_memory) :
           np_access_is_present(addr, len);
}

/* The same as np_vcopy_swapped, if it is there */
static ucs_status_t
np_vcopy_mapped(uint64_t addr, void *data, size_t len, int to_memory,
                int is_peers)
{
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    int phase;

    phase = np_swap_copy_begin();
    if (np_vcopy_is_mapped(addr, len, to_memory)) {
        status = np_vcopy_now(addr, data, len, to_memory, is_peers);
    }
    np_swap_copy_end(phase);
    return status;
}

ucs_status_t np_vcopy(uint64_t addr, void *data, size_t len, int to_memory,
                      int is_peers, int may_sleep)
{
    if (ucs_unlikely(np_swap_range_touches(addr, len))) {
        return may_sleep ? np_vcopy_swapped(addr, data, len, to_memory,
                                            is_peers) :
               np_vcopy_mapped(addr, data, len, to_memory, is_peers);
    }

    return (may_sleep || np_access_is_present(addr, len)) ?
           np_vcopy_now(addr, data, len, to_memory, is_peers) :
           UCS_ERR_NO_RESOURCE;
}

/* A forked child must not change the page under its parent: it has none */
static int np_vstage_make(np_vstage_t *stage)
{
    if (stage->is_tried) {
        return 0;
    }

    stage->is_tried = 1;
    stage->fd         = memfd_create("nprdma-puts", MFD_CLOEXEC);
    if (stage->fd < 0) {
        return 0;
    }

    if (ftruncate(stage->fd, NP_PAGE_SIZE) == 0) {
        stage->page = mmap(NULL, NP_PAGE_SIZE, PROT_READ | PROT_WRITE,
                           MAP_SHARED, stage->fd, 0);
        if (stage->page == MAP_FAILED) {
            stage->page = NULL;
        }
    }
    if ((stage->page == NULL) ||
        (madvise(stage->page, NP_PAGE_SIZE, MADV_DONTFORK) != 0)) {
        np_vstage_cleanup(stage);
        return 0;
    }
    return 1;
}

void np_vstage_cleanup(np_vstage_t *stage)
{
    if (stage->page != NULL) {
        munmap(stage->page, NP_PAGE_SIZE);
        stage->page = NULL;
    }
    if (stage->is_tried && (stage->fd >= 0)) {
        close(stage->fd);
        stage->fd = -1;
    }
}

ucs_status_t np_vcopy_put(np_vstage_t *stage, uint64_t addr, void *data,
                          size_t len, int may_sleep)
{
    ssize_t ret;

    if ((len > NP_PAGE_SIZE) || np_swap_range_touches(addr, len) ||
        (ucs_unlikely(stage->page == NULL) && !np_vstage_make(stage))) {
        return np_vcopy(addr, data, len, 1, 1, may_sleep);
    }

    if (!may_sleep && !np_access_is_present(addr, len)) {
        return UCS_ERR_NO_RESOURCE;
    }

    memcpy(stage->page, data, len);
    ret = pread(stage->fd, (void*)addr, len, 0);
    if (ucs_likely(ret == (ssize_t)len)) {
        return UCS_OK;
    }
    return ((ret >= 0) || (errno == EFAULT)) ? UCS_ERR_INVALID_ADDR :
           np_vcopy(addr, data, len, 1, 1, may_sleep);
}
