/* SPDX-License-Identifier: BSD-3-Clause */
/* One transfer among actors. */

#include "test_race.h"

#include "nprdma/proto/ep.h"

#include <stdio.h>
#include <string.h>

#define RACE_ADDEND  0x0101010101010101u
#define RACE_SWAPPED 0x1122334455667788u

const char *race_start_names[] = {
    [RACE_ALL_IN]          = "all in",
    [RACE_REMOTE_OUT]      = "remote out",
    [RACE_ALL_REMOTE_OUT]  = "all remote out",
    [RACE_REMOTE_UNMAPPED] = "remote unmapped",
    [RACE_LOCAL_OUT]       = "local out",
    [RACE_BOTH_OUT]        = "both out"
};

const char *race_kind_names[] = {
    [RACE_EV_NONE]    = "nothing",
    [RACE_EV_OUT]     = "out",
    [RACE_EV_IN]      = "in",
    [RACE_EV_PRESENT] = "in, not told",
    [RACE_EV_OUT_IN]  = "out and in",
    [RACE_EV_REPLACE] = "replace",
    [RACE_EV_UNMAP]   = "unmap",
    [RACE_EV_PROTECT] = "protect",
    [RACE_EV_SERVE]   = "serve",
    [RACE_EV_CALL]    = "call"
};

/* What buffered transfers bring, and from where; what atomics return */
static uint8_t race_buffer[RACE_SIZE];
static uint64_t race_old_word;


static unsigned race_page_of(size_t offset)
{
    return offset / NP_PAGE_SIZE;
}

void race_transfer_reset(const race_transfer_t *transfer, race_start_t start)
{
    size_t last   = transfer->len - 1;
    unsigned page = race_page_of(transfer->remote);

    /* a page more on either side, that must stay as it is */
    race_remote.first = page - (page > 0);
    race_remote.last  = race_page_of(transfer->remote + last) + 1;
    race_local.first  = race_page_of(transfer->local);
    race_local.first -= race_local.first > 0;
    race_local.last   = race_page_of(transfer->local + last) + 1;
    if (!race_region_reset(&race_remote) || !race_region_reset(&race_local)) {
        race_violation("memory cannot be mapped");
    }

    memset(race_buffer, 0, transfer->len);
    switch (start) {
    case RACE_ALL_REMOTE_OUT:
        for (; page < race_remote.last; ++page) {
            race_evict(&race_remote, page);
        }
        break;
    case RACE_REMOTE_UNMAPPED:
        np_mapper_unmap(race_va(&race_remote, page * NP_PAGE_SIZE),
                        NP_PAGE_SIZE);
        break;
    case RACE_REMOTE_OUT:
        race_evict(&race_remote, page);
        break;
    case RACE_BOTH_OUT:
        race_evict(&race_remote, page);
        race_evict(&race_local, race_page_of(transfer->local));
        break;
    case RACE_LOCAL_OUT:
        race_evict(&race_local, race_page_of(transfer->local));
        break;
    default:
        break;
    }
}

static void race_unpack(void *arg, const void *data, size_t len)
{
    memcpy(race_buffer, data, len);
}

/* Bytes of each element of a list but the last */
static size_t race_piece(const race_transfer_t *transfer)
{
    return (transfer->iovcnt == 1) ? transfer->len :
           (transfer->len / transfer->iovcnt) | 1;
}

/* Pieces of uneven lengths, end to end */
static unsigned race_iov(const race_transfer_t *transfer, np_iov_t *iov)
{
    size_t done = 0;
    unsigned i;

    for (i = 0; i < transfer->iovcnt; ++i) {
        iov[i].base = race_local.base + transfer->local + done;
        iov[i].len  = ((i + 1) == transfer->iovcnt) ? transfer->len - done :
                      race_piece(transfer);
        done       += iov[i].len;
    }
    return transfer->iovcnt;
}

