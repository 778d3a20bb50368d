// SPDX-License-Identifier: GPL-2.0-only
/*
 * A driver of QEMU's edu device that imports dma-bufs: its DMA goes through the
 * emulated IOMMU, so it shows what hardware would see. For tests only.
 */
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/uaccess.h>

#include "edu_import.h"
#include "nprdma_config.h"

#define EDU_SOURCE	0x80
#define EDU_TARGET	0x88
#define EDU_COUNT	0x90
#define EDU_COMMAND	0x98
#define EDU_START	1
#define EDU_TO_MEMORY	2
#define EDU_BUFFER	0x40000		/* the device's own memory */
#define EDU_WAIT_MS	10000
#define EDU_LOOKS	3

struct edu_slot {
	struct dma_buf *dmabuf;
	struct dma_buf_attachment *attachment;
	struct sg_table *list;
};

struct edu {
	struct pci_dev *pci;
	void __iomem *registers;
	void *bounce;
	dma_addr_t bounce_iova;
	struct mutex lock;		/* one transfer at a time */
	struct edu_slot slots[EDU_SLOTS_ALL];
	struct miscdevice misc;
};

static void edu_put(struct edu *edu, unsigned int offset, u64 value)
{
	/* Registers of 64 bits there must be written as such */
	writeq(value, edu->registers + offset);
}

static int edu_run(struct edu *edu, u64 source, u64 target, u32 length,
		   u32 command)
{
	unsigned int waited;

	edu_put(edu, EDU_SOURCE, source);
	edu_put(edu, EDU_TARGET, target);
	edu_put(edu, EDU_COUNT, length);
	edu_put(edu, EDU_COMMAND, EDU_START | command);
	for (waited = 0; waited < EDU_WAIT_MS; waited += 20) {
		if (!(readq(edu->registers + EDU_COMMAND) & EDU_START))
			return 0;
		msleep(20);
	}
	return -ETIMEDOUT;
}

static int edu_from_memory(struct edu *edu, dma_addr_t iova, u32 length)
{
	return edu_run(edu, iova, EDU_BUFFER, length, 0);
}

static int edu_to_memory(struct edu *edu, dma_addr_t iova, u32 length)
{
	return edu_run(edu, EDU_BUFFER, iova, length, EDU_TO_MEMORY);
}

/* The address of that offset, which must not cross an entry of the list */
static int edu_address(struct edu_slot *slot, u64 offset, u32 length,
		       dma_addr_t *iova)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_dma_sg(slot->list, sg, i) {
		if (offset < sg_dma_len(sg)) {
			*iova = sg_dma_address(sg) + offset;
			return offset + length <= sg_dma_len(sg) ? 0 : -EINVAL;
		}
		offset -= sg_dma_len(sg);
	}
	return -EINVAL;
}

static int edu_dma(struct edu *edu, const struct edu_dma *dma)
{
	void __user *data = u64_to_user_ptr(dma->data);
	dma_addr_t iova;
	int ret;

	if (dma->slot >= EDU_SLOTS_ALL || !edu->slots[dma->slot].list ||
	    !dma->length || dma->length > EDU_LENGTH_MAX)
		return -EINVAL;
	ret = edu_address(&edu->slots[dma->slot], dma->offset, dma->length,
			  &iova);
	if (ret)
		return ret;
	if (dma->write) {
		if (copy_from_user(edu->bounce, data, dma->length))
			return -EFAULT;
		ret = edu_from_memory(edu, edu->bounce_iova, dma->length);
		return ret ? ret : edu_to_memory(edu, iova, dma->length);
	}
	ret = edu_from_memory(edu, iova, dma->length);
	if (!ret)
		ret = edu_to_memory(edu, edu->bounce_iova, dma->length);
	if (!ret && copy_to_user(data, edu->bounce, dma->length))
		ret = -EFAULT;
	return ret;
}

/* More than one look: between two steps the page may be taken, freed, and
 * something else stand there
 */
static bool edu_is_free(struct iommu_domain *domain, dma_addr_t iova)
{
	phys_addr_t first = iommu_iova_to_phys(domain, iova);
	unsigned int i;

	if (!first || !pfn_valid(PHYS_PFN(first)))
		return false;
	for (i = 0; i < EDU_LOOKS; i++) {
		if (folio_ref_count(page_folio(pfn_to_page(PHYS_PFN(first)))) ||
		    iommu_iova_to_phys(domain, iova) != first)
			return false;
	}
	return true;
}

static int edu_audit(struct edu *edu, struct edu_audit *audit)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&edu->pci->dev);
	u64 offset, end = audit->offset + audit->length;
	dma_addr_t iova;

	audit->free = 0;
	if (audit->slot >= EDU_SLOTS_ALL || !edu->slots[audit->slot].list ||
	    end < audit->offset)
		return -EINVAL;
	for (offset = audit->offset; offset < end; offset += PAGE_SIZE) {
		/* A table is shorter than a view */
		if (edu_address(&edu->slots[audit->slot], offset, PAGE_SIZE,
				&iova))
			break;
		audit->free += edu_is_free(domain, iova);
	}
	return 0;
}

static void edu_detach(struct edu_slot *slot)
{
	if (!slot->list)
		return;
	dma_resv_lock(slot->dmabuf->resv, NULL);
	dma_buf_unmap_attachment(slot->attachment, slot->list,
				 DMA_BIDIRECTIONAL);
	dma_resv_unlock(slot->dmabuf->resv);
	dma_buf_detach(slot->dmabuf, slot->attachment);
	dma_buf_put(slot->dmabuf);
	memset(slot, 0, sizeof(*slot));
}

