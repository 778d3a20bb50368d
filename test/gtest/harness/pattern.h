// SPDX-License-Identifier: BSD-3-Clause
// Byte patterns that depend on a seed and on the offset.
#ifndef NPRDMA_TEST_PATTERN_H
#define NPRDMA_TEST_PATTERN_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace nt {

// Byte `offset` of the pattern that `seed` names.
uint8_t pattern_byte(uint64_t seed, size_t offset);

// Fill with bytes [offset, offset + length) of the pattern.
void pattern_fill(void *buffer, size_t length, uint64_t seed,
                  size_t offset = 0);

// Empty if right; otherwise says where the first wrong byte is, what was
// found there and what was wanted.
std::string pattern_diff(const void *buffer, size_t length, uint64_t seed,
                         size_t offset = 0);

// A block between two guards. The guards carry a pattern of their own, so a
// write next to the block is found.
class Guarded {
public:
    static constexpr size_t GUARD = 256;

    static size_t space(size_t length) { return length + 2 * GUARD; }

    // `base` has space(length) bytes; data() lies GUARD bytes into it.
    Guarded(void *base, size_t length);

    uint8_t *data() const { return m_base + GUARD; }
    void fill(uint64_t seed);
    std::string diff(uint64_t seed) const;

private:
    uint8_t *m_base;
    size_t  m_length;
};

// 0 and sizes around every power of two, page and cache line up to `max`,
// which is itself included, with its neighbour below.
std::vector<size_t> sizes_around(size_t max);

} // namespace nt

#endif
