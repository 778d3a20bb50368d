// SPDX-License-Identifier: GPL-2.0-only
/*
 * A dma-buf exporter for tests: two views of the same pages, each one range
 * of IOVAs in which single pages are replaced, also by nothing. It trusts who
 * opens it: load it in guests only.
 */

#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/iommu.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "dmabuf_pages.h"

struct view {
	struct region	*region;
	struct page	*fill;		/* in the place of what is absent */
	int		prot;
	struct list_head windows;
};

/* A view in the address space of a device */
struct window {
	struct sg_table	sgt;
	struct list_head link;
	struct view	*view;
	struct device	*dev;
	struct iommu_domain *domain;
	dma_addr_t	base;
};

/* Lives as long as the file or one of the dma-bufs */
struct region {
	struct kref	kref;
	struct mutex	lock;		/* below the reservation lock */
	unsigned int	num;
	struct page	**pages;
	u8		*state;
	struct view	view[DMABUF_PAGES_VIEWS];
};

static void region_free(struct kref *kref)
{
	struct region *region = container_of(kref, struct region, kref);
	unsigned int i;

	for (i = 0; region->pages && i < region->num; i++)
		if (region->pages[i])
			__free_page(region->pages[i]);
	for (i = 0; i < DMABUF_PAGES_VIEWS; i++)
		if (region->view[i].fill)
			__free_page(region->view[i].fill);
	kvfree(region->pages);
	kvfree(region->state);
	kfree(region);
}

static int window_map(struct window *window, unsigned int i, struct page *page)
{
	return iommu_map(window->domain, window->base + (u64)i * PAGE_SIZE,
			 page_to_phys(page), PAGE_SIZE, window->view->prot
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
			 , GFP_KERNEL
#endif
			 );
}

/* One page becomes what the region's state says */
static int window_replace(struct window *window, unsigned int i, u8 old)
{
	struct region *region = window->view->region;

	if (old != DMABUF_PAGES_HOLE)
		iommu_unmap(window->domain, window->base + (u64)i * PAGE_SIZE,
			    PAGE_SIZE);

	switch (region->state[i]) {
	case DMABUF_PAGES_PRESENT:
		return window_map(window, i, region->pages[i]);
	case DMABUF_PAGES_ABSENT:
		return window_map(window, i, window->view->fill);
	default:
		return 0;
	}
}

/* The DMA API unmaps a range as a whole: it must not have holes */
static void window_close(struct window *window)
{
	struct region *region = window->view->region;
	unsigned int i;

	for (i = 0; i < region->num; i++)
		if (region->state[i] == DMABUF_PAGES_HOLE)
			WARN_ON(window_map(window, i, window->view->fill));
	dma_unmap_sgtable(window->dev, &window->sgt, DMA_BIDIRECTIONAL, 0);
}

static bool window_is_contiguous(struct window *window)
{
	dma_addr_t next = window->base;
	struct scatterlist *sg;
	int i;

	for_each_sgtable_dma_sg(&window->sgt, sg, i) {
		if (sg_dma_address(sg) != next)
			return false;
		next += sg_dma_len(sg);
	}
	return true;
}

static int window_open(struct window *window)
{
	struct region *region = window->view->region;
	unsigned int i;
	int err;

	window->domain = iommu_get_domain_for_dev(window->dev);
	if (!window->domain || !(window->domain->type & __IOMMU_DOMAIN_DMA_API))
		return -EOPNOTSUPP;

	err = dma_map_sgtable(window->dev, &window->sgt, DMA_BIDIRECTIONAL, 0);
	if (err)
		return err;

	window->base = sg_dma_address(window->sgt.sgl);
	if (!window_is_contiguous(window)) {
		dma_unmap_sgtable(window->dev, &window->sgt, DMA_BIDIRECTIONAL,
				  0);
		return -EIO;
	}

	for (i = 0; i < region->num; i++)
		if (region->state[i] != DMABUF_PAGES_ABSENT)
			WARN_ON(window_replace(window, i, DMABUF_PAGES_ABSENT));
	return 0;
}

static struct sg_table *view_map_dma_buf(struct dma_buf_attachment *attach,
					 enum dma_data_direction dir)
{
	struct view *view = attach->dmabuf->priv;
	struct region *region = view->region;
	struct scatterlist *sg;
	struct window *window;
	int i, err;

	window = kzalloc(sizeof(*window), GFP_KERNEL);
	if (!window)
		return ERR_PTR(-ENOMEM);

	err = sg_alloc_table(&window->sgt, region->num, GFP_KERNEL);
	if (err)
		goto err_free;

	for_each_sgtable_sg(&window->sgt, sg, i)
		sg_set_page(sg, view->fill, PAGE_SIZE, 0);

	window->view = view;
	window->dev = attach->dev;
	mutex_lock(&region->lock);
	err = window_open(window);
	if (!err)
		list_add(&window->link, &view->windows);
	mutex_unlock(&region->lock);
	if (err)
		goto err_table;
	return &window->sgt;

err_table:
	sg_free_table(&window->sgt);
err_free:
	kfree(window);
	return ERR_PTR(err);
}

static void view_unmap_dma_buf(struct dma_buf_attachment *attach,
			       struct sg_table *sgt,
			       enum dma_data_direction dir)
{
	struct window *window = container_of(sgt, struct window, sgt);
	struct region *region = window->view->region;

