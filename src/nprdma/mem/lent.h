/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the program has lent: memory that it has registered, and has not
 * deregistered yet. UCX wants such memory to stay mapped while a peer may use
 * it, so this process may read and write it for that peer as the program itself
 * does, without the kernel between. What is not known here is moved in ways to
 * which it does not matter whether it is mapped.
 *
 * A registration cache deregisters late: what is known here may be gone when no
 * peer uses it any more. So nothing is moved here but what a peer waits for
 * (carry.h), and for peers of our own user, which could harm us anyway.
 */

#ifndef NP_LENT_H_
#define NP_LENT_H_

#include "../np.h"

/** Ranges that are known at a time; more are lent, but not known */
#define NP_LENT_MAX   255

/** A range that is lent */
typedef struct np_lent_range np_lent_range_t;

/** Before the first range, once */
void np_lent_start(void);

/**
 * [@a va, @a va + @a len) is lent from now on. Any thread. Takes no memory.
 *
 * @return for np_lent_end, at most NP_LENT_MAX; 0: it is not known here.
 */
unsigned np_lent_begin(uint64_t va, uint64_t len);

/** It is not any more: waits for threads that are moving it. Any thread.
 *  @param [in] id  Of np_lent_begin; 0: nothing is done. */
void np_lent_end(unsigned id);

/**
 * Copy [@a va, @a va + @a len) to @a area, or with NP_DIR_PUT from there, if
 * one range that is lent has all of it, and the program swaps none of it by
 * itself. May wait for the pages, as any load or store. Any thread.
 *
 * @param [in]     is_past  To @a area past the caches (bypass.h).
 * @param [in,out] kept     The range of the last copy, whose end waits for
 *                          np_lent_leave; NULL: none. Entering and leaving one
 *                          wait for all that was stored before.
 *
 * @return 0 if it was not copied.
 */
int np_lent_copy(np_dir_t dir, uint64_t va, void *area, size_t len, int is_past,
                 np_lent_range_t **kept);

/** What was copied last is done */
void np_lent_leave(np_lent_range_t **kept);

#endif
