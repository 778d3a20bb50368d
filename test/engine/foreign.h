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
    FOREIGN_LAST
} foreign_t;

extern const char *foreign_names[];

/* A new one; the caller closes it, which does not block when it was sent. -1: not
 * here. */
int foreign_open(foreign_t kind);

/* Send a message with any number of descriptors, up to 253; returns whether it
 * has been sent */
int foreign_send(int sock, const void *msg, size_t size, const int *fds,
                 unsigned num_fds);

#endif
