/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The set of regions: a search tree by first and last address, balanced by
 * random priorities (a treap). Each node knows the largest last address below
 * it, and that answers all questions:
 *
 *   reach(limit): how far the regions go that begin at limit or before. One
 *                 that begins at va or before and reaches va + len - 1 covers
 *                 all between, and has all of the pages between as a whole. One
 *                 that begins in a page or before, and reaches the page,
 *                 touches it and all pages up to the region's end.
 *   next(limit):  where the first region after limit begins.
 *
 * A page and a region that ends: a map looks at the set after it has counted
 * itself in the page's slice (NP_BUSY_MAP), and a region that ends is taken out
 * of the set before its pages are unmapped. So either the map finds the region
 * gone, or the unmap finds the map counted, and makes it begin again.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "region.h"

#include "arena.h"
#include "mapper.h"

#include "../thread.h"

#include <pthread.h>
#include <stdlib.h>

#define NP_PAGE_LAST(_va)  ((_va) | (NP_PAGE_SIZE - 1))
#define NP_PAGE_FIRST(_va) ((_va) & ~(NP_PAGE_SIZE - 1))

/* A function to be called at a region's end */
typedef struct np_region_waiter {
    struct np_region_waiter *next;
    void                    (*ended)(void *arg);
    void                    *arg;
} np_region_waiter_t;

struct np_region {
    np_region_t *left;      /* lower ones */
    np_region_t *right;
    uint64_t    first;
    uint64_t    last;       /* inclusive */
    uint64_t    max;        /* largest last of it and of all below */
    uint32_t    priority;   /* at least as high as all below */
    uint32_t    life;       /* np_regions_life when it was made */
    uint64_t    uses;       /* registrations of just this range */
    np_region_waiter_t *waiters;
};

/* Guards all below and every region; no other lock is taken under it, and no
 * page of the program's is touched */
static pthread_mutex_t np_regions_lock = PTHREAD_MUTEX_INITIALIZER;
static np_region_t *np_regions_root;
static uint32_t np_regions_random = 1;

/* What a forked child inherits is not registered in it */
static uint32_t np_regions_life;

static pthread_once_t np_regions_once = PTHREAD_ONCE_INIT;


static void np_regions_fork_prepare(void)
{
    pthread_mutex_lock(&np_regions_lock);
}

static void np_regions_fork_parent(void)
{
    pthread_mutex_unlock(&np_regions_lock);
}

/* The regions themselves stay: the child may give back handles that it has
 * inherited */
static void np_regions_fork_child(void)
{
    np_regions_root = NULL;
    ++np_regions_life;
    pthread_mutex_unlock(&np_regions_lock);
}

static void np_regions_init(void)
{
    if (pthread_atfork(np_regions_fork_prepare, np_regions_fork_parent,
                       np_regions_fork_child) != 0) {
        np_warn("no memory for a fork handler: in a forked child memory of its "
                "parent stays registered");
    }
}

static uint32_t np_regions_priority(void)
{
    /* xorshift: any numbers that do not follow the addresses */
    np_regions_random ^= np_regions_random << 13;
    np_regions_random ^= np_regions_random >> 17;
    np_regions_random ^= np_regions_random << 5;
    return np_regions_random;
}

/* Less than 0, 0, or more: where the range is, seen from a region */
static int
np_region_compare(const np_region_t *region, uint64_t first, uint64_t last)
{
    if (first != region->first) {
        return (first < region->first) ? -1 : 1;
    }

    return (last < region->last) ? -1 : (last > region->last);
}

static void np_region_update(np_region_t *region)
{
    region->max = region->last;
    if (region->left != NULL) {
        region->max = ucs_max(region->max, region->left->max);
    }
    if (region->right != NULL) {
        region->max = ucs_max(region->max, region->right->max);
    }
}

/* Join two trees; all of left are lower */
static np_region_t *np_region_join(np_region_t *left, np_region_t *right)
{
    if (left == NULL) {
        return right;
    }

    if (right == NULL) {
        return left;
    }

    if (left->priority >= right->priority) {
        left->right = np_region_join(left->right, right);
        np_region_update(left);
        return left;
    }

    right->left = np_region_join(left, right->left);
    np_region_update(right);
    return right;
}

