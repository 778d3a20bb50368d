// SPDX-License-Identifier: GPL-2.0-only
/*
 * A window: one contiguous range of a device's addresses (IOVA) in the domain
 * that its driver maps DMA in. The DMA API makes it of one large page of
 * signature many times over, so that the range is known to be ours and costs
 * hardly a table; then it is filled, in chunks, with what stands for absent
 * pages; and from then on single translations in it are replaced.
 */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/pci.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "nprdma.h"

/* Pages that are filled at once: those of one table */
#define NP_CHUNK	(PAGE_SIZE / sizeof(u64))

/* Page tables that the IOMMU needs; nobody else charges anyone for them */
static u64 np_window_bytes(unsigned long pages)
{
	return (u64)pages * sizeof(u64) + PAGE_SIZE;
}

static int np_window_domain(struct np_window *window)
{
	struct device *dev = window->dev;
	struct iommu_domain *domain = iommu_get_domain_for_dev(dev);

	if (!domain || !(domain->type & __IOMMU_DOMAIN_DMA_API)) {
		dev_err_ratelimited(dev, "nprdma: no IOMMU translates for this device: boot with intel_iommu=on (or the firmware's switch for AMD and Arm) and without iommu=pt or iommu.passthrough=1, or write DMA to its iommu_group/type\n");
		return -EOPNOTSUPP;
	}
	if (!(domain->pgsize_bitmap & PAGE_SIZE)) {
		dev_err_ratelimited(dev, "nprdma: its IOMMU does not map single pages\n");
		return -EOPNOTSUPP;
	}
	if (!dev_is_dma_coherent(dev)) {
		dev_err_ratelimited(dev, "nprdma: its DMA is not coherent with caches\n");
		return -EOPNOTSUPP;
	}
	window->domain = domain;
	return 0;
}

static struct page *np_window_page(struct np_window *window, unsigned long i)
{
	switch (window->what) {
	case NPRDMA_EXPORT_READ:
		return np_signature;
	case NPRDMA_EXPORT_WRITE:
		return window->region->context->hole;
	default:
		return window->region->table[i];
	}
}

/* Sets iova if what was mapped is one range */
static int np_window_check(struct np_window *window)
{
	dma_addr_t next = sg_dma_address(window->range.sgl);
	struct scatterlist *sg;
	unsigned long pages = 0;
	int i;

	window->iova = next;
	for_each_sgtable_dma_sg(&window->range, sg, i) {
		if (sg_dma_address(sg) != next || !PAGE_ALIGNED(sg_dma_len(sg)))
			return -EOPNOTSUPP;
		next += sg_dma_len(sg);
		pages += sg_dma_len(sg) >> PAGE_SHIFT;
	}
	if (pages != window->pages ||
	    iommu_iova_to_phys(window->domain, window->iova) !=
		    page_to_phys(np_signature))
		return -EOPNOTSUPP;
	return 0;
}

/* Entries that the DMA API may merge; those of a large page lie in its order */
static unsigned int np_window_entry_pages(struct np_window *window)
{
	unsigned int most = dma_get_max_seg_size(window->dev) >> PAGE_SHIFT;

	return rounddown_pow_of_two(clamp(most, 1U, np_signature_pages));
}

/* A range of addresses that nobody knows yet, and nobody may write */
static int np_window_reserve(struct np_window *window)
{
	unsigned int size = np_window_entry_pages(window), at = 0;
	unsigned long left = window->pages;
	struct scatterlist *sg;
	int ret, i;

	ret = sg_alloc_table(&window->range, DIV_ROUND_UP(left, size),
			     GFP_KERNEL_ACCOUNT);
	if (ret)
		return ret;
	for_each_sgtable_sg(&window->range, sg, i) {
		size = min_t(unsigned long, size, left);
		sg_set_page(sg, np_signature + at, size << PAGE_SHIFT, 0);
		at = (at + size) % np_signature_pages;
		left -= size;
	}
	ret = dma_map_sgtable(window->dev, &window->range, DMA_TO_DEVICE,
			      DMA_ATTR_SKIP_CPU_SYNC);
	if (ret)
		goto free_range;
	ret = np_window_check(window);
	if (!ret)
		return 0;
	dev_err_ratelimited(window->dev,
			    "nprdma: its addresses are not one range\n");
	dma_unmap_sgtable(window->dev, &window->range, DMA_TO_DEVICE,
			  DMA_ATTR_SKIP_CPU_SYNC);
free_range:
	sg_free_table(&window->range);
	return ret;
}

