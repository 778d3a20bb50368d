/* SPDX-License-Identifier: BSD-3-Clause */
/* A file of a file system in user space (FUSE) that has stopped answering: each
 * close of it waits until that file system is gone. */

#ifndef NPRDMA_TEST_STOPPED_H_
#define NPRDMA_TEST_STOPPED_H_

#define STOPPED_SIZE 4096

/* s; then it is gone by itself, so that whatever happens here can end */
#define STOPPED_LIMIT 60

/* Start the process that has the file systems; once. Returns 0, or -1: there
 * are none here. */
int stopped_start(void);

/* A file of a new one, which is stopped already. One at a time. -1: none. */
int stopped_open(void);

/* It is gone: whoever waits for it goes on, and the file can be closed. Any
 * thread, and also where there is none. */
void stopped_end(void);

#endif
