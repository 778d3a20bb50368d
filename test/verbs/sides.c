/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Two processes of one host, each with a port of an RNIC.
 */

#define _GNU_SOURCE
#include "sides.h"

#include "nprdma/start.h"
#include "nprdma/mem/arena.h"
#include "nprdma/proto/ep.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

np_vport_t *port;
np_vlink_t link_;
ucs_status_t down = UCS_OK;
size_t max_message;


double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + (time.tv_nsec * 1e-9);
}

static void on_complete(void *arg, ucs_status_t status)
{
    comp_t *comp = arg;

    ++comp->count;
    comp->status = status;
}

static void on_down(np_flight_t *flight, ucs_status_t status)
{
    down = status;
}

int find_port(np_vport_config_t *config)
{
    np_nic_name_t *names = NULL;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (np_nic_list(&names) == 0) {
        return 0;
    }

    *config = (np_vport_config_t){
        .device            = names[0].name, /* for as long as we live */
        .gid_index         = -1,
        .recv_buffers      = 64,
        .send_buffers      = 32,
        .sq_size           = 64,
        .credits           = 16,
        .direct_min        = 32768,
        .chunk             = 65536,
        .depth             = 4,
        .pin_max           = 1 << 20,
        .put_once          = 8,
        .connect_timeout   = LIMIT,
        .timeout           = 16,
        .retry_count       = 6,
        .reconnect_timeout = 5
    };
    return 1;
}

void open_port(const np_vport_config_t *config,
               void (*am)(void *arg, uint8_t id, void *data, unsigned len))
{
    const np_engine_config_t engine = {
        .share_min   = 256 * 1024,
        .share_chunk = 128 * 1024,
        .inline_max  = NP_INLINE_DEFAULT,
        .intra_node  = NP_INTRA_NODE_VERBS
    };
    const np_vuser_t user           = {
        .am        = am,
        .complete  = on_complete,
        .link_down = on_down
    };
    np_vport_attr_t attr;

    if ((np_engine_init(&engine) != UCS_OK) ||
        (np_vport_open(config, &np_vlink_ops, &user, &port) != UCS_OK)) {
        printf("Bail out! the port cannot be opened\n");
        exit(1);
    }
    np_vport_query(port, &attr);
    max_message = attr.max_message;
    printf("# %zu bytes of buffers are pinned\n", attr.pinned);
}

void *make_area(side_t *side, size_t size)
{
    return make_area_at(side, NULL, size);
}

void *make_area_at(side_t *side, void *at, size_t size)
{
    np_arenas_t arenas;
    void *area;

    area = mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
                ((at == NULL) ? 0 : MAP_FIXED_NOREPLACE), -1, 0);
    if (area == MAP_FAILED) {
        printf("Bail out! no memory at %p\n", at);
        exit(1);
    }
    side->area = (uintptr_t)area;
    np_vport_get_dev_addr(port, &side->dev);
    np_vport_get_addr(port, &side->port);
    if (np_arenas_share(side->area, size, &arenas) == UCS_OK) {
        np_key_pack_arenas(&side->key, arenas);
    }
    return area;
}

pid_t start_target(int (*target)(const np_vport_config_t *config, int fd),
                   const np_vport_config_t *config, int *fd)
{
    int fds[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) {
        printf("Bail out! no pair of sockets\n");
        exit(1);
    }

    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        exit(target(config, fds[1]));
    }
    *fd = fds[0];
    return pid;
}

int exchange_sides(int fd, const side_t *ours, side_t *theirs)
{
    return (write(fd, ours, sizeof(*ours)) == sizeof(*ours)) &&
           (read(fd, theirs, sizeof(*theirs)) == sizeof(*theirs));
}

np_key_t *link_sides(int fd, const side_t *ours, side_t *theirs)
{
    np_key_t *key;

    if (!exchange_sides(fd, ours, theirs) ||
        (np_key_unpack(&theirs->key, &key) != UCS_OK)) {
        printf("Bail out! the other side is not there\n");
        exit(1);
    }

    np_vlink_init(&link_, port, &theirs->dev, &theirs->port);
    return key;
}

void leave_sides(np_key_t *key)
{
    np_ep_close(&link_.flight);
    np_key_release(key);
    np_vport_close(port);
}

int has_ended_well(pid_t pid)
{
    int status;

    return (waitpid(pid, &status, 0) == pid) && WIFEXITED(status) &&
           (WEXITSTATUS(status) == 0);
}

void *share_memory(size_t size)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

int wait_until(int (*condition)(const void *arg), const void *arg)
{
    double end = now() + LIMIT;

    while (!condition(arg)) {
        np_vport_progress(port);
        if ((now() > end) || (down != UCS_OK)) {
            printf("# %s\n", (down != UCS_OK) ? ucs_status_string(down) :
                   "timed out");
            return 0;
        }
    }
    return 1;
}

int is_done(const void *arg)
{
    return ((const comp_t*)arg)->count > 0;
}

static int is_present(int pagemap, const void *page)
{
    uint64_t entry;

    return (pread(pagemap, &entry, sizeof(entry),
                  (uintptr_t)page / getpagesize() * sizeof(entry)) !=
            (ssize_t)sizeof(entry)) ||
           ((entry >> 63) != 0);
}

static void run_on(unsigned cpu)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    sched_setaffinity(0, sizeof(cpus), &cpus);
}

int page_out(void *pages, size_t len)
{
    const unsigned num_cpus = sysconf(_SC_NPROCESSORS_CONF);
    const size_t page       = getpagesize();
    int pagemap             = open("/proc/self/pagemap", O_RDONLY);
    char *at                = pages, *end = at + len;
    unsigned tries          = 0;
    cpu_set_t all;

    sched_getaffinity(0, sizeof(all), &all);
    madvise(at, len, 21 /* MADV_PAGEOUT */);
    while (at < end) {
        if (!is_present(pagemap, at)) {
            at += page;
        } else if (tries++ < 200) {
            run_on(tries % num_cpus);
            madvise(at, page, 21);
        } else {
            break;
        }
    }
    sched_setaffinity(0, sizeof(all), &all);
    close(pagemap);
    return at >= end;
}

static uint8_t pattern(uint64_t seed, size_t i)
{
    return (uint8_t)((seed * 31) + (i * 7) + (i >> 8));
}

void fill(uint8_t *data, uint64_t seed, size_t len)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        data[i] = pattern(seed, i);
    }
}

int is_right(const uint8_t *data, uint64_t seed, size_t len)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        if (data[i] != pattern(seed, i)) {
            printf("# byte %zu of %zu is %u, wanted %u\n", i, len, data[i],
                   pattern(seed, i));
            return 0;
        }
    }
    return 1;
}
