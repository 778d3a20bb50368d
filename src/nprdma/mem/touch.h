/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Words of the program's memory that we use by ourselves, on a peer's behalf.
 * The program may unmap such memory, or truncate its file, at any moment
 * without telling us: that must be an error at the peer, and no signal here.
 *
 * The instructions that touch such a word stand between two labels. A handler
 * of SIGSEGV and SIGBUS looks whether the fault was there; if so, the function
 * that it was in returns "not there". All other signals go to the handler that
 * was there before, as if ours were not.
 */

#ifndef NP_TOUCH_H_
#define NP_TOUCH_H_

#include "../np.h"

/**
 * Put the handler in place, above those that the program has installed in the
 * meantime. To be called right before each use of np_touch_cas: a handler that
 * the program installs in between, and does not chain, is called first. Two
 * system calls. Any thread, but no signal handler.
 *
 * A thread that touches must not block SIGSEGV and SIGBUS: the kernel ends a
 * process that cannot be told of a fault. Service threads do not block them
 * (np_thread_start); the program's threads do if the program wants it.
 *
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: the program has installed its own
 *         handlers again and again (NP_TOUCH_LEVELS), or a preloaded library
 *         lets no handler be installed, so that nothing may be touched (logged
 *         once).
 */
ucs_status_t np_touch_arm(void);

/** Times that np_touch_arm puts the handler above another one */
#define NP_TOUCH_LEVELS 16

/**
 * Compare and swap an aligned word, sequentially consistent.
 *
 * @param [in]     size    4 or 8 bytes.
 * @param [in,out] seen    What is expected there; then what was there. With 4
 *                         bytes the upper half is 0.
 *
 * @return 1: it was as expected, and is @a value now; 0: it was not; -1: it is
 *         not there, or cannot be written, and @a seen is as it was.
 */
int np_touch_cas(uint64_t va, size_t size, uint64_t *seen, uint64_t value);

#endif
