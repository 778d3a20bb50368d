/* SPDX-License-Identifier: BSD-3-Clause */
/* Worlds from seeds: prints TAP. See sim.h. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "sim.h"

#include "nprdma/pause.h"

#include "../engine/tap.h"

#include <ucs/config/global_opts.h>

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIM_STEPS    20000ul
#define SIM_LIMIT    300ul   /* seconds that so many may take, and the end */

#define SIM_NAME(_name) #_name,

typedef struct sim_kind_of_device {
    const char         *name;
    const sim_device_t *device;
    int                has_views;
    int                is_unloading;
} sim_kind_of_device_t;

typedef struct sim_options {
    const char    *device;    /* NULL: each in turn */
    uint64_t      seed;
    unsigned long steps;
    double        seconds;    /* 0: one world of each device */
    np_mutant_t   mutant;
    const char    *kept;      /* file of seeds that have found something */
    int           is_sweep;
    unsigned long pairs;      /* of events, for each case of a sweep */
} sim_options_t;

unsigned tap_count, tap_failures;
static const sim_kind_of_device_t sim_devices[] = {
    {"soft", &sim_soft, 1, 0}, {"views", &sim_verbs, 1, 0},
    {"leases", &sim_verbs, 0, 0}, {"unloading", &sim_verbs, 1, 1}};
static sim_options_t sim_options;
uint64_t sim_world;
static const sim_kind_of_device_t *sim_this;
static int sim_pipe[2];


static double sim_now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + (time.tv_nsec * 1e-9);
}

/* In a child: the engine begins anew */
static int sim_run(void)
{
    unsigned long i;

    if (!sim_is_told) { /* errors are part of it */
        ucs_global_opts.log_component.log_level = UCS_LOG_LEVEL_FATAL;
    }
    if (!sim_options.is_sweep) {
        alarm(SIM_LIMIT * (1 + (sim_options.steps / SIM_STEPS)));
    }
    np_mutant = sim_options.mutant;
    sim_is_unloading = sim_this->is_unloading;
    sim_seed(sim_world);
    sim_world_open(sim_this->has_views);
    if (sim_options.is_sweep) {
        (void)sim_sweep(sim_options.pairs);
    }
    for (i = 0; i < sim_options.steps; ++i) {
        sim_world_step();
    }
    sim_world_close();
    return write(sim_pipe[1], &sim_counts, sizeof(sim_counts)) !=
           sizeof(sim_counts);
}

static void sim_add(sim_counts_t *sum)
{
    sim_counts_t counts;
    unsigned i;

    if (read(sim_pipe[0], &counts, sizeof(counts)) == sizeof(counts)) {
        for (i = 0; i < sizeof(counts) / sizeof(unsigned long); ++i) {
            ((unsigned long*)sum)[i] += ((unsigned long*)&counts)[i];
        }
    }
}

/* Returns 0: it is wrong */
static int
sim_one(const sim_kind_of_device_t *device, uint64_t seed, sim_counts_t *sum)
{
    int is_right;

    sim           = device->device;
    sim_this      = device;
    sim_world = seed;
    is_right      = tap_child(sim_run);
    if (is_right) {
        sim_add(sum);
    } else {
        printf("# to see it again: test_sim --device %s --seed %#lx --%s %lu "
               "--tell\n", device->name, seed, sim_options.is_sweep ? "sweep" :
               "steps", sim_options.is_sweep ? sim_options.pairs :
               sim_options.steps);
    }
    return is_right;
}

static void sim_report(const char *name, unsigned long worlds,
                       const sim_counts_t *sum)
{
    printf("# %s: %lu worlds, %lu steps: %lu puts, %lu gets, %lu atomics, %lu "
           "messages, %lu flushes, %lu bad ones (%lu refused for now), %lu MB; "
           "%lu times pages went and %lu came, %lu queue pairs failed, %lu "
           "links ended, %lu steps of the device\n", name, worlds,
           sum->steps, sum->puts, sum->gets,
           sum->atomics, sum->messages, sum->flushes, sum->bad, sum->refused,
           sum->bytes / 1000000, sum->takes, sum->gives, sum->failures,
           sum->ends, sum->turns);
}

/* Worlds of this device, until the time is over, or one is wrong */
static void
sim_device_worlds(const sim_kind_of_device_t *device, double seconds)
{
    const double end     = sim_now() + seconds;
    uint64_t seed        = sim_options.seed;
    unsigned long worlds = 0;
    sim_counts_t sum     = {0};
    int is_right;

    do {
        is_right = sim_one(device, seed++, &sum);
        ++worlds;
    } while (is_right && (sim_now() < end));

    if (!sim_options.is_sweep) {
        sim_report(device->name, worlds, &sum);
    }
    TAP_CHECK(is_right, "%s: %s from seed %#lx on: no byte is wrong, nothing "
              "is lost", device->name, sim_options.is_sweep ? "a sweep" :
              "worlds", sim_options.seed);
}

