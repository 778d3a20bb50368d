/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The initiator over a queue pair: one-sided transfers, small puts that are
 * confirmed together, what is asked for, and what goes again over the next
 * queue pair.
 */

#ifdef NO_VIEWS
#define HAS_VIEWS 0
#else
#define HAS_VIEWS 1
#endif
#ifdef BY_MESSAGES
#define BY_MESSAGE 1
#else
#define BY_MESSAGE 0
#endif

/* States of a transfer */
#define FRESH    0
#define LOOKS    1   /* the target's entry is read */
#define MOVES    2   /* its bytes, and what confirms them */
#define FAILED   3   /* by its queue pair; two-sided over the next one */
#define ASKED    4   /* with leases */
#define FETCHES  5   /* a get: by message */
#define SENT     6   /* a message that is to be acknowledged */
#define ADDS     7
#define LIVE     8   /* a small put, not confirmed */
#define REPLACED 9   /* the other batch has a later put of its place */
#define MERGED   10  /* so has its own */
#define BEHIND   11  /* it was not there: complete when that one is */
#define AGAIN    12  /* goes again, as a message */
#define OVER     13

byte state[2];
byte before[2];      /* the target's entry */
byte batch[2];
byte rounds[2];       /* times that it was written */
bit  has_looked[2];
bit  batch_looks[2]; /* wr[] is of this batch */
bit  has_key[2];     /* READY: where to write */
bit  is_over[2];     /* DONE has come */
byte held;           /* the target's entry as last seen; 0: not known */
byte open;           /* batch that may grow */
byte acked;
#ifdef REPLAY_TAKEN
byte last_what, last_of; /* the last message that was acknowledged */
#endif

chan sent = [6] of { byte, byte }; /* messages that are not acknowledged */

/* A message, with a number */
inline say(what, x)
{
    sq!what,x;
    sent!what,x
}

#define IS_UNACKED(x)     (sent??[M_PUT, x] || sent??[M_AM, x])
#define IS_UNASKED(x)     (sent??[M_WRITE, x] || sent??[M_READ, x] || \
                           sent??[M_FETCH, x] || sent??[M_ATOMIC, x] || \
                           sent??[M_AGAIN, x])
#define IS_ASKING(x)      ((state[x] == ASKED) || (state[x] == FETCHES) || \
                           (state[x] == ADDS))

inline give_back(x)
{
    if
    :: lease[x] & LINKS ->
        lease[x] = lease[x] & PEERS;
        if
        :: IS_PAGED(x) -> pg[LOCAL].hold = pg[LOCAL].hold - 1
        :: else
        fi
    :: else
    fi;
    has_key[x] = 0;
    key[x]     = 0;
    is_over[x] = 0
}

/* Those that stand for a later put end with it */
inline complete(x)
{
    give_back(x);
    state[x]      = OVER;
    before[x]     = 0;
    rounds[x]     = 0;
    has_looked[x] = 0;
    if
    :: ((x) == 1) && ((state[0] == MERGED) || (state[0] == BEHIND)) ->
        state[0]  = OVER;
        before[0] = 0;
        phase[0]  = COMPLETE
    :: else
    fi;
    transfer_complete(x)
}

inline check_acked()
{
    is_there = IS_UNACKED(0);
    if
    :: (state[0] == SENT) && !is_there -> complete(0)
    :: else
    fi;
    is_there = IS_UNACKED(1);
    if
    :: (state[1] == SENT) && !is_there -> complete(1)
    :: else
    fi
}

inline heard(count)
{
    do
    :: (acked < count) && (len(sent) > 0) ->
#ifdef REPLAY_TAKEN
        sent?last_what,last_of;
#else
        sent?_,_;
#endif
        acked = acked + 1
    :: else -> break
    od
}

