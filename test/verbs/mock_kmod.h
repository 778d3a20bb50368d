/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nprdma.ko for tests with mock_verbs.h: it stands for mem/kmod.c, keeps the
 * table of entries itself, and takes a page when the test says so. Pages are
 * there from the beginning, but absent from the views until they are asked for.
 */
#ifndef MOCK_KMOD_H_
#define MOCK_KMOD_H_

#include "nprdma/mem/kmod.h"

/** Before a port is opened: is the module loaded? It is not, unless this is
 *  set. */
extern int mock_kmod_is_loaded;

/** Called by fault-ins of the engine; returns whether the page may be mapped.
 *  NULL: it may. */
extern int (*mock_kmod_may_map)(uint64_t va);

/** Takes pages from the views, as an MMU notifier does */
void mock_kmod_take(const void *va, size_t len);

/** If set: between an entry and what devices see of its page lies a while, when
 *  it is taken, or comes without anybody's waiting for it: until
 *  mock_kmod_settle() */
extern int mock_kmod_lags;

/** One of these is over; which one, @a below chooses. Returns 0: there is
 *  none. */
int mock_kmod_settle(unsigned (*below)(unsigned bound));

#endif
