/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Making pages of our own present, on behalf of a peer. What is not there is an
 * error status, not a signal. No byte changes, whatever other threads do.
 */

#ifndef NP_POPULATE_H_
#define NP_POPULATE_H_

#include "../np.h"

/**
 * Fault [va, va + len) in: for reading, or for reading and writing. Any thread;
 * may sleep.
 *
 * @param [in]  va, len  Multiples of NP_PAGE_SIZE; len is not 0.
 * @param [out] done     Bytes, from va on, that are in; on error too.
 *
 * @return UCS_OK; UCS_ERR_INVALID_ADDR: not mapped, not with these rights, or
 *         the page cannot be read from its file; UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_populate(uint64_t va, uint64_t len, int write, uint64_t *done);

#endif
