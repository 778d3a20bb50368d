/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A queue pair, and what devices do for it. The link's requests are executed
 * in order, but a Read's memory access may come later than what was posted
 * after it. The queue pair fails at any moment; what was sent before may still
 * arrive, until the target has destroyed its side.
 */

/* Requests of the link's side */
#define WR_WRITE 1       /* from read view into write view, or inline */
#define WR_READ  2       /* from read view into write view */
#define WR_LOOK  3       /* a Read of the entry */
#define WR_LEASE 4       /* a Write with immediate into a lease */
/* Messages to the target: with numbers */
#define M_PUT    5       /* carries the bytes */
#define M_WRITE  6       /* a put with leases begins */
#define M_READ   7       /* a get with leases begins */
#define M_FETCH  8       /* a get whose bytes the answer carries */
#define M_READY  9       /* the link's memory may be written */
#define M_ATOMIC 10
#define M_AGAIN  11      /* the answer of an atomic that was taken */
#define M_AM     12
/* Answers */
#define A_ACK    13
#define A_READY  14
#define A_DONE   15
#define A_RESULT 16
#define A_DATA   17

#define NOBODY 255

chan sq   = [6] of { byte, byte };              /* what, transfer */
chan pending = [3] of { byte, byte };           /* Reads that have begun */
chan answers = [6] of { byte, byte, byte, byte }; /* what, transfer, value,
                                                 * messages taken */

/* Of this queue pair: it does not work any more; each side has destroyed its
 * own; the link asks for another one, and has it */
bit broken, link_down, peer_down, wanted, renewed;
byte failures;

/* What has been written with immediate and is not known to be yet */
byte peer_imm = NOBODY, link_imm = NOBODY;

/* Requests whose completion is awaited */
#define NO   0
#define OUT  1
#define BACK 2
byte wr[2];
byte looked_at[2];       /* the entry that was read */
bit  answer_written[2];  /* the target's own Write is done */

/* Registrations: a bit for each side */
#define LINKS 1
#define PEERS 2
byte lease[2];
byte lease_key[2], key[2]; /* that of the target's, and what READY has said */

#ifdef QP_NOT_DRAINED
bit stale;               /* what is being written is of the last queue pair */
#define IS_WRITTEN ((writing == IDLE) || stale)
#else
#define IS_WRITTEN (writing == IDLE)
#endif

/* Steps of the devices */
#define IDLE     0
#define FETCHING 1
#define FLYING   2
#define STORING  3
byte writing, reading, answering;
byte write_by, read_by;  /* the translation that each goes by */

inline lease_check(x, side)
{
    lease_is_held = (lease[x] & (side)) != 0;
    assert(lease_is_held)
}

/* By any translation since the last flush */
inline go_by(i, p, mask, way)
{
    if
    :: (mask) & 1  -> way = 0
    :: (mask) & 2  -> way = 1
    :: (mask) & 4  -> way = 2
    :: (mask) & 8  -> way = 3
    :: (mask) & 16 -> way = 4
    :: (mask) & 32 -> way = 5
    fi;
    pg[p].inflight = pg[p].inflight | (1 << (i))
}

inline landed(i, p, way)
{
    /* nothing touches a frame that is not the page's any more */
    assert((way == 0) || (pg[p].present && (pg[p].frame == way)));
    pg[p].inflight = pg[p].inflight & (65535 - (1 << (i)));
    pg[p].waiting  = pg[p].waiting & (65535 - (1 << (i)))
}

#define SOURCE(x) (IS_PAGED(x) -> pg[LOCAL].mem[0] : \
                   ((phase[x] == OPEN) -> VALUE(x) : JUNK))

/* The link's Writes */
proctype writer()
{
    byte x, what, value, by_key;

end:
    do
    :: atomic { (writing == IDLE) && !peer_down && sq?[WR_WRITE, _] &&
        (!link_down || (KIND0 == SMALL) || (KIND1 == SMALL)) ->
        sq?what,x;
        writing = FLYING;
        if
        :: KIND(x) == SMALL -> value = VALUE(x) /* inline */
        :: (KIND(x) != SMALL) && !IS_PAGED(x) ->
            value = SOURCE(x);
            if
            :: link_down -> writing = IDLE /* never sent */
            :: else
            fi
        :: (KIND(x) != SMALL) && IS_PAGED(x) ->
            go_by(2, LOCAL, pg[LOCAL].rm, write_by);
            writing = FETCHING
        fi }
    :: d_step { writing == FETCHING ->
        landed(2, LOCAL, write_by);
        value   = ((write_by == 0) -> SIG : pg[LOCAL].mem[0]);
        writing = FLYING }
    :: atomic { (writing == IDLE) && !peer_down && !link_down &&
        (peer_imm == NOBODY) && sq?[WR_LEASE, _] ->
        sq?what,x;
        lease_check(x, LINKS);
        value   = SOURCE(x);
        by_key  = key[x];
        writing = FLYING }
    :: atomic { (writing == FLYING) && !peer_down && (what == WR_WRITE) ->
        go_by(0, T, pg[T].wm, write_by);
        writing = STORING }
    :: atomic { (writing == FLYING) && !peer_down && (what == WR_LEASE) ->
        writing = STORING }
    :: d_step { (writing == FLYING) && peer_down ->
        writing = IDLE;
        what    = 0;
        value   = 0;
        by_key  = 0;
        x       = 0 }
    :: d_step { writing == STORING ->
        if
        :: what == WR_WRITE ->
            landed(0, T, write_by);
            if
            :: write_by != 0 -> target_write(x, value)
            :: else
            fi
        :: else ->
            lease_check(x, PEERS);
            lease_is_held = by_key == lease_key[x];
            assert(lease_is_held);
            target_write(x, value);
            pg[T].dirty = 1;
            if
            :: !peer_down -> peer_imm = x
            :: else
            fi;
            if
            :: !link_down -> wr[x] = BACK
            :: else
            fi
        fi;
#ifdef QP_NOT_DRAINED
        stale    = 0;
#endif
        writing  = IDLE;
        write_by = 0;
        what     = 0;
        value    = 0;
        by_key   = 0;
        x        = 0 }
    od
}

