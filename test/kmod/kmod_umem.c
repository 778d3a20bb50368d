/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What drivers of RNICs would make of views: whether they take a memory region
 * of such a part, and how many translations their device would need for it. The
 * kernel's own helpers say so, called as each driver calls them
 * (umem_import.c).
 */

#include "kmod.h"
#include "umem_import.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB    (1ul << 20)
#define ARENA  (1024 * MIB)
#define BASE   0x300000000000ul       /* of an arena; nothing is mapped there */
#define ACCESS_READ  4u               /* IBV_ACCESS_REMOTE_READ */
#define ACCESS_WRITE 3u               /* IBV_ACCESS_LOCAL_, REMOTE_WRITE */

/* The sizes that an entry of the device may have, as each driver says */
static const struct {
    const char *name;
    uint64_t   pages;
    uint64_t   most;       /* bytes of a region */
    uint64_t   segment;    /* no range of the exporter's list is longer */
} drivers[UMEM_DRIVERS] = {
    [UMEM_MLX5]       = {"mlx5", 4096, UINT64_MAX, UINT64_MAX},
    [UMEM_MLX5_SHORT] = {"mlx5 without extended offsets", 4096,
                         256 * MIB - 1, UINT64_MAX},
    [UMEM_MLX5_NONE]  = {"mlx5 without sizes of entities", 4096, 0,
                         UINT64_MAX},
    [UMEM_MLX5_BEST]  = {"mlx5 of Linux 7", 0xfffff000, UINT64_MAX,
                         UINT64_MAX},
    [UMEM_IRDMA]      = {"irdma", 4096 | (2 * MIB) | (1024 * MIB), UINT64_MAX,
                         UINT64_MAX},
    [UMEM_IRDMA_X722] = {"irdma of X722", 4096 | (2 * MIB), UINT64_MAX,
                         UINT64_MAX},
    [UMEM_BNXT_RE]    = {"bnxt_re", 0x7ffff000, UINT64_MAX, UINT64_MAX},
    [UMEM_MANA]       = {"mana", 0x3ff000, UINT64_MAX, UINT64_MAX},
    [UMEM_CAREFUL]    = {"one of short segments", 0x7ffff000, UINT64_MAX, 65536}
};

static int umem;


/* 0, or -errno of the driver; the region of @a fd is closed by the next one */
static int reg(struct umem_reg *reg)
{
    return (ioctl(umem, UMEM_IOC_REG, reg) == 0) ? 0 : -errno;
}

/* The largest of these sizes that is no larger than @a most */
static uint64_t largest(uint64_t sizes, uint64_t most)
{
    uint64_t size = 1ul << 63;

    while ((size > most) || ((sizes & size) == 0)) {
        size >>= 1;
    }
    return size;
}

static uint64_t up_pow2(uint64_t value)
{
    uint64_t power = 1;

    while (power < value) {
        power <<= 1;
    }
    return power;
}

/* As it is to be: the largest entries that fit, or one that is larger than all
 * of the region, if its addresses happen to allow that. How the exporter's list
 * is cut makes no difference: its ranges are contiguous, and helpers see
 * that. */
static int is_best(const struct umem_reg *reg, uint64_t aligned)
{
    const uint64_t segment = drivers[reg->driver].segment;
    const uint64_t best    = largest(drivers[reg->driver].pages, aligned);

    return (reg->wrong == 0) &&
           (reg->ranges == ((segment > reg->length) ? 1 :
                            (reg->length + segment - 1) / segment)) &&
           (((reg->page_size == best) &&
             (reg->entries == (reg->length + best - 1) / best)) ||
            ((reg->page_size > best) && (reg->entries == 1)));
}

static void say(const struct umem_reg *reg, int ret)
{
    printf("# %s: %lu KiB at %#lx: %d, %lu entries of %lu KiB, %u ranges, %lu "
           "wrong\n", drivers[reg->driver].name, (long)reg->length / 1024,
           (long)reg->offset, ret, (long)reg->entries,
           (long)reg->page_size / 1024, reg->ranges, (long)reg->wrong);
}

