/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The arena directory of a process, and within it the tables of its arenas: for
 * each page an entry, which says what a peer's check may rely on, and a
 * translation, which is what a device goes by. One sealed memfd, which only its
 * owner can write, is handed to peers when they connect.
 *
 * Layout: one head of NP_TABLE_HEAD_SIZE bytes, then NP_TABLE_ARENAS tables of
 * NP_TABLE_SIZE bytes, in the order in which arenas were first used. The file
 * is sparse: what was never used costs no memory.
 */

#ifndef NP_TABLE_H_
#define NP_TABLE_H_

#include "../np.h"
#include "arena.h"

#include <sys/types.h>

/** An entry stands for this much memory, whatever the page size is */
#define NP_PAGE_SHIFT       12
#define NP_PAGE_SIZE        (UINT64_C(1) << NP_PAGE_SHIFT)
#define NP_ARENA_PAGES      (UINT64_C(1) << (NP_ARENA_SHIFT - NP_PAGE_SHIFT))

/** Arenas of one process that can have a table: 4 TiB of memory in use.
 *  Transfers to other arenas are two-sided. */
#define NP_TABLE_ARENAS     4096

/** Of these, what is known of a peer's together */
#define NP_REMOTE_BLOCK     64
#define NP_TABLE_HEAD_SIZE  (64 * UCS_KBYTE)

/** An entry: two bits, and a count that every change of it increments. The two
 *  highest bits say the same for this process alone, NP_ENTRY_OWN; peers and
 *  the entries of nprdma.ko know nothing of them. */
enum {
    NP_ENTRY_READ  = 1u << 0,  /**< mapped for reading */
    NP_ENTRY_WRITE = 1u << 1,  /**< mapped for writing */
    NP_ENTRY_STEP  = 1u << 2   /**< one step of the count */
};

#define NP_ENTRY_BITS       (NP_ENTRY_READ | NP_ENTRY_WRITE)

/** Mapped so for ourselves: what we move between a peer and our memory, as its
 *  target or its initiator. With arenas a page is mapped for peers and for
 *  ourselves at once; a page that peers must not reach by themselves, for
 *  ourselves alone. */
#define NP_ENTRY_OWN(_bits) ((uint32_t)(_bits) << 30)

/** The same of a view */
#define NP_VIEW_OWN(_bits)  ((_bits) << 2)
#define NP_VIEW_ALL(_bits)  ((_bits) | NP_VIEW_OWN(_bits))

/** Table of one arena. Written by its process alone: entries under the lock of
 *  their slice (page.h); read by any process. */
typedef struct np_table {
    /* what a check compares */
    _Atomic uint32_t entries[NP_ARENA_PAGES];
    /* what the device goes by. Bit READ: the read view has the real page, else
     * the signature page; bit WRITE: the write view has it, else the black
     * hole; NP_VIEW_OWN: for ourselves */
    _Atomic uint8_t  views[NP_ARENA_PAGES];
} np_table_t;

#define NP_TABLE_SIZE       sizeof(np_table_t)

/** Pages are told apart by their number modulo this, where devices are told
 *  what to forget */
#define NP_DIRECTORY_FLUSHES 1024u

/** Head of the directory */
typedef struct np_directory {
    uint32_t         magic;
    uint32_t         version;
    /* tables in use */
    _Atomic uint32_t count NP_LINE_ALIGNED;
    /* number of the arena that each table belongs to; valid below count */
    uint32_t         arenas[NP_TABLE_ARENAS];
    /* of each such row of pages: translations that a device has cached before
     * this changed are stale. Counted only if a cache is modelled. */
    _Atomic uint32_t flushes[NP_DIRECTORY_FLUSHES] NP_LINE_ALIGNED;
} np_directory_t;

/** Tables of a peer, some of all that it may have: mostly it has few */
typedef struct np_remote_block {
    /* set once, by compare-and-swap with release; NULL: not mapped yet */
    np_table_t *_Atomic tables[NP_REMOTE_BLOCK];
} np_remote_block_t;

/** A peer's directory, mapped here for reading. Counted; one for each engine,
 *  and for each file: an engine's id is the peer's word, and another peer may
 *  claim the same. Its tables are mapped one by one, on first use. */
typedef struct np_remote {
    ucs_list_link_t       list;       /**< of all; guarded by its lock */
    uint64_t              engine_id;
    dev_t                 dev;        /**< of the file, as is ino */
    ino_t                 ino;
    unsigned              refs;       /**< guarded by the lock of all */
    int                   fd;
    const np_directory_t  *directory;
    /* set once, by compare-and-swap with release; NULL: none of its tables is
     * mapped yet */
    np_remote_block_t *_Atomic blocks[NP_TABLE_ARENAS / NP_REMOTE_BLOCK];
} np_remote_t;


