/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Shares: large copies of which the target does a part, the initiator's side.
 *
 * One copy loop cannot use the memory that two cores could; and the side whose
 * cache holds the data copies it faster. So a large copy is offered to the
 * target, and each side claims chunks, the initiator from the front, the
 * target (help.h) from the back, until all are claimed. A target that is not in
 * progress claims none, and nothing is lost.
 */

#ifndef NP_SOFT_SHARE_H_
#define NP_SOFT_SHARE_H_

#include "claim.h"
#include "link.h"

/** A copy that may be offered. Owner: the copy. */
typedef struct np_offer {
    np_share_t      *share;      /**< NULL: it is not shared, or not any more */
    np_share_args_t args;        /**< what it is; the peer may write the other
                                      one */
    uint16_t        generation;
} np_offer_t;

/**
 * Offer a copy to the target, if it can help. No chunk of it has begun.
 *
 * @param [in] args  All but cpu and is_open, which are found out here.
 */
void np_share_offer(np_link_t *link, np_offer_t *offer,
                    const np_share_args_t *args);

/** Claim our next chunks of a shared copy; we have claimed those before
 *  @a next. Returns how many, and the first of them. */
uint32_t np_share_next(const np_link_t *link, np_offer_t *offer, uint32_t next,
                       uint32_t *first);

/** Claim all that is left: the target begins no other chunk */
uint32_t np_share_rest(np_offer_t *offer, uint32_t *first);

/**
 * All chunks are claimed: are those of the target there? Harmless if it is not
 * shared.
 *
 * @param [in]  is_ok  Else the copy has failed, and nothing more is to do.
 * @param [out] begin  What is left, as offsets into the copy.
 *
 * @return UCS_INPROGRESS: not yet. Else it is not shared any more: UCS_OK, or
 *         UCS_ERR_NO_PROGRESS: [@a begin, @a end) is left to the initiator.
 */
ucs_status_t np_share_look(np_link_t *link, np_offer_t *offer, int is_ok,
                           size_t *begin, size_t *end);

/** The target does not work on it any more after this call, which waits for it.
 *  Harmless if it is not shared. */
void np_share_abort(np_link_t *link, np_offer_t *offer);


static UCS_F_ALWAYS_INLINE int np_share_is_on(const np_offer_t *offer)
{
    return offer->share != NULL;
}

#endif
