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

#include "stage.h"

#include "access.h"
#include "bypass.h"
#include "region.h"
#include "swapper.h"
#include "table.h"

#include "../iov.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/* Times that a swapper may take the memory away between bringing it in and the
 * copy */
#define NP_STAGE_ROUNDS  1024

_Static_assert((sizeof(np_iov_t) == sizeof(struct iovec)) &&
               (offsetof(np_iov_t, base) == offsetof(struct iovec, iov_base)) &&
               (offsetof(np_iov_t, len) == offsetof(struct iovec, iov_len)),
               "the kernel takes our lists");


void np_stage_cleanup(np_stage_t *stage)
{
    if (stage->bytes != NULL) {
        munmap(stage->bytes, NP_STAGE_SIZE);
        stage->bytes = NULL;
    }
    if (stage->is_tried && (stage->fd >= 0)) {
        close(stage->fd);
        stage->fd = -1;
    }
}

/* A forked child must not change the pages under its parent: it has none */
static int np_stage_make(np_stage_t *stage)
{
    if (stage->is_tried) {
        return 0;
    }

    stage->is_tried = 1;
    stage->fd       = memfd_create("nprdma-copies", MFD_CLOEXEC);
    if (stage->fd < 0) {
        return 0;
    }

    if (ftruncate(stage->fd, NP_STAGE_SIZE) == 0) {
        stage->bytes = mmap(NULL, NP_STAGE_SIZE, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_POPULATE, stage->fd, 0);
        if (stage->bytes == MAP_FAILED) {
            stage->bytes = NULL;
        }
    }
    if ((stage->bytes == NULL) ||
        (madvise(stage->bytes, NP_STAGE_SIZE, MADV_DONTFORK) != 0)) {
        np_stage_cleanup(stage);
        return 0;
    }
    return 1;
}

static UCS_F_ALWAYS_INLINE int np_stage_is_made(np_stage_t *stage)
{
    return ucs_likely(stage->bytes != NULL) || np_stage_make(stage);
}

/* The kernel copies from the file's pages; UCS_ERR_UNSUPPORTED: take another
 * way. Not the other direction: a write to a file needs all the pages of its
 * source to be there at once, and asks for them again and again until they are,
 * which a pager may never grant. */
static ucs_status_t
np_stage_staged(np_stage_t *stage, const np_iov_t *iov, size_t iovcnt,
                const void *data, size_t len)
{
    const struct iovec *vec = (const struct iovec*)iov;
    ssize_t ret;

    memcpy(stage->bytes, data, len);
    ret = (iovcnt == 1) ? pread(stage->fd, vec->iov_base, len, 0) :
          preadv(stage->fd, vec, iovcnt, 0);
    if (ucs_likely(ret == (ssize_t)len)) {
        return UCS_OK;
    }
    return ((ret >= 0) || (errno == EFAULT)) ? UCS_ERR_INVALID_ADDR :
           UCS_ERR_UNSUPPORTED;
}

static ucs_status_t
np_stage_now(np_stage_t *stage, const np_iov_t *iov, size_t iovcnt, void *data,
             int to_memory)
{
    const size_t len    = np_iov_length(iov, iovcnt);
    ucs_status_t status = UCS_ERR_UNSUPPORTED;
    size_t i;

    if (to_memory && (stage != NULL) &&
        ucs_likely((len <= NP_STAGE_SIZE) && np_stage_is_made(stage))) {
        status = np_stage_staged(stage, iov, iovcnt, data, len);
    }
    if (status != UCS_ERR_UNSUPPORTED) {
        return status;
    }

    for (i = 0, status = UCS_OK; (i < iovcnt) && (status == UCS_OK);
         data = UCS_PTR_BYTE_OFFSET(data, iov[i++].len)) {
        status = to_memory ?
                 np_access_write((uintptr_t)iov[i].base, data, iov[i].len) :
                 np_access_read(data, (uintptr_t)iov[i].base, iov[i].len);
    }
    return status;
}

