/* SPDX-License-Identifier: BSD-3-Clause */
/* A file system in user space (FUSE) of one file, for tests: what the kernel
 * asks about it is answered, but for its pages. */

#ifndef NPRDMA_TEST_FUSE_ANSWER_H_
#define NPRDMA_TEST_FUSE_ANSWER_H_

#include <linux/fuse.h>

/* The file has one page; whatever name is looked up, it is this file */
#define FUSE_ANSWER_SIZE 4096

/* Bytes of a buffer that is read from the device */
#define FUSE_ANSWER_BUFFER (FUSE_MIN_READ_BUFFER + FUSE_ANSWER_SIZE)

/* Answer a question that was read from the device, if it needs an answer and
 * is not for a page (FUSE_READ). Returns 0: errno says why it was not taken. */
int fuse_answer(int device, const struct fuse_in_header *in);

#endif
