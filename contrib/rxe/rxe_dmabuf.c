// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory regions on dma-bufs: what Soft-RoCE reads and writes there is what
 * the network card below it would, through the card's IOMMU domain.
 *
 * The page tables are walked by software for every unit, so there is no
 * translation cache unless rxe_modes.c makes one. An exporter that replaces a translation while the
 * region exists must call synchronize_rcu() or synchronize_rcu_expedited()
 * where it flushes the IOTLB: then no copy to or from the old page is left.
 * It must not free page tables of the range as long as it is attached.
 */

#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/err.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/version.h>
#include <rdma/ib_umem.h>

#include "rxe.h"
#include "rxe_loc.h"
#include "rxe_modes.h"

static uint dmabuf_delay;
module_param(dmabuf_delay, uint, 0644);
MODULE_PARM_DESC(dmabuf_delay,
		 "microseconds between the translation of a page and the access, for tests of those who replace it meanwhile");

static ulong dmabuf_refuse;
module_param(dmabuf_refuse, ulong, 0644);
MODULE_PARM_DESC(dmabuf_refuse,
		 "bytes from which memory regions on dma-bufs are refused, as some drivers do; 1: all, 0: none");

static int dmabuf_errno = EINVAL;
module_param(dmabuf_errno, int, 0644);
MODULE_PARM_DESC(dmabuf_errno, "the error that such a region is refused with");

struct rxe_dmabuf_range {
	u64		start;	/* within the region's pages */
	dma_addr_t	addr;
};

struct rxe_dmabuf {
	struct device		*dev;
	struct iommu_group	*group;
	struct iommu_domain	*domain;
	unsigned int		num_ranges;
	struct rxe_dmabuf_range	range[];
};

/* The netdev's first ancestor that does DMA through an IOMMU */
static struct device *rxe_dma_device(struct rxe_dev *rxe)
{
	struct net_device *ndev;
	struct device *dev;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	ndev = ib_device_get_netdev(&rxe->ib_dev, 1);
	if (!ndev)
		return NULL;
#else
	ndev = rxe->ndev;
	dev_hold(ndev);
#endif

	for (dev = ndev->dev.parent; dev; dev = dev->parent)
		if (iommu_get_domain_for_dev(dev))
			break;

	get_device(dev);
	dev_put(ndev);
	return dev;
}

/* ib_umem_dmabuf_get_pinned() would attach the DMA device of our ib_device,
 * which has none: its memory regions use virtual addresses.
 */
static struct ib_umem_dmabuf *rxe_dmabuf_get(struct rxe_dev *rxe,
					     struct device *dev, u64 offset,
					     u64 length, int fd, int access)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	return ib_umem_dmabuf_get_pinned_with_dma_device(&rxe->ib_dev, dev,
							 offset, length, fd,
							 access);
#else
	struct ib_umem_dmabuf *umem_dmabuf;
	struct ib_device *shadow;

	shadow = kzalloc(sizeof(*shadow), GFP_KERNEL);
	if (!shadow)
		return ERR_PTR(-ENOMEM);

	shadow->dma_device = dev;
	umem_dmabuf = ib_umem_dmabuf_get_pinned(shadow, offset, length, fd,
						access);
	if (!IS_ERR(umem_dmabuf))
		umem_dmabuf->umem.ibdev = &rxe->ib_dev;
	kfree(shadow);
	return umem_dmabuf;
#endif
}

/* Joins what is contiguous; with dmabuf NULL it only counts */
static int rxe_dmabuf_fill(struct sg_table *sgt, struct rxe_dmabuf *dmabuf)
{
	struct scatterlist *sg;
	dma_addr_t next = 0;
	unsigned int n = 0;
	u64 start = 0;
	int i;

	for_each_sgtable_dma_sg(sgt, sg, i) {
		if (!PAGE_ALIGNED(sg_dma_address(sg)) ||
		    !PAGE_ALIGNED(sg_dma_len(sg)))
			return -EINVAL;

		if (n == 0 || sg_dma_address(sg) != next) {
			if (dmabuf) {
				dmabuf->range[n].start = start;
				dmabuf->range[n].addr = sg_dma_address(sg);
			}
			n++;
		}
		next = sg_dma_address(sg) + sg_dma_len(sg);
		start += sg_dma_len(sg);
	}

	return n;
}

static struct rxe_dmabuf *rxe_dmabuf_alloc(struct sg_table *sgt,
					   struct device *dev)
{
	struct rxe_dmabuf *dmabuf;
	int n, err;

	n = rxe_dmabuf_fill(sgt, NULL);
	if (n <= 0)
		return ERR_PTR(n ? n : -EINVAL);

	dmabuf = kvzalloc(struct_size(dmabuf, range, n), GFP_KERNEL);
	if (!dmabuf)
		return ERR_PTR(-ENOMEM);

	rxe_dmabuf_fill(sgt, dmabuf);
	dmabuf->num_ranges = n;
	dmabuf->dev = dev;
	dmabuf->domain = iommu_get_domain_for_dev(dev);
	err = rxe_modes_enter(dmabuf->domain);
	if (err) {
		kvfree(dmabuf);
		return ERR_PTR(err);
	}

	dmabuf->group = iommu_group_get(dev);
	return dmabuf;
}

/* What is common to all kernels of registering; the caller sets type, access
 * and state
 */
