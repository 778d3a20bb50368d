/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MUNGE: a daemon on each host, munged, says who a process of another one is.
 * All of a cluster's have one key.
 *
 *     client                              server
 *     its munged makes a credential:
 *     the client's user, and what it
 *     is for
 *                    --- nf_hello_t --->
 *                                         its munged opens it, once
 *                                         the user is its own, and it is for
 *                                         this address of a worker, come to
 *                                         this address of a host
 *                    <-- nf_welcome_t --
 *
 * So who overhears a credential, or is come to in place of the server, has no
 * use for it. Without libmunge there are no credentials, and a line says so.
 */

#ifndef NF_MUNGE_H_
#define NF_MUNGE_H_

#include "common.h"
#include "wire.h"

/** Bytes of a line's part that says why */
#define NF_WHY_MAX  256

/** What a client shows */
typedef struct nf_proof {
    nf_auth_t auth;
    uint32_t  len;
    uint8_t   bytes[NF_AUTH_MAX];
} nf_proof_t;

/** What a credential is for; the address of the client's worker follows */
typedef struct nf_purpose {
    char     name[16];    /**< whose credential it is among all of MUNGE's */
    uint8_t  host[16];    /**< that the client came to, as IPv6 has it */
    uint16_t port;        /**< the same, as the network has it */
    uint8_t  reserved[6];
    char     boot[40];    /**< of the host, if each host has this address */
} nf_purpose_t;

#define NF_PURPOSE_MAX  (sizeof(nf_purpose_t) + NF_ADDRESS_MAX)

/** Is it built in? */
int nf_munge_is_built(void);

/**
 * What a credential is for that goes over a socket.
 *
 * @param [in]  is_client  Whose end of the socket @a fd is.
 * @param [out] payload    Room for NF_PURPOSE_MAX bytes.
 *
 * @return its bytes, or a negative errno: it is no socket of a network, or
 *         @a address_len is more than NF_ADDRESS_MAX.
 */
ssize_t nf_munge_purpose(int fd, int is_client, const void *address,
                         size_t address_len, void *payload);

/**
 * A credential for the server at the other end of a socket. Waits for munged:
 * half a minute at most, as libmunge does.
 *
 * @param [in]  socket   Of munged; NULL: where libmunge has it.
 * @param [in]  fd       Connected to the server.
 * @param [in]  address  Of our worker.
 * @param [out] why      Why there is none.
 *
 * @return 0 or a negative errno.
 */
int nf_munge_encode(const char *socket, int fd, const void *address,
                    size_t address_len, nf_proof_t *proof,
                    char why[NF_WHY_MAX]);

/** Does munged answer? Returns 0 or a negative errno, and why not. */
int nf_munge_probe(const char *socket, char why[NF_WHY_MAX]);

/**
 * Is it a credential of our user, for this? Waits as nf_munge_encode.
 *
 * @param [in] credential  Ends with a zero.
 * @param [in] payload     As nf_munge_purpose has it.
 *
 * @return 0 or what it is refused with (nf_way_refused).
 */
int nf_munge_decode(const char *socket, const char *credential,
                    const void *payload, size_t len);

/**
 * A server has refused us.
 *
 * @param [in]  auth  What we have shown.
 * @param [out] why   Why, if it is for that.
 *
 * @return Whether it is.
 */
int nf_way_refused(nf_auth_t auth, const nf_welcome_t *welcome,
                   char why[NF_WHY_MAX]);

#endif
