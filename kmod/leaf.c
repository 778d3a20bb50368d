// SPDX-License-Identifier: GPL-2.0-only
/*
 * Translations replaced in place: one store to the IOMMU's own entry, so that
 * a device finds the old page or the new one, and never none. The kernel has
 * no function for it; but since its drivers share one form of tables, a domain
 * leads to them (linux/generic_pt). Of these forms the ones of x86 machines
 * (VT-d's two, AMD's two) all have 512 entries of 8 bytes a level, and the
 * address in bits 12 to 51; what else an entry says stays as it is, for all
 * pages of a window are mapped alike. Where anything differs, encrypted tables
 * for one, what is found here is not what iommu_iova_to_phys() says, and the
 * window goes the other way.
 */
#include "nprdma.h"

#if NP_HAVE_IN_PLACE
#include <linux/generic_pt/iommu.h>
#include <asm/cacheflush.h>

#define NP_LEAF_BITS	9
#define NP_LEAF_COUNT	BIT(NP_LEAF_BITS)
#define NP_LEAF_PHYS	GENMASK_ULL(51, PAGE_SHIFT)

static bool np_in_place;
module_param_named(in_place, np_in_place, bool, 0644);
MODULE_PARM_DESC(in_place,
		 "replace translations by one store where the IOMMU's tables allow it; otherwise devices find none for a moment (default: N)");

/* The same place in all forms */
static struct pt_common *np_leaf_common(struct iommu_domain *domain)
{
	struct pt_iommu *table = iommupt_from_domain(domain);

	BUILD_BUG_ON(offsetof(struct pt_iommu_vtdss, vtdss_pt.common) !=
		     offsetof(struct pt_iommu_x86_64, x86_64_pt.common));
	BUILD_BUG_ON(offsetof(struct pt_iommu_vtdss, vtdss_pt.common) !=
		     offsetof(struct pt_iommu_amdv1, amdpt.common));
	if (!table)
		return NULL;
	return &container_of(table, struct pt_iommu_vtdss,
			     iommu)->vtdss_pt.common;
}

/* The entry of a page, NULL if there is no way to it. The tables stay as long
 * as the range is mapped: nothing of it is unmapped in place.
 */
static u64 *np_leaf(struct pt_common *common, unsigned long iova)
{
	uintptr_t top = READ_ONCE(common->top_of_table);
	unsigned int level = top & PT_TOP_LEVEL_MASK;
	u64 *table = (u64 *)(top & ~(uintptr_t)PT_TOP_LEVEL_MASK);
	unsigned long index;
	phys_addr_t next;

	for (;; level--) {
		index = iova >> (PAGE_SHIFT + NP_LEAF_BITS * level);
		index &= NP_LEAF_COUNT - 1;
		if (!level)
			return &table[index];
		next = READ_ONCE(table[index]) & NP_LEAF_PHYS;
		if (!next || !pfn_valid(PHYS_PFN(next)))
			return NULL;
		table = phys_to_virt(next);
	}
}

static bool np_leaf_is(struct np_window *window, struct pt_common *common,
		       unsigned long index)
{
	unsigned long iova = window->iova + (index << PAGE_SHIFT);
	u64 *leaf = np_leaf(common, iova);

	return leaf && (READ_ONCE(*leaf) & NP_LEAF_PHYS) == window->absent &&
	       iommu_iova_to_phys(window->domain, iova) == window->absent;
}

/* One entry of each table, and the last: those between lie in the same page */
bool np_leaf_works(struct np_window *window)
{
	struct pt_common *common = np_leaf_common(window->domain);
	unsigned long i;

	if (!READ_ONCE(np_in_place) || !common)
		return false;
	for (i = 0; i < window->pages; i += NP_LEAF_COUNT) {
		if (!np_leaf_is(window, common, i))
			return false;
	}
	return np_leaf_is(window, common, window->pages - 1);
}

/* The device may go on using the old translation until the gather is synced.
 * False: nothing was done.
 */
bool np_leaf_replace(struct np_window *window, unsigned long iova,
		     phys_addr_t phys, struct iommu_iotlb_gather *gather)
{
	struct pt_common *common = np_leaf_common(window->domain);
	u64 *leaf = np_leaf(common, iova);

	if (WARN_ON_ONCE(!leaf))
		return false;
	/* Release: whoever follows it sees what was written to the page */
	smp_store_release(leaf, (READ_ONCE(*leaf) & ~NP_LEAF_PHYS) | phys);
	if (common->features & BIT(PT_FEAT_DMA_INCOHERENT))
		clflush_cache_range(leaf, sizeof(*leaf));
	iommu_iotlb_gather_add_page(window->domain, gather, iova, PAGE_SIZE);
	return true;
}

#else

bool np_leaf_works(struct np_window *window)
{
	return false;
}

bool np_leaf_replace(struct np_window *window, unsigned long iova,
		     phys_addr_t phys, struct iommu_iotlb_gather *gather)
{
	return false;
}

#endif
