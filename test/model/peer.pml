/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The target of a link over a queue pair: what messages carry, leases, atomics,
 * and its part of another queue pair.
 */

byte taken;          /* messages */
bit  kept[2];        /* the answer of this atomic */
byte results[2];
byte serves[2];      /* 0, M_WRITE or M_READ: a transfer with leases */
bit  may_write[2];   /* READY has come for it */

inline answer(what, x, value)
{
    answers!what,x,value,taken
}

/* The bytes of a message, or an atomic, by the CPU: it brings the page in */
inline peer_store(x, value, reply)
{
    do
    :: d_step { !pg[T].busy && pg[T].present ->
        execute(x);
        if
        :: KIND(x) == ATOMIC ->
            results[x] = MEM(BASE(x));
            kept[x]    = 1;
            target_write(x, MEM(BASE(x)) + ADDEND)
        :: else -> target_write(x, value)
        fi;
        pg[T].dirty = 1;
        taken       = taken + 1;
        answer(reply, x, results[x]);
        x = 0 } -> break
    :: d_step { !pg[T].busy && !pg[T].present -> swap_in(T) }
    od
}

/* What it has registered for a transfer is given back */
inline peer_give_back(x)
{
    if
    :: lease[x] & PEERS ->
        lease[x]   = lease[x] & LINKS;
        pg[T].hold = pg[T].hold - 1
    :: else
    fi;
    lease_key[x]      = 0;
    serves[x]         = 0;
    may_write[x]      = 0;
    answer_written[x] = 0
}

#define MAY_TAKE (!peer_down && IS_WRITTEN && (peer_imm == NOBODY))

proctype peer()
{
    byte x;
#if FAILURES > 0
    byte what, value, count, left;
#endif

end:
    do
    :: atomic { MAY_TAKE && sq?[M_PUT, _] -> sq?M_PUT,x } ->
        peer_store(x, VALUE(x), A_ACK)
    :: atomic { MAY_TAKE && sq?[M_ATOMIC, _] -> sq?M_ATOMIC,x } ->
        peer_store(x, 0, A_RESULT)
    :: atomic { MAY_TAKE && sq?[M_AGAIN, _] -> sq?M_AGAIN,x } ->
#ifdef ATOMIC_AGAIN
        peer_store(x, 0, A_RESULT)
#else
        d_step {
            taken             = taken + 1;
            was_executed_once = kept[x];
            assert(was_executed_once);
            answer(A_RESULT, x, results[x]);
            x = 0
        }
#endif
    :: d_step { MAY_TAKE && sq?[M_AM, _] ->
        sq?M_AM,x;
        taken = taken + 1;
        execute(x);
#ifdef FENCE
        /* what is behind a fence finds all that was before it */
        fence_has_held = !IS_WRITE(KIND0) || (MEM(0) == FINAL0);
        assert(fence_has_held);
#endif
        answer(A_ACK, x, 0);
        x = 0 }
    :: d_step { MAY_TAKE && sq?[M_WRITE, _] ->
        sq?M_WRITE,x;
        taken         = taken + 1;
        is_asked_once = serves[x] == 0;
        assert(is_asked_once);
        serves[x] = M_WRITE;
        x         = 0 }
    :: d_step { MAY_TAKE && sq?[M_READ, _] ->
        sq?M_READ,x;
        taken         = taken + 1;
        is_asked_once = serves[x] == 0;
        assert(is_asked_once);
        serves[x] = M_READ;
        x         = 0 }
    :: d_step { MAY_TAKE && sq?[M_READY, _] ->
        sq?M_READY,x;
        taken        = taken + 1;
        may_write[x] = (serves[x] == M_READ);
        x            = 0 }
    :: atomic { MAY_TAKE && sq?[M_FETCH, _] -> sq?M_FETCH,x } ->
        do
        :: d_step { !pg[T].busy && pg[T].present ->
            taken = taken + 1;
            answer(A_DATA, x, MEM(BASE(x)));
            x = 0 } -> break
        :: d_step { !pg[T].busy && !pg[T].present -> swap_in(T) }
        od

    /* Leases: of a sink READY tells; a source writes when it may */
    :: d_step { !peer_down && !pg[T].busy &&
        (((serves[0] != 0) && !(lease[0] & PEERS)) ||
         ((serves[1] != 0) && !(lease[1] & PEERS))) ->
        x = (((serves[0] != 0) && !(lease[0] & PEERS)) -> 0 : 1);
        pin(T);
        lease[x] = lease[x] | PEERS;
        if
        :: serves[x] == M_WRITE ->
            lease_key[x] = 1 + failures; /* another one in each epoch */
            answer(A_READY, x, lease_key[x])
        :: else
        fi;
        x = 0 }
    :: d_step { !peer_down &&
        ((may_write[0] && (lease[0] & PEERS)) ||
         (may_write[1] && (lease[1] & PEERS))) ->
        x = ((may_write[0] && (lease[0] & PEERS)) -> 0 : 1);
        answer(WR_LEASE, x, 0);
        may_write[x] = 0;
#ifdef LEASE_TOO_EARLY
        peer_give_back(x);
#endif
        x = 0 }
    :: d_step { !peer_down && (answer_written[0] || answer_written[1]) ->
        x = (answer_written[0] -> 0 : 1);
        peer_give_back(x);
        x = 0 }
    :: d_step { !peer_down && (peer_imm != NOBODY) ->
        x        = peer_imm;
        peer_imm = NOBODY;
        peer_give_back(x);
        answer(A_DONE, x, 0);
        x = 0 }

#if FAILURES > 0
    /* Its side of the queue pair is destroyed, and only then what it has
     * registered is given back */
    :: (broken || wanted) && !peer_down ->
        peer_down = 1;
#ifdef LEASE_OUTLIVES
        d_step { peer_give_back(0); peer_give_back(1) };
#endif
#ifndef QP_NOT_DRAINED
        PEER_IS_DRAINED;
#endif
        d_step {
            peer_give_back(0);
            peer_give_back(1);
            peer_imm = NOBODY
        }
#ifdef QP_NOT_DRAINED
    :: d_step { wanted && peer_down && (writing != FLYING) &&
        (reading == IDLE) && (answering == IDLE) -> queue_renew() }
#else
    :: d_step { wanted && peer_down && IS_DRAINED -> queue_renew() }
#endif
#endif
    od
}
