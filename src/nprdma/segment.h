/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Segments: sealed memfds. They have no name, so none is left of a killed job,
 * and they cannot shrink, so a peer's mapping never faults.
 */

#ifndef NP_SEGMENT_H_
#define NP_SEGMENT_H_

#include "np.h"

/**
 * Make a segment and map it.
 *
 * @param [in]     name   What it is for, seen in /proc/PID/maps.
 * @param [in]     size   Bytes, a multiple of the page size.
 * @param [in,out] addr   In, NULL or a hint; out, the mapping, which the caller
 *                        owns.
 * @param [out]    fd     The memfd, close-on-exec, which the caller owns.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY (logged with the size that was wanted).
 */
ucs_status_t np_segment_create(const char *name, size_t size, void **addr,
                               int *fd);

/** The same, of which the first @a part bytes are mapped, whole pages */
ucs_status_t np_segment_create_part(const char *name, size_t size, size_t part,
                                    void **addr, int *fd);

/**
 * Map a segment that a peer made, after checking that it is a memfd of exactly
 * @a size bytes that can no longer shrink.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM if it is something else;
 *         UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_segment_map(int fd, size_t size, void **addr);

/** The same, of which the first @a part bytes are mapped, whole pages */
ucs_status_t np_segment_map_part(int fd, size_t size, size_t part, void **addr);

/** Map the first @a size bytes of a segment once more, without its descriptor.
 *  @param [in] addr  Where its beginning is mapped.
 *  @return NULL: the kernel does not do it. */
void *np_segment_map_again(void *addr, size_t size);

void np_segment_unmap(void *addr, size_t size);

/** Round up to whole pages */
size_t np_page_align(size_t size);

#endif
