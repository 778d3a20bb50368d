/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Races by construction: every setting in a child of its own, and mutants,
 * which must be found.
 */

#include "tap.h"
#include "test_race.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Seconds after which a child does not end: some ten times what it takes */
#define RACE_CHILD_TIME 120

unsigned tap_count, tap_failures;

typedef struct race_part {
    const char *name;
    void       (*run)(void);
    int        is_cached;   /* only where translations are cached */
} race_part_t;

/* In the order in which mutants are looked for: the short ones first */
static const race_part_t parts[] = {
    {"ranges in any order",  race_ranges, 0},
    {"mailbox",              race_mailbox, 0},
    {"lock word",            race_lock, 0},
    {"each word once",       race_once, 0},
    {"bytes that wait",      race_bounded, 0},
    {"fence",                race_fence, 0},
    {"cached translations",  race_stale, 1},
    {"units in flight",      race_in_flight, 0},
    {"pages that go again",  race_thrash, 0},
    {"signature as data",    race_coincidence, 0},
    {"two events",           race_sweep_pairs, 0},
    {"one event",            race_sweep_single, 0}
};

#define RACE_PARTS ucs_static_array_size(parts)

#define RACE_SHARED  (1024 * 1024)
#define RACE_INLINE  (16 * 1024)
#define RACE_REVERSE 0

/* Reverse transfers of both links that may be on their way at a time */
#define RACE_REFUSALS (2 * NP_CTL_SLOTS)

/* Settings that mutants are looked for in; where they are in the list */
enum {
    RACE_AUTO    = 0,
    RACE_ENTRIES = 4,
    RACE_CACHED  = 9
};

/* Each way to check, with each way to finish, on each way to the memory */
static const race_setting_t settings[] = {
    [RACE_AUTO] = {
        .name        = "auto, inside messages, copied by the kernel",
        .inline_max  = RACE_INLINE
    }, {
        .name        = "auto, reverse, mapped",
        .inline_max  = RACE_REVERSE,
        .is_direct   = 1
    }, {
        .name        = "auto, retry, copied by the kernel",
        .fault_mode  = NP_FAULT_MODE_RETRY
    }, {
        .name        = "entries, inside messages, mapped",
        .write_check = NP_WRITE_CHECK_ENTRIES,
        .inline_max  = RACE_INLINE,
        .is_direct   = 1
    }, [RACE_ENTRIES] = {
        .name        = "entries, reverse, copied by the kernel",
        .write_check = NP_WRITE_CHECK_ENTRIES,
        .inline_max  = RACE_REVERSE
    }, {
        .name        = "entries, retry, mapped, in pieces",
        .write_check = NP_WRITE_CHECK_ENTRIES,
        .fault_mode  = NP_FAULT_MODE_RETRY,
        .is_direct   = 1,
        .share_min   = 4096
    }, {
        .name        = "read back, inside messages, copied by the kernel",
        .write_check = NP_WRITE_CHECK_READBACK,
        .inline_max  = RACE_INLINE
    }, {
        .name        = "read back, reverse, mapped, in pieces",
        .write_check = NP_WRITE_CHECK_READBACK,
        .inline_max  = RACE_REVERSE,
        .is_direct   = 1,
        .share_min   = 4096
    }, {
        .name        = "read back, retry, mapped",
        .write_check = NP_WRITE_CHECK_READBACK,
        .fault_mode  = NP_FAULT_MODE_RETRY,
        .is_direct   = 1
    }, [RACE_CACHED] = {
        .name        = "entries, reverse, mapped, cached translations",
        .write_check = NP_WRITE_CHECK_ENTRIES,
        .inline_max  = RACE_REVERSE,
        .tlb         = NP_TLB_PAGE,
        .is_direct   = 1
    }, {
        .name        = "auto, retry, copied by the kernel, cached translations",
        .fault_mode  = NP_FAULT_MODE_RETRY,
        .tlb         = NP_TLB_PAGE
    }, {
        .name        = "auto, reverse, across two arenas",
        .inline_max  = RACE_REVERSE,
        .is_across   = 1
    }, {
        .name        = "through the rings",
        .single_copy = NP_SINGLE_COPY_OFF,
        .inline_max  = RACE_INLINE
    }, {
        .name        = "no process_vm, mapped",
        .single_copy = NP_SINGLE_COPY_OFF,
        .inline_max  = RACE_REVERSE,
        .is_direct   = 1
    }, {
        .name        = "no process_vm at the target, mapped",
        .inline_max  = RACE_REVERSE,
        .is_refusing = 1,
        .is_direct   = 1
    }
};

