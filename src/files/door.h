/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The door of nprdma-filed: sockets that clients come to, who they are, and
 * when they are gone. All of it is the main thread's.
 */

#ifndef NF_DOOR_H_
#define NF_DOOR_H_

#include "checker.h"
#include "serve.h"

/** Sockets that clients may come to */
#define NF_LISTENERS  8

typedef struct nf_door {
    int         epoll;
    int         fds[NF_LISTENERS]; /**< that are listened on */
    unsigned    num_fds;
    char        path[PATH_MAX];    /**< of the socket of this host; "": none */
    int         lock;              /**< a locked file beside it; -1: none */
    int         has_token;
    uint8_t     token[NF_TOKEN_BYTES];
    nf_checker_t *checker;         /**< of credentials; NULL: takes none */
    nf_thread_t *threads;
    unsigned    num_threads;
    unsigned    next_thread;
    struct nf_guest *guests;       /**< who have not shown who they are */
} nf_door_t;

/** Returns 0 or a negative errno; a line says why. */
int nf_door_open(nf_door_t *door);

/** Let clients of this host come, who are this process's user */
int nf_door_listen_here(nf_door_t *door, const char *path);

/** Let those come who have the token, or a credential. @param [in] address
 *  "PORT" or "ADDRESS:PORT". */
int nf_door_listen(nf_door_t *door, const char *address);

/** Let them in until @a signal_fd can be read. The checker goes as well
 *  then. */
void nf_door_run(nf_door_t *door, int signal_fd);

void nf_door_close(nf_door_t *door);

#endif
