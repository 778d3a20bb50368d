/* SPDX-License-Identifier: BSD-3-Clause */
/* The user mapper: what it maps, what it refuses, and what it notices. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tap.h"

#include "nprdma/mem/mapper.h"
#include "nprdma/mem/span.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Nothing is there, and an arena and a piece begin; ThreadSanitizer allows but
 * few addresses */
#ifdef __SANITIZE_THREAD__
#  define BORDER   UINT64_C(0x4000000000)
#else
#  define BORDER   UINT64_C(0x200000000000)
#endif

#define YIELDS     1000000

static _Atomic unsigned mapper_flushes;


static void mapper_flush(UCS_V_UNUSED uint64_t va,
                         UCS_V_UNUSED uint64_t len)
{
    ++mapper_flushes;
}

/* How many flushes there were since the last call */
static unsigned mapper_take_flushes(void)
{
    return atomic_exchange(&mapper_flushes, 0);
}

/* As peers see it; UINT32_MAX if it is not the same for ourselves */
static uint32_t mapper_entry(const void *va)
{
    np_table_t *table = np_table_find((uintptr_t)va >> NP_ARENA_SHIFT);
    uint32_t own      = NP_ENTRY_OWN(NP_ENTRY_BITS), entry;

    entry = (table == NULL) ? 0 :
            atomic_load(&table->entries[np_page_index((uintptr_t)va)]);
    return ((entry & own) == NP_ENTRY_OWN(entry & NP_ENTRY_BITS)) ?
           (entry & ~own) : UINT32_MAX;
}

static uint32_t mapper_bits(const void *va)
{
    return mapper_entry(va) & NP_ENTRY_BITS;
}

/* As mapper_entry */
static uint32_t mapper_view(const void *va)
{
    np_table_t *table = np_table_find((uintptr_t)va >> NP_ARENA_SHIFT);
    uint32_t view;

    view = (table == NULL) ? 0 :
           atomic_load(&table->views[np_page_index((uintptr_t)va)]);
    return (view == NP_VIEW_ALL(view & NP_ENTRY_BITS)) ?
           (view & NP_ENTRY_BITS) : UINT32_MAX;
}

/* Pages of a range whose entry and view are just this */
static unsigned mapper_count(const char *va, unsigned pages, uint32_t bits)
{
    unsigned count = 0, i;

    for (i = 0; i < pages; ++i) {
        count += (mapper_bits(va + (i * NP_PAGE_SIZE)) == bits) &&
                 (mapper_view(va + (i * NP_PAGE_SIZE)) == bits);
    }

    return count;
}

static char *mapper_mmap(unsigned pages, int prot)
{
    return mmap(NULL, pages * NP_PAGE_SIZE, prot, MAP_PRIVATE | MAP_ANONYMOUS,
                -1, 0);
}

static ucs_status_t mapper_fault_in(const void *va, size_t len, int write)
{
    return np_mapper_fault_in((uintptr_t)va, len, write);
}

static int mapper_is_mapped(const void *va, size_t len, int write)
{
    return np_mapper_is_mapped((uintptr_t)va, len, write);
}

