/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Devices: they move units. A unit is fetched from one side's read view and
 * stored into the other side's write view; each of that is translated first and
 * reaches memory later. Units of one message go in any order.
 */

/* A move is one message's worth of units: of transfer x, one-sided or (rev) the
 * reverse transfer, on the queue pair of an epoch */
#define MOVE(x, rev, ep)  ((x) + (2 * (rev)) + (4 * (ep)))
#define TRANSFER(i)       (((i) / 2) % 2)
#define WORD(i)           ((i) % 2)
#define EPOCH(i)          ((i) / 8)
#define REMOTE_WORD(i)    (BASE(TRANSFER(i)) + WORD(i))
#define BIT(i)            (1 << (i))

#ifdef QP_ERROR
#define UNIT_COUNT 16
#else
#define UNIT_COUNT 8
#endif

/* What a unit is up to */
#define IDLE     0
#define POSTED   1
#define FETCHING 2
#define FETCHED  3 /* on the wire */
#define STORING  4
#define FLUSHED  5 /* with its queue pair; whether it took effect is unknown */

byte st[UNIT_COUNT];
byte tr[UNIT_COUNT];       /* the translation that it goes by */
byte val[UNIT_COUNT];

/* Memory that is always there, for local buffers */
byte buf[4];

/* Units of a transfer that are to be moved, a bit for each */
byte todo[2];

/* Epochs whose queue pair has failed, and those below which each side has put
 * it into error: nothing begins there any more */
byte broken;
byte down[2];

#define IS_OVER(state)   (((state) == IDLE) || ((state) == FLUSHED))
#define DRAINED(m)       (IS_OVER(st[2 * (m)]) && IS_OVER(st[(2 * (m)) + 1]))
#ifdef FLUSHED_COUNTS
#define LANDED(m)        DRAINED(m)
#else
#define LANDED(m)        ((st[2 * (m)] == IDLE) && (st[(2 * (m)) + 1] == IDLE))
#endif

#ifdef QP_ERROR
#define IS_UP(i, side) (EPOCH(i) >= down[side])
#else
#define IS_UP(i, side) 1
#endif

inline post(m, words)
{
    st[2 * (m)]       = (((words) & 1) -> POSTED : IDLE);
    st[(2 * (m)) + 1] = (((words) & 2) -> POSTED : IDLE)
}

/* A cache may hold any translation since the last flush */
inline translate(i, p, mask, next)
{
    if
    :: (mask) & 1  -> tr[i] = 0
    :: (mask) & 2  -> tr[i] = 1
    :: (mask) & 4  -> tr[i] = 2
    :: (mask) & 8  -> tr[i] = 3
    :: (mask) & 16 -> tr[i] = 4
    :: (mask) & 32 -> tr[i] = 5
    fi;
    st[i] = next;
    pg[p].inflight = pg[p].inflight | BIT(i)
}

inline land(i, p)
{
    /* No unit touches a frame that is not the page's any more */
    assert((tr[i] == 0) || (pg[p].present && (pg[p].frame == tr[i])));
    pg[p].inflight = pg[p].inflight & (65535 - BIT(i));
    pg[p].waiting  = pg[p].waiting & (65535 - BIT(i))
}

inline unit_done(i)
{
    st[i]  = IDLE;
    tr[i]  = 0;
    val[i] = 0
}

/* The program has its buffer back when its transfer is complete */
inline store_in_buffer(i, value)
{
    assert(phase[TRANSFER(i)] == OPEN);
    buf[i % 4] = value;
    unit_done(i)
}

inline fetch_begin(i)
{
    if
    :: IS_READ(TRANSFER(i)) ->
        translate(i, T, pg[T].rm, FETCHING)
    :: !IS_READ(TRANSFER(i)) && IS_PAGED(TRANSFER(i)) ->
        translate(i, LOCAL, pg[LOCAL].rm, FETCHING)
    :: !IS_READ(TRANSFER(i)) && !IS_PAGED(TRANSFER(i)) ->
        val[i] = buf[i % 4];
#ifdef QP_ERROR
        st[i]  = FETCHED
#else
        translate(i, T, pg[T].wm, STORING)
#endif
    fi
}

