/* SPDX-License-Identifier: BSD-3-Clause */
/* Mappings of files, and pages of 2 MiB. */

#include "kmod_edu.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE (2ul << 20)

static int file_make(uint32_t word)
{
    uint32_t words[KMOD_PAGE / 4];
    int fd = memfd_create("kmod", MFD_CLOEXEC);

    kmod_fill(words, KMOD_PAGE, word);
    if ((fd < 0) || (write(fd, words, KMOD_PAGE) != (ssize_t)KMOD_PAGE)) {
        kmod_bail("memfd");
    }
    return fd;
}

static uint32_t file_word(int fd)
{
    uint32_t word;

    if (pread(fd, &word, sizeof(word), 0) != (ssize_t)sizeof(word)) {
        kmod_bail("pread");
    }
    return word;
}

static void file_map(char *page, int fd, int prot, int flags)
{
    if (mmap(page, KMOD_PAGE, prot, flags | MAP_FIXED, fd, 0) != page) {
        kmod_bail("mmap of a file");
    }
}

static void scene_file_rdonly(kmod_region_t *region, char *page)
{
    int fd = file_make(edu_words[0]);

    file_map(page, fd, PROT_READ, MAP_SHARED);
    TAP_CHECK((kmod_in(region, page, 0) == 0) &&
              (kmod_word(region, page) == edu_words[0]),
              "a file that may only be read is read");
    TAP_CHECK(kmod_in(region, page, NPRDMA_FAULT_WRITE) == -EACCES,
              "it cannot be brought in to write");
    kmod_put(region, page, edu_words[1]);
    kmod_dma_intrude(region, page, edu_words, sizeof(edu_words));
    TAP_CHECK((file_word(fd) == edu_words[0]) &&
              (kmod_word(region, page) == edu_words[0]),
              "nor written through either view");
    close(fd);
}

static void scene_file_private(kmod_region_t *region, char *page)
{
    int fd = file_make(edu_words[0]);

    file_map(page, fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    TAP_CHECK((kmod_in(region, page, 0) == 0) &&
              (kmod_word(region, page) == edu_words[0]),
              "a private mapping shows the file");
    kmod_put(region, page, edu_words[1]);
    TAP_CHECK(file_word(fd) == edu_words[0], "which takes no writes");
    kmod_in(region, page, NPRDMA_FAULT_WRITE);
    kmod_put(region, page, edu_words[2]);
    TAP_CHECK((*(uint32_t*)page == edu_words[2]) &&
              (file_word(fd) == edu_words[0]),
              "brought in to write, the copy takes them");
    close(fd);
}

static void scene_file_shared(kmod_region_t *region, char *page)
{
    int fd = file_make(edu_words[0]);
    uint32_t entry;

    file_map(page, fd, PROT_READ | PROT_WRITE, MAP_SHARED);
    kmod_in(region, page, NPRDMA_FAULT_WRITE);
    kmod_put(region, page, edu_words[1]);
    TAP_CHECK(file_word(fd) == edu_words[1],
              "what a device writes to a shared mapping is in the file");
    entry = kmod_entry(region, page);
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, KMOD_PAGE);
    TAP_CHECK(edu_gone(region, page, entry), "a hole in the file takes it");
    kmod_put(region, page, edu_words[2]);
    TAP_CHECK(file_word(fd) == 0, "and what is written then, vanishes");
    kmod_in(region, page, NPRDMA_FAULT_WRITE);
    kmod_put(region, page, edu_words[3]);
    TAP_CHECK(file_word(fd) == edu_words[3], "brought in, it takes writes");
    entry = kmod_entry(region, page);
    if (ftruncate(fd, 0) != 0) {
        kmod_bail("ftruncate");
    }
    TAP_CHECK(edu_gone(region, page, entry), "truncation takes it");
    TAP_CHECK(kmod_in(region, page, 0) == -EFAULT,
              "and beyond the end nothing is brought in");
    close(fd);
}

/* How far fault-in comes over a mapping that ends, and one that lacks pages */
static void scene_far(kmod_region_t *region, char *memory)
{
    uint64_t done = 0;
    int ret;

    munmap(memory + 100 * KMOD_PAGE, KMOD_PAGE);
    ret = kmod_fault(region->dev, region->number, memory, 256 * KMOD_PAGE, 0,
                     &done);
    TAP_CHECK((ret == -EFAULT) && (done == 100 * KMOD_PAGE),
              "fault-in tells how far it came");
    mprotect(memory + 50 * KMOD_PAGE, KMOD_PAGE, PROT_READ);
    ret = kmod_fault(region->dev, region->number, memory, 256 * KMOD_PAGE,
                     NPRDMA_FAULT_WRITE, &done);
    TAP_CHECK((ret == -EACCES) && (done == 50 * KMOD_PAGE),
              "and why not further");
    kmod_range(region->dev, NPRDMA_IOC_SWAP_OUT, region->number,
               memory + 37 * KMOD_PAGE, KMOD_PAGE, 0);
    ret = kmod_fault(region->dev, region->number, memory, 256 * KMOD_PAGE,
                     NPRDMA_FAULT_WRITE, &done);
    TAP_CHECK((ret == -EBUSY) && (done == 37 * KMOD_PAGE),
              "also at a page that was swapped out by hand");
}

