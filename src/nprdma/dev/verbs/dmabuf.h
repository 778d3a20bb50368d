/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory regions on dma-bufs: the views of memory that is not pinned.
 */

#ifndef NP_DMABUF_H_
#define NP_DMABUF_H_

#include "nic.h"

/**
 * Register a part of a dma-buf, with any driver whose kernel half can import
 * it. Nothing is pinned or counted against 'ulimit -l'. The region refers to
 * the dma-buf: fd may be closed. Thread-safe.
 *
 * @param [in] offset  Of the part, in bytes; congruent to iova modulo the page
 *                     size. With 2 MB or 1 GB congruence devices need fewest
 *                     translations.
 * @param [in] len     Bytes, at least 1.
 * @param [in] iova    The address by which work requests name the first byte.
 * @param [in] access  IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_*,
 *                     IBV_ACCESS_RELAXED_ORDERING.
 * @param [out] mr_p   For its keys; addr is NULL. Given back with
 *                     np_nic_dereg_dmabuf(), never ibv_dereg_mr().
 *
 * @return UCS_OK; else errno is what was said, and nothing is logged:
 *         UCS_ERR_UNSUPPORTED: the library, the kernel, the driver or the
 *         platform (IOMMU) cannot; UCS_ERR_INVALID_PARAM: fd is no dma-buf, or
 *         the part or access is wrong, or too large; UCS_ERR_NO_MEMORY: not
 *         now.
 */
ucs_status_t np_nic_reg_dmabuf(np_nic_t *nic, int fd, uint64_t offset,
                               size_t len, uint64_t iova, int access,
                               struct ibv_mr **mr_p);

void np_nic_dereg_dmabuf(struct ibv_mr *mr);

/** What to do after such an error */
typedef enum np_dmabuf_then {
    NP_DMABUF_SMALLER, /**< smaller regions; if none is small enough: NEVER */
    NP_DMABUF_NEVER,   /**< nothing more is asked of this device */
    NP_DMABUF_LATER,   /**< again, after a time */
    NP_DMABUF_OTHERS   /**< nothing more about this arena */
} np_dmabuf_then_t;

/** An errno of a registration, or of the module when it exports */
typedef struct np_dmabuf_error {
    int              error;
    const char       *name;
    np_dmabuf_then_t then;
    const char       *cause;   /**< and cure, for a log */
} np_dmabuf_error_t;

/** Never NULL; that of those that are not expected is the last */
const np_dmabuf_error_t *np_dmabuf_error(int error);

#endif
