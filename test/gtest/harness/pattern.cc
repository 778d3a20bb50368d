// SPDX-License-Identifier: BSD-3-Clause
// Byte patterns that depend on a seed and on the offset.
#include "pattern.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>

namespace nt {

static constexpr uint64_t GUARD_LOW  = 0x6c6f77;
static constexpr uint64_t GUARD_HIGH = 0x68696768;

static uint64_t pattern_word(uint64_t seed, uint64_t index)
{
    uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15ull + index;

    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 32;
    return x;
}

uint8_t pattern_byte(uint64_t seed, size_t offset)
{
    return pattern_word(seed, offset / 8) >> (8 * (offset % 8));
}

// Calls piece(position, word, first byte in word, count) for each word.
template<typename Piece>
static void pattern_walk(size_t length, uint64_t seed, size_t offset,
                         Piece piece)
{
    size_t done = 0;

    while (done < length) {
        size_t skip  = (offset + done) % 8;
        size_t count = std::min<size_t>(8 - skip, length - done);
        uint64_t word = pattern_word(seed, (offset + done) / 8);

        if (!piece(done, word >> (8 * skip), count)) {
            return;
        }
        done += count;
    }
}

// Most are whole words: no call then.
static bool is_same(const uint8_t *bytes, uint64_t word, size_t count)
{
    uint64_t found;

    if (count == sizeof(word)) {
        memcpy(&found, bytes, sizeof(found));
        return found == word;
    }
    return memcmp(bytes, &word, count) == 0;
}

void pattern_fill(void *buffer, size_t length, uint64_t seed, size_t offset)
{
    auto *bytes = static_cast<uint8_t*>(buffer);

    pattern_walk(length, seed, offset,
                 [bytes](size_t at, uint64_t word, size_t count) {
                     if (count == sizeof(word)) {
                         memcpy(bytes + at, &word, sizeof(word));
                     } else {
                         memcpy(bytes + at, &word, count);
                     }
                     return true;
                 });
}

std::string pattern_diff(const void *buffer, size_t length, uint64_t seed,
                         size_t offset)
{
    auto *bytes = static_cast<const uint8_t*>(buffer);
    std::string diff;

    pattern_walk(length, seed, offset,
                 [&](size_t at, uint64_t word, size_t count) {
                     if (is_same(bytes + at, word, count)) {
                         return true;
                     }

                     while (bytes[at] == (word & 0xff)) {
                         word >>= 8;
                         ++at;
                     }

                     char text[128];
                     snprintf(text, sizeof(text),
                              "byte %zu of %zu is 0x%02x instead of 0x%02x "
                              "(seed %llu)", at, length, bytes[at],
                              (unsigned)(word & 0xff),
                              (unsigned long long)seed);
                     diff = text;
                     return false;
                 });
    return diff;
}

Guarded::Guarded(void *base, size_t length) :
    m_base(static_cast<uint8_t*>(base)), m_length(length)
{
    pattern_fill(m_base, GUARD, GUARD_LOW);
    pattern_fill(m_base + GUARD + m_length, GUARD, GUARD_HIGH);
}

void Guarded::fill(uint64_t seed)
{
    pattern_fill(data(), m_length, seed);
}

std::string Guarded::diff(uint64_t seed) const
{
    std::string diff = pattern_diff(m_base, GUARD, GUARD_LOW);

    if (!diff.empty()) {
        return "before the block, " + diff;
    }

    diff = pattern_diff(m_base + GUARD + m_length, GUARD, GUARD_HIGH);
    if (!diff.empty()) {
        return "after the block, " + diff;
    }

    return pattern_diff(data(), m_length, seed);
}

std::vector<size_t> sizes_around(size_t max)
{
    std::set<size_t> sizes = {0, 3, 40, 48, 56, 72, 96, 100, 192, 320,
                              4096 * 3 - 1, 4096 * 3, 4096 * 3 + 1, max};

    if (max > 0) {
        sizes.insert(max - 1);
    }

    for (size_t power = 1; power <= max; power *= 2) {
        sizes.insert({power - 1, power, power + 1});
        if (power > max / 2) {
            break;
        }
    }

    sizes.erase(sizes.upper_bound(max), sizes.end());
    return std::vector<size_t>(sizes.begin(), sizes.end());
}

} // namespace nt
