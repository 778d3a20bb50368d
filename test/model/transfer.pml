/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The protocol of entries and checks: one page at the target, two transfers,
 * and an operating system that takes the page at any time. See
 * docs/design/model.md. Macros choose what is searched, and what is done
 * wrongly; model.t has them.
 */

/* Values of a word */
#ifndef OLD
#define OLD  0
#endif
#define SIG  1
#define JUNK 4
#define VALUE(x) (2 + (x))

/* Pages: the target's and, of the first transfer, the local one */
#define T 0
#ifdef LOCAL_PAGE
#define LOCAL 1
#define PAGES 2
#define IS_PAGED(x) ((x) == 0)
#else
#define LOCAL 0
#define PAGES 1
#define IS_PAGED(x) 0
#endif

/* Sides of a queue pair */
#define TARGET    0
#define INITIATOR 1

#ifndef TRANSFERS
#define TRANSFERS 2
#endif
#ifndef UNITS
#define UNITS 2
#endif

/* The second transfer's first word; the first one's is 0 */
#ifndef BASE1
#define BASE1 0
#endif
#define WORDS   (2 + BASE1)
#define BASE(x) ((x) * BASE1)

#ifdef READ0
#define IS_READ(x) ((x) == 0)
#else
#define IS_READ(x) 0
#endif
#ifdef ONCE0
#define IS_ONCE(x) ((x) == 0)
#endif
#define LOCAL_WORD(x, u) \
    (IS_PAGED(x) -> pg[LOCAL].mem[u] : buf[(2 * (x)) + (u)])
#define NEEDED(x) (IS_READ(x) -> READABLE : WRITABLE)

/* Bounds */
#ifndef SWAPS
#define SWAPS 2
#endif
#ifndef LOCAL_SWAPS
#define LOCAL_SWAPS 1
#endif
#ifndef TOUCHES
#define TOUCHES 1
#endif
#ifndef FAULT_IN_ROUNDS
#define FAULT_IN_ROUNDS 2
#endif
#ifndef SERVE_ROUNDS
#define SERVE_ROUNDS 1
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 1
#endif
#define CTL_SLOTS 2

/*
 * Properties
 */
#define NOT_BEGUN 0
#define OPEN      1
#define COMPLETE  2

byte phase[2];
byte later;        /* 1: the second began when the first was complete; 2:
                    * the first, when the second was */
byte had[WORDS];   /* values since the read began, a bit for each */

#ifdef CONSUMER
byte consumed;
#endif

#define MEM(w)          pg[T].mem[w]
#define WRITES(x, w)    (((x) < TRANSFERS) && !IS_READ(x) && \
                         ((w) >= BASE(x)) && ((w) < (BASE(x) + UNITS)))
#define IS_OPEN(x, w)   (WRITES(x, w) && (phase[x] == OPEN))
#define IS_DONE(x, w)   (WRITES(x, w) && (phase[x] == COMPLETE))

/* What was reported complete is what the page has */
#ifdef CONSUMER
#define WORD_IS_RIGHT(w) \
    ((phase[0] == OPEN) || \
     ((phase[0] == NOT_BEGUN) && (MEM(w) == OLD)) || \
     ((w) != 0) || consumed || (MEM(w) == VALUE(0)))
#else
#define WORD_IS_RIGHT(w) \
    ((IS_OPEN(0, w) || IS_OPEN(1, w)) -> \
     ((!IS_DONE(0, w) && !IS_DONE(1, w)) || (MEM(w) != OLD)) : \
     ((IS_DONE(0, w) && IS_DONE(1, w)) -> \
      (((MEM(w) == VALUE(0)) && (later != 1)) || \
       ((MEM(w) == VALUE(1)) && (later != 2))) : \
      (IS_DONE(0, w) -> (MEM(w) == VALUE(0)) : \
       (IS_DONE(1, w) -> (MEM(w) == VALUE(1)) : (MEM(w) == OLD)))))
#endif

inline word_changed(w)
{
#ifdef READ0
    had[w] = ((phase[0] == OPEN) -> (had[w] | (1 << MEM(w))) : 0);
#endif
    assert(WORD_IS_RIGHT(w))
}

inline content_changed(p)
{
    if
    :: p == T ->
        word_changed(0);
        word_changed(1);
#if WORDS > 2
        word_changed(2);
#endif
#if WORDS > 3
        word_changed(3);
#endif
    :: else
    fi
}

