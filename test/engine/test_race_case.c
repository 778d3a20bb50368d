/* SPDX-License-Identifier: BSD-3-Clause */
/* What programs build upon transfers, among actors. */

#include "test_race.h"

#include "nprdma/proto/ep.h"

#include <string.h>

/* Points of its own at which an actor stops, besides at none */
#define RACE_STOPS  4
#define RACE_POINTS 2000

/* Times that a page may go while it is needed: more than there are rounds of
 * any kind but the last */
#define RACE_THRASH 40

/* .. and so often that no number of rounds is enough */
#define RACE_THRASH_LONG 400

/* A run of one case: everything but the plan */
typedef void (*race_run_t)(const race_transfer_t *transfer, race_start_t start,
                           const race_plan_t *plan);

static const race_kind_t race_kinds[] = {
    RACE_EV_NONE, RACE_EV_OUT, RACE_EV_OUT_IN, RACE_EV_IN, RACE_EV_UNMAP,
    RACE_EV_PROTECT, RACE_EV_SERVE
};


/* Store into a page, wherever its content is */
static void race_poke(race_region_t *region, size_t offset, const void *data,
                      size_t len)
{
    size_t part;

    for (; len > 0; offset += part, len -= part) {
        part = ucs_min(len, (size_t)(NP_PAGE_SIZE - (offset % NP_PAGE_SIZE)));
        memcpy((void*)race_holds(region, offset), data, part);
        data = UCS_PTR_BYTE_OFFSET(data, part);
    }
}

static uint64_t race_word(size_t offset)
{
    uint64_t word;

    memcpy(&word, race_holds(&race_remote, offset), sizeof(word));
    return word;
}

static int race_is_in(size_t offset)
{
    return race_remote.page[offset / NP_PAGE_SIZE].state == RACE_IN;
}

static void race_case_begin(const char *name, const race_transfer_t *transfer,
                            race_start_t start, const race_plan_t *plan)
{
    ++race_result->runs;
    race_set_label("%s, %s, %s; %s of %s memory at point %u, until %d", name,
                   transfer->name, race_start_names[start],
                   race_kind_names[plan->kind],
                   (plan->side == RACE_REMOTE) ? "remote" : "local", plan->at,
                   (int)plan->until);
    race_transfer_reset(transfer, start);
    race_plans_clear();
    race_plan_add(plan);
}

/* Post it and wait for it; then nothing may happen any more */
static void race_case_transfer(const race_transfer_t *transfer)
{
    ucs_status_t status;
    race_comp_t comp;

    status = race_transfer_post(transfer, &comp);
    (void)race_transfer_wait(transfer, status, &comp);
}

static void race_case_end(void)
{
    race_actors_finish();
    if (!race_drain()) {
        race_violation("something stays outstanding");
    }
    race_progress();
    race_hook_off();
    race.always = NULL;
    race.data   = NULL;
}

/* One event at each of its points, of each kind, on either side */
static void
race_case_sweep_kind(race_run_t run, const race_transfer_t *transfer,
                     race_start_t start, race_plan_t *plan, unsigned stops)
{
    unsigned until;

    for (plan->at = 0; (plan->at < RACE_POINTS) && !race_is_over();
         ++plan->at) {
        plan->until = RACE_NEVER;
        run(transfer, start, plan);
        if (!race_plan_has_begun(0) || (plan->kind == RACE_EV_NONE)) {
            return;
        }

        for (until = 0; (until < stops) && !race_is_over(); ++until) {
            plan->until = until;
            run(transfer, start, plan);
            if (!race_plan_has_stopped(0)) {
                break;
            }
        }
    }
}

static void race_case_sweep(race_run_t run, const race_transfer_t *transfer,
                            unsigned stops)
{
    race_plan_t plan;
    race_start_t start;
    unsigned i;

    for (start = 0; start < RACE_STARTS; ++start) {
        if (!race_has_local(transfer) &&
            ((start == RACE_LOCAL_OUT) || (start == RACE_BOTH_OUT))) {
            continue;
        }

        for (i = 0; i < ucs_static_array_size(race_kinds); ++i) {
            plan = (race_plan_t){
                .kind = race_kinds[i],
                .side = RACE_REMOTE,
                .page = transfer->remote / NP_PAGE_SIZE
            };
            race_case_sweep_kind(run, transfer, start, &plan, stops);
            if (race_has_local(transfer)) {
                plan.side = RACE_LOCAL;
                plan.page = transfer->local / NP_PAGE_SIZE;
                race_case_sweep_kind(run, transfer, start, &plan, stops);
            }
        }
    }
}

