/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RDMA latency with views of memory that nobody pins against ordinary memory
 * regions of the same device, alternately, on pages that are present. The last
 * column is one kind against itself.
 */

#define _GNU_SOURCE
#include "pair.h"

#include "nprdma/dev/verbs/dmabuf.h"
#include "../kmod/kmod.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define BYTES   (1ul << 20)
#define ROUNDS  15
#define REPEATS 200

typedef int (*operation_t)(pair_t *pair, pair_mem_t local, pair_mem_t remote,
                           size_t len);

static pair_t pair;
static pair_mem_t local;

static int compare(const void *a, const void *b)
{
    double x = *(const double*)a, y = *(const double*)b;

    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(*values), compare);
    return values[ROUNDS / 2];
}

/* Microseconds an operation, of the mean of some */
static double measure(operation_t operation, pair_mem_t remote, size_t len)
{
    struct timespec begin, end;
    unsigned i;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (i = 0; i < REPEATS; ++i) {
        if (operation(&pair, local, remote, len) != IBV_WC_SUCCESS) {
            kmod_bail("an operation failed");
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((end.tv_sec - begin.tv_sec) * 1e6 +
            (end.tv_nsec - begin.tv_nsec) * 1e-3) / REPEATS;
}

static void row(const char *name, operation_t operation, pair_mem_t ordinary,
                pair_mem_t view, size_t len)
{
    double plain[ROUNDS], viewed[ROUNDS], ratio[ROUNDS], self[ROUNDS];
    unsigned i;

    for (i = 0; i < ROUNDS; ++i) {
        plain[i]  = measure(operation, ordinary, len);
        viewed[i] = measure(operation, view, len);
        ratio[i]  = viewed[i] / plain[i];
        self[i]   = measure(operation, ordinary, len) / plain[i];
    }
    printf("%-6s %8zu %10.1f %10.1f %8.2f %8.2f\n", name, len, median(plain),
           median(viewed), median(ratio), median(self));
    fflush(stdout);
}

static struct ibv_mr *reg_view(np_nic_t *nic, int fd, uint64_t iova, int access)
{
    struct ibv_mr *mr;

    if (np_nic_reg_dmabuf(nic, fd, 0, BYTES, iova, access, &mr) != UCS_OK) {
        kmod_bail("a view cannot be registered");
    }
    return mr;
}

static struct ibv_mr *reg(np_nic_t *nic, void *addr)
{
    struct ibv_mr *mr;

    if (np_nic_reg(nic, addr, BYTES,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                   IBV_ACCESS_REMOTE_WRITE, &mr) != UCS_OK) {
        kmod_bail("memory cannot be registered");
    }
    return mr;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {8, 4096, 65536};
    void *buffer = kmod_map(BYTES), *pinned = kmod_map(BYTES);
    uint64_t *free_ = kmod_map(BYTES);
    struct ibv_mr *read_mr, *write_mr, *local_mr, *pinned_mr;
    pair_mem_t ordinary, view;
    kmod_region_t region;
    np_nic_t *nic;
    unsigned i;
    int dev;

    dev = kmod_open();
    if ((dev < 0) || (np_nic_open((argc > 1) ? argv[1] : "rxe0:1", -1, &nic) !=
                      UCS_OK)) {
        kmod_bail("it needs nprdma.ko and an RNIC");
    }

    kmod_region_open(&region, dev, free_, BYTES, -1);
    read_mr   = reg_view(nic, region.read_fd, (uintptr_t)free_,
                         IBV_ACCESS_REMOTE_READ);
    write_mr  = reg_view(nic, region.write_fd, (uintptr_t)free_,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    local_mr  = reg(nic, buffer);
    pinned_mr = reg(nic, pinned);
    local     = (pair_mem_t){(uintptr_t)buffer, local_mr->lkey};
    ordinary  = (pair_mem_t){(uintptr_t)pinned, pinned_mr->rkey};
    if (kmod_fault(dev, region.number, free_, BYTES, NPRDMA_FAULT_WRITE, NULL) != 0) {
        kmod_bail("fault-in");
    }

    pair_open(&pair, nic);
    printf("%-6s %8s %10s %10s %8s %8s\n", "", "bytes", "pinned us", "view us",
           "ratio", "self");
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        view = (pair_mem_t){(uintptr_t)free_, read_mr->rkey};
        row("read", pair_read, ordinary, view, sizes[i]);
    }
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        view = (pair_mem_t){(uintptr_t)free_, write_mr->rkey};
        row("write", pair_write, ordinary, view, sizes[i]);
    }

    /* The last write came from an empty buffer; what was written must be it */
    memset(buffer, 0x3c, 8);
    view = (pair_mem_t){(uintptr_t)free_, write_mr->rkey};
    if ((pair_write(&pair, local, view, 8) != IBV_WC_SUCCESS) ||
        (*free_ != 0x3c3c3c3c3c3c3c3cul)) {
        kmod_bail("the view was absent: the figures mean nothing");
    }
    return 0;
}