inline transfer_begin(x)
{
    assert(phase[x] == NOT_BEGUN);
    phase[x] = OPEN;
    if
#ifdef OVERLAP_PASSES
    :: (x == 1) && (phase[0] == OPEN) -> later = 1 /* it was posted later */
#endif
    :: phase[1 - x] == COMPLETE -> later = ((x == 1) -> 1 : 2)
    :: else
    fi;
    if
    :: IS_READ(x) ->
        had[BASE(x)]     = 1 << MEM(BASE(x));
        had[BASE(x) + 1] = 1 << MEM(BASE(x) + 1)
    :: else
    fi
}

inline transfer_complete(x)
{
    /* Once, and only once */
    assert(phase[x] == OPEN);
    phase[x] = COMPLETE;
    if
    :: IS_READ(x) ->
        /* Each word is one that the memory had */
        assert(had[BASE(x)] & (1 << LOCAL_WORD(x, 0)));
        assert(had[BASE(x) + 1] & (1 << LOCAL_WORD(x, 1)))
    :: !IS_READ(x) && IS_PAGED(x) ->
        /* The program uses its buffer for something else */
        pg[LOCAL].mem[0]  = JUNK;
        pg[LOCAL].mem[1]  = JUNK;
        pg[LOCAL].back[0] = JUNK;
        pg[LOCAL].back[1] = JUNK
    :: !IS_READ(x) && !IS_PAGED(x) ->
        buf[2 * (x)]       = JUNK;
        buf[(2 * (x)) + 1] = JUNK
    fi;
    content_changed(T); /* checks it */
    /* No hold is left */
    assert(!IS_PAGED(x) || (pg[LOCAL].hold == 0));
    assert((TRANSFERS == 2) && (phase[1 - x] != COMPLETE) ||
           (pg[T].hold == 0))
}

#include "page.pml"
#include "device.pml"
#include "target.pml"
#include "initiator.pml"

#ifdef CONSUMER
/* Polls its mailbox, takes what it finds, and clears it: it does not know when
 * the put is complete */
proctype consumer()
{
end:
    do
    :: atomic { MEM(0) != OLD ->
        assert(MEM(0) == VALUE(0));
        assert(consumed == 0);
        consumed = 1 } ->
        cpu_store(T, 0, OLD)
    od
}
#endif

inline local_init(x)
{
    if
    :: IS_PAGED(x) ->
        page_init(LOCAL);
        pg[LOCAL].mem[0]  = (IS_READ(x) -> JUNK : VALUE(x));
        pg[LOCAL].mem[1]  = (IS_READ(x) -> JUNK : VALUE(x));
        pg[LOCAL].back[0] = (IS_READ(x) -> JUNK : VALUE(x));
        pg[LOCAL].back[1] = (IS_READ(x) -> JUNK : VALUE(x))
    :: else ->
        buf[2 * (x)]       = (IS_READ(x) -> JUNK : VALUE(x));
        buf[(2 * (x)) + 1] = (IS_READ(x) -> JUNK : VALUE(x))
    fi
}

init
{
    atomic {
        d_step {
            page_init(T);
            pg[T].mem[0]  = OLD;
            pg[T].mem[1]  = OLD;
            pg[T].back[0] = OLD;
            pg[T].back[1] = OLD;
#if WORDS > 2
            pg[T].mem[2]  = OLD;
            pg[T].back[2] = OLD;
#endif
#if WORDS > 3
            pg[T].mem[3]  = OLD;
            pg[T].back[3] = OLD;
#endif
            local_init(0);
#if TRANSFERS > 1
            local_init(1);
#endif
        }
        run os(T, SWAPS);
#ifdef LOCAL_PAGE
        run os(LOCAL, LOCAL_SWAPS);
#endif
        run devices();
        run service();
#if SERVERS > 1
        run service();
#endif
#ifdef OTHER
        run other(T);
#endif
#ifdef LOCAL_OTHER
        run other(LOCAL);
#endif
#ifdef CONSUMER
        run consumer();
#endif
#if defined(ORDERED) || (TRANSFERS == 1)
        run initiator(0, TRANSFERS - 1)
#else
        run initiator(0, 0);
        run initiator(1, 1)
#endif
    }
}
