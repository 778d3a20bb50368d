/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the server of files and its clients have in common.
 */

#ifndef NF_COMMON_H_
#define NF_COMMON_H_

#include "clock.h"

#include <ucp/api/ucp.h>

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define NF_PORT          7473
#define NF_TOKEN_BYTES   32     /**< random bytes of a token */

/** Seconds that a peer has for each step of connecting */
#define NF_CONNECT_LIMIT 10

/** Where the server of this user is by default: a socket's path. Returns 0: no
 *  such path is short enough. */
int nf_default_socket(char *path, size_t size);

/** The file that has this user's token, by default. Returns 0: no home. */
int nf_default_token(char *path, size_t size);

/**
 * Read a token: a line of hexadecimal digits in a file that only its user can
 * read.
 *
 * @return 0; -ENOENT: there is no such file; -EPERM: others can read it, or it
 *         is not ours; -EINVAL: there is something else in it; and others of
 *         open() and read().
 */
int nf_token_read(const char *path, uint8_t token[NF_TOKEN_BYTES]);

/** Make a token and write it to a new file, and the directories that it is in.
 *  Returns 0 or a negative errno. */
int nf_token_make(const char *path, uint8_t token[NF_TOKEN_BYTES]);

/** Send or receive all of it over a blocking socket, within
 *  NF_CONNECT_LIMIT. Returns 0, -ECONNRESET, or another negative errno. */
int nf_send(int fd, const void *data, size_t len);
int nf_recv(int fd, void *data, size_t len);

/** A host that goes without a word is noticed: its TCP connection ends */
void nf_keep_alive(int fd);

/** An errno for what UCX says, negative; 0 for UCS_OK */
int nf_errno(ucs_status_t status);

/** UCP for files, and a worker of it that can sleep. Used by one thread, which
 *  need not be the one that has made it. */
typedef struct nf_worker {
    ucp_worker_h  worker;
    ucp_address_t *address;
    size_t        address_len;
    int           event_fd;
} nf_worker_t;

/** @param [in] tls  UCP's transports; NULL: as its environment says. */
ucs_status_t nf_context_create(const char *tls, ucp_context_h *context);

/** @param [out] worker  Its worker is NULL on error. */
ucs_status_t nf_worker_create(ucp_context_h context, nf_worker_t *worker);

/** Whole messages with this id go to @a cb */
ucs_status_t nf_worker_listen(nf_worker_t *worker, unsigned id,
                              ucp_am_recv_callback_t cb, void *arg);

void nf_worker_destroy(nf_worker_t *worker);

/**
 * An endpoint, whose errors are told to @a on_error.
 *
 * @return 0, or a negative errno.
 */
int nf_endpoint_create(nf_worker_t *worker, const ucp_address_t *address,
                       ucp_err_handler_cb_t on_error, void *arg, ucp_ep_h *ep);

/** Does UCX keep an endpoint that is closed when its peer has gone, as long as
 *  its worker? */
int nf_endpoint_is_kept(void);

/**
 * Sleep until the worker has something to do, @a fd is ready, or the time is
 * over. Its progress must have found nothing.
 *
 * @param [in] timeout  Milliseconds; -1: none.
 */
void nf_worker_sleep(nf_worker_t *worker, int fd, int timeout);

#endif
