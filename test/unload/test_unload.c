/* SPDX-License-Identifier: BSD-3-Clause */
/* The policies of proto/unload.h over streams (streams.h). */
#include "../../contrib/bench/streams.h"

#include "../engine/tap.h"

#include <string.h>

/* By how much a policy may be worse than the better way */
#define UNLOAD_WORSE  1.03

/* After a change of phase: puts until the choice must be right, and by how much
 * it may be worse then */
#define PHASE_SETTLE  10000u
#define PHASE_WORSE   1.05

#define UNLOAD_PUTS   (1u << 20)

unsigned tap_count, tap_failures;


static unsigned unload_bytes(const np_unload_t *unload)
{
    return (unload->cells == NULL) ? 0 :
           (sizeof(*unload->cells) << (64 - unload->shift));
}

static void test_fixed(void)
{
    stream_run_t run;
    double mean;

    stream_begin(&run, STREAM_UNIFORM, 4096, 10000, NP_UNLOAD_OFF);
    stream_put(&run, 10000);
    TAP_CHECK((run.unloaded == 0) && (unload_bytes(&run.unload) == 0),
              "off: none is unloaded, and nothing is counted");
    stream_end(&run);

    stream_begin(&run, STREAM_UNIFORM, 4096, 10000, NP_UNLOAD_ALWAYS);
    stream_put(&run, 10000);
    TAP_CHECK((run.unloaded == 10000) && (unload_bytes(&run.unload) == 0),
              "always: all are unloaded, and nothing is counted");
    stream_end(&run);

    stream_begin(&run, STREAM_UNIFORM, 4 * NP_UNLOAD_PAGES, 100000,
                 NP_UNLOAD_HINT);
    mean = stream_put(&run, 100000);
    TAP_CHECK((run.unloaded > 74000) && (run.unloaded < 76000) &&
              (run.stats.tlb_misses <= NP_UNLOAD_PAGES),
              "hint: three quarters are not hinted (%lu, %.0f ns)",
              run.unloaded, mean);
    stream_end(&run);
}

/* Against the better of both ways */
static void test_auto(stream_kind_t kind, uint32_t pages, double most)
{
    double off    = stream_mean(kind, pages, UNLOAD_PUTS, NP_UNLOAD_OFF);
    double always = stream_mean(kind, pages, UNLOAD_PUTS, NP_UNLOAD_ALWAYS);
    double mean   = stream_mean(kind, pages, UNLOAD_PUTS, NP_UNLOAD_AUTO);
    double best   = (off < always) ? off : always;

    TAP_CHECK(mean <= most * best,
              "auto: %s, %u pages: %.3f of the better way, at most %.2f "
              "(%.0f ns; off %.0f, always %.0f)", stream_names[kind], pages,
              mean / best, most, mean, off, always);
}

/* The puts of a phase by a policy, after a while, ns */
static void
test_phases_of(np_unload_policy_t policy, double means[STREAM_PHASES_COUNT])
{
    const uint64_t length = UNLOAD_PUTS / STREAM_PHASES_COUNT;
    stream_run_t run;
    unsigned i;

    stream_begin(&run, STREAM_PHASES, 1u << 18, UNLOAD_PUTS, policy);
    for (i = 0; i < STREAM_PHASES_COUNT; ++i) {
        stream_put(&run, PHASE_SETTLE);
        means[i] = stream_put(&run, PHASE_SETTLE);
        stream_put(&run, length - (2 * PHASE_SETTLE));
    }
    stream_end(&run);
}

static void test_phases(void)
{
    double off[STREAM_PHASES_COUNT], always[STREAM_PHASES_COUNT];
    double adaptive[STREAM_PHASES_COUNT], best;
    unsigned i;

    test_phases_of(NP_UNLOAD_OFF, off);
    test_phases_of(NP_UNLOAD_ALWAYS, always);
    test_phases_of(NP_UNLOAD_AUTO, adaptive);
    for (i = 0; i < STREAM_PHASES_COUNT; ++i) {
        best = (off[i] < always[i]) ? off[i] : always[i];
        TAP_CHECK(adaptive[i] <= PHASE_WORSE * best,
                  "auto: phase %u, %u puts after it began: %.3f of the better "
                  "way (%.0f ns)", i, PHASE_SETTLE, adaptive[i] / best,
                  adaptive[i]);
    }
}

static void test_frequency(void)
{
    stream_run_t run;
    unsigned log;

    stream_begin(&run, STREAM_UNIFORM, NP_UNLOAD_PAGES, 200000,
                 NP_UNLOAD_FREQUENCY);
    stream_put(&run, 100000);
    run.unloaded = 0; /* while the table grew */
    stream_put(&run, 100000);
    TAP_CHECK(run.unloaded == 0,
              "frequency: none is unloaded while the cache has all (%lu)",
              run.unloaded);
    stream_end(&run);

    for (log = 12; log <= 20; log += 2) {
        stream_begin(&run, STREAM_UNIFORM, 1u << log, 4u << log,
                     NP_UNLOAD_FREQUENCY);
        stream_put(&run, 4u << log);
        TAP_CHECK(unload_bytes(&run.unload) <= (4u << log),
                  "frequency: %u pages take %u bytes", 1u << log,
                  unload_bytes(&run.unload));
        stream_end(&run);
    }
}

