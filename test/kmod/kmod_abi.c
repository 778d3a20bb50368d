/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ioctls of /dev/nprdma: what they refuse, and how. Needs no device; with
 * the edu device there is more to race with.
 */

#include "kmod_abi.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define MEMORY (4 * KMOD_SLICE)

int abi_call(int dev, unsigned long request, void *argument)
{
    return (ioctl(dev, request, argument) < 0) ? -errno : 0;
}

static void test_info(int dev)
{
    struct nprdma_info info = kmod_info(dev);
    struct {
        struct nprdma_info info;
        uint64_t           more[4];
    } longer;
    struct nprdma_kernel_counters counters = kmod_counters(dev);

    TAP_CHECK((info.abi == NPRDMA_ABI_VERSION) &&
              (info.page_size == KMOD_PAGE) &&
              (info.signature == NPRDMA_SIGNATURE) &&
              (info.slice_size == KMOD_SLICE), "INFO says what it is");
    TAP_CHECK((info.table_max > 0) && (info.table_used == 0) &&
              (info.region_max > MEMORY),
              "and what its bounds are");
    TAP_CHECK((counters.regions == 0) && (counters.faults == 0) &&
              (counters.replace == NPRDMA_REPLACE_NONE),
              "a new context has counted nothing");
    memset(&longer, 0xff, sizeof(longer));
    TAP_CHECK((abi_call(dev, _IOR(NPRDMA_IOC, 0, longer), &longer) == 0) &&
              (longer.info.abi == NPRDMA_ABI_VERSION) &&
              (longer.more[0] == 0) && (longer.more[3] == 0),
              "a longer structure is filled with zeroes");
}

static void test_numbers(int dev)
{
    unsigned char bytes[512] = {0};
    unsigned i, refused = 0;

    TAP_CHECK(abi_call(dev, _IOR(NPRDMA_IOC, 0x0a, struct nprdma_info),
                       bytes) == -ENOTTY, "an unknown number is ENOTTY");
    TAP_CHECK(abi_call(dev, _IOR('x', 0, struct nprdma_info), bytes) ==
              -ENOTTY, "so is one of another kind");
    TAP_CHECK(abi_call(dev, _IOW(NPRDMA_IOC, 0, struct nprdma_info), bytes) ==
              -ENOTTY, "so is one of another direction");
    for (i = 0; i < sizeof(struct nprdma_info); ++i) {
        refused += abi_call(dev, _IOC(_IOC_READ, NPRDMA_IOC, 0, i), bytes) ==
                   -EINVAL;
    }
    TAP_CHECK(refused == sizeof(struct nprdma_info),
              "every structure that is too short is EINVAL");
    for (i = 0, refused = 0; i < sizeof(struct nprdma_fault); ++i) {
        refused += abi_call(dev, _IOC(_IOC_READ | _IOC_WRITE, NPRDMA_IOC, 4, i),
                            bytes) == -EINVAL;
    }
    TAP_CHECK(refused == sizeof(struct nprdma_fault), "also one that is read");
    bytes[sizeof(struct nprdma_range)] = 1;
    TAP_CHECK(abi_call(dev, _IOC(_IOC_WRITE, NPRDMA_IOC, 6,
                                 sizeof(struct nprdma_range) + 8), bytes) ==
              -E2BIG, "one that says more is E2BIG");
    bytes[sizeof(struct nprdma_range)] = 0;
    TAP_CHECK(abi_call(dev, _IOC(_IOC_WRITE, NPRDMA_IOC, 6,
                                 sizeof(struct nprdma_range) + 8), bytes) ==
              -ENOENT, "one that is longer and says no more is taken");
    for (i = 0, refused = 0; i < 10; ++i) {
        static const unsigned long requests[] = {
            NPRDMA_IOC_INFO,       NPRDMA_IOC_REGION_CREATE,
            NPRDMA_IOC_REGION_DESTROY, NPRDMA_IOC_REGION_EXPORT,
            NPRDMA_IOC_FAULT,      NPRDMA_IOC_PREFETCH,
            NPRDMA_IOC_INVALIDATE,
            NPRDMA_IOC_SWAP_OUT,   NPRDMA_IOC_SWAP_IN,
            NPRDMA_IOC_COUNTERS
        };
        refused += abi_call(dev, requests[i], (void*)8) == -EFAULT;
    }
    TAP_CHECK(refused == 10, "an argument that is not there is EFAULT");
}

