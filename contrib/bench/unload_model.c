/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The policies of proto/unload.h over a model of a device (streams.h): what
 * small puts cost by each of them, for working sets that fit its translation
 * cache and that do not. For contrib/bench-unload.sh.
 */
#include "streams.h"

#include "nprdma/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void usage(FILE *out)
{
    unsigned kind;

    fprintf(out,
            "Usage: unload_model [--puts N] [STREAM]\n"
            "       unload_model [--puts N] --decide POLICY\n"
            "Prints what a put costs by each policy, in us, tab-separated,\n"
            "for 1 to 2^20 pages; modelled. N is from 16 on (default: "
            "4194304).\n"
            "drift: as zipf-0.5, and after each eighth other pages are hot;\n"
            "phases: uniform, over 1024 pages and over all in turn.\n"
            "--decide: only decide, for 65536 pages by Zipf 0.5, and print\n"
            "what a decision takes; the function \"measured\" is for "
            "callgrind.\n"
            "STREAM is one of these, else all:");
    for (kind = 0; kind < STREAM_LAST; ++kind) {
        fprintf(out, " %s", stream_names[kind]);
    }
    fprintf(out, "\n");
}

static void table(stream_kind_t kind, uint64_t puts)
{
    np_unload_policy_t policy;
    unsigned log;

    for (log = (kind == STREAM_PHASES) ? 12 : 0; log <= 20; log += 2) {
        printf("%s\t%u", stream_names[kind], 1u << log);
        for (policy = 0; policy < NP_UNLOAD_LAST; ++policy) {
            printf("\t%.3f",
                   stream_mean(kind, 1u << log, puts, policy) / 1000);
        }
        printf("\n");
        fflush(stdout);
    }
}

/* Returns how many were unloaded */
__attribute__((noinline)) uint64_t
measured(np_unload_t *unload, const uint64_t *pages, uint64_t puts)
{
    np_unload_guess_t guess;
    uint64_t i, unloaded = 0;

    for (i = 0; i < puts; ++i) {
        unloaded += np_unload_decides(unload, pages[i] << NP_PAGE_SHIFT,
                                      &guess);
    }
    return unloaded;
}

static int decide(const char *name, uint64_t puts)
{
    np_unload_policy_t policy;
    uint64_t *pages, unloaded, begin, end;
    stream_run_t run;

    for (policy = 0; (policy < NP_UNLOAD_LAST) &&
                     (strcmp(name, np_unload_policy_names[policy]) != 0);
         ++policy) {
    }
    pages = malloc(puts * sizeof(*pages));
    if ((policy == NP_UNLOAD_LAST) || (pages == NULL)) {
        fprintf(stderr, (pages == NULL) ? "unload_model: no memory\n" :
                "unload_model: no such policy: '%s'\n", name);
        free(pages);
        return 2;
    }

    stream_begin(&run, STREAM_ZIPF, 1u << 16, puts, policy);
    stream_pages(&run, pages, puts);
    stream_put(&run, puts); /* it has learnt */
    begin    = np_clock();
    unloaded = measured(&run.unload, pages, puts);
    end      = np_clock();
    printf("%s: %.1f ns a decision, %.0f%% unloaded\n", name,
           (double)(end - begin) / puts, 100.0 * unloaded / puts);
    stream_end(&run);
    free(pages);
    return 0;
}

int main(int argc, char **argv)
{
    stream_kind_t wanted = STREAM_LAST, kind;
    const char *policy   = NULL;
    uint64_t puts        = 4 << 20;
    int i;

    for (i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--help") == 0) {
            usage(stdout);
            return 0;
        }
        if ((strcmp(argv[i], "--puts") == 0) && (i + 1 < argc) &&
            ((puts = strtoull(argv[++i], NULL, 10)) >= 16)) {
            continue;
        }
        if ((strcmp(argv[i], "--decide") == 0) && (i + 1 < argc)) {
            policy = argv[++i];
            continue;
        }
        for (wanted = 0; (wanted < STREAM_LAST) &&
                         (strcmp(argv[i], stream_names[wanted]) != 0);
             ++wanted) {
        }
        if (wanted == STREAM_LAST) {
            fprintf(stderr, "unload_model: not understood: '%s'\n", argv[i]);
            usage(stderr);
            return 2;
        }
    }

    if (policy != NULL) {
        return decide(policy, puts);
    }

    printf("stream\tpages\toff\talways\thint\tfrequency\tauto\n");
    for (kind = 0; kind < STREAM_LAST; ++kind) {
        if ((wanted == STREAM_LAST) || (wanted == kind)) {
            table(kind, puts);
        }
    }
    return 0;
}