static void test_mapper_anonymous(void)
{
    const size_t len = 8 * NP_PAGE_SIZE;
    char *mem        = mapper_mmap(8, PROT_READ | PROT_WRITE);
    uint32_t before;

    mapper_take_flushes();
    TAP_CHECK(!mapper_is_mapped(mem, 1, 0), "new memory is absent");
    TAP_CHECK(mapper_fault_in(mem, len, 0) == UCS_OK, "never touched: read");
    TAP_CHECK(mapper_count(mem, 8, NP_ENTRY_READ) == 8, "mapped for reading");
    TAP_CHECK(mapper_take_flushes() == 1, "with one flush");
    TAP_CHECK(mapper_is_mapped(mem, len, 0) && !mapper_is_mapped(mem, len, 1),
              "and not for writing");
    before = mapper_entry(mem);
    TAP_CHECK((mapper_fault_in(mem, len, 0) == UCS_OK) &&
              (mapper_take_flushes() == 0) && (mapper_entry(mem) == before),
              "again: nothing happens");

    mem[NP_PAGE_SIZE] = 17;
    TAP_CHECK(mapper_fault_in(mem + NP_PAGE_SIZE + 5, NP_PAGE_SIZE, 1) ==
              UCS_OK, "two of them, now for writing");
    TAP_CHECK((mapper_count(mem, 8, NP_ENTRY_BITS) == 2) &&
              (mapper_count(mem, 8, NP_ENTRY_READ) == 6),
              "mapped for both");
    TAP_CHECK((mapper_entry(mem + NP_PAGE_SIZE) - NP_ENTRY_WRITE) ==
              (before + NP_ENTRY_STEP), "an upgrade counts");
    TAP_CHECK((mem[NP_PAGE_SIZE] == 17) && (mem[0] == 0), "data is as it was");
    TAP_CHECK(mapper_fault_in(mem + NP_PAGE_SIZE, 1, 0) == UCS_OK &&
              (mapper_bits(mem + NP_PAGE_SIZE) == NP_ENTRY_BITS),
              "reading takes nothing away");

    mapper_take_flushes();
    np_mapper_protect((uintptr_t)mem, len);
    TAP_CHECK((mapper_count(mem, 8, NP_ENTRY_READ) == 8) &&
              (mapper_take_flushes() == 1), "protect leaves reading");
    np_mapper_protect((uintptr_t)mem, len);
    TAP_CHECK(mapper_take_flushes() == 0, "again: nothing happens");
    before = mapper_entry(mem + 3 * NP_PAGE_SIZE);
    np_mapper_unmap((uintptr_t)mem + 3 * NP_PAGE_SIZE + 7, NP_PAGE_SIZE);
    TAP_CHECK((mapper_count(mem, 8, 0) == 2) &&
              (mapper_count(mem + 3 * NP_PAGE_SIZE, 2, 0) == 2) &&
              (mapper_take_flushes() == 1), "unmap what a range touches");
    TAP_CHECK(mapper_entry(mem + 3 * NP_PAGE_SIZE) ==
              (before - NP_ENTRY_READ + NP_ENTRY_STEP), "which counts");
    np_mapper_unmap((uintptr_t)mem, len);
    TAP_CHECK((mapper_count(mem, 8, 0) == 8) && (mapper_take_flushes() == 1),
              "unmap all");
    before = mapper_entry(mem);
    np_mapper_unmap((uintptr_t)mem, len);
    TAP_CHECK((mapper_take_flushes() == 0) && (mapper_entry(mem) == before),
              "again: nothing happens");
    munmap(mem, len);
}

/* One page among many that are absent */
static void test_mapper_single(void)
{
    char *mem      = mapper_mmap(40, PROT_READ | PROT_WRITE);
    unsigned right = 0, i;

    for (i = 0; i < 40; ++i) {
        mapper_fault_in(mem + (i * NP_PAGE_SIZE), 1, 1);
        right += mapper_count(mem, 40, 0) == 39;
        np_mapper_unmap((uintptr_t)mem, 40 * NP_PAGE_SIZE);
        right += mapper_count(mem, 40, 0) == 40;

        mapper_fault_in(mem + (i * NP_PAGE_SIZE), 1, 1);
        madvise(mem, 40 * NP_PAGE_SIZE, MADV_DONTNEED);
        right += np_mapper_scan((uintptr_t)mem, 40 * NP_PAGE_SIZE) == 1;
    }

    TAP_CHECK(right == 120, "one page alone is found");
    munmap(mem, 40 * NP_PAGE_SIZE);
}

