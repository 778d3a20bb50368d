// SPDX-License-Identifier: GPL-2.0
/*
 * Regions: addresses of a process, cut into pieces that are made when something
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
	kvfree(region->pieces);
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
	init_rwsem(&region->life);
	mutex_init(&region->grow);
	init_rwsem(&region->windows_lock);
	INIT_LIST_HEAD(&region->windows);
	region->piece_count = DIV_ROUND_UP(region->pages, NP_PIECE_PAGES);
	region->table_pages = DIV_ROUND_UP(region->pages, NP_TABLE_ENTRIES);
	region->charged = sizeof(*region) +
			  region->table_pages *
				  (PAGE_SIZE + sizeof(*region->table)) +
			  region->piece_count * sizeof(*region->pieces);
	ret = np_user_charge(context->user, region->charged);
	if (ret)
		goto free_region;
	ret = -ENOMEM;
	region->pieces = kvcalloc(region->piece_count, sizeof(*region->pieces),
				  GFP_KERNEL_ACCOUNT);
	if (!region->pieces)
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

/* Everything in it turns absent for good */
void np_region_kill(struct np_region *region)
{
	unsigned int i;

	atomic_dec(&region->context->stats.regions);
	np_user_drop_region(region->context->user);
	WRITE_ONCE(region->ending, true);
	down_write(&region->life);
	region->dead = true;
	for (i = 0; i < region->piece_count; i++) {
		if (region->pieces[i]) {
			np_user_uncharge(region->context->user,
					 np_piece_bytes(region->pieces[i]->pages));
			np_piece_free(region->pieces[i]);
			region->pieces[i] = NULL;
			cond_resched();
		}
	}
	up_write(&region->life);
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

/* The piece of that page, if it was made; under region->life */
struct np_piece *np_region_piece(struct np_region *region, unsigned long index)
{
	/* Pairs with the release that publishes it whole */
	return smp_load_acquire(&region->pieces[index / NP_PIECE_PAGES]);
}

static int np_region_grow_one(struct np_region *region, unsigned int slot)
{
	struct np_user *user = region->context->user;
	unsigned long index = (unsigned long)slot * NP_PIECE_PAGES;
	struct np_piece *piece;
	u64 bytes;
	int ret;

	if (np_region_piece(region, index))
		return 0;
	ret = np_region_table(region);
	if (ret)
		return ret;
	bytes = np_piece_bytes(min_t(unsigned long, NP_PIECE_PAGES,
				     region->pages - index));
	ret = np_user_charge(user, bytes);
	if (ret)
		return ret;
	mutex_lock(&region->grow);
	if (!region->pieces[slot]) {
		piece = np_piece_make(region, index);
		if (!IS_ERR(piece)) {
			/* Whoever sees it, sees all of it */
			smp_store_release(&region->pieces[slot], piece);
			bytes = 0;
		} else {
			ret = PTR_ERR(piece);
		}
	}
	mutex_unlock(&region->grow);
	/* Others may have made it meanwhile */
	np_user_uncharge(user, bytes);
	return ret;
}

/* Makes the pieces of pages [from, to); under region->life */
int np_region_grow(struct np_region *region, unsigned long from,
		   unsigned long to)
{
	unsigned int slot;
	int ret;

	for (slot = from / NP_PIECE_PAGES; slot <= (to - 1) / NP_PIECE_PAGES;
	     slot++) {
		if (fatal_signal_pending(current))
			return -EINTR;
		ret = np_region_grow_one(region, slot);
		if (ret)
			return ret;
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
