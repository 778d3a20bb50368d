/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Races by construction: one process, one thread, a port that initiates and a
 * port that serves. A hook in the engine's pause points lets others act between
 * any two steps of a transfer; so each interleaving is run once, on purpose.
 *
 * Who acts:
 * - the transfer: the initiator's call and progress, and the target's progress;
 * - actors, each on a stack of its own: the storage engine (or the OS) that
 *   takes pages and brings them back, or a service thread of the target. An
 *   actor begins at some pause point of the transfer and runs to its end, or
 *   stops at a pause point of its own until it is needed or the transfer is
 *   complete.
 *
 * What is right:
 * - A page is in (its content is in its frame), going, or out (its content is
 *   in its store). The storage engine takes it so: say that it is going, unmap
 *   it, and once that has returned save the frame and poison it. Nobody but the
 *   storage engine writes to a poisoned frame: what he wrote would be found
 *   when the page comes back. Nobody reads one: the poison would be found in
 *   the data. Who needs a page that is going waits until it is out, and brings
 *   it in.
 * - What a page holds is in its frame, or if it is out in its store: there the
 *   data of a transfer that is complete must be, and nothing else than before
 *   around it. A transfer completes once, without error, after a bounded number
 *   of progress calls.
 * - The program may replace a page: it goes out, and another content comes in
 *   at the same address. Its old content with all that was written into it is
 *   what was saved. A read that overlaps such a replacement gets old or new
 *   content, but of what is in one DMA unit on both sides all of it or nothing.
 *   A write lands in either: what the new content does not have of it, the
 *   saved content has. A write within one unit lands in one of them, if only
 *   the target's pages change: soft0 knows what it has written, and does not
 *   write it twice. Until a transfer is complete, what it brings may be the
 *   signature, if it is a read, or if a page of its source goes.
 */

#ifndef NPRDMA_TEST_RACE_H_
#define NPRDMA_TEST_RACE_H_

#include "nprdma/start.h"
#include "nprdma/dev/soft/peer.h"
#include "nprdma/mem/alloc.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/mem/signature.h"
#include "nprdma/pause.h"
#include "nprdma/face/soft.h"
#include "nprdma/proto/soft/rma.h"

#define RACE_PAGES     8
#define RACE_SIZE      (RACE_PAGES * NP_PAGE_SIZE)
#define RACE_NEVER     (~0u)
#define RACE_MAX_PLANS 3

/* Progress calls after which a transfer hangs; a healthy one needs some ten,
 * and as many as it waits for a swapper */
#define RACE_PROGRESS  200000


/* -- pages and who swaps them: test_race_world.c */

typedef enum race_state {
    RACE_IN,
    RACE_GOING,
    RACE_OUT
} race_state_t;

/* Contents: of each byte they differ */
typedef enum race_content {
    RACE_OLD,
    RACE_NEW,
    RACE_POISON,
    RACE_CONTENTS
} race_content_t;

typedef struct race_page {
    _Atomic race_state_t state;
    int                  is_replaced;  /* has RACE_NEW around the transfer */
    uint8_t              store[NP_PAGE_SIZE]; /* what it holds while out */
    uint8_t              saved[NP_PAGE_SIZE]; /* what it held when replaced */
} race_page_t;

typedef struct race_region {
    uint8_t     *base;
    uint8_t     *content[RACE_CONTENTS]; /* RACE_SIZE bytes each */
    unsigned    first;                   /* pages in use by this transfer */
    unsigned    last;
    race_page_t page[RACE_PAGES];
} race_region_t;

typedef enum race_side {
    RACE_REMOTE,
    RACE_LOCAL
} race_side_t;

extern race_region_t race_remote, race_local;

/* Memory: remote is what @a alloc has given out, or ours */
int race_region_open(race_region_t *region, unsigned id, void *base);

/* All pages in use are in and hold RACE_OLD; returns 0 if that fails */
int race_region_reset(race_region_t *region);

/* Takes the page out, if it is in */
void race_evict(race_region_t *region, unsigned page);

