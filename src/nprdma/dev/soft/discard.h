/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Closing what other processes have sent. A close() may take as long as the
 * file's maker likes: the last one of a socket that lingers, each one of a file
 * of a file system in user space, which is asked. Only threads that are there
 * for it wait for that; those that hang in a file sleep, so that the process
 * cannot end, until its file system answers or is gone.
 */

#ifndef NP_SOFT_DISCARD_H_
#define NP_SOFT_DISCARD_H_

/** Is it memory (a memfd)? No user's file system is asked when that is closed,
 *  nor for this question. */
int np_discard_is_memory(int fd);

/**
 * Close @a fd, which is another process's file, or a socket on which such files
 * wait. Never waits; the descriptor is not used any more. Memory is closed at
 * once, anything else soon, by a thread which is started for it.
 */
void np_discard(int fd);

#endif