/* Copy what lies in one page, or is a word. The swapper of the program, if
 * there is one, waits for the end of the copy (np_swap_wait_copies) if it takes
 * the page away after np_mapper_is_mapped has said that it is there. In other
 * memory the kernel may sleep in a page, and no thread waits for that. */
static ucs_status_t
np_stage_page(np_stage_t *stage, const np_iov_t *memory, void *data,
              int to_memory)
{
    const uint64_t addr = (uintptr_t)memory->base;
    ucs_status_t status = UCS_OK;
    unsigned round;
    int phase, has_table;

    for (round = 0; round < NP_STAGE_ROUNDS; ++round) {
        status = np_mapper_fault_in(addr, memory->len, to_memory);
        if (status == UCS_ERR_NO_RESOURCE) {
            continue;
        }

        has_table = status != UCS_ERR_EXCEEDS_LIMIT;
        if (has_table && (status != UCS_OK)) {
            return status;
        }

        phase  = np_swap_hold(addr, memory->len);
        status = ((phase >= 0) && has_table &&
                  !np_mapper_is_mapped(addr, memory->len, to_memory)) ?
                 UCS_ERR_NO_RESOURCE :
                 np_stage_now(stage, memory, 1, data, to_memory);
        np_swap_let_go(phase);
        if ((status == UCS_ERR_INVALID_ADDR) && has_table) {
            np_mapper_unmap(addr, memory->len); /* mapped once: ask anew */
        } else if (status != UCS_ERR_NO_RESOURCE) {
            return status;
        }
    }
    return status;
}

/* A word that has parts in two pages is seen whole, or not at all */
static int np_stage_is_split_word(const np_iov_t *memory)
{
    return (memory->len <= sizeof(uint64_t)) &&
           (np_page_count((uintptr_t)memory->base, memory->len) > 1);
}

/* Bring it in, as a device would, and copy: by pages, since a pager may have
 * room for few */
static ucs_status_t
np_stage_pages(np_stage_t *stage, const np_iov_t *memory, void *data,
               int to_memory)
{
    ucs_status_t status = UCS_OK;
    np_iov_t page;
    size_t done;

    for (done = 0; (done < memory->len) && (status == UCS_OK);
         done += page.len) {
        page.base = UCS_PTR_BYTE_OFFSET(memory->base, done);
        page.len  = np_stage_is_split_word(memory) ? memory->len :
                    ucs_min(memory->len - done,
                            NP_PAGE_SIZE -
                            ((uintptr_t)page.base % NP_PAGE_SIZE));
        status    = np_stage_page(stage, &page,
                                  UCS_PTR_BYTE_OFFSET(data, done), to_memory);
    }
    return status;
}

/* Is memory that is swapped mapped? Without a table its swapper is not
 * asked. */
static int np_stage_is_mapped(uint64_t addr, size_t len, int to_memory)
{
    return (np_table_find(addr >> NP_ARENA_SHIFT) == NULL) ||
           (np_table_find((addr + len - 1) >> NP_ARENA_SHIFT) == NULL) ||
           np_mapper_is_mapped(addr, len, to_memory);
}

int np_stage_is_there(uint64_t addr, size_t len, int to_memory)
{
    return np_swap_range_touches(addr, len) ?
           np_stage_is_mapped(addr, len, to_memory) :
           np_access_is_present(addr, len);
}

/* Copy memory of a swapper as in np_stage_page, if it is there */
static ucs_status_t
np_stage_mapped(np_stage_t *stage, const np_iov_t *memory, void *data,
                int to_memory)
{
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    int phase;

    phase = np_swap_copy_begin();
    if (np_stage_is_mapped((uintptr_t)memory->base, memory->len, to_memory)) {
        status = np_stage_now(stage, memory, 1, data, to_memory);
    }
    np_swap_copy_end(phase);
    return status;
}

static int np_stage_is_swapped(const np_iov_t *memory)
{
    return np_swap_range_touches((uintptr_t)memory->base, memory->len);
}

/* Copy what peers reach of a file (file.h). Who takes it from them waits for
 * the end of the copy, and no later one begins. */
