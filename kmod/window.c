// SPDX-License-Identifier: GPL-2.0
/*
 * A window: one contiguous range of a device's addresses (IOVA) in the domain
 * that its driver maps DMA in. Made by the DMA API out of one page many times
 * over, so that the range is known to be ours; then single translations in it
 * are replaced under it.
 */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "nprdma.h"

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

/* Sets iova if what was mapped is one range, of just the pages it was made of */
static int np_window_check(struct np_window *window, struct sg_table *list)
{
	dma_addr_t next = sg_dma_address(list->sgl);
	phys_addr_t first, last;
	struct scatterlist *sg;
	unsigned long pages = 0;
	int i;

	window->iova = next;
	for_each_sgtable_dma_sg(list, sg, i) {
		if (sg_dma_address(sg) != next || !PAGE_ALIGNED(sg_dma_len(sg)))
			return -EOPNOTSUPP;
		next += sg_dma_len(sg);
		pages += sg_dma_len(sg) >> PAGE_SHIFT;
	}
	first = page_to_phys(np_window_page(window, 0));
	last = page_to_phys(np_window_page(window, window->pages - 1));
	if (pages != window->pages ||
	    iommu_iova_to_phys(window->domain, window->iova) != first ||
	    iommu_iova_to_phys(window->domain, next - PAGE_SIZE) != last)
		return -EOPNOTSUPP;
	return 0;
}

/* The list needs 32 bytes a page, for a moment */
static int np_window_map(struct np_window *window)
{
	struct scatterlist *sg;
	struct sg_table list;
	int ret, i;

	ret = sg_alloc_table(&list, window->pages, GFP_KERNEL);
	if (ret)
		return ret;
	/* Entry by entry: large pages could not be replaced in part */
	for_each_sgtable_sg(&list, sg, i)
		sg_set_page(sg, np_window_page(window, i), PAGE_SIZE, 0);
	ret = dma_map_sgtable(window->dev, &list, window->direction,
			      DMA_ATTR_SKIP_CPU_SYNC);
	if (ret)
		goto free_list;
	ret = np_window_check(window, &list);
	if (ret) {
		dev_err_ratelimited(window->dev,
				    "nprdma: its addresses are not one range\n");
		dma_unmap_sgtable(window->dev, &list, window->direction,
				  DMA_ATTR_SKIP_CPU_SYNC);
	}
free_list:
	sg_free_table(&list);
	return ret;
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
				 struct device *dev)
{
	struct np_user *user = region->context->user;
	struct np_window *window;
	int ret;

	window = kzalloc(sizeof(*window), GFP_KERNEL_ACCOUNT);
	if (!window)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&window->link);
	window->region = region;
	window->what = what;
	window->dev = dev;
	window->pages = what == NPRDMA_EXPORT_TABLE ? region->table_pages :
						      region->pages;
	window->direction = what == NPRDMA_EXPORT_WRITE ? DMA_BIDIRECTIONAL :
							  DMA_TO_DEVICE;
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
	ret = np_window_map(window);
	if (ret)
		goto uncharge;
	window->all = np_window_list(window);
	if (IS_ERR(window->all)) {
		ret = PTR_ERR(window->all);
		goto unmap;
	}
	window->in_place = what == NPRDMA_EXPORT_TABLE || np_leaf_works(window);
	dev_info_once(dev, "nprdma: a translation is replaced %s\n",
		      window->in_place ? "by one store" :
					 "with a moment without one");
	if (!window->in_place)
		atomic_inc(&region->context->stats.gapped);
	atomic_inc(&region->context->stats.attached);
	return window;

unmap:
	/* Without memory for a list: of this range it needs but its ends */
	dma_unmap_page_attrs(dev, window->iova,
			     (size_t)window->pages << PAGE_SHIFT,
			     window->direction, DMA_ATTR_SKIP_CPU_SYNC);
uncharge:
	np_user_uncharge(user, window->charged);
free_window:
	kfree(window);
	return ERR_PTR(ret);
}

/* The DMA API wants all of the range to be mapped when it unmaps it */
static void np_window_refill(struct np_window *window)
{
	struct iommu_iotlb_gather gather;
	unsigned long i;

	iommu_iotlb_gather_init(&gather);
	for (i = 0; window->gaps && i < window->pages; i++) {
		if (!iommu_iova_to_phys(window->domain,
					window->iova + (i << PAGE_SHIFT)))
			np_window_replace(window, i, window->absent, &gather);
	}
}

void np_window_close(struct np_window *window)
{
	struct np_region *region = window->region;

	np_window_refill(window);
	dma_unmap_sgtable(window->dev, window->all, window->direction,
			  DMA_ATTR_SKIP_CPU_SYNC);
	np_window_list_free(window->all);
	np_user_uncharge(region->context->user, window->charged);
	atomic_dec(&region->context->stats.attached);
	if (!window->in_place)
		atomic_dec(&region->context->stats.gapped);
	kfree(window);
}

/*
 * Page @index of the window is at @phys as soon as it is flushed. Between the
 * two calls of the IOMMU's it is nowhere; that cannot be helped with what the
 * kernel exports. Allocates nothing: the tables are there.
 */
int np_window_replace(struct np_window *window, unsigned long index,
		      phys_addr_t phys, struct iommu_iotlb_gather *gather)
{
	unsigned long iova = window->iova + (index << PAGE_SHIFT);
	int ret;

	if (window->in_place && np_leaf_replace(window, iova, phys, gather))
		return 0;
	iommu_unmap_fast(window->domain, iova, PAGE_SIZE, gather);
	ret = np_iommu_map(window->domain, iova, phys, PAGE_SIZE, window->prot);
	if (ret)
		window->gaps++;
	return ret;
}

void np_window_flush(struct np_window *window,
		     struct iommu_iotlb_gather *gather)
{
	iommu_iotlb_sync(window->domain, gather);
}
