/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nprdma.ko's own header: what its files know of each other.
 *
 * Locks, outermost first; those from np_slice.lock on are taken in the MMU
 * notifier, so nothing may be allocated under them but with GFP_ATOMIC, and
 * neither mmap_lock nor a reservation lock be taken:
 *
 * np_region.grow	making slices; a region's end
 * mmap_lock
 * np_slice.lock	states and entries of a slice; its end
 * np_region.windows_lock	which devices see the region; np_slice_lock()
 *			takes both
 * np_region.slots_lock, np_space.slices_lock	which slice is where; nothing is
 *			taken under them
 *
 * None of them is held while a page is brought in, which may take for ever:
 * who does that holds mmap_lock, as everywhere in the kernel, and references to
 * the region and the slice.
 */
#ifndef NPRDMA_H
#define NPRDMA_H

#include <linux/atomic.h>
#include <linux/device.h>
#include <linux/interval_tree.h>
#include <linux/iommu.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/xarray.h>

#include "nprdma_config.h"
#include "nprdma_uapi.h"

#define NP_SLICE_SHIFT	24
#define NP_SLICE_PAGES	(1U << (NP_SLICE_SHIFT - PAGE_SHIFT))
#define NP_REGION_MAX	(8ULL << 30)
#define NP_REGIONS_MAX	65536	/* of a user */
/* Slices that one more may overlap, and windows that a page may be in: whoever
 * takes a page waits for all of them, and need not be of this user.
 */
#define NP_OVERLAPS_MAX	16
#define NP_WINDOWS_MAX	64
/* Numbers of regions. Erasing 0, which a program may ask for, would
 * make an xarray hand it out.
 */
#define NP_NUMBERS	XA_LIMIT(1, INT_MAX)
/* Beside NPRDMA_FAULT_*: by a worker, of whom nobody expects it */
#define NP_FAULT_AHEAD	0x80000000U
#define NP_ENTRY_BITS	(NPRDMA_ENTRY_READ | NPRDMA_ENTRY_WRITE)

/* leaf.c is for tables of this form, on x86 */
#if defined(NP_HAVE_IOMMU_PT) && defined(CONFIG_X86_64)
#define NP_HAVE_IN_PLACE 1
#else
#define NP_HAVE_IN_PLACE 0
#endif

/* main.c */
extern struct page *np_signature;	/* the first of np_signature_pages */
extern unsigned int np_signature_pages;
extern struct workqueue_struct *np_queue;
extern bool np_sync_rcu;
extern bool np_break_first;
extern bool np_verify;
u64 np_table_max(void);

/* user.c: what a user causes the kernel to use */
struct np_user {
	struct list_head link;
	kuid_t uid;
	unsigned int refs;
	atomic_t regions;
	atomic64_t bytes;
};

struct np_user *np_user_get(kuid_t uid);
void np_user_put(struct np_user *user);
int np_user_charge(struct np_user *user, u64 bytes);
void np_user_uncharge(struct np_user *user, u64 bytes);
int np_user_add_region(struct np_user *user);
void np_user_drop_region(struct np_user *user);

/* context.c: an open file */
struct np_stats {
	atomic_t regions;
	atomic_t attached;
	atomic_t gapped;		/* of these, NPRDMA_REPLACE_GAP */
	atomic64_t faults;
	atomic64_t mapped;
	atomic64_t upgraded;
	atomic64_t retries;
	atomic64_t invalidations;
	atomic64_t unmapped;
	atomic64_t downgraded;
	atomic64_t refused;
	atomic64_t flushes;
	atomic64_t gaps;
};

struct np_slice;

/* An address space, whatever the number of its contexts */
struct np_space {
	struct mmu_notifier notifier;	/* by which the kernel finds and counts it */
	atomic_t workers;		/* ours, that count among its users */
	spinlock_t slices_lock;
	struct rb_root_cached slices;	/* of all regions, by address */
};

