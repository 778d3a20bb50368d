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

/* Many threads on one context, for a while */
void abi_race(int dev, char *memory, uint64_t length);

/* Ten thousand regions leave nothing */
void abi_leaks(void);

#endif
