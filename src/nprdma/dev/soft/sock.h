/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The unix sockets that carry file descriptors between two processes, prove
 * which process the other is, and tell when it has died.
 */

#ifndef NP_SOFT_SOCK_H_
#define NP_SOFT_SOCK_H_

#include "wire.h"

#include <sys/types.h>

/** Most descriptors in one message */
#define NP_MSG_MAX_FDS 3

/** Messages that are taken from one socket before others have their turn */
#define NP_SOCK_BATCH  16

/** Descriptors that a peer costs: for each way its socket and its pidfd; and
 *  its directory of arenas */
#define NP_SOCK_FDS      5
#define NP_SOCK_FDS_TEXT "five descriptors for each peer"

/** The process at the other end, as the kernel says */
typedef struct np_sock_cred {
    pid_t pid;   /**< 0 if it is in a pid namespace that we do not see */
    uid_t uid;
} np_sock_cred_t;

/** The process at the other end of a connected socket.
 *  @return UCS_OK; UCS_ERR_IO_ERROR (logged). */
ucs_status_t np_sock_peer(int fd, np_sock_cred_t *cred);

/** Listen under a name made from @a id (abstract: no file, gone with us).
 *  @return UCS_OK; UCS_ERR_IO_ERROR (logged). */
ucs_status_t np_sock_listen(uint64_t id, int *fd_p);

/**
 * Connect to the listener called @a id. Never waits.
 *
 * @return UCS_OK; UCS_ERR_NO_RESOURCE: its backlog is full, try again;
 *         UCS_ERR_CONNECTION_RESET: no process listens; UCS_ERR_IO_ERROR
 *         (logged).
 */
ucs_status_t np_sock_connect(uint64_t id, int *fd_p, np_sock_cred_t *cred);

/** A descriptor to be given up where no other is left; -1: none */
int np_sock_spare(int listen_fd);

/**
 * Accept one connection.
 *
 * @param [in,out] spare_fd  A descriptor that may be closed for a moment if no
 *                           other is left (np_sock_spare); -1 if none, also
 *                           afterwards.
 *
 * @return UCS_OK; UCS_ERR_NO_RESOURCE: there is none that can be accepted.
 */
ucs_status_t np_sock_accept(int listen_fd, int *spare_fd, int *fd_p,
                            np_sock_cred_t *cred);

/** Send a message with descriptors; never waits.
 *  @return UCS_OK; UCS_ERR_NO_RESOURCE; UCS_ERR_CONNECTION_RESET. */
ucs_status_t np_sock_send(int fd, const np_msg_t *msg, const int *fds,
                          unsigned num_fds);

/**
 * Look at the next message, and leave it where it is.
 *
 * @return As np_sock_recv, but for the descriptors, at which it does not look.
 */
ucs_status_t np_sock_look(int fd, np_msg_t *msg);

/**
 * Receive a message with exactly the descriptors that its type has, which are
 * all of memory (memfds). Any other message stays where it is, for
 * np_sock_close: to take it is to give up files that may be the last of their
 * kind, which takes as long as their maker likes (discard.h).
 *
 * @param [out] fds  The caller closes them.
 *
 * @return UCS_OK; UCS_ERR_NO_RESOURCE: nothing there;
 *         UCS_ERR_CONNECTION_RESET: the other end is gone;
 *         UCS_ERR_INVALID_PARAM: not a message of ours;
 *         UCS_ERR_EXCEEDS_LIMIT: no number is left for a SEGMENT's descriptor.
 */
ucs_status_t np_sock_recv(int fd, np_msg_t *msg, int *fds, unsigned *num_fds);

/** Messages that wait to be received, about */
unsigned np_sock_queued(int fd);

/** Close a connection that was accepted, whatever waits on it. Never waits. */
void np_sock_close(int fd);

/** Close a link's connection: what waits on it is from a peer, not a
 *  stranger */
void np_sock_close_link(int fd);

/** Close a listener, and all connections that wait to be accepted */
void np_sock_close_listener(int listen_fd);

#endif