/* What is measured once and wrong does not turn auto */
static void test_outlier(void)
{
    np_unload_guess_t guess;
    unsigned i, unloaded = 0, outliers = 0;
    np_unload_t unload;
    int is_outlier;

    if (np_unload_init(&unload, NP_UNLOAD_AUTO) != 0) {
        TAP_CHECK(0, "auto: no memory");
        return;
    }

    for (i = 0; i < 100000; ++i) {
        unloaded += np_unload_decides(&unload, (i % 1024) << NP_PAGE_SHIFT,
                                      &guess);
        is_outlier = (i % 10000 > 9000) && (guess == NP_UNLOAD_HIT) &&
                     (outliers < (i / 10000));
        outliers  += is_outlier;
        np_unload_observe(&unload, guess, is_outlier ? 1000000000 :
                          (guess == NP_UNLOAD_UNLOADED) ? 3400 : 2600);
    }
    TAP_CHECK((unloaded < 1000) && (outliers == 9),
              "auto: puts that took a second (%u did, %u unloaded)", outliers,
              unloaded);
    np_unload_cleanup(&unload);
}

/* Puts to a few pages in turn, where both ways cost this; returns the share
 * that was unloaded after PHASE_SETTLE */
static double
few_unloaded(np_unload_t *unload, unsigned pages, double hit, double unloaded)
{
    np_unload_guess_t guess;
    unsigned i, count = 0;
    int is_unloaded;

    for (i = 0; i < 2 * PHASE_SETTLE; ++i) {
        is_unloaded = np_unload_decides(unload, (i % pages) << NP_PAGE_SHIFT,
                                        &guess);
        np_unload_observe(unload, guess, is_unloaded ? unloaded : hit);
        count += is_unloaded && (i >= PHASE_SETTLE);
    }
    return (double)count / PHASE_SETTLE;
}

/* So few that none is in the sample: the faster way, whichever it is, and again
 * when the other one is */
static void test_few(void)
{
    static const unsigned counts[] = {1, 4, 16, 100, 1024};
    double slow, fast, again;
    np_unload_t unload;
    unsigned i;

    for (i = 0; i < sizeof(counts) / sizeof(*counts); ++i) {
        if (np_unload_init(&unload, NP_UNLOAD_AUTO) != 0) {
            TAP_CHECK(0, "auto: no memory");
            return;
        }

        slow  = few_unloaded(&unload, counts[i], 2600, 3400);
        fast  = few_unloaded(&unload, counts[i], 2600, 2200);
        again = few_unloaded(&unload, counts[i], 1500, 2200);
        TAP_CHECK((slow < 0.01) && (fast > 0.99) && (again < 0.01),
                  "auto: of %u pages the faster way is taken (unloaded: %.3f, "
                  "%.3f, %.3f)", counts[i], slow, fast, again);
        np_unload_cleanup(&unload);
    }

    /* and after many, whatever the sample has said of those */
    if (np_unload_init(&unload, NP_UNLOAD_AUTO) != 0) {
        TAP_CHECK(0, "auto: no memory");
        return;
    }
    fast = few_unloaded(&unload, 1u << 20, 5100, 3400);
    for (i = 0; i < 100; ++i) {
        slow = few_unloaded(&unload, 16, 2600, 3400);
    }
    TAP_CHECK((fast > 0.9) && (slow < 0.01),
              "auto: of 16 pages after many, too (unloaded: %.3f, then %.3f)",
              fast, slow);
    np_unload_cleanup(&unload);
}

int main(void)
{
    unsigned log;

    test_fixed();
    test_frequency();
    for (log = 0; log <= 20; log += 4) {
        test_auto(STREAM_UNIFORM, 1u << log, UNLOAD_WORSE);
        test_auto(STREAM_ZIPF, 1u << log, UNLOAD_WORSE);
        test_auto(STREAM_SCAN, 1u << log, UNLOAD_WORSE);
        test_auto(STREAM_DRIFT, 1u << log, UNLOAD_WORSE);
    }
    /* here the cache can be used, and both ways together are better */
    test_auto(STREAM_ZIPF, 1u << 14, 0.96);
    test_auto(STREAM_ZIPF, 1u << 16, 0.99);
    for (log = 16; log <= 20; log += 2) {
        test_auto(STREAM_ZIPF_99, 1u << log, 0.93);
    }
    test_phases();
    test_outlier();
    test_few();
    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}