static int create(int dev, uint64_t addr, uint64_t length, uint32_t flags)
{
    int region = kmod_create(dev, (void*)addr, length, flags);

    if (region > 0) {
        kmod_destroy(dev, region);
    }
    return region;
}

static void test_create(int dev, char *memory)
{
    uint64_t addr = (uintptr_t)memory, max = kmod_info(dev).region_max;
    struct nprdma_region_create dirty = {
        .addr   = addr,
        .length = KMOD_PAGE,
        .region = 1
    };

    TAP_CHECK(create(dev, addr + 1, KMOD_PAGE, 0) == -EINVAL,
              "a region begins at a page");
    TAP_CHECK(create(dev, addr, KMOD_PAGE + 8, 0) == -EINVAL,
              "and ends at one");
    TAP_CHECK(create(dev, addr, 0, 0) == -EINVAL, "it is not empty");
    TAP_CHECK(create(dev, addr, max + KMOD_PAGE, 0) == -EINVAL,
              "nor longer than region_max");
    TAP_CHECK(create(dev, -KMOD_PAGE, 2 * KMOD_PAGE, 0) == -EINVAL,
              "it does not wrap");
    TAP_CHECK(create(dev, KMOD_PAGE, -(uint64_t)KMOD_PAGE, 0) == -EINVAL,
              "whatever its length");
    TAP_CHECK(create(dev, 0xffff888000000000ull, KMOD_PAGE, 0) == -EINVAL,
              "it is not in the kernel");
    TAP_CHECK(create(dev, (1ull << 56) - KMOD_PAGE, 2 * KMOD_PAGE, 0) == -EINVAL,
              "nor does it reach there");
    TAP_CHECK(create(dev, addr, KMOD_PAGE, 1u << 31) == -EINVAL,
              "an unknown flag is EINVAL");
    TAP_CHECK(abi_call(dev, NPRDMA_IOC_REGION_CREATE, &dirty) == -EINVAL,
              "so is an output that is not 0");
    TAP_CHECK(create(dev, addr, KMOD_PAGE, 0) > 0, "one page is a region");
    TAP_CHECK(create(dev, 0, KMOD_SLICE, 0) > 0,
              "so is what nothing is mapped in");
    TAP_CHECK(kmod_destroy(dev, 12345) == -ENOENT, "there is no such region");
    TAP_CHECK((kmod_destroy(dev, 0) == -ENOENT) &&
              (create(dev, addr, KMOD_PAGE, 0) > 0), "0 is never one");
}