static int edu_attach_slot(struct edu *edu, struct edu_slot *slot, int fd)
{
	int ret;

	slot->dmabuf = dma_buf_get(fd);
	if (IS_ERR(slot->dmabuf))
		return PTR_ERR(slot->dmabuf);
	slot->attachment = dma_buf_attach(slot->dmabuf, &edu->pci->dev);
	if (IS_ERR(slot->attachment)) {
		ret = PTR_ERR(slot->attachment);
		goto put;
	}
	dma_resv_lock(slot->dmabuf->resv, NULL);
	slot->list = dma_buf_map_attachment(slot->attachment,
					    DMA_BIDIRECTIONAL);
	dma_resv_unlock(slot->dmabuf->resv);
	if (IS_ERR(slot->list)) {
		ret = PTR_ERR(slot->list);
		slot->list = NULL;
		goto detach;
	}
	return 0;

detach:
	dma_buf_detach(slot->dmabuf, slot->attachment);
put:
	dma_buf_put(slot->dmabuf);
	return ret;
}

static int edu_attach(struct edu *edu, struct edu_attach *attach)
{
	struct edu_slot *slot;
	int ret;

	for (slot = edu->slots; slot->list; slot++) {
		if (slot == &edu->slots[EDU_SLOTS_ALL - 1])
			return -EBUSY;
	}
	ret = edu_attach_slot(edu, slot, attach->fd);
	if (ret)
		return ret;
	attach->slot = slot - edu->slots;
	attach->iova = sg_dma_address(slot->list->sgl);
	attach->entries = slot->list->nents;
	return 0;
}

static long edu_ioctl_locked(struct edu *edu, unsigned int number,
			     unsigned long argument)
{
	void __user *user = (void __user *)argument;
	struct edu_attach attach;
	struct edu_audit audit;
	struct edu_dma dma;
	int ret;

	switch (number) {
	case EDU_IOC_ATTACH:
		if (copy_from_user(&attach, user, sizeof(attach)))
			return -EFAULT;
		ret = edu_attach(edu, &attach);
		if (!ret && copy_to_user(user, &attach, sizeof(attach)))
			ret = -EFAULT;
		return ret;
	case EDU_IOC_DETACH:
		if (argument >= EDU_SLOTS_ALL)
			return -EINVAL;
		edu_detach(&edu->slots[argument]);
		return 0;
	case EDU_IOC_DMA:
		if (copy_from_user(&dma, user, sizeof(dma)))
			return -EFAULT;
		return edu_dma(edu, &dma);
	case EDU_IOC_AUDIT:
		if (copy_from_user(&audit, user, sizeof(audit)))
			return -EFAULT;
		ret = edu_audit(edu, &audit);
		if (!ret && copy_to_user(user, &audit, sizeof(audit)))
			ret = -EFAULT;
		return ret;
	default:
		return -ENOTTY;
	}
}

static long edu_ioctl(struct file *file, unsigned int number,
		      unsigned long argument)
{
	struct edu *edu = container_of(file->private_data, struct edu, misc);
	long ret;

	mutex_lock(&edu->lock);
	ret = edu_ioctl_locked(edu, number, argument);
	mutex_unlock(&edu->lock);
	return ret;
}

/* Slots belong to the device, not to the file: one program at a time */
static int edu_release(struct inode *inode, struct file *file)
{
	struct edu *edu = container_of(file->private_data, struct edu, misc);
	unsigned int i;

	mutex_lock(&edu->lock);
	for (i = 0; i < EDU_SLOTS_ALL; i++)
		edu_detach(&edu->slots[i]);
	mutex_unlock(&edu->lock);
	return 0;
}

static const struct file_operations edu_file_ops = {
	.owner		= THIS_MODULE,
	.unlocked_ioctl	= edu_ioctl,
	.release	= edu_release,
};

static int edu_probe(struct pci_dev *pci, const struct pci_device_id *id)
{
	struct edu *edu;
	int ret;

	edu = devm_kzalloc(&pci->dev, sizeof(*edu), GFP_KERNEL);
	if (!edu)
		return -ENOMEM;
	edu->pci = pci;
	mutex_init(&edu->lock);
	pci_set_drvdata(pci, edu);
	ret = pcim_enable_device(pci);
	if (ret)
		return ret;
	pci_set_master(pci);
	ret = dma_set_mask_and_coherent(&pci->dev, DMA_BIT_MASK(64));
	if (ret)
		return ret;
	edu->registers = pcim_iomap(pci, 0, 0);
	edu->bounce = dmam_alloc_coherent(&pci->dev, PAGE_SIZE,
					  &edu->bounce_iova, GFP_KERNEL);
	if (!edu->registers || !edu->bounce)
		return -ENOMEM;
	edu->misc.minor = MISC_DYNAMIC_MINOR;
	edu->misc.name = "nprdma_edu";
	edu->misc.fops = &edu_file_ops;
	edu->misc.mode = 0600;
	return misc_register(&edu->misc);
}

static void edu_remove(struct pci_dev *pci)
{
	struct edu *edu = pci_get_drvdata(pci);

	misc_deregister(&edu->misc);
}

static const struct pci_device_id edu_ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{ }
};
MODULE_DEVICE_TABLE(pci, edu_ids);

static struct pci_driver edu_driver = {
	.name		= "nprdma_edu",
	.id_table	= edu_ids,
	.probe		= edu_probe,
	.remove		= edu_remove,
};
module_pci_driver(edu_driver);

MODULE_DESCRIPTION("nprdma: dma-bufs for QEMU's edu device (for tests)");
MODULE_LICENSE("GPL");
NP_IMPORT_NS_DMA_BUF;
