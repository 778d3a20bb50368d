// SPDX-License-Identifier: GPL-2.0-only
/*
 * Slices of regions: the state of each page, and the two transitions there are.
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

u64 np_slice_bytes(unsigned int pages)
{
	return sizeof(struct np_slice) + pages * (sizeof(u64) + sizeof(u32));
}

/* With all pages absent, and a notifier */
struct np_slice *np_slice_make(struct np_region *region, unsigned long index)
{
	struct np_slice *slice;
	int ret = -ENOMEM;

	slice = kzalloc(sizeof(*slice), GFP_KERNEL_ACCOUNT);
	if (!slice)
		return ERR_PTR(-ENOMEM);
	refcount_set(&slice->refs, 1);
	slice->region = region;
	slice->first = round_down(index, NP_SLICE_PAGES);
	slice->pages = min_t(unsigned long, NP_SLICE_PAGES,
			     region->pages - slice->first);
	mutex_init(&slice->lock);
	INIT_LIST_HEAD(&slice->looks);
	slice->state = kvcalloc(slice->pages, sizeof(*slice->state),
				GFP_KERNEL_ACCOUNT);
	slice->entries = kvcalloc(slice->pages, sizeof(*slice->entries),
				  GFP_KERNEL_ACCOUNT);
	if (!slice->state || !slice->entries)
		goto free_slice;
	slice->range.start = region->start + (slice->first << PAGE_SHIFT);
	slice->range.last = slice->range.start +
			    ((unsigned long)slice->pages << PAGE_SHIFT) - 1;
	ret = np_space_add(region->context->space, slice);
	if (ret)
		goto free_slice;
	ret = np_notify_start(slice);
	if (ret)
		goto remove;
	return slice;

remove:
	np_space_remove(region->context->space, slice);
free_slice:
	kvfree(slice->state);
	kvfree(slice->entries);
	kfree(slice);
	return ERR_PTR(ret);
}

/* Nobody gives it anything any more. As long as it has pages it must be told of
 * them: without a notifier the kernel gives them to others at once. Whoever is
 * about to bring something in finds out when it has come.
 */
void np_slice_end(struct np_slice *slice)
{
	np_slice_lock(slice);
	WRITE_ONCE(slice->dead, true);
	np_slice_take(slice, 0, slice->pages, NP_BOTH);
	np_slice_unlock(slice);
	np_notify_stop(slice);
	np_space_remove(slice->region->context->space, slice);
}

/* The last one is after its end */
void np_slice_put(struct np_slice *slice)
{
	if (!refcount_dec_and_test(&slice->refs))
		return;
	np_user_uncharge(slice->region->context->user,
			 np_slice_bytes(slice->pages));
	kvfree(slice->state);
	kvfree(slice->entries);
	mutex_destroy(&slice->lock);
	kfree(slice);
}

/* All that taking and giving needs */
void np_slice_lock(struct np_slice *slice)
{
	mutex_lock(&slice->lock);
	down_read(&slice->region->windows_lock);
}

/* Without waiting for anybody */
bool np_slice_trylock(struct np_slice *slice)
{
	if (!mutex_trylock(&slice->lock))
		return false;
	if (down_read_trylock(&slice->region->windows_lock))
		return true;
	mutex_unlock(&slice->lock);
	return false;
}

void np_slice_unlock(struct np_slice *slice)
{
	up_read(&slice->region->windows_lock);
	mutex_unlock(&slice->lock);
}

/* The module's own entry decides; the table is only written */
static void np_slice_entry(struct np_slice *slice, unsigned int i)
{
	u32 entry = slice->entries[i];

	entry = ((entry & ~NP_ENTRY_BITS) + NPRDMA_ENTRY_STEP) |
		(u32)(slice->state[i] & NP_BOTH);
	slice->entries[i] = entry;
	np_region_entry(slice->region, slice->first + i, entry);
}

static struct folio *np_slice_folio(struct np_slice *slice, unsigned int i)
{
	return page_folio(pfn_to_page(PHYS_PFN(slice->state[i] & PAGE_MASK)));
}

/* Calls that only protect pages of hugetlb may take reading away as well */
static u64 np_slice_moving(struct np_slice *slice, unsigned int i, u64 bits)
{
	u64 mapped = slice->state[i] & NP_BOTH;

	if (mapped && bits == NP_WRITE &&
	    folio_test_hugetlb(np_slice_folio(slice, i)))
		bits = NP_BOTH;
	return mapped & bits;
}

