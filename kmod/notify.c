// SPDX-License-Identifier: GPL-2.0-only
/* What the kernel tells when it takes pages, or changes how they are mapped */
#include <linux/sched/mm.h>

#include "nprdma.h"

/*
 * Write protection is told as PROTECTION_PAGE: a copy-on-write fork, the start
 * of writing a file's page back. Readers may go on.
 */
static u64 np_notify_bits(const struct mmu_notifier_range *range)
{
	if (range->event == MMU_NOTIFY_PROTECTION_PAGE)
		return NP_WRITE;
	return NP_BOTH;
}

static bool np_notify(struct mmu_interval_notifier *notifier,
		      const struct mmu_notifier_range *range,
		      unsigned long sequence)
{
	struct np_slice *slice = container_of(notifier, struct np_slice,
					      notifier);
	struct np_region *region = slice->region;
	struct np_stats *stats = &region->context->stats;
	unsigned long base = region->start + (slice->first << PAGE_SHIFT);
	unsigned long last = base + ((unsigned long)slice->pages << PAGE_SHIFT);
	unsigned int from = (max(base, range->start) - base) >> PAGE_SHIFT;
	unsigned int to = PAGE_ALIGN(min(last, range->end) - base) >> PAGE_SHIFT;

	if (mmu_notifier_range_blockable(range)) {
		np_slice_lock(slice);
	} else if (READ_ONCE(np_sync_rcu) || !np_slice_trylock(slice)) {
		atomic64_inc(&stats->refused);
		return false;
	}
	mmu_interval_set_seq(notifier, sequence);
	atomic64_inc(&stats->invalidations);
	np_slice_hit(slice, from, to);
	np_slice_take(slice, from, to, np_notify_bits(range));
	np_slice_unlock(slice);
	return true;
}

static const struct mmu_interval_notifier_ops np_notify_ops = {
	.invalidate = np_notify,
};

int np_notify_start(struct np_slice *slice)
{
	struct np_region *region = slice->region;

	/* Reclaim takes this lock: say so before it happens */
	fs_reclaim_acquire(GFP_KERNEL);
	might_lock(&slice->lock);
	fs_reclaim_release(GFP_KERNEL);

	return mmu_interval_notifier_insert(&slice->notifier,
					    region->context->mm,
					    region->start +
					    (slice->first << PAGE_SHIFT),
					    (unsigned long)slice->pages <<
					    PAGE_SHIFT, &np_notify_ops);
}

void np_notify_stop(struct np_slice *slice)
{
	mmu_interval_notifier_remove(&slice->notifier);
}
