// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions: addresses of a process, cut into slices that are made when something
 * in them is first mapped, and the table that others read. Nothing here asks
 * what memory it is, or whether there is any.
 */
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "nprdma.h"

#define NP_TABLE_ENTRIES	(PAGE_SIZE / sizeof(u32))

static void np_table_free(struct page **table, unsigned int pages)
{
	unsigned int i;

	if (!table)
		return;
	for (i = 0; i < pages && table[i]; i++)
		__free_page(table[i]);
	kvfree(table);
}

static struct page **np_table_make(unsigned int pages)
{
	struct page **table;
	unsigned int i;

	table = kvcalloc(pages, sizeof(*table), GFP_KERNEL_ACCOUNT);
	if (!table)
		return NULL;
	for (i = 0; i < pages; i++) {
		table[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!table[i] || fatal_signal_pending(current)) {
			np_table_free(table, pages);
			return NULL;
		}
		cond_resched();
	}
	return table;
}

/* Makes the table, which nobody who creates a region should wait for */
int np_region_table(struct np_region *region)
{
	mutex_lock(&region->grow);
	if (!region->table)
		region->table = np_table_make(region->table_pages);
	mutex_unlock(&region->grow);
	return region->table ? 0 : -ENOMEM;
}

void np_region_entry(struct np_region *region, unsigned long index, u32 entry)
{
	u32 *entries = page_address(region->table[index / NP_TABLE_ENTRIES]);

	WRITE_ONCE(entries[index % NP_TABLE_ENTRIES], entry);
}

static void np_region_free(struct kref *refs)
{
	struct np_region *region = container_of(refs, struct np_region, refs);
	struct np_context *context = region->context;

	np_table_free(region->table, region->table_pages);
	kvfree(region->slices);
	np_user_uncharge(context->user, region->charged);
	kfree(region);
	np_context_put(context);
}

void np_region_put(struct np_region *region)
{
	kref_put(&region->refs, np_region_free);
}

struct np_region *np_region_get(struct np_context *context, u32 number)
{
	struct np_region *region;

	xa_lock(&context->regions);
	region = xa_load(&context->regions, number);
	if (region)
		kref_get(&region->refs);
	xa_unlock(&context->regions);
	return region;
}

static int np_region_range(const struct nprdma_region_create *create)
{
	u64 end;

	if (!create->length || create->length > NP_REGION_MAX ||
	    !PAGE_ALIGNED(create->addr) || !PAGE_ALIGNED(create->length) ||
	    check_add_overflow(create->addr, create->length, &end) ||
	    end > TASK_SIZE)
		return -EINVAL;
	return 0;
}

static struct np_region *np_region_make(struct np_context *context,
					struct nprdma_region_create *create)
{
	struct np_region *region;
	int ret = -ENOMEM;

	region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);
	if (!region)
		return ERR_PTR(-ENOMEM);
	kref_init(&region->refs);
	region->start = create->addr;
	region->pages = create->length >> PAGE_SHIFT;
	region->rdonly = create->flags & NPRDMA_REGION_RDONLY;
	mutex_init(&region->grow);
	spin_lock_init(&region->slots_lock);
	init_rwsem(&region->windows_lock);
	region->windows = RB_ROOT_CACHED;
	region->slice_count = DIV_ROUND_UP(region->pages, NP_SLICE_PAGES);
	region->table_pages = DIV_ROUND_UP(region->pages, NP_TABLE_ENTRIES);
	region->charged = sizeof(*region) +
			  region->table_pages *
				  (PAGE_SIZE + sizeof(*region->table)) +
			  region->slice_count * sizeof(*region->slices);
	ret = np_user_charge(context->user, region->charged);
	if (ret)
		goto free_region;
	ret = -ENOMEM;
	region->slices = kvcalloc(region->slice_count, sizeof(*region->slices),
				  GFP_KERNEL_ACCOUNT);
	if (!region->slices)
		goto uncharge;
	kref_get(&context->refs);
	region->context = context;
	return region;

uncharge:
	np_user_uncharge(context->user, region->charged);
free_region:
	kfree(region);
	return ERR_PTR(ret);
}

int np_region_create(struct np_context *context,
		     struct nprdma_region_create *create)
{
	struct np_region *region;
	int ret;

	ret = np_region_range(create);
	if (ret)
		return ret;
	ret = np_user_add_region(context->user);
	if (ret)
		return ret;
	atomic_inc(&context->stats.regions);
	region = np_region_make(context, create);
	if (IS_ERR(region)) {
		ret = PTR_ERR(region);
		goto uncount;
	}
	ret = xa_alloc(&context->regions, &create->region, region,
		       NP_NUMBERS, GFP_KERNEL_ACCOUNT);
	if (ret) {
		np_region_put(region);
		goto uncount;
	}
	return 0;

uncount:
	atomic_dec(&context->stats.regions);
	np_user_drop_region(context->user);
	return ret;
}

