/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that no device may have, and regions that end while they are used. */

#include "kmod_abi.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define END_LENGTH   (128 * KMOD_SLICE)
#define WATCH_ROUNDS 5u
#define WATCH_TAIL   (64 * KMOD_PAGE)

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

/* What not even the kernel maps: get_user_pages() refuses it, too */
static void test_secret(int dev)
{
    int fd = syscall(SYS_memfd_secret, O_CLOEXEC), region;
    char *addr;

    if ((fd < 0) || (ftruncate(fd, KMOD_PAGE) != 0)) {
        printf("# this kernel has no secret memory\n");
        return;
    }
    addr = mmap(NULL, KMOD_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (addr == MAP_FAILED) {
        kmod_bail("memfd_secret");
    }
    *addr  = 1;
    region = kmod_create(dev, addr, KMOD_PAGE, 0);
    TAP_CHECK((kmod_fault(dev, region, addr, KMOD_PAGE, 0, NULL) ==
               -EFAULT) &&
              (kmod_fault(dev, region, addr, KMOD_PAGE, NPRDMA_FAULT_NOWAIT,
                          NULL) == -EFAULT),
              "secret memory is not for devices");
    kmod_destroy(dev, region);
    munmap(addr, KMOD_PAGE);
    close(fd);
}

/* FAULT brings in what its thread may touch, as read() into it would */
static void test_keys(int dev)
{
    int key      = pkey_alloc(0, 0), region;
    char *memory = kmod_map(KMOD_SLICE);

    if ((key < 0) ||
        (pkey_mprotect(memory, KMOD_PAGE, PROT_READ | PROT_WRITE, key) != 0)) {
        printf("# no protection keys here\n");
        munmap(memory, KMOD_SLICE);
        return;
    }
    memory[0] = 1;
    region    = kmod_create(dev, memory, KMOD_SLICE, 0);
    pkey_set(key, PKEY_DISABLE_ACCESS);
    TAP_CHECK((kmod_fault(dev, region, memory, KMOD_PAGE, 0, NULL) ==
               -EACCES) &&
              (kmod_fault(dev, region, memory, KMOD_PAGE, NPRDMA_FAULT_NOWAIT,
                          NULL) == -EACCES),
              "what a thread's protection keys forbid is not brought in");
    pkey_set(key, PKEY_DISABLE_WRITE);
    TAP_CHECK((kmod_fault(dev, region, memory, KMOD_PAGE, NPRDMA_FAULT_WRITE,
                          NULL) == -EACCES) &&
              (kmod_fault(dev, region, memory, KMOD_PAGE, 0, NULL) == 0),
              "what they forbid to write is brought in to read");
    pkey_set(key, 0);
    TAP_CHECK(kmod_fault(dev, region, memory, KMOD_PAGE, NPRDMA_FAULT_WRITE,
                         NULL) == 0, "what they allow is brought in to write");
    kmod_destroy(dev, region);
    munmap(memory, KMOD_SLICE);
    pkey_free(key);
}

typedef struct watch {
    kmod_region_t region;
    uint32_t      last; /* slot */
    unsigned      free; /* pages of nobody that the device reached */
} watch_t;

typedef struct end {
    int      dev, region;
    char     *memory;
    uint64_t done;
    int      ret;
} end_t;

static void *end_fault(void *argument)
{
    end_t *end = argument;

    end->ret = kmod_fault(end->dev, end->region, end->memory, END_LENGTH, 0,
                          &end->done);
    return NULL;
}

/* Destroying a region does not wait until all that was asked for is there */
static void test_end(int dev)
{
    uint64_t before = kmod_counters(dev).mapped;
    end_t end       = {.dev = dev, .memory = kmod_map(END_LENGTH)};
    pthread_t thread;

    madvise(end.memory, END_LENGTH, MADV_NOHUGEPAGE);
    end.region = kmod_create(dev, end.memory, END_LENGTH, 0);
    if (pthread_create(&thread, NULL, end_fault, &end) != 0) {
        kmod_bail("pthread_create");
    }
    while (kmod_counters(dev).mapped == before) {
    }
    kmod_destroy(dev, end.region);
    pthread_join(thread, NULL);
    TAP_CHECK((end.ret == -ENOENT) && (end.done > 0) &&
              (end.done < END_LENGTH),
              "a region's end stops a fault-in that is under way");
    munmap(end.memory, END_LENGTH);
}

/* Frees memory as soon as the end of its region has begun, and looks at once
 * whether the device still reaches it: its view is the last of many */
static void *watch_run(void *argument)
{
    watch_t *watch         = argument;
    kmod_region_t *region  = &watch->region;
    struct edu_audit audit = {
        .slot   = watch->last,
        .offset = KMOD_SLICE - WATCH_TAIL,
        .length = WATCH_TAIL
    };

    while (kmod_bits(region, (void*)region->addr) != 0) {
    }
    madvise((char*)region->addr + audit.offset, audit.length, MADV_DONTNEED);
    if (ioctl(region->edu, EDU_IOC_AUDIT, &audit) != 0) {
        kmod_bail("looking at what the device reaches");
    }
    watch->free = audit.free;
    return NULL;
}

static uint32_t watch_attach(int edu, int fd)
{
    struct edu_attach attach = {.fd = fd};

    if (ioctl(edu, EDU_IOC_ATTACH, &attach) != 0) {
        kmod_bail("attaching to the edu device");
    }
    return attach.slot;
}

static unsigned watch_round(int dev, int edu, char *memory)
{
    watch_t watch = {.free = 0};
    pthread_t thread;
    unsigned i;

    kmod_region_open(&watch.region, dev, memory, KMOD_SLICE, edu);
    for (i = 2; i < EDU_SLOTS; ++i) {
        watch.last = watch_attach(edu, watch.region.write_fd);
    }
    if ((kmod_fault(dev, watch.region.number, memory, KMOD_SLICE,
                    NPRDMA_FAULT_WRITE, NULL) != 0) ||
        (pthread_create(&thread, NULL, watch_run, &watch) != 0)) {
        kmod_bail("a region to be watched");
    }
    kmod_destroy(dev, watch.region.number);
    pthread_join(thread, NULL);
    for (i = 0; i < EDU_SLOTS; ++i) {
        ioctl(edu, EDU_IOC_DETACH, i);
    }
    kmod_region_forget(&watch.region);
    return watch.free;
}

static void test_end_device(int dev, int edu)
{
    char *memory   = kmod_map(KMOD_SLICE);
    unsigned found = 0, i;

    madvise(memory, KMOD_SLICE, MADV_NOHUGEPAGE);
    for (i = 0; i < WATCH_ROUNDS; ++i) {
        found += watch_round(dev, edu, memory);
    }
    TAP_CHECK(found == 0,
              "what is freed while its region ends no device reaches (%u)",
              found);
    munmap(memory, KMOD_SLICE);
}

void abi_memory(int dev, int edu)
{
    test_secret(dev);
    test_keys(dev);
    test_end(dev);
    if (edu >= 0) {
        test_end_device(dev, edu);
    }
}