/* Small writes of each way */
static const race_transfer_t race_words[] = {
    {"put 8",        RACE_PUT,        4096 + 64,   8192 + 1000, 8, 1},
    {"put 8 across", RACE_PUT,        4096 + 64,   8192 - 3, 8, 1},
    {"put copied 8", RACE_PUT_COPIED, 4096 + 512,  0, 8, 1},
    {"put short 8",  RACE_PUT_SHORT,  4096 + 1024, 0, 8, 1}
};

/* -- a mailbox: its consumer polls it, and clears what has come */

static const uint64_t race_mail = 0x1020304050607080u;
static size_t race_mailbox_at;
static unsigned race_mail_count;

static void race_mailbox_look(void)
{
    const uint64_t none = 0;
    uint64_t word       = race_word(race_mailbox_at);

    if (word == race_mail) {
        ++race_mail_count;
        race_poke(&race_remote, race_mailbox_at, &none, sizeof(none));
    } else if (word != 0) {
        race_violation("the mailbox holds %#lx", word);
        race_poke(&race_remote, race_mailbox_at, &none, sizeof(none));
    }
}

static void race_mailbox_poll(np_pause_point_t point)
{
    if (race_is_in(race_mailbox_at)) {
        race_mailbox_look();
    }
}

static void race_mailbox_run(const race_transfer_t *transfer,
                             race_start_t start, const race_plan_t *plan)
{
    const uint64_t none = 0;

    race_case_begin("mailbox", transfer, start, plan);
    race_mailbox_at = transfer->remote;
    race_mail_count = 0;
    race_poke(&race_remote, transfer->remote, &none, sizeof(none));
    race_poke(&race_local, transfer->local, &race_mail, sizeof(race_mail));
    race.data   = (const uint8_t*)&race_mail;
    race.always = race_mailbox_poll;
    race_hook_on();
    race_case_transfer(transfer);
    race_mailbox_look();
    if (race_mail_count != 1) {
        race_violation("when complete, %u letters have come", race_mail_count);
    }

    race_case_end();
    race_mailbox_look();
    if (race_mail_count != 1) {
        race_violation("afterwards, %u letters have come", race_mail_count);
    }
}

void race_mailbox(void)
{
    unsigned i;

    for (i = 0; i < ucs_static_array_size(race_words); ++i) {
        race_case_sweep(race_mailbox_run, &race_words[i], RACE_STOPS);
    }
}

/* -- a lock: released by a write, taken by somebody else at once */

enum {
    RACE_LOCK_FREE,
    RACE_LOCK_OURS,
    RACE_LOCK_THEIRS
};

static const uint64_t race_lock_free = RACE_LOCK_FREE;
static int race_lock_is_taken;

static void race_lock_try(void)
{
    const uint64_t theirs = RACE_LOCK_THEIRS;
    uint64_t word         = race_word(race_mailbox_at);

    if (race_lock_is_taken) {
        if (word != RACE_LOCK_THEIRS) {
            race_violation("the lock was taken, and is %lu", word);
            race_lock_is_taken = 0;
        }
    } else if (word == RACE_LOCK_FREE) {
        race_lock_is_taken = 1;
        race_poke(&race_remote, race_mailbox_at, &theirs, sizeof(theirs));
    }
}

static void race_lock_poll(np_pause_point_t point)
{
    if (race_is_in(race_mailbox_at)) {
        race_lock_try();
    }
}

static void race_lock_begin(const char *name, const race_transfer_t *transfer,
                            race_start_t start, const race_plan_t *plan)
{
    const uint64_t ours = RACE_LOCK_OURS;

    race_case_begin(name, transfer, start, plan);
    race_mailbox_at    = transfer->remote;
    race_lock_is_taken = 0;
    race_poke(&race_remote, transfer->remote, &ours, sizeof(ours));
    race_poke(&race_local, transfer->local, &race_lock_free,
              sizeof(race_lock_free));
    race.data = (const uint8_t*)&race_lock_free;
}

static void race_lock_run(const race_transfer_t *transfer, race_start_t start,
                          const race_plan_t *plan)
{
    race_lock_begin("lock", transfer, start, plan);
    race.always = race_lock_poll;
    race_hook_on();
    race_case_transfer(transfer);
    race_lock_try();
    race_case_end();
    race_lock_try();
    if (!race_lock_is_taken) {
        race_violation("the lock is not free");
    }
}

