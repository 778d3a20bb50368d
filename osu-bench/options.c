/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Command line: OSU's letters, plus --fresh, --dirty and --digits.
 */

#include "osu.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    OSU_OPT_FRESH = 256,
    OSU_OPT_DIRTY,
    OSU_OPT_DIGITS
};

static const struct {
    struct option opt;
    unsigned      needs;   /* capabilities, one of which is needed; 0: all */
    unsigned      unless;  /* capability that forbids it */
    const char    *arg;
    const char    *help;
} osu_option_table[] = {
    {{"message-size", 1, NULL, 'm'}, 0, OSU_CAP_NO_SIZE | OSU_CAP_NO_DATA,
     "[MIN:]MAX (1 to 1073741824)",
     "message sizes in bytes, doubling from MIN to MAX"},
    {{"iterations", 1, NULL, 'i'}, 0, 0, "N (1 to 100000000)",
     "timed iterations per size"},
    {{"warmup", 1, NULL, 'x'}, 0, 0, "N (0 to 100000000)",
     "untimed iterations before them"},
    {{"window-size", 1, NULL, 'W'}, OSU_CAP_WINDOW, 0, "N (1 to 65536)",
     "messages that are sent before one waits for them"},
    {{"buffer-num", 1, NULL, 'b'}, OSU_CAP_BUFNUM, 0, "single|multiple",
     "one buffer for a whole window, or one per message"},
    {{"pairs", 1, NULL, 'p'}, OSU_CAP_PAIRS, 0, "N (from 1)",
     "pairs of ranks (default: half of the ranks)"},
    {{"print-rate", 1, NULL, 'R'}, OSU_CAP_RATE, 0, "0|1",
     "print the message rate (default 1)"},
    {{"win-option", 1, NULL, 'w'}, OSU_CAP_RMA, 0, "create|allocate|dynamic",
     "how the window is made (default allocate)"},
    {{"sync-option", 1, NULL, 's'}, OSU_CAP_RMA, 0,
     "lock|flush|flush_local|lock_all|pscw|fence",
     "synchronization (default flush)"},
    {{"full", 0, NULL, 'f'}, OSU_CAP_FULL, 0, NULL,
     "also print minimum, maximum and iterations"},
    {{"mem-limit", 1, NULL, 'M'}, OSU_CAP_FULL, OSU_CAP_NO_DATA,
     "BYTES (from 1)",
     "largest buffer of a rank (default 536870912)"},
    {{"validation", 0, NULL, 'c'}, 0, OSU_CAP_NO_DATA, NULL,
     "check every received byte; a wrong one prints Fail and exits 1. Every "
     "message of a window then has a buffer of its own"},
    {{"fresh", 0, NULL, OSU_OPT_FRESH}, 0, OSU_CAP_NO_DATA, NULL,
     "every iteration uses memory never used before, on both sides (not in "
     "OSU). It is mapped outside the timed part, where the sender also writes "
     "its data; the receiver does not touch it. So the time shows what "
     "registration and first touch cost. One-sided programs also make a new "
     "window each time. Default iterations are a tenth, but at least 20"},
    {{"dirty", 0, NULL, OSU_OPT_DIRTY}, OSU_CAP_DIRTY, 0, NULL,
     "the sender rewrites the whole buffer before every send (not in OSU). "
     "The rewriting is inside the timed part and is not subtracted. Every "
     "message of a window then has a buffer of its own"},
    {{"digits", 1, NULL, OSU_OPT_DIGITS}, 0, 0, "N (0 to 6)",
     "digits after the point (not in OSU; default 2, as there)"},
    {{"help", 0, NULL, 'h'}, 0, 0, NULL, "print this"},
    {{"version", 0, NULL, 'v'}, 0, 0, NULL, "print the version"},
};

#define OSU_NUM_OPTIONS \
    (sizeof(osu_option_table) / sizeof(osu_option_table[0]))

/* Ranks exit before MPI_Init here; only the first may speak, and only it
 * returns a failure, lest the launcher kill it before it has spoken */
static int osu_is_speaker(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "PMIX_RANK", "SLURM_PROCID"};
    const char *value;
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); ++i) {
        value = getenv(names[i]);
        if (value != NULL) {
            return strcmp(value, "0") == 0;
        }
    }

    return 1;
}

static int osu_option_applies(size_t i, const osu_bench_t *bench)
{
    return ((osu_option_table[i].needs == 0) ||
            (osu_option_table[i].needs & bench->caps)) &&
           ((osu_option_table[i].unless & bench->caps) == 0);
}

static void osu_print_wrapped(const char *text)
{
    size_t column = 0, length;

    while (*text != '\0') {
        length = strcspn(text, " ");
        if (column + length > 66) {
            printf("\n       ");
            column = 0;
        }
        printf(" %.*s", (int)length, text);
        column += length + 1;
        text   += length + (text[length] == ' ');
    }
    printf("\n");
}

