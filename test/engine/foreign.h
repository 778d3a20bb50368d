/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors that somebody may send who means no good. */

#ifndef NPRDMA_TEST_FOREIGN_H_
#define NPRDMA_TEST_FOREIGN_H_

#include "nprdma/dev/soft/wire.h"

typedef enum foreign {
    FOREIGN_MEMFD,        /* sealed, but of another size */
    FOREIGN_UNSEALED,     /* a memfd that can shrink */
    FOREIGN_PIPE,         /* to write to it is a signal */
    FOREIGN_EVENTFD,      /* full, and to write to it blocks */
    FOREIGN_LINGER,       /* a socket that takes an hour to close */
    FOREIGN_NULL,
    FOREIGN_ZERO,
    FOREIGN_DIRECTORY,
    FOREIGN_PATH,         /* of a file that was never opened */
    FOREIGN_EPOLL,
    FOREIGN_TTY,          /* the master of a terminal */
    FOREIGN_SHUT,         /* a memfd that nobody may map to write any more */
    FOREIGN_HUGE,         /* a memfd of huge pages, of which there may be
                             none */
    FOREIGN_FIFO,         /* full, and to write to it blocks */
    FOREIGN_NESTED,       /* a unix socket in flight within itself */
    FOREIGN_CARRIER,      /* a unix socket in which a lingering one is in
                             flight */
    FOREIGN_FULL,         /* /dev/full */
    FOREIGN_TIMER,
    FOREIGN_SIGNAL,
    FOREIGN_INOTIFY,
    FOREIGN_PIDFD,
    FOREIGN_DELETED,      /* a file that has no name any more */
    FOREIGN_LAST
} foreign_t;

#define FOREIGN_HUGE_SIZE (2u << 20)

extern const char *foreign_names[];

/* A new one; the caller closes it, which does not block when it was sent. -1:
 * not here. */
int foreign_open(foreign_t kind);

/* Nothing has a reason to linger any more */
void foreign_reset(void);

/* Descriptors that this has itself */
unsigned foreign_count_own(void);

/* Close one that was sent to nobody */
void foreign_close(int fd);

/* Send a message with any number of descriptors, up to 253; returns whether it
 * has been sent */
int foreign_send(int sock, const void *msg, size_t size, const int *fds,
                 unsigned num_fds);

/* Does recvmsg() say that descriptors had no room in the buffer that it was
 * given? An emulator may give the kernel a larger one (qemu-user), take them
 * in, and say nothing. */
int foreign_is_told(void);

#endif
