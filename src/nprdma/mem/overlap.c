/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which transfers in flight overlap a new one.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "overlap.h"


void np_overlap_init(np_overlap_t *overlap)
{
    overlap->root   = NULL;
    overlap->recent = NULL;
    overlap->random = 1;
}

/* Some begin at the same byte: their own addresses tell them apart */
static UCS_F_ALWAYS_INLINE int
np_interval_is_before(const np_interval_t *interval, const np_interval_t *other)
{
    return (interval->first != other->first) ?
           (interval->first < other->first) : (interval < other);
}

static UCS_F_ALWAYS_INLINE void
np_interval_include(np_interval_t *interval, const np_interval_t *below)
{
    unsigned i;

    for (i = 0; i < NP_OVERLAP_LAST; ++i) {
        interval->end[i] = ucs_max(interval->end[i], below->end[i]);
    }
}

static UCS_F_ALWAYS_INLINE void np_interval_alone(np_interval_t *interval)
{
    interval->end[NP_OVERLAP_ALL]    = interval->last + 1;
    interval->end[NP_OVERLAP_WRITES] = interval->is_write ?
                                       (interval->last + 1) : 0;
}

/* What is below it has changed */
static UCS_F_ALWAYS_INLINE void np_interval_update(np_interval_t *interval)
{
    np_interval_alone(interval);
    if (interval->left != NULL) {
        np_interval_include(interval, interval->left);
    }
    if (interval->right != NULL) {
        np_interval_include(interval, interval->right);
    }
}

/* A subtree becomes two: what is before @a border, and what is after it */
static void np_interval_split(np_interval_t *tree, const np_interval_t *border,
                              np_interval_t **before, np_interval_t **after)
{
    if (tree == NULL) {
        *before = NULL;
        *after  = NULL;
        return;
    }

    if (np_interval_is_before(tree, border)) {
        np_interval_split(tree->right, border, &tree->right, after);
        *before = tree;
    } else {
        np_interval_split(tree->left, border, before, &tree->left);
        *after = tree;
    }
    np_interval_update(tree);
}

/* Two subtrees become one; all of @a left is before all of @a right */
static np_interval_t *
np_interval_join(np_interval_t *left, np_interval_t *right)
{
    if ((left == NULL) || (right == NULL)) {
        return (left == NULL) ? right : left;
    }

    if (left->priority >= right->priority) {
        left->right = np_interval_join(left->right, right);
        np_interval_update(left);
        return left;
    }

    right->left = np_interval_join(left, right->left);
    np_interval_update(right);
    return right;
}

static uint32_t np_overlap_priority(np_overlap_t *overlap)
{
    overlap->random = (overlap->random * UINT64_C(6364136223846793005)) +
                      UINT64_C(1442695040888963407);
    return overlap->random >> 32;
}

static void np_overlap_insert(np_overlap_t *overlap, np_interval_t *interval)
{
    np_interval_t **place = &overlap->root;

    interval->priority = np_overlap_priority(overlap);
    np_interval_alone(interval);

    while ((*place != NULL) && ((*place)->priority >= interval->priority)) {
        np_interval_include(*place, interval);
        place = np_interval_is_before(interval, *place) ? &(*place)->left :
                &(*place)->right;
    }

    np_interval_split(*place, interval, &interval->left, &interval->right);
    np_interval_update(interval);
    *place = interval;
}

/* The list grows: so does its hull */
static UCS_F_ALWAYS_INLINE void
np_overlap_include(np_overlap_t *overlap, const np_interval_t *interval)
{
    const int last = interval->is_write ? NP_OVERLAP_WRITES : NP_OVERLAP_ALL;
    int kind;

    _Static_assert(NP_OVERLAP_ALL < NP_OVERLAP_WRITES, "a write is of both");
    for (kind = NP_OVERLAP_ALL; kind <= last; ++kind) {
        overlap->begin[kind] = ucs_min(overlap->begin[kind], interval->first);
        overlap->end[kind]   = ucs_max(overlap->end[kind], interval->last + 1);
    }
}

void np_overlap_add(np_overlap_t *overlap, np_interval_t *interval, uint64_t va,
                    uint64_t len, int is_write)
{
    unsigned kind;

    np_assert((len > 0) && ((va + len) > va));
    if (overlap->recent == NULL) {
        for (kind = 0; kind < NP_OVERLAP_LAST; ++kind) {
            overlap->begin[kind] = UINT64_MAX;
            overlap->end[kind]   = 0;
        }
    } else {
        overlap->recent->right = interval;
    }

    interval->first     = va;
    interval->last      = va + len - 1;
    interval->is_write  = is_write;
    interval->is_recent = 1;
    interval->left      = overlap->recent;
    interval->right     = NULL;
    overlap->recent     = interval;
    np_overlap_include(overlap, interval);
}

/* A search comes near the list: all of it goes into the tree */
static void np_overlap_sort(np_overlap_t *overlap)
{
    np_interval_t *interval;

    while ((interval = overlap->recent) != NULL) {
        overlap->recent     = interval->left;
        interval->is_recent = 0;
        np_overlap_insert(overlap, interval);
    }
}

static void np_interval_remove(np_interval_t **place, np_interval_t *interval)
{
    np_interval_t *tree = *place;

    np_assert(tree != NULL); /* it is in the table */
    if (tree == interval) {
        *place = np_interval_join(interval->left, interval->right);
        return;
    }

    np_interval_remove(np_interval_is_before(interval, tree) ? &tree->left :
                       &tree->right, interval);
    np_interval_update(tree);
}

void np_overlap_remove(np_overlap_t *overlap, np_interval_t *interval)
{
    if (!interval->is_recent) {
        np_interval_remove(&overlap->root, interval);
        return;
    }

    if (interval->right != NULL) {
        interval->right->left = interval->left;
    } else {
        overlap->recent = interval->left;
    }
    if (interval->left != NULL) {
        interval->left->right = interval->right;
    }
}

/* If anything before the root reaches @a va, a range that overlaps is there or
 * nowhere: one that reaches it and does not overlap begins after @a last, and
 * then so does all that is after the root. */
int np_overlap_check_steps(np_overlap_t *overlap, uint64_t va, uint64_t len,
                           int is_write, unsigned *steps_p)
{
    const int kind      = is_write ? NP_OVERLAP_ALL : NP_OVERLAP_WRITES;
    const uint64_t last = va + len - 1;
    unsigned steps      = 0;
    int is_found        = 0;
    const np_interval_t *tree;

    if ((overlap->recent != NULL) && (va < overlap->end[kind]) &&
        (overlap->begin[kind] <= last)) {
        np_overlap_sort(overlap);
    }

    tree = overlap->root;
    while ((tree != NULL) && !is_found) {
        ++steps;
        is_found = (tree->first <= last) && (va <= tree->last) &&
                   (is_write || tree->is_write);
        tree     = ((tree->left != NULL) && (tree->left->end[kind] > va)) ?
                   tree->left : tree->right;
    }

    *steps_p = steps;
    return is_found;
}

int np_overlap_check(np_overlap_t *overlap, uint64_t va, uint64_t len,
                     int is_write)
{
    unsigned steps;

    return ucs_unlikely((overlap->root != NULL) ||
                        (overlap->recent != NULL)) &&
           np_overlap_check_steps(overlap, va, len, is_write, &steps);
}
