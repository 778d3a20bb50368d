/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What both sides of a shared copy go by: a word that says how many chunks are
 * claimed from the front, how many from the back, and of which copy.
 */

#ifndef NP_SOFT_CLAIM_H_
#define NP_SOFT_CLAIM_H_

#include "wire.h"

#define NP_CLAIM_BITS 24
#define NP_CLAIM_MASK UCS_MASK(NP_CLAIM_BITS)

/** What a chunk counts for at least, in the quantum: each is a few calls */
#define NP_COPY_CHUNK_MIN 4096

/** Bytes that one progress call copies at most, for one link */
#define NP_COPY_QUANTUM (2 * UCS_MBYTE)


static UCS_F_ALWAYS_INLINE uint32_t np_claim_front(uint64_t claim)
{
    return claim & NP_CLAIM_MASK;
}

static UCS_F_ALWAYS_INLINE uint32_t np_claim_back(uint64_t claim)
{
    return (claim >> NP_CLAIM_BITS) & NP_CLAIM_MASK;
}

static UCS_F_ALWAYS_INLINE uint16_t np_claim_generation(uint64_t claim)
{
    return claim >> (2 * NP_CLAIM_BITS);
}

/** Is nothing left of a copy, or another one in its place? */
static inline int np_claim_is_over(np_share_t *share, uint32_t chunks,
                                   uint16_t generation)
{
    const uint64_t claim = atomic_load_explicit(&share->claim,
                                                memory_order_relaxed);

    return (np_claim_generation(claim) != generation) ||
           ((np_claim_front(claim) + np_claim_back(claim)) >= chunks);
}

/** Claim @a want chunks, as many as there are; the generation tells a copy from
 *  the next one in its place. Returns how many, and the claim before.
 *
 * @param [in] shift  0: from the front; NP_CLAIM_BITS: from the back. */
static inline uint32_t np_claim(np_share_t *share, uint32_t chunks,
                                uint16_t generation, uint32_t want,
                                unsigned shift, uint64_t *before)
{
    uint64_t claim;
    uint32_t left;

    /* relaxed: a claim hands over no data; the end does (done, DONE) */
    claim = atomic_load_explicit(&share->claim, memory_order_relaxed);
    do {
        left = chunks - np_claim_front(claim) - np_claim_back(claim);
        if ((np_claim_generation(claim) != generation) || (left == 0) ||
            (left > chunks)) {
            return 0;
        }
        want = ucs_min(want, left);
    } while (!atomic_compare_exchange_weak_explicit(
            &share->claim, &claim, claim + ((uint64_t)want << shift),
            memory_order_acq_rel, memory_order_relaxed));

    *before = claim;
    return want;
}

#endif