/* Take a tree apart: what is lower than the range, and the rest */
static void np_region_split(np_region_t *root, uint64_t first, uint64_t last,
                            np_region_t **lower, np_region_t **rest)
{
    if (root == NULL) {
        *lower = NULL;
        *rest  = NULL;
        return;
    }

    if (np_region_compare(root, first, last) > 0) {
        np_region_split(root->right, first, last, &root->right, rest);
        *lower = root;
    } else {
        np_region_split(root->left, first, last, lower, &root->left);
        *rest = root;
    }
    np_region_update(root);
}

static np_region_t *np_region_find(uint64_t first, uint64_t last)
{
    np_region_t *region = np_regions_root;
    int cmp;

    while (region != NULL) {
        cmp = np_region_compare(region, first, last);
        if (cmp == 0) {
            break;
        }
        region = (cmp < 0) ? region->left : region->right;
    }
    return region;
}

static void np_region_insert(np_region_t *region)
{
    np_region_t *lower, *rest;

    np_region_split(np_regions_root, region->first, region->last, &lower,
                    &rest);
    np_region_update(region);
    np_regions_root = np_region_join(np_region_join(lower, region), rest);
}

static np_region_t *
np_region_remove(np_region_t *root, const np_region_t *region)
{
    int cmp = np_region_compare(root, region->first, region->last);

    if (cmp == 0) {
        return np_region_join(root->left, root->right);
    }

    if (cmp < 0) {
        root->left = np_region_remove(root->left, region);
    } else {
        root->right = np_region_remove(root->right, region);
    }
    np_region_update(root);
    return root;
}

/* Largest last address of the regions that begin at limit or before. Returns
 * whether any of them does not end before va. */
static int np_regions_reach(uint64_t limit, uint64_t va, uint64_t *last)
{
    const np_region_t *region = np_regions_root;
    int is_found              = 0;

    *last = va;
    while (region != NULL) {
        if (region->first > limit) {
            region = region->left;
            continue;
        }

        if (region->last >= *last) {
            *last    = region->last;
            is_found = 1;
        }
        if ((region->left != NULL) && (region->left->max >= *last)) {
            *last    = region->left->max;
            is_found = 1;
        }
        region = region->right;
    }
    return is_found;
}

/* Where the first region after limit begins, or end */
static uint64_t np_regions_next(uint64_t limit, uint64_t end)
{
    const np_region_t *region = np_regions_root;

    while (region != NULL) {
        if (region->first > limit) {
            end    = ucs_min(end, region->first);
            region = region->left;
        } else {
            region = region->right;
        }
    }
    return end;
}

/* The end of the run of pages, from the page border va on, that regions
 * touch */
static uint64_t np_regions_touched_locked(uint64_t va, uint64_t end)
{
    uint64_t last;

    np_assert_locked(&np_regions_lock);
    while ((va < end) && np_regions_reach(NP_PAGE_LAST(va), va, &last)) {
        va = NP_PAGE_LAST(last) + 1;
    }
    return ucs_min(va, end);
}

/* The end of the run of pages, from the page border va on, that are each in one
 * region */
static uint64_t np_regions_whole_locked(uint64_t va, uint64_t end)
{
    uint64_t last;

    while ((va < end) && np_regions_reach(va, va, &last) &&
           (last >= NP_PAGE_LAST(va))) {
        va = NP_PAGE_FIRST(last + 1);
    }
    return ucs_min(va, end);
}

void np_regions_start(void)
{
    pthread_once(&np_regions_once, np_regions_init);
}

ucs_status_t np_region_get(uint64_t va, uint64_t len, np_region_t **region_p)
{
    uint64_t last = va + ((len == 0) ? 0 : (len - 1));
    np_region_t *region, *fresh;
    np_arenas_t arenas;

    if (np_arenas_of(va, len, &arenas) != UCS_OK) {
        np_error("cannot register %#lx..%#lx: not a range of user addresses",
                 va, va + len);
        return UCS_ERR_INVALID_PARAM;
    }

    fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL) {
        np_error("no memory for a region of %zu bytes", sizeof(*fresh));
        return UCS_ERR_NO_MEMORY;
    }

    np_regions_start();
    pthread_mutex_lock(&np_regions_lock);
    region = np_region_find(va, last);
    if (region == NULL) {
        region           = fresh;
        fresh            = NULL;
        region->first    = va;
        region->last     = last;
        region->life     = np_regions_life;
        region->priority = np_regions_priority();
        np_region_insert(region);
    }
    ++region->uses;
    pthread_mutex_unlock(&np_regions_lock);

    free(fresh);
    *region_p = region;
    return UCS_OK;
}

