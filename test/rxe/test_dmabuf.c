/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory regions on dma-bufs, on a device that reaches them through the IOMMU:
 * a test exporter replaces single translations under them. Prints TAP. What
 * arrives is looked for in memory itself.
 */

#define _GNU_SOURCE
#include "pair.h"

#include "nprdma/dev/verbs/dmabuf.h"
#include "../engine/tap.h"
#include "../../contrib/rxe/dmabuf_pages.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define PAGES   32
#define PAGE    4096ul
#define BYTES   (PAGES * PAGE)

/* Work requests name the views by addresses that have nothing to do with where
 * the memory is */
#define READ_IOVA   0x7000000000ul
#define WRITE_IOVA  0x123456000ul

#define ACCESS_ALL \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

unsigned tap_count, tap_failures;

static np_nic_t *nic;
static pair_t pair;
static int device;                 /* of the exporter */
static int fds[DMABUF_PAGES_VIEWS];
static uint8_t *memory;            /* behind both views */
static struct ibv_mr *read_mr, *write_mr, *local_mr;
static uint8_t *local;             /* of the side that asks */

static pair_mem_t at_local(size_t offset)
{
    return (pair_mem_t){(uintptr_t)local + offset, local_mr->lkey};
}

static pair_mem_t at_read(size_t offset)
{
    return (pair_mem_t){READ_IOVA + offset, read_mr->rkey};
}

static pair_mem_t at_write(size_t offset)
{
    return (pair_mem_t){WRITE_IOVA + offset, write_mr->rkey};
}

static void set(unsigned page, unsigned count, enum dmabuf_pages_state state)
{
    struct dmabuf_pages_set set = {page, count, state};

    if (ioctl(device, DMABUF_PAGES_SET, &set) != 0) {
        printf("Bail out! the exporter does not set pages: %m\n");
        exit(1);
    }
}

/* Never what an absent page reads as, and never 0 */
static uint8_t pattern(unsigned seed, size_t i)
{
    return 1 + ((seed * 41 + i * 7 + i / 256) % 16);
}

static void fill(uint8_t *data, unsigned seed, size_t len)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        data[i] = pattern(seed, i);
    }
}

static int is_pattern(const uint8_t *data, unsigned seed, size_t from,
                      size_t to)
{
    size_t i;

    for (i = from; i < to; ++i) {
        if (data[i] != pattern(seed, i)) {
            printf("# byte %zu is %u, wanted %u\n", i, data[i],
                   pattern(seed, i));
            return 0;
        }
    }
    return 1;
}

static int is_byte(const uint8_t *data, uint8_t byte, size_t from, size_t to)
{
    size_t i;

    for (i = from; i < to; ++i) {
        if (data[i] != byte) {
            printf("# byte %zu is %u, wanted %u\n", i, data[i], byte);
            return 0;
        }
    }
    return 1;
}

static int is_signature(const uint8_t *data, size_t from, size_t to)
{
    static const uint32_t word = DMABUF_PAGES_SIGNATURE;
    size_t i;

    for (i = from; i < to; ++i) {
        if (data[i] != ((const uint8_t*)&word)[i % 4]) {
            printf("# byte %zu is %u: not the signature\n", i, data[i]);
            return 0;
        }
    }
    return 1;
}

/* After an error: both queue pairs are of no use any more */
static void renew(void)
{
    pair_close(&pair);
    pair_open(&pair, nic);
}

/* What a fresh queue pair does with a page that is there */
static int works(void)
{
    renew();
    set(0, 1, DMABUF_PAGES_PRESENT);
    fill(memory, 77, 64);
    memset(local, 0, 64);
    return (pair_read(&pair, at_local(0), at_read(0), 64) == IBV_WC_SUCCESS) &&
           is_pattern(local, 77, 0, 64);
}

static void test_absent(void)
{
    int status;

    memset(local, 0, BYTES);
    status = pair_read(&pair, at_local(0), at_read(0), BYTES);
    TAP_CHECK((status == IBV_WC_SUCCESS) && is_signature(local, 0, BYTES),
              "absent pages read as the signature");

    fill(local, 1, BYTES);
    status = pair_write(&pair, at_local(0), at_write(0), BYTES);
    TAP_CHECK((status == IBV_WC_SUCCESS) && is_byte(memory, 0, 0, BYTES),
              "writes to absent pages vanish");

    set(0, PAGES, DMABUF_PAGES_PRESENT);
    TAP_CHECK(is_byte(memory, 0, 0, BYTES), "nor do they come later");

    status = pair_write(&pair, at_local(0), at_write(0), BYTES);
    TAP_CHECK((status == IBV_WC_SUCCESS) && is_pattern(memory, 1, 0, BYTES),
              "writes to pages that came land");

    memset(local, 0, BYTES);
    status = pair_read(&pair, at_local(0), at_read(0), BYTES);
    TAP_CHECK((status == IBV_WC_SUCCESS) && is_pattern(local, 1, 0, BYTES),
              "and are read");
}

