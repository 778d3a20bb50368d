// SPDX-License-Identifier: GPL-2.0-only
/*
 * The windows of a region: what devices see of its two views, or of some slices
 * of them. All that have a slice change together, under its lock.
 */
#include <linux/rcupdate.h>

#include "nprdma.h"

/* The bit of a page's state that such a window goes by */
static u64 np_view_bit(struct np_window *window)
{
	return window->what == NPRDMA_EXPORT_READ ? NP_READ : NP_WRITE;
}

static void np_view_flush(struct np_window *window,
			  struct iommu_iotlb_gather *gather)
{
	np_window_flush(window, gather);
	atomic64_inc(&window->region->context->stats.flushes);
}

static struct np_window *np_view_next(struct interval_tree_node *node)
{
	return node ? container_of(node, struct np_window, span) : NULL;
}

/* Each window that has pages [first, last] of the region */
#define np_for_each_view(window, region, first, last)			\
	for (window = np_view_next(					\
		     interval_tree_iter_first(&(region)->windows, first, last)); \
	     window;							\
	     window = np_view_next(					\
		     interval_tree_iter_next(&window->span, first, last)))

/* Software NICs have no translation cache to flush, but readers under way */
static void np_views_settle(struct np_region *region)
{
	if (READ_ONCE(np_sync_rcu) &&
	    !RB_EMPTY_ROOT(&region->windows.rb_root))
		synchronize_rcu_expedited();
}

/* Where pages whose state has @bit go: to themselves, or what is absent */
static phys_addr_t np_view_target(struct np_window *window,
				  struct np_slice *slice, unsigned int i,
				  bool present)
{
	return present ? slice->state[i] & PAGE_MASK : window->absent;
}

/* Break before make: none of these pages has a translation any more */
static void np_view_break(struct np_window *window, struct np_slice *slice,
			  unsigned int from, unsigned int to, u64 bit)
{
	struct iommu_iotlb_gather gather;
	unsigned int i;

	iommu_iotlb_gather_init(&gather);
	for (i = from; i < to; i++) {
		if (slice->state[i] & bit)
			np_window_break(window, slice->first + i, &gather);
	}
	np_view_flush(window, &gather);
}

/*
 * Pages [from, to) whose state has @bit are themselves in this window, or are
 * absent. Calls @failed for those that it cannot replace: they have no
 * translation then.
 */
static void np_view_change(struct np_window *window, struct np_slice *slice,
			   unsigned int from, unsigned int to, u64 bit,
			   bool present,
			   void (*failed)(struct np_slice *slice,
					  unsigned int i))
{
	bool broken = READ_ONCE(np_break_first) && !window->in_place;
	struct iommu_iotlb_gather gather;
	unsigned int i;
	int ret;

	while (from < to && !(slice->state[from] & bit))
		from++;
	if (from == to)
		return;
	if (broken)
		np_view_break(window, slice, from, to, bit);
	iommu_iotlb_gather_init(&gather);
	for (i = from; i < to; i++) {
		phys_addr_t phys = np_view_target(window, slice, i, present);

		if (!(slice->state[i] & bit))
			continue;
		if (broken)
			ret = np_window_make(window, slice->first + i, phys);
		else
			ret = np_window_replace(window, slice->first + i, phys,
						&gather);
		if (ret)
			failed(slice, i);
	}
	/* A device may remember the way to what stood there */
	if (!broken)
		np_view_flush(window, &gather);
	for (i = from; READ_ONCE(np_verify) && i < to; i++) {
		if (slice->state[i] & bit && !(slice->state[i] & NP_FAILED))
			np_window_verify(window, slice->first + i,
					 np_view_target(window, slice, i,
							present));
	}
}

/* Without a translation, if need be: that can be recovered from, a page that
 * belongs to somebody else cannot.
 */
static void np_view_gap(struct np_slice *slice, unsigned int i)
{
	atomic64_inc(&slice->region->context->stats.gaps);
}

static void np_view_failed(struct np_slice *slice, unsigned int i)
{
	slice->state[i] |= NP_FAILED;
}

/* Pages whose bits are moving become absent where those bits count */
void np_views_take(struct np_slice *slice, unsigned int from, unsigned int to)
{
	struct np_region *region = slice->region;
	struct np_window *window;

	lockdep_assert_held_read(&region->windows_lock);
	np_for_each_view(window, region, slice->first,
			 slice->first + slice->pages - 1)
		np_view_change(window, slice, from, to,
			       np_view_bit(window) << NP_MOVE_SHIFT, false,
			       np_view_gap);
	np_views_settle(region);
}

/* Pages whose bits are moving become visible where those bits count */
void np_views_give(struct np_slice *slice, unsigned int from, unsigned int to)
{
	struct np_region *region = slice->region;
	struct np_window *window;

	lockdep_assert_held_read(&region->windows_lock);
	np_for_each_view(window, region, slice->first,
			 slice->first + slice->pages - 1) {
		if (!window->closing)
			np_view_change(window, slice, from, to,
				       np_view_bit(window) << NP_MOVE_SHIFT,
				       true, np_view_failed);
	}
	np_views_settle(region);
}

/* Has some slice of the window as many as it may have? */
static bool np_views_full(struct np_window *window)
{
	unsigned long first = window->first, end = first + window->pages;
	struct np_window *other;
	unsigned int count;

	for (; first < end; first += NP_SLICE_PAGES) {
		count = 0;
		np_for_each_view(other, window->region, first,
				 min(first + NP_SLICE_PAGES, end) - 1)
			count++;
		if (count >= NP_WINDOWS_MAX)
			return true;
	}
	return false;
}

/* All of the window's pages that are mapped become visible in it, or absent,
 * slice by slice
 */
static void np_views_walk(struct np_window *window, bool present,
			  void (*failed)(struct np_slice *slice,
					 unsigned int i))
{
	unsigned long at = window->first, end = at + window->pages;
	struct np_slice *slice;

	for (; at < end; at += NP_SLICE_PAGES) {
		slice = np_region_slice(window->region, at);
		if (!slice)
			continue;
		np_slice_lock(slice);
		np_view_change(window, slice, 0, slice->pages,
			       np_view_bit(window), present, failed);
		np_slice_drop_failed(slice, 0, slice->pages);
		np_slice_unlock(slice);
		np_slice_put(slice);
		cond_resched();
	}
}

/*
 * From now on the window takes part. What is mapped already, it is given slice
 * by slice; a slice that changes meanwhile changes in it too.
 */
int np_views_add(struct np_window *window)
{
	struct np_region *region = window->region;

	window->span.start = window->first;
	window->span.last = window->first + window->pages - 1;
	down_write(&region->windows_lock);
	if (np_views_full(window)) {
		up_write(&region->windows_lock);
		return -EDQUOT;
	}
	interval_tree_insert(&window->span, &region->windows);
	up_write(&region->windows_lock);
	np_views_walk(window, true, np_view_failed);
	return 0;
}

/*
 * All of the window is absent, and flushed; then it takes part no more. A
 * device that is taken out of the machine waits for this: nothing here waits
 * for pages that are on their way in.
 */
void np_views_remove(struct np_window *window)
{
	struct np_region *region = window->region;

	down_write(&region->windows_lock);
	window->closing = true;
	up_write(&region->windows_lock);
	np_views_walk(window, false, np_view_gap);
	down_write(&region->windows_lock);
	interval_tree_remove(&window->span, &region->windows);
	up_write(&region->windows_lock);
}
