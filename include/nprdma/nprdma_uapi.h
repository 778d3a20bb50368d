/* SPDX-License-Identifier: ((GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause) */
/*
 * The ioctls of /dev/nprdma: RDMA on memory that is not pinned.
 *
 * A context (one open file) belongs to the address space that opened it. In it
 * a process makes regions of its own memory. A region has two views and a
 * table, each exported as a dma-buf, which drivers turn into memory regions
 * (ibv_reg_dmabuf_mr); offset 0 of a view is the region's first byte:
 *
 * read view    for a device to read. An absent page reads as the signature;
 *              nothing can be written through it
 * write view   for a device to write. An absent page, or one that may only be
 *              read, takes writes and forgets them
 * table        one entry of 32 bits for each page, in the order of addresses.
 *              A device and mmap() (shared, PROT_READ) may read it; only the
 *              kernel writes it
 *
 * A page is absent until FAULT maps it, and again as soon as the kernel takes
 * it or changes it in any way that moves, copies or protects it. Then, in this
 * order: the entry changes, the views change, no device can reach the page any
 * more, the kernel goes on. When a page is mapped its entry changes last.
 *
 * Of all ioctls: the argument is a structure whose size is part of the number.
 * A longer one than the module knows is taken if what it does not know is 0
 * (else E2BIG); a shorter one is taken down to the size of version 2, with what
 * is missing as 0. Unknown flags and reserved fields that are not 0 are EINVAL.
 * Errors that any of them may return:
 *
 * ENOTTY   no such ioctl
 * EINVAL   a flag, a reserved field, a size, an address or a length is wrong
 * E2BIG    a longer structure says something that this module does not know
 * EFAULT   the structure itself cannot be read or written
 * EPERM    the caller is not the address space that opened the file: a forked
 *          child, a program after exec, a process that was sent the file
 * ENOENT   there is no region of that number
 * EINTR    a fatal signal
 *
 * Addresses and lengths are in bytes and multiples of page_size (see INFO). A
 * range must lie within its region and must not be empty, else EINVAL. All may
 * be called by any thread at any time.
 */
#ifndef NPRDMA_UAPI_H
#define NPRDMA_UAPI_H

#include <linux/types.h>
#include <linux/ioctl.h>

#define NPRDMA_DEVICE		"/dev/nprdma"

/* Changed only if an older program could misunderstand a newer module */
#define NPRDMA_ABI_VERSION	2

/* An absent page reads as this word, little-endian, repeated */
#define NPRDMA_SIGNATURE	0xd5ea5e1fU

/* An entry of the table: two bits, and above them a count that every change of
 * the page's state increments.
 */
#define NPRDMA_ENTRY_READ	0x1U	/* the read view has the page */
#define NPRDMA_ENTRY_WRITE	0x2U	/* the write view has it */
#define NPRDMA_ENTRY_STEP	0x4U	/* one step of the count */

/* What the module can do: nprdma_info.features */
#define NPRDMA_FEATURE_VIEWS	0x1ULL	/* views and table as dma-bufs */
#define NPRDMA_FEATURE_PREFETCH	0x2ULL	/* PREFETCH */
#define NPRDMA_FEATURE_SWAP	0x4ULL	/* SWAP_OUT, SWAP_IN */
/* Built to replace translations by one store; the parameter in_place decides */
#define NPRDMA_FEATURE_IN_PLACE	0x8ULL

/**
 * INFO: what this module is.
 * @abi:	NPRDMA_ABI_VERSION of the module
 * @page_size:	bytes that an entry stands for
 * @signature:	the word that absent pages read as
 * @slice_size:	bytes; an invalidation disturbs fault-in only within a slice of
 *		this size, counted from the region's start
 * @features:	NPRDMA_FEATURE_*
 * @region_max:	bytes that a region may have
 * @table_max:	bytes of kernel memory that a user may cause to be used. The user
 *		is the real one, as for resource limits
 * @table_used:	bytes that the calling user does cause
 */
struct nprdma_info {
	__u32 abi;
	__u32 page_size;
	__u32 signature;
	__u32 slice_size;
	__u64 features;
	__u64 region_max;
	__u64 table_max;
	__u64 table_used;
};

/* The region's memory is never mapped for writing */
#define NPRDMA_REGION_RDONLY	0x1U