/* From the middle of page 1 to the middle of page 8; 3 and 4 are absent */
static void test_mixed(void)
{
    const size_t begin = PAGE + 100, end = 8 * PAGE + 1001;
    int status;

    fill(memory, 2, BYTES);
    memset(local, 0, BYTES);
    set(3, 2, DMABUF_PAGES_ABSENT);
    status = pair_read(&pair, at_local(begin), at_read(begin), end - begin);
    TAP_CHECK((status == IBV_WC_SUCCESS) && is_byte(local, 0, 0, begin) &&
              is_pattern(local, 2, begin, 3 * PAGE) &&
              is_signature(local, 3 * PAGE, 5 * PAGE) &&
              is_pattern(local, 2, 5 * PAGE, end) &&
              is_byte(local, 0, end, BYTES),
              "of a read just the absent pages are the signature");

    fill(local, 3, BYTES);
    status = pair_write(&pair, at_local(begin), at_write(begin), end - begin);
    TAP_CHECK((status == IBV_WC_SUCCESS) && is_pattern(memory, 2, 0, begin) &&
              is_pattern(memory, 3, begin, 3 * PAGE) &&
              is_pattern(memory, 2, 3 * PAGE, 5 * PAGE) &&
              is_pattern(memory, 3, 5 * PAGE, end) &&
              is_pattern(memory, 2, end, BYTES),
              "of a write just the absent pages do not get theirs");
    set(3, 2, DMABUF_PAGES_PRESENT);
}

static void test_atomic(void)
{
    uint64_t *word = (uint64_t*)(memory + 9 * PAGE + 8), *old = (void*)local;
    pair_mem_t there = at_write(9 * PAGE + 8);
    int status;

    *word  = 1000;
    status = pair_add(&pair, at_local(0), there, 11);
    TAP_CHECK((status == IBV_WC_SUCCESS) && (*old == 1000) && (*word == 1011),
              "fetch and add");
    status = pair_swap(&pair, at_local(0), there, 1011, 5);
    TAP_CHECK((status == IBV_WC_SUCCESS) && (*old == 1011) && (*word == 5),
              "compare and swap");
    status = pair_swap(&pair, at_local(0), there, 1011, 6);
    TAP_CHECK((status == IBV_WC_SUCCESS) && (*old == 5) && (*word == 5),
              "compare and swap that does not compare");

    set(9, 1, DMABUF_PAGES_ABSENT);
    status = pair_add(&pair, at_local(0), there, 11);
    TAP_CHECK((status == IBV_WC_SUCCESS) && (*old != 5) && (*word == 5),
              "an atomic on an absent page vanishes");
    set(9, 1, DMABUF_PAGES_PRESENT);
}

/* The views as the local side of work requests */
static void test_local(void)
{
    pair_mem_t source = {READ_IOVA + 2 * PAGE, read_mr->lkey};
    pair_mem_t sink   = {WRITE_IOVA + 12 * PAGE, write_mr->lkey};
    int status;

    fill(memory, 4, BYTES);
    set(3, 1, DMABUF_PAGES_ABSENT);
    memset(local, 0, BYTES);
    status = pair_write(&pair, source,
                        (pair_mem_t){(uintptr_t)local + 2 * PAGE,
                                     local_mr->rkey}, 3 * PAGE);
    TAP_CHECK((status == IBV_WC_SUCCESS) &&
              is_pattern(local, 4, 2 * PAGE, 3 * PAGE) &&
              is_signature(local, 3 * PAGE, 4 * PAGE) &&
              is_pattern(local, 4, 4 * PAGE, 5 * PAGE),
              "a write out of a view sends the signature for absent pages");

    set(13, 1, DMABUF_PAGES_ABSENT);
    fill(local, 5, BYTES);
    status = pair_read(&pair, sink,
                       (pair_mem_t){(uintptr_t)local + 12 * PAGE,
                                    local_mr->rkey}, 3 * PAGE);
    TAP_CHECK((status == IBV_WC_SUCCESS) &&
              is_pattern(memory, 5, 12 * PAGE, 13 * PAGE) &&
              is_pattern(memory, 4, 13 * PAGE, 14 * PAGE) &&
              is_pattern(memory, 5, 14 * PAGE, 15 * PAGE),
              "a read into a view loses what is for absent pages");

    fill(local, 6, BYTES);
    status = pair_send(&pair, at_local(12 * PAGE), sink, 3 * PAGE);
    TAP_CHECK((status == IBV_WC_SUCCESS) &&
              is_pattern(memory, 6, 12 * PAGE, 13 * PAGE) &&
              is_pattern(memory, 4, 13 * PAGE, 14 * PAGE) &&
              is_pattern(memory, 6, 14 * PAGE, 15 * PAGE),
              "so does a message that is received there");
    set(0, PAGES, DMABUF_PAGES_PRESENT);
}

