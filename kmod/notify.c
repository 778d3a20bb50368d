// SPDX-License-Identifier: GPL-2.0
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
	struct np_piece *piece = container_of(notifier, struct np_piece,
					      notifier);
	struct np_region *region = piece->region;
	struct np_stats *stats = &region->context->stats;
	unsigned long base = region->start + (piece->first << PAGE_SHIFT);
	unsigned long last = base + ((unsigned long)piece->pages << PAGE_SHIFT);
	unsigned int from = (max(base, range->start) - base) >> PAGE_SHIFT;
	unsigned int to = PAGE_ALIGN(min(last, range->end) - base) >> PAGE_SHIFT;

	if (mmu_notifier_range_blockable(range)) {
		np_piece_lock(piece);
	} else if (READ_ONCE(np_sync_rcu) || !np_piece_trylock(piece)) {
		atomic64_inc(&stats->refused);
		return false;
	}
	mmu_interval_set_seq(notifier, sequence);
	atomic64_inc(&stats->invalidations);
	np_piece_hit(piece, from, to);
	np_piece_take(piece, from, to, np_notify_bits(range));
	np_piece_unlock(piece);
	return true;
}

static const struct mmu_interval_notifier_ops np_notify_ops = {
	.invalidate = np_notify,
};

int np_notify_start(struct np_piece *piece)
{
	struct np_region *region = piece->region;

	/* Reclaim takes this lock: say so before it happens */
	fs_reclaim_acquire(GFP_KERNEL);
	might_lock(&piece->lock);
	fs_reclaim_release(GFP_KERNEL);

	return mmu_interval_notifier_insert(&piece->notifier,
					    region->context->mm,
					    region->start +
					    (piece->first << PAGE_SHIFT),
					    (unsigned long)piece->pages <<
					    PAGE_SHIFT, &np_notify_ops);
}

void np_notify_stop(struct np_piece *piece)
{
	mmu_interval_notifier_remove(&piece->notifier);
}