/* The same with an atomic of another link */
static race_comp_t race_lock_comp;
static ucs_status_t race_lock_status;
static uint64_t race_lock_before;

static void race_lock_post(void)
{
    race_lock_status = np_ep_atomic(&race.second.flight, race.key,
                                    &(np_atomic_t){
                                        .addr = race_va(&race_remote,
                                                        race_mailbox_at),
                                        .value = RACE_LOCK_THEIRS,
                                        .compare = RACE_LOCK_FREE,
                                        .op = NP_ATOMIC_CSWAP,
                                        .size = sizeof(uint64_t)
                                    },
                                    &race_lock_before, &race_lock_comp);
}

static void race_lock_atomic_run(const race_transfer_t *transfer,
                                 race_start_t start, const race_plan_t *plan)
{
    uint64_t word;

    race_lock_begin("lock and atomic", transfer, start, plan);
    race_lock_comp   = (race_comp_t){0, UCS_INPROGRESS};
    race_lock_status = UCS_ERR_NO_RESOURCE;
    race_lock_before = RACE_LOCK_OURS;
    race.call        = race_lock_post;
    race_hook_on();
    race_case_transfer(transfer);
    race_case_end();

    word = race_word(transfer->remote);
    if (((race_lock_status == UCS_INPROGRESS) !=
         (race_lock_comp.count == 1)) ||
        ((race_lock_comp.count == 1) && (race_lock_comp.status != UCS_OK))) {
        race_violation("the atomic fails: %s, %u times %s",
                       ucs_status_string(race_lock_status),
                       race_lock_comp.count,
                       ucs_status_string(race_lock_comp.status));
    } else if (word != ((race_lock_before == RACE_LOCK_FREE) ?
                        RACE_LOCK_THEIRS : RACE_LOCK_FREE)) {
        race_violation("the lock is %lu, and was %lu", word, race_lock_before);
    }
}

void race_lock(void)
{
    race_plan_t plan = {.kind = RACE_EV_CALL, .page = 1};
    race_start_t start;
    unsigned i;

    for (i = 0; i < ucs_static_array_size(race_words); ++i) {
        race_case_sweep(race_lock_run, &race_words[i], RACE_STOPS);
        for (start = 0; start <= RACE_REMOTE_UNMAPPED; ++start) {
            race_case_sweep_kind(race_lock_atomic_run, &race_words[i], start,
                                 &plan, RACE_STOPS);
        }
    }
}

/* -- a fence: the message behind it comes when the data is there */

static const race_transfer_t *race_fenced;
static unsigned race_fence_count;

static void race_fence_receive(const void *data, unsigned len)
{
    const race_region_t *src = race_has_local(race_fenced) ? &race_local : NULL;

    ++race_fence_count;
    race_judge_written("when the message comes", &race_remote,
                       race_fenced->remote, src, race_fenced->local,
                       race_local.content[RACE_OLD] + race_fenced->local,
                       race_fenced->len, race_fenced->len, 0);
}

static int race_fence_send(void)
{
    np_slot_t *slot;
    unsigned i;

    for (i = 0; i < RACE_PROGRESS; ++i) {
        if (np_soft_reserve_inline(&race.link, &slot) == UCS_OK) {
            memset(slot->data, 1, sizeof(uint64_t));
            np_fast_send_inline(&race.link, slot, 1, sizeof(uint64_t));
            return 1;
        }
        race_progress();
    }
    return 0;
}

static void race_fence_run(const race_transfer_t *transfer, race_start_t start,
                           const race_plan_t *plan)
{
    ucs_status_t status;
    race_comp_t comp;
    unsigned i;

    race_case_begin("fence", transfer, start, plan);
    race_fenced      = transfer;
    race_fence_count = 0;
    race.receive     = race_fence_receive;
    race_hook_on();
    status = race_transfer_post(transfer, &comp);
    np_flight_fence(&race.link.flight);
    if (!race_fence_send()) {
        race_violation("the message waits for ever");
    }

    for (i = 0; (i < RACE_PROGRESS) && (race_fence_count == 0); ++i) {
        race_progress();
    }

    if (race_fence_count != 1) {
        race_violation("the message comes %u times", race_fence_count);
    }
    (void)race_transfer_wait(transfer, status, &comp);
    race_case_end();
    race.receive = NULL;
}

