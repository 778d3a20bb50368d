/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which way a small put takes: the counters, and what auto has measured.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "unload.h"

#include "../hash.h"

#include <stdlib.h>
#include <string.h>

/* A cell: tag above count */
#define NP_UNLOAD_COUNT_BITS 11
#define NP_UNLOAD_COUNT_MAX  ((1u << NP_UNLOAD_COUNT_BITS) - 1)
#define NP_UNLOAD_COUNT(_c)  ((_c) % (1u << NP_UNLOAD_COUNT_BITS))

/* Share of what is new in a mean, and by how much another way must be cheaper
 * before it is taken */
#define NP_UNLOAD_WEIGHT     (1 / 32.0f)
#define NP_UNLOAD_MARGIN     (1 / 64.0f)

/* What took more than so many times the mean counts as so many: the program
 * was elsewhere, or a page was */
#define NP_UNLOAD_LATE       2

/* Of so many first ones the least counts: the way is made ready by them */
#define NP_UNLOAD_FIRST      4u

/* A share of misses below this is a few pages for the first time */
#define NP_UNLOAD_NO_MISSES  (1 / 16.0f)

/* Puts of the sample after which auto chooses again */
#define NP_UNLOAD_CHOOSE     16u

/* Puts after which what was counted of them counts half */
#define NP_UNLOAD_LATELY     65536u

/* Of the upper bits of a page's hash the least values are the sample, the
 * largest is the probe */
#define NP_UNLOAD_PROBE_BITS 8
_Static_assert(((1u << NP_UNLOAD_PROBE_BITS) == NP_UNLOAD_PROBE) &&
               ((NP_UNLOAD_PROBE % NP_UNLOAD_SAMPLE) == 0) &&
               ((NP_UNLOAD_PROBE / NP_UNLOAD_SAMPLE) < NP_UNLOAD_PROBE),
               "shares of the hashes");


const char *np_unload_policy_names[] = {
    [NP_UNLOAD_OFF]       = "off",
    [NP_UNLOAD_ALWAYS]    = "always",
    [NP_UNLOAD_HINT]      = "hint",
    [NP_UNLOAD_FREQUENCY] = "frequency",
    [NP_UNLOAD_AUTO]      = "auto",
    [NP_UNLOAD_LAST]      = NULL
};


static uint32_t np_unload_num_cells(const np_unload_t *unload)
{
    return 1u << (64 - unload->shift);
}

/* An empty table. Until it has been swept all pages of a small one are hot,
 * which take the way that they would have without us; of a large one those that
 * are written twice. */
static int np_unload_make(np_unload_t *unload, uint32_t num_cells)
{
    uint16_t *cells = calloc(num_cells, sizeof(*cells));

    if (cells == NULL) {
        return -1;
    }

    free(unload->cells);
    unload->cells  = cells;
    unload->shift  = 64 - __builtin_ctz(num_cells);
    unload->hot    = (num_cells > (2 * NP_UNLOAD_PAGES)) ? 2 : 0;
    unload->sweeps = 0;
    return 0;
}

int np_unload_init(np_unload_t *unload, np_unload_policy_t policy)
{
    memset(unload, 0, sizeof(*unload));
    if (policy >= NP_UNLOAD_FREQUENCY) {
        unload->counts = calloc(NP_UNLOAD_COUNT_MAX + 1,
                                sizeof(*unload->counts));
        if ((unload->counts == NULL) ||
            (np_unload_make(unload, NP_UNLOAD_MIN_CELLS) != 0)) {
            np_unload_cleanup(unload);
            return -1;
        }
    }

    if (policy == NP_UNLOAD_AUTO) {
        unload->choice = calloc(1, sizeof(*unload->choice));
        if (unload->choice == NULL) {
            np_unload_cleanup(unload);
            return -1;
        }
        unload->choice->capacity = NP_UNLOAD_MODEL;
    }
    unload->policy = policy;
    return 0;
}