static ucs_status_t
race_transfer_call(const race_transfer_t *transfer, race_comp_t *comp)
{
    uint64_t addr = race_va(&race_remote, transfer->remote);
    const uint8_t *data = (race.data != NULL) ? race.data :
                          race_local.content[RACE_OLD] + transfer->local;
    np_iov_t iov[NP_MAX_IOV];
    uint64_t expected;
    unsigned iovcnt;

    iovcnt = race_iov(transfer, iov);
    switch (transfer->how) {
    case RACE_GET:
        return np_ep_move(NP_DIR_GET, &race.link.flight, race.key, iov,
                          iovcnt, addr, comp);
    case RACE_GET_UNPACK:
        return np_ep_get_unpack(&race.link.flight, race.key, transfer->len,
                                addr, race_unpack, NULL, comp);
    case RACE_PUT:
        return np_ep_move(NP_DIR_PUT, &race.link.flight, race.key, iov,
                          iovcnt, addr, comp);
    case RACE_PUT_COPIED:
        return np_ep_put_copied(&race.link.flight, race.key, data,
                                transfer->len, addr);
    case RACE_PUT_SHORT:
        return np_soft_put_short(&race.link, race.key, data, transfer->len,
                                addr);
    case RACE_ADD:
        return np_ep_atomic(&race.link.flight, race.key,
                            &(np_atomic_t){.addr = addr, .value = RACE_ADDEND,
                                           .op = NP_ATOMIC_ADD,
                                           .size = transfer->len},
                            &race_old_word, comp);
    default:
        memcpy(&expected, race_remote.content[RACE_OLD] + transfer->remote,
               sizeof(expected));
        return np_ep_atomic(&race.link.flight, race.key,
                            &(np_atomic_t){.addr = addr, .value = RACE_SWAPPED,
                                           .compare = expected,
                                           .op = NP_ATOMIC_CSWAP,
                                           .size = transfer->len},
                            &race_old_word, comp);
    }
}

ucs_status_t race_transfer_post(const race_transfer_t *transfer,
                                race_comp_t *comp)
{
    ucs_status_t status;
    unsigned i;

    *comp = (race_comp_t){0, UCS_INPROGRESS};
    for (i = 0; i < RACE_PROGRESS; ++i) {
        status = race_transfer_call(transfer, comp);
        if (status != UCS_ERR_NO_RESOURCE) {
            return status;
        }
        race_progress();
    }
    return UCS_ERR_NO_RESOURCE;
}

int race_transfer_wait(const race_transfer_t *transfer, ucs_status_t status,
                       race_comp_t *comp)
{
    int by_flush = (transfer->how == RACE_PUT_COPIED) ||
                   (transfer->how == RACE_PUT_SHORT);
    unsigned i;

    if (by_flush && (status == UCS_OK)) {
        status = np_flight_flush(&race.link.flight, comp);
    }

    if (status == UCS_OK) {
        if (comp->count > 0) {
            race_violation("it returns, and completes");
        }
        return 1;
    } else if (status != UCS_INPROGRESS) {
        race_violation("it fails: %s", ucs_status_string(status));
        return 0;
    }

    for (i = 0; (i < RACE_PROGRESS) && (comp->count == 0); ++i) {
        race_progress();
    }

    if (comp->count == 0) {
        race_violation("it hangs");
        return 0;
    } else if (comp->status != UCS_OK) {
        race_violation("it ends: %s", ucs_status_string(comp->status));
        return 0;
    }
    return 1;
}