/* Brings it in, if it is out; not mapped */
void race_bring_in(race_region_t *region, unsigned page);

/* Takes it out, and another content in */
void race_replace(race_region_t *region, unsigned page);

static inline uint64_t race_va(const race_region_t *region, size_t offset)
{
    return (uintptr_t)region->base + offset;
}

/* What the page holds, at this offset of its region */
const uint8_t *race_holds(const race_region_t *region, size_t offset);


/* -- events and actors: test_race_actor.c */

typedef enum race_kind {
    RACE_EV_NONE,
    RACE_EV_OUT,       /* swap out */
    RACE_EV_IN,        /* swap in, and tell the engine */
    RACE_EV_PRESENT,   /* swap in, and let the engine find out */
    RACE_EV_OUT_IN,    /* swap out, swap in, tell */
    RACE_EV_REPLACE,   /* swap out, another content in, tell */
    RACE_EV_UNMAP,     /* the page stays, the mapping goes (a scan) */
    RACE_EV_PROTECT,   /* copy on write: the writable half goes */
    RACE_EV_SERVE,     /* a service thread of the target looks at its rings */
    RACE_EV_CALL       /* race.call */
} race_kind_t;

/* An actor's part */
typedef struct race_plan {
    race_kind_t kind;
    race_side_t side;
    unsigned    page;
    unsigned    at;     /* pause point of the transfer where it begins */
    unsigned    until;  /* pause point of its own where it stops */
} race_plan_t;

/* Forget all plans, and begin to count anew */
void race_plans_clear(void);
void race_plan_add(const race_plan_t *plan);

/* Have all who stopped go on to their ends */
void race_actors_finish(void);

/* An actor that stands in the way goes on to its end */
void race_actors_release_page(race_region_t *region, unsigned page);

/* Did it begin, did it stop? */
int race_plan_has_begun(unsigned i);
int race_plan_has_stopped(unsigned i);

/* Pause points on and off */
void race_hook_on(void);
void race_hook_off(void);


/* -- ports: test_race_port.c */

typedef struct race_comp {
    unsigned     count;
    ucs_status_t status;
} race_comp_t;

typedef struct race_world {
    np_port_t   *from;
    np_port_t   *to;
    np_link_t   link;
    np_link_t   second;       /* another link between the same two */
    np_key_t    *key;
    np_alloc_t  *alloc;       /* of remote, if that is mapped directly */
    int         is_direct;
    int         is_refusing;
    int         is_threaded;  /* whoever a page waits for is another thread */
    unsigned    index;        /* pause points of the transfer so far */
    int         to_is_busy;   /* somebody is in the target's progress */
    void        (*always)(np_pause_point_t point); /* at each pause point of
                                                      anybody */
    void        (*call)(void);                     /* RACE_EV_CALL */
    void        (*receive)(const void *data, unsigned len);
    const uint8_t *data;      /* of a copied put; NULL: local content */
    unsigned    unexpected;   /* completions of nobody */
} race_world_t;

extern race_world_t race;

typedef struct race_setting {
    const char       *name;
    np_write_check_t write_check;
    np_fault_mode_t  fault_mode;
    size_t           inline_max;
    size_t           share_min;   /* 0: larger than any transfer */
    np_tlb_mode_t    tlb;
    np_single_copy_t single_copy;
    int              is_refusing; /* the target's user forbids process_vm_* */
    int              is_direct;   /* remote memory is mapped */
    int              is_across;   /* memory lies in two arenas */
} race_setting_t;

/* Open both ports and connect */
int race_open(const race_setting_t *setting);
void race_close(void);

/* One round of both; the target's alone */
void race_progress(void);
void race_serve(void);

/* Progress until nothing is outstanding; 0: it hangs */
int race_drain(void);


/* -- judging: test_race_judge.c */

/* A violation: said, counted, and the interleaving named */
void race_violation(const char *format, ...)
        __attribute__((format(printf, 1, 2)));

