/* SPDX-License-Identifier: BSD-3-Clause */
/* Attaching: large regions, who pays for tables, how many. */

#include "kmod_edu.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#define WINDOWS_LARGE ((2ul << 30) + 5 * KMOD_PAGE)
#define WINDOWS_MAX   64u
#define FAIL_CHUNKS   4u
#define FAIL_LENGTH   (FAIL_CHUNKS * (2ul << 20))
#define FAIL_PAGES    8u
#define FAIL_PARAMETERS "/sys/module/nprdma_fail/parameters/"
#define WINDOWS_GROUP "/sys/fs/cgroup/kmod-windows"

static long group_value(const char *name)
{
    char path[128], text[32] = "";
    int fd;

    snprintf(path, sizeof(path), "%s/%s", WINDOWS_GROUP, name);
    fd = open(path, O_RDONLY);
    if ((fd < 0) || (read(fd, text, sizeof(text) - 1) <= 0)) {
        text[0] = '\0';
    }
    close(fd);
    return atol(text);
}

static int group_write(const char *group, const char *name, const char *text)
{
    char path[128];
    int fd, ret;

    snprintf(path, sizeof(path), "%s/%s", group, name);
    fd  = open(path, O_WRONLY);
    ret = write(fd, text, strlen(text));
    close(fd);
    return ret > 0;
}

/* Of Linux 6.1 VT-d's driver does not say whose tables they are */
static int kernel_charges(void)
{
    struct utsname name;
    unsigned major = 0, minor = 0;

    uname(&name);
    return (sscanf(name.release, "%u.%u", &major, &minor) == 2) &&
           ((major > 6) || (minor >= 3));
}

/* All of it is absent, from its first page to its last */
static void test_large(kmod_region_t *region)
{
    static const uint64_t offsets[] = {
        0, KMOD_PAGE, (2ul << 20) - KMOD_PAGE, 2ul << 20, 1ul << 30,
        (2ul << 30) - KMOD_PAGE, 2ul << 30, WINDOWS_LARGE - KMOD_PAGE
    };
    unsigned i, wrong = 0;

    for (i = 0; i < sizeof(offsets) / sizeof(offsets[0]); ++i) {
        wrong += kmod_word(region, (char*)region->addr + offsets[i]) !=
                 NPRDMA_SIGNATURE;
    }
    TAP_CHECK(wrong == 0, "a large region is absent all over");
}

static void test_charge(int dev, int edu)
{
    const long tables = WINDOWS_LARGE / KMOD_PAGE * 8;
    char *memory      = kmod_map(WINDOWS_LARGE);
    kmod_region_t region;
    long before, after;
    int is_in;

    group_write("/sys/fs/cgroup", "cgroup.subtree_control", "+memory");
    mkdir(WINDOWS_GROUP, 0700);
    is_in  = group_write(WINDOWS_GROUP, "cgroup.procs", "0");
    before = group_value("memory.current");
    kmod_region_open(&region, dev, memory, WINDOWS_LARGE, edu);
    after = group_value("memory.current");
    printf("# %ld bytes charged for two windows of %ld bytes of tables\n",
           after - before, tables);
    if (!is_in || (before == 0) || !kernel_charges()) {
        printf("ok %u - tables are charged # SKIP not by this kernel\n",
               ++tap_count);
    } else {
        TAP_CHECK(after - before >= 2 * tables,
                  "the tables of views are charged to who attaches them");
    }
    test_large(&region);
    kmod_region_close(&region);
    munmap(memory, WINDOWS_LARGE);
    if (is_in) {
        group_write("/sys/fs/cgroup", "cgroup.procs", "0");
    }
    rmdir(WINDOWS_GROUP);
}

