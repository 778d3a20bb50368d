/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a page that is not there adds to a put or get over an RNIC, in turns
 * with one that is, in units of a control message: half of what an active
 * message of 8 bytes and its answer take. Beside it what the target's system
 * takes to bring such a page in for the target itself. Then how long a transfer
 * behind it has to wait. Two processes, each on a processor. The target has a
 * page taken right before anything is measured, if only one that nobody uses:
 * what that does to a processor's (or its emulator's) translations is no part
 * of the difference.
 *
 * fault_cost [ROUNDS]: of each (200). Prints figures; fails if bytes are wrong,
 * or if a transfer is one-sided that should not be.
 */

#define _GNU_SOURCE
#include "absence.h"
#include "sides.h"

#include "nprdma/engine.h"
#include "nprdma/proto/ep.h"
#include "nprdma/stats.h"
#include "nprdma/svc/service.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SETTLED   5000    /* microseconds */
#define PAGES     16

typedef enum order {
    NOTHING,
    FILL,       /* and all is as if it had always been there */
    TAKE,
    TAKE_OTHER, /* a page that nobody uses, to forget translations */
    TOUCH,      /* TAKE, then let the processor touch it: how long? */
    CHECK
} order_t;

typedef struct shared {
    _Atomic int      stop;
    _Atomic int      order;      /* NOTHING: the last one is done */
    _Atomic int      absence, is_write, result;
    _Atomic uint64_t seed, len;
    _Atomic uint64_t ns;         /* of the touch */
    unsigned         major;      /* touches that were major faults; the
                                    target's */
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

static void obey(order_t order)
{
    switch (order) {
    case FILL:
        fill(area, shared->seed, PAGE);
        break;
    case TAKE:
        shared->result = take_page(area, shared->absence, shared->seed);
        break;
    case TAKE_OTHER:
        shared->result = take_page(area + ((PAGES - 1) * PAGE), UNMAPPED, 0);
        break;
    case TOUCH:
        shared->result = take_page(area, shared->absence, shared->seed);
        shared->ns     = touch_page(area, shared->is_write, &shared->major) *
                         1e9;
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
    area = make_area(&ours, PAGES * PAGE);
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
    np_ep_close(&back.flight);
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

/* Seconds of half of a message and its answer */
static double ping(void)
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

typedef struct counts {
    uint64_t one_sided, two_sided;
} counts_t;

static counts_t counts(void)
{
    np_stats_t sum;

    np_stats_sum(&sum);
    return (counts_t){sum.reads + sum.writes, sum.remote_faults};
}

static void post(np_dir_t dir, size_t offset, size_t len, comp_t *comp)
{
    np_iov_t iov = {area + offset, len};
    ucs_status_t status;

    *comp = (comp_t){0};
    POST(status, np_ep_move(dir, &link_.flight, key, &iov, 1,
                            side.area + offset, comp));
    if (status != UCS_INPROGRESS) {
        *comp = (comp_t){1, status};
    }
}

static void finish(const comp_t *comp)
{
    if (!wait_until(is_done, comp) || (comp->status != UCS_OK)) {
        bail(ucs_status_string(comp->status));
    }
}

/* Seconds of one transfer with bytes of the target's area */
static double move_at(np_dir_t dir, size_t offset, size_t len)
{
    double start = now();
    comp_t comp;

    post(dir, offset, len, &comp);
    finish(&comp);
    return now() - start;
}

static double move(np_dir_t dir, size_t len)
{
    return move_at(dir, 0, len);
}

/* The page is in the target's views, as ours is: a transfer tells. A put of 8
 * bytes may be a message, which nothing shows; so put more. Each that was not
 * one-sided has asked the target's kernel for the page, and the last of these
 * may still be waiting for a processor: it would undo what the target does
 * next. */
static void settle_at(np_dir_t dir, size_t offset, size_t len)
{
    double end = now() + LIMIT;
    counts_t before;

    len = (dir == NP_DIR_PUT) ? ucs_max(len, 64ul) : len;
    do {
        before = counts();
        move_at(dir, offset, len);
        if (now() > end) {
            bail("transfers do not become one-sided: is nprdma.ko there?");
        }
    } while ((counts().two_sided != before.two_sided) ||
             (counts().one_sided != (before.one_sided + 1)));
    usleep(SETTLED);
}

static void settle(np_dir_t dir, size_t len)
{
    settle_at(dir, 0, len);
}

/* One transfer whose bytes are looked at. Zeroes come from a page that is
 * new. */
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

static void take(void)
{
    if (!tell(TAKE)) {
        bail("a page does not go to swap");
    }
}

static void measure(np_dir_t dir, size_t len, absence_t absence, unsigned count)
{
    static rounds_t rounds;
    unsigned i, messages = 0;
    counts_t before;

    shared->absence  = absence;
    shared->is_write = dir == NP_DIR_PUT;
    shared->major    = 0;
    for (i = 0; i < count; ++i) {
        shared->seed = i;
        if (!tell(TOUCH)) {
            bail("a page does not go to swap");
        }
        rounds.touch[i] = shared->ns * 1e-9;
        shared->seed    = i;
        tell(FILL);
        settle(dir, len);
        tell(TAKE_OTHER);
        rounds.message[i] = ping();
        rounds.again[i]   = repeat(ping);
        shared->seed      = i;
        tell(FILL);
        tell(TAKE_OTHER);
        before          = counts();
        rounds.there[i] = checked(dir, len, i, 0);
        messages       += counts().one_sided == before.one_sided;
        shared->seed    = i;
        tell(FILL);
        take();
        before           = counts();
        rounds.absent[i] = checked(dir, len, i, !is_kept(absence));
        if (counts().one_sided != before.one_sided) {
            bail("a page that is absent was reached");
        }
        settle(dir, len);
    }
    rounds.count = count;
    rounds.major = shared->major;
    print_rounds((dir == NP_DIR_PUT) ? "put" : "get", len, absence, &rounds,
                 (messages > (count / 2)) ? "  a message either way" : "");
}

/* Seconds of a transfer with the second page, posted right behind one with the
 * first, over the same link */
static double move_behind(np_dir_t dir, size_t len)
{
    double start = now(), seconds;
    comp_t first, second;

    post(dir, 0, len, &first);
    post(dir, PAGE, len, &second);
    finish(&second);
    seconds = now() - start;
    finish(&first);
    return seconds;
}

static void measure_behind(np_dir_t dir, size_t len, absence_t absence,
                           unsigned count)
{
    static behind_t behind;
    unsigned i;

    shared->absence = absence;
    for (i = 0; i < count; ++i) {
        settle(dir, len);
        settle_at(dir, PAGE, len);
        tell(TAKE_OTHER);
        behind.alone[i] = move_at(dir, PAGE, len);
        tell(TAKE_OTHER);
        behind.there[i] = move_behind(dir, len);
        take();
        behind.absent[i] = move_behind(dir, len);
    }
    behind.count = count;
    print_behind((dir == NP_DIR_PUT) ? "put" : "get", len, absence, &behind);
}

static void measure_all(unsigned count)
{
    static const size_t sizes[]  = {8, PAGE};
    static const np_dir_t dirs[] = {NP_DIR_GET, NP_DIR_PUT};
    absence_t absence;
    unsigned i, j;

    print_rounds_title(count);
    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        for (j = 0; j < ucs_static_array_size(dirs); ++j) {
            for (absence = 0; absence < ABSENCES; ++absence) {
                measure(dirs[j], sizes[i], absence, count);
            }
        }
    }

    print_behind_title(count);
    for (j = 0; j < ucs_static_array_size(dirs); ++j) {
        for (absence = MINOR; absence < ABSENCES; ++absence) {
            measure_behind(dirs[j], PAGE, absence, count);
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

    rounds = ucs_min(ucs_max(rounds, 1u), (unsigned)MAX_ROUNDS);
    shared = share_memory(sizeof(*shared));
    pid    = start_target(target, &config, &fd);

    is_initiator = 1;
    stay_on(0);
    open_port(&config, on_am);
    area = make_area(&ours, PAGES * PAGE);
    key  = link_sides(fd, &ours, &side);
    measure_all(rounds);
    shared->stop = 1;
    has_failed   = !has_ended_well(pid);
    leave_sides(key);
    return has_failed;
}