int rxe_dmabuf_init(struct rxe_dev *rxe, u64 offset, u64 length, u64 iova,
		    int fd, int access, struct rxe_mr *mr)
{
	struct ib_umem_dmabuf *umem_dmabuf;
	struct rxe_dmabuf *dmabuf;
	ulong refuse = READ_ONCE(dmabuf_refuse);
	struct device *dev;

	if (refuse && length >= refuse)
		return -clamp(READ_ONCE(dmabuf_errno), 1, MAX_ERRNO);

	dev = rxe_dma_device(rxe);
	if (!dev) {
		ibdev_warn_ratelimited(&rxe->ib_dev,
				       "a dma-buf needs a network card behind an IOMMU\n");
		return -EOPNOTSUPP;
	}

	/* As drivers of RNICs do: exporters cut their lists by it */
	dma_set_max_seg_size(dev, SZ_2G);
	umem_dmabuf = rxe_dmabuf_get(rxe, dev, offset, length, fd, access);
	if (IS_ERR(umem_dmabuf)) {
		put_device(dev);
		return PTR_ERR(umem_dmabuf);
	}

	dmabuf = rxe_dmabuf_alloc(&umem_dmabuf->umem.sgt_append.sgt, dev);
	if (IS_ERR(dmabuf)) {
		ib_umem_release(&umem_dmabuf->umem);
		put_device(dev);
		return PTR_ERR(dmabuf);
	}

	mr->umem = &umem_dmabuf->umem;
	mr->dmabuf = dmabuf;
	mr->ibmr.iova = iova;
	mr->ibmr.length = length;
	return 0;
}

/* After ib_umem_release(), which detaches the device */
void rxe_dmabuf_free(struct rxe_mr *mr)
{
	struct rxe_dmabuf *dmabuf = mr->dmabuf;

	if (!dmabuf)
		return;

	rxe_modes_leave();
	iommu_group_put(dmabuf->group);
	put_device(dmabuf->dev);
	kvfree(dmabuf);
	mr->dmabuf = NULL;
}

static dma_addr_t rxe_dmabuf_addr(struct rxe_mr *mr, u64 iova)
{
	const struct rxe_dmabuf *dmabuf = mr->dmabuf;
	u64 at = iova - (mr->ibmr.iova & PAGE_MASK);
	unsigned int low = 0, high = dmabuf->num_ranges, middle;

	while (high - low > 1) {
		middle = low + (high - low) / 2;
		if (dmabuf->range[middle].start <= at)
			low = middle;
		else
			high = middle;
	}

	return dmabuf->range[low].addr + (at - dmabuf->range[low].start);
}

/* The page that a device reaches there, within the region; NULL: the IOMMU has
 * no translation, at which a device's read is aborted and its write gets lost.
 * The page is valid until the caller's rcu_read_unlock().
 */
struct page *rxe_dmabuf_page(struct rxe_mr *mr, u64 iova, const char *what)
{
	dma_addr_t addr = rxe_dmabuf_addr(mr, iova);
	phys_addr_t phys;

	phys = rxe_modes_phys(mr->dmabuf->domain, addr);
	if (likely(phys && pfn_valid(PHYS_PFN(phys))))
		return pfn_to_page(PHYS_PFN(phys));

	ibdev_warn_ratelimited(mr->ibmr.device,
			       "DMA fault: %s at %pad, which has no translation\n",
			       what, &addr);
	return NULL;
}

/* Within one page. Returns false: there is none. */
static bool rxe_dmabuf_copy_unit(struct rxe_mr *mr, u64 iova, void *addr,
				 unsigned int bytes, bool to_mr)
{
	struct page *page;
	void *va;

	rcu_read_lock();
	page = rxe_dmabuf_page(mr, iova, to_mr ? "write" : "read");
	if (page && !to_mr && rxe_modes_is_hole(page))
		page = NULL;
	if (page) {
		udelay(dmabuf_delay);
		va = kmap_local_page(page);
		if (to_mr)
			memcpy(va + offset_in_page(iova), addr, bytes);
		else
			memcpy(addr, va + offset_in_page(iova), bytes);
		kunmap_local(va);
	}
	rcu_read_unlock();
	return page;
}

/* At most RXE_MODES_UNITS, each aligned to its size but the first and the last */
static bool rxe_dmabuf_copy_units(struct rxe_mr *mr, u64 iova, void *addr,
				  unsigned int length, unsigned int unit,
				  bool to_mr)
{
	u64 first = round_down(iova, unit), from, to;
	unsigned int i, count = DIV_ROUND_UP_ULL(iova + length - first, unit);
	u8 order[RXE_MODES_UNITS];
	bool ok = true;

	rxe_modes_order(order, count);
	for (i = 0; i < count; i++) {
		from = max(iova, first + order[i] * unit);
		to = min(iova + length, first + (order[i] + 1) * unit);
		ok &= rxe_dmabuf_copy_unit(mr, from, addr + (from - iova),
					   to - from, to_mr);
	}
	return ok;
}

/* The range has been checked */
int rxe_dmabuf_copy(struct rxe_mr *mr, u64 iova, void *addr,
		    unsigned int length, enum rxe_mr_copy_dir dir)
{
	unsigned int bytes, unit = rxe_modes_unit();
	bool to_mr = dir == RXE_TO_MR_OBJ;

	while (length) {
		bytes = min_t(unsigned int, length, RXE_MODES_UNITS * unit -
			      (iova & (unit - 1)));

		/* Writes are posted: nobody learns that one got lost */
		if (!rxe_dmabuf_copy_units(mr, iova, addr, bytes, unit,
					   to_mr) && !to_mr)
			return -EIO;

		iova += bytes;
		addr += bytes;
		length -= bytes;
	}

	return 0;
}
