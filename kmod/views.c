// SPDX-License-Identifier: GPL-2.0
/*
 * The windows of a region: what devices see of its two views. All of them
 * change together, under the lock of the piece.
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

/* Software NICs have no translation cache to flush, but readers under way */
static void np_views_settle(struct np_region *region)
{
	if (READ_ONCE(np_sync_rcu) && !list_empty(&region->windows))
		synchronize_rcu_expedited();
}

static void np_view_take(struct np_window *window, struct np_piece *piece,
			 unsigned int from, unsigned int to)
{
	u64 moving = np_view_bit(window) << NP_MOVE_SHIFT;
	struct iommu_iotlb_gather gather;
	bool changed = false;
	unsigned int i;

	iommu_iotlb_gather_init(&gather);
	for (i = from; i < to; i++) {
		if (!(piece->state[i] & moving))
			continue;
		/* Without a translation, if need be: that can be recovered
		 * from, a page that belongs to somebody else cannot.
		 */
		if (np_window_replace(window, piece->first + i, window->absent,
				      &gather))
			atomic64_inc(&piece->region->context->stats.gaps);
		changed = true;
	}
	if (changed)
		np_view_flush(window, &gather);
}

/* Pages whose bits are moving become absent where those bits count */
void np_views_take(struct np_piece *piece, unsigned int from, unsigned int to)
{
	struct np_region *region = piece->region;
	struct np_window *window;

	lockdep_assert_held_read(&region->windows_lock);
	list_for_each_entry(window, &region->windows, link)
		np_view_take(window, piece, from, to);
	np_views_settle(region);
}

static void np_view_give(struct np_window *window, struct np_piece *piece,
			 unsigned int from, unsigned int to, u64 bit)
{
	struct iommu_iotlb_gather gather;
	bool changed = false;
	unsigned int i;

	iommu_iotlb_gather_init(&gather);
	for (i = from; i < to; i++) {
		if (!(piece->state[i] & bit))
			continue;
		if (np_window_replace(window, piece->first + i,
				      piece->state[i] & PAGE_MASK, &gather))
			piece->state[i] |= NP_FAILED;
		changed = true;
	}
	/* A device may remember the way to what stood for the absent page */
	if (changed)
		np_view_flush(window, &gather);
}

/* Pages whose bits are moving become visible where those bits count */
void np_views_give(struct np_piece *piece, unsigned int from, unsigned int to)
{
	struct np_region *region = piece->region;
	struct np_window *window;

	lockdep_assert_held_read(&region->windows_lock);
	list_for_each_entry(window, &region->windows, link) {
		if (!window->closing)
			np_view_give(window, piece, from, to,
				     np_view_bit(window) << NP_MOVE_SHIFT);
	}
	np_views_settle(region);
}

/*
 * From now on the window takes part. What is mapped already, it is given piece
 * by piece; a piece that changes meanwhile changes in it too.
 */
void np_views_add(struct np_window *window)
{
	struct np_region *region = window->region;
	struct np_piece *piece;
	unsigned int i;

	down_write(&region->windows_lock);
	list_add_tail(&window->link, &region->windows);
	up_write(&region->windows_lock);
	for (i = 0; i < region->piece_count; i++) {
		piece = np_region_piece(region,
					(unsigned long)i * NP_PIECE_PAGES);
		if (!piece)
			continue;
		np_piece_lock(piece);
		np_view_give(window, piece, 0, piece->pages,
			     np_view_bit(window));
		np_piece_drop_failed(piece, 0, piece->pages);
		np_piece_unlock(piece);
		np_piece_put(piece);
		cond_resched();
	}
}

/* What is mapped of a piece becomes absent in this window alone */
static void np_view_clear(struct np_window *window, struct np_piece *piece)
{
	struct iommu_iotlb_gather gather;
	bool changed = false;
	unsigned int i;

	iommu_iotlb_gather_init(&gather);
	for (i = 0; i < piece->pages; i++) {
		if (!(piece->state[i] & np_view_bit(window)))
			continue;
		np_window_replace(window, piece->first + i, window->absent,
				  &gather);
		changed = true;
	}
	if (changed)
		np_view_flush(window, &gather);
}

/*
 * All of the window is absent, and flushed; then it takes part no more. A device
 * that is taken out of the machine waits for this: nothing here waits for pages
 * that are on their way in.
 */
void np_views_remove(struct np_window *window)
{
	struct np_region *region = window->region;
	struct np_piece *piece;
	unsigned int i;

	down_write(&region->windows_lock);
	window->closing = true;
	up_write(&region->windows_lock);
	for (i = 0; i < region->piece_count; i++) {
		piece = np_region_piece(region,
					(unsigned long)i * NP_PIECE_PAGES);
		if (!piece)
			continue;
		np_piece_lock(piece);
		np_view_clear(window, piece);
		np_piece_unlock(piece);
		np_piece_put(piece);
		cond_resched();
	}
	down_write(&region->windows_lock);
	list_del(&window->link);
	up_write(&region->windows_lock);
}
