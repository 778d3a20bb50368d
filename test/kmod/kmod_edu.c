/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a device sees of memory that comes and goes: each event is checked by
 * DMA of QEMU's edu device, which goes through the emulated IOMMU, and at the
 * memory itself.
 */

#include "kmod_edu.h"

#include <stdlib.h>
#include <sys/mman.h>

#define MANY 1000u

const uint32_t edu_words[EDU_WORDS] = {
    0x11223344, 0x55667788, 0x99aabbcc, 0xddeeff01
};

void edu_arrive(kmod_region_t *region, void *page, uint32_t word,
                uint32_t flags)
{
    kmod_fill(page, KMOD_PAGE, word);
    if (kmod_in(region, page, flags) != 0) {
        kmod_bail("fault-in");
    }
}

int edu_gone(kmod_region_t *region, const void *page, uint32_t entry)
{
    uint32_t now = kmod_entry(region, page);

    if ((kmod_bits(region, page) != 0) || (now == entry)) {
        printf("# entry %#x, was %#x\n", now, entry);
        return 0;
    }
    return kmod_word(region, page) == NPRDMA_SIGNATURE;
}

static void test_absent(kmod_region_t *region, char *page)
{
    TAP_CHECK(kmod_word(region, page) == NPRDMA_SIGNATURE,
              "what was never there reads as the signature");
    edu_arrive(region, page, edu_words[0], 0);
    TAP_CHECK(kmod_bits(region, page) == NPRDMA_ENTRY_READ,
              "after fault-in to read, its entry says just that");
    TAP_CHECK(kmod_word(region, page) == edu_words[0],
              "after fault-in a device reads the page");
    TAP_CHECK(kmod_word(region, page + KMOD_PAGE) == NPRDMA_SIGNATURE,
              "its neighbour is still absent");
}

static void test_write(kmod_region_t *region, char *page)
{
    uint32_t *word = (uint32_t*)page;

    kmod_fill(page, KMOD_PAGE, edu_words[0]);
    kmod_put(region, page, edu_words[1]);
    TAP_CHECK(*word == edu_words[0], "a write to an absent page vanishes");
    TAP_CHECK(kmod_word(region, page) == NPRDMA_SIGNATURE,
              "and is not seen in the read view");
    kmod_in(region, page, 0);
    kmod_put(region, page, edu_words[1]);
    TAP_CHECK((*word == edu_words[0]) &&
              (kmod_word(region, page) == edu_words[0]),
              "a write to a page that may only be read vanishes");
    TAP_CHECK((kmod_in(region, page, NPRDMA_FAULT_WRITE) == 0) &&
              (kmod_bits(region, page) ==
               (NPRDMA_ENTRY_READ | NPRDMA_ENTRY_WRITE)),
              "it becomes writable as well");
    /* The device has just gone the way to the black hole */
    kmod_put(region, page, edu_words[2]);
    TAP_CHECK(*word == edu_words[2],
              "written while absent, brought in, written again: it lands");
    TAP_CHECK(kmod_word(region, page) == edu_words[2],
              "the read view shows what was written");
}

static void test_intrude(kmod_region_t *region, char *page)
{
    uint32_t words[4] = {
        edu_words[3], edu_words[3], edu_words[3], edu_words[3]
    };

    kmod_dma_intrude(region, page, words, sizeof(words));
    TAP_CHECK(kmod_word(region, page) == NPRDMA_SIGNATURE,
              "the signature cannot be written through the read view");
    edu_arrive(region, page, edu_words[0], NPRDMA_FAULT_WRITE);
    kmod_dma_intrude(region, page, words, sizeof(words));
    TAP_CHECK((*(uint32_t*)page == edu_words[0]) &&
              (kmod_word(region, page) == edu_words[0]),
              "nor can a page");
}