/* One driver and one part of a view, its own dma-buf or all of the view */
static int try_part(uint32_t driver, int fd, uint64_t at, uint64_t offset,
                    uint64_t length, uint32_t access, uint64_t *entries)
{
    struct umem_reg part = {
        .fd     = fd,
        .driver = driver,
        .offset = at,
        .length = length,
        .iova   = BASE + offset,
        .access = access
    };
    int ret    = reg(&part), is_right;

    is_right = (length > drivers[driver].most) ? (ret == -EINVAL) :
               ((ret == 0) && is_best(&part, up_pow2(length)));
    if (!is_right) {
        say(&part, ret);
    }
    *entries = part.entries;
    return is_right;
}

/* Rows of parts of a size: the first, one in the middle, and the last */
static void test_row(int dev, uint32_t region, uint32_t driver, uint64_t size)
{
    const uint64_t offsets[] = {0, (ARENA / 2) & ~(size - 1), ARENA - size};
    uint64_t entries = 0;
    unsigned i, wrong = 0;
    uint32_t what;
    int fd;

    for (what = NPRDMA_EXPORT_READ; what <= NPRDMA_EXPORT_WRITE; ++what) {
        for (i = 0; i < 3; ++i) {
            fd = kmod_export_part(dev, region, what, offsets[i], size);
            if (fd < 0) {
                kmod_bail("exporting a part");
            }
            wrong += !try_part(driver, fd, 0, offsets[i], size,
                               (what == NPRDMA_EXPORT_READ) ? ACCESS_READ :
                               ACCESS_WRITE, &entries);
            close(fd);
        }
    }
    if (size > drivers[driver].most) {
        TAP_CHECK(wrong == 0, "%s refuses %lu MiB", drivers[driver].name,
                  size / MIB);
    } else {
        TAP_CHECK(wrong == 0, "%s takes rows of %lu MiB: %lu entries a GiB and "
                  "view", drivers[driver].name, size / MIB,
                  entries * (ARENA / size));
    }
}

static void test_rows(int dev, uint32_t region)
{
    static const uint64_t sizes[] = {16, 128, 256, 1024};
    uint32_t driver;
    unsigned i;

    for (driver = 0; driver < UMEM_DRIVERS; ++driver) {
        for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
            test_row(dev, region, driver, sizes[i] * MIB);
        }
    }
}

/* Memory regions within one dma-buf of all of the view */
static void test_within(int dev, uint32_t region)
{
    int fd = kmod_export(dev, region, NPRDMA_EXPORT_READ);
    uint64_t entries;
    uint32_t driver;
    unsigned wrong = 0;

    for (driver = 0; driver < UMEM_DRIVERS; ++driver) {
        wrong += !try_part(driver, fd, 384 * MIB, 384 * MIB, 128 * MIB,
                           ACCESS_READ, &entries);
    }
    TAP_CHECK(wrong == 0, "a region may be of a part of a larger dma-buf");
    close(fd);
}

/* The last arena of user space lacks a page at its end, and so does its row */
static void test_last(int dev)
{
    const uint64_t length = ARENA - KMOD_PAGE, size = 128 * MIB;
    int region = kmod_create(dev, (void*)BASE, length, 0);
    int fd     = kmod_export_part(dev, region, NPRDMA_EXPORT_WRITE,
                                  ARENA - size, size - KMOD_PAGE);
    uint64_t entries;
    uint32_t driver;
    unsigned wrong = 0;

    for (driver = 0; driver < UMEM_DRIVERS; ++driver) {
        wrong += !try_part(driver, fd, 0, ARENA - size, size - KMOD_PAGE,
                           ACCESS_WRITE, &entries);
    }
    TAP_CHECK(wrong == 0, "the last part of a row may lack a page");
    close(fd);
    ioctl(umem, UMEM_IOC_DEREG);
    kmod_destroy(dev, region);
}