static void test_mapper_lengths(void)
{
    char *mem = mapper_mmap(2, PROT_READ | PROT_WRITE);

    TAP_CHECK((mapper_fault_in(mem, 0, 1) == UCS_OK) &&
              (mapper_bits(mem) == 0), "nothing is mapped of nothing");
    TAP_CHECK(mapper_is_mapped(mem, 0, 1), "nothing is always mapped");
    TAP_CHECK(mapper_fault_in(mem + NP_PAGE_SIZE - 1, 1, 0) == UCS_OK,
              "the last byte of a page");
    TAP_CHECK((mapper_bits(mem) == NP_ENTRY_READ) &&
              (mapper_bits(mem + NP_PAGE_SIZE) == 0), "is that page alone");
    TAP_CHECK(!mapper_is_mapped(mem + NP_PAGE_SIZE - 1, 2, 0),
              "one more byte is in the next");
    np_mapper_unmap((uintptr_t)mem, 0);
    TAP_CHECK(mapper_bits(mem) == NP_ENTRY_READ, "nothing is unmapped of it");
    np_mapper_unmap((uintptr_t)mem, UINT64_C(1) << 47);
    TAP_CHECK(mapper_bits(mem) == 0, "unmapped with all that is above");
    np_mapper_unmap((UINT64_C(1) << 57) - NP_PAGE_SIZE, UINT64_MAX);
    np_mapper_unmap(UINT64_MAX - 5, 10);
    TAP_CHECK(np_mapper_scan((UINT64_C(1) << 57) - NP_PAGE_SIZE, UINT64_MAX) ==
              0, "and what is no memory");

    TAP_CHECK(np_mapper_fault_in(UINT64_MAX - 5, 10, 0) ==
              UCS_ERR_INVALID_ADDR, "a range that wraps");
    TAP_CHECK(np_mapper_fault_in(UINT64_C(0xffff888000000000), 10, 0) ==
              UCS_ERR_INVALID_ADDR, "a kernel address");
    TAP_CHECK(!np_mapper_is_mapped(UINT64_C(0xffff888000000000), 10, 0),
              "which is never mapped");
    munmap(mem, 2 * NP_PAGE_SIZE);
}

static void test_mapper_wrap(void)
{
    char *mem         = mapper_mmap(1, PROT_READ | PROT_WRITE);
    np_table_t *table = np_table_get((uintptr_t)mem >> NP_ARENA_SHIFT);

    atomic_store(&table->entries[np_page_index((uintptr_t)mem)],
                 ~(uint32_t)(NP_ENTRY_BITS | NP_ENTRY_OWN(NP_ENTRY_BITS)));
    TAP_CHECK((mapper_fault_in(mem, 1, 1) == UCS_OK) &&
              (mapper_entry(mem) == NP_ENTRY_BITS), "the count wraps alone");
    atomic_store(&table->entries[np_page_index((uintptr_t)mem)], UINT32_MAX);
    np_mapper_protect((uintptr_t)mem, 1);
    TAP_CHECK(mapper_entry(mem) == NP_ENTRY_READ, "when bits go, too");
    np_mapper_unmap((uintptr_t)mem, 1);
    munmap(mem, NP_PAGE_SIZE);
}

static void test_mapper_rights(void)
{
    char *mem = mapper_mmap(6, PROT_READ | PROT_WRITE);

    mprotect(mem + 1 * NP_PAGE_SIZE, NP_PAGE_SIZE, PROT_READ);
    mprotect(mem + 3 * NP_PAGE_SIZE, NP_PAGE_SIZE, PROT_NONE);
    munmap(mem + 5 * NP_PAGE_SIZE, NP_PAGE_SIZE);

    TAP_CHECK(mapper_fault_in(mem + 1 * NP_PAGE_SIZE, 1, 1) ==
              UCS_ERR_INVALID_ADDR, "a read-only page: not for writing");
    TAP_CHECK(mapper_bits(mem + 1 * NP_PAGE_SIZE) == 0, "not even a little");
    TAP_CHECK(mapper_fault_in(mem + 1 * NP_PAGE_SIZE, 1, 0) == UCS_OK,
              "but for reading");
    TAP_CHECK(mapper_fault_in(mem + 3 * NP_PAGE_SIZE, 1, 0) ==
              UCS_ERR_INVALID_ADDR, "a page without rights");
    TAP_CHECK(mapper_fault_in(mem + 5 * NP_PAGE_SIZE, 1, 0) ==
              UCS_ERR_INVALID_ADDR, "an address without a mapping: read");
    TAP_CHECK(mapper_fault_in(mem + 5 * NP_PAGE_SIZE, 1, 1) ==
              UCS_ERR_INVALID_ADDR, "an address without a mapping: write");
    TAP_CHECK(mapper_fault_in(mem, 6 * NP_PAGE_SIZE, 0) ==
              UCS_ERR_INVALID_ADDR, "a range with a gap");
    TAP_CHECK((mapper_count(mem, 3, NP_ENTRY_READ) == 3) &&
              (mapper_count(mem + 3 * NP_PAGE_SIZE, 3, 0) == 3),
              "is mapped up to it");
    TAP_CHECK(mapper_fault_in(mem, 3 * NP_PAGE_SIZE, 1) ==
              UCS_ERR_INVALID_ADDR, "for writing");
    TAP_CHECK((mapper_bits(mem) == NP_ENTRY_BITS) &&
              (mapper_bits(mem + NP_PAGE_SIZE) == NP_ENTRY_READ),
              "up to the read-only one");

    np_mapper_unmap((uintptr_t)mem, 6 * NP_PAGE_SIZE);
    munmap(mem, 5 * NP_PAGE_SIZE);
}

