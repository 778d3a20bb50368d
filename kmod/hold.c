// SPDX-License-Identifier: GPL-2.0
/*
 * Holds: pages that are pinned for the length of a transfer, so that reclaim
 * leaves them alone. No notifier waits for one, and a hold does not keep an
 * entry: fork, munmap and others take pages all the same.
 */
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "nprdma.h"

struct np_hold {
	struct np_context *context;
	unsigned int count;
	struct page *pages[];
};

static void np_hold_uncharge(struct np_context *context, unsigned int count)
{
	atomic_sub(count, &context->stats.held);
	np_user_unhold(context->user, count);
}

static int np_hold_charge(struct np_context *context, unsigned int count)
{
	int ret;

	ret = np_user_hold(context->user, count);
	if (ret)
		return ret;
	if (atomic_add_return(count, &context->stats.held) <=
	    READ_ONCE(np_hold_pages))
		return 0;
	np_hold_uncharge(context, count);
	return -EDQUOT;
}

static void np_hold_free(struct np_hold *hold)
{
	unpin_user_pages(hold->pages, hold->count);
	np_hold_uncharge(hold->context, hold->count);
	kvfree(hold);
}

/* Brings the pages in and pins them all, or fails */
static int np_hold_pin(struct np_hold *hold, unsigned long addr,
		       unsigned int count, bool write)
{
	long pinned;

	while (hold->count < count) {
		pinned = pin_user_pages_fast(addr +
					     ((unsigned long)hold->count <<
					      PAGE_SHIFT),
					     count - hold->count,
					     write ? FOLL_WRITE : 0,
					     hold->pages + hold->count);
		if (pinned <= 0)
			return pinned ? pinned : -EFAULT;
		hold->count += pinned;
	}
	return 0;
}

static struct np_hold *np_hold_make(struct np_region *region,
				    unsigned long from, unsigned long to,
				    u32 flags)
{
	struct np_context *context = region->context;
	unsigned int count = to - from;
	struct np_hold *hold;
	int ret;

	if (to - from > READ_ONCE(np_hold_pages))
		return ERR_PTR(-EDQUOT);
	hold = kvzalloc(struct_size(hold, pages, count), GFP_KERNEL_ACCOUNT);
	if (!hold)
		return ERR_PTR(-ENOMEM);
	hold->context = context;
	ret = np_hold_charge(context, count);
	if (ret)
		goto free_hold;
	ret = np_hold_pin(hold, region->start + (from << PAGE_SHIFT), count,
			  flags & NPRDMA_FAULT_WRITE);
	if (ret)
		goto unpin;
	return hold;

unpin:
	unpin_user_pages(hold->pages, hold->count);
	np_hold_uncharge(context, count);
free_hold:
	kvfree(hold);
	return ERR_PTR(ret);
}

/* As np_fault(); if it succeeds, *number is that of a hold of all pages */
int np_hold_fault(struct np_region *region, unsigned long from,
		  unsigned long to, u32 flags, unsigned long *done,
		  u32 *number)
{
	struct np_context *context = region->context;
	struct np_hold *hold = NULL;
	int ret;

	/* What may not be written says so best without a pin */
	if (!(flags & NPRDMA_FAULT_WRITE && region->rdonly)) {
		hold = np_hold_make(region, from, to, flags);
		if (IS_ERR(hold) && PTR_ERR(hold) != -EFAULT)
			return PTR_ERR(hold);
	}
	/* If they cannot be pinned: how far is it, and why? */
	ret = np_fault(region, from, to, flags, done);
	if (IS_ERR_OR_NULL(hold))
		return ret ? ret : -EFAULT;
	if (!ret)
		ret = xa_alloc(&context->holds, number, hold, NP_NUMBERS,
			       GFP_KERNEL_ACCOUNT);
	if (ret)
		np_hold_free(hold);
	return ret;
}

int np_hold_release(struct np_context *context, u32 number)
{
	struct np_hold *hold = NULL;

	if (number)
		hold = xa_erase(&context->holds, number);
	if (!hold)
		return -ENOENT;
	np_hold_free(hold);
	return 0;
}

void np_hold_release_all(struct np_context *context)
{
	struct np_hold *hold;
	unsigned long number;

	xa_for_each(&context->holds, number, hold) {
		hold = xa_erase(&context->holds, number);
		if (hold)
			np_hold_free(hold);
	}
}
