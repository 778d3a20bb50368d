/* SPDX-License-Identifier: BSD-3-Clause */

#include "kmod.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define KMOD_WORDS   16u /* of one DMA in kmod_word and kmod_put */
#define KMOD_FDS_MAX 4u

unsigned tap_count, tap_failures;

void kmod_bail(const char *what)
{
    printf("Bail out! %s: %m\n", what);
    exit(1);
}

int kmod_done(void)
{
    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}

static int kmod_call(int dev, unsigned long request, void *argument)
{
    int ret = ioctl(dev, request, argument);

    return (ret < 0) ? -errno : ret;
}

int kmod_open(void)
{
    int dev = open(NPRDMA_DEVICE, O_RDWR | O_CLOEXEC);

    return (dev < 0) ? -errno : dev;
}

int kmod_create(int dev, const void *addr, uint64_t length, uint32_t flags)
{
    struct nprdma_region_create create = {
        .addr   = (uintptr_t)addr,
        .length = length,
        .flags  = flags
    };
    int ret = kmod_call(dev, NPRDMA_IOC_REGION_CREATE, &create);

    return (ret < 0) ? ret : (int)create.region;
}

int kmod_destroy(int dev, uint32_t region)
{
    struct nprdma_region_destroy destroy = {.region = region};

    return kmod_call(dev, NPRDMA_IOC_REGION_DESTROY, &destroy);
}

int kmod_export_part(int dev, uint32_t region, uint32_t what, uint64_t offset,
                     uint64_t length)
{
    struct nprdma_region_export export = {
        .region = region,
        .what   = what,
        .offset = offset,
        .length = length
    };
    int ret = kmod_call(dev, NPRDMA_IOC_REGION_EXPORT, &export);

    return (ret < 0) ? ret : export.fd;
}

int kmod_export(int dev, uint32_t region, uint32_t what)
{
    return kmod_export_part(dev, region, what, 0, 0);
}

int kmod_fault(int dev, uint32_t region, const void *addr, uint64_t length,
               uint32_t flags, uint64_t *done)
{
    struct nprdma_fault fault = {
        .region = region,
        .flags  = flags,
        .addr   = (uintptr_t)addr,
        .length = length
    };
    int ret = kmod_call(dev, NPRDMA_IOC_FAULT, &fault);

    if (done != NULL) {
        *done = fault.done;
    }
    return ret;
}

int kmod_range(int dev, unsigned long request, uint32_t region,
               const void *addr, uint64_t length, uint32_t flags)
{
    struct nprdma_range range = {
        .region = region,
        .flags  = flags,
        .addr   = (uintptr_t)addr,
        .length = length
    };

    return kmod_call(dev, request, &range);
}

struct nprdma_kernel_counters kmod_counters(int dev)
{
    struct nprdma_kernel_counters counters;

    if (kmod_call(dev, NPRDMA_IOC_COUNTERS, &counters) != 0) {
        kmod_bail("COUNTERS");
    }
    return counters;
}

struct nprdma_info kmod_info(int dev)
{
    struct nprdma_info info;

    if (kmod_call(dev, NPRDMA_IOC_INFO, &info) != 0) {
        kmod_bail("INFO");
    }
    return info;
}

static uint32_t kmod_attach(int edu, int fd)
{
    struct edu_attach attach = {.fd = fd};

    if (kmod_call(edu, EDU_IOC_ATTACH, &attach) != 0) {
        kmod_bail("attaching to the edu device");
    }
    return attach.slot;
}

void kmod_region_open(kmod_region_t *region, int dev, void *addr,
                      uint64_t length, int edu)
{
    uint64_t table_size = (length / KMOD_PAGE * 4 + KMOD_PAGE - 1) &
                          ~(KMOD_PAGE - 1);
    int number;

    memset(region, 0, sizeof(*region));
    region->dev    = dev;
    region->addr   = (uintptr_t)addr;
    region->length = length;
    region->edu    = edu;
    number         = kmod_create(dev, addr, length, 0);
    if (number < 0) {
        errno = -number;
        kmod_bail("REGION_CREATE");
    }
    region->number   = number;
    region->read_fd  = kmod_export(dev, number, NPRDMA_EXPORT_READ);
    region->write_fd = kmod_export(dev, number, NPRDMA_EXPORT_WRITE);
    region->table_fd = kmod_export(dev, number, NPRDMA_EXPORT_TABLE);
    region->table    = mmap(NULL, table_size, PROT_READ, MAP_SHARED,
                            region->table_fd, 0);
    if ((region->read_fd < 0) || (region->write_fd < 0) ||
        (region->table == MAP_FAILED)) {
        kmod_bail("exports");
    }
    if (edu >= 0) {
        region->read_slot  = kmod_attach(edu, region->read_fd);
        region->write_slot = kmod_attach(edu, region->write_fd);
    }
}

void kmod_region_forget(kmod_region_t *region)
{
    uint64_t table_size = (region->length / KMOD_PAGE * 4 + KMOD_PAGE - 1) &
                          ~(KMOD_PAGE - 1);

    munmap((void*)region->table, table_size);
    close(region->read_fd);
    close(region->write_fd);
    close(region->table_fd);
}