static void test_count(int dev, int edu)
{
    char *memory = kmod_map(KMOD_SLICE);
    int region   = kmod_create(dev, memory, KMOD_PAGE, 0), ret;
    struct edu_attach attach = {.fd = kmod_export(dev, region,
                                                  NPRDMA_EXPORT_READ)};
    unsigned count;

    for (count = 0; count <= WINDOWS_MAX; ++count) {
        ret = ioctl(edu, EDU_IOC_ATTACH, &attach);
        if (ret != 0) {
            break;
        }
    }
    TAP_CHECK((count == WINDOWS_MAX) && (errno == EDQUOT),
              "a region is attached %u times at most (%u: %m)", WINDOWS_MAX,
              count);
    TAP_CHECK(kmod_counters(dev).attached == WINDOWS_MAX,
              "and what was refused leaves nothing");
    for (count = 0; count < EDU_SLOTS_ALL; ++count) {
        ioctl(edu, EDU_IOC_DETACH, count);
    }
    close(attach.fd);
    kmod_destroy(dev, region);
    munmap(memory, KMOD_SLICE);
}

static uint32_t part_attach(int edu, int dev, uint32_t region, uint32_t what,
                            uint64_t offset, uint64_t length)
{
    struct edu_attach attach = {
        .fd = kmod_export_part(dev, region, what, offset, length)
    };

    if ((attach.fd < 0) || (ioctl(edu, EDU_IOC_ATTACH, &attach) != 0)) {
        kmod_bail("attaching a part");
    }
    close(attach.fd);
    return attach.slot;
}

/* The word that the device finds, or puts, at an offset of what is attached */
static uint32_t part_word(int edu, uint32_t slot, uint64_t offset,
                          const uint32_t *put)
{
    uint32_t word = (put == NULL) ? 0 : *put;
    struct edu_dma dma = {
        .slot   = slot,
        .write  = put != NULL,
        .offset = offset,
        .data   = (uintptr_t)&word,
        .length = sizeof(word)
    };

    if (ioctl(edu, EDU_IOC_DMA, &dma) != 0) {
        kmod_bail("DMA in a part");
    }
    return word;
}

/* Two parts of a region, of which each has its own pages and no others */
static void test_parts(int dev, int edu)
{
    const uint64_t length = 4 * KMOD_SLICE;
    char *memory          = kmod_map(length);
    int region            = kmod_create(dev, memory, length, 0);
    char *edge            = memory + 2 * KMOD_SLICE;
    uint32_t first, second, write;
    uint64_t bytes;

    madvise(memory, length, MADV_NOHUGEPAGE);
    kmod_fill(edge - KMOD_PAGE, KMOD_PAGE, edu_words[0]);
    kmod_fill(edge, KMOD_PAGE, edu_words[1]);
    if (kmod_fault(dev, region, edge - KMOD_PAGE, 2 * KMOD_PAGE,
                   NPRDMA_FAULT_WRITE, NULL) != 0) {
        kmod_bail("fault-in at the border of two parts");
    }
    bytes  = kmod_counters(dev).kernel_bytes;
    first  = part_attach(edu, dev, region, NPRDMA_EXPORT_READ, 0,
                         2 * KMOD_SLICE);
    bytes  = kmod_counters(dev).kernel_bytes - bytes;
    second = part_attach(edu, dev, region, NPRDMA_EXPORT_READ, 2 * KMOD_SLICE,
                         2 * KMOD_SLICE);
    write  = part_attach(edu, dev, region, NPRDMA_EXPORT_WRITE, 2 * KMOD_SLICE,
                         KMOD_SLICE);
    TAP_CHECK(bytes < length / KMOD_PAGE * 8,
              "a part costs what it has (%lu bytes)", bytes);
    TAP_CHECK((part_word(edu, first, 2 * KMOD_SLICE - KMOD_PAGE, NULL) ==
               edu_words[0]) &&
              (part_word(edu, second, 0, NULL) == edu_words[1]),
              "pages that were mapped are in the part that has them");
    TAP_CHECK((part_word(edu, first, 0, NULL) == NPRDMA_SIGNATURE) &&
              (part_word(edu, second, 2 * KMOD_SLICE - KMOD_PAGE, NULL) ==
               NPRDMA_SIGNATURE), "and in no other place");
    kmod_range(dev, NPRDMA_IOC_INVALIDATE, region, edge - KMOD_PAGE,
               2 * KMOD_PAGE, 0);
    part_word(edu, write, 0, &edu_words[2]);
    TAP_CHECK((part_word(edu, first, 2 * KMOD_SLICE - KMOD_PAGE, NULL) ==
               NPRDMA_SIGNATURE) &&
              (part_word(edu, second, 0, NULL) == NPRDMA_SIGNATURE) &&
              (*(uint32_t*)edge == edu_words[1]),
              "both sides of a border are taken at once");
    kmod_fault(dev, region, edge, KMOD_PAGE, NPRDMA_FAULT_WRITE, NULL);
    part_word(edu, write, 0, &edu_words[3]);
    TAP_CHECK((part_word(edu, second, 0, NULL) == edu_words[3]) &&
              (*(uint32_t*)edge == edu_words[3]) &&
              (part_word(edu, first, 2 * KMOD_SLICE - KMOD_PAGE, NULL) ==
               NPRDMA_SIGNATURE), "and given one by one");
    ioctl(edu, EDU_IOC_DETACH, first);
    kmod_fault(dev, region, edge - KMOD_PAGE, KMOD_PAGE, 0, NULL);
    TAP_CHECK(part_word(edu, second, 0, NULL) == edu_words[3],
              "a part goes on without its neighbour");
    ioctl(edu, EDU_IOC_DETACH, second);
    ioctl(edu, EDU_IOC_DETACH, write);
    TAP_CHECK(kmod_counters(dev).attached == 0, "and all of them end");
    kmod_destroy(dev, region);
    munmap(memory, length);
}

