// SPDX-License-Identifier: GPL-2.0
/*
 * Pieces of regions: the state of each page, and the two transitions there are.
 * Their order is what a peer's check relies on:
 *
 * take: entry, then views, then flush, then dirty; then the kernel may go on
 * give: views, then flush, then entry
 */
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/swap.h>

#include "nprdma.h"

u64 np_piece_bytes(unsigned int pages)
{
	return sizeof(struct np_piece) + pages * (sizeof(u64) + sizeof(u32));
}

/* With all pages absent, and a notifier */
struct np_piece *np_piece_make(struct np_region *region, unsigned long index)
{
	struct np_piece *piece;
	int ret = -ENOMEM;

	piece = kzalloc(sizeof(*piece), GFP_KERNEL_ACCOUNT);
	if (!piece)
		return ERR_PTR(-ENOMEM);
	refcount_set(&piece->refs, 1);
	piece->region = region;
	piece->first = round_down(index, NP_PIECE_PAGES);
	piece->pages = min_t(unsigned long, NP_PIECE_PAGES,
			     region->pages - piece->first);
	mutex_init(&piece->lock);
	INIT_LIST_HEAD(&piece->looks);
	piece->state = kvcalloc(piece->pages, sizeof(*piece->state),
				GFP_KERNEL_ACCOUNT);
	piece->entries = kvcalloc(piece->pages, sizeof(*piece->entries),
				  GFP_KERNEL_ACCOUNT);
	if (!piece->state || !piece->entries)
		goto free_piece;
	piece->range.start = region->start + (piece->first << PAGE_SHIFT);
	piece->range.last = piece->range.start +
			    ((unsigned long)piece->pages << PAGE_SHIFT) - 1;
	ret = np_space_add(region->context->space, piece);
	if (ret)
		goto free_piece;
	ret = np_notify_start(piece);
	if (ret)
		goto remove;
	return piece;

remove:
	np_space_remove(region->context->space, piece);
free_piece:
	kvfree(piece->state);
	kvfree(piece->entries);
	kfree(piece);
	return ERR_PTR(ret);
}

/* Nobody gives it anything any more. As long as it has pages it must be told of
 * them: without a notifier the kernel gives them to others at once. Whoever is
 * about to bring something in finds out when it has come.
 */
void np_piece_end(struct np_piece *piece)
{
	np_piece_lock(piece);
	WRITE_ONCE(piece->dead, true);
	np_piece_take(piece, 0, piece->pages, NP_BOTH);
	np_piece_unlock(piece);
	np_notify_stop(piece);
	np_space_remove(piece->region->context->space, piece);
}

/* The last one is after its end */
void np_piece_put(struct np_piece *piece)
{
	if (!refcount_dec_and_test(&piece->refs))
		return;
	np_user_uncharge(piece->region->context->user,
			 np_piece_bytes(piece->pages));
	kvfree(piece->state);
	kvfree(piece->entries);
	mutex_destroy(&piece->lock);
	kfree(piece);
}

/* All that taking and giving needs */
void np_piece_lock(struct np_piece *piece)
{
	mutex_lock(&piece->lock);
	down_read(&piece->region->windows_lock);
}

/* Without waiting for anybody */
bool np_piece_trylock(struct np_piece *piece)
{
	if (!mutex_trylock(&piece->lock))
		return false;
	if (down_read_trylock(&piece->region->windows_lock))
		return true;
	mutex_unlock(&piece->lock);
	return false;
}

void np_piece_unlock(struct np_piece *piece)
{
	up_read(&piece->region->windows_lock);
	mutex_unlock(&piece->lock);
}

/* The module's own entry decides; the table is only written */
static void np_piece_entry(struct np_piece *piece, unsigned int i)
{
	u32 entry = piece->entries[i];

	entry = ((entry & ~NP_ENTRY_BITS) + NPRDMA_ENTRY_STEP) |
		(u32)(piece->state[i] & NP_BOTH);
	piece->entries[i] = entry;
	np_region_entry(piece->region, piece->first + i, entry);
}

static struct folio *np_piece_folio(struct np_piece *piece, unsigned int i)
{
	return page_folio(pfn_to_page(PHYS_PFN(piece->state[i] & PAGE_MASK)));
}

/* Calls that only protect pages of hugetlb may take reading away as well */
static u64 np_piece_moving(struct np_piece *piece, unsigned int i, u64 bits)
{
	u64 mapped = piece->state[i] & NP_BOTH;

	if (mapped && bits == NP_WRITE &&
	    folio_test_hugetlb(np_piece_folio(piece, i)))
		bits = NP_BOTH;
	return mapped & bits;
}