/* Unmap the pages that are in no region as a whole any more. A region that
 * touches one of them finds it unmapped, and maps it again. */
static void np_regions_unmap(uint64_t first, uint64_t last)
{
    const uint64_t end = NP_PAGE_LAST(last) + 1;
    uint64_t va        = NP_PAGE_FIRST(first), next;

    for (;;) {
        pthread_mutex_lock(&np_regions_lock);
        va   = np_regions_whole_locked(va, end);
        next = (va < end) ? np_regions_next(va, end) : end;
        pthread_mutex_unlock(&np_regions_lock);
        if (va >= end) {
            return;
        }

        /* a region that begins in a page or before, but lacks it, has no later
         * one */
        next = ucs_max(NP_PAGE_FIRST(next), va + NP_PAGE_SIZE);
        np_mapper_unmap(va, next - va);
        va = next;
    }
}

/* Its last use has ended */
static void np_region_end(np_region_t *region, int is_ours)
{
    np_region_waiter_t *waiter;

    if (is_ours) {
        np_regions_unmap(region->first, region->last);
    }

    if (region->waiters != NULL) {
        /* waits for what we move ourselves, on pages of others too */
        np_mapper_flush(region->first, 0);
    }

    while (region->waiters != NULL) {
        waiter          = region->waiters;
        region->waiters = waiter->next;
        waiter->ended(waiter->arg);
        free(waiter);
    }
    free(region);
}

/* One use less; @a waiter, if not NULL, is told of the region's end */
static void np_region_release(np_region_t *region, np_region_waiter_t *waiter)
{
    int is_last, is_ours;

    pthread_mutex_lock(&np_regions_lock);
    if (waiter != NULL) {
        waiter->next    = region->waiters;
        region->waiters = waiter;
    }

    is_last = (--region->uses == 0);
    is_ours = region->life == np_regions_life;
    if (is_last && is_ours) {
        np_regions_root = np_region_remove(np_regions_root, region);
    }
    pthread_mutex_unlock(&np_regions_lock);

    if (is_last) {
        np_region_end(region, is_ours);
    }
}

void np_region_put(np_region_t *region)
{
    np_region_release(region, NULL);
}

ucs_status_t np_region_invalidate(np_region_t *region, void (*ended)(void *arg),
                                  void *arg)
{
    np_region_waiter_t *waiter = malloc(sizeof(*waiter));

    if (waiter == NULL) {
        np_error("no memory for the end of a region");
        return UCS_ERR_NO_MEMORY;
    }

    *waiter = (np_region_waiter_t){.ended = ended, .arg = arg};
    np_region_release(region, waiter);
    return UCS_OK;
}

uint64_t np_region_va(const np_region_t *region)
{
    return region->first;
}

uint64_t np_region_len(const np_region_t *region)
{
    return region->last - region->first + 1;
}

int np_regions_cover(uint64_t va, uint64_t len)
{
    const uint64_t end = va + ((len == 0) ? 0 : (len - 1));
    uint64_t last;
    int is_found;

    pthread_mutex_lock(&np_regions_lock);
    is_found = (end >= va) && np_regions_reach(va, va, &last);
    pthread_mutex_unlock(&np_regions_lock);
    return is_found && (last >= end);
}

uint64_t np_regions_touched(uint64_t va, uint64_t end)
{
    pthread_mutex_lock(&np_regions_lock);
    end = np_regions_touched_locked(NP_PAGE_FIRST(va),
                                    NP_PAGE_LAST(end - 1) + 1);
    pthread_mutex_unlock(&np_regions_lock);
    return end;
}

uint64_t np_regions_whole(uint64_t va, uint64_t end)
{
    pthread_mutex_lock(&np_regions_lock);
    end = np_regions_whole_locked(NP_PAGE_FIRST(va), NP_PAGE_LAST(end - 1) + 1);
    pthread_mutex_unlock(&np_regions_lock);
    return end;
}
