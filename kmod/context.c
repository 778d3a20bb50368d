// SPDX-License-Identifier: GPL-2.0
/* Contexts: one for each open file, bound to the address space that opened it */
#include <linux/cred.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "nprdma.h"

struct np_context *np_context_open(void)
{
	struct np_context *context;

	if (!current->mm)
		return ERR_PTR(-EINVAL);
	context = kzalloc(sizeof(*context), GFP_KERNEL_ACCOUNT);
	if (!context)
		return ERR_PTR(-ENOMEM);
	/* Devices of one process alone write here, and it could read it */
	context->hole = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!context->hole)
		goto free_context;
	context->user = np_user_get(current_euid());
	if (!context->user)
		goto free_hole;
	kref_init(&context->refs);
	xa_init_flags(&context->regions, XA_FLAGS_ALLOC1);
	context->mm = current->mm;
	mmgrab(context->mm);
	return context;

free_hole:
	__free_page(context->hole);
free_context:
	kfree(context);
	return ERR_PTR(-ENOMEM);
}

static void np_context_free(struct kref *refs)
{
	struct np_context *context = container_of(refs, struct np_context,
						  refs);

	xa_destroy(&context->regions);
	__free_page(context->hole);
	np_user_put(context->user);
	mmdrop(context->mm);
	kfree(context);
}

void np_context_put(struct np_context *context)
{
	kref_put(&context->refs, np_context_free);
}

/* The file is gone: what it made ends, what it exported reads as absent */
void np_context_close(struct np_context *context)
{
	struct np_region *region;
	unsigned long number;

	xa_for_each(&context->regions, number, region) {
		xa_erase(&context->regions, number);
		np_region_kill(region);
		np_region_put(region);
	}
	np_context_put(context);
}