static void test_entries(int dev, uint32_t region)
{
    struct umem_reg table = {
        .fd     = kmod_export(dev, region, NPRDMA_EXPORT_TABLE),
        .length = ARENA / KMOD_PAGE * 4,
        .iova   = BASE / KMOD_PAGE * 4,
        .access = ACCESS_READ
    };
    unsigned wrong = 0;
    int ret;

    for (table.driver = 0; table.driver < UMEM_DRIVERS; ++table.driver) {
        ret = reg(&table);
        if ((table.driver == UMEM_MLX5_NONE) ? (ret != -EINVAL) :
            ((ret != 0) || !is_best(&table, table.length))) {
            say(&table, ret);
            ++wrong;
        }
    }
    TAP_CHECK(wrong == 0, "all that take anything take the table");
    close(table.fd);
}

/* Addresses that are not congruent with the view's cost one entry a page */
static void test_incongruent(int dev, uint32_t region)
{
    struct umem_reg part = {
        .fd     = kmod_export_part(dev, region, NPRDMA_EXPORT_READ, 0, 16 * MIB),
        .length = 16 * MIB,
        .iova   = BASE + KMOD_PAGE,
        .access = ACCESS_READ
    };
    unsigned wrong = 0;
    int ret;

    for (part.driver = 0; part.driver < UMEM_DRIVERS; ++part.driver) {
        if (part.driver == UMEM_MLX5_NONE) {
            continue;
        }
        ret = reg(&part);
        if ((ret != 0) || (part.page_size != KMOD_PAGE) ||
            (part.entries != part.length / KMOD_PAGE)) {
            say(&part, ret);
            ++wrong;
        }
    }
    TAP_CHECK(wrong == 0, "addresses of another place cost an entry a page");
    close(part.fd);
}

/* What comes and goes in a view is none of an importer's business */
static void test_stays(int dev)
{
    char *memory         = kmod_map(KMOD_SLICE);
    int region           = kmod_create(dev, memory, KMOD_SLICE, 0);
    struct umem_reg part = {
        .fd     = kmod_export(dev, region, NPRDMA_EXPORT_WRITE),
        .driver = UMEM_MLX5,
        .length = KMOD_SLICE,
        .iova   = (uintptr_t)memory,
        .access = ACCESS_WRITE
    };

    if ((part.fd < 0) || (reg(&part) != 0)) {
        kmod_bail("a dynamic importer");
    }
    memset(memory, 1, KMOD_PAGE);
    TAP_CHECK((kmod_fault(dev, region, memory, KMOD_PAGE, NPRDMA_FAULT_WRITE,
                          NULL) == 0) &&
              (kmod_range(dev, NPRDMA_IOC_INVALIDATE, region, memory, KMOD_PAGE,
                          0) == 0) &&
              (ioctl(umem, UMEM_IOC_MOVES) == 0),
              "pages come and go, and nobody is asked to move");
    kmod_destroy(dev, region);
    TAP_CHECK(ioctl(umem, UMEM_IOC_MOVES) == 0, "not even at the region's end");
    ioctl(umem, UMEM_IOC_DEREG);
    TAP_CHECK(kmod_counters(dev).attached == 0, "and nothing is left attached");
    close(part.fd);
    munmap(memory, KMOD_SLICE);
}

int main(void)
{
    int dev = kmod_open(), region;

    setvbuf(stdout, NULL, _IOLBF, 0);
    umem = open(UMEM_DEVICE, O_RDWR | O_CLOEXEC);
    if ((dev < 0) || (umem < 0)) {
        kmod_bail("opening " NPRDMA_DEVICE " and " UMEM_DEVICE);
    }
    region = kmod_create(dev, (void*)BASE, ARENA, 0);
    test_rows(dev, region);
    test_within(dev, region);
    test_entries(dev, region);
    test_incongruent(dev, region);
    ioctl(umem, UMEM_IOC_DEREG);
    kmod_destroy(dev, region);
    test_last(dev);
    test_stays(dev);
    TAP_CHECK((kmod_counters(dev).regions == 0) &&
              (kmod_counters(dev).kernel_bytes == 0), "nothing is left");
    return kmod_done();
}