static void np_slice_taken(struct np_slice *slice, unsigned int i)
{
	struct np_stats *stats = &slice->region->context->stats;

	/* The page is still the process's: the caller has not returned yet */
	if (slice->state[i] & NP_MOVE_WRITE)
		folio_mark_dirty(np_slice_folio(slice, i));
	slice->state[i] &= ~NP_MOVE_BOTH;
	if (slice->state[i] & NP_BOTH) {
		atomic64_inc(&stats->downgraded);
		return;
	}
	slice->state[i] &= ~PAGE_MASK;
	slice->mapped--;
	atomic64_inc(&stats->unmapped);
}

/*
 * Pages [from, to) of the slice lose these bits. Allocates nothing and waits
 * for nobody but readers of RCU; when it returns, no device reaches them so.
 */
void np_slice_take(struct np_slice *slice, unsigned int from, unsigned int to,
		   u64 bits)
{
	unsigned int i, first = to, end = from;
	u64 moving;

	lockdep_assert_held(&slice->lock);
	if (!slice->mapped)
		return;
	for (i = from; i < to; i++) {
		moving = np_slice_moving(slice, i, bits);
		if (!moving)
			continue;
		slice->state[i] &= ~moving;
		slice->state[i] |= moving << NP_MOVE_SHIFT;
		np_slice_entry(slice, i);
		first = min(first, i);
		end = i + 1;
	}
	if (first >= end)
		return;
	/* Who reads what the views have then, also sees the entry */
	dma_wmb();
	np_views_take(slice, first, end);
	for (i = first; i < end; i++) {
		if (slice->state[i] & NP_MOVE_BOTH)
			np_slice_taken(slice, i);
	}
}

/* Who is just bringing in some of pages [from, to) must look again */
void np_slice_hit(struct np_slice *slice, unsigned int from, unsigned int to)
{
	struct np_look *look;

	lockdep_assert_held(&slice->lock);
	list_for_each_entry(look, &slice->looks, link) {
		if (look->from < to && from < look->to)
			look->hit = true;
	}
}

/* Pages that some view could not be given are absent in all */
void np_slice_drop_failed(struct np_slice *slice, unsigned int from,
			  unsigned int to)
{
	unsigned int i;

	lockdep_assert_held(&slice->lock);
	for (i = from; i < to; i++) {
		if (slice->state[i] & NP_FAILED) {
			slice->state[i] &= ~NP_FAILED;
			np_slice_take(slice, i, i + 1, NP_BOTH);
		}
	}
}

static void np_slice_given(struct np_slice *slice, unsigned int i)
{
	struct np_stats *stats = &slice->region->context->stats;
	u64 moved = (slice->state[i] & NP_MOVE_BOTH) >> NP_MOVE_SHIFT;

	if (slice->state[i] & NP_BOTH) {
		atomic64_inc(&stats->upgraded);
	} else {
		atomic64_inc(&stats->mapped);
		slice->mapped++;
	}
	slice->state[i] &= ~NP_MOVE_BOTH;
	slice->state[i] |= moved;
	np_slice_entry(slice, i);
	/*
	 * No processor may ever touch it: what the NIC uses must not look cold
	 */
	if (!is_zero_pfn(PHYS_PFN(slice->state[i] & PAGE_MASK)))
		folio_mark_accessed(np_slice_folio(slice, i));
}

/*
 * Pages [from, to) of the slice are at pfns[] and become mapped so. The caller
 * has made sure that the kernel still says so.
 */
void np_slice_give(struct np_slice *slice, unsigned int from, unsigned int to,
		   const unsigned long *pfns, u64 bits)
{
	unsigned int i, first = to, end = from;
	phys_addr_t phys;

	lockdep_assert_held(&slice->lock);
	for (i = from; i < to; i++) {
		phys = PFN_PHYS(pfns[i - from]);
		if (slice->state[i] & NP_BOTH &&
		    WARN_ON_ONCE((slice->state[i] & PAGE_MASK) != phys))
			np_slice_take(slice, i, i + 1, NP_BOTH);
		if ((slice->state[i] & bits) == bits)
			continue;
		slice->state[i] |= phys |
			((bits & ~slice->state[i]) << NP_MOVE_SHIFT);
		first = min(first, i);
		end = i + 1;
	}
	if (first >= end)
		return;
	np_views_give(slice, first, end);
	/* Who sees the entry, also sees what the views have */
	dma_wmb();
	for (i = first; i < end; i++) {
		if (slice->state[i] & NP_MOVE_BOTH)
			np_slice_given(slice, i);
	}
	np_slice_drop_failed(slice, first, end);
}
