/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RDMA on memory that nobody pins: nprdma.ko's views as memory regions of an
 * RNIC, while the kernel takes pages. Prints TAP. What arrives is looked for
 * in memory itself.
 */

#define _GNU_SOURCE
#include "pair.h"

#include "nprdma/dev/verbs/dmabuf.h"
#include "../kmod/kmod.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define PAGES  64
#define BYTES  (PAGES * KMOD_PAGE)
#define WORDS  (BYTES / sizeof(uint32_t))
#define ROUNDS 200 /* reads of everything while pages come and go */

#define ACCESS_ALL \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static np_nic_t *nic;
static pair_t pair;
static kmod_region_t region;
static uint32_t *memory, *local;
static struct ibv_mr *read_mr, *write_mr, *table_mr, *local_mr;

/* Words of the region are named by their number */
static pair_mem_t here(size_t word)
{
    return (pair_mem_t){(uintptr_t)(local + word), local_mr->lkey};
}

static pair_mem_t there(struct ibv_mr *mr, size_t word)
{
    return (pair_mem_t){(uintptr_t)(memory + word), mr->rkey};
}

static size_t page(unsigned number)
{
    return number * KMOD_PAGE / sizeof(uint32_t);
}

static uint32_t pattern(uint32_t seed, size_t word)
{
    return (seed << 24) + word;
}

static void fill(uint32_t *words, uint32_t seed, size_t from, size_t to)
{
    size_t i;

    for (i = from; i < to; ++i) {
        words[i] = pattern(seed, i);
    }
}

static int is_pattern(const uint32_t *words, uint32_t seed, size_t from,
                      size_t to)
{
    size_t i;

    for (i = from; i < to; ++i) {
        if (words[i] != pattern(seed, i)) {
            printf("# word %zu is %#x, wanted %#x\n", i, words[i],
                   pattern(seed, i));
            return 0;
        }
    }
    return 1;
}

static int is_word(const uint32_t *words, uint32_t word, size_t from,
                   size_t to)
{
    size_t i;

    for (i = from; i < to; ++i) {
        if (words[i] != word) {
            printf("# word %zu is %#x, wanted %#x\n", i, words[i], word);
            return 0;
        }
    }
    return 1;
}

static int rdma_read(size_t from, size_t to)
{
    memset(local + from, 0, (to - from) * sizeof(*local));
    return pair_read(&pair, here(from), there(read_mr, from),
                     (to - from) * sizeof(*local)) == IBV_WC_SUCCESS;
}

static int rdma_write(uint32_t seed, size_t from, size_t to)
{
    fill(local, seed, from, to);
    return pair_write(&pair, here(from), there(write_mr, from),
                      (to - from) * sizeof(*local)) == IBV_WC_SUCCESS;
}

static int reads_signature(size_t from, size_t to)
{
    return rdma_read(from, to) && is_word(local, NPRDMA_SIGNATURE, from, to);
}

static int reads_pattern(uint32_t seed, size_t from, size_t to)
{
    return rdma_read(from, to) && is_pattern(local, seed, from, to);
}

static int fault(size_t from, size_t to, uint32_t flags)
{
    return kmod_fault(region.dev, region.number, memory + from,
                      (to - from) * sizeof(*memory), flags, NULL) == 0;
}

static int advise(size_t from, size_t to, int advice)
{
    return madvise(memory + from, (to - from) * sizeof(*memory), advice) == 0;
}

/* Of all pages, as an RNIC reads them and as we do */
static int table_says(uint32_t bits)
{
    const size_t len = PAGES * sizeof(uint32_t);
    unsigned i;

    memset(local, 0xff, len);
    if (pair_read(&pair, here(0), (pair_mem_t){0, table_mr->rkey}, len) !=
        IBV_WC_SUCCESS) {
        return 0;
    }

    for (i = 0; i < PAGES; ++i) {
        if ((local[i] != region.table[i]) ||
            ((local[i] & (NPRDMA_ENTRY_STEP - 1)) != bits)) {
            printf("# entry %u is %#x, as an RNIC reads it %#x\n", i,
                   region.table[i], local[i]);
            return 0;
        }
    }
    return 1;
}

