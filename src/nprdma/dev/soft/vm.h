/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Moving bytes between two processes by process_vm_readv and writev, where the
 * kernel allows it.
 */

#ifndef NP_SOFT_VM_H_
#define NP_SOFT_VM_H_

#include "process.h"

/** Instead of a process: this process itself, whatever the kernel says of
 *  process_vm_* */
#define NP_VM_SELF NULL

/**
 * Move bytes between local memory and @a process, or NP_VM_SELF.
 *
 * @param [in]  iov     Local elements, at most NP_MAX_IOV.
 * @param [in]  remote  Address there; the total length is that of @a iov.
 * @param [out] done    Bytes from the beginning that were moved.
 *
 * @return UCS_OK; UCS_ERR_INVALID_ADDR: an address is not there on one of the
 *         two sides; UCS_ERR_UNSUPPORTED: the kernel does not let us;
 *         UCS_ERR_CONNECTION_RESET: no such process; UCS_ERR_IO_ERROR.
 */
ucs_status_t np_vm_move(np_dir_t dir, np_process_t *process,
                        const np_iov_t *iov, size_t iovcnt, uint64_t remote,
                        size_t *done);

/** Allow peers to reach this process where Yama asks for it. Once is enough. */
void np_vm_allow_peers(void);

/**
 * Say, once a process, that data of peer @a pid goes through the rings, and
 * what to change.
 */
void np_vm_explain_refusal(int pid);

/**
 * Why process_vm_* would not work here between processes of this user.
 *
 * @return NULL if it works, else the reason and the cure in one line.
 */
const char *np_vm_missing(char *buf, size_t size);

#endif