inline fetch_end(i)
{
    if
    :: IS_READ(TRANSFER(i)) ->
        land(i, T);
        val[i] = ((tr[i] == 0) -> SIG : pg[T].mem[REMOTE_WORD(i)])
    :: else ->
        land(i, LOCAL);
        val[i] = ((tr[i] == 0) -> SIG : pg[LOCAL].mem[WORD(i)])
    fi;
    st[i] = FETCHED;
#ifdef SKIPS_ABSENT
    /* of a source that is not there nothing is sent */
    if
    :: !IS_READ(TRANSFER(i)) && (tr[i] == 0) -> unit_done(i)
    :: else
    fi;
#endif
    tr[i] = 0;
#ifndef QP_ERROR
    if
    :: IS_READ(TRANSFER(i)) && !IS_PAGED(TRANSFER(i)) ->
        store_in_buffer(i, val[i])
    :: else
    fi
#endif
}

inline store_begin(i)
{
    if
    :: !IS_READ(TRANSFER(i)) ->
        translate(i, T, pg[T].wm, STORING)
    :: IS_READ(TRANSFER(i)) && IS_PAGED(TRANSFER(i)) ->
        translate(i, LOCAL, pg[LOCAL].wm, STORING)
    :: IS_READ(TRANSFER(i)) && !IS_PAGED(TRANSFER(i)) ->
        store_in_buffer(i, val[i])
    fi
}

inline store_end(i)
{
    if
    :: IS_READ(TRANSFER(i)) ->
        land(i, LOCAL);
        assert(phase[TRANSFER(i)] == OPEN);
        if
        :: tr[i] != 0 -> pg[LOCAL].mem[WORD(i)] = val[i]
        :: else
        fi
    :: else ->
        land(i, T);
        if
        :: tr[i] != 0 ->
            assert(!pg[T].shared);
            pg[T].mem[REMOTE_WORD(i)] = val[i];
#ifdef ATTRIBUTES
            /* this device knows what met no absent page, on either side */
            if
            :: val[i] != SIG ->
                todo[TRANSFER(i)] = todo[TRANSFER(i)] &
                                    (3 - BIT(WORD(i)))
            :: else
            fi;
#endif
            content_changed(T)
        :: else
        fi
    fi;
    unit_done(i)
}

#define FETCH_SIDE(i) (IS_READ(TRANSFER(i)) -> TARGET : INITIATOR)
#define STORE_SIDE(i) (IS_READ(TRANSFER(i)) -> INITIATOR : TARGET)

/* What a unit can do next */
#define MAY_FETCH(i) ((st[i] == POSTED) && IS_UP(i, FETCH_SIDE(i)))
#define MAY_STORE(i) ((st[i] == FETCHED) && IS_UP(i, STORE_SIDE(i)))
#ifdef QP_ERROR
#define MAY_FLUSH(i) \
    (((st[i] == POSTED) || (st[i] == FETCHED)) && (EPOCH(i) < broken))
#else
#define MAY_FLUSH(i) 0
#endif
#define MAY_MOVE(i) \
    (MAY_FETCH(i) || (st[i] == FETCHING) || MAY_STORE(i) || \
     (st[i] == STORING) || MAY_FLUSH(i))

proctype devices()
{
    byte i;

end:
    do
    :: atomic {
        if
        :: MAY_MOVE(0) -> i = 0
        :: MAY_MOVE(1) -> i = 1
        :: MAY_MOVE(4) -> i = 4
        :: MAY_MOVE(5) -> i = 5
#if TRANSFERS > 1
        :: MAY_MOVE(2) -> i = 2
        :: MAY_MOVE(3) -> i = 3
        :: MAY_MOVE(6) -> i = 6
        :: MAY_MOVE(7) -> i = 7
#endif
#ifdef QP_ERROR
        :: MAY_MOVE(8)  -> i = 8
        :: MAY_MOVE(9)  -> i = 9
        :: MAY_MOVE(12) -> i = 12
        :: MAY_MOVE(13) -> i = 13
#if TRANSFERS > 1
        :: MAY_MOVE(10) -> i = 10
        :: MAY_MOVE(11) -> i = 11
        :: MAY_MOVE(14) -> i = 14
        :: MAY_MOVE(15) -> i = 15
#endif
#endif
        fi;
        if
        :: MAY_FETCH(i)        -> fetch_begin(i)
        :: st[i] == FETCHING   -> d_step { fetch_end(i) }
        :: MAY_STORE(i)        -> store_begin(i)
        :: st[i] == STORING    -> d_step { store_end(i) }
#ifdef QP_ERROR
        :: MAY_FLUSH(i)        -> d_step { unit_done(i); st[i] = FLUSHED }
#endif
        fi;
        i = 0 }
#ifdef QP_ERROR
    :: d_step { broken == 0 -> broken = 1 } /* the queue pair fails */
#endif
    od
}
