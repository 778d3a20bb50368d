/* SPDX-License-Identifier: BSD-3-Clause */
/* What the UCP failure programs share: children, workers, bounded waits. */
#ifndef FAIL_UCP_H
#define FAIL_UCP_H

#include <ucp/api/ucp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How long anything may take; a program may set another bound first. */
extern int fu_wait_seconds;

/* One process's side of UCP; a parent has a peer for each child. */
typedef struct {
    ucp_context_h context;
    ucp_worker_h  worker;
} fu_node_t;

typedef struct {
    fu_node_t             *node;
    int                   oob;      /* socket to the peer */
    pid_t                 pid;      /* of the child; 0 in the child itself */
    ucp_ep_h              ep;
    volatile ucs_status_t failure;  /* what the error handler was told */
} fu_peer_t;

/* Prints one line and ends the process with exit code 1. */
void fu_fail(const char *fmt, ...)
        __attribute__((noreturn, format(printf, 1, 2)));

/*
 * Starts a child before any UCX call is made. Returns 1 in the parent, 0 in
 * the child; the socket between them is in the peer.
 */
int fu_fork(fu_peer_t *peer);

/* Opens context and worker; the status is for the caller to judge. */
ucs_status_t fu_node_open(fu_node_t *node);
void fu_node_close(fu_node_t *node);

/* Exchanges addresses over the socket and makes an endpoint. */
ucs_status_t fu_connect(fu_node_t *node, fu_peer_t *peer,
                        ucp_err_handling_mode_t err_mode);
void fu_disconnect(fu_peer_t *peer);

void fu_oob_send(fu_peer_t *peer, const void *data, size_t size);
void fu_oob_recv(fu_peer_t *peer, void *data, size_t size);

/* Seconds of a clock that only goes forward. */
double fu_now(void);

/*
 * Progresses until the request is done. Fails after fu_wait_seconds, and
 * names what was waited for.
 */
ucs_status_t fu_wait(fu_node_t *node, ucs_status_ptr_t req, const char *what);

/* Set it where an endpoint that fails is the end of the program. */
extern int fu_error_is_fatal;

/* Progresses until the error handler of the peer was called. */
void fu_wait_failure(fu_peer_t *peer);

ucs_status_ptr_t fu_send(fu_peer_t *peer, const void *data, size_t size,
                         ucp_tag_t tag);
ucs_status_ptr_t fu_recv(fu_node_t *node, void *data, size_t size,
                         ucp_tag_t tag);

void fu_fill(void *data, size_t size, uint32_t seed);
void fu_check(const char *what, const void *data, size_t size, uint32_t seed);

/* Waits for the child and fails unless it ended with exit code 0. */
void fu_reap(fu_peer_t *peer);

#endif
