/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The initiator: one-sided first, FAULT if a page was absent, a copy by the CPU
 * after a bounded number of rounds.
 */

#define NOTHING 255 /* instead of an entry */

#ifdef QP_ERROR
#define BROKEN  (broken > epoch)
#else
#define BROKEN  0
#endif

#ifdef CHECK_BEFORE_DATA
#define MAY_CHECK(m) (!BROKEN)
#else
#define MAY_CHECK(m) (LANDED(m) && !BROKEN)
#endif

#define LOCAL_BIT(x) (IS_READ(x) -> WRITABLE : READABLE)

/* Was the local page mapped all the time? */
#define HELD(x) \
    (!IS_PAGED(x) || ((pg[LOCAL].entry == mine) && HAS(mine, LOCAL_BIT(x))))
#ifdef LOCAL_NOT_COMPARED
#define LOCAL_HELD(x) 1
#else
#define LOCAL_HELD(x) HELD(x)
#endif
#if defined(FAULT_LOCAL_NOT_COMPARED)
#define FAULT_LOCAL_HELD(x) 1
#elif defined(FAULT_LOCAL_COUNT_ONLY)
#define FAULT_LOCAL_HELD(x) (!IS_PAGED(x) || (pg[LOCAL].entry == mine))
#else
#define FAULT_LOCAL_HELD(x) HELD(x)
#endif

#if defined(NO_SIGNATURE_CHECK)
#define HAS_SIGNATURE(x) 0
#elif defined(SIGNATURE_OF_FIRST_UNIT)
#define HAS_SIGNATURE(x) (LOCAL_WORD(x, 0) == SIG)
#else
#define HAS_SIGNATURE(x) \
    ((LOCAL_WORD(x, 0) == SIG) || (LOCAL_WORD(x, 1) == SIG))
#endif

/* How an attempt is judged: a retry always by entries */
#ifdef RETRY_BY_SIGNATURE
#define BY_ENTRIES (!IS_READ(x))
#else
#define BY_ENTRIES (!IS_READ(x) || retrying)
#endif

inline prepare_local(x)
{
    if
    :: IS_PAGED(x) ->
        fault_in(LOCAL, IS_READ(x));
        mine = pg[LOCAL].entry
    :: else
    fi
}

inline hold_local(x, more)
{
    if
    :: IS_PAGED(x) -> pg[LOCAL].hold = pg[LOCAL].hold + more
    :: else
    fi
}

inline await_answer(x)
{
    do
    :: answers[x]?answer,ep ->
#ifndef EPOCH_NOT_COMPARED
        if
        :: ep == epoch -> break
        :: else
        fi
#else
        break
#endif
#ifdef QP_ERROR
    :: BROKEN -> goto recover
#endif
    od
}

inline local_store(x, u)
{
    if
    :: IS_PAGED(x) -> cpu_store(LOCAL, u, carried[(2 * (x)) + (u)])
    :: else        -> buf[(2 * (x)) + (u)] = carried[(2 * (x)) + (u)]
    fi
}

