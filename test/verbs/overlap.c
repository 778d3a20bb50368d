/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How much of the registration of both sides is hidden (seed FRRWP, figures 3
 * to 6): puts by the engine over an RNIC, of memory that is there, in turns in
 * the traditional order (one side registers, then the other, then the data
 * moves) and overlapped. Two processes, each on a processor of its own;
 * medians.
 *
 * overlap [ROUNDS [MAX]]: up to MAX bytes
 */

#define _GNU_SOURCE
#include "sides.h"

#include "nprdma/proto/ep.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE_MIN    ((size_t)64 << 10)
#define SIZE_MAX_   ((size_t)16 << 20)
#define ROUNDS_MAX  1000
#define CHUNK       ((size_t)256 << 10)

enum {
    REG_SOURCE,
    REG_SINK,
    SEQUENTIAL,
    OVERLAPPED,
    MEASURED
};

typedef struct shared {
    _Atomic int stop;
    _Atomic int is_sequential;
    _Atomic int is_set;        /* the target goes by it */
} shared_t;

static shared_t *shared;


static void stay_on(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu % sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static int target(const np_vport_config_t *config, int fd)
{
    side_t side, other;

    stay_on(1);
    open_port(config, NULL);
    memset(make_area(&side, SIZE_MAX_), 1, SIZE_MAX_);
    if (!exchange_sides(fd, &side, &other)) {
        return 1;
    }

    while (!shared->stop) {
        port->config.is_sequential = shared->is_sequential;
        shared->is_set             = shared->is_sequential;
        np_vport_progress(port);
    }
    np_vport_close(port);
    return 0;
}

static int is_agreed(const void *arg)
{
    return shared->is_set == shared->is_sequential;
}

/* us; negative: it failed */
static double measure_put(np_key_t *key, uint8_t *mine, const side_t *to,
                          size_t len, int is_sequential)
{
    np_iov_t iov = {mine, len};
    comp_t comp  = {0, UCS_OK};
    ucs_status_t status;
    double start;

    port->config.is_sequential = is_sequential;
    shared->is_sequential      = is_sequential;
    if (!wait_until(is_agreed, NULL)) {
        return -1;
    }

    start = now();
    POST(status, np_ep_move(NP_DIR_PUT, &link_.flight, key, &iov, 1, to->area,
                            &comp));
    if ((status != UCS_INPROGRESS) || !wait_until(is_done, &comp) ||
        (comp.status != UCS_OK)) {
        return -1;
    }
    return (now() - start) * 1e6;
}

/* us of registration and its end, all at once */
static double measure_reg(uint8_t *mine, size_t len, int access)
{
    double start = now();
    struct ibv_mr *mr;

    if (np_nic_reg(port->nic, mine, len, access, &mr) != UCS_OK) {
        return -1;
    }
    np_nic_dereg(mr);
    return (now() - start) * 1e6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double*)a, y = *(const double*)b;

    return (x > y) - (x < y);
}

static double median(double *times, int count)
{
    qsort(times, count, sizeof(*times), compare);
    return times[count / 2];
}

/* Returns 0 if something has failed */
static int measure(np_key_t *key, uint8_t *mine, const side_t *to, size_t len,
                   int rounds, double *us)
{
    static double times[MEASURED][ROUNDS_MAX];
    int i, what;

    for (i = 0; i < rounds; ++i) {
        times[REG_SOURCE][i] = measure_reg(mine, len, 0);
        times[REG_SINK][i]   = measure_reg(mine, len, IBV_ACCESS_LOCAL_WRITE |
                                                      IBV_ACCESS_REMOTE_WRITE);
        times[SEQUENTIAL][i] = measure_put(key, mine, to, len, 1);
        times[OVERLAPPED][i] = measure_put(key, mine, to, len, 0);
        for (what = 0; what < MEASURED; ++what) {
            if (times[what][i] < 0) {
                return 0;
            }
        }
    }

    for (what = 0; what < MEASURED; ++what) {
        us[what] = median(times[what], rounds);
    }
    return 1;
}

int main(int argc, char **argv)
{
    int rounds = (argc > 1) ? atoi(argv[1]) : 15, fd;
    size_t max = (argc > 2) ? strtoul(argv[2], NULL, 0) : SIZE_MAX_;
    np_vport_config_t config;
    double us[MEASURED];
    side_t side, ours;
    np_key_t *key;
    uint8_t *mine;
    size_t len;

    if ((rounds < 1) || (rounds > ROUNDS_MAX)) {
        fprintf(stderr, "overlap: rounds from 1 to %d, not '%s'\n", ROUNDS_MAX,
                argv[1]);
        return 2;
    }

    if (!find_port(&config)) {
        fprintf(stderr, "overlap: no RNIC port is up\n");
        return 77;
    }

    config.chunk = CHUNK;
    shared       = share_memory(sizeof(*shared));
    (void)start_target(target, &config, &fd);

    stay_on(0);
    open_port(&config, NULL);
    mine = make_area(&ours, SIZE_MAX_);
    memset(mine, 1, SIZE_MAX_);
    key = link_sides(fd, &ours, &side);
    measure_put(key, mine, &side, SIZE_MIN, 0);
    printf("# us, medians of %d; chunks of %zu KiB; hidden: of the smaller "
           "registration, of both\n", rounds, CHUNK >> 10);
    printf("%10s %10s %10s %12s %12s %10s %10s\n", "# bytes", "source", "sink",
           "sequential", "overlapped", "smaller", "both");
    for (len = SIZE_MIN; len <= ucs_min(max, SIZE_MAX_); len *= 4) {
        if (!measure(key, mine, &side, len, rounds, us)) {
            fprintf(stderr, "overlap: a put of %zu bytes has failed\n", len);
            return 1;
        }
        printf("%10zu %10.0f %10.0f %12.0f %12.0f %10.2f %10.2f\n", len,
               us[REG_SOURCE], us[REG_SINK], us[SEQUENTIAL], us[OVERLAPPED],
               (us[SEQUENTIAL] - us[OVERLAPPED]) /
               ucs_min(us[REG_SOURCE], us[REG_SINK]),
               (us[SEQUENTIAL] - us[OVERLAPPED]) /
               (us[REG_SOURCE] + us[REG_SINK]));
    }

    shared->stop = 1;
    leave_sides(key);
    return 0;
}