static void test_fault(void)
{
    uint64_t *old = (void*)local, *word = (void*)memory;

    TAP_CHECK(table_says(0), "an RNIC reads in the table that all is absent");
    TAP_CHECK(reads_signature(0, WORDS), "it reads the signature everywhere");
    TAP_CHECK(rdma_write(1, 0, WORDS) && is_word(memory, 0, 0, WORDS),
              "what it writes vanishes");
    TAP_CHECK(fault(0, WORDS, NPRDMA_FAULT_WRITE) &&
              table_says(NPRDMA_ENTRY_READ | NPRDMA_ENTRY_WRITE),
              "after fault-in the table says so");
    TAP_CHECK(rdma_read(0, WORDS) && is_word(local, 0, 0, WORDS),
              "it reads what is there");
    TAP_CHECK(rdma_write(2, 0, WORDS) && is_pattern(memory, 2, 0, WORDS),
              "what it writes lands");
    TAP_CHECK(reads_pattern(2, 3, WORDS - 5), "and is read");

    *word = 40;
    TAP_CHECK((pair_add(&pair, here(0), there(write_mr, 0), 2) ==
               IBV_WC_SUCCESS) && (*old == 40) && (*word == 42),
              "atomics count");
    fill(memory, 2, 0, 2);
}

static void test_taken(void)
{
    const size_t a = page(8), b = page(24);

    /* What an RNIC wrote must survive on swap: nobody else marks it dirty */
    TAP_CHECK(rdma_write(3, a, b) && advise(a, b, MADV_PAGEOUT) &&
              reads_signature(a, b), "pages that are swapped out are absent");
    TAP_CHECK(rdma_write(4, a, b) && is_pattern(memory, 3, a, b),
              "and keep what was written before, not after");
    TAP_CHECK(advise(a, b, MADV_PAGEOUT) &&
              fault(a, b, NPRDMA_FAULT_WRITE) && reads_pattern(3, a, b) &&
              rdma_write(5, a, b) && is_pattern(memory, 5, a, b),
              "fault-in brings them back");
    TAP_CHECK(reads_pattern(2, page(1), a) && reads_pattern(2, b, WORDS),
              "others were there all the time");
    TAP_CHECK(advise(a, b, MADV_DONTNEED) && reads_signature(a, b) &&
              fault(a, b, 0) && rdma_read(a, b) && is_word(local, 0, a, b),
              "pages that were given up come back empty");
    TAP_CHECK(rdma_write(6, a, b) && is_word(memory, 0, a, b),
              "where they were only read, nothing can be written");
    TAP_CHECK(fault(a, b, NPRDMA_FAULT_WRITE) && rdma_write(6, a, b) &&
              is_pattern(memory, 6, a, b), "until they are faulted in for it");
}

static void test_fork(void)
{
    const size_t a = page(30), b = page(34);
    int pipes[2][2], status = -1;
    char byte = 0;
    pid_t pid;

    if ((pipe(pipes[0]) != 0) || (pipe(pipes[1]) != 0)) {
        kmod_bail("pipe");
    }

    fill(memory, 7, a, b);
    (void)fault(a, b, NPRDMA_FAULT_WRITE);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)read(pipes[0][0], &byte, 1);
        _exit(!is_pattern(memory, 7, a, b));
    }

    TAP_CHECK(reads_pattern(7, a, b), "after a fork pages can still be read");
    TAP_CHECK(rdma_write(8, a, b) && is_pattern(memory, 7, a, b),
              "but not be written");
    TAP_CHECK(fault(a, b, NPRDMA_FAULT_WRITE) && rdma_write(8, a, b) &&
              is_pattern(memory, 8, a, b), "until they are copied");
    TAP_CHECK((write(pipes[0][1], &byte, 1) == 1) &&
              (waitpid(pid, &status, 0) == pid) && (status == 0),
              "the child sees none of it");
}

