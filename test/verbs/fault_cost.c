/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a page that is not there adds to a put or get over an RNIC, in turns with
 * one that is, in units of a control message: half of what an active message of
 * 8 bytes and its answer take. Beside it what the target's system takes to bring
 * such a page in for the target itself. Two processes, each on a processor.
 *
 * fault_cost [ROUNDS]: of each (200). Prints figures; fails if bytes are wrong, or
 * if a transfer is one-sided that should not be.
 */

#define _GNU_SOURCE
#include "sides.h"

#include "nprdma/engine.h"
#include "nprdma/stats.h"
#include "nprdma/svc/service.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE      4096ul
#define MAX       2000    /* rounds */
#define SETTLED   5000    /* microseconds */
#define PINGS     5       /* of a round; the median counts */

/* What becomes of the target's page */
typedef enum absence {
    VIEWS,      /* it is there, and in no view */
    MINOR,      /* given up; the next touch gets a new one */
    SWAPPED,    /* on swap */
    ABSENCES
} absence_t;

static const char *const absence_names[ABSENCES] = {
    "there, in no view", "MADV_DONTNEED", "on zram"
};

typedef enum order {
    NOTHING,
    FILL,       /* and all is as if it had always been there */
    TAKE,
    TOUCH,      /* TAKE, then let the processor touch it: how long? */
    CHECK
} order_t;

typedef struct shared {
    _Atomic int      stop;
    _Atomic int      order;      /* NOTHING: the last one is done */
    _Atomic int      absence, is_write, result;
    _Atomic uint64_t seed, len;
    _Atomic uint64_t ns, major;  /* of the touch */
    _Atomic uint64_t pings;      /* answers that we have had */
} shared_t;

static shared_t *shared;
static side_t side;
static np_key_t *key;
static uint8_t *area;
static np_vlink_t back;          /* the target's, to us */
static int is_initiator;
static uint64_t asked;           /* target: pings to answer */


static void on_am(void *arg, uint8_t id, void *data, unsigned len)
{
    if (is_initiator) {
        ++shared->pings;
    } else {
        ++asked;
    }
}

