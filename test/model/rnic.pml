/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The protocol as an RNIC runs it: one link, one page of the target, two
 * transfers, and a queue pair that fails at any moment. See
 * docs/design/model.md. Macros choose what is searched, and what is done
 * wrongly; model.t has them.
 */

/* What is posted: KIND0 first, then KIND1 */
#define PUT    0 /* one-sided out of the program's memory */
#define GET    1
#define SMALL  2 /* a small put: copied, confirmed with others */
#define WORD   3 /* a put that is a message (PUT_ONCE) */
#define ATOMIC 4 /* fetch and add ADDEND */
#define AM     5 /* an active message */

#ifndef KIND0
#define KIND0 PUT
#endif
#ifndef KIND1
#define KIND1 PUT
#endif
#ifndef TRANSFERS
#define TRANSFERS 2
#endif
#define KIND(x) ((x) == 0 -> KIND0 : KIND1)

/* Values of a word */
#define OLD      0
#define SIG      1
#define VALUE(x) (2 + (x))
#define ADDEND   4
#define JUNK     16

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

/* The second transfer's word; the first one's is 0 */
#ifndef BASE1
#define BASE1 0
#endif
#define WORDS   2
#define BASE(x) ((x) * BASE1)

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
#ifndef MAPS
#define MAPS SWAPS
#endif
#ifndef FAULT_IN_ROUNDS
#define FAULT_IN_ROUNDS 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef FAILURES
#define FAILURES 0
#endif

/* Memory is pinned while somebody has registered it */
#define MAY_GO(p) (pg[p].hold == 0)

/*
 * Properties
 */
#define NOT_BEGUN 0
#define OPEN      1
#define COMPLETE  2

byte phase[2];
byte executed[2];    /* times that a message was */
byte rank;           /* the word that both write is of this transfer */
byte buf[2];         /* what a get or an atomic has brought */

/* What is looked at is hidden: it is no state */
hidden byte word_is_right, is_not_older, value_is_right, was_executed_once,
            lease_is_held, fence_has_held, is_open, is_asked_once,
            nothing_is_left, is_there;

#define IS_WRITE(k)  (((k) == PUT) || ((k) == SMALL) || ((k) == WORD) || \
                      ((k) == ATOMIC))
#define MEM(w)       pg[T].mem[w]
#define MEETS        ((BASE1 == 0) && IS_WRITE(KIND0))
#define FINAL0       ((KIND0 == ATOMIC) -> OLD + ADDEND : VALUE(0))
#define BEFORE(x)    ((((x) == 1) && MEETS) -> FINAL0 : OLD)
#define FINAL1       ((KIND1 == ATOMIC) -> BEFORE(1) + ADDEND : VALUE(1))

#define WROTE(x)     (IS_WRITE(KIND(x)) && (phase[x] == COMPLETE))
#define WRITES(x)    (IS_WRITE(KIND(x)) && (phase[x] == OPEN))

/* What was reported complete is what the page has */
#if BASE1 == 0
#define IS_RIGHT \
    (WROTE(1) -> (MEM(0) == FINAL1) : \
     (!WROTE(0) || (MEM(0) == FINAL0) || \
      (WRITES(1) && (MEM(0) == FINAL1))))
#else
#define IS_RIGHT \
    ((!WROTE(0) || (MEM(0) == FINAL0)) && (!WROTE(1) || (MEM(1) == FINAL1)))
#endif

inline content_changed(p)
{
    word_is_right = IS_RIGHT;
    assert(word_is_right)
}

/* A word is written for a transfer: while that is open, and never over what a
 * later one has written */
inline target_write(x, value)
{
    is_not_older = (phase[x] == OPEN) && ((BASE1 != 0) || (rank <= (x)));
    assert(is_not_older);
    pg[T].mem[BASE(x)] = value;
    if
    :: BASE1 == 0 -> rank = x
    :: else
    fi;
    content_changed(T)
}

inline transfer_complete(x)
{
    is_open = phase[x] == OPEN;
    assert(is_open);
    phase[x] = COMPLETE;
    if
    :: (KIND(x) == GET) || (KIND(x) == ATOMIC) ->
        value_is_right = (IS_PAGED(x) -> pg[LOCAL].mem[0] : buf[x]) ==
                         BEFORE(x);
        assert(value_is_right)
    :: else
    fi;
    if
    :: (KIND(x) == WORD) || (KIND(x) == ATOMIC) || (KIND(x) == AM) ->
        was_executed_once = executed[x] == 1;
        assert(was_executed_once)
    :: else
    fi;
    content_changed(T)
}

/* A message is executed */
inline execute(x)
{
    executed[x]       = executed[x] + 1;
    was_executed_once = executed[x] == 1;
    assert(was_executed_once)
}

#include "page.pml"
#include "queue.pml"
#include "peer.pml"
#include "link.pml"

/* Somebody has the page mapped again: a prefetch, another peer */
proctype mapper()
{
    byte fi_frame, fi_tries, count;
    bit  fi_ok;

end:
    do
    :: atomic { (count < MAPS) && (pg[T].entry & 3) != (READABLE | WRITABLE) ->
        count = count + 1 } ->
        fault_in(T, 1);
        fi_ok = 0
    od
}

init
{
    atomic {
        d_step {
            page_init(T);
#ifdef LOCAL_PAGE
            page_init(LOCAL);
            pg[LOCAL].mem[0]  = (KIND0 == GET -> JUNK : VALUE(0));
            pg[LOCAL].back[0] = (KIND0 == GET -> JUNK : VALUE(0));
#endif
            buf[0] = JUNK;
            buf[1] = JUNK
        }
        run os(T, SWAPS);
#ifdef LOCAL_PAGE
        run os(LOCAL, LOCAL_SWAPS);
#endif
        run mapper();
        run writer();
        run reader();
        run answerer();
        run peer();
        run link()
    }
}