#define RACE_SETTINGS ucs_static_array_size(settings)

typedef struct race_mutant {
    np_mutant_t mutant;
    const char  *name;
    unsigned    setting;
} race_mutant_t;

/* soft0 knows what it has written, and loses nothing unseen: so mutants of the
 * entries are looked for where only entries count */
static const race_mutant_t mutants[] = {
    {NP_MUTANT_ENTRY_AFTER_TRANSLATION, "ENTRY_AFTER_TRANSLATION",
     RACE_ENTRIES},
    {NP_MUTANT_ENTRY_BEFORE_FLUSH, "ENTRY_BEFORE_FLUSH", RACE_CACHED},
    {NP_MUTANT_CHECK_BEFORE_DATA, "CHECK_BEFORE_DATA", RACE_ENTRIES},
    {NP_MUTANT_COUNT_NOT_BUMPED, "COUNT_NOT_BUMPED", RACE_ENTRIES},
    {NP_MUTANT_FAULT_TOO_EARLY, "FAULT_TOO_EARLY", RACE_AUTO},
    {NP_MUTANT_FENCE_LETS_PASS, "FENCE_LETS_PASS", RACE_AUTO},
    {NP_MUTANT_SWAP_OUT_NO_DRAIN, "SWAP_OUT_NO_DRAIN", RACE_AUTO}
};

_Static_assert(ucs_static_array_size(mutants) ==
               (NP_MUTANT_READ_UNCHECKED - 1), /* the first of the others */
               "each mutant is looked for");

/* What a child finds; shared with its parent */
typedef struct race_report {
    race_result_t part[RACE_PARTS];
    np_stats_t    stats;
    int           is_ready;   /* ports were opened */
    int           is_done;
} race_report_t;

static race_report_t *report;


static int race_is_part_of(const race_part_t *part,
                           const race_setting_t *setting)
{
    return !part->is_cached || (setting->tlb != NP_TLB_OFF);
}

static int race_begin(const race_setting_t *setting)
{
    const np_engine_config_t config = {
        .share_min   = (setting->share_min > 0) ? setting->share_min :
                       RACE_SHARED,
        .share_chunk = 4096,
        .write_check = setting->write_check,
        .fault_mode  = setting->fault_mode,
        .inline_max  = setting->inline_max,
        .single_copy = setting->single_copy,
        .tlb.mode    = setting->tlb,
        .service     = NP_SERVICE_OFF
    };

    race_result = &report->part[0];
    race_set_label("opening");
    return (np_engine_init(&config) == UCS_OK) && race_open(setting);
}

/* In a child: all parts, or until the first violation */
static int race_child(const race_setting_t *setting, int is_first)
{
    unsigned i;

    alarm(RACE_CHILD_TIME);
    report->is_ready = race_begin(setting);
    if (!report->is_ready) {
        return 1;
    }

    for (i = 0; i < RACE_PARTS; ++i) {
        if (!race_is_part_of(&parts[i], setting)) {
            continue;
        }

        race_result = &report->part[i];
        parts[i].run();
        race_result->is_done = 1;
        if (is_first && (race_result->violations > 0)) {
            return 0; /* nothing works any more */
        }
    }

    np_stats_sum(&report->stats);
    race_close();
    report->is_done = 1;
    return 0;
}

static void race_fork(const race_setting_t *setting, np_mutant_t mutant)
{
    int status;
    pid_t pid;

    memset(report, 0, sizeof(*report));
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        np_mutant = mutant;
        status    = race_child(setting, mutant != NP_MUTANT_NONE);
        _exit(status);
    }

    if ((pid < 0) || (waitpid(pid, &status, 0) != pid)) {
        printf("# %s: no child\n", setting->name);
    } else if (WIFSIGNALED(status)) {
        printf("# %s: killed by signal %d\n", setting->name, WTERMSIG(status));
    }
}

