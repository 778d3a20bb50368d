/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What it costs to make memory remotely accessible: a region, its views
 * attached to a device, against ibv_reg_mr of the same touched memory, in turn.
 * And what it adds when the kernel takes pages. Prints figures; asserts that
 * creation brings nothing in.
 */

#include "kmod.h"

#include <infiniband/verbs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#define REG_ROUNDS  9
#define SWAP_LENGTH (64ul << 20)

enum {
    REG_VERBS,  /* ibv_reg_mr */
    REG_CREATE, /* REGION_CREATE: what a caller waits for */
    REG_ATTACH, /* both views, to the edu device: in the background */
    REG_END,    /* detach and destroy */
    REG_LAST
};

static const char *reg_names[REG_LAST] = {
    "ibv_reg_mr", "create", "attach two views", "detach and destroy"
};

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double*)a, y = *(const double*)b;

    return (x > y) - (x < y);
}

static struct ibv_pd *verbs_open(void)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_context *context;

    if ((devices == NULL) || (devices[0] == NULL)) {
        kmod_bail("no RDMA device");
    }
    context = ibv_open_device(devices[0]);
    return (context == NULL) ? NULL : ibv_alloc_pd(context);
}

static uint32_t attach(int edu, int fd)
{
    struct edu_attach attach = {.fd = fd};

    if ((fd < 0) || (ioctl(edu, EDU_IOC_ATTACH, &attach) < 0)) {
        kmod_bail("attaching");
    }
    return attach.slot;
}

static void one_round(struct ibv_pd *pd, int dev, int edu, char *memory,
                      uint64_t length, double times[REG_LAST])
{
    double start = now();
    struct ibv_mr *mr;
    int number, fds[2];
    uint32_t slots[2];

    mr = ibv_reg_mr(pd, memory, length,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                    IBV_ACCESS_REMOTE_WRITE);
    if (mr == NULL) {
        kmod_bail("ibv_reg_mr");
    }
    times[REG_VERBS] = now() - start;
    ibv_dereg_mr(mr);
    start             = now();
    number            = kmod_create(dev, memory, length, 0);
    times[REG_CREATE] = now() - start;
    fds[0]            = kmod_export(dev, number, NPRDMA_EXPORT_READ);
    fds[1]            = kmod_export(dev, number, NPRDMA_EXPORT_WRITE);
    start             = now();
    slots[0]          = attach(edu, fds[0]);
    slots[1]          = attach(edu, fds[1]);
    times[REG_ATTACH] = now() - start;
    start             = now();
    ioctl(edu, EDU_IOC_DETACH, slots[0]);
    ioctl(edu, EDU_IOC_DETACH, slots[1]);
    close(fds[0]);
    close(fds[1]);
    kmod_destroy(dev, number);
    times[REG_END] = now() - start;
}

static void say(double times[REG_ROUNDS][REG_LAST], uint64_t length)
{
    double sorted[REG_ROUNDS], verbs = 0;
    unsigned i, what;

    for (what = 0; what < REG_LAST; ++what) {
        for (i = 0; i < REG_ROUNDS; ++i) {
            sorted[i] = times[i][what];
        }
        qsort(sorted, REG_ROUNDS, sizeof(sorted[0]), compare);
        if (what == REG_VERBS) {
            verbs = sorted[REG_ROUNDS / 2];
        }
        printf("# %-18s %9.3f ms (%.3f to %.3f), %.4f of ibv_reg_mr\n",
               reg_names[what], sorted[REG_ROUNDS / 2], sorted[0],
               sorted[REG_ROUNDS - 1], sorted[REG_ROUNDS / 2] / verbs);
    }
    printf("# for %lu MiB: medians of %u rounds in turn, and their range\n",
           (unsigned long)(length >> 20), REG_ROUNDS);
}