/* Everything in it turns absent for good. Waits for nobody who brings a page
 * in: that one has a reference to its slice, and is refused in the end.
 */
void np_region_kill(struct np_region *region)
{
	struct np_slice *slice;
	unsigned int i;

	atomic_dec(&region->context->stats.regions);
	np_user_drop_region(region->context->user);
	mutex_lock(&region->grow);
	WRITE_ONCE(region->dead, true);
	mutex_unlock(&region->grow);
	/* From here on nobody else changes slots. A slice leaves its own when
	 * nothing of it is mapped: the end of a window looks for what is.
	 */
	for (i = 0; i < region->slice_count; i++) {
		slice = region->slices[i];
		if (!slice)
			continue;
		np_slice_end(slice);
		spin_lock(&region->slots_lock);
		region->slices[i] = NULL;
		spin_unlock(&region->slots_lock);
		np_slice_put(slice);
		cond_resched();
	}
}

int np_region_destroy(struct np_context *context, u32 number)
{
	struct np_region *region = NULL;

	if (number)
		region = xa_erase(&context->regions, number);
	if (!region)
		return -ENOENT;
	np_region_kill(region);
	np_region_put(region);
	return 0;
}

/* A reference to the slice of that page, NULL if there is none */
struct np_slice *np_region_slice(struct np_region *region, unsigned long index)
{
	struct np_slice *slice;

	spin_lock(&region->slots_lock);
	slice = region->slices[index / NP_SLICE_PAGES];
	if (slice)
		refcount_inc(&slice->refs);
	spin_unlock(&region->slots_lock);
	return slice;
}

/* Under region->grow: a new slice in its slot */
static int np_region_add_slice(struct np_region *region, unsigned long index)
{
	struct np_user *user = region->context->user;
	struct np_slice *slice;
	u64 bytes;
	int ret;

	bytes = np_slice_bytes(min_t(unsigned long, NP_SLICE_PAGES,
				     region->pages -
				     round_down(index, NP_SLICE_PAGES)));
	ret = np_user_charge(user, bytes);
	if (ret)
		return ret;
	slice = np_slice_make(region, index);
	if (IS_ERR(slice)) {
		np_user_uncharge(user, bytes);
		return PTR_ERR(slice);
	}
	spin_lock(&region->slots_lock);
	region->slices[index / NP_SLICE_PAGES] = slice;
	spin_unlock(&region->slots_lock);
	return 0;
}

/* As np_region_slice(); what is not there is made. Or an error */
struct np_slice *np_region_slice_make(struct np_region *region,
				      unsigned long index)
{
	struct np_slice *slice = np_region_slice(region, index);
	int ret;

	if (slice)
		return slice;
	ret = np_region_table(region);
	if (ret)
		return ERR_PTR(ret);
	mutex_lock(&region->grow);
	/* Others may have made it meanwhile, or ended all of it */
	if (region->dead)
		ret = -ENOENT;
	else if (!region->slices[index / NP_SLICE_PAGES])
		ret = np_region_add_slice(region, index);
	if (!ret)
		slice = np_region_slice(region, index);
	mutex_unlock(&region->grow);
	return ret ? ERR_PTR(ret) : slice;
}

/* Makes the slices of pages [from, to) */
int np_region_grow(struct np_region *region, unsigned long from,
		   unsigned long to)
{
	struct np_slice *slice;

	from = round_down(from, NP_SLICE_PAGES);
	for (; from < to; from += NP_SLICE_PAGES) {
		if (fatal_signal_pending(current))
			return -EINTR;
		slice = np_region_slice_make(region, from);
		if (IS_ERR(slice))
			return PTR_ERR(slice);
		np_slice_put(slice);
	}
	return 0;
}

/* What a user says, as pages of the region */
int np_region_span(struct np_region *region, u64 addr, u64 length,
		   unsigned long *from, unsigned long *to)
{
	u64 size = (u64)region->pages << PAGE_SHIFT;

	if (!length || !PAGE_ALIGNED(addr) || !PAGE_ALIGNED(length) ||
	    addr < region->start || addr - region->start >= size ||
	    length > size - (addr - region->start))
		return -EINVAL;
	*from = (addr - region->start) >> PAGE_SHIFT;
	*to = *from + (length >> PAGE_SHIFT);
	return 0;
}

/* What a user wants of a view: whole slices, or up to the end; length 0: all */
int np_region_part(struct np_region *region, u64 offset, u64 length,
		   unsigned long *first, unsigned long *pages)
{
	u64 size = (u64)region->pages << PAGE_SHIFT;
	u64 mask = (1ULL << NP_SLICE_SHIFT) - 1;

	if (!length)
		length = size;
	if (offset & mask || offset >= size || length > size - offset ||
	    (length & mask && length != size - offset))
		return -EINVAL;
	*first = offset >> PAGE_SHIFT;
	*pages = length >> PAGE_SHIFT;
	return 0;
}
