// SPDX-License-Identifier: GPL-2.0-only
/* The ioctls: arguments in and out, and who may say what */
#include <linux/fs.h>
#include <linux/nospec.h>
#include <linux/uaccess.h>

#include "nprdma.h"

#define NP_FEATURES (NPRDMA_FEATURE_VIEWS | NPRDMA_FEATURE_PREFETCH | \
		     NPRDMA_FEATURE_SWAP | \
		     (NP_HAVE_IN_PLACE ? NPRDMA_FEATURE_IN_PLACE : 0))
#define NP_FAULT_FLAGS (NPRDMA_FAULT_WRITE | NPRDMA_FAULT_NOWAIT)

union np_argument {
	struct nprdma_info info;
	struct nprdma_region_create create;
	struct nprdma_region_destroy destroy;
	struct nprdma_region_export export;
	struct nprdma_fault fault;
	struct nprdma_range range;
	struct nprdma_kernel_counters counters;
};

static int np_do_info(struct np_context *context, union np_argument *argument)
{
	argument->info = (struct nprdma_info) {
		.abi = NPRDMA_ABI_VERSION,
		.page_size = PAGE_SIZE,
		.signature = NPRDMA_SIGNATURE,
		.slice_size = 1U << NP_SLICE_SHIFT,
		.features = NP_FEATURES,
		.region_max = NP_REGION_MAX,
		.table_max = np_table_max(),
		.table_used = atomic64_read(&context->user->bytes),
	};
	return 0;
}

static int np_do_create(struct np_context *context, union np_argument *argument)
{
	if (argument->create.flags & ~NPRDMA_REGION_RDONLY ||
	    argument->create.region)
		return -EINVAL;
	return np_region_create(context, &argument->create);
}

static int np_do_destroy(struct np_context *context,
			 union np_argument *argument)
{
	if (argument->destroy.flags)
		return -EINVAL;
	return np_region_destroy(context, argument->destroy.region);
}

static int np_do_export(struct np_context *context, union np_argument *argument)
{
	struct nprdma_region_export *export = &argument->export;
	unsigned long first, pages;
	struct np_region *region;
	int ret;

	if (export->flags || export->fd ||
	    export->what < NPRDMA_EXPORT_READ ||
	    export->what > NPRDMA_EXPORT_TABLE ||
	    (export->what == NPRDMA_EXPORT_TABLE &&
	     (export->offset || export->length)))
		return -EINVAL;
	region = np_region_get(context, export->region);
	if (!region)
		return -ENOENT;
	ret = np_region_part(region, export->offset, export->length, &first,
			     &pages);
	if (!ret)
		ret = np_export(region, export->what, first, pages);
	np_region_put(region);
	export->fd = ret;
	return min(ret, 0);
}

static int np_do_fault(struct np_context *context, union np_argument *argument)
{
	struct nprdma_fault *fault = &argument->fault;
	unsigned long from, to, done = 0;
	struct np_region *region;
	int ret;

	if (fault->flags & ~NP_FAULT_FLAGS || fault->done)
		return -EINVAL;
	region = np_region_get(context, fault->region);
	if (!region)
		return -ENOENT;
	ret = np_region_span(region, fault->addr, fault->length, &from, &to);
	if (ret)
		goto put;
	ret = np_fault(region, from, to, fault->flags, &done);
	fault->done = (u64)done << PAGE_SHIFT;
put:
	np_region_put(region);
	return ret;
}

static int np_do_range(struct np_context *context,
		       struct nprdma_range *range, u32 allowed,
		       int (*function)(struct np_region *region,
				       unsigned long from, unsigned long to,
				       u32 flags))
{
	struct np_region *region;
	unsigned long from, to;
	int ret;

	if (range->flags & ~allowed)
		return -EINVAL;
	region = np_region_get(context, range->region);
	if (!region)
		return -ENOENT;
	ret = np_region_span(region, range->addr, range->length, &from, &to);
	if (!ret)
		ret = function(region, from, to, range->flags);
	np_region_put(region);
	return ret;
}

static int np_do_prefetch(struct np_context *context,
			  union np_argument *argument)
{
	BUILD_BUG_ON(NPRDMA_RANGE_WRITE != NPRDMA_FAULT_WRITE);
	return np_do_range(context, &argument->range, NPRDMA_RANGE_WRITE,
			   np_prefetch);
}

static int np_do_invalidate(struct np_context *context,
			    union np_argument *argument)
{
	return np_do_range(context, &argument->range, 0, np_invalidate);
}

static int np_do_swap_out(struct np_context *context,
			  union np_argument *argument)
{
	return np_do_range(context, &argument->range, 0, np_swap_out);
}