static void scene_huge(kmod_region_t *region, char *memory)
{
    char *page = memory + 77 * KMOD_PAGE;
    uint64_t done = 0;
    uint32_t entry;

    madvise(memory, HUGE_PAGE, MADV_NOHUGEPAGE);
    kmod_fill(memory, HUGE_PAGE, edu_words[0]);
    TAP_CHECK((kmod_fault(region->dev, region->number, memory, HUGE_PAGE,
                          NPRDMA_FAULT_WRITE, &done) == 0) &&
              (done == HUGE_PAGE) &&
              (kmod_word(region, page) == edu_words[0]),
              "512 pages are brought in");
    entry = kmod_entry(region, page);
    madvise(memory, HUGE_PAGE, MADV_HUGEPAGE);
    if (madvise(memory, HUGE_PAGE, MADV_COLLAPSE) != 0) {
        printf("ok %u - MADV_COLLAPSE # SKIP %s\n", ++tap_count,
               strerror(errno));
        return;
    }
    TAP_CHECK(edu_gone(region, page, entry),
              "to become one huge page they are taken");
    TAP_CHECK((kmod_fault(region->dev, region->number, memory, HUGE_PAGE,
                          NPRDMA_FAULT_WRITE, &done) == 0) &&
              (done == HUGE_PAGE), "which is brought in");
    kmod_put(region, page, edu_words[1]);
    TAP_CHECK((*(uint32_t*)page == edu_words[1]) &&
              (kmod_word(region, page) == edu_words[1]),
              "and is written in its middle");
    entry = kmod_entry(region, page);
    madvise(page, KMOD_PAGE, MADV_DONTNEED);
    TAP_CHECK(edu_gone(region, page, entry), "a page of it is taken");
    kmod_in(region, page - KMOD_PAGE, 0);
    TAP_CHECK(kmod_word(region, page - KMOD_PAGE) == edu_words[0],
              "the others are what they were");
}

static void scene_hugetlb(kmod_region_t *region, char *memory)
{
    uint32_t entry;
    char *page;

    page = mmap(memory, HUGE_PAGE, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED, -1, 0);
    if (page == MAP_FAILED) {
        printf("ok %u - hugetlb # SKIP no huge pages: %s\n", ++tap_count,
               strerror(errno));
        return;
    }
    edu_arrive(region, page, edu_words[0], NPRDMA_FAULT_WRITE);
    kmod_put(region, page, edu_words[1]);
    TAP_CHECK(*(uint32_t*)page == edu_words[1], "hugetlb takes writes");
    entry = kmod_entry(region, page);
    mprotect(page, HUGE_PAGE, PROT_NONE);
    TAP_CHECK(edu_gone(region, page, entry), "PROT_NONE takes it");
    mprotect(page, HUGE_PAGE, PROT_READ | PROT_WRITE);
    kmod_in(region, page, 0);
    entry = kmod_entry(region, page);
    munmap(page, HUGE_PAGE);
    TAP_CHECK(edu_gone(region, page, entry), "munmap takes it");
}

/* To another node, if the kernel pretends that there is one */
static void scene_migrate(kmod_region_t *region, char *page)
{
    void *pages[1] = {page};
    int nodes[1] = {0}, status[1] = {-1}, from, tries;
    uint32_t entry;

    edu_arrive(region, page, edu_words[0], NPRDMA_FAULT_WRITE);
    syscall(SYS_move_pages, 0, 1ul, pages, NULL, status, 0);
    from     = status[0];
    nodes[0] = (from == 0);
    entry    = kmod_entry(region, page);
    for (tries = 0; (tries < 100) && (status[0] != nodes[0]); ++tries) {
        if (syscall(SYS_move_pages, 0, 1ul, pages, nodes, status,
                    MPOL_MF_MOVE) < 0) {
            break;
        }
    }
    if (status[0] != nodes[0]) {
        printf("ok %u - migration # SKIP there is one node\n", ++tap_count);
        return;
    }
    TAP_CHECK(edu_gone(region, page, entry), "migration takes a page");
    kmod_in(region, page, NPRDMA_FAULT_WRITE);
    kmod_put(region, page, edu_words[1]);
    TAP_CHECK(*(uint32_t*)page == edu_words[1],
              "where it went, it takes writes");
}

void edu_files(kmod_region_t *region, char *memory)
{
    scene_file_rdonly(region, memory);
    scene_file_private(region, memory + 2 * KMOD_PAGE);
    scene_file_shared(region, memory + 4 * KMOD_PAGE);
    scene_migrate(region, memory + 6 * KMOD_PAGE);
    scene_far(region, memory + HUGE_PAGE);
    scene_huge(region, memory + 2 * HUGE_PAGE);
    scene_hugetlb(region, memory + 3 * HUGE_PAGE);
}