/* A setting's counters say that it has been in what it is there for */
static void race_check_counters(const race_setting_t *setting)
{
    const np_stats_t *stats = &report->stats;
    int has_vm              = setting->single_copy != NP_SINGLE_COPY_OFF;
    int has_rings           = !has_vm && !setting->is_direct;
    int is_retry            = setting->fault_mode == NP_FAULT_MODE_RETRY;

    TAP_CHECK(has_rings || ((stats->remote_faults > 0) &&
                            (stats->local_faults > 0) && (stats->inlines > 0) &&
                            (stats->replays > 0) && (stats->copies > 0) &&
                            (stats->false_alarms > 0)),
              "%s: FAULTs (%lu), replays (%lu), copies (%lu), false alarms "
              "(%lu)", setting->name, stats->remote_faults, stats->replays,
              stats->copies, stats->false_alarms);
    TAP_CHECK(has_rings || (is_retry ? (stats->retries > 0) :
                            ((stats->reverses > 0) ==
                             (has_vm && (setting->inline_max ==
                                         RACE_REVERSE)))),
              "%s: reverse transfers (%lu), retries (%lu)", setting->name,
              stats->reverses, stats->retries);
    if (setting->is_refusing) {
        TAP_CHECK(stats->reverses <= RACE_REFUSALS,
                  "%s: it is asked %lu times", setting->name, stats->reverses);
    }
    TAP_CHECK((stats->atomics > 0) &&
              ((setting->tlb == NP_TLB_OFF) || (stats->tlb_hits > 0)),
              "%s: atomics (%lu), cached translations (%lu)", setting->name,
              stats->atomics, stats->tlb_hits);
}

static unsigned long race_check_setting(const race_setting_t *setting)
{
    const race_result_t *result;
    unsigned long runs = 0;
    unsigned i;

    race_fork(setting, NP_MUTANT_NONE);
    for (i = 0; i < RACE_PARTS; ++i) {
        if (!race_is_part_of(&parts[i], setting)) {
            continue;
        }

        result = &report->part[i];
        runs  += result->runs;
        TAP_CHECK(result->is_done && (result->runs > 0) &&
                  (result->violations == 0), "%s: %s: %lu interleavings",
                  setting->name, parts[i].name, result->runs);
        if (result->violations > 0) {
            printf("# %s\n", result->first);
        }
    }

    TAP_CHECK(report->is_done, "%s: it ends", setting->name);
    race_check_counters(setting);
    return runs;
}

static unsigned long race_check_mutant(const race_mutant_t *mutant)
{
    const race_result_t *found = NULL;
    unsigned long runs         = 0;
    unsigned i;

    race_fork(&settings[mutant->setting], mutant->mutant);
    for (i = 0; (i < RACE_PARTS) && (found == NULL); ++i) {
        runs += report->part[i].runs;
        found = (report->part[i].violations > 0) ? &report->part[i] : NULL;
    }

    TAP_CHECK(report->is_ready && (found != NULL),
              "mutant %s is found: %lu interleavings", mutant->name, runs);
    if (found != NULL) {
        printf("# %s\n", found->first);
    }
    return runs;
}

/* With an argument: only so many settings, and no mutants */
int main(int argc, char **argv)
{
    unsigned num_settings = (argc > 1) ?
                            ucs_min((unsigned)atoi(argv[1]), RACE_SETTINGS) :
                            RACE_SETTINGS;
    unsigned long runs    = 0;
    unsigned i;

    setvbuf(stdout, NULL, _IOLBF, 0);
    report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED) {
        printf("Bail out! no memory\n");
        return 1;
    }

    for (i = 0; i < num_settings; ++i) {
        runs += race_check_setting(&settings[i]);
    }

    for (i = 0; (argc == 1) && (i < ucs_static_array_size(mutants)); ++i) {
        (void)race_check_mutant(&mutants[i]);
    }

    printf("# %lu interleavings\n", runs);
    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}