/**
 * REGION_CREATE: a region of the caller's addresses. Nothing needs to be mapped
 * there, now or later, and nothing is brought in. Regions may overlap; each has
 * its own entries.
 * @addr:	first byte, in user space
 * @length:	bytes, at most region_max
 * @flags:	NPRDMA_REGION_*
 * @region:	out: its number, never 0, in this context
 *
 * EINVAL   also: the range leaves user space, or is longer than region_max
 * ENOMEM   no memory
 * EDQUOT   the user's bound table_max, or that on regions of a user
 */
struct nprdma_region_create {
	__u64 addr;
	__u64 length;
	__u32 flags;
	__u32 region;
};

/**
 * REGION_DESTROY: all its pages turn absent, for good: what is exported still
 * reads as the signature, and still forgets writes. Its number is free again.
 * @region:	its number
 * @flags:	0
 */
struct nprdma_region_destroy {
	__u32 region;
	__u32 flags;
};

#define NPRDMA_EXPORT_READ	1	/* the read view */
#define NPRDMA_EXPORT_WRITE	2	/* the write view */
#define NPRDMA_EXPORT_TABLE	3	/* the table */

/**
 * REGION_EXPORT: a new dma-buf of a view or of the table, closed at exec. It
 * may outlive region, context and process, and be given to others.
 *
 * A view's size is that of the region, the table's that of its entries rounded
 * up to pages. For RDMA: ibv_reg_dmabuf_mr(pd, 0, length, iova, fd, access).
 * Many devices take no memory region as large as a region of ours: so a view
 * may be exported in parts, each of them a dma-buf that costs only what it has.
 *
 * Attaching it to a device makes a range of the device's addresses, with tables
 * of 8 bytes a page, which may fail:
 *
 * EOPNOTSUPP no IOMMU translates for the device, or not as is needed, with a
 *            line in the kernel's log that names the cure. It will fail again
 * ENOMEM   no memory, or no addresses, just now: it may be tried again
 * EINTR    a fatal signal
 * EDQUOT   the user's bound table_max, or a page of it is attached 64 times
 * @region:	its number
 * @what:	NPRDMA_EXPORT_*
 * @flags:	0
 * @fd:		out: the file descriptor
 * @offset:	first byte of a part of a view, in the region; a multiple of
 *		slice_size
 * @length:	bytes of the part, such a multiple or up to the region's end. 0:
 *		all from @offset 0 on
 *
 * EINVAL   also: no such part, or a part of the table
 * ENOMEM   no memory
 * EMFILE   the process has no file descriptor left
 * ENFILE   the system has none
 */
struct nprdma_region_export {
	__u32 region;
	__u32 what;
	__u32 flags;
	__s32 fd;
	__u64 offset;
	__u64 length;
};

#define NPRDMA_FAULT_WRITE	0x1U	/* for writing as well */
/* Only what is present already: no waiting for storage or for mmap_lock */
#define NPRDMA_FAULT_NOWAIT	0x2U

/**
 * FAULT: brings pages in and maps them, from the first on, until one cannot be.
 * Pages that are mapped already do not change. A page that is mapped may be
 * gone again by the time this returns.
 * @region:	its number
 * @flags:	NPRDMA_FAULT_*
 * @addr:	first byte of the range
 * @length:	bytes
 * @done:	out, also with an error: bytes from @addr that were mapped
 *
 * EFAULT   nothing is mapped there, or nothing that a device may have
 * EACCES   it may not be written (or not be read), the region is RDONLY, or the
 *          calling thread's protection keys forbid it (pages that are mapped
 *          already are not asked for; a change of a key's rights takes none)
 * EBUSY    it is swapped out, by SWAP_OUT
 * EAGAIN   with NOWAIT: it is not there. Else: it went away again each time
 * ENOMEM   no memory to bring it in, or for the module's own state
 * EDQUOT   the user's bound table_max, or 16 slices of other regions are over
 *          the same memory
 */
struct nprdma_fault {
	__u32 region;
	__u32 flags;
	__u64 addr;
	__u64 length;
	__u64 done;
};

/* For PREFETCH and SWAP_IN: for writing as well */
#define NPRDMA_RANGE_WRITE	0x1U
/* For SWAP_IN: map nothing; a later FAULT does */
#define NPRDMA_RANGE_LAZY	0x2U

