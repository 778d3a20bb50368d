/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Access to our own memory on a peer's behalf, after its request has been
 * resolved (space.h): what is not there must be an error status, not a signal.
 *
 * The rule for all that this process moves by units between a peer and its own
 * memory. (What it copies between messages and memory is looked at before,
 * once, and waited for if the program swaps it: stage.h.)
 *
 *   fault in   np_access_fault_in: is it ours to move? Then it is brought in;
 *              that may sleep, and the region may end meanwhile;
 *   begin      np_moving_begin, or np_swap_copy_begin;
 *   look       np_access_is_there, or np_space_check_again for a copy that goes
 *              past the views: is it there, and ours to move, still?
 *   move, end
 *
 * A thread that takes pages away, or ends a region, does so first and then
 * waits for all that have begun; so what a look finds stays true until the end.
 * Each look is at the very bytes: with exact scope the page may be there for
 * others.
 */

#ifndef NP_ACCESS_H_
#define NP_ACCESS_H_

#include "../np.h"
#include "mapper.h"
#include "region.h"

/** Is [@a va, @a va + @a len) of our own memory registered, where it must
 *  be? */
static UCS_F_ALWAYS_INLINE int np_access_is_allowed(uint64_t va, uint64_t len)
{
    return !np_region_guards(va) || np_regions_cover(va, len);
}

/**
 * Bring our own memory in for a transfer, see above. As np_mapper_fault_in_by;
 * @a bring may be NULL.
 */
ucs_status_t np_access_fault_in(uint64_t va, uint64_t len, int write,
                                np_bring_t *bring);

/** May the bytes be moved now, see above: to be written, or read? */
static inline int np_access_is_there(uint64_t va, uint64_t len, int write)
{
    return np_table_has_views(va, len, NP_VIEW_OWN(write ? NP_ENTRY_WRITE :
                                                   NP_ENTRY_READ)) &&
           np_access_is_allowed(va, len);
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

/** The same for a caller that goes on after what was copied.
 *  @param [out] done  Bytes from the beginning that were copied. */
ucs_status_t np_access_write_some(uint64_t va, const void *src, size_t len,
                                  size_t *done);
ucs_status_t np_access_read_some(void *dst, uint64_t va, size_t len,
                                 size_t *done);

/**
 * Would an access to [@a va, @a va + @a len) find its pages present, so that it
 * does not sleep? A system call for each 4 MiB; the pages may be gone at once.
 * What is not mapped is "present": the access says so.
 */
int np_access_is_present(uint64_t va, size_t len);

/**
 * Bring pages in, to be read or written: their swapper does it, else the
 * kernel. May sleep for as long as their pager likes. They may be gone at once.
 *
 * @return As np_mapper_fault_in, but for UCS_ERR_EXCEEDS_LIMIT; a part may be
 *         in.
 */
ucs_status_t np_access_bring_in(uint64_t va, uint64_t len, int write);

/** np_access_refused with exact scope */
const np_iov_t *np_access_refused_slow(const np_iov_t *iov, size_t iovcnt);

/** The first buffer of the program's own memory that may not be moved, as far
 *  as registrations say; NULL: all may */
static UCS_F_ALWAYS_INLINE const np_iov_t *
np_access_refused(const np_iov_t *iov, size_t iovcnt)
{
    return np_region_is_exact() ? np_access_refused_slow(iov, iovcnt) : NULL;
}

/** May all be moved? @return UCS_OK; UCS_ERR_INVALID_ADDR (logged). */
ucs_status_t np_access_check_own(const np_iov_t *iov, size_t iovcnt);

#endif
