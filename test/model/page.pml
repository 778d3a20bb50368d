/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A page: its entry, its translations and what a device may have cached of
 * them, its frame, and the operating system that takes the frame away. The
 * steps of mapping and unmapping are one transition each.
 */

#define READABLE          1
#define WRITABLE          2
#define COUNT             4
#define HAS(_entry, _bit) (((_entry) & (_bit)) == (_bit))
#define MAPPED_FOR(_write) ((_write) -> READABLE | WRITABLE : READABLE)

typedef page_t {
    byte entry;             /* two bits and a count */
    bit  rt;                /* read view: the frame, else the signature page */
    bit  wt;                /* write view: the frame, else the black hole */
    byte rm;                /* what a device may go by, a bit for each frame
                             * (bit 0: the special page): the translation, and
                             * all that it was since the last flush */
    byte wm;
    byte frame;             /* number of its frame: a new one each time */
    bit  present;
    bit  shared;            /* with a forked child: nobody may write */
    bit  dirty;             /* else the frame is dropped, not written back */
    bit  device;            /* a device may have written without a trace */
    bit  busy;              /* being invalidated */
    byte hold;              /* by leases: who unmaps never looks at it */
    unsigned inflight : 16; /* units that have been translated */
    unsigned waiting : 16;  /* those of them that an unmap waits for */
    byte mem[WORDS];        /* what the program sees */
    byte back[WORDS];       /* backing store */
};

page_t pg[PAGES];

inline entry_set(p, bits)
{
#ifdef COUNT_NOT_BUMPED
    pg[p].entry = (pg[p].entry & 252) | (bits)
#else
    pg[p].entry = ((pg[p].entry & 252) + COUNT) | (bits)
#endif
}

inline translate_to(p, read, write)
{
    pg[p].rt = read;
    pg[p].wt = write;
    pg[p].rm = pg[p].rm | (1 << (pg[p].rt -> pg[p].frame : 0));
    pg[p].wm = pg[p].wm | (1 << (pg[p].wt -> pg[p].frame : 0))
}

inline flush(p)
{
    pg[p].rm = 1 << (pg[p].rt -> pg[p].frame : 0);
    pg[p].wm = 1 << (pg[p].wt -> pg[p].frame : 0)
}

/* Entry, translation, flush, and then what is in flight lands. keep: the half
 * that stays. Whoever calls has set busy. */
inline unmap(p, keep)
{
#ifdef UNMAP_TRANSLATION_FIRST
    d_step { translate_to(p, pg[p].rt && HAS(keep, READABLE), 0) };
#endif
    d_step {
        if
        :: (pg[p].entry & 3 & ~(keep)) != 0 ->
            entry_set(p, pg[p].entry & 3 & (keep))
        :: else
        fi
    };
#ifndef UNMAP_TRANSLATION_FIRST
    d_step { translate_to(p, pg[p].rt && HAS(keep, READABLE), 0) };
#endif
    d_step {
        flush(p);
        pg[p].waiting = pg[p].inflight
    };
#ifndef SWAP_OUT_NO_DRAIN
    pg[p].waiting == 0
#else
    skip
#endif
}

/* What a device may have written goes to the backing store as well */
inline mark_dirty(p)
{
#ifndef NOT_MARKED_DIRTY
    pg[p].dirty  = pg[p].dirty || pg[p].device;
#endif
    pg[p].device = 0
}

#if WORDS == 2
#define COPY_WORDS(to, from) \
    to[0] = from[0]; to[1] = from[1]
#elif WORDS == 3
#define COPY_WORDS(to, from) \
    to[0] = from[0]; to[1] = from[1]; to[2] = from[2]
#else
#define COPY_WORDS(to, from) \
    to[0] = from[0]; to[1] = from[1]; to[2] = from[2]; to[3] = from[3]
#endif

/* Whoever calls has set busy */
inline swap_out(p)
{
#ifdef HOLDS_BLOCK
    pg[p].hold == 0;
#endif
    unmap(p, 0);
    d_step {
        mark_dirty(p);
        if
        :: pg[p].dirty -> COPY_WORDS(pg[p].back, pg[p].mem)
        :: else        -> COPY_WORDS(pg[p].mem, pg[p].back)
        fi;
        pg[p].present = 0; /* the frame is somebody else's */
        pg[p].dirty   = 0;
        pg[p].shared  = 0;
        pg[p].busy    = 0;
        content_changed(p)
    }
}

inline swap_in(p)
{
    pg[p].present = 1;
    pg[p].frame   = pg[p].frame + 1
}

/* A write to a shared page: the program gets a frame of its own. Whoever calls
 * has set busy. */
inline break_share(p)
{
    unmap(p, 0);
    d_step {
        pg[p].frame  = pg[p].frame + 1;
        pg[p].shared = 0;
        pg[p].dirty  = 1;
        pg[p].busy   = 0
    }
}

