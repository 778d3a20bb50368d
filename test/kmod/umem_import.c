// SPDX-License-Identifier: GPL-2.0-only
/*
 * What drivers of RNICs make of dma-bufs: attach, map, choose a page size, count
 * blocks, through the kernel's own helpers, in the order and with the constants of
 * mlx5 (reg_user_mr_dmabuf, pagefault_dmabuf_mr), irdma (irdma_reg_user_mr_dmabuf),
 * bnxt_re (__bnxt_re_user_reg_mr) and mana (mana_ib_reg_user_mr_dmabuf). What those
 * of Linux 7 do to be told of an exporter's end is left out. For tests only.
 */
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/iommu.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/iter.h>

#include "umem_import.h"
#include "nprdma_config.h"

#define UMEM_MANA_ACCESS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | \
			  IB_ACCESS_REMOTE_READ)

struct umem_rules {
	bool dynamic;		/* attached as one whose memory may move */
	unsigned int segment;	/* dma_set_max_seg_size() */
	unsigned long pages;	/* sizes that an entry may have */
	u64 most;		/* bytes of a region; more is @too_long */
	int too_long;
	int no_page;		/* no page size fits */
};

static const struct umem_rules umem_rules[UMEM_DRIVERS] = {
	[UMEM_MLX5] = {
		.dynamic = true, .segment = SZ_2G, .pages = PAGE_SIZE,
		.most = U64_MAX, .no_page = -EINVAL,
	},
	/* MLX5_MAX_UMR_PAGES * PAGE_SIZE is too much */
	[UMEM_MLX5_SHORT] = {
		.dynamic = true, .segment = SZ_2G, .pages = PAGE_SIZE,
		.most = SZ_256M - 1, .too_long = -EINVAL, .no_page = -EINVAL,
	},
	[UMEM_MLX5_NONE] = {
		.dynamic = true, .segment = SZ_2G, .pages = PAGE_SIZE,
		.most = 0, .too_long = -EINVAL, .no_page = -EINVAL,
	},
	/* Without capabilities that say more: mlx5_umem_mkc_find_best_pgsz() */
	[UMEM_MLX5_BEST] = {
		.dynamic = true, .segment = SZ_2G, .pages = GENMASK(31, 12),
		.most = U64_MAX, .no_page = -EINVAL,
	},
	[UMEM_IRDMA] = {
		.segment = UINT_MAX, .pages = SZ_4K | SZ_2M | SZ_1G,
		.most = U64_MAX, .no_page = -EOPNOTSUPP,
	},
	[UMEM_IRDMA_X722] = {
		.segment = UINT_MAX, .pages = SZ_4K | SZ_2M,
		.most = U64_MAX, .no_page = -EOPNOTSUPP,
	},
	/* BNXT_RE_PAGE_SIZE_SUPPORTED, BNXT_RE_MAX_MR_SIZE */
	[UMEM_BNXT_RE] = {
		.segment = UINT_MAX, .pages = 0x7FFFF000,
		.most = BIT_ULL(39), .too_long = -ENOMEM, .no_page = -EINVAL,
	},
	/* PAGE_SZ_BM */
	[UMEM_MANA] = {
		.segment = UINT_MAX, .pages = GENMASK(21, 12),
		.most = U64_MAX, .no_page = -EINVAL,
	},
	[UMEM_CAREFUL] = {
		.segment = SZ_64K, .pages = 0x7FFFF000,
		.most = U64_MAX, .no_page = -EINVAL,
	},
};

static struct pci_dev *umem_pci;
static struct ib_device *umem_shadow;	/* helpers ask it for its device alone */
static struct ib_umem_dmabuf *umem_now;
static DEFINE_MUTEX(umem_lock);		/* guards umem_now */
static atomic_t umem_moves;

static void umem_move(struct dma_buf_attachment *attachment)
{
	atomic_inc(&umem_moves);
}

static const struct dma_buf_attach_ops umem_ops = {
	.allow_peer2peer = true,
#ifdef NP_HAVE_INVALIDATE_MAPPINGS
	.invalidate_mappings = umem_move,
#else
	.move_notify = umem_move,
#endif
};

static void umem_dereg(void)
{
	if (umem_now)
		ib_umem_release(&umem_now->umem);
	umem_now = NULL;
}

static struct ib_umem_dmabuf *umem_get(const struct umem_rules *rules,
				       const struct umem_reg *reg)
{
	struct ib_umem_dmabuf *umem_dmabuf;
	int ret;

	if (!rules->dynamic)
		return ib_umem_dmabuf_get_pinned(umem_shadow, reg->offset,
						 reg->length, reg->fd,
						 reg->access);
	umem_dmabuf = ib_umem_dmabuf_get(umem_shadow, reg->offset, reg->length,
					 reg->fd, reg->access, &umem_ops);
	if (IS_ERR(umem_dmabuf))
		return umem_dmabuf;
	dma_resv_lock(umem_dmabuf->attach->dmabuf->resv, NULL);
	ret = ib_umem_dmabuf_map_pages(umem_dmabuf);
	dma_resv_unlock(umem_dmabuf->attach->dmabuf->resv);
	if (!ret)
		return umem_dmabuf;
	ib_umem_release(&umem_dmabuf->umem);
	return ERR_PTR(ret);
}