void np_unload_cleanup(np_unload_t *unload)
{
    free(unload->cells);
    free(unload->counts);
    free(unload->choice);
    memset(unload, 0, sizeof(*unload));
}

/* Rows of pages with large steps between them are spread as well */
static UCS_F_ALWAYS_INLINE uint64_t np_unload_hash(uint64_t page)
{
    return np_hash(page ^ (page >> 11));
}

/* Count the page of this hash, and return its count */
static UCS_F_ALWAYS_INLINE uint32_t
np_unload_count(np_unload_t *unload, uint64_t hash)
{
    uint16_t *cell      = &unload->cells[hash >> unload->shift];
    /* below what numbers the cells of the largest table */
    const uint32_t tag  = ((hash >> 28) << NP_UNLOAD_COUNT_BITS) & 0xffff;
    uint32_t count      = NP_UNLOAD_COUNT(*cell);

    if (ucs_likely((*cell ^ tag) <= NP_UNLOAD_COUNT_MAX)) {
        *cell += (count < NP_UNLOAD_COUNT_MAX);
        return count + 1;
    }

    unload->clashes += (count > 0);
    if (count > 1) {
        --*cell;
    } else {
        *cell = tag | 1;
    }
    return 1; /* as if it came for the first time */
}

/* The counts are known: which is the least of a hot page? */
static void np_unload_find_hot(np_unload_t *unload)
{
    uint32_t count = NP_UNLOAD_COUNT_MAX, pages = 0;

    for (; count > 1; --count) {
        pages += unload->counts[count];
        if (pages > NP_UNLOAD_PAGES) {
            break;
        }
    }

    if ((count == 1) && (pages + unload->counts[1] <= NP_UNLOAD_PAGES)) {
        unload->hot = 0; /* the device keeps all that there are */
    } else {
        unload->hot = count + 1;
    }
}

static void np_unload_begin_sweep(np_unload_t *unload)
{
    unload->writes  = 0;
    unload->clashes = 0;
    unload->swept   = 0;
    memset(unload->counts, 0,
           (NP_UNLOAD_COUNT_MAX + 1) * sizeof(*unload->counts));
}

static void np_unload_end_sweep(np_unload_t *unload)
{
    const uint32_t num_cells = np_unload_num_cells(unload);

    np_unload_find_hot(unload);
    if ((unload->hot == 0) && (unload->choice != NULL)) {
        /* of few pages none may be in the sample: what it said is forgotten */
        unload->choice->misses /= 2;
    }
    if (++unload->sweeps % NP_UNLOAD_DECAY == 0) {
        unload->hot = (unload->hot + 1) / 2;
    }
    if ((unload->clashes > (unload->writes / 4)) &&
        (num_cells < NP_UNLOAD_MAX_CELLS)) {
        (void)np_unload_make(unload, 2 * num_cells); /* or this one stays */
    }
    np_unload_begin_sweep(unload);
}

/* Look at some cells, and halve what they count if it is time */
static void np_unload_sweep(np_unload_t *unload, uint32_t end)
{
    uint16_t *cells  = unload->cells;
    uint32_t *counts = unload->counts;
    uint32_t i;

    for (i = unload->swept; i < end; ++i) {
        ++counts[NP_UNLOAD_COUNT(cells[i])];
    }

    if ((unload->sweeps + 1) % NP_UNLOAD_DECAY == 0) {
        for (i = unload->swept; i < end; ++i) {
            cells[i] -= (NP_UNLOAD_COUNT(cells[i]) + 1) / 2;
        }
    }
    unload->swept = end;
}

/* Once in NP_UNLOAD_STRIDE puts */
static UCS_F_NOINLINE void np_unload_work(np_unload_t *unload)
{
    np_unload_sweep(unload, unload->swept + NP_UNLOAD_STEP);
    if (unload->swept == np_unload_num_cells(unload)) {
        np_unload_end_sweep(unload);
    }
}

