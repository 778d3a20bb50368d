// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a device may do that Soft-RoCE by itself does not, each when a module
 * parameter says so: small units in any order, a translation cache of its own,
 * writes that take effect late, and no translation where something is absent.
 */

#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/workqueue.h>

#include "rxe.h"
#include "rxe_loc.h"
#include "rxe_modes.h"

#define RXE_IOTLB_SIZE	4096U
#define RXE_LATE_MAX	64U	/* writes that wait, of all queue pairs */

static uint dmabuf_unit = PAGE_SIZE;
module_param(dmabuf_unit, uint, 0644);
MODULE_PARM_DESC(dmabuf_unit,
		 "bytes that are read or written at once, a power of two from 64 to 4096");

static bool dmabuf_shuffle;
module_param(dmabuf_shuffle, bool, 0644);
MODULE_PARM_DESC(dmabuf_shuffle, "such units of a packet go in any order");

static bool dmabuf_iotlb;
module_param(dmabuf_iotlb, bool, 0644);
MODULE_PARM_DESC(dmabuf_iotlb,
		 "translations are kept until the IOMMU's driver flushes; to be set before there are regions");

static bool dmabuf_late;
module_param(dmabuf_late, bool, 0644);
MODULE_PARM_DESC(dmabuf_late,
		 "an RDMA Write takes effect with the next request of its queue pair that is none, or some ms later");

static uint dmabuf_hole;
module_param(dmabuf_hole, uint, 0644);
MODULE_PARM_DESC(dmabuf_hole,
		 "reads of pages that hold nothing but this word are aborted; 0: none");

unsigned int rxe_modes_unit(void)
{
	unsigned int unit = READ_ONCE(dmabuf_unit);

	return clamp_t(unsigned int, rounddown_pow_of_two(unit | 1), 64,
		       PAGE_SIZE);
}

void rxe_modes_order(u8 *order, unsigned int count)
{
	unsigned int i, other;

	for (i = 0; i < count; i++) {
		other = READ_ONCE(dmabuf_shuffle) ? get_random_u32() % (i + 1) :
						    i;
		order[i] = order[other];
		order[other] = i;
	}
}

bool rxe_modes_is_hole(struct page *page)
{
	u32 word = READ_ONCE(dmabuf_hole);
	bool is_hole;
	u32 *words;

	if (likely(!word))
		return false;

	words = kmap_local_page(page);
	is_hole = words[0] == word && !memcmp(words, words + 1,
					      PAGE_SIZE - sizeof(*words));
	kunmap_local(words);
	return is_hole;
}

/*
 * The translation cache. It forgets all whenever the IOMMU's driver is asked to
 * flush anything, and nothing before.
 */
struct rxe_iotlb_entry {
	struct iommu_domain	*domain;
	dma_addr_t		iova;
	phys_addr_t		phys;
	int			flushes;
};

static struct rxe_iotlb_entry rxe_iotlb[RXE_IOTLB_SIZE];
static DEFINE_SPINLOCK(rxe_iotlb_lock);		/* guards rxe_iotlb */
static atomic_t rxe_iotlb_flushes;

static DEFINE_MUTEX(rxe_modes_lock);		/* guards what follows */
static unsigned int rxe_modes_users;
static bool rxe_modes_probed;

static int rxe_iotlb_flush(struct kprobe *probe, struct pt_regs *regs)
{
	atomic_inc(&rxe_iotlb_flushes);
	return 0;
}

static struct kprobe rxe_iotlb_probes[] = {
	{ .pre_handler = rxe_iotlb_flush },	/* iotlb_sync */
	{ .pre_handler = rxe_iotlb_flush },	/* flush_iotlb_all */
};

static int rxe_iotlb_register(const struct iommu_domain_ops *ops)
{
	void *calls[] = { ops->iotlb_sync, ops->flush_iotlb_all };
	unsigned int i;
	int err;

	for (i = 0; i < ARRAY_SIZE(rxe_iotlb_probes); i++) {
		rxe_iotlb_probes[i].addr = calls[i];
		rxe_iotlb_probes[i].flags = 0;
		err = register_kprobe(&rxe_iotlb_probes[i]);
		if (err) {
			pr_err("rdma_rxe: dmabuf_iotlb: flushes of the IOMMU cannot be seen\n");
			while (i--)
				unregister_kprobe(&rxe_iotlb_probes[i]);
			return err;
		}
	}
	return 0;
}

int rxe_modes_enter(struct iommu_domain *domain)
{
	int err = 0;

	mutex_lock(&rxe_modes_lock);
	if (dmabuf_iotlb && !rxe_modes_probed) {
		err = rxe_iotlb_register(domain->ops);
		rxe_modes_probed = !err;
	}
	if (!err)
		rxe_modes_users++;
	mutex_unlock(&rxe_modes_lock);
	return err;
}

