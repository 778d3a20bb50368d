/* SPDX-License-Identifier: ((GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause) */
/*
 * /dev/nprdma_umem: memory regions on dma-bufs as drivers of RNICs make them,
 * up to what they would tell their device, over QEMU's edu device. For tests
 * only.
 */
#ifndef NPRDMA_UMEM_H
#define NPRDMA_UMEM_H

#include <linux/types.h>
#include <linux/ioctl.h>

#define UMEM_DEVICE		"/dev/nprdma_umem"

enum umem_driver {
	UMEM_MLX5,		/* up to Linux 6.12, and firmware that takes all */
	UMEM_MLX5_SHORT,	/* without umr_extended_translation_offset */
	UMEM_MLX5_NONE,		/* with umr_modify_entity_size_disabled */
	UMEM_MLX5_BEST,		/* Linux 7 */
	UMEM_IRDMA,		/* E810 */
	UMEM_IRDMA_X722,
	UMEM_BNXT_RE,
	UMEM_MANA,
	UMEM_CAREFUL,		/* bnxt_re, had it not said how long a segment may be */
	UMEM_DRIVERS
};

/* Registers, in place of what was registered before; errors are the driver's */
struct umem_reg {
	__s32 fd;
	__u32 driver;
	__u64 offset;		/* in the dma-buf */
	__u64 length;
	__u64 iova;
	__u32 access;		/* as ibv_access_flags */
	__u32 ranges;		/* out: of the list that the exporter gave */
	__u64 page_size;	/* out: what an entry of the device stands for */
	__u64 entries;		/* out: so many of them */
	__u64 wrong;		/* out: that are not in order, or lead nowhere */
};

/* How often the exporter wanted what is registered now to move */
#define UMEM_IOC_REG		_IOWR(0xC8, 0, struct umem_reg)
#define UMEM_IOC_MOVES		_IO(0xC8, 1)
#define UMEM_IOC_DEREG		_IO(0xC8, 2)

#endif
