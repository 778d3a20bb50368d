/* SPDX-License-Identifier: BSD-3-Clause */
/* nprdma.ko for tests with mock_verbs.h. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "mock_kmod.h"
#include "mock_verbs.h"

#include "nprdma/dev/verbs/views.h"
#include "nprdma/mem/signature.h"
#include "nprdma/mem/swapper.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MOCK_EXPORTS  1024

#define MOCK_CHANGES  256u

/* Nothing of a change of pages is seen by devices before it is settled */
typedef struct mock_change {
    np_kmod_region_t *region;
    uint64_t         va;
    int              is_take; /* the entry says so, the views do not yet; or the
                                 views have the page, and no entry says so */
    int              write;
} mock_change_t;

typedef struct mock_export {
    const np_kmod_region_t *region;
    uint32_t               what;
} mock_export_t;

int mock_kmod_is_loaded;
int (*mock_kmod_may_map)(uint64_t va);
int mock_kmod_lags;

/* Guards the list of regions, the exports and changes of entries */
static pthread_mutex_t mock_lock = PTHREAD_MUTEX_INITIALIZER;
static UCS_LIST_HEAD(mock_regions);
static mock_export_t mock_exports[MOCK_EXPORTS];  /* by descriptor */
static mock_change_t mock_changes[MOCK_CHANGES];
static unsigned mock_num_changes;
static uint8_t mock_signature[NP_PAGE_SIZE];
static uint8_t mock_black_hole[NP_PAGE_SIZE];


static _Atomic uint32_t *mock_entry(const np_kmod_region_t *region, uint64_t va)
{
    return (_Atomic uint32_t*)&region->entries[(va - region->va) >>
                                               NP_PAGE_SHIFT];
}

/* What devices see of a page: bits as of its entry. Behind the entries. */
static _Atomic uint8_t *mock_seen(const np_kmod_region_t *region, uint64_t va)
{
    _Atomic uint8_t *seen = (void*)&region->entries[NP_ARENA_PAGES];

    return &seen[(va - region->va) >> NP_PAGE_SHIFT];
}

static const void *mock_read(void *arg, uint64_t iova)
{
    const np_kmod_region_t *region = arg;

    return (atomic_load(mock_seen(region, iova)) & NP_ENTRY_READ) ?
           (const void*)iova : &mock_signature[iova % NP_PAGE_SIZE];
}

static void *mock_write(void *arg, uint64_t iova)
{
    const np_kmod_region_t *region = arg;

    return (atomic_load(mock_seen(region, iova)) & NP_ENTRY_WRITE) ?
           (void*)iova : &mock_black_hole[iova % NP_PAGE_SIZE];
}

static const void *mock_read_table(void *arg, uint64_t iova)
{
    const np_kmod_region_t *region = arg;

    return UCS_PTR_BYTE_OFFSET(region->entries,
                               iova - NP_VIEWS_TABLE(region->va));
}

static int mock_kmod_view(int fd, mock_view_t *view)
{
    const mock_export_t *export = &mock_exports[fd % MOCK_EXPORTS];

    if (export->region == NULL) {
        return 0;
    }

    *view = (mock_view_t){
        .read  = (export->what == NPRDMA_EXPORT_TABLE) ? mock_read_table :
                 mock_read,
        .write = mock_write,
        .arg   = (void*)export->region
    };
    return 1;
}

ucs_status_t np_kmod_open(void)
{
    if (!mock_kmod_is_loaded) {
        return UCS_ERR_NO_DEVICE;
    }

    np_signature_fill(mock_signature, 0, sizeof(mock_signature));
    mock_find_view = mock_kmod_view;
    return UCS_OK;
}

const char *np_kmod_why(void)
{
    return "the mock of the module is not loaded";
}

ucs_status_t np_kmod_region_get(uint32_t arena, np_kmod_region_t **region_p)
{
    np_kmod_region_t *region;
    void *entries;

    pthread_mutex_lock(&mock_lock);
    ucs_list_for_each(region, &mock_regions, list) {
        if (region->arena == arena) {
            goto out;
        }
    }

    region  = calloc(1, sizeof(*region));
    entries = mmap(NULL, NP_ARENA_PAGES * (sizeof(uint32_t) + sizeof(uint8_t)),
                   PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    region->arena   = arena;
    region->va      = (uint64_t)arena << NP_ARENA_SHIFT;
    region->len     = UINT64_C(1) << NP_ARENA_SHIFT;
    region->entries = entries;
    ucs_list_add_tail(&mock_regions, &region->list);
out:
    pthread_mutex_unlock(&mock_lock);
    *region_p = region;
    return UCS_OK;
}

int np_kmod_export(const np_kmod_region_t *region, uint32_t what,
                   uint64_t offset, uint64_t len)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    mock_exports[fd % MOCK_EXPORTS] = (mock_export_t){region, what};
    return fd;
}

