/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which way a small put takes (seed 002, section 3.2): offloaded, by the
 * device into the target's memory, or unloaded, by a message that the target's
 * CPU moves. A device that has the translation of the page is faster; one that
 * has not waits for it.
 *
 * Two calls: np_unload_decides() for each such put, and np_unload_observe()
 * when it is known what one has cost. Neither knows the device: what a policy
 * believes of its cache follows from what was written.
 *
 * Pages are counted in a table of 16-bit cells, by a hash. Each cell has a tag,
 * and counts for the page that comes to it most: another page counts it down
 * first. While that happens to a quarter of the writes the table doubles, up to
 * NP_UNLOAD_MAX_CELLS, and begins anew. So it takes some 2 to 4 bytes for each
 * page that is written again and again, and 2 MiB at most.
 *
 * A page is hot if it is among the NP_UNLOAD_PAGES that were written most. The
 * count that tells so is found by sweeps over the table, two lines of cells
 * with every 32nd put; every NP_UNLOAD_DECAY sweeps all counts are halved.
 */

#ifndef NP_UNLOAD_H_
#define NP_UNLOAD_H_

#include "../mem/page.h"
#include "../thread_flags.h"

#include <ucs/sys/compiler_def.h>

#include <stdint.h>

/** Pages whose translation a device is believed to keep */
#define NP_UNLOAD_PAGES      4096u

#define NP_UNLOAD_MIN_CELLS  (1u << 11)
#define NP_UNLOAD_MAX_CELLS  (1u << 20)

/** Sweeps after which counts are halved */
#define NP_UNLOAD_DECAY      8u

/** Cells that a sweep looks at with every NP_UNLOAD_STRIDE-th put */
#define NP_UNLOAD_STEP       64u
#define NP_UNLOAD_STRIDE     32u

/** auto: of one page in so many each put goes through small models of the
 *  device's cache, of a share of its pages as well: what would it keep if all
 *  puts were offloaded, and what if those to hot pages were? */
#define NP_UNLOAD_SAMPLE     64u
#define NP_UNLOAD_MODEL      (NP_UNLOAD_PAGES / NP_UNLOAD_SAMPLE)
#define NP_UNLOAD_MODEL_MAX  (NP_UNLOAD_MODEL + (NP_UNLOAD_MODEL / 4))

/** auto: one page in so many takes the other way, where what it costs would
 *  not be known otherwise. Pages, not puts: a page that is offloaded now and
 *  then is never in the device's cache, and would not tell what a hit costs.
 */
#define NP_UNLOAD_PROBE      256u

/** auto: where the device keeps all pages there may be so few that none is in
 *  the sample, but each put hits. Then one put in so many tells what its way
 *  costs, and each fourth of these takes the other way. No power of 2: programs
 *  have those. */
#define NP_UNLOAD_TELL       61u

typedef enum np_unload_policy {
    NP_UNLOAD_OFF,        /**< none is unloaded */
    NP_UNLOAD_ALWAYS,     /**< all are */
    NP_UNLOAD_HINT,       /**< all but those that the posting thread says are
                               to hot pages */
    NP_UNLOAD_FREQUENCY,  /**< those to pages that are not hot */
    NP_UNLOAD_AUTO,       /**< as off, always, or frequency: by what each would
                               cost now */
    NP_UNLOAD_LAST
} np_unload_policy_t;

/** As UCX_NPRDMA_UNLOAD names them; the last is NULL */
extern const char *np_unload_policy_names[];

/** What is expected of a put, and what it has cost tells of */
typedef enum np_unload_guess {
    NP_UNLOAD_NONE,       /**< nothing: it was offloaded */
    NP_UNLOAD_HIT,        /**< the device has the translation */
    NP_UNLOAD_MISS,       /**< it has not */
    NP_UNLOAD_UNLOADED,
    NP_UNLOAD_GUESSES
} np_unload_guess_t;

/** A model of the device's cache: the last pages of a sample, the latest
 *  first */
typedef struct np_unload_model {
    uint64_t pages[NP_UNLOAD_MODEL_MAX]; /**< 0: none */
} np_unload_model_t;

/** What auto knows */
typedef struct np_unload_auto {
    np_unload_policy_t way;        /**< it does as this one */
    float              cost[NP_UNLOAD_GUESSES];  /**< ns, of the last ones */
    uint32_t           firsts[NP_UNLOAD_GUESSES]; /**< costs that were seen, up
                                                       to NP_UNLOAD_FIRST */
    float              misses;     /**< share of the last puts of the sample
                                        that would have missed, had all been
                                        offloaded */
    float              cold;       /**< share that did not go to hot pages */
    float              hot_misses; /**< share that did, and would have missed
                                        had these alone been offloaded */
    uint32_t           puts;       /**< lately */
    uint32_t           samples;    /**< of these */
    uint32_t           kept;       /**< puts while the device kept all */
    float              share;      /**< of puts that the sample has, against
                                        that of the hashes */
    uint32_t           capacity;   /**< of the models */
    np_unload_model_t  all;        /**< all puts are offloaded */
    np_unload_model_t  hot;        /**< those to hot pages are */
    np_unload_model_t  probe;      /**< only those that take the other way */
} np_unload_auto_t;

/** Owner: its link; used in turns of its port. All 0: np_unload_init. */
typedef struct np_unload {
    np_unload_policy_t policy;
    unsigned           shift;      /**< of a hash, to the number of a cell */
    uint16_t           *cells;     /**< NULL: not yet, or no memory: none is
                                        unloaded */
    uint32_t           hot;        /**< the least count of a hot page */
    uint32_t           writes;     /**< since this sweep began */
    uint32_t           clashes;    /**< those that found another page in their
                                        cell */
    uint32_t           sweeps;     /**< of this table */
    uint32_t           swept;      /**< cells */
    uint32_t           *counts;    /**< of this sweep: cells by count */
    np_unload_auto_t   *choice;    /**< auto; else NULL */
} np_unload_t;


/** @param [in] policy  What decides from now on.
 *  @return 0, or -1: no memory */
int np_unload_init(np_unload_t *unload, np_unload_policy_t policy);
void np_unload_cleanup(np_unload_t *unload);

/** A put to this page: is it hot? Counts it. */
int np_unload_is_hot(np_unload_t *unload, uint64_t page);

/** A put to this page: is it unloaded, by auto? */
int np_unload_chooses(np_unload_t *unload, uint64_t page,
                      np_unload_guess_t *guess);

/** A put has cost this. @a guess: what np_unload_decides has said of it. */
void np_unload_observe(np_unload_t *unload, np_unload_guess_t guess,
                       uint64_t ns);

/**
 * Is a put unloaded?
 *
 * @param [in]  addr   Remote; a put that crosses a border of pages is of the
 *                     first.
 * @param [out] guess  What np_unload_observe wants to know.
 */
static UCS_F_ALWAYS_INLINE int
np_unload_decides(np_unload_t *unload, uint64_t addr, np_unload_guess_t *guess)
{
    *guess = NP_UNLOAD_NONE;
    switch (unload->policy) {
    case NP_UNLOAD_OFF:
        return 0;
    case NP_UNLOAD_ALWAYS:
        return 1;
    case NP_UNLOAD_HINT:
        return !(np_thread_flags() & NP_THREAD_HOT);
    case NP_UNLOAD_FREQUENCY:
        return !np_unload_is_hot(unload, addr >> NP_PAGE_SHIFT);
    default:
        return np_unload_chooses(unload, addr >> NP_PAGE_SHIFT, guess);
    }
}

#endif