static void test_mapper_files(void)
{
    const size_t len = 2 * NP_PAGE_SIZE;
    char *shared, *private, *reader, byte = 0;
    int fd, reader_fd;
    char path[64];

    fd = memfd_create("test", MFD_CLOEXEC);
    TAP_CHECK((fd >= 0) && (ftruncate(fd, NP_PAGE_SIZE) == 0) &&
              (pwrite(fd, "abc", 3, 0) == 3), "a file of one page");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    reader_fd = open(path, O_RDONLY | O_CLOEXEC);
    shared    = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    private   = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    reader    = mmap(NULL, len, PROT_READ, MAP_SHARED, reader_fd, 0);
    TAP_CHECK((shared != MAP_FAILED) && (private != MAP_FAILED) &&
              (reader != MAP_FAILED), "mapped three times");

    TAP_CHECK((mapper_fault_in(shared, 1, 1) == UCS_OK) &&
              (mapper_bits(shared) == NP_ENTRY_BITS), "shared: write");
    TAP_CHECK((mapper_fault_in(private, 1, 0) == UCS_OK) &&
              (mapper_bits(private) == NP_ENTRY_READ), "private: read");
    shared[1] = 'x';
    TAP_CHECK(private[1] == 'x', "which is the file's page still");
    TAP_CHECK((mapper_fault_in(private, 1, 1) == UCS_OK) &&
              (mapper_bits(private) == NP_ENTRY_BITS), "private: write");
    shared[1] = 'y';
    TAP_CHECK((private[1] == 'x') && (private[0] == 'a'),
              "which is a copy of its own");
    TAP_CHECK((mapper_fault_in(reader, 1, 0) == UCS_OK) &&
              (mapper_bits(reader) == NP_ENTRY_READ), "shared, to read: read");
    TAP_CHECK((mapper_fault_in(reader, 1, 1) == UCS_ERR_INVALID_ADDR) &&
              (mapper_bits(reader) == NP_ENTRY_READ),
              "shared, to read: no write");
    TAP_CHECK((pread(fd, &byte, 1, 0) == 1) && (byte == 'a'),
              "the file is as it was");

    TAP_CHECK(mapper_fault_in(shared, len, 0) == UCS_ERR_INVALID_ADDR,
              "a page behind the end of the file: read");
    TAP_CHECK(mapper_fault_in(private + NP_PAGE_SIZE, 1, 1) ==
              UCS_ERR_INVALID_ADDR, "a page behind the end of the file: write");

    TAP_CHECK(np_mapper_scan((uintptr_t)shared, len) == 0, "all is resident");
    TAP_CHECK((ftruncate(fd, 0) == 0) &&
              (np_mapper_scan((uintptr_t)shared, len) == 1) &&
              (mapper_bits(shared) == 0), "the scan sees a file cut off");

    np_mapper_unmap((uintptr_t)private, len);
    np_mapper_unmap((uintptr_t)reader, len);
    munmap(shared, len);
    munmap(private, len);
    munmap(reader, len);
    close(reader_fd);
    close(fd);
}

