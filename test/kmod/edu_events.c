/* SPDX-License-Identifier: BSD-3-Clause */
/* Everything that takes anonymous pages, or changes how they are mapped. */

#include "kmod_edu.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

static void scene_dontneed(kmod_region_t *region, char *page)
{
    uint32_t entry;

    edu_arrive(region, page, edu_words[0], NPRDMA_FAULT_WRITE);
    TAP_CHECK(kmod_word(region, page) == edu_words[0], "a page is there");
    entry = kmod_entry(region, page);
    madvise(page, KMOD_PAGE, MADV_DONTNEED);
    TAP_CHECK(edu_gone(region, page, entry), "MADV_DONTNEED takes it");
    kmod_put(region, page, edu_words[1]);
    TAP_CHECK(*(uint32_t*)page == 0, "what is written then, vanishes");
    TAP_CHECK((kmod_in(region, page, NPRDMA_FAULT_WRITE) == 0) &&
              (kmod_word(region, page) == 0), "it comes back as zeroes");
    kmod_put(region, page, edu_words[2]);
    TAP_CHECK(*(uint32_t*)page == edu_words[2], "and takes writes");
}

/* Bit 62 of its pagemap entry */
static int swapped(const void *page)
{
    uint64_t entry = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY);

    if (pread(fd, &entry, sizeof(entry),
              (uintptr_t)page / KMOD_PAGE * sizeof(entry)) !=
        (ssize_t)sizeof(entry)) {
        kmod_bail("pagemap");
    }
    close(fd);
    return (entry >> 62) & 1;
}

/* True as soon as it is on swap. A page may be in some processor's batch, which
 * only that one empties: madvise does for the one it runs on. */
static int page_out(void *page)
{
    unsigned num_cpus = sysconf(_SC_NPROCESSORS_CONF);
    cpu_set_t one, all;
    unsigned tries;

    sched_getaffinity(0, sizeof(all), &all);
    for (tries = 0; (tries < 200) && !swapped(page); ++tries) {
        CPU_ZERO(&one);
        CPU_SET(tries % num_cpus, &one);
        sched_setaffinity(0, sizeof(one), &one);
        madvise(page, KMOD_PAGE, MADV_PAGEOUT);
        if (tries >= num_cpus) {
            usleep(10000);
        }
    }
    sched_setaffinity(0, sizeof(all), &all);
    return swapped(page);
}

static void scene_pageout(kmod_region_t *region, char *page)
{
    uint32_t entry;

    edu_arrive(region, page, edu_words[0], NPRDMA_FAULT_WRITE);
    kmod_put(region, page, edu_words[1]);
    entry = kmod_entry(region, page);
    TAP_CHECK(page_out(page), "MADV_PAGEOUT puts it on swap");
    TAP_CHECK(edu_gone(region, page, entry), "and takes it");
    TAP_CHECK(kmod_fault(region->dev, region->number, page, KMOD_PAGE,
                         NPRDMA_FAULT_NOWAIT, NULL) == -EAGAIN,
              "without waiting it is not brought in");
    TAP_CHECK((kmod_in(region, page, 0) == 0) &&
              (kmod_word(region, page) == edu_words[1]),
              "from swap comes what the device wrote");
    TAP_CHECK(((uint32_t*)page)[15] == edu_words[1],
              "and the processor sees it");
}

/* Of memory that may be freed the kernel keeps what was written: that a device
 * did so, it has from the module alone */
static void scene_free(kmod_region_t *region, char *page)
{
    cpu_set_t one, all;
    unsigned i;

    /* Pages wait in a processor's batch until that one empties it */
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_getaffinity(0, sizeof(all), &all);
    sched_setaffinity(0, sizeof(one), &one);
    kmod_fill(page, KMOD_PAGE, edu_words[0]);
    if (madvise(page, KMOD_PAGE, MADV_FREE) != 0) {
        kmod_bail("MADV_FREE");
    }
    if (kmod_in(region, page, NPRDMA_FAULT_WRITE) != 0) {
        kmod_bail("fault-in");
    }
    kmod_put(region, page, edu_words[1]);
    for (i = 0; i < 20; ++i) {
        madvise(page, KMOD_PAGE, MADV_PAGEOUT);
    }
    sched_setaffinity(0, sizeof(all), &all);
    TAP_CHECK(kmod_bits(region, page) == 0, "a page to be freed is taken");
    TAP_CHECK(((volatile uint32_t*)page)[3] == edu_words[1],
              "what a device wrote there is kept");
}