/* Pages [from, to) of the window get what stands for absent ones. It fails for
 * lack of memory; what it leaves unmapped then is counted as gaps.
 */
static int np_window_fill_chunk(struct np_window *window, unsigned long from,
				unsigned long to, struct sg_table *list)
{
	unsigned long iova = window->iova + (from << PAGE_SHIFT);
	size_t size = (to - from) << PAGE_SHIFT;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(list->sgl, sg, to - from, i)
		sg_set_page(sg, np_window_page(window, from + i), PAGE_SIZE, 0);
	if (WARN_ON_ONCE(iommu_unmap(window->domain, iova, size) != size)) {
		window->gaps++;
		return -EOPNOTSUPP;
	}
	if (np_iommu_map_sg(window->domain, iova, list->sgl, to - from,
			    window->prot) == size)
		return 0;
	/* As it was, which needs no table */
	if (to - from > np_signature_pages ||
	    np_iommu_map(window->domain, iova, page_to_phys(np_signature), size,
			 IOMMU_READ | IOMMU_CACHE))
		window->gaps++;
	return -ENOMEM;
}

/*
 * All of it, unless the process is to end: its tables are charged to that one
 */
static int np_window_fill(struct np_window *window)
{
	unsigned long from, to;
	struct sg_table list;
	int ret;

	ret = sg_alloc_table(&list, min(window->pages, NP_CHUNK), GFP_KERNEL);
	for (from = 0; !ret && from < window->pages; from = to) {
		to = min(from + NP_CHUNK, window->pages);
		if (fatal_signal_pending(current))
			ret = -EINTR;
		else
			ret = np_window_fill_chunk(window, from, to, &list);
		cond_resched();
	}
	sg_free_table(&list);
	return ret;
}

/* The DMA API wants all of the range to be mapped when it unmaps it: what is
 * not, is the signature. False: it cannot be.
 */
static bool np_window_refill(struct np_window *window)
{
	phys_addr_t signature = page_to_phys(np_signature);
	unsigned long i, iova;

	for (i = 0; window->gaps && i < window->pages; i++) {
		iova = window->iova + (i << PAGE_SHIFT);
		if (!iommu_iova_to_phys(window->domain, iova) &&
		    np_iommu_map(window->domain, iova, signature, PAGE_SIZE,
				 IOMMU_READ | IOMMU_CACHE))
			return false;
	}
	return true;
}

/* Then no device reaches anything there; but the range is lost to its domain */
static void np_window_lose(struct np_window *window)
{
	unsigned long i, end;
	size_t size;

	dev_err(window->dev, "nprdma: no memory to give %lu pages of addresses back\n",
		window->pages);
	/* Up to a hole, which is not in the middle of a large page */
	for (i = 0; i < window->pages; i += max(size >> PAGE_SHIFT, 1UL)) {
		end = min(round_down(i, NP_CHUNK) + NP_CHUNK, window->pages);
		size = iommu_unmap(window->domain,
				   window->iova + (i << PAGE_SHIFT),
				   (end - i) << PAGE_SHIFT);
	}
}

static void np_window_release(struct np_window *window)
{
	if (np_window_refill(window))
		dma_unmap_sgtable(window->dev, &window->range, DMA_TO_DEVICE,
				  DMA_ATTR_SKIP_CPU_SYNC);
	else
		np_window_lose(window);
	sg_free_table(&window->range);
	/*
	 * The DMA API may do this later: pages behind the window are freed now
	 */
	iommu_flush_iotlb_all(window->domain);
}

/* Addresses only: who has the list cannot get at pages */
struct sg_table *np_window_list(struct np_window *window)
{
	u64 left = (u64)window->pages << PAGE_SHIFT;
	u64 cut = round_down(dma_get_max_seg_size(window->dev), PAGE_SIZE);
	dma_addr_t iova = window->iova;
	struct sg_table *list;
	struct scatterlist *sg;
	int ret, i;

	cut = clamp_t(u64, cut, PAGE_SIZE, SZ_1G);
	list = kzalloc(sizeof(*list), GFP_KERNEL);
	if (!list)
		return ERR_PTR(-ENOMEM);
	ret = sg_alloc_table(list, DIV_ROUND_UP_ULL(left, cut), GFP_KERNEL);
	if (ret) {
		kfree(list);
		return ERR_PTR(ret);
	}
	for_each_sgtable_dma_sg(list, sg, i) {
		sg_dma_address(sg) = iova;
		sg_dma_len(sg) = min(left, cut);
		iova += sg_dma_len(sg);
		left -= sg_dma_len(sg);
	}
	return list;
}

