/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The judge: what shows that a piece has arrived (design, section 4). A page
 * may come or go at any time. There is one proof for the target's pages. For
 * ours it is their entries, which are read after that proof, since it may have
 * looked at our memory.
 */

#ifndef NP_JUDGE_H_
#define NP_JUDGE_H_

#include "../engine.h"
#include "../mem/entries.h"
#include "../mem/signature.h"
#include "../pause.h"
#include "../ranges.h"

typedef enum np_proof {
    NP_PROOF_SIGNATURE,  /**< nothing of what was read is the signature */
    NP_PROOF_ENTRIES,    /**< the target's entries are what they were */
    NP_PROOF_READBACK,   /**< what was written can be read */
    NP_PROOF_DEVICE      /**< the device has told what was absent */
} np_proof_t;

/** What the settings say, for a device that can tell what was absent.
 *  @param [in] by_entries  Reads too. */
static inline np_proof_t
np_judge_proof(np_dir_t dir, size_t len, int by_entries)
{
    if (dir == NP_DIR_GET) {
        return by_entries ? NP_PROOF_ENTRIES : NP_PROOF_SIGNATURE;
    }

    switch (np_engine.config.write_check) {
    case NP_WRITE_CHECK_AUTO:
        return NP_PROOF_DEVICE;
    case NP_WRITE_CHECK_READBACK:
        return (len <= NP_READBACK_MAX) ? NP_PROOF_READBACK :
               NP_PROOF_ENTRIES;
    default:
        return NP_PROOF_ENTRIES;
    }
}

/** NP_PROOF_SIGNATURE, of what was read from [@a addr, ...): @a missing is what
 *  looks like the signature. Pages are seen to come and go in units of @a
 *  unit. */
static inline void
np_judge_read(const np_iov_t *iov, size_t iovcnt, uint64_t addr, unsigned unit,
              np_ranges_t *missing)
{
    size_t start = 0, from, end, i;

    for (i = 0; i < iovcnt; start += iov[i++].len) {
        for (from = 0; from < iov[i].len; from = end) {
            from = np_signature_find(iov[i].base, addr + start, iov[i].len,
                                     unit, from, &end);
            if (ucs_likely(from == iov[i].len) ||
                NP_IS_MUTANT(READ_UNCHECKED)) {
                break;
            }
            np_ranges_add(missing, start + from, end - from);
        }
    }
}

/** What the target's entries must say */
static UCS_F_ALWAYS_INLINE unsigned np_judge_their_bits(np_dir_t dir)
{
    return (dir == NP_DIR_GET) ? NP_ENTRY_READ : NP_ENTRY_WRITE;
}

/** And what our own entries must say, of the memory into which we read or from
 *  which we write. @a is_own: by our own tables, not the kernel module's. */
static UCS_F_ALWAYS_INLINE unsigned np_judge_our_bits(np_dir_t dir, int is_own)
{
    const unsigned bits = (dir == NP_DIR_GET) ? NP_ENTRY_BITS : NP_ENTRY_READ;

    return is_own ? NP_ENTRY_OWN(bits) : bits;
}

/** NP_PROOF_ENTRIES: were the target's pages there all the time? */
static UCS_F_ALWAYS_INLINE int
np_judge_theirs(np_dir_t dir, const np_entries_t *before,
                const np_entries_t *now)
{
    return np_entries_stayed(before, now, np_judge_their_bits(dir)) ||
           NP_IS_MUTANT(WRITE_UNCONFIRMED);
}

/** Were ours? */
static UCS_F_ALWAYS_INLINE int
np_judge_ours(np_dir_t dir, int is_own, const np_entries_t *before,
              const np_entries_t *now)
{
    return np_entries_stayed(before, now, np_judge_our_bits(dir, is_own)) ||
           NP_IS_MUTANT(LOCAL_UNCHECKED);
}

#endif