static void osu_print_help(const osu_bench_t *bench)
{
    const struct option *opt;
    const char *arg;
    size_t i;

    printf("Usage: mpirun -n %s %s [options]\nOptions:\n",
           (bench->caps & OSU_CAP_PAIRS) ||
           (bench->kind == OSU_KIND_COLLECTIVE) ? "RANKS" : "2", bench->name);
    for (i = 0; i < OSU_NUM_OPTIONS; ++i) {
        if (!osu_option_applies(i, bench)) {
            continue;
        }
        opt = &osu_option_table[i].opt;
        arg = osu_option_table[i].arg;
        if (opt->val < 256) {
            printf("  -%c, ", opt->val);
        } else {
            printf("  ");
        }
        printf("--%s%s%s\n       ", opt->name, arg == NULL ? "" : " ",
               arg == NULL ? "" : arg);
        osu_print_wrapped(osu_option_table[i].help);
    }
}

static int osu_parse_number(const char *text, size_t min, size_t max,
                            size_t *value)
{
    unsigned long long number;
    char *end;

    if ((*text < '0') || (*text > '9')) {
        return -1;
    }

    errno  = 0;
    number = strtoull(text, &end, 10);
    if ((errno != 0) || (*end != '\0') || (number < min) || (number > max)) {
        return -1;
    }

    *value = number;
    return 0;
}

static int osu_parse_int(const char *text, size_t min, size_t max, int *value)
{
    size_t number;

    if (osu_parse_number(text, min, max, &number) != 0) {
        return -1;
    }

    *value = number;
    return 0;
}

/* MIN:MAX, MIN:, :MAX or MAX */
static int osu_parse_sizes(const char *text, osu_options_t *opts)
{
    const char *colon = strchr(text, ':');
    char min[32];

    if (colon == NULL) {
        return osu_parse_number(text, 1, OSU_MAX_SIZE, &opts->max_size);
    }

    if ((colon == text) && (colon[1] == '\0')) {
        return -1;
    }

    if (colon != text) {
        snprintf(min, sizeof(min), "%.*s", (int)(colon - text), text);
        if (osu_parse_number(min, 1, OSU_MAX_SIZE, &opts->min_size) != 0) {
            return -1;
        }
    }

    return (colon[1] == '\0') ? 0 :
           osu_parse_number(colon + 1, 1, OSU_MAX_SIZE, &opts->max_size);
}

static int osu_parse_choice(const char *text, const char *const *choices,
                            int *value)
{
    int i;

    for (i = 0; choices[i] != NULL; ++i) {
        if (strcasecmp(text, choices[i]) == 0) {
            *value = i;
            return 0;
        }
    }

    return -1;
}

static int osu_option_apply(int c, const char *arg, osu_options_t *opts)
{
    static const char *const buffers[] = {"single", "multiple", NULL};
    static const char *const wins[]    = {"create", "allocate", "dynamic",
                                          NULL};
    static const char *const syncs[]   = {"lock", "flush", "flush_local",
                                          "lock_all", "pscw", "fence", NULL};
    int ret, value = 0;

    switch (c) {
    case 'm':
        return osu_parse_sizes(arg, opts);
    case 'i':
        ret = osu_parse_int(arg, 1, OSU_MAX_COUNT, &opts->iterations);
        opts->iterations_large = opts->iterations;
        return ret;
    case 'x':
        ret = osu_parse_int(arg, 0, OSU_MAX_COUNT, &opts->skip);
        opts->skip_large = opts->skip;
        return ret;
    case 'W':
        return osu_parse_int(arg, 1, OSU_MAX_WINDOW, &opts->window);
    case 'p':
        return osu_parse_int(arg, 1, OSU_MAX_COUNT, &opts->pairs);
    case 'R':
        return osu_parse_int(arg, 0, 1, &opts->rate);
    case 'M':
        return osu_parse_number(arg, 1, SIZE_MAX / 4, &opts->mem_limit);
    case 'b':
        return osu_parse_choice(arg, buffers, &opts->multiple);
    case 'w':
        ret       = osu_parse_choice(arg, wins, &value);
        opts->win = value;
        return ret;
    case 's':
        ret        = osu_parse_choice(arg, syncs, &value);
        opts->sync = value;
        return ret;
    case 'f':
        opts->full = 1;
        return 0;
    case 'c':
        opts->validate = 1;
        return 0;
    case OSU_OPT_FRESH:
        opts->fresh = 1;
        return 0;
    case OSU_OPT_DIRTY:
        opts->dirty = 1;
        return 0;
    case OSU_OPT_DIGITS:
        return osu_parse_int(arg, 0, 6, &opts->digits);
    default:
        return -1;
    }
}

