/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pause points: places between two steps at which a test runs something else
 * and goes on, so that races are tested by construction. And mutants:
 * deliberate faults that those tests must find. Both are there in the test
 * build of the engine alone (NP_TEST_BUILD); elsewhere they are nothing.
 */

#ifndef NP_PAUSE_H_
#define NP_PAUSE_H_

/** X(name): between these steps */
#define NP_PAUSE_LIST(X) \
    X(MAP_PRESENT)       /* the page is in, nothing is mapped */ \
    X(MAP_TRANSLATED)    /* translation set, caches not flushed */ \
    X(MAP_FLUSHED)       /* flushed, entry not set */ \
    X(MAP_DONE) \
    X(MAP_LOST)          /* its page went meanwhile, and was given time to go */ \
    X(UNMAP_ENTRY)       /* entry absent, translation still there */ \
    X(UNMAP_TRANSLATED)  /* translation gone, caches not flushed */ \
    X(UNMAP_DONE)        /* the page may go */ \
    X(CHECKED_LOCAL)     /* local entries read, nothing moved */ \
    X(ENTRIES_BEFORE)    /* remote entries read, nothing written */ \
    X(UNIT)              /* between two DMA units */ \
    X(UNIT_IN_FLIGHT)    /* translated, not moved: nothing in this thread may
                            wait for it here */ \
    X(MOVED)             /* all units moved, nothing checked */ \
    X(ENTRIES_AFTER)     /* remote entries read again */ \
    X(JUDGED)            /* data looked at, local entries not yet again */ \
    X(FAULT_SEND)        /* a FAULT is about to be sent */ \
    X(REFUSED)           /* there was no room for a request just now */ \
    X(SERVE_MAPPED)      /* target: pages in and mapped, nothing moved */ \
    X(SERVE_MOVED)       /* target: moved, entries not compared */ \
    X(ANSWERED)          /* initiator: answer seen, not yet acted on */ \
    X(DISCARD)           /* porter: about to close another process's file */

typedef enum np_pause_point {
#define NP_PAUSE_ENUM(_name) NP_PAUSE_##_name,
    NP_PAUSE_LIST(NP_PAUSE_ENUM)
#undef NP_PAUSE_ENUM
    NP_PAUSE_LAST
} np_pause_point_t;

/** X(name): what is done wrongly. Those up to SWAP_OUT_NO_DRAIN are soft0's:
 *  test/engine/test_race.c finds them. test/sim/sim.t has the others, and the
 *  devices on which each is found. */
#define NP_MUTANT_LIST(X) \
    X(NONE) \
    X(ENTRY_AFTER_TRANSLATION)  /* unmap: translation first, then the entry */ \
    X(ENTRY_BEFORE_FLUSH)       /* map: entry, and only then the flush */ \
    X(CHECK_BEFORE_DATA)        /* the check is made before the data moves */ \
    X(COUNT_NOT_BUMPED)         /* transitions keep the entry's count */ \
    X(FAULT_TOO_EARLY)          /* FAULT before the attempt has returned */ \
    X(FENCE_LETS_PASS)          /* a fence holds back no message */ \
    X(SWAP_OUT_NO_DRAIN)        /* swap-out returns with units in flight */ \
    X(READ_UNCHECKED)           /* the signature is taken for data */ \
    X(WRITE_UNCONFIRMED)        /* a put counts whatever entries say after */ \
    X(LOCAL_UNCHECKED)          /* so do our own */ \
    X(BATCH_COUNTS_OLDER)       /* a put that a later one has replaced counts
                                   as there */ \
    X(ORDER_IGNORED)            /* transfers do not wait for others */ \
    X(MESSAGE_OVERTAKEN)        /* nor for puts that are messages */ \
    X(UNLOADED_FORGOTTEN)       /* nor for those of the same memory */ \
    X(ANSWER_OF_ANOTHER)        /* an answer of a queue pair is taken in the
                                   next life of its connection */ \
    X(LEASE_TOO_EARLY)          /* given back before its write is done */ \
    X(REPLAY_TAKEN)             /* what was taken goes again */ \
    X(REPLAY_LOSES)             /* what was not taken does not */ \
    X(ATOMIC_AGAIN)             /* an atomic is executed twice */

typedef enum np_mutant {
#define NP_MUTANT_ENUM(_name) NP_MUTANT_##_name,
    NP_MUTANT_LIST(NP_MUTANT_ENUM)
#undef NP_MUTANT_ENUM
    NP_MUTANT_LAST
} np_mutant_t;

#ifdef NP_TEST_BUILD

#include "unit.h"

/** Set by a test: called at each pause point, by the thread that is there */
extern void (*np_pause_hook)(np_pause_point_t point);
/** Set by a test: the one deliberate fault, or NONE */
extern np_mutant_t np_mutant;

#define NP_PAUSE(_point) \
    do { \
        if (np_pause_hook != NULL) { \
            /* it does what other threads would */ \
            unsigned _depth = np_unit_depth; \
            np_unit_depth   = 0; \
            np_pause_hook(NP_PAUSE_##_point); \
            np_unit_depth   = _depth; \
        } \
    } while (0)
#define NP_IS_MUTANT(_mutant) (np_mutant == NP_MUTANT_##_mutant)
#define NP_HAS_MUTANT         (np_mutant != NP_MUTANT_NONE)

#else

#define NP_PAUSE(_point)      ((void)0)
#define NP_IS_MUTANT(_mutant) 0
#define NP_HAS_MUTANT         0

#endif
#endif