void kmod_region_close(kmod_region_t *region)
{
    if (region->edu >= 0) {
        ioctl(region->edu, EDU_IOC_DETACH, region->read_slot);
        ioctl(region->edu, EDU_IOC_DETACH, region->write_slot);
    }
    kmod_region_forget(region);
    if (kmod_destroy(region->dev, region->number) != 0) {
        kmod_bail("REGION_DESTROY");
    }
}

int kmod_in(kmod_region_t *region, const void *addr, uint32_t flags)
{
    return kmod_fault(region->dev, region->number, addr, KMOD_PAGE, flags,
                      NULL);
}

uint32_t kmod_entry(const kmod_region_t *region, const void *addr)
{
    return region->table[((uintptr_t)addr - region->addr) / KMOD_PAGE];
}

uint32_t kmod_bits(const kmod_region_t *region, const void *addr)
{
    return kmod_entry(region, addr) & (NPRDMA_ENTRY_READ | NPRDMA_ENTRY_WRITE);
}

static void kmod_dma(kmod_region_t *region, uint32_t slot, int write,
                     const void *addr, void *data, unsigned length)
{
    struct edu_dma dma = {
        .slot   = slot,
        .write  = write,
        .offset = (uintptr_t)addr - region->addr,
        .data   = (uintptr_t)data,
        .length = length
    };

    if (kmod_call(region->edu, EDU_IOC_DMA, &dma) != 0) {
        kmod_bail("DMA of the edu device");
    }
}

void kmod_dma_read(kmod_region_t *region, const void *addr, void *data,
                   unsigned length)
{
    kmod_dma(region, region->read_slot, 0, addr, data, length);
}

void kmod_dma_write(kmod_region_t *region, const void *addr, const void *data,
                    unsigned length)
{
    kmod_dma(region, region->write_slot, 1, addr, (void*)data, length);
}

void kmod_dma_intrude(kmod_region_t *region, const void *addr,
                      const void *data, unsigned length)
{
    kmod_dma(region, region->read_slot, 1, addr, (void*)data, length);
}

uint32_t kmod_word(kmod_region_t *region, const void *addr)
{
    uint32_t words[KMOD_WORDS];
    unsigned i;

    kmod_dma_read(region, addr, words, sizeof(words));
    for (i = 1; i < KMOD_WORDS; ++i) {
        if (words[i] != words[0]) {
            printf("# word %u at %p is %#x, the first one %#x\n", i, addr,
                   words[i], words[0]);
            return ~words[0];
        }
    }
    return words[0];
}

void kmod_put(kmod_region_t *region, const void *addr, uint32_t word)
{
    uint32_t words[KMOD_WORDS];
    unsigned i;

    for (i = 0; i < KMOD_WORDS; ++i) {
        words[i] = word;
    }
    kmod_dma_write(region, addr, words, sizeof(words));
}

static void kmod_fds_message(struct msghdr *message, struct iovec *iov,
                             char *control, unsigned count)
{
    memset(message, 0, sizeof(*message));
    message->msg_iov        = iov;
    message->msg_iovlen     = 1;
    message->msg_control    = control;
    message->msg_controllen = CMSG_SPACE(count * sizeof(int));
}

int kmod_fds_send(int sock, const int *fds, unsigned count)
{
    char control[CMSG_SPACE(KMOD_FDS_MAX * sizeof(int))] = {0}, byte = 0;
    struct iovec iov                                     = {&byte, 1};
    struct msghdr message;
    struct cmsghdr *header;

    kmod_fds_message(&message, &iov, control, count);
    header             = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type  = SCM_RIGHTS;
    header->cmsg_len   = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    return sendmsg(sock, &message, 0) == 1;
}

int kmod_fds_receive(int sock, int *fds, unsigned count)
{
    char control[CMSG_SPACE(KMOD_FDS_MAX * sizeof(int))], byte;
    struct iovec iov = {&byte, 1};
    struct msghdr message;

    kmod_fds_message(&message, &iov, control, count);
    if ((recvmsg(sock, &message, MSG_CMSG_CLOEXEC) != 1) ||
        (CMSG_FIRSTHDR(&message) == NULL)) {
        return 0;
    }
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), count * sizeof(int));
    return 1;
}

int kmod_edu_open(void)
{
    return open(EDU_DEVICE, O_RDWR | O_CLOEXEC);
}

void *kmod_map(uint64_t length)
{
    char *addr = mmap(NULL, length + KMOD_SLICE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uintptr_t skip;

    if (addr == MAP_FAILED) {
        kmod_bail("mmap");
    }
    skip = -(uintptr_t)addr & (KMOD_SLICE - 1);
    if (skip > 0) {
        munmap(addr, skip);
    }
    munmap(addr + skip + length, KMOD_SLICE - skip);
    return addr + skip;
}

void kmod_fill(void *addr, uint64_t length, uint32_t word)
{
    uint32_t *words = addr;
    uint64_t i;

    for (i = 0; i < length / sizeof(word); ++i) {
        words[i] = word;
    }
}