/* What the interleaving is, for whom it concerns */
void race_set_label(const char *format, ...)
        __attribute__((format(printf, 1, 2)));

typedef struct race_result {
    unsigned long runs;
    unsigned long violations;
    int           is_done;
    char          first[520];
} race_result_t;

/* Shared with the parent */
extern race_result_t *race_result;

/* Has enough gone wrong? */
int race_is_over(void);

/* Is [dst_off, dst_off + len) of @a dst as a transfer from @a src has left it,
 * all else as it was, and poisoned frames as they were? @a src NULL: from
 * @a data. @a piece: bytes of each element of the list. @a is_once: nothing was
 * written twice, and nothing but data. */
void race_judge_written(const char *when, const race_region_t *dst,
                        size_t dst_off, const race_region_t *src,
                        size_t src_off, const uint8_t *data, size_t len,
                        size_t piece, int is_once);

/* Nothing of it was written; frames as above */
void race_judge_untouched(const char *when, const race_region_t *region);

/* @a data has come from [src_off, ..) of @a src */
void race_judge_read(const char *when, const uint8_t *data,
                     const race_region_t *src, size_t src_off, size_t len);


/* -- one transfer among actors: test_race_transfer.c */

typedef enum race_how {
    RACE_GET,          /* np_rma_move */
    RACE_GET_UNPACK,
    RACE_PUT,          /* np_rma_move */
    RACE_PUT_COPIED,
    RACE_PUT_SHORT,
    RACE_ADD,          /* atomic, 8 bytes */
    RACE_CSWAP
} race_how_t;

typedef struct race_transfer {
    const char *name;
    race_how_t how;
    size_t     remote;   /* offset */
    size_t     local;    /* offset */
    size_t     len;
    unsigned   iovcnt;
} race_transfer_t;

/* What is there when it begins */
typedef enum race_start {
    RACE_ALL_IN,
    RACE_REMOTE_OUT,        /* its first page */
    RACE_ALL_REMOTE_OUT,
    RACE_REMOTE_UNMAPPED,
    RACE_LOCAL_OUT,
    RACE_BOTH_OUT,
    RACE_STARTS
} race_start_t;

extern const char *race_start_names[], *race_kind_names[];

/* Memory as it is when @a transfer begins */
void race_transfer_reset(const race_transfer_t *transfer, race_start_t start);

/* Post it, with NO_RESOURCE answered by progress; returns its status */
ucs_status_t race_transfer_post(const race_transfer_t *transfer,
                                race_comp_t *comp);

/* Progress until it is complete, said by @a comp or by a flush; 0: it hangs, or
 * fails */
int race_transfer_wait(const race_transfer_t *transfer, ucs_status_t status,
                       race_comp_t *comp);

/* Is it as it must be when it is complete? @a is_once as race_judge_written */
void race_transfer_judge(const char *when, const race_transfer_t *transfer,
                         int is_once);

/* Run it once among these actors, and judge */
void race_transfer_run(const race_transfer_t *transfer, race_start_t start,
                       const race_plan_t *plans, unsigned num_plans);

static inline int race_is_put(const race_transfer_t *transfer)
{
    return (transfer->how == RACE_PUT) || (transfer->how == RACE_PUT_COPIED) ||
           (transfer->how == RACE_PUT_SHORT);
}

static inline int race_has_local(const race_transfer_t *transfer)
{
    return (transfer->how == RACE_PUT) || (transfer->how == RACE_GET);
}


/* -- what is run: test_race_sweep.c, test_race_case.c, test_race_flight.c */

/* All transfers, with one event at each point; with two events at each pair of
 * points */
void race_sweep_single(void);
void race_sweep_pairs(void);

void race_mailbox(void);
void race_lock(void);
void race_fence(void);
void race_coincidence(void);
void race_thrash(void);
void race_stale(void);
void race_ranges(void);

/* Each word of a large write comes once: test_race_once.c */
void race_once(void);

/* What puts retain is bounded: test_race_once.c */
void race_bounded(void);

/* Units in flight in another thread */
void race_in_flight(void);

#endif