static void test_ranges(int dev, char *memory)
{
    static const unsigned long requests[] = {
        NPRDMA_IOC_PREFETCH, NPRDMA_IOC_INVALIDATE, NPRDMA_IOC_SWAP_OUT,
        NPRDMA_IOC_SWAP_IN
    };
    int region = kmod_create(dev, memory, MEMORY, 0);
    unsigned i, bad = 0;

    for (i = 0; i < 4; ++i) {
        bad += kmod_range(dev, requests[i], region, memory - KMOD_PAGE,
                          KMOD_PAGE, 0) != -EINVAL;
        bad += kmod_range(dev, requests[i], region, memory + MEMORY, KMOD_PAGE,
                          0) != -EINVAL;
        bad += kmod_range(dev, requests[i], region, memory, MEMORY + KMOD_PAGE,
                          0) != -EINVAL;
        bad += kmod_range(dev, requests[i], region, memory, -KMOD_PAGE, 0) !=
               -EINVAL;
        bad += kmod_range(dev, requests[i], region, memory + 1, KMOD_PAGE, 0) !=
               -EINVAL;
        bad += kmod_range(dev, requests[i], region, memory, 100, 0) != -EINVAL;
        bad += kmod_range(dev, requests[i], region, memory, 0, 0) != -EINVAL;
        bad += kmod_range(dev, requests[i], region, memory, KMOD_PAGE, 8) !=
               -EINVAL;
        bad += kmod_range(dev, requests[i], region + 1, memory, KMOD_PAGE, 0) !=
               -ENOENT;
    }
    TAP_CHECK(bad == 0, "ranges that are wrong are refused by all four");
    TAP_CHECK(kmod_range(dev, NPRDMA_IOC_INVALIDATE, region, memory, KMOD_PAGE,
                         NPRDMA_RANGE_WRITE) == -EINVAL,
              "so is a flag that says nothing there");
    TAP_CHECK((kmod_fault(dev, region, memory - KMOD_PAGE, KMOD_PAGE, 0, NULL) == -EINVAL) &&
              (kmod_fault(dev, region, memory, MEMORY + KMOD_PAGE, 0, NULL) == -EINVAL) &&
              (kmod_fault(dev, region, memory, 0, 0, NULL) == -EINVAL) &&
              (kmod_fault(dev, region, memory, KMOD_PAGE, 4, NULL) ==
               -EINVAL) &&
              (kmod_fault(dev, region + 1, memory, KMOD_PAGE, 0, NULL) ==
               -ENOENT), "and by FAULT");
    kmod_destroy(dev, region);
    TAP_CHECK(kmod_destroy(dev, region) == -ENOENT,
              "a region ends once");
    TAP_CHECK((kmod_fault(dev, region, memory, KMOD_PAGE, 0, NULL) ==
               -ENOENT) &&
              (kmod_export(dev, region, NPRDMA_EXPORT_READ) == -ENOENT),
              "and is not found any more");
}

static void test_rdonly(int dev, char *memory)
{
    int region = kmod_create(dev, memory, KMOD_SLICE, NPRDMA_REGION_RDONLY);

    TAP_CHECK(kmod_fault(dev, region, memory, KMOD_PAGE, 0, NULL) == 0,
              "a region for reading is read");
    TAP_CHECK((kmod_fault(dev, region, memory, KMOD_PAGE, NPRDMA_FAULT_WRITE,
                          NULL) == -EACCES) &&
              (kmod_range(dev, NPRDMA_IOC_PREFETCH, region, memory, KMOD_PAGE,
                          NPRDMA_RANGE_WRITE) == -EACCES) &&
              (kmod_range(dev, NPRDMA_IOC_SWAP_IN, region, memory, KMOD_PAGE,
                          NPRDMA_RANGE_WRITE) == -EACCES),
              "and never written");
    kmod_destroy(dev, region);
}

static void test_exports(int dev, char *memory)
{
    int region = kmod_create(dev, memory, MEMORY, 0), read_fd, table_fd;
    void *addr;

    TAP_CHECK((kmod_export(dev, region, 0) == -EINVAL) &&
              (kmod_export(dev, region, 4) == -EINVAL),
              "there are two views and a table");
    read_fd  = kmod_export(dev, region, NPRDMA_EXPORT_READ);
    table_fd = kmod_export(dev, region, NPRDMA_EXPORT_TABLE);
    TAP_CHECK((fcntl(read_fd, F_GETFD) == FD_CLOEXEC) &&
              (fcntl(table_fd, F_GETFD) == FD_CLOEXEC),
              "they are closed at exec");
    TAP_CHECK((lseek(read_fd, 0, SEEK_END) == MEMORY) &&
              (lseek(table_fd, 0, SEEK_END) == MEMORY / KMOD_PAGE * 4),
              "their sizes are those of the region and of its entries");
    TAP_CHECK(mmap(NULL, KMOD_PAGE, PROT_READ, MAP_SHARED, read_fd, 0) ==
              MAP_FAILED, "a view cannot be mapped");
    TAP_CHECK(mmap(NULL, KMOD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
                   table_fd, 0) == MAP_FAILED, "nor a table to write");
    TAP_CHECK(mmap(NULL, KMOD_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE,
                   table_fd, 0) == MAP_FAILED, "not even privately");
    TAP_CHECK(mmap(NULL, MEMORY / KMOD_PAGE * 4 + KMOD_PAGE, PROT_READ,
                   MAP_SHARED, table_fd, 0) == MAP_FAILED,
              "nor beyond its end");
    addr = mmap(NULL, MEMORY / KMOD_PAGE * 4, PROT_READ, MAP_SHARED, table_fd,
                0);
    TAP_CHECK(addr != MAP_FAILED, "a table is mapped to read");
    TAP_CHECK((mprotect(addr, KMOD_PAGE, PROT_READ | PROT_WRITE) != 0) &&
              (errno == EACCES), "and never becomes writable");
    TAP_CHECK(abi_call(read_fd, NPRDMA_IOC_INFO, memory) < 0,
              "a view is no context");
    kmod_destroy(dev, region);
    close(read_fd);
    close(table_fd);
    TAP_CHECK(*(volatile uint32_t*)addr == 0, "a mapped table outlives all");
    munmap(addr, MEMORY / KMOD_PAGE * 4);
}