/* The bound is one of a page, not of a region: whoever takes it waits for
 * those */
static void test_count_parts(int dev, int edu)
{
    char *memory = kmod_map(2 * KMOD_SLICE);
    int region   = kmod_create(dev, memory, 2 * KMOD_SLICE, 0);
    int fds[2]   = {
        kmod_export_part(dev, region, NPRDMA_EXPORT_READ, 0, KMOD_SLICE),
        kmod_export_part(dev, region, NPRDMA_EXPORT_READ, KMOD_SLICE,
                         KMOD_SLICE)
    };
    struct edu_attach attach = {.fd = fds[0]};
    unsigned i;
    int others;

    for (i = 0; i < WINDOWS_MAX; ++i) {
        if (ioctl(edu, EDU_IOC_ATTACH, &attach) != 0) {
            kmod_bail("attaching a part often");
        }
    }
    attach.fd = fds[1];
    others    = ioctl(edu, EDU_IOC_ATTACH, &attach) == 0;
    attach.fd = kmod_export(dev, region, NPRDMA_EXPORT_WRITE);
    TAP_CHECK(others && (ioctl(edu, EDU_IOC_ATTACH, &attach) != 0) &&
              (errno == EDQUOT), "no page is attached more often than that");
    close(attach.fd);
    for (i = 0; i < EDU_SLOTS_ALL; ++i) {
        ioctl(edu, EDU_IOC_DETACH, i);
    }
    close(fds[0]);
    close(fds[1]);
    kmod_destroy(dev, region);
    munmap(memory, 2 * KMOD_SLICE);
}

static void fail_set(const char *name, unsigned value)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), FAIL_PARAMETERS "%s", name);
    file = fopen(path, "w");
    if ((file == NULL) || (fprintf(file, "%u", value) < 0) ||
        (fclose(file) != 0)) {
        kmod_bail(path);
    }
}

/* Each chunk of a window may lack memory; then there is none, and the next
 * attempt goes on as if nothing had been */
