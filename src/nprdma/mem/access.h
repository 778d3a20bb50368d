/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Access to our own memory on a peer's behalf: the address may be anything,
 * and what is not there must be an error status, not a signal.
 */

#ifndef NP_ACCESS_H_
#define NP_ACCESS_H_

#include "../np.h"
#include "region.h"

/**
 * May a peer reach [va, va + len)? The one check that guards every request at
 * the target.
 *
 * @return UCS_OK, or UCS_ERR_INVALID_ADDR if not every arena is shared; with
 *         exact scope, if no region has all of it.
 */
ucs_status_t np_access_check(uint64_t va, uint64_t len);

/** The same, once more, for whoever copies past the views: between
 *  np_moving_begin and _end, so that whoever ends a region waits for it. With
 *  arena scope nothing ever ends. */
static inline ucs_status_t np_access_check_again(uint64_t va, uint64_t len)
{
    return np_region_is_exact() ? np_access_check(va, len) : UCS_OK;
}

/**
 * Copy between memory of our own (@a va, a peer's choice) and a buffer that we
 * trust. The kernel copies, so an unmapped or protected page is an error.
 * Thread-safe.
 *
 * @return UCS_OK; UCS_ERR_INVALID_ADDR, and then a part may have been copied.
 */
ucs_status_t np_access_write(uint64_t va, const void *src, size_t len);
ucs_status_t np_access_read(void *dst, uint64_t va, size_t len);

/**
 * Would an access to [@a va, @a va + @a len) find its pages present, so that it
 * does not sleep? A system call for each 4 MiB; the pages may be gone at once. What
 * is not mapped is "present": the access says so.
 */
int np_access_is_present(uint64_t va, size_t len);

#endif