static int np_do_swap_in(struct np_context *context,
			 union np_argument *argument)
{
	return np_do_range(context, &argument->range,
			   NPRDMA_RANGE_WRITE | NPRDMA_RANGE_LAZY, np_swap_in);
}

static int np_do_counters(struct np_context *context,
			  union np_argument *argument)
{
	struct np_stats *stats = &context->stats;
	unsigned int attached = atomic_read(&stats->attached);

	argument->counters = (struct nprdma_kernel_counters) {
		.regions = atomic_read(&stats->regions),
		.attached = attached,
		.replace = !attached ? NPRDMA_REPLACE_NONE :
			   atomic_read(&stats->gapped) ? NPRDMA_REPLACE_GAP :
			   NPRDMA_REPLACE_ATOMIC,
		.kernel_bytes = atomic64_read(&context->user->bytes),
		.faults = atomic64_read(&stats->faults),
		.mapped = atomic64_read(&stats->mapped),
		.upgraded = atomic64_read(&stats->upgraded),
		.retries = atomic64_read(&stats->retries),
		.invalidations = atomic64_read(&stats->invalidations),
		.unmapped = atomic64_read(&stats->unmapped),
		.downgraded = atomic64_read(&stats->downgraded),
		.refused = atomic64_read(&stats->refused),
		.flushes = atomic64_read(&stats->flushes),
		.gaps = atomic64_read(&stats->gaps),
	};
	return 0;
}

struct np_command {
	unsigned int number;
	int (*function)(struct np_context *context,
			union np_argument *argument);
};

/* Their own numbers are their places */

static const struct np_command np_commands[] = {
	[_IOC_NR(NPRDMA_IOC_INFO)] = { NPRDMA_IOC_INFO, np_do_info },
	[_IOC_NR(NPRDMA_IOC_REGION_CREATE)] = { NPRDMA_IOC_REGION_CREATE, np_do_create },
	[_IOC_NR(NPRDMA_IOC_REGION_DESTROY)] = { NPRDMA_IOC_REGION_DESTROY, np_do_destroy },
	[_IOC_NR(NPRDMA_IOC_REGION_EXPORT)] = { NPRDMA_IOC_REGION_EXPORT, np_do_export },
	[_IOC_NR(NPRDMA_IOC_FAULT)] = { NPRDMA_IOC_FAULT, np_do_fault },
	[_IOC_NR(NPRDMA_IOC_PREFETCH)] = { NPRDMA_IOC_PREFETCH, np_do_prefetch },
	[_IOC_NR(NPRDMA_IOC_INVALIDATE)] = { NPRDMA_IOC_INVALIDATE, np_do_invalidate },
	[_IOC_NR(NPRDMA_IOC_SWAP_OUT)] = { NPRDMA_IOC_SWAP_OUT, np_do_swap_out },
	[_IOC_NR(NPRDMA_IOC_SWAP_IN)] = { NPRDMA_IOC_SWAP_IN, np_do_swap_in },
	[_IOC_NR(NPRDMA_IOC_COUNTERS)] = { NPRDMA_IOC_COUNTERS, np_do_counters },
};

/* The command of that number and direction, of whatever size; NULL: none */
static const struct np_command *np_command_find(unsigned int number)
{
	unsigned int i = _IOC_NR(number);

	if (_IOC_TYPE(number) != NPRDMA_IOC || i >= ARRAY_SIZE(np_commands))
		return NULL;
	i = array_index_nospec(i, ARRAY_SIZE(np_commands));
	if (_IOC_DIR(number) != _IOC_DIR(np_commands[i].number))
		return NULL;
	return &np_commands[i];
}

static int np_copy_out(void __user *user, size_t user_size,
		       const union np_argument *argument, size_t size)
{
	if (copy_to_user(user, argument, min(user_size, size)))
		return -EFAULT;
	if (user_size > size && clear_user(user + size, user_size - size))
		return -EFAULT;
	return 0;
}

long np_ioctl(struct file *file, unsigned int number, unsigned long address)
{
	struct np_context *context = file->private_data;
	const struct np_command *command = np_command_find(number);
	size_t size, user_size = _IOC_SIZE(number);
	void __user *user = (void __user *)address;
	union np_argument argument = {};
	int ret, copied;

	if (!command)
		return -ENOTTY;
	if (current->mm != context->mm)
		return -EPERM;
	size = _IOC_SIZE(command->number);
	/* No structure was ever shorter than in version 2 */
	if (user_size < size)
		return -EINVAL;
	if (_IOC_DIR(number) & _IOC_WRITE) {
		ret = copy_struct_from_user(&argument, size, user, user_size);
		if (ret)
			return ret;
	}
	ret = command->function(context, &argument);
	if (!(_IOC_DIR(number) & _IOC_READ))
		return ret;
	copied = np_copy_out(user, user_size, &argument, size);
	return copied ? copied : ret;
}