static UCS_F_ALWAYS_INLINE int
np_unload_has_hot(np_unload_t *unload, uint64_t hash)
{
    const int is_hot = np_unload_count(unload, hash) >= unload->hot;

    if (ucs_unlikely((++unload->writes % NP_UNLOAD_STRIDE) == 0)) {
        np_unload_work(unload);
    }
    return is_hot;
}

int np_unload_is_hot(np_unload_t *unload, uint64_t page)
{
    return np_unload_has_hot(unload, np_unload_hash(page));
}

/* A page of the sample is offloaded: would the device have it? */
static int np_unload_model_look(const np_unload_auto_t *choice,
                                np_unload_model_t *model, uint64_t page)
{
    unsigned i;
    int is_hit;

    for (i = 0; (i < choice->capacity - 1) && (model->pages[i] != page); ++i) {
    }

    is_hit = (model->pages[i] == page);
    memmove(&model->pages[1], &model->pages[0], i * sizeof(*model->pages));
    model->pages[0] = page;
    return is_hit;
}

static void np_unload_mean(float *mean, int is_so)
{
    *mean += (is_so - *mean) * NP_UNLOAD_WEIGHT;
}

/* Expected cost of a put, if this share of the sample would be unloaded, and
 * that would miss; a hit never seen is half a miss, or a miss two hits. What
 * the sample has less than its share of puts went to the few pages that are
 * put to most, and hits. */
static float
np_unload_expect(const np_unload_auto_t *choice, float unloaded, float misses)
{
    float hit  = choice->cost[NP_UNLOAD_HIT];
    float miss = choice->cost[NP_UNLOAD_MISS];

    hit      = (hit > 0) ? hit : (miss / 2);
    miss     = (miss > 0) ? miss : (hit * 2);
    unloaded = ucs_min(unloaded * choice->share, 1.0f);
    misses   = ucs_min(misses * choice->share, 1 - unloaded);
    return ((1 - unloaded - misses) * hit) + (misses * miss) +
           (unloaded * choice->cost[NP_UNLOAD_UNLOADED]);
}

/* By how much each way costs now; the one that is taken is given a start */
static void np_unload_choose(np_unload_auto_t *choice)
{
    float costs[NP_UNLOAD_AUTO] = {0};
    np_unload_policy_t way;

    if ((choice->firsts[NP_UNLOAD_UNLOADED] < NP_UNLOAD_FIRST) ||
        ((choice->firsts[NP_UNLOAD_MISS] < NP_UNLOAD_FIRST) &&
         (choice->firsts[NP_UNLOAD_HIT] < NP_UNLOAD_FIRST))) {
        return; /* not known yet */
    }

    costs[NP_UNLOAD_OFF]       = np_unload_expect(choice, 0, choice->misses);
    costs[NP_UNLOAD_ALWAYS]    = choice->cost[NP_UNLOAD_UNLOADED];
    costs[NP_UNLOAD_FREQUENCY] = np_unload_expect(choice, choice->cold,
                                                  choice->hot_misses);
    costs[choice->way]        *= 1 - NP_UNLOAD_MARGIN;
    for (way = NP_UNLOAD_OFF; way < NP_UNLOAD_AUTO; ++way) {
        if ((costs[way] > 0) && (costs[way] < costs[choice->way])) {
            choice->way = way;
        }
    }
}

/* Has the sample its share of puts? If it has more it has more pages as well,
 * or one that is put to most. */
static void np_unload_weigh(np_unload_auto_t *choice)
{
    choice->share    = (float)choice->samples * NP_UNLOAD_SAMPLE / choice->puts;
    choice->capacity = ucs_min(ucs_max(choice->share, 1.0f) * NP_UNLOAD_MODEL,
                               (float)NP_UNLOAD_MODEL_MAX);
    if (choice->puts >= NP_UNLOAD_LATELY) {
        choice->puts    /= 2;
        choice->samples /= 2;
    }
}