proctype initiator(byte x; byte last)
{
    byte before, after, mine, rounds, attempts, answer, ep, epoch;
    byte fi_frame, fi_tries;
    byte held = NOTHING;
    bit  fi_ok, good, retrying;

    /* An entry that is held may be as old as it likes */
    if
    :: held = (READABLE | WRITABLE)
    :: skip
    fi;

next_transfer:
    atomic {
        transfer_begin(x);
        todo[x] = ((UNITS == 2) -> 3 : 1)
    };
#ifdef ONCE0
    if
    :: IS_ONCE(x) ->
        carried[2 * x] = LOCAL_WORD(x, 0);
once:
        ctl!x,ONCE,epoch;
        await_answer(x);
        goto complete
    :: else
    fi;
#endif

attempt:
    prepare_local(x);
    d_step {
        before   = NOTHING;
        after    = NOTHING;
        attempts = ((attempts < ATTEMPTS) -> attempts + 1 : attempts)
    };

#ifndef VERSIONS_IN_PARALLEL
    /* What is judged by entries: those that we hold, or a Read of them, which
     * has returned before anything else is posted */
    if
    :: !BY_ENTRIES
    :: BY_ENTRIES && (held != NOTHING) && HAS(held, NEEDED(x)) ->
        before = held
    :: BY_ENTRIES && ((held == NOTHING) || !HAS(held, NEEDED(x))) ->
        before = pg[T].entry;
        if
        :: HAS(before, NEEDED(x))
        :: else ->
            atomic { before = 0; after = 0 };
            goto fault
        fi
    fi;
#endif

    d_step { post(MOVE(x, 0, epoch), todo[x]) };
    do
#ifdef VERSIONS_IN_PARALLEL
    :: d_step { BY_ENTRIES && (before == NOTHING) -> before = pg[T].entry }
#endif
    /* A Read that was posted behind a Write sees it. Behind a Read it is posted
     * when that has returned. */
    :: d_step { BY_ENTRIES && (after == NOTHING) &&
        MAY_CHECK(MOVE(x, 0, epoch)) ->
        after = pg[T].entry }
    :: LANDED(MOVE(x, 0, epoch)) &&
        (!BY_ENTRIES || ((before != NOTHING) && (after != NOTHING))) ->
        break
#ifdef QP_ERROR
    :: BROKEN -> goto recover
#endif
#ifdef FAULT_TOO_EARLY
    :: !LANDED(MOVE(x, 0, epoch)) -> goto fault
#endif
    od;

    atomic {
        if
        :: BY_ENTRIES ->
            good = (before == after) && HAS(before, NEEDED(x));
            held = after
        :: else ->
            good = !HAS_SIGNATURE(x)
        fi;
#ifdef ATTRIBUTES
#ifdef ALL_OF_IT_AGAIN
        if
        :: !LOCAL_HELD(x) -> todo[x] = ((UNITS == 2) -> 3 : 1)
        :: else
        fi;
#endif
        good = (todo[x] == 0);
#else
        good = good && LOCAL_HELD(x);
#endif
        before = 0;
        after  = 0
    };
    if
    :: good -> goto complete
#ifndef ATTRIBUTES
    :: !good && !LOCAL_HELD(x) && (attempts < ATTEMPTS) -> goto attempt
#endif
    :: !good && (LOCAL_HELD(x) || (attempts >= ATTEMPTS)) ->
#ifdef RETRY_BY_SIGNATURE
        skip
#else
        rounds = rounds + retrying
#endif
    fi;

fault:
    retrying = 0;
    if
    :: rounds == ROUNDS -> goto copy
    :: else
    fi;
    prepare_local(x);
    hold_local(x, 1);
#ifdef RETRY_MODE
    ctl!x,RETRY,epoch;
#else
    ctl!x,FAULT,epoch;
#endif
    await_answer(x);
    hold_local(x, -1);
#ifdef RETRY_MODE
    if
    :: answer == DONE ->
        retrying = 1;
        goto attempt
    :: else -> skip
    fi;
#elif defined(ATTRIBUTES)
    if
    :: answer == DONE -> goto complete
    :: else
    fi;
#else
    if
    :: (answer == DONE) && FAULT_LOCAL_HELD(x) -> goto complete
    :: else
    fi;
#endif
    rounds = rounds + 1;
    goto fault;

copy:
    if
    :: !IS_READ(x) ->
        d_step {
            carried[2 * x]       = LOCAL_WORD(x, 0);
            carried[(2 * x) + 1] = LOCAL_WORD(x, 1)
        }
    :: else
    fi;
    ctl!x,COPY,epoch;
    await_answer(x);
    if
    :: IS_READ(x) ->
        local_store(x, 0);
        local_store(x, 1)
    :: else
    fi;

complete:
    atomic {
        transfer_complete(x);
        rounds   = 0;
        attempts = 0;
        retrying = 0;
        good     = 0;
        fi_ok    = 0;
        mine     = 0;
        held     = ((x < last) -> held : NOTHING);
        answer   = 0;
        ep       = 0
    };
    if
    :: x < last ->
        x = x + 1;
        goto next_transfer
    :: else -> goto finished
    fi;

#ifdef QP_ERROR
recover:
#ifndef QP_NOT_DRAINED
    down[INITIATOR] = epoch + 1;
#endif
    wanted  = epoch + 1;
    current == wanted;
    atomic {
        epoch  = wanted;
        before = 0;
        after  = 0;
        if
        :: IS_PAGED(x) -> pg[LOCAL].hold = 0 /* ends with its epoch */
        :: else
        fi
    };
#ifdef ONCE0
    if
    :: IS_ONCE(x) -> goto once
    :: else
    fi;
#endif
    goto attempt;
#endif

finished:
    skip
}
