/* SPDX-License-Identifier: BSD-3-Clause */
/* The scenes of kmod_edu, and what they share. */

#ifndef NPRDMA_TEST_KMOD_EDU_H_
#define NPRDMA_TEST_KMOD_EDU_H_

#include "kmod.h"

#include <sys/ioctl.h>

#define EDU_WORDS 4

/* None is the signature */
extern const uint32_t edu_words[EDU_WORDS];

/* The processor writes a page, then it is brought in */
void edu_arrive(kmod_region_t *region, void *page, uint32_t word,
                uint32_t flags);

/* Its entry was that; now it is absent, and a device reads the signature */
int edu_gone(kmod_region_t *region, const void *page, uint32_t entry);

static inline int edu_attach(kmod_region_t *region, struct edu_attach *attach)
{
    return ioctl(region->edu, EDU_IOC_ATTACH, attach);
}

static inline void edu_detach(kmod_region_t *region, uint32_t slot)
{
    ioctl(region->edu, EDU_IOC_DETACH, slot);
}

/* What the kernel does to anonymous memory */
void edu_events(kmod_region_t *region, char *memory);

/* Mappings of files, and huge pages */
void edu_files(kmod_region_t *region, char *memory);

/* Attaching: how large, how often, at whose expense */
void edu_windows(int dev, int edu);

/* A page that never comes */
void edu_hung(int edu);

/* What outlives whom */
void edu_processes(int edu);

#endif