/* In the child: is a page as it was? */
static pid_t fork_reader(const char *page, uint32_t word, int go)
{
    pid_t pid = fork();
    char byte;

    if (pid != 0) {
        return pid;
    }
    if (read(go, &byte, 1) != 1) {
        _exit(2);
    }
    _exit(*(const volatile uint32_t*)page != word);
}

static void scene_fork(kmod_region_t *region, char *page)
{
    int pipes[2], status = -1;
    uint32_t entry;
    pid_t pid;

    edu_arrive(region, page, edu_words[0], NPRDMA_FAULT_WRITE);
    entry = kmod_entry(region, page);
    if (pipe(pipes) != 0) {
        kmod_bail("pipe");
    }
    pid = fork_reader(page, edu_words[0], pipes[0]);
    TAP_CHECK((kmod_bits(region, page) == NPRDMA_ENTRY_READ) &&
              (kmod_entry(region, page) != entry),
              "fork takes the writable half alone");
    TAP_CHECK(kmod_word(region, page) == edu_words[0], "it can still be read");
    kmod_put(region, page, edu_words[1]);
    TAP_CHECK(*(volatile uint32_t*)page == edu_words[0],
              "a write does not reach what the child sees");
    entry = kmod_entry(region, page);
    kmod_fill(page, KMOD_PAGE, edu_words[2]);
    TAP_CHECK(edu_gone(region, page, entry), "copy-on-write takes the rest");
    kmod_in(region, page, NPRDMA_FAULT_WRITE);
    kmod_put(region, page, edu_words[3]);
    TAP_CHECK(*(volatile uint32_t*)page == edu_words[3],
              "the copy takes writes");
    if (write(pipes[1], "", 1) != 1) {
        kmod_bail("write");
    }
    waitpid(pid, &status, 0);
    TAP_CHECK(status == 0, "the child has its own page as it was");
    close(pipes[0]);
    close(pipes[1]);
}

/* Fault-in to write breaks copy-on-write by itself */
static void scene_fork_fault(kmod_region_t *region, char *page)
{
    int pipes[2], status = -1;
    pid_t pid;

    edu_arrive(region, page, edu_words[0], NPRDMA_FAULT_WRITE);
    if (pipe(pipes) != 0) {
        kmod_bail("pipe");
    }
    pid = fork_reader(page, edu_words[0], pipes[0]);
    TAP_CHECK(kmod_in(region, page, NPRDMA_FAULT_WRITE) == 0,
              "after fork a page is brought in to write");
    kmod_put(region, page, edu_words[1]);
    if (write(pipes[1], "", 1) != 1) {
        kmod_bail("write");
    }
    waitpid(pid, &status, 0);
    TAP_CHECK((status == 0) && (*(uint32_t*)page == edu_words[1]),
              "a write reaches the parent's page and not the child's");
    close(pipes[0]);
    close(pipes[1]);
}

static void scene_mprotect(kmod_region_t *region, char *page)
{
    uint32_t entry;

    edu_arrive(region, page, edu_words[0], NPRDMA_FAULT_WRITE);
    entry = kmod_entry(region, page);
    mprotect(page, KMOD_PAGE, PROT_READ);
    TAP_CHECK((kmod_entry(region, page) != entry) &&
              !(kmod_bits(region, page) & NPRDMA_ENTRY_WRITE),
              "mprotect takes what it forbids");
    kmod_put(region, page, edu_words[1]);
    TAP_CHECK(*(uint32_t*)page == edu_words[0], "a write vanishes");
    TAP_CHECK(kmod_in(region, page, NPRDMA_FAULT_WRITE) == -EACCES,
              "it cannot be brought in to write");
    TAP_CHECK((kmod_in(region, page, 0) == 0) &&
              (kmod_word(region, page) == edu_words[0]),
              "but to read");
    entry = kmod_entry(region, page);
    mprotect(page, KMOD_PAGE, PROT_NONE);
    TAP_CHECK(edu_gone(region, page, entry), "PROT_NONE takes all");
    TAP_CHECK(kmod_in(region, page, 0) < 0, "and nothing brings it in");
    mprotect(page, KMOD_PAGE, PROT_READ | PROT_WRITE);
    kmod_in(region, page, NPRDMA_FAULT_WRITE);
    kmod_put(region, page, edu_words[2]);
    TAP_CHECK(*(uint32_t*)page == edu_words[2],
              "what is allowed again takes writes again");
}