/**
 * The descriptor of this process's directory, made on first use, opened so that
 * a process that gets it can only read. Owner: the process.
 *
 * @return the descriptor; -1 (logged) if it could not be made.
 */
int np_directory_fd(void);

/** Before any thread of ours can make the first table: should another thread
 *  fork just then, its child must not find the locks held. A second call does
 *  nothing.
 *  @return 0; -1: errno says why. */
int np_table_prepare_forks(void);

/** The directory itself; NULL before np_directory_fd */
np_directory_t *np_directory_own(void);

/** The table of one of our own arenas. Any thread, no lock.
 *  @return NULL if it has none yet. */
np_table_t *np_table_find(uint32_t arena);

/** As np_table_find, but makes it.
 *  @return NULL if all NP_TABLE_ARENAS are in use (said once), or without
 *          memory (logged). */
np_table_t *np_table_get(uint32_t arena);

/**
 * Take a peer's directory into use, or count one more use of it.
 *
 * @param [in] engine_id  As the peer claims it. A directory is the same as
 *                        before only if it is the same file too.
 * @param [in] fd         As the peer sent it; duplicated, stays the caller's.
 *                        Checked: size, seals against shrinking, magic,
 *                        version.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM; UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_remote_get(uint64_t engine_id, int fd, np_remote_t **remote_p);

/** One use less; the last one unmaps */
void np_remote_put(np_remote_t *remote);

/**
 * The table of a peer's arena; maps it on first use. Any thread.
 *
 * @return NULL if the arena has no table yet, or it cannot be mapped.
 */
np_table_t *np_remote_table(np_remote_t *remote, uint32_t arena);


static UCS_F_ALWAYS_INLINE uint32_t np_page_index(uint64_t va)
{
    return (va >> NP_PAGE_SHIFT) & (NP_ARENA_PAGES - 1);
}

/** Pages that [@a va, @a va + @a len) touches */
static UCS_F_ALWAYS_INLINE uint64_t np_page_count(uint64_t va, uint64_t len)
{
    return (len == 0) ? 0 :
           (((va + len - 1) >> NP_PAGE_SHIFT) - (va >> NP_PAGE_SHIFT) + 1);
}

/** Views of NP_VIEWS_PAGES pages, looked at together. Each byte is one view: a
 *  look at all is as good as a look at each. */
typedef uint64_t np_views_t __attribute__((may_alias));

#define NP_VIEWS_PAGES      sizeof(np_views_t)
#define NP_VIEWS_EACH       UINT64_C(0x0101010101010101)

/** Of the NP_VIEWS_PAGES pages from @a page on, which is a multiple of that */
static UCS_F_ALWAYS_INLINE np_views_t
np_views_load(const np_table_t *table, uint32_t page)
{
    /* told to the compiler, which by the bytes' own alignment would make it a
     * call */
    const np_views_t *views = __builtin_assume_aligned(&table->views[page],
                                                       sizeof(np_views_t));

    return __atomic_load_n(views, __ATOMIC_ACQUIRE);
}

/**
 * Do the views of all these pages have @a bits?
 *
 * Acquire, here and wherever a view decides what is moved; its stores are
 * in page.h and mapper.c, with release:
 * - a view that is set: the page is as the thread that brought it in has left
 *   it, so no load of its bytes may come before this one;
 * - one that is not: its entry was changed before, so a thread that compares
 *   entries after the move sees that.
 * This does not keep the page while it is moved; the mover's word does
 * (dev/soft/drain.h).
 */
static inline int np_views_have(const np_table_t *table, uint32_t page,
                                uint32_t count, uint32_t bits)
{
    const np_views_t wanted = bits * NP_VIEWS_EACH;
    const uint32_t end      = page + count;
    np_views_t views        = wanted;

    for (; (page < end) && ((page % NP_VIEWS_PAGES) != 0); ++page) {
        views &= atomic_load_explicit(&table->views[page],
                                      memory_order_acquire) * NP_VIEWS_EACH;
    }

    for (; (end - page) >= NP_VIEWS_PAGES; page += NP_VIEWS_PAGES) {
        views &= np_views_load(table, page);
    }

    for (; page < end; ++page) {
        views &= atomic_load_explicit(&table->views[page],
                                      memory_order_acquire) * NP_VIEWS_EACH;
    }

    return (views & wanted) == wanted;
}

/** Do the views of our own memory [@a va, @a va + @a len) have @a bits, all of
 *  them? */
static inline int np_table_has_views(uint64_t va, size_t len, uint32_t bits)
{
    const uint64_t end = va + len;
    const np_table_t *table;
    uint64_t next;

    for (; va < end; va = next) {
        next  = ucs_min(end, va + np_arena_left(va));
        table = np_table_find(np_arena_of(va));
        if ((table == NULL) ||
            !np_views_have(table, np_page_index(va),
                           np_page_count(va, next - va), bits)) {
            return 0;
        }
    }
    return 1;
}

#endif