	mutex_lock(&region->lock);
	list_del(&window->link);
	window_close(window);
	mutex_unlock(&region->lock);
	sg_free_table(sgt);
	kfree(window);
}

static void view_release(struct dma_buf *dmabuf)
{
	struct view *view = dmabuf->priv;

	kref_put(&view->region->kref, region_free);
}

static const struct dma_buf_ops view_ops = {
	.map_dma_buf	= view_map_dma_buf,
	.unmap_dma_buf	= view_unmap_dma_buf,
	.release	= view_release,
};

static int view_export(struct view *view)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;
	int fd;

	info.ops = &view_ops;
	info.size = (size_t)view->region->num * PAGE_SIZE;
	info.flags = O_RDWR;
	info.priv = view;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);

	kref_get(&view->region->kref);
	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(dmabuf);
	return fd;
}

static struct page *fill_page(enum dmabuf_pages_view which)
{
	struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);

	if (page && which == DMABUF_PAGES_READ)
		memset32(page_address(page), DMABUF_PAGES_SIGNATURE,
			 PAGE_SIZE / 4);
	return page;
}

static struct region *region_new(unsigned int num)
{
	struct region *region;
	unsigned int i;

	region = kzalloc(sizeof(*region), GFP_KERNEL);
	if (!region)
		return NULL;

	kref_init(&region->kref);
	mutex_init(&region->lock);
	region->num = num;
	region->pages = kvcalloc(num, sizeof(*region->pages), GFP_KERNEL);
	region->state = kvcalloc(num, sizeof(*region->state), GFP_KERNEL);
	if (!region->pages || !region->state)
		goto err;

	for (i = 0; i < num; i++) {
		region->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!region->pages[i])
			goto err;
	}
	for (i = 0; i < DMABUF_PAGES_VIEWS; i++) {
		region->view[i].region = region;
		INIT_LIST_HEAD(&region->view[i].windows);
		region->view[i].fill = fill_page(i);
		region->view[i].prot = i == DMABUF_PAGES_READ ?
				       IOMMU_READ : IOMMU_READ | IOMMU_WRITE;
		if (!region->view[i].fill)
			goto err;
	}
	return region;

err:
	kref_put(&region->kref, region_free);
	return NULL;
}

static long pages_create(struct file *file, void __user *arg)
{
	struct dmabuf_pages_create create;
	struct region *region;
	int i;

	if (copy_from_user(&create, arg, sizeof(create)))
		return -EFAULT;
	if (create.pages == 0 || create.pages > DMABUF_PAGES_MAX)
		return -EINVAL;

	region = region_new(create.pages);
	if (!region)
		return -ENOMEM;
	if (cmpxchg(&file->private_data, NULL, region)) {
		kref_put(&region->kref, region_free);
		return -EBUSY;
	}

	for (i = 0; i < DMABUF_PAGES_VIEWS; i++) {
		create.fd[i] = view_export(&region->view[i]);
		if (create.fd[i] < 0)
			return create.fd[i];
	}
	return copy_to_user(arg, &create, sizeof(create)) ? -EFAULT : 0;
}

static int region_set(struct region *region, unsigned int i, u8 state)
{
	u8 old = region->state[i];
	struct window *window;
	unsigned int v;
	int err = 0;

	region->state[i] = state;
	for (v = 0; v < DMABUF_PAGES_VIEWS; v++)
		list_for_each_entry(window, &region->view[v].windows, link)
			err = window_replace(window, i, old) ?: err;
	return err;
}

static long pages_set(struct region *region, void __user *arg)
{
	struct dmabuf_pages_set set;
	unsigned int i;
	int err = 0;

	if (!region)
		return -EINVAL;
	if (copy_from_user(&set, arg, sizeof(set)))
		return -EFAULT;
	if (set.page >= region->num || set.count > region->num - set.page ||
	    set.state > DMABUF_PAGES_HOLE)
		return -EINVAL;

	mutex_lock(&region->lock);
	for (i = set.page; i < set.page + set.count; i++)
		err = region_set(region, i, set.state) ?: err;
	mutex_unlock(&region->lock);
	/* Devices that are software have no IOTLB */
	synchronize_rcu_expedited();
	return err;
}

static long pages_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case DMABUF_PAGES_CREATE:
		return pages_create(file, (void __user *)arg);
	case DMABUF_PAGES_SET:
		return pages_set(READ_ONCE(file->private_data),
				 (void __user *)arg);
	default:
		return -ENOTTY;
	}
}

static int pages_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct region *region = READ_ONCE(file->private_data);

	if (!region)
		return -EINVAL;
	return vm_map_pages(vma, region->pages, region->num);
}

/* misc_open() has put the miscdevice there */
static int pages_open(struct inode *inode, struct file *file)
{
	file->private_data = NULL;
	return 0;
}

static int pages_release(struct inode *inode, struct file *file)
{
	struct region *region = file->private_data;

	if (region)
		kref_put(&region->kref, region_free);
	return 0;
}

static const struct file_operations pages_fops = {
	.owner		= THIS_MODULE,
	.open		= pages_open,
	.release	= pages_release,
	.unlocked_ioctl	= pages_ioctl,
	.mmap		= pages_mmap,
};

static struct miscdevice pages_device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "dmabuf_pages",
	.fops	= &pages_fops,
	.mode	= 0600,
};
module_misc_device(pages_device);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("dma-bufs whose translations a test edits");
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif
