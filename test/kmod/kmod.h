/* SPDX-License-Identifier: BSD-3-Clause */
/* For the tests of the module: its ioctls as functions, the edu device, TAP. */

#ifndef NPRDMA_TEST_KMOD_H_
#define NPRDMA_TEST_KMOD_H_

#include "../../include/nprdma/nprdma_uapi.h"
#include "../engine/tap.h"
#include "edu_import.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define KMOD_PAGE  4096ul
#define KMOD_SLICE (16ul << 20)

/* A region with all it exports; attached to the edu device if there is one */
typedef struct kmod_region {
    int                     dev;
    uint32_t                number;
    uint64_t                addr, length;
    int                     read_fd, write_fd, table_fd;
    const volatile uint32_t *table;
    int                     edu;       /* -1: not attached */
    uint32_t                read_slot, write_slot;
} kmod_region_t;

/* Of all of these: 0 or a positive result, or -errno */
int kmod_open(void);
int kmod_create(int dev, const void *addr, uint64_t length, uint32_t flags);
int kmod_destroy(int dev, uint32_t region);
int kmod_export(int dev, uint32_t region, uint32_t what);
int kmod_export_part(int dev, uint32_t region, uint32_t what, uint64_t offset,
                     uint64_t length);
int kmod_fault(int dev, uint32_t region, const void *addr, uint64_t length,
               uint32_t flags, uint64_t *done);
int kmod_range(int dev, unsigned long request, uint32_t region,
               const void *addr, uint64_t length, uint32_t flags);
struct nprdma_kernel_counters kmod_counters(int dev);
struct nprdma_info kmod_info(int dev);

/* Ends the program with "Bail out!" if it fails */
void kmod_region_open(kmod_region_t *region, int dev, void *addr,
                      uint64_t length, int edu);
void kmod_region_close(kmod_region_t *region);

/* The same for one that is destroyed, and detached */
void kmod_region_forget(kmod_region_t *region);

/* Fault-in of one page of a region; 0 or -errno */
int kmod_in(kmod_region_t *region, const void *addr, uint32_t flags);

/* The entry of an address, and its two bits alone */
uint32_t kmod_entry(const kmod_region_t *region, const void *addr);
uint32_t kmod_bits(const kmod_region_t *region, const void *addr);

/* DMA in a view by the edu device; end the program if it cannot be had */
void kmod_dma_read(kmod_region_t *region, const void *addr, void *data,
                   unsigned length);
void kmod_dma_write(kmod_region_t *region, const void *addr, const void *data,
                    unsigned length);
/* Through the read view */
void kmod_dma_intrude(kmod_region_t *region, const void *addr,
                      const void *data, unsigned length);

/* What a device reads at an address, of which all words should be the same */
uint32_t kmod_word(kmod_region_t *region, const void *addr);

/* Has the device write that word there, a few times over */
void kmod_put(kmod_region_t *region, const void *addr, uint32_t word);

/* File descriptors to and from another process; 0: it failed */
int kmod_fds_send(int sock, const int *fds, unsigned count);
int kmod_fds_receive(int sock, int *fds, unsigned count);

int kmod_edu_open(void);

/* Anonymous memory at a multiple of a slice's size */
void *kmod_map(uint64_t length);

/* Pages of 4 KiB only, if not huge */
void kmod_fill(void *addr, uint64_t length, uint32_t word);

void kmod_bail(const char *what) __attribute__((noreturn));

/* Prints the plan; the program's exit code */
int kmod_done(void);

#endif
