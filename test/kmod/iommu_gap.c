// SPDX-License-Identifier: GPL-2.0-only
/*
 * Between two translations of a page there is a moment with none, in which a
 * device's read is aborted. This module makes that moment longer, for tests of
 * those who recover: nprdma.ko itself has no hook for it.
 */
#include <linux/delay.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/module.h>

#define GAP_MAX_US	5000
/* What udelay() takes at once */
#define GAP_PIECE	100

static uint microseconds;
module_param(microseconds, uint, 0644);
MODULE_PARM_DESC(microseconds,
		 "how long a page has no translation; 0: no longer than without");

static int task;
module_param(task, int, 0644);
MODULE_PARM_DESC(task, "where this thread replaces it; 0: where any does");

/* iommu_unmap_fast() returns to nprdma.ko, which maps the other page next */
static int gap_handler(struct kretprobe_instance *instance,
		       struct pt_regs *regs)
{
	uint wait = min_t(uint, READ_ONCE(microseconds), GAP_MAX_US);
	char name[KSYM_SYMBOL_LEN];

	if (!wait || (READ_ONCE(task) && READ_ONCE(task) != current->pid))
		return 0;
	sprint_symbol(name, (unsigned long)get_kretprobe_retaddr(instance));
	if (!strstarts(name, "np_window_"))
		return 0;
	for (; wait > GAP_PIECE; wait -= GAP_PIECE)
		udelay(GAP_PIECE);
	udelay(wait);
	return 0;
}

static struct kretprobe gap_probe = {
	.kp.symbol_name	= "iommu_unmap_fast",
	.handler	= gap_handler,
	.maxactive	= 64,
};

static int __init gap_init(void)
{
	return register_kretprobe(&gap_probe);
}

static void __exit gap_exit(void)
{
	unregister_kretprobe(&gap_probe);
}

module_init(gap_init);
module_exit(gap_exit);

MODULE_DESCRIPTION("nprdma: longer moments without a translation (for tests)");
MODULE_LICENSE("GPL");
