/* SPDX-License-Identifier: BSD-3-Clause */
/* What is written is written once, and what cannot be written yet is kept in a
 * bounded place.
 *
 * Exactly once: a consumer takes each word of a write as soon as it sees it. A
 * word that is written again comes back, whatever was missing around it. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "test_race.h"

#include "nprdma/proto/ep.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define RACE_ONCE_POINTS 4000

/* The three pages of the transfers, and who of them is out: the first and the
 * last, all, none */
#define RACE_ONCE_FIRST  1
static const unsigned race_once_out[] = {5, 7, 0};

static const race_kind_t race_once_kinds[] = {
    RACE_EV_NONE, RACE_EV_OUT, RACE_EV_OUT_IN, RACE_EV_UNMAP
};

/* The end of a page, all of the next, and the beginning of one more */
#define RACE_ONCE_REMOTE (NP_PAGE_SIZE + 3840)
#define RACE_ONCE_LEN    4608

static const race_transfer_t race_once_transfers[] = {
    {"put 4608",        RACE_PUT,        RACE_ONCE_REMOTE, 8192 + 1000,
     RACE_ONCE_LEN, 1},
    {"put 4608, 3",     RACE_PUT,        RACE_ONCE_REMOTE, 4096 + 8,
     RACE_ONCE_LEN, 3},
    {"put copied 4608", RACE_PUT_COPIED, RACE_ONCE_REMOTE, 0,
     RACE_ONCE_LEN, 1},
    {"put short 4608",  RACE_PUT_SHORT,  RACE_ONCE_REMOTE, 0,
     RACE_ONCE_LEN, 1}
};

/* Where letters are in the transfer */
static const size_t race_once_letters[] = {
    64,                 /* in the first page */
    256 + 64,           /* in the middle */
    256 + 2048,
    256 + 4032,
    256 + 4096 + 64     /* in the last page */
};

#define RACE_ONCE_LETTERS ucs_static_array_size(race_once_letters)

static const uint64_t race_once_mail = 0x1020304050607080u;
static unsigned race_once_count[RACE_ONCE_LETTERS];

/* What the kernel says to a process_vm_writev */
typedef enum race_writev {
    RACE_WRITEV_DONE,
    RACE_WRITEV_REFUSED, /* the initiator may not, from now on */
    RACE_WRITEV_SHORT,   /* half of it, and then that there is no memory, */
    RACE_WRITEV_FAULT    /* until whoever moves has heard of it */
} race_writev_t;

static race_writev_t race_writev = RACE_WRITEV_DONE;


/* In place of the C library's */
ssize_t process_vm_writev(pid_t pid, const struct iovec *local,
                          unsigned long liovcnt, const struct iovec *remote,
                          unsigned long riovcnt, unsigned long flags)
{
    struct iovec half = *local;

    switch (race_writev) {
    case RACE_WRITEV_REFUSED:
        if (race.to_is_busy) {
            break;
        }
        errno = EPERM;
        return -1;
    case RACE_WRITEV_SHORT:
        race_writev  = RACE_WRITEV_FAULT;
        half.iov_len = (half.iov_len + 1) / 2;
        return syscall(SYS_process_vm_writev, pid, &half, 1, remote, riovcnt,
                       flags);
    case RACE_WRITEV_FAULT:
        errno = EFAULT;
        return -1;
    default:
        break;
    }
    return syscall(SYS_process_vm_writev, pid, local, liovcnt, remote, riovcnt,
                   flags);
}

static void race_writev_refuse(void)
{
    race_writev = RACE_WRITEV_REFUSED;
}

static void race_writev_cut(void)
{
    race_writev = RACE_WRITEV_SHORT;
}

