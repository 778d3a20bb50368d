/* SPDX-License-Identifier: ((GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause) */
/* /dev/nprdma_edu: QEMU's edu device does DMA in dma-bufs. For tests only. */
#ifndef NPRDMA_EDU_H
#define NPRDMA_EDU_H

#include <linux/types.h>
#include <linux/ioctl.h>

#define EDU_DEVICE		"/dev/nprdma_edu"
#define EDU_SLOTS		8	/* what most tests use */
#define EDU_SLOTS_ALL		80
#define EDU_LENGTH_MAX		4095

/* Attaches a dma-buf to the device, and maps it */
struct edu_attach {
	__s32 fd;
	__u32 slot;		/* out */
	__u64 iova;		/* out */
	__u32 entries;		/* out: of the scatter list */
	__u32 reserved;
};

/* One transfer, at most EDU_LENGTH_MAX bytes; takes a tenth of a second or
 * two. What the IOMMU refuses is not an error: it is seen in the data.
 */
struct edu_dma {
	__u32 slot;
	__u32 write;		/* 1: to memory, 0: from memory */
	__u64 offset;		/* in the dma-buf */
	__u64 data;		/* the program's buffer */
	__u32 length;
	__u32 reserved;
};

/* Looks at translations of the IOMMU. No device may reach a page that is free,
 * at any time: whoever gets it next would share it with the device.
 */
struct edu_audit {
	__u32 slot;
	__u32 free;		/* out: pages that nobody has */
	__u64 offset;		/* in the dma-buf */
	__u64 length;
};

#define EDU_IOC_ATTACH		_IOWR(0xC7, 0, struct edu_attach)
#define EDU_IOC_DETACH		_IO(0xC7, 1)	/* the argument is the slot */
#define EDU_IOC_DMA		_IOW(0xC7, 2, struct edu_dma)
#define EDU_IOC_AUDIT		_IOWR(0xC7, 3, struct edu_audit)

#endif