/* Blocks as the device would be told of them */
static void umem_walk(struct ib_umem *umem, struct umem_reg *reg)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&umem_pci->dev);
	struct ib_block_iter iter;
	dma_addr_t next = 0, first;
	u64 count = 0;

	/* A block may begin before the region does */
	rdma_umem_for_each_dma_block(umem, &iter, reg->page_size) {
		dma_addr_t block = rdma_block_iter_dma_address(&iter);

		first = count ? block : sg_dma_address(umem->sgt_append.sgt.sgl);
		if ((count && block != next) ||
		    !IS_ALIGNED(block, reg->page_size) ||
		    !iommu_iova_to_phys(domain, first))
			reg->wrong++;
		next = block + reg->page_size;
		count++;
	}
	if (count != reg->entries)
		reg->wrong++;
}

static int umem_reg(struct umem_reg *reg)
{
	const struct umem_rules *rules;
	struct ib_umem_dmabuf *umem_dmabuf;
	struct ib_umem *umem;

	umem_dereg();
	if (reg->driver >= UMEM_DRIVERS)
		return -ENOTTY;
	rules = &umem_rules[reg->driver];
	if (reg->length > rules->most)
		return rules->too_long;
	if (reg->driver == UMEM_MANA &&
	    reg->access & ~(IB_ACCESS_OPTIONAL | UMEM_MANA_ACCESS))
		return -EOPNOTSUPP;
	dma_set_max_seg_size(&umem_pci->dev, rules->segment);
	umem_dmabuf = umem_get(rules, reg);
	if (IS_ERR(umem_dmabuf))
		return PTR_ERR(umem_dmabuf);
	umem = &umem_dmabuf->umem;
	reg->wrong = 0;
	reg->ranges = umem->sgt_append.sgt.nents;
	reg->page_size = ib_umem_find_best_pgsz(umem, rules->pages, reg->iova);
	if (!reg->page_size) {
		ib_umem_release(umem);
		return rules->no_page;
	}
	reg->entries = ib_umem_num_dma_blocks(umem, reg->page_size);
	umem_walk(umem, reg);
	atomic_set(&umem_moves, 0);
	umem_now = umem_dmabuf;
	return 0;
}

static long umem_ioctl_locked(unsigned int number, void __user *user)
{
	struct umem_reg reg;
	int ret;

	switch (number) {
	case UMEM_IOC_REG:
		if (copy_from_user(&reg, user, sizeof(reg)))
			return -EFAULT;
		ret = umem_reg(&reg);
		if (!ret && copy_to_user(user, &reg, sizeof(reg)))
			ret = -EFAULT;
		return ret;
	case UMEM_IOC_MOVES:
		return atomic_read(&umem_moves);
	case UMEM_IOC_DEREG:
		umem_dereg();
		return 0;
	default:
		return -ENOTTY;
	}
}

static long umem_ioctl(struct file *file, unsigned int number,
		       unsigned long argument)
{
	long ret;

	mutex_lock(&umem_lock);
	ret = umem_ioctl_locked(number, (void __user *)argument);
	mutex_unlock(&umem_lock);
	return ret;
}

static int umem_release(struct inode *inode, struct file *file)
{
	mutex_lock(&umem_lock);
	umem_dereg();
	mutex_unlock(&umem_lock);
	return 0;
}

static const struct file_operations umem_file_ops = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= umem_ioctl,
	.release	= umem_release,
};

static struct miscdevice umem_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "nprdma_umem",
	.fops	= &umem_file_ops,
	.mode	= 0600,
};

static int __init umem_init(void)
{
	int ret = -ENODEV;

	umem_pci = pci_get_device(0x1234, 0x11e8, NULL);
	if (!umem_pci)
		return ret;
	umem_shadow = kzalloc(sizeof(*umem_shadow), GFP_KERNEL);
	if (!umem_shadow) {
		ret = -ENOMEM;
		goto put;
	}
	umem_shadow->dma_device = &umem_pci->dev;
	ret = dma_set_mask_and_coherent(&umem_pci->dev, DMA_BIT_MASK(64));
	if (!ret)
		ret = misc_register(&umem_misc);
	if (!ret)
		return 0;
	kfree(umem_shadow);
put:
	pci_dev_put(umem_pci);
	return ret;
}

static void __exit umem_exit(void)
{
	misc_deregister(&umem_misc);
	kfree(umem_shadow);
	pci_dev_put(umem_pci);
}

module_init(umem_init);
module_exit(umem_exit);

MODULE_DESCRIPTION("nprdma: memory regions on dma-bufs as drivers make them (for tests)");
MODULE_LICENSE("GPL");
NP_IMPORT_NS_DMA_BUF;