static void test_mapper_scan(void)
{
    const size_t len = 3000 * NP_PAGE_SIZE; /* in batches */
    char *mem        = mapper_mmap(3000, PROT_READ | PROT_WRITE);

    TAP_CHECK(mapper_fault_in(mem, len, 1) == UCS_OK, "map 3000 pages");
    TAP_CHECK(mapper_count(mem, 3000, NP_ENTRY_BITS) == 3000, "all of them");
    mapper_take_flushes();
    TAP_CHECK((np_mapper_scan((uintptr_t)mem, len) == 0) &&
              (mapper_take_flushes() == 0), "a scan finds them all");

    memset(mem, 5, len);
    madvise(mem + 10 * NP_PAGE_SIZE, 2 * NP_PAGE_SIZE, MADV_DONTNEED);
    madvise(mem + 1020 * NP_PAGE_SIZE, 10 * NP_PAGE_SIZE, MADV_DONTNEED);
    munmap(mem + 2999 * NP_PAGE_SIZE, NP_PAGE_SIZE);
    TAP_CHECK(np_mapper_scan((uintptr_t)mem, len) == 13,
              "a scan misses what was given up");
    TAP_CHECK((mapper_count(mem + 10 * NP_PAGE_SIZE, 2, 0) == 2) &&
              (mapper_count(mem + 1020 * NP_PAGE_SIZE, 10, 0) == 10) &&
              (mapper_count(mem + 2999 * NP_PAGE_SIZE, 1, 0) == 1) &&
              (mapper_count(mem, 3000, NP_ENTRY_BITS) == 2987),
              "which is unmapped, and nothing else");
    TAP_CHECK(mapper_take_flushes() >= 1, "and flushed");
    TAP_CHECK(np_mapper_scan((uintptr_t)mem, len) == 0, "once");
    TAP_CHECK((mapper_fault_in(mem, 20 * NP_PAGE_SIZE, 1) == UCS_OK) &&
              (mapper_count(mem, 20, NP_ENTRY_BITS) == 20) &&
              (mem[10 * NP_PAGE_SIZE] == 0) && (mem[9 * NP_PAGE_SIZE] == 5),
              "the gap comes in anew");

    np_mapper_unmap((uintptr_t)mem, len);
    TAP_CHECK(mapper_count(mem, 3000, 0) == 3000, "unmap 3000 pages");
    munmap(mem, len);
}

static void test_mapper_borders(void)
{
    const uint64_t piece = UINT64_C(16) << 20;
    struct stat before, after;
    char *mem;

    mem = mmap((void*)(BORDER - piece), 2 * piece, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
               MAP_FIXED_NOREPLACE, -1, 0);
    TAP_CHECK(mem == (void*)(BORDER - piece), "memory around a border");
    mem += piece;

    TAP_CHECK(mapper_fault_in(mem - 1, 2, 1) == UCS_OK,
              "two bytes in two arenas");
    TAP_CHECK((mapper_count(mem - NP_PAGE_SIZE, 2, NP_ENTRY_BITS) == 2) &&
              mapper_is_mapped(mem - 1, 2, 1), "both are mapped");
    TAP_CHECK(!mapper_is_mapped(mem - 1, NP_PAGE_SIZE + 2, 1) &&
              !mapper_is_mapped(mem - NP_PAGE_SIZE - 1, 2, 1),
              "and no more than that");
    TAP_CHECK(np_table_find(BORDER >> NP_ARENA_SHIFT) !=
              np_table_find((BORDER >> NP_ARENA_SHIFT) - 1), "in two tables");
    np_mapper_unmap(BORDER - 1, 2);
    TAP_CHECK(mapper_count(mem - NP_PAGE_SIZE, 2, 0) == 2, "unmapped");

    /* batches, pieces and arenas end at different places */
    TAP_CHECK(mapper_fault_in(mem - piece + 3 * NP_PAGE_SIZE,
                              2 * piece - 5 * NP_PAGE_SIZE, 0) == UCS_OK,
              "32 MiB in pieces");
    TAP_CHECK((mapper_count(mem - piece, 8192, NP_ENTRY_READ) == 8192 - 5) &&
              (mapper_count(mem - piece, 3, 0) == 3) &&
              (mapper_count(mem + piece - 2 * NP_PAGE_SIZE, 2, 0) == 2),
              "just these");
    TAP_CHECK(mapper_is_mapped(mem - piece + 3 * NP_PAGE_SIZE,
                               2 * piece - 5 * NP_PAGE_SIZE, 0),
              "all of them");

    /* the rest of the arena costs neither memory nor a look at its entries */
    fstat(np_directory_fd(), &before);
    np_mapper_unmap(BORDER, UINT64_C(1) << 36);
    np_mapper_scan(BORDER, UINT64_C(1) << 36);
    fstat(np_directory_fd(), &after);
    TAP_CHECK((mapper_count(mem, 4096, 0) == 4096) &&
              (mapper_count(mem - 4096, 1, NP_ENTRY_READ) == 1) &&
              (after.st_blocks == before.st_blocks),
              "64 GiB from the border on unmapped: no memory is used for them");

    madvise(mem - piece, 2 * piece, MADV_DONTNEED);
    TAP_CHECK(np_mapper_scan(BORDER - piece, 2 * piece) == 4096 - 3,
              "a scan to the border");
    munmap(mem - piece, 2 * piece);
}