static void stay_on(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static void take_away(absence_t absence)
{
    if (absence == SWAPPED) {
        fill(area, shared->seed, PAGE); /* there may be none */
        shared->result = page_out(area, getpagesize());
        return;
    }

    madvise(area, PAGE, MADV_DONTNEED);
    if (absence == VIEWS) {
        memset(area, 0, PAGE);
    }
    shared->result = 1;
}

static void touch(int is_write)
{
    volatile uint8_t *byte = area;
    struct rusage before, after;
    double start;

    getrusage(RUSAGE_SELF, &before);
    start = now();
    if (is_write) {
        *byte = 1;
    } else {
        (void)*byte;
    }
    shared->ns    = (now() - start) * 1e9;
    getrusage(RUSAGE_SELF, &after);
    shared->major = after.ru_majflt - before.ru_majflt;
}

static void obey(order_t order)
{
    switch (order) {
    case FILL:
        fill(area, shared->seed, PAGE);
        break;
    case TAKE:
        take_away(shared->absence);
        break;
    case TOUCH:
        take_away(shared->absence);
        touch(shared->is_write);
        break;
    default:
        shared->result = is_right(area, shared->seed, shared->len);
        break;
    }
    shared->order = NOTHING;
}

static int target(const np_vport_config_t *config, int fd)
{
    side_t ours, theirs;

    stay_on(1);
    open_port(config, on_am);
    area = make_area(&ours, 16 * PAGE);
    if (!exchange_sides(fd, &ours, &theirs)) {
        return 1;
    }
    np_vlink_init(&back, port, &theirs.dev, &theirs.port);
    np_service_start();
    while (!shared->stop) {
        np_vport_progress(port);
        if ((asked > 0) &&
            (np_vlink_am_short(&back, 1, 1, NULL, 0) == UCS_OK)) {
            --asked;
        }
        if (shared->order != NOTHING) {
            obey(shared->order);
        }
    }
    np_vlink_close(&back);
    np_vport_close(port);
    return 0;
}

static void bail(const char *what)
{
    printf("Bail out! %s\n", what);
    exit(1);
}

static int is_obeyed(const void *arg)
{
    return shared->order == NOTHING;
}

static int tell(order_t order)
{
    shared->order = order;
    if (!wait_until(is_obeyed, NULL)) {
        bail("the target does nothing");
    }
    return shared->result;
}

static int has_answer(const void *arg)
{
    return shared->pings >= *(const uint64_t*)arg;
}

/* Microseconds */
static double median(double *times, unsigned count)
{
    unsigned i, j;
    double time;

    for (i = 1; i < count; ++i) {
        time = times[i];
        for (j = i; (j > 0) && (times[j - 1] > time); --j) {
            times[j] = times[j - 1];
        }
        times[j] = time;
    }
    return times[count / 2] * 1e6;
}

/* Seconds of half of a message and its answer */
static double ping_once(void)
{
    static uint64_t count;
    double start = now();
    ucs_status_t status;

    ++count;
    POST(status, np_vlink_am_short(&link_, 1, 1, NULL, 0));
    if ((status != UCS_OK) || !wait_until(has_answer, &count)) {
        bail("no answer");
    }
    return (now() - start) / 2;
}

/* What a transfer before has left to do disturbs some */
static double ping(void)
{
    double times[PINGS];
    unsigned i;

    for (i = 0; i < PINGS; ++i) {
        times[i] = ping_once();
    }
    return median(times, PINGS) * 1e-6;
}

typedef struct counts {
    uint64_t one_sided, two_sided;
} counts_t;

static counts_t counts(void)
{
    np_stats_t sum;

    np_stats_sum(&sum);
    return (counts_t){sum.reads + sum.writes, sum.remote_faults};
}

/* Seconds of one transfer with the first bytes of the target's area */
static double move(np_dir_t dir, size_t len)
{
    np_iov_t iov = {area, len};
    comp_t comp  = {0};
    double start = now();
    ucs_status_t status;

    POST(status, np_vlink_move(dir, &link_, key, &iov, 1, side.area, &comp));
    if ((status == UCS_INPROGRESS) && wait_until(is_done, &comp)) {
        status = comp.status;
    }
    if (status != UCS_OK) {
        bail(ucs_status_string(status));
    }
    return now() - start;
}

/* The page is in the target's views, as ours is: a transfer tells. A put of 8
 * bytes may be a message, which nothing shows; so put more. Each that was not
 * one-sided has asked the target's kernel for the page, and the last of these may
 * still be waiting for a processor: it would undo what the target does next. */
static void settle(np_dir_t dir, size_t len)
{
    double end = now() + LIMIT;
    counts_t before;

    len = (dir == NP_DIR_PUT) ? ucs_max(len, 64ul) : len;
    do {
        before = counts();
        move(dir, len);
        if (now() > end) {
            bail("transfers do not become one-sided: is nprdma.ko there?");
        }
    } while ((counts().two_sided != before.two_sided) ||
             (counts().one_sided != (before.one_sided + 1)));
    usleep(SETTLED);
}

static int is_kept(absence_t absence)
{
    return absence == SWAPPED;
}

/* One transfer whose bytes are looked at. Zeroes come from a page that is new. */
static double checked(np_dir_t dir, size_t len, uint64_t seed, int is_zero)
{
    static const uint8_t zeroes[PAGE];
    double seconds;

    if (dir == NP_DIR_PUT) {
        fill(area, seed + 1, len);
    } else {
        memset(area, 0xee, len);
    }
    seconds      = move(dir, len);
    shared->seed = seed + 1;
    shared->len  = len;
    if ((dir == NP_DIR_PUT) ? !tell(CHECK) :
        is_zero ? (memcmp(area, zeroes, len) != 0) :
        !is_right(area, seed, len)) {
        bail("wrong bytes");
    }
    return seconds;
}

static void measure(np_dir_t dir, size_t len, absence_t absence, unsigned rounds)
{
    static double there[MAX], gone[MAX], system[MAX], pings[MAX];
    unsigned i, major = 0, messages = 0;
    double extra, touch_us, unit;
    counts_t before;

    shared->absence  = absence;
    shared->is_write = dir == NP_DIR_PUT;
    for (i = 0; i < rounds; ++i) {
        shared->seed = i;
        if (!tell(TOUCH)) {
            bail("a page does not go to swap");
        }
        system[i] = (absence == VIEWS) ? 0 : (shared->ns * 1e-9);
        major    += shared->major;
        shared->seed = i;
        tell(FILL);
        settle(dir, len);
        pings[i]     = ping();
        shared->seed = i;
        tell(FILL);
        before    = counts();
        there[i]  = checked(dir, len, i, 0);
        messages += counts().one_sided == before.one_sided;
        shared->seed = i;
        tell(FILL);
        if (!tell(TAKE)) {
            bail("a page does not go to swap");
        }
        before  = counts();
        gone[i] = checked(dir, len, i, !is_kept(absence));
        if (counts().one_sided != before.one_sided) {
            bail("a page that is absent was reached");
        }
        settle(dir, len);
    }
    touch_us = median(system, rounds);
    unit     = median(pings, rounds);
    extra    = median(gone, rounds) - median(there, rounds) - touch_us;
    printf("%-4s%5zu B  %-18s %9.1f %9.1f %9.1f %9.1f %6.1f%s%s\n",
           (dir == NP_DIR_PUT) ? "put" : "get", len, absence_names[absence],
           median(there, rounds), median(gone, rounds), touch_us, unit,
           extra / unit,
           (major > (rounds / 2)) ? "  major faults" : "",
           (messages > (rounds / 2)) ? "  a message either way" : "");
}

static void measure_all(unsigned rounds)
{
    static const size_t sizes[]  = {8, PAGE};
    static const np_dir_t dirs[] = {NP_DIR_GET, NP_DIR_PUT};
    absence_t absence;
    unsigned i, j;

    printf("%u rounds of each in turn, medians in us; added, without the "
           "system's, in messages\n", rounds);
    printf("                                 there    absent    system   "
           "message  added\n");
    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        for (j = 0; j < ucs_static_array_size(dirs); ++j) {
            for (absence = VIEWS; absence < ABSENCES; ++absence) {
                measure(dirs[j], sizes[i], absence, rounds);
            }
        }
    }
}

int main(int argc, char **argv)
{
    unsigned rounds = (argc > 1) ? atoi(argv[1]) : 200;
    np_vport_config_t config;
    int fd, has_failed;
    side_t ours;
    pid_t pid;

    if (!find_port(&config)) {
        bail("no RNIC port is up");
    }

    rounds = ucs_min(ucs_max(rounds, 1u), (unsigned)MAX);
    shared = share_memory(sizeof(*shared));
    pid    = start_target(target, &config, &fd);

    is_initiator = 1;
    stay_on(0);
    open_port(&config, on_am);
    area = make_area(&ours, 16 * PAGE);
    key  = link_sides(fd, &ours, &side);
    measure_all(rounds);
    shared->stop = 1;
    has_failed   = !has_ended_well(pid);
    leave_sides(key);
    return has_failed;
}
