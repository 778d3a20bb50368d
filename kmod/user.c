// SPDX-License-Identifier: GPL-2.0-only
/*
 * What each user causes the kernel to use: regions, which every change of
 * memory under them has to look at; tables, states of pages, and
 * translations of views, which no memory cgroup is charged for.
 */
#include <linux/cred.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "nprdma.h"

static LIST_HEAD(users);
static DEFINE_SPINLOCK(users_lock);

struct np_user *np_user_get(kuid_t uid)
{
	struct np_user *user, *other;

	user = kzalloc(sizeof(*user), GFP_KERNEL_ACCOUNT);
	if (!user)
		return NULL;
	user->uid = uid;
	user->refs = 1;
	spin_lock(&users_lock);
	list_for_each_entry(other, &users, link) {
		if (uid_eq(other->uid, uid)) {
			other->refs++;
			spin_unlock(&users_lock);
			kfree(user);
			return other;
		}
	}
	list_add(&user->link, &users);
	spin_unlock(&users_lock);
	return user;
}

void np_user_put(struct np_user *user)
{
	bool last;

	spin_lock(&users_lock);
	last = --user->refs == 0;
	if (last)
		list_del(&user->link);
	spin_unlock(&users_lock);
	if (last) {
		WARN_ON_ONCE(atomic64_read(&user->bytes));
		kfree(user);
	}
}

int np_user_charge(struct np_user *user, u64 bytes)
{
	if (atomic64_add_return(bytes, &user->bytes) > np_table_max()) {
		atomic64_sub(bytes, &user->bytes);
		return -EDQUOT;
	}
	return 0;
}

void np_user_uncharge(struct np_user *user, u64 bytes)
{
	atomic64_sub(bytes, &user->bytes);
}

int np_user_add_region(struct np_user *user)
{
	if (atomic_inc_return(&user->regions) > NP_REGIONS_MAX) {
		np_user_drop_region(user);
		return -EDQUOT;
	}
	return 0;
}

void np_user_drop_region(struct np_user *user)
{
	atomic_dec(&user->regions);
}
