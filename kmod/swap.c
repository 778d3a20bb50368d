// SPDX-License-Identifier: GPL-2.0-only
/* What is mapped ahead of a transfer, and taken without the kernel's asking */
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "nprdma.h"

#define NP_PREFETCHES	64	/* of a context, under way */

struct np_prefetch {
	struct work_struct work;
	struct np_region *region;
	unsigned long from;
	unsigned long to;
	u32 flags;
};

static void np_prefetch_end(struct np_prefetch *prefetch)
{
	atomic_dec(&prefetch->region->context->prefetches);
	np_region_put(prefetch->region);
	kfree(prefetch);
}

/* Up to the end of a slice; false: there is no more to be done */
static bool np_prefetch_slice(struct np_prefetch *prefetch)
{
	unsigned long end = min(prefetch->to,
				round_down(prefetch->from, NP_SLICE_PAGES) +
				NP_SLICE_PAGES);
	struct np_context *context = prefetch->region->context;
	unsigned long done;
	int ret;

	if (!np_space_enter(context))
		return false;
	ret = np_fault(prefetch->region, prefetch->from, end,
		       prefetch->flags | NP_FAULT_AHEAD, &done);
	np_space_leave(context);
	prefetch->from = end;
	return !ret && end < prefetch->to;
}

/* Slice by slice: between two of them the address space may end, and others
 * have their turn.
 */
static void np_prefetch_work(struct work_struct *work)
{
	struct np_prefetch *prefetch = container_of(work, struct np_prefetch,
						    work);

	if (np_prefetch_slice(prefetch))
		queue_work(np_queue, &prefetch->work);
	else
		np_prefetch_end(prefetch);
}

int np_prefetch(struct np_region *region, unsigned long from, unsigned long to,
		u32 flags)
{
	struct np_prefetch *prefetch;
	int ret;

	if (flags & NPRDMA_FAULT_WRITE && region->rdonly)
		return -EACCES;
	/* Here, so that it is this process that is charged */
	ret = np_region_grow(region, from, to);
	if (ret)
		return ret;
	prefetch = kzalloc(sizeof(*prefetch), GFP_KERNEL_ACCOUNT);
	if (!prefetch)
		return -ENOMEM;
	INIT_WORK(&prefetch->work, np_prefetch_work);
	kref_get(&region->refs);
	prefetch->region = region;
	prefetch->from = from;
	prefetch->to = to;
	prefetch->flags = flags;
	if (atomic_inc_return(&region->context->prefetches) > NP_PREFETCHES) {
		np_prefetch_end(prefetch);
		return -EAGAIN;
	}
	queue_work(np_queue, &prefetch->work);
	return 0;
}

/* A function of slices, over those that pages [from, to) of the region have */
static void np_each_slice(struct np_region *region, unsigned long from,
			  unsigned long to,
			  void (*function)(struct np_slice *slice,
					   unsigned int from,
					   unsigned int to))
{
	struct np_slice *slice;
	unsigned long end;

	for (; from < to; from = end) {
		end = min(to, round_down(from, NP_SLICE_PAGES) +
			      NP_SLICE_PAGES);
		slice = np_region_slice(region, from);
		if (!slice)
			continue;
		np_slice_lock(slice);
		function(slice, from - slice->first, end - slice->first);
		np_slice_unlock(slice);
		np_slice_put(slice);
		cond_resched();
	}
}

static void np_slice_absent(struct np_slice *slice, unsigned int from,
			    unsigned int to)
{
	np_slice_take(slice, from, to, NP_BOTH);
}

static void np_slice_block(struct np_slice *slice, unsigned int from,
			   unsigned int to)
{
	unsigned int i;

	for (i = from; i < to; i++)
		slice->state[i] |= NP_BLOCKED;
	np_slice_take(slice, from, to, NP_BOTH);
}

static void np_slice_unblock(struct np_slice *slice, unsigned int from,
			     unsigned int to)
{
	unsigned int i;

	for (i = from; i < to; i++)
		slice->state[i] &= ~NP_BLOCKED;
}

int np_invalidate(struct np_region *region, unsigned long from,
		  unsigned long to, u32 flags)
{
	if (READ_ONCE(region->dead))
		return -ENOENT;
	np_each_slice(region, from, to, np_slice_absent);
	return 0;
}

int np_swap_out(struct np_region *region, unsigned long from,
		unsigned long to, u32 flags)
{
	int ret;

	ret = np_region_grow(region, from, to);
	if (!ret)
		np_each_slice(region, from, to, np_slice_block);
	return ret;
}

int np_swap_in(struct np_region *region, unsigned long from, unsigned long to,
	       u32 flags)
{
	unsigned long done;

	if (READ_ONCE(region->dead))
		return -ENOENT;
	np_each_slice(region, from, to, np_slice_unblock);
	if (flags & NPRDMA_RANGE_LAZY)
		return 0;
	return np_fault(region, from, to, flags, &done);
}