typedef struct mapper_swap {
    unsigned      calls;
    void          *va;
    size_t        len;
    int           write;
    int           result;
    _Atomic int   is_inside;
    _Atomic int   may_leave;
} mapper_swap_t;

static int mapper_swap_in(void *arg, void *va, size_t len, int write)
{
    mapper_swap_t *swap = arg;
    unsigned i;

    ++swap->calls;
    swap->va    = va;
    swap->len   = len;
    swap->write = write;
    atomic_store(&swap->is_inside, 1);
    for (i = 0; (i < YIELDS) && !atomic_load(&swap->may_leave); ++i) {
        sched_yield();
    }

    if (swap->result == 0) {
        mprotect(va, len, PROT_READ | PROT_WRITE);
        memset(va, 0x77, len);
    }
    atomic_store(&swap->is_inside, 0);
    return swap->result;
}

static void test_mapper_swappers(void)
{
    char *mem                = mapper_mmap(16, PROT_READ | PROT_WRITE);
    char *low                = mem + 4 * NP_PAGE_SIZE;
    char *high               = mem + 8 * NP_PAGE_SIZE;
    const size_t len         = 4 * NP_PAGE_SIZE;
    mapper_swap_t swap       = {.may_leave = 1};
    mapper_swap_t other      = {.may_leave = 1, .result = -1};
    np_swapper_t swapper     = {mapper_swap_in, &swap};
    np_swapper_t failing     = {mapper_swap_in, &other};
    const np_swapper_t empty = {NULL, NULL};

    TAP_CHECK(np_mapper_add_swapper((uintptr_t)low, len, &swapper) == UCS_OK,
              "a swapper");
    TAP_CHECK((np_mapper_add_swapper((uintptr_t)low + len - NP_PAGE_SIZE, len,
                                     &swapper) == UCS_ERR_ALREADY_EXISTS) &&
              (np_mapper_add_swapper((uintptr_t)low - NP_PAGE_SIZE,
                                     2 * NP_PAGE_SIZE, &swapper) ==
               UCS_ERR_ALREADY_EXISTS) &&
              (np_mapper_add_swapper((uintptr_t)low + NP_PAGE_SIZE,
                                     NP_PAGE_SIZE, &swapper) ==
               UCS_ERR_ALREADY_EXISTS), "one for each page");
    TAP_CHECK((np_mapper_add_swapper((uintptr_t)high + 1, len, &swapper) ==
               UCS_ERR_INVALID_PARAM) &&
              (np_mapper_add_swapper((uintptr_t)high, len - 1, &swapper) ==
               UCS_ERR_INVALID_PARAM) &&
              (np_mapper_add_swapper((uintptr_t)high, 0, &swapper) ==
               UCS_ERR_INVALID_PARAM) &&
              (np_mapper_add_swapper((uintptr_t)high, len, &empty) ==
               UCS_ERR_INVALID_PARAM), "for whole pages, and with a function");
    TAP_CHECK(np_mapper_add_swapper((uintptr_t)high, len, &failing) == UCS_OK,
              "another one beside it");

    mprotect(low, 2 * len, PROT_NONE);
    TAP_CHECK(mapper_fault_in(low - 3 * NP_PAGE_SIZE, 4 * NP_PAGE_SIZE, 0) ==
              UCS_OK, "plain pages, and one of the swapper");
    TAP_CHECK((swap.calls == 1) && (swap.va == low) &&
              (swap.len == NP_PAGE_SIZE) && !swap.write && (*low == 0x77),
              "it is called for its page");
    TAP_CHECK(mapper_count(mem + NP_PAGE_SIZE, 4, NP_ENTRY_READ) == 4,
              "all are mapped");
    TAP_CHECK((mapper_fault_in(low + 5, 3 * NP_PAGE_SIZE, 0) == UCS_OK) &&
              (swap.calls == 2) && (swap.va == low + NP_PAGE_SIZE) &&
              (swap.len == 3 * NP_PAGE_SIZE), "and not for those mapped");
    TAP_CHECK((mapper_fault_in(low + 3 * NP_PAGE_SIZE, 2 * NP_PAGE_SIZE, 1) ==
               UCS_ERR_INVALID_ADDR) && (swap.calls == 3) && swap.write &&
              (other.calls == 1) && (other.va == high), "one that fails");
    TAP_CHECK((mapper_bits(low + 3 * NP_PAGE_SIZE) == NP_ENTRY_BITS) &&
              (mapper_bits(high) == 0), "what was before it is mapped");

    munmap(mem + NP_PAGE_SIZE, NP_PAGE_SIZE);
    np_mapper_unmap((uintptr_t)mem, 2 * NP_PAGE_SIZE);
    TAP_CHECK((mapper_fault_in(mem, 1, 0) == UCS_OK) && (swap.calls == 3),
              "a page before its range is none of its business");

    TAP_CHECK((np_mapper_remove_swapper((uintptr_t)low, 2 * len) ==
               UCS_ERR_NO_ELEM) &&
              (np_mapper_remove_swapper((uintptr_t)low + NP_PAGE_SIZE,
                                        len - NP_PAGE_SIZE) ==
               UCS_ERR_NO_ELEM), "another range's is not there");
    TAP_CHECK((np_mapper_remove_swapper((uintptr_t)low, len) == UCS_OK) &&
              (np_mapper_remove_swapper((uintptr_t)high, len) == UCS_OK) &&
              (np_mapper_remove_swapper((uintptr_t)low, len) ==
               UCS_ERR_NO_ELEM), "gone");
    np_mapper_unmap((uintptr_t)low, 2 * len);
    TAP_CHECK((mapper_fault_in(low, len, 1) == UCS_OK) && (swap.calls == 3),
              "and not called any more");
    np_mapper_unmap((uintptr_t)mem, 16 * NP_PAGE_SIZE);
    munmap(mem, 16 * NP_PAGE_SIZE);
}