/* Milliseconds to take a region's pages, of which no or every view has them */
static double take_once(int dev, int number, char *memory, int advice, int map,
                        uint64_t *flushes)
{
    uint64_t before, done;
    double start;

    kmod_fill(memory, SWAP_LENGTH, 1);
    if (map && (kmod_fault(dev, number, memory, SWAP_LENGTH,
                           NPRDMA_FAULT_WRITE, &done) != 0)) {
        kmod_bail("fault-in");
    }
    before = kmod_counters(dev).flushes;
    start  = now();
    madvise(memory, SWAP_LENGTH, advice);
    start    = now() - start;
    *flushes = kmod_counters(dev).flushes - before;
    return start;
}

/* MADV_PAGEOUT: the kernel tells of each page by itself. MADV_DONTNEED: of all
 * by one call, so that a flush is of many. */
static void take(const kmod_region_t *region, int dev, char *memory, int advice,
                 const char *name)
{
    double times[2][REG_ROUNDS];
    uint64_t flushes = 0;
    unsigned i;

    for (i = 0; i < REG_ROUNDS; ++i) {
        times[0][i] = take_once(dev, region->number, memory, advice, 0,
                                &flushes);
        times[1][i] = take_once(dev, region->number, memory, advice, 1,
                                &flushes);
    }
    qsort(times[0], REG_ROUNDS, sizeof(double), compare);
    qsort(times[1], REG_ROUNDS, sizeof(double), compare);
    printf("# %s of %lu MiB: %.1f ms (%.1f to %.1f) unmapped, %.1f ms "
           "(%.1f to %.1f) mapped in two views, ratio %.2f, %lu flushes\n",
           name, SWAP_LENGTH >> 20, times[0][REG_ROUNDS / 2], times[0][0],
           times[0][REG_ROUNDS - 1], times[1][REG_ROUNDS / 2], times[1][0],
           times[1][REG_ROUNDS - 1],
           times[1][REG_ROUNDS / 2] / times[0][REG_ROUNDS / 2],
           (unsigned long)flushes);
}

static void take_all(int dev, int edu)
{
    char *memory = kmod_map(SWAP_LENGTH);
    kmod_region_t region;

    madvise(memory, SWAP_LENGTH, MADV_NOHUGEPAGE);
    kmod_region_open(&region, dev, memory, SWAP_LENGTH, edu);
    take(&region, dev, memory, MADV_PAGEOUT, "MADV_PAGEOUT");
    take(&region, dev, memory, MADV_DONTNEED, "MADV_DONTNEED");
    kmod_region_close(&region);
    munmap(memory, SWAP_LENGTH);
}

static uint64_t resident(char *memory, uint64_t length)
{
    unsigned char *map = malloc(length / KMOD_PAGE);
    uint64_t i, count = 0;

    if (mincore(memory, length, map) != 0) {
        kmod_bail("mincore");
    }
    for (i = 0; i < length / KMOD_PAGE; ++i) {
        count += map[i] & 1;
    }
    free(map);
    return count;
}

int main(int argc, char **argv)
{
    uint64_t length = ((argc > 1) ? strtoull(argv[1], NULL, 0) : 256) << 20;
    double times[REG_ROUNDS][REG_LAST];
    struct ibv_pd *pd = verbs_open();
    int dev = kmod_open(), edu = kmod_edu_open(), number;
    char *memory = kmod_map(length), *fresh = kmod_map(length);
    unsigned i;

    if ((pd == NULL) || (dev < 0) || (edu < 0)) {
        kmod_bail("opening devices");
    }
    madvise(memory, length, MADV_NOHUGEPAGE);
    kmod_fill(memory, length, 1);
    one_round(pd, dev, edu, memory, length, times[0]);
    for (i = 0; i < REG_ROUNDS; ++i) {
        one_round(pd, dev, edu, memory, length, times[i]);
    }
    say(times, length);
    munmap(memory, length);
    take_all(dev, edu);
    number = kmod_create(dev, fresh, length, 0);
    TAP_CHECK((number > 0) &&
              (attach(edu, kmod_export(dev, number, NPRDMA_EXPORT_READ)) <
               EDU_SLOTS) && (resident(fresh, length) == 0),
              "a region and its view bring no page in");
    return kmod_done();
}