/* Seeds that were wrong once: a device and a seed each line */
static void sim_kept_worlds(void)
{
    FILE *file = fopen(sim_options.kept, "re");
    sim_counts_t sum = {0};
    char line[256], name[32];
    unsigned long steps;
    uint64_t seed;
    unsigned i;

    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        if ((line[0] == '#') ||
            (sscanf(line, "%31s %lx %lu", name, &seed, &steps) != 3)) {
            continue;
        }
        for (i = 0; i < ucs_static_array_size(sim_devices); ++i) {
            if (strcmp(sim_devices[i].name, name) == 0) {
                sim_options.steps = steps;
                TAP_CHECK(sim_one(&sim_devices[i], seed, &sum), "kept: %s %#lx",
                          name, seed);
            }
        }
    }
    TAP_CHECK(file != NULL, "%s can be read", sim_options.kept);
    if (file != NULL) {
        fclose(file);
    }
}

static np_mutant_t sim_mutant_of(const char *name)
{
    static const char *const names[] = {NP_MUTANT_LIST(SIM_NAME)};
    unsigned i;

    for (i = 0; i < NP_MUTANT_LAST; ++i) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    fprintf(stderr, "test_sim: no mutant %s; there are:", name);
    for (i = 0; i < NP_MUTANT_LAST; ++i) {
        fprintf(stderr, " %s", names[i]);
    }
    fprintf(stderr, "\n");
    exit(2);
}

static void sim_usage(FILE *file)
{
    fprintf(file,
            "test_sim: simulated worlds over a simulated RNIC, from seeds\n"
            "  --device NAME   soft, views or leases; default: each\n"
            "  --seed N        of the first world; default: by the time\n"
            "  --steps N       of each world (%lu)\n"
            "  --seconds S     for each device, world after world; default: "
            "one\n"
            "  --mutant NAME   with this deliberate fault in the engine\n"
            "  --kept FILE     run the seeds of this file, and no others\n"
            "  --sweep PAIRS   no world by chance: every event at every moment "
            "of some\n"
            "                  operations, and so many pairs for each\n"
            "  --tell          print each step\n", SIM_STEPS);
}

static void sim_parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"device", required_argument, NULL, 'd'},
        {"seed", required_argument, NULL, 's'},
        {"steps", required_argument, NULL, 'n'},
        {"seconds", required_argument, NULL, 't'},
        {"mutant", required_argument, NULL, 'm'},
        {"kept", required_argument, NULL, 'k'},
        {"sweep", required_argument, NULL, 'w'},
        {"tell", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int option;

    sim_options.steps = SIM_STEPS;
    sim_options.seed  = (uint64_t)time(NULL) << 16;
    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        switch (option) {
        case 'd':
            sim_options.device = optarg;
            break;
        case 's':
            sim_options.seed = strtoull(optarg, NULL, 0);
            break;
        case 'n':
            sim_options.steps = strtoul(optarg, NULL, 0);
            break;
        case 't':
            sim_options.seconds = strtod(optarg, NULL);
            break;
        case 'm':
            sim_options.mutant = sim_mutant_of(optarg);
            break;
        case 'k':
            sim_options.kept = optarg;
            break;
        case 'w':
            sim_options.is_sweep = 1;
            sim_options.steps    = 0;
            sim_options.pairs    = strtoul(optarg, NULL, 0);
            break;
        case 'v':
            sim_is_told = 1;
            break;
        case 'h':
            sim_usage(stdout);
            exit(0);
        default:
            sim_usage(stderr);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    unsigned i, count = 0;

    sim_parse(argc, argv);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    if (pipe(sim_pipe) != 0) {
        perror("test_sim");
        return 2;
    }

    if (sim_options.kept != NULL) {
        sim_kept_worlds();
    }
    for (i = 0; (sim_options.kept == NULL) &&
                (i < ucs_static_array_size(sim_devices)); ++i) {
        if ((sim_options.device == NULL) ||
            (strcmp(sim_options.device, sim_devices[i].name) == 0)) {
            sim_device_worlds(&sim_devices[i], sim_options.seconds);
            ++count;
        }
    }

    if ((sim_options.kept == NULL) && (count == 0)) {
        fprintf(stderr, "test_sim: no device '%s': soft, views or leases\n",
                sim_options.device);
        return 2;
    }
    printf("1..%u\n", tap_count);
    return tap_failures > 0;
}
