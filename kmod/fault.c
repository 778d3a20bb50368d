// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fault-in: pages are brought in by hmm_range_fault() and mapped if no notifier
 * has said meanwhile that they went. No reference to any page is held. Work is
 * done in batches, which shrink each time something comes in between.
 *
 * The kernel's own sequence count is of a whole slice: whoever takes another
 * page of it would make us begin again, for ever if it goes on doing so. So
 * each batch stands in its slice's list, and a notifier marks those of which it
 * takes something. From mmu_interval_read_begin() we have but that it waits for
 * what has begun before we stood there and is still going on.
 */
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/hmm.h>
#include <linux/magic.h>
#include <linux/memremap.h>
#include <linux/mmu_context.h>
#include <linux/pkeys.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "nprdma.h"

#define NP_BATCH	512	/* pages */
#define NP_BATCH_AHEAD	64	/* of a worker, whom no signal reaches */
#define NP_TRIES	64	/* in a row that bring nothing */
#define NP_TRIES_SHARED	16	/* of these beside the process's other threads */
#define NP_PAUSE_US	50	/* between the others, at least; twice it at most */
#ifdef VM_SHADOW_STACK
#define NP_VM_CALLS	VM_SHADOW_STACK
#else
#define NP_VM_CALLS	0
#endif

struct np_batch {
	struct np_region *region;
	struct np_slice *slice;
	u32 flags;
	unsigned int from;		/* pages of the slice */
	unsigned int to;
	bool alone;			/* others may not change mappings */
	struct np_look look;
	unsigned long pfns[NP_BATCH];	/* what hmm says, then bare */
};

static unsigned long np_batch_start(struct np_batch *batch)
{
	return batch->region->start +
	       ((batch->slice->first + batch->from) << PAGE_SHIFT);
}

static u64 np_batch_bits(struct np_batch *batch)
{
	return batch->flags & NPRDMA_FAULT_WRITE ? NP_BOTH : NP_READ;
}

static int np_batch_lock(struct np_batch *batch, struct mm_struct *mm)
{
	if (batch->flags & NPRDMA_FAULT_NOWAIT)
		return mmap_read_trylock(mm) ? 0 : -EAGAIN;
	if (batch->alone)
		return mmap_write_lock_killable(mm);
	return mmap_read_lock_killable(mm);
}

static void np_batch_unlock(struct np_batch *batch, struct mm_struct *mm)
{
	if (batch->alone)
		mmap_write_unlock(mm);
	else
		mmap_read_unlock(mm);
}

/* What a worker does not bring in: a page that its process may never give, for
 * no signal reaches it, and what is behind a protection key, for it has none of
 * the rights that a thread has.
 */
static bool np_batch_left_out(struct vm_area_struct *vma)
{
	return vma_pkey(vma) ||
	       (vma->vm_file && file_inode(vma->vm_file)->i_sb->s_magic ==
					FUSE_SUPER_MAGIC);
}

/* What hmm_range_fault() takes, but get_user_pages() would not: memory that
 * not even the kernel maps, return addresses that only calls may write, and
 * what the thread's protection keys forbid it.
 */
static int np_batch_refused(struct np_batch *batch, struct vm_area_struct *vma)
{
	if (vma->vm_file &&
	    file_inode(vma->vm_file)->i_sb->s_magic == SECRETMEM_MAGIC)
		return -EFAULT;
	if (batch->flags & NPRDMA_FAULT_WRITE && vma->vm_flags & NP_VM_CALLS)
		return -EACCES;
	if (batch->flags & NP_FAULT_AHEAD)
		return np_batch_left_out(vma) ? -EAGAIN : 0;
	/* The kernel takes hmm_range_fault() for an access from elsewhere, to
	 * which keys do not apply. It is this thread's, as read() would be.
	 */
	if (!arch_vma_access_permitted(vma, batch->flags & NPRDMA_FAULT_WRITE,
				       false, false))
		return -EACCES;
	return 0;
}

/*
 * Ends the batch where the mapping ends: one hole fails all that is asked for
 */