static void np_piece_taken(struct np_piece *piece, unsigned int i)
{
	struct np_stats *stats = &piece->region->context->stats;

	/* The page is still the process's: the caller has not returned yet */
	if (piece->state[i] & NP_MOVE_WRITE)
		folio_mark_dirty(np_piece_folio(piece, i));
	piece->state[i] &= ~NP_MOVE_BOTH;
	if (piece->state[i] & NP_BOTH) {
		atomic64_inc(&stats->downgraded);
		return;
	}
	piece->state[i] &= ~PAGE_MASK;
	piece->mapped--;
	atomic64_inc(&stats->unmapped);
}

/*
 * Pages [from, to) of the piece lose these bits. Allocates nothing and waits
 * for nobody but readers of RCU; when it returns, no device reaches them so.
 */
void np_piece_take(struct np_piece *piece, unsigned int from, unsigned int to,
		   u64 bits)
{
	unsigned int i, first = to, end = from;
	u64 moving;

	lockdep_assert_held(&piece->lock);
	if (!piece->mapped)
		return;
	for (i = from; i < to; i++) {
		moving = np_piece_moving(piece, i, bits);
		if (!moving)
			continue;
		piece->state[i] &= ~moving;
		piece->state[i] |= moving << NP_MOVE_SHIFT;
		np_piece_entry(piece, i);
		first = min(first, i);
		end = i + 1;
	}
	if (first >= end)
		return;
	/* Who reads what the views have then, also sees the entry */
	dma_wmb();
	np_views_take(piece, first, end);
	for (i = first; i < end; i++) {
		if (piece->state[i] & NP_MOVE_BOTH)
			np_piece_taken(piece, i);
	}
}

/* Who is just bringing in some of pages [from, to) must look again */
void np_piece_hit(struct np_piece *piece, unsigned int from, unsigned int to)
{
	struct np_look *look;

	lockdep_assert_held(&piece->lock);
	list_for_each_entry(look, &piece->looks, link) {
		if (look->from < to && from < look->to)
			look->hit = true;
	}
}

/* Pages that some view could not be given are absent in all */
void np_piece_drop_failed(struct np_piece *piece, unsigned int from,
			  unsigned int to)
{
	unsigned int i;

	lockdep_assert_held(&piece->lock);
	for (i = from; i < to; i++) {
		if (piece->state[i] & NP_FAILED) {
			piece->state[i] &= ~NP_FAILED;
			np_piece_take(piece, i, i + 1, NP_BOTH);
		}
	}
}

static void np_piece_given(struct np_piece *piece, unsigned int i)
{
	struct np_stats *stats = &piece->region->context->stats;
	u64 moved = (piece->state[i] & NP_MOVE_BOTH) >> NP_MOVE_SHIFT;

	if (piece->state[i] & NP_BOTH) {
		atomic64_inc(&stats->upgraded);
	} else {
		atomic64_inc(&stats->mapped);
		piece->mapped++;
	}
	piece->state[i] &= ~NP_MOVE_BOTH;
	piece->state[i] |= moved;
	np_piece_entry(piece, i);
	/*
	 * No processor may ever touch it: what the NIC uses must not look cold
	 */
	if (!is_zero_pfn(PHYS_PFN(piece->state[i] & PAGE_MASK)))
		folio_mark_accessed(np_piece_folio(piece, i));
}

/*
 * Pages [from, to) of the piece are at pfns[] and become mapped so. The caller
 * has made sure that the kernel still says so.
 */
void np_piece_give(struct np_piece *piece, unsigned int from, unsigned int to,
		   const unsigned long *pfns, u64 bits)
{
	unsigned int i, first = to, end = from;
	phys_addr_t phys;

	lockdep_assert_held(&piece->lock);
	for (i = from; i < to; i++) {
		phys = PFN_PHYS(pfns[i - from]);
		if (piece->state[i] & NP_BOTH &&
		    WARN_ON_ONCE((piece->state[i] & PAGE_MASK) != phys))
			np_piece_take(piece, i, i + 1, NP_BOTH);
		if ((piece->state[i] & bits) == bits)
			continue;
		piece->state[i] |= phys |
			((bits & ~piece->state[i]) << NP_MOVE_SHIFT);
		first = min(first, i);
		end = i + 1;
	}
	if (first >= end)
		return;
	np_views_give(piece, first, end);
	/* Who sees the entry, also sees what the views have */
	dma_wmb();
	for (i = first; i < end; i++) {
		if (piece->state[i] & NP_MOVE_BOTH)
			np_piece_given(piece, i);
	}
	np_piece_drop_failed(piece, first, end);
}
