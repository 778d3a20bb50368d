/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of kmod_abi. */

#ifndef NPRDMA_TEST_KMOD_ABI_H_
#define NPRDMA_TEST_KMOD_ABI_H_

#include "kmod.h"

/* An ioctl; 0 or -errno */
int abi_call(int dev, unsigned long request, void *argument);

/* Who did not open the file gets nowhere; @a self is this program */
void abi_strangers(int dev, char *memory, const char *self);

/* What this program does when it is run with a file descriptor's number */
int abi_after_exec(const char *dev);

/* What a user may use */
void abi_bounds(int dev, char *memory);

/* Each of the kernel's allocations fails, where that can be had */
void abi_fail(int dev, int edu, char *memory);

/* Memory that no device may have; regions that end while they are used */
void abi_memory(int dev, int edu);

/* Who waits for whom: the dead, neighbours, regions over the same memory */
void abi_life(int dev, char *memory);

/* Processes that are killed while they use all of it */
void abi_deaths(int edu, char *memory, uint64_t length);

/* Many threads on one context, for a while; with the edu device if @a edu is
 * not negative */
void abi_race(int dev, int edu, char *memory, uint64_t length);

/* Ten thousand regions leave nothing */
void abi_leaks(void);

#endif