static void test_fill_fails(int dev, int edu, char *memory, const char *how,
                            unsigned maps)
{
    int region = kmod_create(dev, memory, FAIL_LENGTH, 0);
    struct edu_attach attach = {
        .fd = kmod_export(dev, region, NPRDMA_EXPORT_WRITE)
    };
    unsigned nth, refused = 0;

    for (nth = 1; nth <= FAIL_CHUNKS; ++nth) {
        fail_set("fill", nth);
        fail_set("map_count", maps);
        fail_set("map", maps > 0);
        refused += (ioctl(edu, EDU_IOC_ATTACH, &attach) < 0) &&
                   (errno == ENOMEM) && (kmod_counters(dev).attached == 0);
    }
    fail_set("fill", 0);
    fail_set("map", 0);
    TAP_CHECK(refused == FAIL_CHUNKS,
              "each of %u chunks of a window may lack memory%s", FAIL_CHUNKS,
              how);
    TAP_CHECK(ioctl(edu, EDU_IOC_ATTACH, &attach) == 0,
              "then attaching is tried again");
    ioctl(edu, EDU_IOC_DETACH, attach.slot);
    close(attach.fd);
    kmod_destroy(dev, region);
}

/* One page of many cannot be given, or taken: it has no translation then */
static void test_map_fails(int dev, int edu, char *memory)
{
    const uint64_t length = FAIL_PAGES * KMOD_PAGE;
    unsigned nth, wrong   = 0;
    kmod_region_t region;
    char *page;

    kmod_region_open(&region, dev, memory, FAIL_LENGTH, edu);
    kmod_fill(memory, length, edu_words[0]);
    if (kmod_counters(dev).replace == NPRDMA_REPLACE_ATOMIC) {
        /* Nothing is mapped then */
        kmod_region_close(&region);
        return;
    }
    for (nth = 1; nth <= 2 * FAIL_PAGES; ++nth) {
        page = memory + (nth - 1) % FAIL_PAGES * KMOD_PAGE;
        kmod_range(dev, NPRDMA_IOC_INVALIDATE, region.number, memory, length,
                   0);
        fail_set("map_count", 1);
        fail_set("map", nth);
        wrong += kmod_fault(dev, region.number, memory, length,
                            NPRDMA_FAULT_WRITE, NULL) != 0;
        wrong += kmod_bits(&region, page) != 0;
        wrong += (kmod_in(&region, page, NPRDMA_FAULT_WRITE) != 0) ||
                 (kmod_bits(&region, page) == 0);
    }
    TAP_CHECK(wrong == 0, "each of %u pages may fail to be given",
              2 * FAIL_PAGES);
    page = memory + 3 * KMOD_PAGE;
    fail_set("map_count", 1);
    fail_set("map", 4);
    kmod_range(dev, NPRDMA_IOC_INVALIDATE, region.number, memory, length, 0);
    TAP_CHECK(kmod_counters(dev).gaps == 1,
              "a page that cannot be replaced is in no view");
    TAP_CHECK((kmod_in(&region, page, NPRDMA_FAULT_WRITE) == 0) &&
              (kmod_word(&region, page) == edu_words[0]),
              "until it is brought in again");
    fail_set("map_count", 1);
    fail_set("map", 1);
    kmod_range(dev, NPRDMA_IOC_INVALIDATE, region.number, page, KMOD_PAGE, 0);
    kmod_region_close(&region);
    TAP_CHECK(kmod_counters(dev).gaps == 2, "a window with a gap ends");
}

/* With a module of the tests, where it could be built */
static void test_fails(int dev, int edu)
{
    char *memory = kmod_map(FAIL_LENGTH);

    if (access(FAIL_PARAMETERS, F_OK) != 0) {
        printf("ok %u - mappings that fail # SKIP no nprdma_fail.ko here\n",
               ++tap_count);
        return;
    }
    madvise(memory, FAIL_LENGTH, MADV_NOHUGEPAGE);
    test_fill_fails(dev, edu, memory, "", 0);
    test_fill_fails(dev, edu, memory, ", and the way back too", 1000000);
    test_map_fails(dev, edu, memory);
    munmap(memory, FAIL_LENGTH);
}

void edu_windows(int dev, int edu)
{
    test_fails(dev, edu);
    test_charge(dev, edu);
    test_count(dev, edu);
    test_parts(dev, edu);
    test_count_parts(dev, edu);
}