static struct ibv_mr *reg(int fd, uint64_t offset, size_t len, uint64_t iova,
                          int access)
{
    struct ibv_mr *mr = NULL;

    if (np_nic_reg_dmabuf(nic, fd, offset, len, iova, access, &mr) != UCS_OK) {
        printf("Bail out! a dma-buf cannot be registered\n");
        exit(1);
    }
    return mr;
}

/* A region on a piece of a dma-buf that neither begins nor ends with a page */
static void test_bounds(void)
{
    const size_t begin = 5 * PAGE + 512, len = 3 * PAGE + 40;
    const uint64_t iova = 0x99000200;
    struct ibv_mr *mr;
    int status;

    mr = reg(fds[DMABUF_PAGES_READ], begin, len, iova, IBV_ACCESS_REMOTE_READ);
    fill(memory, 7, BYTES);
    memset(local, 0, BYTES);
    status = pair_read(&pair, at_local(begin), (pair_mem_t){iova, mr->rkey},
                       len);
    TAP_CHECK((status == IBV_WC_SUCCESS) &&
              is_pattern(local, 7, begin, begin + len),
              "a piece of a dma-buf is where it was asked for");

    status = pair_read(&pair, at_local(0), (pair_mem_t){iova + 1, mr->rkey},
                       len);
    TAP_CHECK((status == IBV_WC_REM_ACCESS_ERR) && works(),
              "a byte behind it is refused");
    status = pair_read(&pair, at_local(0), (pair_mem_t){iova - 1, mr->rkey}, 8);
    TAP_CHECK((status == IBV_WC_REM_ACCESS_ERR) && works(),
              "a byte before it is refused");
    status = pair_write(&pair, at_local(0), (pair_mem_t){iova, mr->rkey}, 8);
    TAP_CHECK((status == IBV_WC_REM_ACCESS_ERR) && works() &&
              is_pattern(memory, 7, begin, begin + len),
              "a write without the right is refused");
    status = pair_read(&pair, (pair_mem_t){iova, mr->lkey},
                       (pair_mem_t){(uintptr_t)local, local_mr->rkey}, 8);
    TAP_CHECK((status != IBV_WC_SUCCESS) && (status != PAIR_NOTHING) &&
              works() && is_pattern(memory, 7, begin, begin + len),
              "as the sink of a read as well");

    np_nic_dereg_dmabuf(mr);
    status = pair_read(&pair, at_local(0), (pair_mem_t){iova, mr->rkey}, 8);
    TAP_CHECK((status == IBV_WC_REM_ACCESS_ERR) && works(),
              "a region that was given back is refused");
}

static void test_refused(void)
{
    int fd = fds[DMABUF_PAGES_READ];
    struct ibv_mr *mr;

    TAP_CHECK(np_nic_reg_dmabuf(nic, -1, 0, PAGE, 0, 0, &mr) ==
              UCS_ERR_INVALID_PARAM, "no file is no dma-buf");
    TAP_CHECK(np_nic_reg_dmabuf(nic, device, 0, PAGE, 0, 0, &mr) ==
              UCS_ERR_INVALID_PARAM, "nor is any file");
    TAP_CHECK(np_nic_reg_dmabuf(nic, fd, PAGE, BYTES, 0, 0, &mr) ==
              UCS_ERR_INVALID_PARAM, "it has no more bytes than it has");
    TAP_CHECK(np_nic_reg_dmabuf(nic, fd, 0, PAGE, 8, 0, &mr) ==
              UCS_ERR_INVALID_PARAM, "addresses keep their place in a page");
    TAP_CHECK(np_nic_reg_dmabuf(nic, fd, 0, 0, 0, 0, &mr) ==
              UCS_ERR_INVALID_PARAM, "a region has a length");
    TAP_CHECK(np_nic_reg_dmabuf(nic, fd, 0, PAGE, 0, IBV_ACCESS_REMOTE_WRITE,
                                &mr) == UCS_ERR_INVALID_PARAM,
              "remote writing needs local writing");
}