/* Parts of views: whole slices, or up to the end */
static void test_parts(int dev, char *memory)
{
    const uint64_t length = 2 * KMOD_SLICE + KMOD_PAGE;
    int region            = kmod_create(dev, memory, length, 0);
    const struct {
        uint32_t what;
        uint64_t offset, length, size; /* size 0: refused */
    } parts[] = {
        {NPRDMA_EXPORT_READ, 0, 0, length},
        {NPRDMA_EXPORT_READ, 0, KMOD_SLICE, KMOD_SLICE},
        {NPRDMA_EXPORT_WRITE, KMOD_SLICE, KMOD_SLICE, KMOD_SLICE},
        {NPRDMA_EXPORT_WRITE, KMOD_SLICE, KMOD_SLICE + KMOD_PAGE,
         KMOD_SLICE + KMOD_PAGE},
        {NPRDMA_EXPORT_READ, 2 * KMOD_SLICE, KMOD_PAGE, KMOD_PAGE},
        {NPRDMA_EXPORT_READ, 0, length, length},
        {NPRDMA_EXPORT_READ, KMOD_PAGE, KMOD_SLICE, 0},
        {NPRDMA_EXPORT_READ, 0, KMOD_PAGE, 0},
        {NPRDMA_EXPORT_READ, KMOD_SLICE, 0, 0},
        {NPRDMA_EXPORT_READ, 2 * KMOD_SLICE, KMOD_SLICE, 0},
        {NPRDMA_EXPORT_READ, 3 * KMOD_SLICE, KMOD_SLICE, 0},
        {NPRDMA_EXPORT_READ, KMOD_SLICE, -KMOD_SLICE, 0},
        {NPRDMA_EXPORT_READ, -KMOD_SLICE, 2 * KMOD_SLICE, 0},
        {NPRDMA_EXPORT_TABLE, 0, KMOD_SLICE, 0},
        {NPRDMA_EXPORT_TABLE, KMOD_SLICE, 0, 0}
    };
    unsigned i, wrong = 0;
    int fd, is_right;

    for (i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
        fd = kmod_export_part(dev, region, parts[i].what, parts[i].offset,
                              parts[i].length);
        is_right = (parts[i].size == 0) ? (fd == -EINVAL) :
                   (lseek(fd, 0, SEEK_END) == (off_t)parts[i].size);
        if (!is_right) {
            printf("# part %u: %d\n", i, fd);
            ++wrong;
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    TAP_CHECK(wrong == 0, "parts of views are whole slices, or end with them");
    kmod_destroy(dev, region);
}

static void test_fault(int dev, char *memory)
{
    struct nprdma_kernel_counters before = kmod_counters(dev), after;
    kmod_region_t region;
    uint64_t done = 1;
    uint32_t entry;

    madvise(memory, MEMORY, MADV_DONTNEED);
    kmod_region_open(&region, dev, memory, MEMORY, -1);
    TAP_CHECK((kmod_fault(dev, region.number, memory, MEMORY,
                          NPRDMA_FAULT_NOWAIT, &done) == -EAGAIN) &&
              (done == 0), "without waiting nothing is brought in");
    TAP_CHECK((kmod_fault(dev, region.number, memory, MEMORY, 0, &done) == 0) && (done == MEMORY),
              "a region over four slices is brought in");
    after = kmod_counters(dev);
    TAP_CHECK(after.mapped - before.mapped == MEMORY / KMOD_PAGE,
              "each page is counted once");
    entry = kmod_entry(&region, memory + KMOD_SLICE);
    TAP_CHECK((kmod_fault(dev, region.number, memory, MEMORY,
                          NPRDMA_FAULT_NOWAIT, &done) == 0) &&
              (done == MEMORY) &&
              (kmod_entry(&region, memory + KMOD_SLICE) == entry),
              "what is mapped does not change");
    memory[KMOD_SLICE] = 1;
    TAP_CHECK(kmod_bits(&region, memory + KMOD_SLICE) == 0,
              "the first write takes the zero page");
    TAP_CHECK((kmod_fault(dev, region.number, memory + KMOD_SLICE, KMOD_PAGE,
                          NPRDMA_FAULT_NOWAIT | NPRDMA_FAULT_WRITE, &done) == 0) && (done == KMOD_PAGE),
              "what is present is mapped without waiting, to write too");
    munmap(memory, MEMORY);
    TAP_CHECK((kmod_bits(&region, memory) == 0) &&
              (kmod_bits(&region, memory + MEMORY - KMOD_PAGE) == 0),
              "munmap takes it all");
    after = kmod_counters(dev);
    TAP_CHECK(after.mapped - before.mapped ==
              after.unmapped - before.unmapped,
              "what was mapped was unmapped");
    kmod_region_close(&region);
    if (mmap(memory, MEMORY, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
             0) != memory) {
        kmod_bail("mmap");
    }
}

static void test_prefetch(int dev, char *memory)
{
    kmod_region_t region;
    unsigned tries;

    kmod_region_open(&region, dev, memory, MEMORY, -1);
    TAP_CHECK(kmod_range(dev, NPRDMA_IOC_PREFETCH, region.number, memory,
                         KMOD_SLICE, NPRDMA_RANGE_WRITE) == 0, "PREFETCH");
    for (tries = 0; tries < 1000; ++tries) {
        if (kmod_bits(&region, memory + KMOD_SLICE - KMOD_PAGE) != 0) {
            break;
        }
        usleep(10000);
    }
    TAP_CHECK(kmod_bits(&region, memory + KMOD_SLICE - KMOD_PAGE) ==
              (NPRDMA_ENTRY_READ | NPRDMA_ENTRY_WRITE),
              "and all of it comes in the background");
    kmod_region_close(&region);
}

int main(int argc, char **argv)
{
    int dev, edu;
    char *memory;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) {
        return abi_after_exec(argv[1]);
    }
    dev = kmod_open();
    if (dev < 0) {
        kmod_bail("opening " NPRDMA_DEVICE);
    }
    edu    = kmod_edu_open();
    memory = kmod_map(MEMORY);
    madvise(memory, MEMORY, MADV_NOHUGEPAGE);
    test_info(dev);
    test_numbers(dev);
    test_create(dev, memory);
    test_ranges(dev, memory);
    test_rdonly(dev, memory);
    test_exports(dev, memory);
    test_parts(dev, memory);
    test_fault(dev, memory);
    test_prefetch(dev, memory);
    abi_strangers(dev, memory, argv[0]);
    abi_bounds(dev, memory);
    abi_memory(dev, edu);
    abi_life(dev, memory);
    abi_fail(dev, edu, memory);
    abi_race(dev, edu, memory, MEMORY);
    close(dev);
    abi_deaths(edu, memory, MEMORY);
    close(edu);
    abi_leaks();
    return kmod_done();
}
