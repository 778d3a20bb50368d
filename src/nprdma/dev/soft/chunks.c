/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Large copies in chunks.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "chunks.h"

/* Chunks of a shared copy: how many, and the largest */
#define NP_CHUNKS_PARTS 32
#define NP_CHUNKS_MAX   (256 * UCS_KBYTE)


void np_chunks_init(np_chunks_t *chunks, np_dir_t dir, const np_iov_t *iov,
                    size_t iovcnt, uint64_t remote, size_t len)
{
    *chunks = (np_chunks_t){
        .dir    = dir,
        .iov    = iov,
        .iovcnt = iovcnt,
        .remote = remote,
        .len    = len
    };
}

/* Chunks so small that both sides end at the same time, and so large that
 * claiming and the system call do not count */
static size_t np_chunks_size(size_t len)
{
    size_t part = ucs_align_up_pow2(len / NP_CHUNKS_PARTS, (size_t)4096);

    return ucs_max(np_engine.config.share_chunk,
                   ucs_min(part, (size_t)NP_CHUNKS_MAX));
}

void np_chunks_plan(np_chunks_t *chunks)
{
    const size_t len = chunks->len;

    chunks->may_share = chunks->iovcnt == 1;
    chunks->chunk     = np_chunks_size(len);
    if ((len < np_engine.config.share_min) && chunks->may_share) {
        chunks->may_share = np_chunks_is_cold(chunks->dir, chunks->iov,
                                              chunks->iovcnt, len);
        if (chunks->may_share) {
            chunks->chunk = ucs_min(ucs_align_up_pow2(len / 2, (size_t)4096),
                                    (size_t)NP_CHUNKS_MAX);
        }
    }

    np_pace_begin(chunks);
    chunks->may_share &= !chunks->pace.is_on; /* an RNIC moves it, no CPU */
    chunks->count      = ucs_min(ucs_div_round_up(len, chunks->chunk),
                                 (size_t)UINT32_MAX);
}

/* To the target, to do a part of it */
static void np_chunks_offer(np_link_t *link, np_chunks_t *chunks)
{
    const np_share_args_t args = {
        .initiator_va = (uintptr_t)chunks->iov[0].base,
        .target_va    = chunks->remote,
        .len          = chunks->len,
        .chunk        = chunks->chunk,
        .chunks       = chunks->count,
        .dir          = chunks->dir
    };

    chunks->may_share = 0;
    np_share_offer(link, &chunks->offer, &args);
}

/* Claim our next chunks; returns whether there are any */
static int np_chunks_claim(np_link_t *link, np_chunks_t *chunks)
{
    uint32_t first = chunks->next;
    uint32_t count;

    if (np_share_is_on(&chunks->offer)) {
        count = np_share_next(link, &chunks->offer, chunks->next, &first);
    } else {
        count = chunks->count - chunks->next;
    }

    if (count == 0) {
        chunks->is_claimed = 1;
        return 0;
    }

    chunks->next   = first + count;
    chunks->offset = (size_t)first * chunks->chunk;
    chunks->end    = ucs_min((size_t)chunks->next * chunks->chunk, chunks->len);
    np_assertv(chunks->offset < chunks->end, "chunks %u..%u of %u", first,
               chunks->next, chunks->count);
    return 1;
}

ucs_status_t np_chunks_next(np_link_t *link, np_chunks_t *chunks,
                            size_t *offset, size_t *len)
{
    if (chunks->may_share) {
        np_chunks_offer(link, chunks);
    }

    if ((chunks->offset == chunks->end) && !np_chunks_claim(link, chunks)) {
        return UCS_ERR_NO_ELEM;
    }

    *offset = chunks->offset;
    *len    = chunks->end - chunks->offset;
    return ucs_likely(!chunks->pace.is_on) ? UCS_OK :
           np_pace_next(link, chunks, *offset, len);
}

void np_chunks_rest(np_chunks_t *chunks)
{
    uint32_t first, count;

    chunks->may_share  = 0;
    chunks->pace.is_on = 0; /* what goes other ways is not under the model */
    if (!np_share_is_on(&chunks->offer)) {
        chunks->next = chunks->count;
        chunks->end  = chunks->len;
        return;
    }

    count = np_share_rest(&chunks->offer, &first);
    if (count > 0) {
        chunks->next = first + count;
        chunks->end  = ucs_min((size_t)chunks->next * chunks->chunk,
                               chunks->len);
    }
}

void np_chunks_again(np_chunks_t *chunks, size_t offset)
{
    np_assertv(offset <= chunks->offset, "from %zu on, not yet at %zu",
               chunks->offset, offset);
    chunks->offset     = offset;
    chunks->is_claimed = 0;
}

void np_chunks_stop(np_chunks_t *chunks)
{
    uint32_t first;

    chunks->may_share  = 0;
    chunks->is_claimed = 1;
    if (np_share_is_on(&chunks->offer)) {
        np_share_rest(&chunks->offer, &first);
    }
}

int np_chunks_is_over(np_link_t *link, np_chunks_t *chunks, int is_ok)
{
    ucs_status_t status;
    size_t begin, end;

    status = np_share_look(link, &chunks->offer, is_ok, &begin, &end);
    if (status == UCS_ERR_NO_PROGRESS) {
        chunks->next       = chunks->count;
        chunks->offset     = begin;
        chunks->end        = end;
        chunks->is_claimed = 0;
    }
    return (status == UCS_OK) &&
           (ucs_likely(!chunks->pace.is_on) ||
            np_pace_is_over(link, chunks, is_ok));
}

void np_chunks_abort(np_link_t *link, np_chunks_t *chunks)
{
    np_share_abort(link, &chunks->offer);
}