static void test_window_late(kmod_region_t *region, char *page)
{
    kmod_region_t late = *region;
    struct edu_attach attach = {.fd = region->read_fd};

    edu_arrive(region, page, edu_words[1], 0);
    if (edu_attach(region, &attach) != 0) {
        kmod_bail("second attachment");
    }
    late.read_slot = attach.slot;
    TAP_CHECK(kmod_word(&late, page) == edu_words[1],
              "who attaches later sees what is mapped");
    madvise(page, KMOD_PAGE, MADV_DONTNEED);
    TAP_CHECK((kmod_word(&late, page) == NPRDMA_SIGNATURE) &&
              (kmod_word(region, page) == NPRDMA_SIGNATURE),
              "all who are attached see it go");
    kmod_in(region, page, 0);
    TAP_CHECK((kmod_word(&late, page) == 0) && (kmod_word(region, page) == 0),
              "and come");
    edu_detach(region, attach.slot);
    TAP_CHECK(kmod_word(region, page) == 0,
              "the other stays when one is detached");
}

/* The whole of it, page by page, in all kinds of order */
static void test_ioctls(kmod_region_t *region, char *page)
{
    uint32_t entry;

    edu_arrive(region, page, edu_words[0], NPRDMA_FAULT_WRITE);
    entry = kmod_entry(region, page);
    TAP_CHECK(kmod_range(region->dev, NPRDMA_IOC_INVALIDATE, region->number,
                         page, KMOD_PAGE, 0) == 0, "INVALIDATE");
    TAP_CHECK(edu_gone(region, page, entry), "and the page is gone");
    TAP_CHECK((kmod_in(region, page, 0) == 0) &&
              (kmod_word(region, page) == edu_words[0]),
              "until it is brought in again");
    entry = kmod_entry(region, page);
    TAP_CHECK(kmod_range(region->dev, NPRDMA_IOC_SWAP_OUT, region->number,
                         page, KMOD_PAGE, 0) == 0, "SWAP_OUT");
    TAP_CHECK(edu_gone(region, page, entry), "and the page is gone");
    TAP_CHECK((kmod_in(region, page, 0) == -EBUSY) &&
              (kmod_word(region, page) == NPRDMA_SIGNATURE),
              "fault-in refuses it");
    kmod_fill(page, KMOD_PAGE, edu_words[1]);
    TAP_CHECK(kmod_range(region->dev, NPRDMA_IOC_SWAP_IN, region->number, page,
                         KMOD_PAGE, NPRDMA_RANGE_WRITE) == 0, "SWAP_IN");
    TAP_CHECK(kmod_word(region, page) == edu_words[1],
              "and the page is there, as it is now");
    kmod_put(region, page, edu_words[2]);
    TAP_CHECK(*(uint32_t*)page == edu_words[2], "and takes writes");
    kmod_range(region->dev, NPRDMA_IOC_SWAP_OUT, region->number, page,
               KMOD_PAGE, 0);
    TAP_CHECK((kmod_range(region->dev, NPRDMA_IOC_SWAP_IN, region->number, page,
                          KMOD_PAGE, NPRDMA_RANGE_LAZY) == 0) &&
              (kmod_word(region, page) == NPRDMA_SIGNATURE),
              "SWAP_IN that is lazy maps nothing");
    TAP_CHECK((kmod_in(region, page, 0) == 0) &&
              (kmod_word(region, page) == edu_words[2]),
              "but lets fault-in do it");
}

static void test_destroy(int dev, int edu, char *page)
{
    kmod_region_t region;

    kmod_region_open(&region, dev, page, KMOD_SLICE, edu);
    edu_arrive(&region, page, edu_words[0], NPRDMA_FAULT_WRITE);
    TAP_CHECK(kmod_word(&region, page) == edu_words[0],
              "a device reads a region");
    kmod_destroy(dev, region.number);
    TAP_CHECK((kmod_bits(&region, page) == 0) &&
              (kmod_word(&region, page) == NPRDMA_SIGNATURE),
              "its views outlive the region, all absent");
    kmod_put(&region, page, edu_words[1]);
    TAP_CHECK(*(uint32_t*)page == edu_words[0], "and writes vanish");
    edu_detach(&region, region.read_slot);
    edu_detach(&region, region.write_slot);
    close(region.read_fd);
    close(region.write_fd);
    close(region.table_fd);
    munmap((void*)region.table, KMOD_SLICE / KMOD_PAGE * 4);
}