struct np_context {
	struct kref refs;		/* file, regions */
	struct mm_struct *mm;		/* grabbed, not its users */
	struct np_space *space;
	struct np_user *user;
	struct page *hole;		/* the black-hole page */
	struct xarray regions;
	atomic_t prefetches;
	struct np_stats stats;
};

struct np_context *np_context_open(void);
void np_context_close(struct np_context *context);
void np_context_put(struct np_context *context);
bool np_space_enter(struct np_context *context);
void np_space_leave(struct np_context *context);
bool np_space_deserted(struct np_context *context);
int np_space_add(struct np_space *space, struct np_slice *slice);
void np_space_remove(struct np_space *space, struct np_slice *slice);

/* abi.c */
long np_ioctl(struct file *file, unsigned int command, unsigned long argument);

/* slice.c: a part of a region with a notifier of its own */

/* A page's state: where it is, and how it is mapped. PAGE_MASK leaves room. */
#define NP_READ		0x1ULL		/* as NPRDMA_ENTRY_READ */
#define NP_WRITE	0x2ULL		/* as NPRDMA_ENTRY_WRITE */
#define NP_BLOCKED	0x4ULL		/* swapped out by hand */
#define NP_FAILED	0x8ULL		/* a view could not be changed */
#define NP_MOVE_SHIFT	4		/* of READ, WRITE: that just changes */
#define NP_MOVE_READ	(NP_READ << NP_MOVE_SHIFT)
#define NP_MOVE_WRITE	(NP_WRITE << NP_MOVE_SHIFT)
#define NP_BOTH		(NP_READ | NP_WRITE)
#define NP_MOVE_BOTH	(NP_MOVE_READ | NP_MOVE_WRITE)

/* Pages of a slice that somebody is bringing in */
struct np_look {
	struct list_head link;		/* in np_slice.looks; guarded by its lock */
	unsigned int from;
	unsigned int to;
	bool hit;			/* some of them were taken meanwhile */
};

struct np_slice {
	refcount_t refs;		/* its slot, and who works on it */
	struct mmu_interval_notifier notifier;
	struct interval_tree_node range; /* of addresses; in np_space.slices */
	struct np_region *region;
	unsigned long first;		/* page of the region */
	unsigned int pages;
	struct mutex lock;		/* state, entries, mapped, dead */
	bool dead;			/* it is given nothing any more */
	struct list_head looks;		/* also guarded by lock */
	unsigned int mapped;		/* pages that are not absent */
	u64 *state;			/* of each page */
	u32 *entries;			/* what the table is to say */
};

struct np_slice *np_slice_make(struct np_region *region, unsigned long index);
void np_slice_end(struct np_slice *slice);
void np_slice_hit(struct np_slice *slice, unsigned int from, unsigned int to);
void np_slice_put(struct np_slice *slice);
void np_slice_lock(struct np_slice *slice);
bool np_slice_trylock(struct np_slice *slice);
void np_slice_unlock(struct np_slice *slice);
u64 np_slice_bytes(unsigned int pages);
void np_slice_take(struct np_slice *slice, unsigned int from, unsigned int to,
		   u64 bits);
void np_slice_give(struct np_slice *slice, unsigned int from, unsigned int to,
		   const unsigned long *pfns, u64 bits);
void np_slice_drop_failed(struct np_slice *slice, unsigned int from,
			  unsigned int to);

/* notify.c: when the kernel takes pages */
int np_notify_start(struct np_slice *slice);
void np_notify_stop(struct np_slice *slice);

/* region.c */
struct np_region {
	struct kref refs;		/* number, exports, work under way */
	struct np_context *context;
	unsigned long start;
	unsigned long pages;
	bool rdonly;

	struct mutex grow;		/* table, dead; who makes slices */
	bool dead;			/* no slice is made any more */

	spinlock_t slots_lock;		/* slices[] */
	unsigned int slice_count;
	struct np_slice **slices;	/* NULL: nothing there was ever mapped */