phys_addr_t rxe_modes_phys(struct iommu_domain *domain, dma_addr_t iova)
{
	struct rxe_iotlb_entry *entry;
	phys_addr_t phys;
	int flushes;

	if (!READ_ONCE(dmabuf_iotlb) || !READ_ONCE(rxe_modes_probed))
		return iommu_iova_to_phys(domain, iova);

	iova &= PAGE_MASK;
	entry = &rxe_iotlb[(iova >> PAGE_SHIFT) % RXE_IOTLB_SIZE];
	spin_lock_bh(&rxe_iotlb_lock);
	flushes = atomic_read(&rxe_iotlb_flushes);
	if (entry->domain == domain && entry->iova == iova &&
	    entry->flushes == flushes) {
		phys = entry->phys;
	} else {
		/* What is flushed from here on is not to be found again */
		smp_rmb();
		phys = iommu_iova_to_phys(domain, iova);
		if (phys)
			*entry = (struct rxe_iotlb_entry) {
				domain, iova, phys, flushes
			};
	}
	spin_unlock_bh(&rxe_iotlb_lock);
	return phys;
}

/*
 * Late writes. What has arrived is acknowledged, and yet not in memory: until
 * another kind of request of the same queue pair is to find it there, or until
 * the timer. The page is translated only then, as by a device that has it in a
 * buffer. They take effect in the order in which they came.
 */
struct rxe_late {
	struct list_head	link;
	struct rxe_qp		*qp;	/* only to be compared */
	struct rxe_mr		*mr;	/* with a reference */
	u64			iova;
	unsigned int		length;
	u8			data[];
};

static LIST_HEAD(rxe_late_list);
static unsigned int rxe_late_count;
static DEFINE_SPINLOCK(rxe_late_lock);	/* guards both; held while they happen,
					 * so that none overtakes another
					 */

static void rxe_late_settle(struct rxe_qp *qp)
{
	struct rxe_late *late, *next;

	spin_lock_bh(&rxe_late_lock);
	list_for_each_entry_safe(late, next, &rxe_late_list, link) {
		if (qp && late->qp != qp)
			continue;
		list_del(&late->link);
		rxe_late_count--;
		rxe_mr_copy(late->mr, late->iova, late->data, late->length,
			    RXE_TO_MR_OBJ);
		rxe_put(late->mr);
		kfree(late);
	}
	spin_unlock_bh(&rxe_late_lock);
}

static void rxe_late_work(struct work_struct *work)
{
	rxe_late_settle(NULL);
}

static DECLARE_DELAYED_WORK(rxe_late_timer, rxe_late_work);

/* The next request of this queue pair finds what was written before */
void rxe_dmabuf_settle(struct rxe_qp *qp)
{
	if (unlikely(!list_empty(&rxe_late_list)))
		rxe_late_settle(qp);
}

static bool rxe_late_add(struct rxe_qp *qp, struct rxe_mr *mr, u64 iova,
			 void *addr, unsigned int length)
{
	struct rxe_late *late = NULL;

	if (length && READ_ONCE(rxe_late_count) < RXE_LATE_MAX)
		late = kmalloc(struct_size(late, data, length), GFP_ATOMIC);
	if (!late)
		return false;

	late->qp = qp;
	late->mr = mr;
	late->iova = iova;
	late->length = length;
	memcpy(late->data, addr, length);
	rxe_get(mr);
	spin_lock_bh(&rxe_late_lock);
	list_add_tail(&late->link, &rxe_late_list);
	rxe_late_count++;
	spin_unlock_bh(&rxe_late_lock);
	schedule_delayed_work(&rxe_late_timer, 1);
	return true;
}

/* The payload of an RDMA Write; @is_told: somebody is told of it at once */
int rxe_dmabuf_write(struct rxe_qp *qp, struct rxe_mr *mr, u64 iova,
		     void *addr, unsigned int length, bool is_told)
{
	if (unlikely(READ_ONCE(dmabuf_late)) && mr->dmabuf && !is_told &&
	    rxe_late_add(qp, mr, iova, addr, length))
		return 0;

	rxe_dmabuf_settle(qp);
	return rxe_mr_copy(mr, iova, addr, length, RXE_TO_MR_OBJ);
}

/* A region ends: nothing is late for it any more, but our code may still run */
void rxe_modes_leave(void)
{
	flush_delayed_work(&rxe_late_timer);

	mutex_lock(&rxe_modes_lock);
	if (!--rxe_modes_users && rxe_modes_probed) {
		rxe_modes_probed = false;
		unregister_kprobe(&rxe_iotlb_probes[0]);
		unregister_kprobe(&rxe_iotlb_probes[1]);
	}
	mutex_unlock(&rxe_modes_lock);
}