/* What is not confirmed one-sided */
inline fall_back(x)
{
    if
    :: (KIND(x) == SMALL) || ((KIND(x) == PUT) && BY_MESSAGE) ->
        state[x] = SENT;
        say(M_PUT, x)
    :: (KIND(x) == PUT) && !BY_MESSAGE ->
        state[x] = ASKED;
        say(M_WRITE, x)
    :: (KIND(x) == GET) && BY_MESSAGE ->
        state[x] = FETCHES;
        say(M_FETCH, x)
    :: (KIND(x) == GET) && !BY_MESSAGE ->
        state[x] = ASKED;
        say(M_READ, x)
    fi;
    before[x] = 0
}

#define OUR_BITS(x) ((KIND(x) == GET) -> READABLE | WRITABLE : READABLE)

#ifdef LOCAL_UNCHECKED
#define IS_OURS(x) 1
#else
#define IS_OURS(x) (!IS_PAGED(x) || (pg[LOCAL].entry == mine))
#endif

/* A one-sided step; x is 0 or 1, and known to be what it is */
inline one_post(x)
{
    if
    :: IS_PAGED(x) && ((KIND(x) == GET) || HAS(held, WRITABLE)) ->
        fault_in(LOCAL, KIND(x) == GET);
        fi_ok = 0;
        mine  = pg[LOCAL].entry;
        if
        :: !HAS(mine, OUR_BITS(x)) -> fails = 1
        :: else
        fi
    :: else
    fi;
    atomic {
        if
        :: fails -> fall_back(x)
        :: !fails && (KIND(x) == GET) ->
            state[x] = MOVES;
            wr[x]    = OUT;
            sq!WR_READ,x
        :: !fails && (KIND(x) != GET) && HAS(held, WRITABLE) ->
            state[x]      = MOVES;
            has_looked[x] = 1;
            before[x]     = held;
            wr[x]         = OUT;
            sq!WR_WRITE,x;
            sq!WR_LOOK,x
        :: !fails && (KIND(x) != GET) && !HAS(held, WRITABLE) &&
            !has_looked[x] ->
            has_looked[x] = 1;
            state[x]      = LOOKS;
            wr[x]         = OUT;
            sq!WR_LOOK,x
        :: !fails && (KIND(x) != GET) && !HAS(held, WRITABLE) &&
            has_looked[x] ->
            fall_back(x)
        fi;
        fails = 0
    }
}

#ifdef WRITE_UNCONFIRMED
#define IS_HELD(x) 1
#else
#define IS_HELD(x) ((held == before[x]) && HAS(held, WRITABLE))
#endif

#ifdef READ_UNCHECKED
#define HAS_SIGNATURE(x) 0
#else
#define HAS_SIGNATURE(x) ((IS_PAGED(x) -> pg[LOCAL].mem[0] : buf[x]) == SIG)
#endif

/* Puts of a batch: with its entry, or without any */
inline put_check(x, b, has_entry)
{
    if
    :: ((state[x] == LIVE) || (state[x] == REPLACED)) && (batch[x] == (b)) ->
        if
        :: (has_entry) && IS_HELD(x) -> complete(x)
        :: !((has_entry) && IS_HELD(x)) && (state[x] == LIVE) ->
            state[x]  = AGAIN;
            before[x] = 0;
#ifdef BEHIND_ENDS_EARLY
            if
            :: state[0] == BEHIND -> complete(0)
            :: else
            fi
#endif
        :: !((has_entry) && IS_HELD(x)) && (state[x] == REPLACED) ->
#ifdef BATCH_COUNTS_OLDER
            complete(x)
#else
            state[x]  = BEHIND;
            before[x] = 0;
            if
            :: state[1] == OVER -> complete(0)
            :: else
            fi
#endif
        fi
    :: else
    fi
}

inline put_again(x)
{
    if
    :: state[x] == AGAIN ->
        state[x] = SENT;
        say(M_PUT, x)
    :: else
    fi
}

inline batch_close()
{
    if
    :: open != NOBODY ->
        sq!WR_LOOK,open;
        wr[open]          = OUT;
        batch_looks[open] = 1;
        open              = NOBODY
    :: else
    fi
}

