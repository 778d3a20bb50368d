/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The signature.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "signature.h"

#include <endian.h>
#include <string.h>

#define NP_SIGNATURE_LEN    sizeof(uint32_t)


/* What 4 bytes from address @a va on are in an absent page */
static UCS_F_ALWAYS_INLINE uint32_t np_signature_word(uint64_t va)
{
    const uint64_t twice = NP_SIGNATURE | ((uint64_t)NP_SIGNATURE << 32);

    return htole32((uint32_t)(twice >> (8 * (va % NP_SIGNATURE_LEN))));
}

static UCS_F_ALWAYS_INLINE int
np_signature_is_word(const uint8_t *data, uint32_t word)
{
    uint32_t found;

    memcpy(&found, data, sizeof(found));
    return found == word;
}

/* Is the fragment [va, va + len) of one unit suspect? */
static UCS_F_ALWAYS_INLINE int
np_signature_is_fragment(const uint8_t *data, uint64_t va, size_t len)
{
    const uint32_t word = np_signature_word(va);

    return (len >= sizeof(word)) ? np_signature_is_word(data, word) :
                                   (memcmp(data, &word, len) == 0);
}

void np_signature_fill(void *dst, uint64_t remote, size_t len)
{
    const uint32_t word = np_signature_word(remote);
    uint8_t *bytes      = dst;

    for (; len >= sizeof(word); bytes += sizeof(word), len -= sizeof(word)) {
        memcpy(bytes, &word, sizeof(word));
    }

    memcpy(bytes, &word, len);
}

/* The first suspected unit at or after @a offset. Whole units begin at a
 * multiple of 4, where the pattern is not rotated: one comparison for each. */
static size_t np_signature_search(const uint8_t *data, uint64_t remote,
                                  size_t len, unsigned unit, size_t offset)
{
    const uint32_t word = np_signature_word(0);
    size_t left;

    left = ucs_min(unit - ((remote + offset) & (unit - 1)), len - offset);
    if (left < unit) {
        if (np_signature_is_fragment(data + offset, remote + offset, left)) {
            return offset;
        }

        offset += left;
    }

#pragma GCC unroll 4
    for (; (len - offset) >= unit; offset += unit) {
        if (ucs_unlikely(np_signature_is_word(data + offset, word))) {
            return offset;
        }
    }

    if ((offset < len) &&
        np_signature_is_fragment(data + offset, 0, len - offset)) {
        return offset;
    }

    return len;
}

size_t np_signature_find(const void *data, uint64_t remote, size_t len,
                         unsigned unit, size_t from, size_t *end)
{
    const uint8_t *bytes = data;
    size_t first, left, offset;

    if (ucs_unlikely(from >= len)) {
        *end = len;
        return len;
    }

    first = np_signature_search(bytes, remote, len, unit, from);
    for (offset = first; offset < len; offset += left) {
        left = ucs_min(unit - ((remote + offset) & (unit - 1)), len - offset);
        if (!np_signature_is_fragment(bytes + offset, remote + offset, left)) {
            break;
        }
    }

    *end = offset;
    return first;
}