static char *mapper_swap_mem;
static _Atomic int mapper_swap_removed;

static void *mapper_fault_in_thread(void *arg)
{
    mapper_fault_in(mapper_swap_mem, 1, 1);
    return NULL;
}

static void *mapper_remove_thread(void *arg)
{
    np_mapper_remove_swapper((uintptr_t)mapper_swap_mem, NP_PAGE_SIZE);
    atomic_store(&mapper_swap_removed, 1);
    return NULL;
}

static void test_mapper_swapper_removal(void)
{
    mapper_swap_t swap         = {0};
    mapper_swap_t next         = {.may_leave = 1};
    const np_swapper_t swapper = {mapper_swap_in, &swap};
    const np_swapper_t another = {mapper_swap_in, &next};
    pthread_t threads[2];
    unsigned i;

    mapper_swap_mem = mapper_mmap(1, PROT_READ | PROT_WRITE);
    np_mapper_add_swapper((uintptr_t)mapper_swap_mem, NP_PAGE_SIZE, &swapper);
    pthread_create(&threads[0], NULL, mapper_fault_in_thread, NULL);
    for (i = 0; (i < YIELDS) && !atomic_load(&swap.is_inside); ++i) {
        sched_yield();
    }
    TAP_CHECK(atomic_load(&swap.is_inside), "a swapper runs");

    pthread_create(&threads[1], NULL, mapper_remove_thread, NULL);
    /* once it is out of the list its place is free */
    for (i = 0; (i < YIELDS) &&
         (np_mapper_add_swapper((uintptr_t)mapper_swap_mem, NP_PAGE_SIZE,
                                &another) != UCS_OK); ++i) {
        sched_yield();
    }
    TAP_CHECK(i < YIELDS, "it is being removed");
    for (i = 0; (i < 1000) && !atomic_load(&mapper_swap_removed); ++i) {
        sched_yield();
    }
    TAP_CHECK(!atomic_load(&mapper_swap_removed), "which waits while it runs");

    atomic_store(&swap.may_leave, 1);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    TAP_CHECK(atomic_load(&mapper_swap_removed) &&
              (mapper_bits(mapper_swap_mem) == NP_ENTRY_BITS),
              "and ends when it ends");
    np_mapper_remove_swapper((uintptr_t)mapper_swap_mem, NP_PAGE_SIZE);
    np_mapper_unmap((uintptr_t)mapper_swap_mem, NP_PAGE_SIZE);
    munmap(mapper_swap_mem, NP_PAGE_SIZE);
}