inline small_post(x)
{
    before[x] = held;
    if
    :: open == NOBODY -> open = x
    :: else
    fi;
    batch[x] = open;
    if
    :: ((x) == 1) && (BASE1 == 0) && (state[0] == LIVE) ->
        state[0] = ((batch[0] == open) -> MERGED : REPLACED)
    :: else
    fi;
    state[x] = LIVE;
    sq!WR_WRITE,x
}

/* May the second one begin? */
#if defined(FENCE) && !defined(FENCE_LETS_PASS)
#define IS_FENCED (phase[0] != COMPLETE)
#else
#define IS_FENCED 0
#endif
#ifdef ORDER_IGNORED
#define PASSES 1
#elif defined(MESSAGE_OVERTAKEN)
#define PASSES (KIND0 == WORD)
#else
#define PASSES 0
#endif
#define MAY_POST_SECOND \
    (!IS_FENCED && \
     ((phase[0] == COMPLETE) || (KIND1 == AM) || \
      ((KIND1 == ATOMIC) && ((KIND0 == ATOMIC) || (KIND0 == WORD))) || \
      ((KIND1 != ATOMIC) && \
       ((BASE1 != 0) || (KIND0 == AM) || \
        ((KIND0 == WORD) && ((KIND1 == WORD) || !HAS_VIEWS)) || \
        ((KIND0 == SMALL) && (KIND1 == SMALL) && (state[0] == LIVE) && \
         HAS(held, WRITABLE)) || \
        PASSES))))
#define MAY_POST(x) \
    ((state[x] == FRESH) && ((x) < TRANSFERS) && \
     (((x) == 0) || ((state[0] != FRESH) && MAY_POST_SECOND)))

/* What a transfer begins with */
inline post(x)
{
    phase[x] = OPEN;
    if
    :: (KIND(x) == SMALL) && HAS_VIEWS && HAS(held, WRITABLE) ->
        small_post(x)
    :: (KIND(x) == WORD) || ((KIND(x) == SMALL) && !HAS_VIEWS) ->
        state[x] = SENT;
        say(M_PUT, x)
    :: KIND(x) == AM ->
        state[x] = SENT;
        say(M_AM, x)
    :: KIND(x) == ATOMIC ->
        state[x] = ADDS;
        say(M_ATOMIC, x)
    :: ((KIND(x) == PUT) || (KIND(x) == GET)) && !HAS_VIEWS ->
        fall_back(x)
    :: ((KIND(x) == PUT) || (KIND(x) == GET) ||
        ((KIND(x) == SMALL) && !HAS(held, WRITABLE))) && HAS_VIEWS ->
        one = x
    fi
}

/* A one-sided transfer's request is back */
inline one_back(x)
{
    atomic {
        wr[x] = NO;
        if
        :: state[x] == LOOKS ->
            held = looked_at[x];
            one  = x
        :: (state[x] == MOVES) && (KIND(x) == GET) ->
            if
            :: !HAS_SIGNATURE(x) && IS_OURS(x) -> complete(x)
            :: else ->
                held = 0;
                fall_back(x)
            fi
        :: (state[x] == MOVES) && (KIND(x) != GET) ->
            held = looked_at[x];
            if
            :: IS_HELD(x) && IS_OURS(x) -> complete(x)
            :: !(IS_HELD(x) && IS_OURS(x)) && (rounds[x] + 1 < ROUNDS) ->
                rounds[x] = rounds[x] + 1;
                one    = x
            :: !(IS_HELD(x) && IS_OURS(x)) && (rounds[x] + 1 >= ROUNDS) ->
                held = 0;
                fall_back(x)
            fi
        :: state[x] == ASKED -> /* its Write into the lease */
            if
            :: is_over[x] -> complete(x)
            :: else
            fi
        fi;
        looked_at[x] = 0;
        if
        :: one == NOBODY -> mine = 0
        :: else
        fi
    }
}

inline batch_back(b)
{
    d_step {
        wr[b]          = NO;
        batch_looks[b] = 0;
        held           = looked_at[b];
        looked_at[b]   = 0;
        put_check(0, b, 1);
        put_check(1, b, 1);
        put_again(0);
        put_again(1)
    }
}