/* What no translation does, as to a device: a read is aborted, a write lost */
static void test_hole(void)
{
    uint64_t *word = (uint64_t*)(memory + 20 * PAGE);
    pair_mem_t source = {READ_IOVA + 18 * PAGE, read_mr->lkey};
    int status;

    fill(memory, 8, BYTES);
    set(20, 1, DMABUF_PAGES_HOLE);
    status = pair_read(&pair, at_local(0), at_read(20 * PAGE), 64);
    TAP_CHECK((status == IBV_WC_REM_OP_ERR) && works(),
              "a read of a hole fails; fresh queue pairs work");

    memset(local, 0, BYTES);
    status = pair_read(&pair, at_local(18 * PAGE), at_read(18 * PAGE),
                       4 * PAGE);
    TAP_CHECK((status == IBV_WC_REM_OP_ERR) &&
              is_byte(local, 0, 20 * PAGE, 22 * PAGE) && works(),
              "so does one that meets it in the middle");

    memset(local, 0, BYTES);
    status = pair_write(&pair, source,
                        (pair_mem_t){(uintptr_t)local, local_mr->rkey},
                        4 * PAGE);
    TAP_CHECK((status != IBV_WC_SUCCESS) && (status != PAIR_NOTHING) &&
              is_byte(local, 0, 2 * PAGE, 4 * PAGE) && works(),
              "and a write out of a view that does");

    status = pair_add(&pair, at_local(0), at_write(20 * PAGE), 1);
    TAP_CHECK((status == IBV_WC_REM_OP_ERR) && works(), "and an atomic");

    fill(memory, 8, BYTES);
    fill(local, 9, BYTES);
    status = pair_write(&pair, at_local(19 * PAGE), at_write(19 * PAGE),
                        3 * PAGE);
    TAP_CHECK((status == IBV_WC_SUCCESS) &&
              is_pattern(memory, 9, 19 * PAGE, 20 * PAGE) &&
              is_pattern(memory, 8, 20 * PAGE, 21 * PAGE) &&
              is_pattern(memory, 9, 21 * PAGE, 22 * PAGE),
              "a write into a hole is lost, like any posted write");

    set(20, 1, DMABUF_PAGES_PRESENT);
    *word  = 3;
    status = pair_add(&pair, at_local(0), at_write(20 * PAGE), 1);
    TAP_CHECK((status == IBV_WC_SUCCESS) && (*word == 4),
              "where a page fills the hole, all is well again");
    set(0, PAGES, DMABUF_PAGES_ABSENT);
    set(20, 1, DMABUF_PAGES_HOLE);
    status = pair_write(&pair, at_local(0), at_write(20 * PAGE), 64);
    TAP_CHECK(status == IBV_WC_SUCCESS, "a hole may be left behind");
}

static void open_exporter(void)
{
    struct dmabuf_pages_create create = {.pages = PAGES};

    device = open(DMABUF_PAGES_DEVICE, O_RDWR | O_CLOEXEC);
    if (device < 0) {
        printf("1..0 # SKIP no %s: %m\n", DMABUF_PAGES_DEVICE);
        exit(0);
    }
    if (ioctl(device, DMABUF_PAGES_CREATE, &create) != 0) {
        printf("Bail out! the exporter makes no dma-bufs: %m\n");
        exit(1);
    }
    memcpy(fds, create.fd, sizeof(fds));
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0);
    local  = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if ((memory == MAP_FAILED) || (local == MAP_FAILED)) {
        printf("Bail out! mmap: %m\n");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (np_nic_open((argc > 1) ? argv[1] : "rxe0:1", -1, &nic) != UCS_OK) {
        printf("1..0 # SKIP no RNIC\n");
        return 0;
    }

    open_exporter();
    read_mr  = reg(fds[DMABUF_PAGES_READ], 0, BYTES, READ_IOVA,
                   IBV_ACCESS_REMOTE_READ);
    write_mr = reg(fds[DMABUF_PAGES_WRITE], 0, BYTES, WRITE_IOVA, ACCESS_ALL);
    if (np_nic_reg(nic, local, BYTES, ACCESS_ALL, &local_mr) != UCS_OK) {
        printf("Bail out! no ordinary region\n");
        return 1;
    }

    pair_open(&pair, nic);
    test_absent();
    test_mixed();
    test_atomic();
    test_local();
    test_bounds();
    test_hole();
    /* Once more, on the dma-bufs alone */
    close(fds[DMABUF_PAGES_WRITE]);
    set(0, PAGES, DMABUF_PAGES_ABSENT);
    memset(memory, 0, BYTES);
    test_absent();
    np_nic_dereg_dmabuf(read_mr);
    read_mr = reg(fds[DMABUF_PAGES_READ], 0, BYTES, READ_IOVA,
                  IBV_ACCESS_REMOTE_READ);
    np_nic_dereg_dmabuf(read_mr);
    read_mr = reg(fds[DMABUF_PAGES_READ], 0, BYTES, READ_IOVA,
                  IBV_ACCESS_REMOTE_READ);
    test_refused();
    printf("1..%u\n", tap_count);
    /* What is registered, the end of the process gives back */
    return tap_failures != 0;
}
