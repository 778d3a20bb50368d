// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls of the IOMMU's that fail for want of memory, as they hardly ever do:
 * for tests of nprdma.ko, which itself has no hook for it. Only its own calls
 * fail, and do nothing then.
 */
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/module.h>
#include <asm/ibt.h>

static int fill;
module_param(fill, int, 0644);
MODULE_PARM_DESC(fill, "the call that fills part of a window and fails: 1: the next; 0: none");

static int map;
module_param(map, int, 0644);
MODULE_PARM_DESC(map, "the call that maps a page and fails: 1: the next; 0: none");

static int map_count = 1;
module_param(map_count, int, 0644);
MODULE_PARM_DESC(map_count, "calls that fail, from that one on");

static DEFINE_SPINLOCK(fail_lock);

static bool fail_is_ours(struct pt_regs *regs)
{
	char name[KSYM_SYMBOL_LEN];

	sprint_symbol(name, *(unsigned long *)kernel_stack_pointer(regs));
	return strstarts(name, "np_window_");
}

/* In place of the function: back to who has called it */
asmlinkage void fail_just_return(void);
asm(".text\n"
	".type fail_just_return, @function\n"
	".globl fail_just_return\n"
	"fail_just_return:\n"
	ASM_ENDBR
	ASM_RET
	".size fail_just_return, .-fail_just_return\n");

static int fail_return(struct pt_regs *regs, long value)
{
	regs_set_return_value(regs, value);
	instruction_pointer_set(regs, (unsigned long)fail_just_return);
	return 1;
}

static int fail_fill(struct kprobe *probe, struct pt_regs *regs)
{
	bool fails;

	if (!READ_ONCE(fill) || !fail_is_ours(regs))
		return 0;
	spin_lock(&fail_lock);
	fails = fill && --fill == 0;
	spin_unlock(&fail_lock);
	return fails ? fail_return(regs, -ENOMEM) : 0;
}

static int fail_map(struct kprobe *probe, struct pt_regs *regs)
{
	bool fails = false;

	if (!READ_ONCE(map) || !fail_is_ours(regs))
		return 0;
	spin_lock(&fail_lock);
	if (map > 1) {
		map--;
	} else if (map) {
		fails = true;
		if (--map_count <= 0)
			map = 0;
	}
	spin_unlock(&fail_lock);
	return fails ? fail_return(regs, -ENOMEM) : 0;
}

static struct kprobe fail_fill_probe = {
	.symbol_name	= "iommu_map_sg",
	.pre_handler	= fail_fill,
};

/* Before Linux 6.3 there were two */
static struct kprobe fail_map_probe = {
	.symbol_name	= "iommu_map_atomic",
	.pre_handler	= fail_map,
};

static int __init fail_init(void)
{
	int ret;

	ret = register_kprobe(&fail_fill_probe);
	if (ret)
		return ret;
	ret = register_kprobe(&fail_map_probe);
	if (ret == -ENOENT) {
		memset(&fail_map_probe, 0, sizeof(fail_map_probe));
		fail_map_probe.symbol_name = "iommu_map";
		fail_map_probe.pre_handler = fail_map;
		ret = register_kprobe(&fail_map_probe);
	}
	if (ret)
		unregister_kprobe(&fail_fill_probe);
	return ret;
}

static void __exit fail_exit(void)
{
	unregister_kprobe(&fail_map_probe);
	unregister_kprobe(&fail_fill_probe);
}

module_init(fail_init);
module_exit(fail_exit);

MODULE_DESCRIPTION("nprdma: mappings that fail (for tests)");
MODULE_LICENSE("GPL");