void np_window_list_free(struct sg_table *list)
{
	sg_free_table(list);
	kfree(list);
}

struct np_window *np_window_open(struct np_region *region, u32 what,
				 unsigned long first, unsigned long pages,
				 struct device *dev)
{
	struct np_user *user = region->context->user;
	struct np_window *window;
	int ret;

	window = kzalloc(sizeof(*window), GFP_KERNEL_ACCOUNT);
	if (!window)
		return ERR_PTR(-ENOMEM);
	window->region = region;
	window->what = what;
	window->dev = dev;
	window->first = first;
	window->pages = pages;
	window->prot = IOMMU_READ | IOMMU_CACHE;
	if (what == NPRDMA_EXPORT_WRITE)
		window->prot |= IOMMU_WRITE;
	window->absent = page_to_phys(np_window_page(window, 0));
	ret = np_window_domain(window);
	if (ret)
		goto free_window;
	window->charged = np_window_bytes(window->pages);
	ret = np_user_charge(user, window->charged);
	if (ret)
		goto free_window;
	ret = np_window_reserve(window);
	if (ret)
		goto uncharge;
	ret = np_window_fill(window);
	if (ret)
		goto release;
	window->in_place = what == NPRDMA_EXPORT_TABLE || np_leaf_works(window);
	dev_info_once(dev, "nprdma: a translation is replaced %s\n",
		      window->in_place ? "by one store" :
					 "with a moment without one");
	if (!window->in_place)
		atomic_inc(&region->context->stats.gapped);
	atomic_inc(&region->context->stats.attached);
	return window;

release:
	np_window_release(window);
uncharge:
	np_user_uncharge(user, window->charged);
free_window:
	kfree(window);
	return ERR_PTR(ret);
}

void np_window_close(struct np_window *window)
{
	struct np_region *region = window->region;

	np_window_release(window);
	np_user_uncharge(region->context->user, window->charged);
	atomic_dec(&region->context->stats.attached);
	if (!window->in_place)
		atomic_dec(&region->context->stats.gapped);
	kfree(window);
}

static unsigned long np_window_iova(struct np_window *window,
				    unsigned long index)
{
	return window->iova + ((index - window->first) << PAGE_SHIFT);
}

/*
 * Page @index has no translation as soon as it is flushed. False: the IOMMU has
 * done something else, which is a mistake of ours or its.
 */
bool np_window_break(struct np_window *window, unsigned long index,
		     struct iommu_iotlb_gather *gather)
{
	unsigned long iova = np_window_iova(window, index);
	size_t size;

	size = iommu_unmap_fast(window->domain, iova, PAGE_SIZE, gather);
	if (size == PAGE_SIZE)
		return true;
	/* Nothing was there, after a failure */
	if (!size && !iommu_iova_to_phys(window->domain, iova))
		return true;
	window->gaps++;
	WARN_ONCE(1, "nprdma: %zu bytes were unmapped instead of a page", size);
	return false;
}

/* Page @index, which has none, is at @phys. Allocates nothing: the tables are
 * there.
 */
int np_window_make(struct np_window *window, unsigned long index,
		   phys_addr_t phys)
{
	int ret;

	ret = np_iommu_map(window->domain, np_window_iova(window, index), phys,
			   PAGE_SIZE, window->prot);
	if (ret)
		window->gaps++;
	return ret;
}

/*
 * Page @index is at @phys as soon as it is flushed. Between the two calls of
 * the IOMMU's it is nowhere; that cannot be helped with what the kernel
 * exports.
 */
int np_window_replace(struct np_window *window, unsigned long index,
		      phys_addr_t phys, struct iommu_iotlb_gather *gather)
{
	if (window->in_place &&
	    np_leaf_replace(window, np_window_iova(window, index), phys,
			    gather))
		return 0;
	if (!np_window_break(window, index, gather))
		return -EIO;
	return np_window_make(window, index, phys);
}

/* Is page @index there? After a change, for who looks for mistakes */
void np_window_verify(struct np_window *window, unsigned long index,
		      phys_addr_t phys)
{
	unsigned long iova = np_window_iova(window, index);
	phys_addr_t found = iommu_iova_to_phys(window->domain, iova);

	/* What could not be replaced has none */
	WARN_ONCE(found != phys && (found || !window->gaps),
		  "nprdma: page %lu of a region is at %pa instead of %pa",
		  index, &found, &phys);
}

void np_window_flush(struct np_window *window,
		     struct iommu_iotlb_gather *gather)
{
	iommu_iotlb_sync(window->domain, gather);
}
