// SPDX-License-Identifier: GPL-2.0-only
/*
 * Contexts: one for each open file, bound to the address space that opened it
 */
#include <linux/cred.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "nprdma.h"

static struct mmu_notifier *np_space_alloc(struct mm_struct *mm)
{
	struct np_space *space = kzalloc(sizeof(*space), GFP_KERNEL_ACCOUNT);

	if (!space)
		return ERR_PTR(-ENOMEM);
	spin_lock_init(&space->slices_lock);
	space->slices = RB_ROOT_CACHED;
	return &space->notifier;
}

static void np_space_free(struct mmu_notifier *notifier)
{
	kfree(container_of(notifier, struct np_space, notifier));
}

static const struct mmu_notifier_ops np_space_ops = {
	.alloc_notifier = np_space_alloc,
	.free_notifier = np_space_free,
};

/* The current one's, made at first */
static struct np_space *np_space_get(void)
{
	struct mmu_notifier *notifier = mmu_notifier_get(&np_space_ops,
							 current->mm);

	if (IS_ERR(notifier))
		return ERR_CAST(notifier);
	return container_of(notifier, struct np_space, notifier);
}

/* A worker keeps the address space, if there still is one */
bool np_space_enter(struct np_context *context)
{
	if (!mmget_not_zero(context->mm))
		return false;
	atomic_inc(&context->space->workers);
	return true;
}

void np_space_leave(struct np_context *context)
{
	atomic_dec(&context->space->workers);
	mmput(context->mm);
}

/* Do only workers keep it? Their count is looked at twice since they come and
 * go meanwhile; who is told too late or too early has lost little.
 */
bool np_space_deserted(struct np_context *context)
{
	int workers = atomic_read(&context->space->workers), users;

	smp_rmb(); /* one after the other */
	users = atomic_read(&context->mm->mm_users);
	smp_rmb(); /* here too */
	return users <= min(workers, atomic_read(&context->space->workers));
}

/* Whoever takes a page, perhaps of another user's as well, waits for all slices
 * over it: they may not be any number.
 */
int np_space_add(struct np_space *space, struct np_slice *slice)
{
	struct interval_tree_node *other;
	unsigned int count = 0;
	int ret = 0;

	spin_lock(&space->slices_lock);
	for (other = interval_tree_iter_first(&space->slices,
					      slice->range.start,
					      slice->range.last);
	     other; other = interval_tree_iter_next(other, slice->range.start,
						    slice->range.last))
		count++;
	if (count < NP_OVERLAPS_MAX)
		interval_tree_insert(&slice->range, &space->slices);
	else
		ret = -EDQUOT;
	spin_unlock(&space->slices_lock);
	return ret;
}

void np_space_remove(struct np_space *space, struct np_slice *slice)
{
	spin_lock(&space->slices_lock);
	interval_tree_remove(&slice->range, &space->slices);
	spin_unlock(&space->slices_lock);
}

struct np_context *np_context_open(void)
{
	struct np_context *context;
	int ret = -ENOMEM;

	if (!current->mm)
		return ERR_PTR(-EINVAL);
	context = kzalloc(sizeof(*context), GFP_KERNEL_ACCOUNT);
	if (!context)
		return ERR_PTR(-ENOMEM);
	/* Devices of one process alone write here, and it could read it */
	context->hole = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!context->hole)
		goto free_context;
	/*
	 * As RLIMITs go: a program that runs as another user is still of this
	 */
	context->user = np_user_get(current_uid());
	if (!context->user)
		goto free_hole;
	context->space = np_space_get();
	if (IS_ERR(context->space)) {
		ret = PTR_ERR(context->space);
		goto put_user;
	}
	kref_init(&context->refs);
	xa_init_flags(&context->regions, XA_FLAGS_ALLOC1);
	context->mm = current->mm;
	mmgrab(context->mm);
	return context;

put_user:
	np_user_put(context->user);
free_hole:
	__free_page(context->hole);
free_context:
	kfree(context);
	return ERR_PTR(ret);
}

static void np_context_free(struct kref *refs)
{
	struct np_context *context = container_of(refs, struct np_context,
						  refs);

	xa_destroy(&context->regions);
	__free_page(context->hole);
	np_user_put(context->user);
	mmu_notifier_put(&context->space->notifier);
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