/**
 * A range of a region, for:
 *
 * PREFETCH: as FAULT, in the background; how far it comes is not told. It ends
 * with the process, and leaves out what is behind a protection key and files of
 * FUSE. It is a hint: EAGAIN if too many are under way already, ENOMEM.
 *
 * INVALIDATE: the pages turn absent, as if the kernel had taken them; when it
 * returns, no device reaches them any more. FAULT may map them again.
 *
 * SWAP_OUT: the same, but until SWAP_IN neither FAULT nor PREFETCH maps them:
 * for programs that page by themselves and whose frames the kernel does not
 * know to have changed. EDQUOT and ENOMEM as with FAULT, then nothing is done.
 *
 * SWAP_IN: ends SWAP_OUT for the range and maps it as FAULT does. Errors are
 * those of FAULT; the end of SWAP_OUT holds in any case.
 *
 * @region:	its number
 * @flags:	NPRDMA_RANGE_WRITE for PREFETCH and SWAP_IN, NPRDMA_RANGE_LAZY
 *		for SWAP_IN, else 0
 * @addr:	first byte of the range
 * @length:	bytes
 */
struct nprdma_range {
	__u32 region;
	__u32 flags;
	__u64 addr;
	__u64 length;
};

/*
 * How a device's translation of one page is replaced:
 * nprdma_kernel_counters.replace
 */
#define NPRDMA_REPLACE_NONE	0	/* no device is attached */
/* For a moment it has none: a read then fails, and with it the queue pair */
#define NPRDMA_REPLACE_GAP	1
#define NPRDMA_REPLACE_ATOMIC	2	/* it is never without one */

/**
 * COUNTERS: of the context, since it was opened, all of them or none.
 * @regions:		now
 * @attached:		devices attached to views and tables, now
 * @replace:		the worst NPRDMA_REPLACE_* of what is attached
 * @reserved:		0
 * @kernel_bytes:	kernel memory that the user causes to be used, now
 * @faults:		FAULT, PREFETCH and SWAP_IN that were begun
 * @mapped:		pages that became mapped
 * @upgraded:		pages that became writable as well
 * @retries:		batches of pages begun again after an invalidation
 * @invalidations:	calls of the kernel that took something
 * @unmapped:		pages that turned absent
 * @downgraded:		pages of which only the writable half went
 * @refused:		calls that could not wait, and that the kernel repeats
 * @flushes:		translation caches flushed
 * @gaps:		pages that no view has, after a failure to replace one
 */
struct nprdma_kernel_counters {
	__u32 regions;
	__u32 attached;
	__u32 replace;
	__u32 reserved;
	__u64 kernel_bytes;
	__u64 faults;
	__u64 mapped;
	__u64 upgraded;
	__u64 retries;
	__u64 invalidations;
	__u64 unmapped;
	__u64 downgraded;
	__u64 refused;
	__u64 flushes;
	__u64 gaps;
};

/* One that the kernel's list of ioctl numbers leaves free */
#define NPRDMA_IOC		0xC6

#define NPRDMA_IOC_INFO		_IOR(NPRDMA_IOC, 0x00, struct nprdma_info)
#define NPRDMA_IOC_REGION_CREATE \
	_IOWR(NPRDMA_IOC, 0x01, struct nprdma_region_create)
#define NPRDMA_IOC_REGION_DESTROY \
	_IOW(NPRDMA_IOC, 0x02, struct nprdma_region_destroy)
#define NPRDMA_IOC_REGION_EXPORT \
	_IOWR(NPRDMA_IOC, 0x03, struct nprdma_region_export)
#define NPRDMA_IOC_FAULT	_IOWR(NPRDMA_IOC, 0x04, struct nprdma_fault)
#define NPRDMA_IOC_PREFETCH	_IOW(NPRDMA_IOC, 0x05, struct nprdma_range)
#define NPRDMA_IOC_INVALIDATE	_IOW(NPRDMA_IOC, 0x06, struct nprdma_range)
#define NPRDMA_IOC_SWAP_OUT	_IOW(NPRDMA_IOC, 0x07, struct nprdma_range)
#define NPRDMA_IOC_SWAP_IN	_IOW(NPRDMA_IOC, 0x08, struct nprdma_range)
#define NPRDMA_IOC_COUNTERS	_IOR(NPRDMA_IOC, 0x09, struct nprdma_kernel_counters)

#endif