/* Addresses are given out from the top: lost ranges would drive them down */
static void test_many(int dev, int edu, char *memory)
{
    struct edu_attach attach = {.fd = -1};
    uint64_t first = 0, lowest = UINT64_MAX;
    unsigned i;
    int number;

    for (i = 0; i < MANY; ++i) {
        number    = kmod_create(dev, memory, KMOD_SLICE, 0);
        attach.fd = kmod_export(dev, number, NPRDMA_EXPORT_WRITE);
        if ((number < 0) || (kmod_fault(dev, number, memory, KMOD_PAGE,
                                        NPRDMA_FAULT_WRITE, NULL) != 0) ||
            (ioctl(edu, EDU_IOC_ATTACH, &attach) != 0)) {
            kmod_bail("one of many attachments");
        }
        first  = (first == 0) ? attach.iova : first;
        lowest = (attach.iova < lowest) ? attach.iova : lowest;
        if (i % 2 == 0) {
            kmod_destroy(dev, number);
        }
        ioctl(edu, EDU_IOC_DETACH, attach.slot);
        if (i % 2 != 0) {
            kmod_destroy(dev, number);
        }
        close(attach.fd);
    }
    TAP_CHECK(lowest + MANY / 2 * KMOD_SLICE > first,
              "%u attachments later a device's addresses are where they were",
              MANY);
}

/* The module offers to replace translations by one store where it can */
static void test_replace(int dev)
{
    FILE *file      = fopen("/sys/module/nprdma/parameters/in_place", "r");
    int in_place    = (file != NULL) && (fgetc(file) == 'Y');
    uint32_t wanted = in_place ? NPRDMA_REPLACE_ATOMIC : NPRDMA_REPLACE_GAP;
    int can         = (kmod_info(dev).features & NPRDMA_FEATURE_IN_PLACE) != 0;

    TAP_CHECK(can == (file != NULL), "INFO says whether it can be by one store");
    if (file != NULL) {
        fclose(file);
    }
    TAP_CHECK(kmod_counters(dev).replace == wanted,
              "translations are replaced %s",
              in_place ? "by one store" : "with a moment without one");
}

/* Without an IOMMU that translates */
static int main_refused(int dev, int edu)
{
    char *memory = kmod_map(KMOD_SLICE);
    int number   = kmod_create(dev, memory, KMOD_SLICE, 0);
    struct edu_attach attach;
    uint32_t what;

    for (what = NPRDMA_EXPORT_READ; what <= NPRDMA_EXPORT_TABLE; ++what) {
        attach.fd = kmod_export(dev, number, what);
        TAP_CHECK((attach.fd >= 0) &&
                  (ioctl(edu, EDU_IOC_ATTACH, &attach) < 0) &&
                  (errno == EOPNOTSUPP), "attaching export %u is refused",
                  what);
    }
    TAP_CHECK(kmod_counters(dev).attached == 0, "nothing is attached");
    return kmod_done();
}

int main(int argc, char **argv)
{
    int dev = kmod_open(), edu = kmod_edu_open();
    kmod_region_t region;
    char *memory;

    (void)argv;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if ((dev < 0) || (edu < 0)) {
        kmod_bail("opening " NPRDMA_DEVICE " and " EDU_DEVICE);
    }
    if (argc > 1) {
        return main_refused(dev, edu);
    }
    /* The kernel's huge pages have a scene of their own */
    memory = kmod_map(4 * KMOD_SLICE);
    madvise(memory, 4 * KMOD_SLICE, MADV_NOHUGEPAGE);
    kmod_region_open(&region, dev, memory, 4 * KMOD_SLICE, edu);
    test_replace(dev);
    test_absent(&region, memory);
    test_write(&region, memory + 16 * KMOD_PAGE);
    test_intrude(&region, memory + 32 * KMOD_PAGE);
    test_window_late(&region, memory + 48 * KMOD_PAGE);
    test_ioctls(&region, memory + KMOD_SLICE - KMOD_PAGE);
    edu_events(&region, memory + KMOD_SLICE + 16 * KMOD_PAGE);
    edu_files(&region, memory + 2 * KMOD_SLICE);
    TAP_CHECK(kmod_counters(dev).gaps == 0, "no view has a gap");
    kmod_region_close(&region);
    test_destroy(dev, edu, memory);
    test_many(dev, edu, memory);
    edu_windows(dev, edu);
    edu_hung(edu);
    edu_processes(edu);
    TAP_CHECK((kmod_counters(dev).regions == 0) &&
              (kmod_counters(dev).kernel_bytes == 0),
              "nothing is left");
    return kmod_done();
}