/* Its queue pair has failed */
inline op_lost(x)
{
    if
    :: (state[x] == LOOKS) || (state[x] == MOVES) ->
        state[x]  = FAILED;
        before[x] = 0
    :: state[x] == ASKED -> give_back(x)
    :: else
    fi;
    wr[x]          = NO;
    looked_at[x]   = 0;
    batch_looks[x] = 0
}

/* What the target has taken and not completed is asked for first */
inline ask_again(x)
{
    is_there = IS_UNASKED(x);
    if
    :: IS_ASKING(x) && !is_there ->
        if
        :: state[x] == ADDS    -> say(M_AGAIN, x)
        :: state[x] == FETCHES -> say(M_FETCH, x)
        :: state[x] == ASKED   ->
            if
            :: KIND(x) == GET -> say(M_READ, x)
            :: else           -> say(M_WRITE, x)
            fi
        fi
    :: else
    fi
}

inline rest_again(x)
{
    put_again(x);
    if
    :: state[x] == FAILED -> fall_back(x)
    :: else
    fi
}

/* Over the new queue pair: what was taken and is not complete, messages that
 * were not taken, and what was under way one-sided */
inline replay()
{
#ifdef REPLAY_TAKEN
    last_what = 0;
#endif
    heard(taken);
    check_acked();
    n = len(sent);
    ask_again(0);
    ask_again(1);
#ifdef REPLAY_TAKEN
    if
    :: (last_what != 0) && (last_what != M_READY) && (last_what != M_ATOMIC) &&
       (last_what != M_AGAIN) -> say(last_what, last_of)
    :: else
    fi;
    last_what = 0;
    last_of   = 0;
#endif
#ifdef REPLAY_LOSES
    if
    :: n > 0 ->
        sent?_,_;
        n = n - 1
    :: else
    fi;
#endif
    do
    :: n > 0 ->
        n = n - 1;
        sent?what,x;
        if
        :: what != M_READY -> say(what, x)
        :: else /* of a transfer that begins anew */
        fi
    :: n == 0 -> break
    od;
    check_acked();
    rest_again(0);
    rest_again(1);
    what = 0;
    x    = 0
}

/* Its queue pair works as far as it knows, and no step waits to be made */
#define IS_FREE  (!link_down && (one == NOBODY))
#define MAY_HEAR \
    (IS_FREE && (answering == IDLE) && (link_imm == NOBODY))
/* Memory of ours that is to be registered for x */
#define MAY_LEASE(x) \
    (IS_FREE && (state[x] == ASKED) && !(lease[x] & LINKS) && \
     (!IS_PAGED(x) || !pg[LOCAL].busy))
#define MAY_WRITE(x) \
    (IS_FREE && has_key[x] && (lease[x] & LINKS) && (wr[x] == NO))

