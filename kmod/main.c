// SPDX-License-Identifier: GPL-2.0-only
/*
 * nprdma: RDMA on memory that nobody pins. The module: the device node, its
 * parameters, and what all contexts share.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/sizes.h>
#include <linux/mmu_notifier.h>
#include <linux/workqueue.h>

#include "nprdma.h"

/* What modinfo and the log say of how this one was built */
#if NP_HAVE_IN_PLACE
#define NP_REPLACED	"by two calls, or with in_place=Y by one store"
#else
#define NP_REPLACED	"by two calls (" NP_IN_PLACE_WHY ")"
#endif

/* Of all memory a part in so many, unless told otherwise */
#define NP_TABLE_SHARE	32

bool np_sync_rcu;
module_param_named(sync_rcu, np_sync_rcu, bool, 0644);
MODULE_PARM_DESC(sync_rcu,
		 "wait for RCU readers after each flush, for NICs in software that translate under rcu_read_lock (default: N)");

/* What Arm asks for: no device may ever find two translations of an address */
bool np_break_first = !IS_ENABLED(CONFIG_X86);
module_param_named(break_first, np_break_first, bool, 0644);
MODULE_PARM_DESC(break_first,
		 "flush between two translations of a page: break before make (default: N on x86, else Y)");

bool np_verify;
module_param_named(verify, np_verify, bool, 0644);
MODULE_PARM_DESC(verify,
		 "look each translation up after it was changed, and warn if it is not what it should be (default: N)");

static unsigned int user_mb;
module_param(user_mb, uint, 0644);
MODULE_PARM_DESC(user_mb,
		 "MB of kernel memory for the tables of one user (default: 0, a part in 32 of all memory)");

struct page *np_signature;
unsigned int np_signature_pages;
static unsigned int np_signature_order = ilog2(SZ_2M) - PAGE_SHIFT;
struct workqueue_struct *np_queue;

u64 np_table_max(void)
{
	if (user_mb)
		return (u64)user_mb << 20;
	return ((u64)totalram_pages() << PAGE_SHIFT) / NP_TABLE_SHARE;
}

static int np_open(struct inode *inode, struct file *file)
{
	struct np_context *context = np_context_open();

	if (IS_ERR(context))
		return PTR_ERR(context);
	file->private_data = context;
	return 0;
}

static int np_release(struct inode *inode, struct file *file)
{
	np_context_close(file->private_data);
	return 0;
}

static const struct file_operations np_file_ops = {
	.owner		= THIS_MODULE,
	.open		= np_open,
	.release	= np_release,
	.unlocked_ioctl	= np_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

static struct miscdevice np_device = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "nprdma",
	.fops	= &np_file_ops,
	.mode	= 0600,
};

/* A large page of it, if there is one: windows begin as such */
static int __init np_signature_make(void)
{
	__le32 *word;
	unsigned int i;

	np_signature = alloc_pages(GFP_KERNEL | __GFP_COMP | __GFP_NOWARN,
				   np_signature_order);
	if (!np_signature) {
		np_signature_order = 0;
		np_signature = alloc_page(GFP_KERNEL);
	}
	if (!np_signature)
		return -ENOMEM;
	np_signature_pages = 1U << np_signature_order;
	word = page_address(np_signature);
	for (i = 0; i < np_signature_pages * (PAGE_SIZE / sizeof(*word)); i++)
		word[i] = cpu_to_le32(NPRDMA_SIGNATURE);
	return 0;
}

static int __init np_init(void)
{
	int ret;

	ret = np_signature_make();
	if (ret)
		return ret;
	np_queue = alloc_workqueue("nprdma", WQ_UNBOUND, 0);
	if (!np_queue) {
		ret = -ENOMEM;
		goto free_signature;
	}
	ret = misc_register(&np_device);
	if (ret)
		goto destroy_queue;
	pr_info("nprdma: ABI %u, translations are replaced " NP_REPLACED "\n",
		NPRDMA_ABI_VERSION);
	return 0;

destroy_queue:
	destroy_workqueue(np_queue);
free_signature:
	__free_pages(np_signature, np_signature_order);
	return ret;
}

/* Open files and exports hold a reference to the module */
static void __exit np_exit(void)
{
	misc_deregister(&np_device);
	destroy_workqueue(np_queue);
	/* What the kernel frees later, by functions of ours */
	mmu_notifier_synchronize();
	__free_pages(np_signature, np_signature_order);
}

module_init(np_init);
module_exit(np_exit);

MODULE_DESCRIPTION("RDMA on memory that nobody pins");
MODULE_INFO(replaced, NP_REPLACED);
MODULE_LICENSE("GPL");
NP_IMPORT_NS_DMA_BUF;
