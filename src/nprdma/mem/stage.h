/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Bytes between messages and memory. Memory that the program swaps by itself is
 * brought in first, if that may sleep, and is not taken away while it is
 * copied.
 */

#ifndef NP_STAGE_H_
#define NP_STAGE_H_

#include "table.h"

#include "../np.h"

/** Bytes of a message that are copied at once */
#define NP_STAGE_SIZE  (3 * NP_PAGE_SIZE)

/** Pages of a file of our own, from which the kernel copies the contents of a
 *  message to memory, in less than half the time of process_vm_writev. Owner: a
 *  port; used in its turn. */
typedef struct np_stage {
    void *bytes;      /**< NULL: not made yet, or cannot be made */
    int  fd;
    int  is_tried;    /**< to make it */
} np_stage_t;

/**
 * Copy between a message and memory, of a peer's choice or of the program's:
 * what is not there is an error, no signal.
 *
 * @param [in] stage      NULL: none, and what goes to memory takes longer.
 * @param [in] iov        The memory, at most NP_MAX_IOV buffers.
 * @param [in] data       In the message: as many bytes.
 * @param [in] to_memory  Else from it.
 * @param [in] may_sleep  In a page of the memory; else the memory must be
 *                        there.
 *
 * @return UCS_OK; UCS_ERR_INVALID_ADDR: not mapped, or not with these rights,
 *         and a part may have been copied; UCS_ERR_NO_RESOURCE: it is not
 *         there, or, if this may sleep, its swapper takes it away again each
 *         time; earlier pages may have been copied, but nothing of 8 bytes or
 *         less; UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_stage_copy(np_stage_t *stage, const np_iov_t *iov,
                           size_t iovcnt, void *data, int to_memory,
                           int may_sleep);

/** How np_stage_own copies */
typedef enum np_stage_way {
    NP_STAGE_OUT,      /**< from memory */
    NP_STAGE_OUT_PAST, /**< from memory, past the caches (bypass.h) */
    NP_STAGE_IN,       /**< into it */
    NP_STAGE_IN_PAST   /**< into it, past the caches */
} np_stage_way_t;

/**
 * The same, if it may sleep, for memory of the program's own operations, on a
 * way where only the CPU copies (soft0's rings). Memory that the program does
 * not swap is copied as by the program itself, with a signal if it is not
 * there: any other copy takes three times as long.
 */
ucs_status_t np_stage_own(const np_iov_t *iov, size_t iovcnt, void *data,
                          np_stage_way_t way);

/** Would np_stage_copy find the memory there? It may be gone at once. */
int np_stage_is_there(uint64_t addr, size_t len, int to_memory);

void np_stage_cleanup(np_stage_t *stage);

#endif
