/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a link knows of its target's memory: the keys of its views, asked for at
 * first use, and the entries that were read last.
 *
 * Memory: for each link and arena 2.6 KiB, and 4 KiB for each 4 MiB whose
 * entries are known, of which a link knows 1 GiB at most.
 */

#ifndef NP_VREMOTE_H_
#define NP_VREMOTE_H_

#include "conn.h"

#include "../../mem/entries.h"
#include "../../mem/kmod.h"

/** Pages whose entries are kept together */
#define NP_VREMOTE_BLOCK  1024u

/** Such blocks of a link: the one that it has had for longest makes room */
#define NP_VREMOTE_BLOCKS 256u

/** Regions that the row of a view has at most */
#define NP_VREMOTE_PARTS  (NP_ARENA_SIZE / NP_KMOD_PART_MIN)

typedef enum np_vremote_state {
    NP_VREMOTE_UNKNOWN,
    NP_VREMOTE_ASKED,
    NP_VREMOTE_READY,
    NP_VREMOTE_LATER,     /**< to be asked for again, see again */
    NP_VREMOTE_REFUSED
} np_vremote_state_t;

/** Keys of one region of the row */
typedef struct np_vremote_keys {
    uint32_t read;
    uint32_t write;
} np_vremote_keys_t;

/** Entries as they were read last, in all 0: not known. Owner: the link. */
typedef struct np_vblock {
    ucs_list_link_t  list;         /**< of the link's, the oldest first */
    struct np_vblock **home;       /**< in its arena */
    uint32_t         entries[NP_VREMOTE_BLOCK] __attribute__((aligned(8)));
} np_vblock_t;

/** An arena of a link's target. Owner: the link. */
typedef struct np_vremote {
    struct np_vremote  *next;      /**< of the link's */
    np_vlink_t         *link;
    np_vremote_state_t state;
    uint64_t           va;         /**< what the views cover */
    uint64_t           len;        /**< bytes */
    unsigned           shift;      /**< each region of the row has 2^shift */
    unsigned           count;      /**< ASKED: those that are known */
    uint32_t           table;      /**< key of it */
    uint64_t           again;      /**< LATER: not before; np_clock_coarse() */
    uint64_t           delay;      /**< and for how long it has waited */
    np_vremote_keys_t  keys[NP_VREMOTE_PARTS];
    np_vblock_t        *blocks[NP_ARENA_PAGES /
                               NP_VREMOTE_BLOCK]; /**< NULL: not known */
} np_vremote_t;

/** What is known of [@a va, @a va + @a len), at least 1 byte; NULL: nothing
 *  yet, in which case it is asked for, or nothing for good; or it is not all in
 *  one region of the row */
np_vremote_t *np_vremote_get(np_vlink_t *link, uint64_t va, uint64_t len);

/** An address of it in the read view, or in the write view */
static UCS_F_ALWAYS_INLINE np_place_t
np_vremote_place(const np_vremote_t *remote, uint64_t va, int to_write)
{
    const np_vremote_keys_t *keys = &remote->keys[(va - remote->va) >>
                                                  remote->shift];

    return (np_place_t){va, to_write ? keys->write : keys->read};
}

/** The entries of these pages as they were read last; bits 0: not of all is
 *  anything known */
np_entries_t
np_vremote_entries(const np_vremote_t *remote, uint64_t va, uint64_t len);

/** Look: read its entries into a buffer of the port's. There must be room for
 *  it; @a op is told, with @a number. */
void np_vremote_look(const np_vremote_t *remote, uint64_t va, uint64_t len,
                     void *buffer, np_rop_t *op, uint32_t number);

/** These are its entries; NULL: not known any more */
void np_vremote_learn(np_vremote_t *remote, uint64_t va, uint64_t len,
                      const uint32_t *entries);

/** The target's answer. UCS_ERR_INVALID_PARAM: it makes no sense. */
ucs_status_t np_vremote_told(np_vlink_t *link, const np_vviews_t *views);

/** The link's queue pair has failed: an answer may be lost */
void np_vremote_lost(np_vlink_t *link);

void np_vremote_cleanup(np_vlink_t *link);

#endif
