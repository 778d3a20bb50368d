/* SPDX-License-Identifier: ((GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause) */
/*
 * /dev/dmabuf_pages: dma-bufs whose translations a test edits, page by page.
 * mmap() of the device is the memory behind them.
 */
#ifndef DMABUF_PAGES_H
#define DMABUF_PAGES_H

#include <linux/types.h>
#include <linux/ioctl.h>

#define DMABUF_PAGES_DEVICE	"/dev/dmabuf_pages"

/* What an absent page reads as, in each 32 bits */
#define DMABUF_PAGES_SIGNATURE	0x5a17ab1eU
#define DMABUF_PAGES_MAX	4096

enum dmabuf_pages_view {
	DMABUF_PAGES_READ,	/* absent pages read as the signature */
	DMABUF_PAGES_WRITE,	/* absent pages take writes and forget them */
	DMABUF_PAGES_VIEWS
};

enum dmabuf_pages_state {
	DMABUF_PAGES_ABSENT,	/* what all are at first */
	DMABUF_PAGES_PRESENT,
	DMABUF_PAGES_HOLE	/* no translation */
};

/* Once for an open file */
struct dmabuf_pages_create {
	__u32 pages;
	__s32 fd[DMABUF_PAGES_VIEWS];	/* out */
};

/* In all views, and for devices when it returns */
struct dmabuf_pages_set {
	__u32 page;
	__u32 count;
	__u32 state;
};

#define DMABUF_PAGES_CREATE	_IOWR('P', 0x70, struct dmabuf_pages_create)
#define DMABUF_PAGES_SET	_IOW('P', 0x71, struct dmabuf_pages_set)

#endif