proctype link()
{
    byte x, what, value, count, n, mine;
    byte fi_frame, fi_tries;
    byte one = NOBODY; /* goes on one-sided */
    bit  fi_ok, fails;

    d_step { open = NOBODY };
    /* An entry that is held may be as old as it likes */
    if
    :: held = (READABLE | WRITABLE)
    :: skip
    fi;

    do
    :: (phase[0] == COMPLETE) && ((TRANSFERS == 1) || (phase[1] == COMPLETE)) ->
        break

    :: atomic { IS_FREE && MAY_POST(0) -> post(0) }
    :: atomic { IS_FREE && MAY_POST(1) -> post(1) }
    :: one == 0 -> one = NOBODY; one_post(0)
    :: one == 1 -> one = NOBODY; one_post(1)

    /* Small puts are confirmed when somebody waits, or soon */
    :: d_step { IS_FREE && (open != NOBODY) -> batch_close() }

    :: IS_FREE && (wr[0] == BACK) && !batch_looks[0] -> one_back(0)
    :: IS_FREE && (wr[1] == BACK) && !batch_looks[1] -> one_back(1)
    :: IS_FREE && (wr[0] == BACK) && batch_looks[0] -> batch_back(0)
    :: IS_FREE && (wr[1] == BACK) && batch_looks[1] -> batch_back(1)

    /* Leases */
    :: d_step { MAY_LEASE(0) || MAY_LEASE(1) ->
        x = (MAY_LEASE(0) -> 0 : 1);
        if
        :: IS_PAGED(x) -> pin(LOCAL)
        :: else
        fi;
        lease[x] = lease[x] | LINKS;
        if
        :: KIND(x) == GET -> say(M_READY, x)
        :: else
        fi;
        x = 0 }
    :: d_step { MAY_WRITE(0) || MAY_WRITE(1) ->
        x = (MAY_WRITE(0) -> 0 : 1);
        has_key[x] = 0;
        wr[x]      = OUT;
        sq!WR_LEASE,x;
        x = 0 }

    /* Answers */
    :: d_step { MAY_HEAR && (answers?[A_ACK, _, _, _]) ->
        answers?what,x,value,count;
        heard(count);
        check_acked();
        what  = 0;
        x     = 0;
        value = 0;
        count = 0 }
    :: d_step { MAY_HEAR && (answers?[A_READY, _, _, _]) ->
        answers?what,x,value,count;
        has_key[x] = state[x] == ASKED;
        key[x]     = (has_key[x] -> value : key[x]);
        heard(count);
        check_acked();
        what  = 0;
        x     = 0;
        value = 0;
        count = 0 }
    :: d_step { MAY_HEAR && (answers?[A_DONE, _, _, _]) ->
        answers?what,x,value,count;
        if
        :: (state[x] == ASKED) && (wr[x] == NO) -> complete(x)
        :: (state[x] == ASKED) && (wr[x] != NO) -> is_over[x] = 1
        :: else
        fi;
        heard(count);
        check_acked();
        what  = 0;
        x     = 0;
        value = 0;
        count = 0 }
    :: d_step { MAY_HEAR && (answers?[A_RESULT, _, _, _]) ->
        answers?what,x,value,count;
        if
        :: state[x] == ADDS ->
            buf[x] = value;
            complete(x)
        :: else
        fi;
        heard(count);
        check_acked();
        what  = 0;
        x     = 0;
        value = 0;
        count = 0 }
    :: atomic { MAY_HEAR && (answers?[A_DATA, _, _, _]) ->
        answers?what,x,value,count;
        heard(count);
        check_acked();
        what = 0; count = 0 } ->
        do
        :: d_step { state[x] != FETCHES -> x = 0; value = 0 } -> break
        :: d_step { (state[x] == FETCHES) &&
            (!IS_PAGED(x) || (!pg[LOCAL].busy && pg[LOCAL].present)) ->
            if
            :: IS_PAGED(x) ->
                pg[LOCAL].mem[0] = value;
                pg[LOCAL].dirty  = 1
            :: else -> buf[x] = value
            fi;
            complete(x);
            x = 0; value = 0 } -> break
        :: d_step { (state[x] == FETCHES) && IS_PAGED(x) &&
            !pg[LOCAL].busy && !pg[LOCAL].present -> swap_in(LOCAL) }
        od
    :: d_step { IS_FREE && (link_imm != NOBODY) ->
        x        = link_imm;
        link_imm = NOBODY;
        if
        :: state[x] == ASKED -> complete(x)
        :: else
        fi;
        x = 0 }

#if FAILURES > 0
    :: (broken || peer_down) && IS_FREE ->
        link_down = 1;
        LINK_IS_DRAINED;
        d_step {
            link_imm = NOBODY;
            open     = NOBODY;
            put_check(0, batch[0], 0);
            put_check(1, batch[1], 0);
            op_lost(0);
            op_lost(1);
            wanted = 1
        };
        d_step { renewed -> renewed = 0; replay() }
#endif
    od;

    /* When nothing moves any more */
    timeout ->
    nothing_is_left = (lease[0] == 0) && (lease[1] == 0) &&
                      (pg[T].hold == 0) && (pg[LOCAL].hold == 0);
    assert(nothing_is_left)
}