void race_fence(void)
{
    static const race_transfer_t transfers[] = {
        {"put 600",        RACE_PUT,        4096 + 3900, 8192 + 1000, 600, 1},
        {"put 8",          RACE_PUT,        4096 + 64,   8192 + 1000, 8, 1},
        {"put copied 8",   RACE_PUT_COPIED, 4096 + 64,   0, 8, 1},
        {"put copied 600", RACE_PUT_COPIED, 4096 + 3900, 0, 600, 1},
        {"put short 8",    RACE_PUT_SHORT,  4096 + 64,   0, 8, 1}
    };
    unsigned i;

    for (i = 0; i < ucs_static_array_size(transfers); ++i) {
        race_case_sweep(race_fence_run, &transfers[i], RACE_STOPS);
    }
}

/* -- data that looks like the signature */

static uint8_t race_twin[RACE_SIZE];

static void race_coincidence_run(const race_transfer_t *transfer,
                                 race_start_t start, const race_plan_t *plan)
{
    race_region_t *src = race_is_put(transfer) ? &race_local : &race_remote;
    race_region_t *dst = race_is_put(transfer) ? &race_remote : &race_local;
    size_t to          = race_is_put(transfer) ? transfer->remote :
                         transfer->local;
    size_t i;

    race_case_begin("coincidence", transfer, start, plan);
    np_signature_fill(race_twin, race_va(&race_remote, transfer->remote),
                      transfer->len);
    race_poke(src, race_is_put(transfer) ? transfer->local : transfer->remote,
              race_twin, transfer->len);
    race.data = race_twin;
    race_hook_on();
    race_case_transfer(transfer);
    for (i = 0; i < transfer->len; ++i) {
        if (*race_holds(dst, to + i) != race_twin[i]) {
            race_violation("when complete, byte %zu of %s memory is %02x",
                           to + i, (dst == &race_remote) ? "remote" : "local",
                           *race_holds(dst, to + i));
            break;
        }
    }
    race_case_end();
}

void race_coincidence(void)
{
    static const race_transfer_t transfers[] = {
        {"get 8",          RACE_GET,        4096 + 253,  8192 + 1000, 8, 1},
        {"get 600",        RACE_GET,        4096 + 3900, 4096 + 4000, 600, 1},
        {"put 600",        RACE_PUT,        4096 + 3900, 4096 + 4000, 600, 1},
        {"put copied 600", RACE_PUT_COPIED, 4096 + 3900, 0, 600, 1}
    };
    unsigned i;

    for (i = 0; i < ucs_static_array_size(transfers); ++i) {
        race_case_sweep(race_coincidence_run, &transfers[i], 0);
    }
}

/* -- a page that goes each time that it has come */

static unsigned race_thrash_left;
static np_pause_point_t race_thrash_point;
static race_region_t *race_thrash_region;

static void race_thrash_poll(np_pause_point_t point)
{
    static int is_in;

    if ((point == race_thrash_point) && (race_thrash_left > 0) && !is_in) {
        is_in = 1;
        --race_thrash_left;
        race_evict(race_thrash_region, race_mailbox_at / NP_PAGE_SIZE);
        is_in = 0;
    }
}

/* Away at each occurrence of this point, up to so many times */
static void race_thrash_at(const race_transfer_t *transfer,
                           np_pause_point_t point)
{
    unsigned times;

    race_thrash_point = point;
    for (times = 1; (times <= RACE_THRASH) && !race_is_over(); ++times) {
        race_thrash_left = times;
        race.always      = race_thrash_poll;
        race_transfer_run(transfer, RACE_BOTH_OUT, NULL, 0);
        race.always      = NULL;
    }
}

/* As long as the target lives, the initiator asks again */
static void race_thrash_long(const race_transfer_t *transfer,
                             np_pause_point_t point)
{
    race_thrash_point  = point;
    race_thrash_region = &race_remote;
    race_mailbox_at    = transfer->remote;
    race_thrash_left   = RACE_THRASH_LONG;
    race.always        = race_thrash_poll;
    race_transfer_run(transfer, RACE_REMOTE_OUT, NULL, 0);
    race.always        = NULL;
    if (race_thrash_left > 0) {
        race_violation("the page has gone %u times less than it could",
                       race_thrash_left);
    }
}