static ucs_status_t
np_stage_file(np_stage_t *stage, const np_iov_t *memory, void *data,
              int to_memory, int may_sleep)
{
    const uint64_t addr = (uintptr_t)memory->base;
    ucs_status_t status = UCS_ERR_INVALID_ADDR;
    int phase;

    if (!may_sleep && !np_access_is_present(addr, memory->len)) {
        return UCS_ERR_NO_RESOURCE;
    }

    phase = np_swap_copy_begin();
    if (np_regions_cover(addr, memory->len)) {
        status = np_stage_now(stage, memory, 1, data, to_memory);
    }
    np_swap_copy_end(phase);
    return status;
}

static int np_stage_is_file(const np_iov_t *memory)
{
    return np_file_has((uintptr_t)memory->base);
}

/* Copy what the program does not swap. Where the kernel has found nothing there
 * may be a pager that hears only of the program's own accesses
 * (userfaultfd). */
static ucs_status_t
np_stage_list(np_stage_t *stage, const np_iov_t *iov, size_t iovcnt,
              void *data, int to_memory, int may_sleep)
{
    ucs_status_t status;
    size_t i;

    for (i = 0; !may_sleep && (i < iovcnt); ++i) {
        if (!np_access_is_present((uintptr_t)iov[i].base, iov[i].len)) {
            return UCS_ERR_NO_RESOURCE;
        }
    }

    status = (may_sleep && (iovcnt == 1) &&
              ucs_unlikely(np_stage_is_split_word(iov))) ?
             UCS_ERR_INVALID_ADDR :
             np_stage_now(stage, iov, iovcnt, data, to_memory);
    if (ucs_likely(status != UCS_ERR_INVALID_ADDR) || !may_sleep) {
        return status;
    }

    for (i = 0, status = UCS_OK; (i < iovcnt) && (status == UCS_OK);
         data = UCS_PTR_BYTE_OFFSET(data, iov[i++].len)) {
        status = np_stage_pages(stage, &iov[i], data, to_memory);
    }
    return status;
}

ucs_status_t np_stage_copy(np_stage_t *stage, const np_iov_t *iov,
                           size_t iovcnt, void *data, int to_memory,
                           int may_sleep)
{
    ucs_status_t status = UCS_OK;
    size_t i;

    for (i = 0; (i < iovcnt) && !np_stage_is_swapped(&iov[i]) &&
                !np_stage_is_file(&iov[i]); ++i) {
    }
    if (ucs_likely(i == iovcnt)) {
        return np_stage_list(stage, iov, iovcnt, data, to_memory, may_sleep);
    }

    for (i = 0; (i < iovcnt) && (status == UCS_OK);
         data = UCS_PTR_BYTE_OFFSET(data, iov[i++].len)) {
        status = np_stage_is_file(&iov[i]) ?
                 np_stage_file(stage, &iov[i], data, to_memory, may_sleep) :
                 !np_stage_is_swapped(&iov[i]) ?
                 np_stage_list(stage, &iov[i], 1, data, to_memory, may_sleep) :
                 may_sleep ?
                 np_stage_pages(stage, &iov[i], data, to_memory) :
                 np_stage_mapped(stage, &iov[i], data, to_memory);
    }
    return status;
}

ucs_status_t np_stage_own(const np_iov_t *iov, size_t iovcnt, void *data,
                          np_stage_way_t way)
{
    const int is_in     = (way == NP_STAGE_IN) || (way == NP_STAGE_IN_PAST);
    const int is_past   = (way == NP_STAGE_OUT_PAST) ||
                          (way == NP_STAGE_IN_PAST);
    ucs_status_t status = UCS_OK;
    size_t i;

    for (i = 0; (i < iovcnt) && (status == UCS_OK);
         data = UCS_PTR_BYTE_OFFSET(data, iov[i++].len)) {
        if (iov[i].len == 0) {
            continue; /* its base may be NULL */
        }

        if (ucs_unlikely(np_stage_is_swapped(&iov[i]))) {
            status = np_stage_pages(NULL, &iov[i], data, is_in);
        } else {
            np_bypass_copy_if(is_past, is_in ? iov[i].base : data,
                              is_in ? data : iov[i].base, iov[i].len);
        }
    }
    return status;
}