/* A page of the sample: what would its put meet? */
static UCS_F_NOINLINE np_unload_guess_t
np_unload_sample(np_unload_auto_t *choice, uint64_t page, int is_hot)
{
    int in_all = np_unload_model_look(choice, &choice->all, page);
    int in_hot = is_hot && np_unload_model_look(choice, &choice->hot, page);

    np_unload_mean(&choice->misses, !in_all);
    np_unload_mean(&choice->cold, !is_hot);
    np_unload_mean(&choice->hot_misses, is_hot && !in_hot);
    if (++choice->samples % NP_UNLOAD_CHOOSE == 0) {
        np_unload_weigh(choice);
        np_unload_choose(choice);
    }
    return ((choice->way == NP_UNLOAD_OFF) ? in_all : in_hot) ?
           NP_UNLOAD_HIT : NP_UNLOAD_MISS;
}

/* Does the device keep all pages that there are, as far as is known? In a first
 * sweep each comes for the first time. */
static int np_unload_keeps_all(const np_unload_t *unload)
{
    return (unload->hot == 0) && (unload->sweeps > 1) &&
           (unload->choice->misses < NP_UNLOAD_NO_MISSES);
}

/* Then each put would hit: one of some chooses, and tells what it costs */
static int np_unload_tells(np_unload_auto_t *choice, np_unload_guess_t *guess)
{
    int is_unloaded;

    *guess = NP_UNLOAD_NONE;
    if (ucs_likely(++choice->kept % NP_UNLOAD_TELL != 0)) {
        return choice->way == NP_UNLOAD_ALWAYS;
    }

    np_unload_choose(choice);
    is_unloaded = (choice->way == NP_UNLOAD_ALWAYS) ^
                  (choice->kept % (4 * NP_UNLOAD_TELL) == 0);
    *guess      = is_unloaded ? NP_UNLOAD_UNLOADED : NP_UNLOAD_HIT;
    return is_unloaded;
}

int np_unload_chooses(np_unload_t *unload, uint64_t page,
                      np_unload_guess_t *guess)
{
    np_unload_auto_t *choice = unload->choice;
    const uint64_t hash      = np_unload_hash(page);
    const int is_hot         = np_unload_has_hot(unload, hash);
    const unsigned share     = hash >> (64 - NP_UNLOAD_PROBE_BITS);
    const int is_probe       = share == (NP_UNLOAD_PROBE - 1);
    const int is_sample      = share < (NP_UNLOAD_PROBE / NP_UNLOAD_SAMPLE);
    int is_unloaded, is_hit;

    ++choice->puts;
    if (ucs_unlikely(is_sample)) {
        *guess = np_unload_sample(choice, page, is_hot);
    }
    if (np_unload_keeps_all(unload)) {
        return np_unload_tells(choice, guess);
    }

    is_unloaded = (choice->way == NP_UNLOAD_ALWAYS) ? !is_probe :
                  (choice->way == NP_UNLOAD_OFF) ? is_probe : !is_hot;
    if (ucs_unlikely(is_probe | is_sample)) {
        if (is_unloaded) {
            *guess = NP_UNLOAD_UNLOADED;
        } else if (choice->way == NP_UNLOAD_ALWAYS) {
            is_hit = np_unload_model_look(choice, &choice->probe, page);
            *guess = is_hit ? NP_UNLOAD_HIT : NP_UNLOAD_MISS;
        }
    }
    return is_unloaded;
}

void np_unload_observe(np_unload_t *unload, np_unload_guess_t guess,
                       uint64_t ns)
{
    np_unload_auto_t *choice = unload->choice;
    float *cost;

    if ((guess == NP_UNLOAD_NONE) || (choice == NULL)) {
        return;
    }

    ns   = ucs_max(ns, UINT64_C(1));
    cost = &choice->cost[guess];
    if (choice->firsts[guess] < NP_UNLOAD_FIRST) {
        *cost = (choice->firsts[guess] == 0) ? ns : ucs_min(*cost, (float)ns);
        ++choice->firsts[guess];
    } else {
        *cost += (ucs_min((float)ns, *cost * NP_UNLOAD_LATE) - *cost) *
                 NP_UNLOAD_WEIGHT;
    }
}