	unsigned int table_pages;
	struct page **table;		/* NULL until something needs it */
	u64 charged;

	struct rw_semaphore windows_lock;
	struct rb_root_cached windows;	/* by their pages */
};

int np_region_create(struct np_context *context,
		     struct nprdma_region_create *create);
int np_region_destroy(struct np_context *context, u32 number);
void np_region_kill(struct np_region *region);
struct np_region *np_region_get(struct np_context *context, u32 number);
void np_region_put(struct np_region *region);
struct np_slice *np_region_slice(struct np_region *region, unsigned long index);
struct np_slice *np_region_slice_make(struct np_region *region,
				      unsigned long index);
int np_region_grow(struct np_region *region, unsigned long from,
		   unsigned long to);
int np_region_span(struct np_region *region, u64 addr, u64 length,
		   unsigned long *from, unsigned long *to);
int np_region_part(struct np_region *region, u64 offset, u64 length,
		   unsigned long *first, unsigned long *pages);
int np_region_table(struct np_region *region);
void np_region_entry(struct np_region *region, unsigned long index, u32 entry);

/* fault.c */
int np_fault(struct np_region *region, unsigned long from, unsigned long to,
	     u32 flags, unsigned long *done);

/* swap.c: what is asked for without a transfer */
int np_prefetch(struct np_region *region, unsigned long from, unsigned long to,
		u32 flags);
int np_invalidate(struct np_region *region, unsigned long from,
		  unsigned long to, u32 flags);
int np_swap_out(struct np_region *region, unsigned long from,
		unsigned long to, u32 flags);
int np_swap_in(struct np_region *region, unsigned long from, unsigned long to,
	       u32 flags);

/* window.c: one range of a device's addresses */
struct np_window {
	struct interval_tree_node span;	/* in np_region.windows */
	struct np_region *region;
	u32 what;			/* NPRDMA_EXPORT_* */
	bool closing;			/* nothing more is mapped */
	bool in_place;			/* see leaf.c; constant */
	struct device *dev;
	struct iommu_domain *domain;
	int prot;			/* IOMMU_* */
	dma_addr_t iova;
	unsigned long first;		/* of the view's pages, whole slices */
	unsigned long pages;
	phys_addr_t absent;		/* what stands for absent pages */
	unsigned int gaps;		/* replacements that failed; guarded by
					 * the locks of slices, roughly: only
					 * 0 or not matters
					 */
	struct sg_table range;		/* as the DMA API knows it */
	u64 charged;
};

struct np_window *np_window_open(struct np_region *region, u32 what,
				 unsigned long first, unsigned long pages,
				 struct device *dev);
void np_window_close(struct np_window *window);
struct sg_table *np_window_list(struct np_window *window);
void np_window_list_free(struct sg_table *list);

/* index: of the region's pages */
bool np_window_break(struct np_window *window, unsigned long index,
		     struct iommu_iotlb_gather *gather);
int np_window_make(struct np_window *window, unsigned long index,
		   phys_addr_t phys);
int np_window_replace(struct np_window *window, unsigned long index,
		      phys_addr_t phys, struct iommu_iotlb_gather *gather);
void np_window_verify(struct np_window *window, unsigned long index,
		      phys_addr_t phys);
void np_window_flush(struct np_window *window,
		     struct iommu_iotlb_gather *gather);

/* leaf.c: translations replaced by one store */
bool np_leaf_works(struct np_window *window);
bool np_leaf_replace(struct np_window *window, unsigned long iova,
		     phys_addr_t phys, struct iommu_iotlb_gather *gather);

/* views.c: the windows of a region */
void np_views_take(struct np_slice *slice, unsigned int from, unsigned int to);
void np_views_give(struct np_slice *slice, unsigned int from, unsigned int to);
int np_views_add(struct np_window *window);
void np_views_remove(struct np_window *window);

/* export.c: views and tables as dma-bufs */
int np_export(struct np_region *region, u32 what, unsigned long first,
	      unsigned long pages);

#endif