/* The program's own store, or a copy by the CPU: cannot fail for paging */
inline cpu_store(p, w, value)
{
    do
    :: d_step {
        !pg[p].busy && pg[p].present && !pg[p].shared ->
        pg[p].mem[w] = value;
        pg[p].dirty  = 1;
        content_changed(p)
        } ->
        break
    :: d_step { !pg[p].busy && !pg[p].present -> swap_in(p) }
#ifdef PROTECTS
    :: atomic { !pg[p].busy && pg[p].present && pg[p].shared ->
        pg[p].busy = 1 } ->
        break_share(p)
#endif
    od
}

#define STILL(p, write) \
    (!pg[p].busy && pg[p].present && (pg[p].frame == fi_frame) && \
     !((write) && pg[p].shared))

inline map_translate(p, write)
{
    translate_to(p, 1, pg[p].wt || (write));
    pg[p].device = pg[p].device || (write)
}

inline map_entry(p, write)
{
    entry_set(p, (pg[p].entry & 3) | MAPPED_FOR(write))
}

/* Bring the page in and map it: present, then translation, then flush, then
 * entry; anew if it was taken meanwhile. fi_ok: it has been mapped. Locals of
 * the caller: fi_frame, fi_tries, fi_ok. */
inline fault_in(p, write)
{
    fi_tries = 0;
    fi_ok    = 0;
    do
    :: fi_tries == FAULT_IN_ROUNDS -> break
    :: else ->
        d_step {
            !pg[p].busy ->
            if
            :: !pg[p].present -> swap_in(p)
            :: else
            fi;
            fi_frame = pg[p].frame;
            fi_tries = fi_tries + 1
        };
        if
        :: atomic { HAS(pg[p].entry, MAPPED_FOR(write)) -> fi_ok = 1 } ->
            break
#ifdef PROTECTS
        :: atomic { !pg[p].busy && pg[p].present && pg[p].shared && (write) ->
            pg[p].busy = 1 } ->
            break_share(p)
#endif
        :: d_step { !HAS(pg[p].entry, MAPPED_FOR(write)) && STILL(p, write) ->
            map_translate(p, write) } ->
#ifdef MAP_ENTRY_FIRST
            d_step {
                if
                :: STILL(p, write) ->
                    map_entry(p, write);
                    fi_ok = 1
                :: else
                fi
            };
            d_step { flush(p) };
#else
#ifndef MAP_NO_FLUSH
            d_step { flush(p) };
#endif
            d_step {
                if
                :: STILL(p, write) ->
                    map_entry(p, write);
                    fi_ok = 1
                :: else
                fi
            };
#endif
            if
            :: fi_ok -> break
            :: else
            fi
        :: !HAS(pg[p].entry, MAPPED_FOR(write)) && !STILL(p, write) -> skip
        fi
    od;
    fi_frame = 0;
    fi_tries = 0
}

/* What may keep a page where it is: nothing, unless somebody has said so */
#ifndef MAY_GO
#define MAY_GO(p) 1
#endif

/* The operating system: takes pages, and the program touches them */
proctype os(byte p; byte swaps)
{
    byte outs, ins;
#ifdef PROTECTS
    byte protects;
#endif

end:
    do
    :: atomic { (outs < swaps) && pg[p].present && !pg[p].busy && MAY_GO(p) ->
        pg[p].busy = 1;
        outs       = outs + 1 } ->
        swap_out(p)
    :: d_step { (ins < TOUCHES) && !pg[p].present && !pg[p].busy ->
        swap_in(p);
        ins = ins + 1 }
#ifdef PROTECTS
    :: atomic { (protects < PROTECTS) && pg[p].present && !pg[p].busy &&
        !pg[p].shared ->
        pg[p].busy = 1;
        protects   = protects + 1 } ->
#ifdef PROTECT_KEEPS_ENTRY
        d_step { translate_to(p, pg[p].rt, 0) };
        d_step {
            flush(p);
            pg[p].waiting = pg[p].inflight
        };
        pg[p].waiting == 0;
#else
        unmap(p, READABLE);
#endif
        d_step {
            mark_dirty(p);
            pg[p].shared = 1;
            pg[p].busy   = 0
        }
#endif
    od
}

/* Somebody else has the page mapped: another peer, another thread */
proctype other(byte p)
{
    byte fi_frame, fi_tries;
    bit  fi_ok;

    if
    :: fault_in(p, 1)
    :: fault_in(p, 0)
    fi;
    fi_ok = 0
}

inline page_init(p)
{
    pg[p].entry   = READABLE | WRITABLE;
    pg[p].rt      = 1;
    pg[p].wt      = 1;
    pg[p].rm      = 1 << 1;
    pg[p].wm      = 1 << 1;
    pg[p].frame   = 1;
    pg[p].present = 1;
    pg[p].device  = 1
}