static void osu_options_default(const osu_bench_t *bench, osu_options_t *opts)
{
    static const int counts[3][4] = {
        [OSU_KIND_LATENCY]    = {10000, 1000, 100, 10},
        [OSU_KIND_BANDWIDTH]  = {100, 20, 10, 2},
        [OSU_KIND_COLLECTIVE] = {1000, 100, 100, 10}
    };

    memset(opts, 0, sizeof(*opts));
    opts->min_size         = bench->min_size;
    opts->max_size         = bench->max_size;
    opts->iterations       = counts[bench->kind][0];
    opts->iterations_large = counts[bench->kind][1];
    opts->skip             = counts[bench->kind][2];
    opts->skip_large       = counts[bench->kind][3];
    opts->window           = 64;
    opts->rate             = 1;
    opts->digits           = 2;
    opts->mem_limit        = 512ul << 20;
    opts->win              = OSU_WIN_ALLOCATE;
    opts->sync             = OSU_SYNC_FLUSH;
}

static int osu_at_least_20(int count)
{
    return count < 200 ? 20 : count / 10;
}

static size_t osu_options_build(const osu_bench_t *bench, struct option *longs,
                                char *shorts)
{
    size_t i, count = 0;

    *shorts++ = ':';
    for (i = 0; i < OSU_NUM_OPTIONS; ++i) {
        if (!osu_option_applies(i, bench)) {
            continue;
        }
        longs[count++] = osu_option_table[i].opt;
        if (osu_option_table[i].opt.val < 256) {
            *shorts++ = osu_option_table[i].opt.val;
            if (osu_option_table[i].opt.has_arg) {
                *shorts++ = ':';
            }
        }
    }

    *shorts = '\0';
    memset(&longs[count], 0, sizeof(longs[count]));
    return count;
}

static size_t osu_option_find(int c)
{
    size_t i;

    for (i = 0; osu_option_table[i].opt.val != c; ++i) {
    }
    return i;
}

static void osu_option_complain(const osu_bench_t *bench, int c, char **argv,
                                int from)
{
    const char *given = argv[from];
    char letter[2];
    size_t i;

    if (c == ':') {
        i = osu_option_find(optopt);
        fprintf(stderr, "%s: option %s needs a value: %s\n", bench->name,
                given, osu_option_table[i].arg);
    } else if ((c == '?') && (optopt != 0) && (optopt < 256) &&
               (given[1] != '-')) {
        fprintf(stderr, "%s: unknown option -%c; see %s -h\n", bench->name,
                optopt, bench->name);
    } else if (c == '?') {
        fprintf(stderr, "%s: unknown option %s; see %s -h\n", bench->name,
                given, bench->name);
    } else {
        i = osu_option_find(c);
        snprintf(letter, sizeof(letter), "%c", c);
        fprintf(stderr, "%s: bad value '%s' for -%s%s: wanted %s; see %s -h\n",
                bench->name, optarg, (c < 256) ? "" : "-",
                (c < 256) ? letter : osu_option_table[i].opt.name,
                osu_option_table[i].arg, bench->name);
    }
}

int osu_options_parse(int argc, char **argv, const osu_bench_t *bench,
                      osu_options_t *opts)
{
    struct option longs[OSU_NUM_OPTIONS + 1];
    char shorts[2 * OSU_NUM_OPTIONS + 2];
    int speaker      = osu_is_speaker();
    int failure      = speaker ? OSU_EXIT_USAGE : 0;
    int counts_given = 0, warmup_given = 0;
    int c, from;

    osu_options_default(bench, opts);
    osu_options_build(bench, longs, shorts);
    for (opterr = 0;;) {
        from = optind;
        c    = getopt_long(argc, argv, shorts, longs, NULL);
        if (c == -1) {
            break;
        } else if ((c == 'h') || (c == 'v')) {
            if (speaker && (c == 'h')) {
                osu_print_help(bench);
            } else if (speaker) {
                osu_report_version(bench);
            }
            return 0;
        } else if (osu_option_apply(c, optarg, opts) != 0) {
            if (speaker) {
                osu_option_complain(bench, c, argv, from);
            }
            return failure;
        }
        counts_given |= (c == 'i');
        warmup_given |= (c == 'x');
    }

    if (optind < argc) {
        if (speaker) {
            fprintf(stderr, "%s: unexpected argument '%s'; see %s -h\n",
                    bench->name, argv[optind], bench->name);
        }
        return failure;
    }

    if (opts->min_size > opts->max_size) {
        if (speaker) {
            fprintf(stderr, "%s: no sizes: smallest %zu, largest %zu; give "
                    "-m MIN:MAX with MIN up to MAX, MAX at least %zu\n",
                    bench->name, opts->min_size, opts->max_size,
                    bench->min_size);
        }
        return failure;
    }

    if (opts->fresh && !counts_given) {
        opts->iterations       = osu_at_least_20(opts->iterations);
        opts->iterations_large = osu_at_least_20(opts->iterations_large);
    }
    if (opts->fresh && !warmup_given) {
        opts->skip = opts->skip_large = 2;
    }
    return -1;
}
