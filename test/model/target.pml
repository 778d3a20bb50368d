/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The target's service: FAULT, copies by the CPU, messages that are executed
 * once, and its part of replacing a queue pair.
 */

/* Requests. Retry: FAULT, answered by READY. */
#define FAULT 0
#define RETRY 1
#define COPY  2
#define ONCE  3

/* Answers */
#define DONE  0
#define AGAIN 1

chan ctl        = [CTL_SLOTS] of { byte, byte, byte }; /* transfer, request,
                                                          epoch */
chan answers[2] = [2] of { byte, byte };               /* answer, epoch */
byte carried[4];       /* data inside a message */

/* The epoch that the initiator asks for, and the one that the target is in */
byte wanted;
byte current;

/* Messages that were executed, by their first number */
bit executed[2];

#ifdef RECLAIMS
byte reclaims;
#endif

proctype service()
{
    byte x, request, ep, answer, before, tries, fi_frame, fi_tries;
    bit  fi_ok;

end:
    do
    :: ctl?x,request,ep ->
#ifdef EPOCH_NOT_COMPARED
        ep = current;
#endif
        if
        :: ep != current -> goto answered
        :: (ep == current) && (request == COPY) ->
            if
            :: IS_READ(x) ->
                d_step {
                    carried[2 * x]       = pg[T].mem[BASE(x)];
                    carried[(2 * x) + 1] = pg[T].mem[BASE(x) + 1]
                }
            :: !IS_READ(x) && (todo[x] & 1) ->
                cpu_store(T, BASE(x), carried[2 * x])
            :: else
            fi;
            if
            :: !IS_READ(x) && (todo[x] & 2) ->
                cpu_store(T, BASE(x) + 1, carried[(2 * x) + 1])
            :: else
            fi
        :: (ep == current) && (request == ONCE) ->
#ifdef ONCE_WITHOUT_NUMBER
            cpu_store(T, BASE(x), carried[2 * x])
#else
            if
            :: !executed[x] ->
                cpu_store(T, BASE(x), carried[2 * x]);
                executed[x] = 1
            :: else
            fi
#endif
        :: (ep == current) && ((request == FAULT) || (request == RETRY)) ->
            answer = AGAIN;
            do
            :: (answer == DONE) || (tries == SERVE_ROUNDS) -> break
            :: (answer != DONE) && (tries != SERVE_ROUNDS) ->
                tries = tries + 1;
#ifdef RECLAIMS
                /* No frame is free: one is taken from another page first */
                if
                :: atomic { (reclaims < RECLAIMS) && !pg[T].present &&
                    pg[LOCAL].present && !pg[LOCAL].busy ->
                    reclaims       = reclaims + 1;
                    pg[LOCAL].busy = 1 } ->
                    swap_out(LOCAL)
                :: pg[T].present
                fi;
#endif
                fault_in(T, !IS_READ(x));
                if
                :: !fi_ok -> break
                :: else
                fi;
                d_step {
                    before     = pg[T].entry;
                    pg[T].hold = pg[T].hold + 1
                };
                if
                :: request == RETRY ->
                    answer = DONE
                :: request == FAULT ->
                    d_step { post(MOVE(x, 1, ep), todo[x]) };
                    if
                    :: LANDED(MOVE(x, 1, ep))
#ifdef QP_ERROR
                    :: wanted != current -> /* it fails with its queue pair */
                        pg[T].hold = pg[T].hold - 1;
                        goto answered
#endif
                    fi;
#ifdef TARGET_NOT_COMPARED
                    answer = DONE
#elif defined(ATTRIBUTES)
                    answer = ((todo[x] == 0) -> DONE : AGAIN)
#else
                    answer = (((pg[T].entry == before) &&
                               HAS(before, NEEDED(x))) -> DONE : AGAIN)
#endif
                fi;
                pg[T].hold = pg[T].hold - 1
            od
        fi;
        answers[x]!answer,ep;
answered:
        atomic {
            x       = 0;
            request = 0;
            ep      = 0;
            answer  = DONE;
            before  = 0;
            tries   = 0;
            fi_ok   = 0
        }
#ifdef QP_ERROR
    :: wanted > current ->
#if defined(QP_REVERSE_NOT_DRAINED)
        DRAINED(0) && DRAINED(1);
#elif !defined(QP_NOT_DRAINED)
        down[TARGET] = wanted;
        /* Nothing is left of the old queue pair */
        DRAINED(0) && DRAINED(1) && DRAINED(2) && DRAINED(3);
#endif
        current = wanted
#endif
    od
}