/* For each page of a range that lies in regions */
static void mock_for_each(uint64_t va, uint64_t len,
                          void (*each)(np_kmod_region_t *region, uint64_t va,
                                       int arg), int arg)
{
    const uint64_t end = va + len;
    np_kmod_region_t *region;

    for (va &= ~(NP_PAGE_SIZE - 1); va < end; va += NP_PAGE_SIZE) {
        pthread_mutex_lock(&mock_lock);
        ucs_list_for_each(region, &mock_regions, list) {
            if (region->arena == (va >> NP_ARENA_SHIFT)) {
                each(region, va, arg);
            }
        }
        pthread_mutex_unlock(&mock_lock);
    }
}

static void mock_settle(const mock_change_t *change)
{
    _Atomic uint32_t *entry = mock_entry(change->region, change->va);
    const uint32_t bits     = change->write ? NP_ENTRY_BITS : NP_ENTRY_READ;

    if (change->is_take) {
        atomic_store(mock_seen(change->region, change->va), 0);
    } else if ((atomic_load(entry) & bits) != bits) {
        atomic_store(entry, (atomic_load(entry) | bits) + NP_ENTRY_STEP);
    }
}

/* The n-th of the changes; under the lock */
static void mock_settle_at(unsigned n)
{
    mock_settle(&mock_changes[n]);
    mock_changes[n] = mock_changes[--mock_num_changes];
}

/* A page changes once at a time */
static void mock_settle_page(const np_kmod_region_t *region, uint64_t va)
{
    unsigned i;

    for (i = 0; i < mock_num_changes; ++i) {
        if ((mock_changes[i].region == region) && (mock_changes[i].va == va)) {
            mock_settle_at(i--);
        }
    }
}

static void mock_change(const mock_change_t *change, int is_late)
{
    if (is_late && (mock_num_changes < MOCK_CHANGES)) {
        mock_changes[mock_num_changes++] = *change;
    } else {
        mock_settle(change);
    }
}

/* Entry, then what devices see */
static void mock_take(np_kmod_region_t *region, uint64_t va, int may_lag)
{
    uint32_t entry;

    mock_settle_page(region, va);
    entry = atomic_load(mock_entry(region, va));
    if (entry & NP_ENTRY_BITS) {
        atomic_store(mock_entry(region, va), (entry & ~NP_ENTRY_BITS) +
                                             NP_ENTRY_STEP);
        mock_change(&(mock_change_t){region, va, 1, 1}, may_lag);
    }
}

/* What devices see, then the entry */
static void mock_give(np_kmod_region_t *region, uint64_t va, int write,
                      int may_lag)
{
    const uint32_t bits = write ? NP_ENTRY_BITS : NP_ENTRY_READ;

    mock_settle_page(region, va);
    if ((atomic_load(mock_entry(region, va)) & bits) != bits) {
        atomic_fetch_or(mock_seen(region, va), bits);
        mock_change(&(mock_change_t){region, va, 0, write}, may_lag);
    }
}

static void mock_map(np_kmod_region_t *region, uint64_t va, int write)
{
    mock_give(region, va, write, 0);
}

static void mock_map_late(np_kmod_region_t *region, uint64_t va, int write)
{
    mock_give(region, va, write, mock_kmod_lags);
}

int mock_kmod_settle(unsigned (*below)(unsigned bound))
{
    int is_settled = 0;

    pthread_mutex_lock(&mock_lock);
    if (mock_num_changes > 0) {
        mock_settle_at(below(mock_num_changes));
        is_settled = 1;
    }
    pthread_mutex_unlock(&mock_lock);
    return is_settled;
}

void mock_kmod_take(const void *va, size_t len)
{
    mock_for_each((uintptr_t)va, len, mock_take, mock_kmod_lags);
}

ucs_status_t np_kmod_fault_in(const np_kmod_region_t *region, uint64_t va,
                              uint64_t len, int write)
{
    if (np_swap_range_touches(va, len) ||
        ((mock_kmod_may_map != NULL) && !mock_kmod_may_map(va))) {
        return UCS_ERR_NO_RESOURCE;
    }

    mock_for_each(va, len, mock_map, write);
    return UCS_OK;
}

void np_kmod_prefetch(uint64_t va, uint64_t len, int write)
{
    if (!np_swap_range_touches(va, len) &&
        ((mock_kmod_may_map == NULL) || mock_kmod_may_map(va))) {
        mock_for_each(va, len, mock_map_late, write);
    }
}

void np_kmod_prepare(uint64_t va, uint64_t len, int write)
{
    np_kmod_prefetch(va, len, write);
}

void np_kmod_unmap(uint64_t va, uint64_t len)
{
    mock_for_each(va, len, mock_take, 0);
}

int np_kmod_block(uint64_t va, uint64_t len)
{
    np_kmod_unmap(va, len);
    return 1;
}

void np_kmod_unblock(uint64_t va, uint64_t len)
{
}