/* The word before, and after: one of the two contents, and what was done */
static void race_judge_atomic(const char *when, const race_transfer_t *transfer)
{
    uint64_t first, second, now;
    int is_replaced;

    is_replaced = race_remote.page[race_page_of(transfer->remote)].is_replaced;
    memcpy(&first, race_remote.content[RACE_OLD] + transfer->remote,
           sizeof(first));
    memcpy(&second, race_remote.content[RACE_NEW] + transfer->remote,
           sizeof(second));
    if ((race_old_word != first) &&
        !(is_replaced && (race_old_word == second))) {
        race_violation("%s, the word before was %#lx", when, race_old_word);
    }

    now = (transfer->how == RACE_ADD) ? race_old_word + RACE_ADDEND :
          (race_old_word == first)    ? RACE_SWAPPED : race_old_word;
    race_judge_written(when, &race_remote, transfer->remote, NULL, 0,
                       (uint8_t*)&now, sizeof(now), sizeof(now), 1);
}

void race_transfer_judge(const char *when, const race_transfer_t *transfer,
                         int is_once)
{
    size_t piece = race_piece(transfer);

    switch (transfer->how) {
    case RACE_GET:
        race_judge_written(when, &race_local, transfer->local, &race_remote,
                           transfer->remote, NULL, transfer->len, piece, 0);
        race_judge_untouched(when, &race_remote);
        break;
    case RACE_GET_UNPACK:
        race_judge_read(when, race_buffer, &race_remote, transfer->remote,
                        transfer->len);
        race_judge_untouched(when, &race_remote);
        race_judge_untouched(when, &race_local);
        break;
    case RACE_PUT:
        race_judge_written(when, &race_remote, transfer->remote, &race_local,
                           transfer->local, NULL, transfer->len, piece,
                           is_once);
        race_judge_untouched(when, &race_local);
        break;
    case RACE_PUT_COPIED:
    case RACE_PUT_SHORT:
        race_judge_written(when, &race_remote, transfer->remote, NULL, 0,
                           race_local.content[RACE_OLD] + transfer->local,
                           transfer->len, piece, is_once);
        race_judge_untouched(when, &race_local);
        break;
    default:
        race_judge_atomic(when, transfer);
        race_judge_untouched(when, &race_local);
        break;
    }
}

static void race_transfer_label(const race_transfer_t *transfer,
                                race_start_t start, const race_plan_t *plans,
                                unsigned num_plans)
{
    char text[200] = "";
    size_t used    = 0;
    unsigned i;

    for (i = 0; i < num_plans; ++i) {
        used += snprintf(text + used, sizeof(text) - used,
                         "; %s of %s page %u at point %u, until %d",
                         race_kind_names[plans[i].kind],
                         (plans[i].side == RACE_REMOTE) ? "remote" : "local",
                         plans[i].page, plans[i].at, (int)plans[i].until);
        used  = ucs_min(used, sizeof(text) - 1);
    }
    race_set_label("%s, %s%s", transfer->name, race_start_names[start], text);
}

void race_transfer_run(const race_transfer_t *transfer, race_start_t start,
                       const race_plan_t *plans, unsigned num_plans)
{
    int is_once = (start != RACE_LOCAL_OUT) && (start != RACE_BOTH_OUT) &&
                  (((transfer->remote % NP_DMA_UNIT) + transfer->len) <=
                   NP_DMA_UNIT);
    race_comp_t comp;
    ucs_status_t status;
    unsigned i, count;

    ++race_result->runs;
    race_transfer_label(transfer, start, plans, num_plans);
    race_transfer_reset(transfer, start);
    race_plans_clear();
    for (i = 0; i < num_plans; ++i) {
        race_plan_add(&plans[i]);
        is_once &= plans[i].side == RACE_REMOTE;
    }

    race_hook_on();
    status = race_transfer_post(transfer, &comp);
    if (race_transfer_wait(transfer, status, &comp)) {
        race_transfer_judge("when complete", transfer, is_once);
    }
    count = comp.count;
    race_actors_finish();
    if (!race_drain()) {
        race_violation("something stays outstanding");
    }
    race_progress();
    race_hook_off();

    race_transfer_judge("afterwards", transfer, is_once);
    if ((comp.count != count) || (count > 1) || (race.unexpected > 0)) {
        race_violation("it completes %u times, and nobody %u times",
                       comp.count, race.unexpected);
    }
}