static void scene_mremap(kmod_region_t *region, char *page)
{
    char *other = kmod_map(KMOD_SLICE), *moved;
    uint32_t entry;

    edu_arrive(region, page, edu_words[0], NPRDMA_FAULT_WRITE);
    entry = kmod_entry(region, page);
    moved = mremap(page, KMOD_PAGE, KMOD_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                   other);
    TAP_CHECK((moved == other) && edu_gone(region, page, entry),
              "mremap takes a page from where it was");
    TAP_CHECK(kmod_in(region, page, 0) == -EFAULT,
              "nothing is there to bring in");
    kmod_put(region, page, edu_words[1]);
    TAP_CHECK(*(uint32_t*)moved == edu_words[0],
              "writes do not follow it to where it is");
    mremap(moved, KMOD_PAGE, KMOD_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page);
    TAP_CHECK((kmod_in(region, page, 0) == 0) &&
              (kmod_word(region, page) == edu_words[0]),
              "moved back, it can be had again");
    munmap(other, KMOD_SLICE);
}

static void scene_munmap(kmod_region_t *region, char *page)
{
    uint32_t entry;

    edu_arrive(region, page, edu_words[0], NPRDMA_FAULT_WRITE);
    entry = kmod_entry(region, page);
    munmap(page, KMOD_PAGE);
    TAP_CHECK(edu_gone(region, page, entry), "munmap takes it");
    TAP_CHECK(kmod_in(region, page, 0) == -EFAULT,
              "nothing is there to bring in");
    if (mmap(page, KMOD_PAGE, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page) {
        kmod_bail("mmap");
    }
    kmod_fill(page, KMOD_PAGE, edu_words[1]);
    TAP_CHECK(kmod_word(region, page) == NPRDMA_SIGNATURE,
              "a new mapping is absent at first");
    kmod_in(region, page, NPRDMA_FAULT_WRITE);
    TAP_CHECK(kmod_word(region, page) == edu_words[1],
              "and is what is brought in");
}

static void scene_zero(kmod_region_t *region, char *page)
{
    uint32_t entry;

    madvise(page, KMOD_PAGE, MADV_DONTNEED);
    TAP_CHECK((kmod_in(region, page, 0) == 0) &&
              (kmod_word(region, page) == 0),
              "untouched memory is brought in as zeroes");
    kmod_put(region, page, edu_words[1]);
    kmod_dma_intrude(region, page, edu_words, sizeof(edu_words));
    TAP_CHECK(*(volatile uint32_t*)page == 0,
              "the zero page takes no writes through either view");
    entry = kmod_entry(region, page);
    kmod_fill(page, KMOD_PAGE, edu_words[0]);
    TAP_CHECK(edu_gone(region, page, entry),
              "the first write of the processor takes the zero page");
    kmod_in(region, page, 0);
    TAP_CHECK(kmod_word(region, page) == edu_words[0],
              "the page in its place is brought in");
}

void edu_events(kmod_region_t *region, char *memory)
{
    scene_dontneed(region, memory);
    scene_pageout(region, memory + 2 * KMOD_PAGE);
    scene_free(region, memory + 3 * KMOD_PAGE);
    scene_fork(region, memory + 6 * KMOD_PAGE);
    scene_fork_fault(region, memory + 8 * KMOD_PAGE);
    scene_mprotect(region, memory + 10 * KMOD_PAGE);
    scene_mremap(region, memory + 12 * KMOD_PAGE);
    scene_munmap(region, memory + 14 * KMOD_PAGE);
    scene_zero(region, memory + 16 * KMOD_PAGE);
}