static void race_thrash_all_long(void)
{
    static const race_transfer_t transfers[] = {
        {"get 100",        RACE_GET,        4096 + 256, 8192 + 1000, 100, 1},
        {"get unpack 100", RACE_GET_UNPACK, 4096 + 256, 0, 100, 1},
        {"put 100",        RACE_PUT,        4096 + 256, 8192 + 1000, 100, 1},
        {"put copied 100", RACE_PUT_COPIED, 4096 + 256, 0, 100, 1},
        {"put short 5000", RACE_PUT_SHORT,  4096 + 256, 0, 5000, 1},
        {"put 5000",       RACE_PUT,        4096 + 256, 8192 + 1000, 5000, 1},
        {"get 5000",       RACE_GET,        4096 + 256, 8192 + 1000, 5000, 1},
        {"add",            RACE_ADD,        4096 + 256, 0, 8, 1}
    };
    unsigned i;

    for (i = 0; (i < ucs_static_array_size(transfers)) && !race_is_over();
         ++i) {
        race_thrash_long(&transfers[i], NP_PAUSE_MAP_DONE);
    }
}

void race_thrash(void)
{
    static const race_transfer_t transfers[] = {
        {"get 100",        RACE_GET,        4096 + 256, 8192 + 1000, 100, 1},
        {"put 100",        RACE_PUT,        4096 + 256, 8192 + 1000, 100, 1},
        {"put copied 100", RACE_PUT_COPIED, 4096 + 256, 0, 100, 1},
        {"put 5000",       RACE_PUT,        4096 + 256, 8192 + 1000, 5000, 1},
        {"get 5000",       RACE_GET,        4096 + 256, 8192 + 1000, 5000, 1}
    };
    unsigned i;

    for (i = 0; i < ucs_static_array_size(transfers); ++i) {
        race_thrash_region = &race_remote;
        race_mailbox_at    = transfers[i].remote;
        race_thrash_at(&transfers[i], NP_PAUSE_SERVE_MAPPED);
        race_thrash_at(&transfers[i], NP_PAUSE_MAP_DONE);
        if (race_has_local(&transfers[i])) {
            race_thrash_region = &race_local;
            race_mailbox_at    = transfers[i].local;
            race_thrash_at(&transfers[i], NP_PAUSE_MAP_FLUSHED);
            race_thrash_at(&transfers[i], NP_PAUSE_MAP_DONE);
            race_thrash_at(&transfers[i], NP_PAUSE_CHECKED_LOCAL);
            race_thrash_at(&transfers[i], NP_PAUSE_FAULT_SEND);
        }
    }

    race_thrash_all_long();
}

/* -- what is missing of a transfer, added in any order: nothing is forgotten */

void race_ranges(void)
{
    np_ranges_t ranges = {.count = 0};
    size_t i, offset, end;

    ++race_result->runs;
    race_set_label("ranges");
    for (i = 0; i < NP_RANGES_MAX; ++i) {
        np_ranges_add(&ranges, (2 * i + 2) * NP_PAGE_SIZE, NP_PAGE_SIZE);
    }
    np_ranges_add(&ranges, 0, 100);
    np_ranges_add(&ranges, 3 * NP_PAGE_SIZE, 100);

    offset = ranges.range[NP_RANGES_MAX - 1].offset;
    end    = offset + ranges.range[NP_RANGES_MAX - 1].len;
    if ((ranges.count != NP_RANGES_MAX) || (offset != 0) ||
        (end != (2 * NP_RANGES_MAX + 1) * NP_PAGE_SIZE)) {
        race_violation("the last of %u is %zu..%zu", ranges.count, offset, end);
    }
}

/* -- two writes of one page, the second by what the device has cached */

static void race_stale_run(const race_transfer_t *transfer, race_start_t start,
                           const race_plan_t *plan)
{
    race_transfer_t second = *transfer;
    race_comp_t comp[2];
    ucs_status_t status[2];

    second.remote += 1024;
    second.local  += 1024;
    race_case_begin("two", transfer, start, plan);
    race_hook_on();
    status[0] = race_transfer_post(transfer, &comp[0]);
    status[1] = race_transfer_post(&second, &comp[1]);
    (void)race_transfer_wait(transfer, status[0], &comp[0]);
    (void)race_transfer_wait(&second, status[1], &comp[1]);
    if ((memcmp(race_holds(&race_remote, transfer->remote),
                race_local.content[RACE_OLD] + transfer->local,
                transfer->len) != 0) ||
        (memcmp(race_holds(&race_remote, second.remote),
                race_local.content[RACE_OLD] + second.local,
                second.len) != 0)) {
        race_violation("when complete, the data is not there");
    }
    race_case_end();
}

void race_stale(void)
{
    unsigned i;

    for (i = 0; i < ucs_static_array_size(race_words); ++i) {
        race_case_sweep(race_stale_run, &race_words[i], RACE_STOPS);
    }
}
