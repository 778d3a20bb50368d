/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A thread of nprdma-filed that has munged open credentials, one after the
 * other: munged may not answer, and the door must not wait for it.
 *
 * The door puts a guest in, and takes it out when nf_checker_fd() can be read.
 * The thread has copies of all it needs, and touches no guest.
 */

#ifndef NF_CHECKER_H_
#define NF_CHECKER_H_

#include "munge.h"

/** Credentials that may wait at a time: who comes with a token finds room at
 *  the door while munged does not answer */
#define NF_CHECKS_MAX  32

typedef struct nf_checker nf_checker_t;

/**
 * @param [in] socket  Of munged; NULL: where libmunge has it. Kept.
 *
 * @return NULL on error; a line says why.
 */
nf_checker_t *nf_checker_start(const char *socket);

/** What can be read when a guest can be taken */
int nf_checker_fd(const nf_checker_t *checker);

/**
 * Begin to check a guest.
 *
 * @param [in] guest     What nf_checker_take returns.
 * @param [in] fd        Its socket.
 * @param [in] hello     With what follows it: a credential, and an address.
 * @param [in] deadline  As nf_now() has it: then it is too late.
 *
 * @return 0, or a negative errno: it will not be returned. -EBUSY:
 *         NF_CHECKS_MAX are there already.
 */
int nf_checker_put(nf_checker_t *checker, void *guest, int fd,
                   const nf_hello_t *hello, uint64_t deadline);

/** Returns a guest that has been checked, and the result, as nf_munge_decode
 *  has it, or -ETIMEDOUT; NULL: there is none. */
void *nf_checker_take(nf_checker_t *checker, int *result);

/** The process is to end. If munged does not answer, the thread is left to it:
 *  nobody waits. */
void nf_checker_stop(nf_checker_t *checker);

#endif
