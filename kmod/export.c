// SPDX-License-Identifier: GPL-2.0-only
/*
 * Views and tables as dma-bufs. A static exporter: no importer needs to move
 * anything, ever, since a window's addresses stay what they are. One window for
 * each attachment.
 */
#include <linux/dma-buf.h>
#include <linux/fcntl.h>
#include <linux/slab.h>

#include "nprdma.h"

struct np_export {
	struct np_region *region;
	u32 what;
	unsigned long first;		/* which pages of the view or table */
	unsigned long pages;
};

static int np_export_attach(struct dma_buf *dmabuf,
			    struct dma_buf_attachment *attachment)
{
	struct np_export *export = dmabuf->priv;
	struct np_window *window;
	int ret;

	window = np_window_open(export->region, export->what, export->first,
				export->pages, attachment->dev);
	if (IS_ERR(window))
		return PTR_ERR(window);
	if (export->what != NPRDMA_EXPORT_TABLE) {
		ret = np_views_add(window);
		if (ret) {
			np_window_close(window);
			return ret;
		}
	}
	attachment->priv = window;
	return 0;
}

static void np_export_detach(struct dma_buf *dmabuf,
			     struct dma_buf_attachment *attachment)
{
	struct np_window *window = attachment->priv;

	if (window->what != NPRDMA_EXPORT_TABLE)
		np_views_remove(window);
	np_window_close(window);
}

/* Importers edit lists in place, so each gets its own. What the importer wants
 * to do is not asked for: the window itself allows no more than it may.
 */
static struct sg_table *np_export_map(struct dma_buf_attachment *attachment,
				      enum dma_data_direction direction)
{
	return np_window_list(attachment->priv);
}

static void np_export_unmap(struct dma_buf_attachment *attachment,
			    struct sg_table *list,
			    enum dma_data_direction direction)
{
	np_window_list_free(list);
}

static int np_export_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct np_export *export = dmabuf->priv;
	struct np_region *region = export->region;

	if (export->what != NPRDMA_EXPORT_TABLE)
		return -ENXIO;
	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	np_vm_flags(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP,
		    VM_MAYWRITE | VM_MAYEXEC);
	return vm_map_pages(vma, region->table, region->table_pages);
}

static void np_export_release(struct dma_buf *dmabuf)
{
	struct np_export *export = dmabuf->priv;

	np_region_put(export->region);
	kfree(export);
}

static const struct dma_buf_ops np_export_ops = {
	.attach		= np_export_attach,
	.detach		= np_export_detach,
	.map_dma_buf	= np_export_map,
	.unmap_dma_buf	= np_export_unmap,
	.mmap		= np_export_mmap,
	.release	= np_export_release,
};

static const char * const np_export_names[] = {
	[NPRDMA_EXPORT_READ]	= "nprdma-read",
	[NPRDMA_EXPORT_WRITE]	= "nprdma-write",
	[NPRDMA_EXPORT_TABLE]	= "nprdma-table",
};

static struct dma_buf *np_export_make(struct np_region *region, u32 what,
				      unsigned long first, unsigned long pages)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct np_export *export;
	struct dma_buf *dmabuf;

	export = kzalloc(sizeof(*export), GFP_KERNEL_ACCOUNT);
	if (!export)
		return ERR_PTR(-ENOMEM);
	export->region = region;
	export->what = what;
	export->first = first;
	export->pages = pages;
	info.exp_name = np_export_names[what];
	info.ops = &np_export_ops;
	info.size = pages << PAGE_SHIFT;
	info.flags = what == NPRDMA_EXPORT_TABLE ? O_RDONLY : O_RDWR;
	info.priv = export;
	dmabuf = dma_buf_export(&info);
	if (IS_ERR(dmabuf))
		kfree(export);
	else
		kref_get(&region->refs);
	return dmabuf;
}

/* A new file descriptor, or an error; pages of the view, or all of the table */
int np_export(struct np_region *region, u32 what, unsigned long first,
	      unsigned long pages)
{
	struct dma_buf *dmabuf;
	int ret, fd;

	if (what == NPRDMA_EXPORT_TABLE) {
		ret = np_region_table(region);
		if (ret)
			return ret;
		pages = region->table_pages;
	}
	dmabuf = np_export_make(region, what, first, pages);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	fd = dma_buf_fd(dmabuf, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(dmabuf);
	return fd;
}