/* Its Reads. What is posted behind them need not wait. */
proctype reader()
{
    byte x, what, value;

end:
    do
    :: atomic { (writing == IDLE) && !peer_down && sq?[WR_READ, _] ->
        sq?what,x;
        pending!what,x;
        what = 0;
        x    = 0 }
    :: atomic { (writing == IDLE) && !peer_down && sq?[WR_LOOK, _] ->
        sq?what,x;
        pending!what,x;
        what = 0;
        x    = 0 }
    :: d_step { !peer_down && (reading == IDLE) && pending?[WR_LOOK, _] ->
        pending?what,x;
        if
        :: !link_down ->
            looked_at[x] = pg[T].entry;
            wr[x]        = BACK
        :: else
        fi;
        what = 0;
        x    = 0 }
    :: atomic { !peer_down && (reading == IDLE) && pending?[WR_READ, _] ->
        pending?what,x;
        go_by(1, T, pg[T].rm, read_by);
        reading = FETCHING }
    :: d_step { reading == FETCHING ->
        landed(1, T, read_by);
        value   = ((read_by == 0) -> SIG : pg[T].mem[BASE(x)]);
        reading = FLYING }
    :: atomic { (reading == FLYING) && !link_down && IS_PAGED(x) ->
        go_by(3, LOCAL, pg[LOCAL].wm, read_by);
        reading = STORING }
    :: d_step { (reading == STORING) ||
        ((reading == FLYING) && (link_down || !IS_PAGED(x))) ->
        if
        :: reading == STORING ->
            landed(3, LOCAL, read_by);
            if
            :: read_by != 0 -> pg[LOCAL].mem[0] = value
            :: else
            fi
        :: (reading == FLYING) && !link_down -> buf[x] = value
        :: else
        fi;
        if
        :: !link_down ->
            is_open = phase[x] == OPEN;
            assert(is_open);
            wr[x] = BACK
        :: else
        fi;
        reading = IDLE;
        read_by = 0;
        what    = 0;
        value   = 0;
        x       = 0 }
#if FAILURES > 0
    :: d_step { (failures < FAILURES) && !broken && !link_down && !peer_down ->
        failures = failures + 1;
        broken   = 1 }
#endif
    od
}

/* The target's Writes into leases of the link's */
proctype answerer()
{
    byte x, what, value;

end:
    do
    :: atomic { !peer_down && (answering == IDLE) && (link_imm == NOBODY) &&
        answers?[WR_LEASE, _, _, _] ->
        answers?what,x,_,_;
        lease_check(x, PEERS);
        value     = pg[T].mem[BASE(x)];
        what      = 0;
        answering = FLYING }
    :: d_step { answering == FLYING ->
        if
        :: !link_down ->
            lease_check(x, LINKS);
            is_open = phase[x] == OPEN;
            assert(is_open);
            if
            :: IS_PAGED(x) ->
                pg[LOCAL].mem[0] = value;
                pg[LOCAL].dirty  = 1
            :: else -> buf[x] = value
            fi;
            link_imm = x;
            if
            :: !peer_down -> answer_written[x] = 1
            :: else
            fi
        :: else
        fi;
        answering = IDLE;
        value     = 0;
        x         = 0 }
    od
}

/* Has either side nothing any more that touches its memory? */
#define PEER_IS_DRAINED \
    ((writing != STORING) && (reading != FETCHING))
#define LINK_IS_DRAINED \
    ((writing != FETCHING) && (reading != STORING))
#define IS_DRAINED \
    ((writing == IDLE) && (reading == IDLE) && (answering == IDLE))

/* An answer that is taken in the next epoch */
#ifdef KEY_OF_ANOTHER
#define OUTLIVES(what) ((what) == A_READY)
#else
#define OUTLIVES(what) ((what) > WR_LEASE)
#endif

/* Nothing of the old queue pair is left, nor of what it has brought. Locals of
 * the caller: what, x, value, count, left. */
inline queue_renew()
{
    left = len(pending);
    do
    :: left > 0  -> pending?_,_; left = left - 1
    :: left == 0 -> break
    od;
    left = len(sq);
    do
    :: left > 0 ->
        sq?what,x;
        left = left - 1;
#ifdef ANSWER_OF_ANOTHER
        if
        :: what > WR_LEASE -> sq!what,x
        :: else
        fi
#endif
    :: left == 0 -> break
    od;
    left = len(answers);
    do
    :: left > 0 ->
        answers?what,x,value,count;
        left = left - 1;
#if defined(ANSWER_OF_ANOTHER) || defined(KEY_OF_ANOTHER)
        if
        :: OUTLIVES(what) -> answers!what,x,value,count
        :: else
        fi
#endif
    :: left == 0 -> break
    od;
    what      = 0;
    x         = 0;
    value     = 0;
    count     = 0;
#ifdef QP_NOT_DRAINED
    stale     = writing == STORING;
#endif
    peer_imm  = NOBODY;
    link_imm  = NOBODY;
    broken    = 0;
    wanted    = 0;
    link_down = 0;
    peer_down = 0;
    renewed   = 1
}

/* Memory of a page is registered: it is there, and stays */
inline pin(p)
{
    if
    :: !pg[p].present -> swap_in(p)
    :: else
    fi;
    pg[p].hold = pg[p].hold + 1
}