static void test_unmapped(void)
{
    const size_t a = page(40), b = page(44);

    fill(memory, 9, a, b);
    TAP_CHECK(fault(a, b, NPRDMA_FAULT_WRITE) && reads_pattern(9, a, b) &&
              (munmap(memory + a, (b - a) * sizeof(*memory)) == 0) &&
              reads_signature(a, b), "what is unmapped is absent");
    TAP_CHECK(rdma_write(10, a, b), "writes to nowhere vanish");
    TAP_CHECK((mmap(memory + a, (b - a) * sizeof(*memory),
                    PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
               memory + a) && is_word(memory, 0, a, b) &&
              fault(a, b, NPRDMA_FAULT_WRITE) && rdma_write(11, a, b) &&
              is_pattern(memory, 11, a, b),
              "what is mapped there later is reached");
}

/* Two pages that are next to each other exchange their frames, as what was
 * freed last is used first: who still reads an old one gets words of the
 * other */
static void exchange(size_t a)
{
    size_t b = a + page(1), c = b + page(1);

    advise(a, c, MADV_DONTNEED);
    fill(memory, 12, a, b);
    fill(memory, 12, b, c);
    fault(a, c, 0);
}

/* Takes pages and brings them back, as long as there is somebody who reads */
static void *churn(void *arg)
{
    _Atomic int *stop = arg;
    unsigned seed     = 1;
    size_t a, b;

    while (!*stop) {
        seed = seed * 1103515245 + 12345;
        a    = page((seed >> 16) % (PAGES - 1));
        if ((seed >> 5) & 3) {
            exchange(a);
            continue;
        }

        b = a + page(1 + (seed >> 8) % 8);
        b = (b > WORDS) ? WORDS : b;
        advise(a, b, MADV_PAGEOUT);
        fault(a, b, ((seed >> 4) & 1) ? NPRDMA_FAULT_WRITE : 0);
    }
    return NULL;
}

static void test_churn(void)
{
    unsigned round, aborted = 0, wrong = 0;
    size_t absent = 0, i;
    _Atomic int stop = 0;
    pthread_t thread;

    fill(memory, 12, 0, WORDS);
    if (pthread_create(&thread, NULL, churn, &stop) != 0) {
        kmod_bail("pthread_create");
    }

    for (round = 0; round < ROUNDS; ++round) {
        if (!rdma_read(0, WORDS)) {
            /* A page that was being replaced had no translation */
            ++aborted;
            pair_close(&pair);
            pair_open(&pair, nic);
            continue;
        }

        for (i = 0; i < WORDS; ++i) {
            absent += local[i] == NPRDMA_SIGNATURE;
            /* 0: until it is filled */
            wrong  += (local[i] != NPRDMA_SIGNATURE) && (local[i] != 0) &&
                      (local[i] != pattern(12, i));
        }
    }
    stop = 1;
    pthread_join(thread, NULL);
    printf("# %u reads, %zu of %lu words were absent, %u were aborted\n",
           ROUNDS, absent, ROUNDS * WORDS, aborted);
    TAP_CHECK(wrong == 0, "no other word is ever read");
    TAP_CHECK((absent > 0) && (absent < ROUNDS * WORDS),
              "pages did come and go");
    TAP_CHECK((aborted == 0) || (kmod_counters(region.dev).replace ==
                                 NPRDMA_REPLACE_GAP),
              "no read is aborted where translations are replaced at once");
    TAP_CHECK(fault(0, WORDS, NPRDMA_FAULT_WRITE) &&
              reads_pattern(12, 0, WORDS) &&
              is_pattern(memory, 12, 0, WORDS), "all is there in the end");
}

static struct ibv_mr *reg(int fd, size_t len, uint64_t iova, int access)
{
    struct ibv_mr *mr = NULL;

    if (np_nic_reg_dmabuf(nic, fd, 0, len, iova, access, &mr) != UCS_OK) {
        printf("Bail out! a view cannot be registered\n");
        exit(1);
    }
    return mr;
}

static void set_up(const char *device)
{
    int dev = kmod_open();

    if (dev < 0) {
        printf("1..0 # SKIP no %s\n", NPRDMA_DEVICE);
        exit(0);
    }
    if (np_nic_open(device, -1, &nic) != UCS_OK) {
        printf("1..0 # SKIP no RNIC\n");
        exit(0);
    }

    memory = kmod_map(BYTES);
    local  = kmod_map(BYTES);
    madvise(memory, BYTES, MADV_NOHUGEPAGE);
    kmod_region_open(&region, dev, memory, BYTES, -1);
    read_mr  = reg(region.read_fd, BYTES, (uintptr_t)memory,
                   IBV_ACCESS_REMOTE_READ);
    write_mr = reg(region.write_fd, BYTES, (uintptr_t)memory, ACCESS_ALL);
    table_mr = reg(region.table_fd, KMOD_PAGE, 0, IBV_ACCESS_REMOTE_READ);
    if (np_nic_reg(nic, local, BYTES, ACCESS_ALL, &local_mr) != UCS_OK) {
        printf("Bail out! no ordinary region\n");
        exit(1);
    }
    pair_open(&pair, nic);
}

int main(int argc, char **argv)
{
    set_up((argc > 1) ? argv[1] : "rxe0:1");
    test_fault();
    test_taken();
    test_fork();
    test_unmapped();
    test_churn();
    return kmod_done();
}