/* The consumer */
static void race_once_look(int with_store)
{
    const uint64_t none = 0;
    size_t i, offset;
    uint64_t word;

    for (i = 0; i < RACE_ONCE_LETTERS; ++i) {
        offset = RACE_ONCE_REMOTE + race_once_letters[i];
        if (!with_store &&
            (race_remote.page[offset / NP_PAGE_SIZE].state != RACE_IN)) {
            continue;
        }

        memcpy(&word, race_holds(&race_remote, offset), sizeof(word));
        if (word == race_once_mail) {
            ++race_once_count[i];
            memcpy((void*)race_holds(&race_remote, offset), &none,
                   sizeof(none));
        }
    }
}

static void race_once_poll(np_pause_point_t point)
{
    if (((point == NP_PAUSE_MOVED) || (point == NP_PAUSE_SERVE_MOVED)) &&
        (race_writev == RACE_WRITEV_FAULT)) {
        race_writev = RACE_WRITEV_DONE;
    }
    race_once_look(0);
}

static void race_once_check(const char *when)
{
    size_t i;

    race_once_look(1);
    for (i = 0; i < RACE_ONCE_LETTERS; ++i) {
        if (race_once_count[i] != 1) {
            race_violation("%s, letter %zu has come %u times", when, i,
                           race_once_count[i]);
            return;
        }
    }
}

static void race_once_write(const race_transfer_t *transfer)
{
    static uint8_t data[RACE_ONCE_LEN];
    const uint64_t none = 0;
    size_t i;

    memset(data, 0x11, sizeof(data));
    for (i = 0; i < RACE_ONCE_LETTERS; ++i) {
        memcpy(data + race_once_letters[i], &race_once_mail,
               sizeof(race_once_mail));
        memcpy((void*)race_holds(&race_remote, RACE_ONCE_REMOTE +
                                               race_once_letters[i]),
               &none, sizeof(none));
        race_once_count[i] = 0;
    }

    memcpy(race_local.base + transfer->local, data, sizeof(data));
    race.data = data;
}

/* @a local: the page of the source that is out */
static void race_once_run(const race_transfer_t *transfer, unsigned out,
                          int has_local, const race_plan_t *plan)
{
    ucs_status_t status;
    race_comp_t comp;
    unsigned i;

    ++race_result->runs;
    race_set_label("once, %s, remote pages %#x out%s; %s of %s page %u at "
                   "point %u", transfer->name, out,
                   has_local ? "" : ", local middle out",
                   race_kind_names[plan->kind],
                   (plan->side == RACE_REMOTE) ? "remote" : "local",
                   plan->page, plan->at);
    race_transfer_reset(transfer, RACE_ALL_IN);
    race_once_write(transfer);
    for (i = 0; i < 3; ++i) {
        if (out & UCS_BIT(i)) {
            race_evict(&race_remote, RACE_ONCE_FIRST + i);
        }
    }
    if (!has_local) {
        race_evict(&race_local, (transfer->local / NP_PAGE_SIZE) + 1);
    }

    race_plans_clear();
    race_plan_add(plan);
    race.always = race_once_poll;
    race_hook_on();
    status = race_transfer_post(transfer, &comp);
    if (race_transfer_wait(transfer, status, &comp)) {
        race_once_check("when complete");
    }

    race_actors_finish();
    if (!race_drain()) {
        race_violation("something stays outstanding");
    }
    race_progress();
    race_hook_off();
    race.always = NULL;
    race.data   = NULL;
    race_once_check("afterwards");
    race_writev          = RACE_WRITEV_DONE;
    race.link.no_vm      = 0;
    race.link.no_reverse = race.is_refusing && race.link.no_reverse;
    race.link.no_share   = 0;
}

static void race_once_sweep(const race_transfer_t *transfer, unsigned out,
                            int has_local, race_plan_t *plan)
{
    plan->until = RACE_NEVER;
    for (plan->at = 0; (plan->at < RACE_ONCE_POINTS) && !race_is_over();
         ++plan->at) {
        race_once_run(transfer, out, has_local, plan);
        if (!race_plan_has_begun(0) || (plan->kind == RACE_EV_NONE)) {
            return;
        }
    }
}