static int np_batch_clip(struct np_batch *batch, struct mm_struct *mm)
{
	struct vm_area_struct *vma = vma_lookup(mm, np_batch_start(batch));
	unsigned long pages;
	int ret;

	if (!vma)
		return -EFAULT;
	ret = np_batch_refused(batch, vma);
	if (ret)
		return ret;
	pages = (vma->vm_end - np_batch_start(batch)) >> PAGE_SHIFT;
	batch->to = min_t(unsigned long, batch->to, batch->from + pages);
	return 0;
}

/* From here on what is taken of the batch is known, once what is being taken
 * has been waited for.
 */
static void np_batch_watch(struct np_batch *batch)
{
	np_slice_lock(batch->slice);
	batch->look.from = batch->from;
	batch->look.to = batch->to;
	batch->look.hit = false;
	np_slice_unlock(batch->slice);
	mmu_interval_read_begin(&batch->slice->notifier);
}

/* -ERESTART: something came in between */
static int np_batch_look(struct np_batch *batch, struct hmm_range *range)
{
	struct mm_struct *mm = batch->region->context->mm;
	int ret;

	/*
	 * It waits for who may want mmap_lock; alone, nobody else comes to be
	 */
	if (!batch->alone)
		np_batch_watch(batch);
	ret = np_batch_lock(batch, mm);
	if (ret)
		return ret;
	if (batch->alone)
		np_batch_watch(batch);
	ret = np_batch_clip(batch, mm);
	if (!ret) {
		range->start = np_batch_start(batch);
		range->end = range->start +
			((unsigned long)(batch->to - batch->from) << PAGE_SHIFT);
		/*
		 * As of now: what else is taken of the slice is not our affair
		 */
		range->notifier_seq = READ_ONCE(range->notifier->invalidate_seq);
		ret = hmm_range_fault(range);
	}
	np_batch_unlock(batch, mm);
	if (ret == -EBUSY)
		return -ERESTART;
	return ret == -EPERM ? -EACCES : ret;
}

/* Ends the batch before the first page that is not to be mapped */
static int np_batch_usable(struct np_batch *batch)
{
	unsigned long want = HMM_PFN_VALID;
	unsigned int i, count = batch->to - batch->from;
	struct page *page;

	if (batch->flags & NPRDMA_FAULT_WRITE)
		want |= HMM_PFN_WRITE;
	for (i = 0; i < count; i++) {
		if (batch->pfns[i] & HMM_PFN_ERROR ||
		    (batch->pfns[i] & want) != want)
			break;
		page = hmm_pfn_to_page(batch->pfns[i]);
		if (is_pci_p2pdma_page(page) || is_device_private_page(page))
			break;
		batch->pfns[i] = page_to_pfn(page);
	}
	batch->to = batch->from + i;
	if (i)
		return 0;
	return batch->flags & NPRDMA_FAULT_NOWAIT ? -EAGAIN : -EFAULT;
}

/* Under the slice's lock: is what hmm said still so? */
static int np_batch_came(struct np_batch *batch)
{
	if (batch->slice->dead)
		return -ENOENT;
	return batch->look.hit ? -ERESTART : 0;
}

/* Under the slice's lock: ends the batch before the first page swapped out */
static int np_batch_blocked(struct np_batch *batch)
{
	unsigned int i;

	for (i = batch->from; i < batch->to; i++) {
		if (batch->slice->state[i] & NP_BLOCKED)
			break;
	}
	batch->to = i;
	return i == batch->from ? -EBUSY : 0;
}

/* Under the slice's lock: how many of its pages are as wanted already */
static unsigned int np_batch_mapped(struct np_batch *batch)
{
	u64 bits = np_batch_bits(batch);
	unsigned int i;

	for (i = batch->from; i < batch->to; i++) {
		if ((batch->slice->state[i] & bits) != bits)
			break;
	}
	return i - batch->from;
}