static char *mapper_fork_mem;

static int mapper_child_after(void)
{
    np_mapper_after_fork();
    TAP_CHILD_CHECK(!mapper_is_mapped(mapper_fork_mem, 1, 0));
    TAP_CHILD_CHECK(mapper_fault_in(mapper_fork_mem, 1, 1) ==
                    UCS_ERR_EXCEEDS_LIMIT);
    TAP_CHILD_CHECK(mapper_fault_in((void*)BORDER, 1, 1) ==
                    UCS_ERR_EXCEEDS_LIMIT);
    np_mapper_unmap((uintptr_t)mapper_fork_mem, 2 * NP_PAGE_SIZE);
    np_mapper_protect((uintptr_t)mapper_fork_mem, 2 * NP_PAGE_SIZE);
    TAP_CHILD_CHECK(np_mapper_scan((uintptr_t)mapper_fork_mem, NP_PAGE_SIZE) ==
                    0);
    TAP_CHILD_CHECK(mapper_flushes == 0);
    return 0;
}

static int mapper_swap_fork(void *arg, void *va, size_t len, int write)
{
    *(pid_t*)arg = fork();
    return 0;
}

static void test_mapper_fork(void)
{
    pid_t pid;
    const np_swapper_t swapper = {mapper_swap_fork, &pid};
    uint32_t before;
    ucs_status_t status;
    int result = -1;

    mapper_fork_mem = mapper_mmap(2, PROT_READ | PROT_WRITE);
    mapper_fault_in(mapper_fork_mem, NP_PAGE_SIZE, 1);
    before = mapper_entry(mapper_fork_mem);
    mapper_take_flushes();
    TAP_CHECK(tap_child(mapper_child_after), "a child maps and unmaps nothing");
    TAP_CHECK(mapper_entry(mapper_fork_mem) == before,
              "its parent's entries are as they were");

    /* the child comes back into a fault-in that its parent has begun */
    np_mapper_add_swapper((uintptr_t)mapper_fork_mem + NP_PAGE_SIZE,
                          NP_PAGE_SIZE, &swapper);
    fflush(stdout);
    status = mapper_fault_in(mapper_fork_mem + NP_PAGE_SIZE, 1, 1);
    if (pid == 0) {
        _exit((status != UCS_ERR_EXCEEDS_LIMIT) ||
              (np_stripes_busy((uintptr_t)mapper_fork_mem,
                               (uintptr_t)mapper_fork_mem + 2 * NP_PAGE_SIZE,
                               NP_BUSY_MAP) != 0));
    }
    TAP_CHECK((waitpid(pid, &result, 0) == pid) && (result == 0),
              "a swapper that forks: the child's fault-in ends");
    TAP_CHECK((status == UCS_OK) &&
              (mapper_bits(mapper_fork_mem + NP_PAGE_SIZE) == NP_ENTRY_BITS),
              "the parent's maps");
    np_mapper_remove_swapper((uintptr_t)mapper_fork_mem + NP_PAGE_SIZE,
                             NP_PAGE_SIZE);
    np_mapper_unmap((uintptr_t)mapper_fork_mem, 2 * NP_PAGE_SIZE);
    munmap(mapper_fork_mem, 2 * NP_PAGE_SIZE);
}

void test_mapper(void)
{
    np_mapper_set_flush(mapper_flush);
    test_mapper_anonymous();
    test_mapper_single();
    test_mapper_lengths();
    test_mapper_wrap();
    test_mapper_rights();
    test_mapper_files();
    test_mapper_scan();
    test_mapper_borders();
    test_mapper_swappers();
    test_mapper_swapper_removal();
    test_mapper_fork();
    np_mapper_set_flush(NULL);
}