static void race_once_transfer(const race_transfer_t *transfer, unsigned out)
{
    race_plan_t plan;
    unsigned page;
    size_t i;

    for (i = 0; i < ucs_static_array_size(race_once_kinds); ++i) {
        plan = (race_plan_t){.kind = race_once_kinds[i], .side = RACE_REMOTE};
        for (page = 0; page < 3; ++page) {
            plan.page = RACE_ONCE_FIRST + page;
            race_once_sweep(transfer, out, 1, &plan);
        }

        if (race_has_local(transfer)) {
            plan.side = RACE_LOCAL;
            plan.page = (transfer->local / NP_PAGE_SIZE) + 1;
            race_once_sweep(transfer, out, 1, &plan);
            race_once_sweep(transfer, out, 0, &plan);
        }
    }
}

/* The kernel stops in the middle, for this time or for good, while nothing is
 * missing, and while something is */
static void race_once_cut_short(const race_transfer_t *transfer)
{
    race_plan_t plan = {.kind = RACE_EV_CALL, .side = RACE_REMOTE};
    size_t i;

    for (i = 0; i < ucs_static_array_size(race_once_out); ++i) {
        race.call = race_writev_refuse;
        race_once_sweep(transfer, race_once_out[i], 1, &plan);
        race.call = race_writev_cut;
        race_once_sweep(transfer, race_once_out[i], 1, &plan);
        if (race_has_local(transfer)) {
            race_once_sweep(transfer, race_once_out[i], 0, &plan);
        }
    }
    race.call = NULL;
}

void race_once(void)
{
    /* what goes through the rings is copied past the views, and no memory there
     * is an error */
    const int is_vm = !race.is_direct &&
                      (np_engine.config.single_copy != NP_SINGLE_COPY_OFF) &&
                      ((race_va(&race_remote, 0) >> NP_ARENA_SHIFT) ==
                       (race_va(&race_remote, RACE_SIZE - 1) >>
                        NP_ARENA_SHIFT));
    size_t i, j;

    for (i = 0; i < ucs_static_array_size(race_once_transfers); ++i) {
        for (j = 0; j < ucs_static_array_size(race_once_out); ++j) {
            race_once_transfer(&race_once_transfers[i], race_once_out[j]);
        }
        if (is_vm) {
            race_once_cut_short(&race_once_transfers[i]);
        }
    }
}

/* -- puts whose bytes the engine keeps, while nobody at the target looks */

#define RACE_KEPT_LEN  100
#define RACE_KEPT_MAX  64

void race_bounded(void)
{
    static const race_transfer_t transfer = {
        "puts copied", RACE_PUT_COPIED, NP_PAGE_SIZE, 0, 2 * NP_PAGE_SIZE, 1
    };
    const uint8_t *data = race_local.content[RACE_OLD];
    ucs_status_t status = UCS_OK;
    unsigned i, count;

    ++race_result->runs;
    race_set_label("puts that nobody takes");
    race_transfer_reset(&transfer, RACE_ALL_REMOTE_OUT);
    for (count = 0; (count < RACE_KEPT_MAX) && (status == UCS_OK);
         count += status == UCS_OK) {
        status = np_ep_put_copied(&race.link.flight, race.key,
                                  data + (count * RACE_KEPT_LEN),
                                  RACE_KEPT_LEN,
                                  race_va(&race_remote,
                                          NP_PAGE_SIZE +
                                          (count * RACE_KEPT_LEN)));
    }

    /* slots of the control ring, or of the data ring */
    if ((status != UCS_ERR_NO_RESOURCE) || (count < NP_CTL_SLOTS) ||
        (count > 32)) {
        race_violation("%u puts are kept, and then: %s", count,
                       ucs_status_string(status));
    }

    if (!race_drain()) {
        race_violation("something stays outstanding");
    }
    for (i = 0; i < count * RACE_KEPT_LEN; ++i) {
        if (*race_holds(&race_remote, NP_PAGE_SIZE + i) != data[i]) {
            race_violation("byte %u is not there", i);
            break;
        }
    }
}