/* Maps pages from batch->from to some batch->to, at least one, or fails */
static int np_batch_run(struct np_batch *batch)
{
	struct np_slice *slice = batch->slice;
	struct hmm_range range = {
		.notifier = &slice->notifier,
		.hmm_pfns = batch->pfns,
	};
	unsigned int mapped;
	int ret;

	np_slice_lock(slice);
	ret = np_batch_blocked(batch);
	mapped = np_batch_mapped(batch);
	if (!ret && !mapped)
		list_add(&batch->look.link, &slice->looks);
	np_slice_unlock(slice);
	if (ret)
		return ret;
	if (mapped) {
		batch->to = batch->from + mapped;
		return 0;
	}

	if (!(batch->flags & NPRDMA_FAULT_NOWAIT)) {
		range.default_flags = HMM_PFN_REQ_FAULT;
		if (batch->flags & NPRDMA_FAULT_WRITE)
			range.default_flags |= HMM_PFN_REQ_WRITE;
	}
	ret = np_batch_look(batch, &range);
	np_slice_lock(slice);
	list_del(&batch->look.link);
	if (!ret)
		ret = np_batch_came(batch);
	if (!ret)
		ret = np_batch_usable(batch);
	if (!ret)
		ret = np_batch_blocked(batch);
	if (!ret)
		np_slice_give(slice, batch->from, batch->to, batch->pfns,
			      np_batch_bits(batch));
	np_slice_unlock(slice);
	return ret;
}

/* Pages [from, to) of the slice; *done counts those that are mapped */
static int np_fault_slice(struct np_batch *batch, unsigned int from,
			  unsigned int to, unsigned long *done)
{
	struct np_stats *stats = &batch->region->context->stats;
	bool ahead = batch->flags & NP_FAULT_AHEAD;
	unsigned int most = ahead ? NP_BATCH_AHEAD : NP_BATCH;
	unsigned int size = most, tries = 0;
	int ret;

	while (from < to) {
		if (fatal_signal_pending(current))
			return -EINTR;
		if (READ_ONCE(batch->slice->dead) ||
		    (ahead && np_space_deserted(batch->region->context)))
			return -ENOENT;
		batch->from = from;
		batch->to = from + min(size, to - from);
		batch->alone = tries >= NP_TRIES_SHARED &&
			       !(batch->flags & NPRDMA_FAULT_NOWAIT);
		ret = np_batch_run(batch);
		if (!ret) {
			*done += batch->to - from;
			from = batch->to;
			tries = 0;
			size = min(size * 2, most);
		} else if (ret == -ERESTART) {
			atomic64_inc(&stats->retries);
			if (++tries == NP_TRIES)
				return -EAGAIN;
			size = max(size / 2, 1U);
			/* Not all that takes pages needs mmap_lock: out of step
			 * with who takes just this one
			 */
			if (batch->alone)
				usleep_range(NP_PAUSE_US, 2 * NP_PAUSE_US);
		} else if (batch->to - batch->from > 1) {
			/* One of them cannot be mapped: which? */
			most = (batch->to - batch->from) / 2;
			size = most;
		} else {
			return ret;
		}
		cond_resched();
	}
	return 0;
}

/*
 * Maps pages [from, to) of a region, in order; *done counts those that were
 * mapped, or had been. The caller's address space must be that of the region
 * or be held by its users' count.
 */
int np_fault(struct np_region *region, unsigned long from, unsigned long to,
	     u32 flags, unsigned long *done)
{
	unsigned long index = from, end;
	struct np_batch *batch;
	int ret = 0;

	*done = 0;
	atomic64_inc(&region->context->stats.faults);
	if (flags & NPRDMA_FAULT_WRITE && region->rdonly)
		return -EACCES;
	batch = kvmalloc(sizeof(*batch), GFP_KERNEL_ACCOUNT);
	if (!batch)
		return -ENOMEM;
	batch->region = region;
	batch->flags = flags;
	while (!ret && index < to) {
		end = min(to, round_down(index, NP_SLICE_PAGES) +
			      NP_SLICE_PAGES);
		batch->slice = np_region_slice_make(region, index);
		if (IS_ERR(batch->slice)) {
			ret = PTR_ERR(batch->slice);
			break;
		}
		ret = np_fault_slice(batch, index - batch->slice->first,
				     end - batch->slice->first, done);
		np_slice_put(batch->slice);
		index = end;
	}
	kvfree(batch);
	return ret;
}
