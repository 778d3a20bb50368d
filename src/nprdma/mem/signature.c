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

/* Units compared at once */
#define NP_SIGNATURE_STRIDE 4


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
 * multiple of 4, where the pattern is not rotated: one load for each. */
static size_t np_signature_search(const uint8_t *data, uint64_t remote,
                                  size_t len, unsigned unit, size_t offset)
{
    const uint32_t word = np_signature_word(0);
    size_t left;
    unsigned i;

    left = ucs_min(unit - ((remote + offset) & (unit - 1)), len - offset);
    if (left < unit) {
        if (np_signature_is_fragment(data + offset, remote + offset, left)) {
            return offset;
        }

        offset += left;
    }

    while ((len - offset) >= (NP_SIGNATURE_STRIDE * (size_t)unit)) {
        unsigned suspects = 0;

        for (i = 0; i < NP_SIGNATURE_STRIDE; ++i) {
            suspects |= np_signature_is_word(data + offset + (i * (size_t)unit),
                                             word);
        }

        if (ucs_unlikely(suspects)) {
            break;
        }

        offset += NP_SIGNATURE_STRIDE * (size_t)unit;
    }

    for (; offset < len; offset += left) {
        left = ucs_min((size_t)unit, len - offset);
        if (np_signature_is_fragment(data + offset, 0, left)) {
            return offset;
        }
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
