/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory regions on dma-bufs: the views of memory that nobody pins.
 */

#ifndef NP_DMABUF_H_
#define NP_DMABUF_H_

#include "nic.h"

/**
 * Register a piece of a dma-buf, with any driver whose kernel half can import
 * it. Nothing is pinned or counted against 'ulimit -l'. The region refers to
 * the dma-buf: fd may be closed. Thread-safe.
 *
 * @param [in] offset  Of the piece, in bytes; congruent to iova modulo the page
 *                     size. With 2 MB or 1 GB congruence devices need fewest
 *                     translations.
 * @param [in] len     Bytes, at least 1.
 * @param [in] iova    The address by which work requests name the first byte.
 * @param [in] access  IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_*,
 *                     IBV_ACCESS_RELAXED_ORDERING.
 * @param [out] mr_p   For its keys; addr is NULL. Given back with
 *                     np_nic_dereg_dmabuf(), never ibv_dereg_mr().
 *
 * @return UCS_OK; UCS_ERR_UNSUPPORTED: the library, the kernel, the driver or
 *         the platform (IOMMU) cannot (says so); UCS_ERR_INVALID_PARAM: fd is no
 *         dma-buf, or the piece or access is wrong; UCS_ERR_NO_MEMORY;
 *         UCS_ERR_IO_ERROR.
 */
ucs_status_t np_nic_reg_dmabuf(np_nic_t *nic, int fd, uint64_t offset,
                               size_t len, uint64_t iova, int access,
                               struct ibv_mr **mr_p);

void np_nic_dereg_dmabuf(struct ibv_mr *mr);

#endif
