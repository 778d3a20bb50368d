/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Large copies in chunks: which bytes this side moves next. The target may move
 * the others (share.h); under the timing model each has its time (pace.h).
 */

#ifndef NP_SOFT_CHUNKS_H_
#define NP_SOFT_CHUNKS_H_

#include "pace.h"
#include "share.h"

#include "../../engine.h"
#include "../../mem/mapper.h"

/** A get into absent memory is shared from this part of SHARE_MIN on: both
 *  sides bring in half of it, which takes longer than to copy it */
#define NP_CHUNKS_COLD 4

/** Owner: the copy. What is claimed is for this side to move, or to have moved
 *  by other ways. */
struct np_chunks {
    np_dir_t       dir;
    const np_iov_t *iov;       /**< the copy's */
    size_t         iovcnt;
    uint64_t       remote;
    size_t         len;
    size_t         chunk;      /**< bytes */
    uint32_t       count;      /**< of chunks */
    uint32_t       next;       /**< after the last chunk that is claimed */
    size_t         offset;     /**< of what is claimed: where we are */
    size_t         end;
    int            is_claimed; /**< nothing is left to begin */
    int            may_share;  /**< it can still be offered to the target */
    np_offer_t     offer;
    np_pace_t      pace;
};

/** A copy of which nothing is claimed. @a iov stays as long as it does. */
void np_chunks_init(np_chunks_t *chunks, np_dir_t dir, const np_iov_t *iov,
                    size_t iovcnt, uint64_t remote, size_t len);

/** This device moves it: by what chunks, and may the target help? Otherwise
 *  np_chunks_rest, or np_chunks_stop. */
void np_chunks_plan(np_chunks_t *chunks);

/**
 * What does this side move next?
 *
 * @param [out] offset  From there on ..
 * @param [out] len     .. so many bytes, or less: np_chunks_moved.
 *
 * @return UCS_OK; UCS_INPROGRESS: nothing yet; UCS_ERR_NO_ELEM: all is claimed;
 *         else the target refuses (logged).
 */
ucs_status_t np_chunks_next(np_link_t *link, np_chunks_t *chunks,
                            size_t *offset, size_t *len);

/** Claim all that is left: the target begins no other chunk */
void np_chunks_rest(np_chunks_t *chunks);

/** What this side has claimed is to be moved again from @a offset on */
void np_chunks_again(np_chunks_t *chunks, size_t offset);

/** Neither side begins another chunk */
void np_chunks_stop(np_chunks_t *chunks);

/**
 * All is claimed: is the work of others on it over?
 *
 * @param [in] is_ok  Else the copy has failed.
 *
 * @return 0: not yet, or some of it has come back, and is not claimed any more.
 */
int np_chunks_is_over(np_link_t *link, np_chunks_t *chunks, int is_ok);

/** The link is down: the target does not work on it any more after this call,
 *  which waits for that */
void np_chunks_abort(np_link_t *link, np_chunks_t *chunks);


/** Is it a large get into memory that is absent? A look at its first page. */
static UCS_F_ALWAYS_INLINE int
np_chunks_is_cold(np_dir_t dir, const np_iov_t *iov, size_t iovcnt, size_t len)
{
    return (dir == NP_DIR_GET) && (iovcnt == 1) &&
           (len >= (np_engine.config.share_min / NP_CHUNKS_COLD)) &&
           !np_mapper_is_mapped((uintptr_t)iov[0].base, 1, 1);
}

/** So much of what np_chunks_next has found is on its way */
static UCS_F_ALWAYS_INLINE void
np_chunks_moved(np_chunks_t *chunks, size_t len)
{
    if (ucs_unlikely(chunks->pace.is_on)) {
        np_pace_moved(chunks, chunks->offset, len);
    }
    chunks->offset += len;
}

static UCS_F_ALWAYS_INLINE int np_chunks_is_claimed(const np_chunks_t *chunks)
{
    return chunks->is_claimed;
}

/** May the target work on it now? */
static UCS_F_ALWAYS_INLINE int np_chunks_is_shared(const np_chunks_t *chunks)
{
    return np_share_is_on(&chunks->offer);
}

/** Does it wait for times, and not for this side's CPU? */
static UCS_F_ALWAYS_INLINE int np_chunks_is_timed(const np_chunks_t *chunks)
{
    return ucs_unlikely(chunks->pace.is_on);
}

#endif
