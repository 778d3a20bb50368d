// SPDX-License-Identifier: BSD-3-Clause
// Memory whose pages come and go, and proof that transfers have noticed.
#ifndef NPRDMA_TEST_PAGING_H
#define NPRDMA_TEST_PAGING_H

#include <nprdma/nprdma.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace nt {

constexpr size_t PAGE = 4096;

// UCX_NPRDMA_SHARE_MIN: of a copy that both sides work on, either may find that the
// other has brought in all that it is to use itself.
constexpr size_t SHARED = 256 << 10;
// And of a get into memory that is absent itself.
constexpr size_t SHARED_COLD = SHARED / 4;

// By how much the counters of this process have grown. There is nothing to
// count before nprdma was opened: throws Failed.
class Growth {
public:
    Growth() { reset(); }
    void reset();
    uint64_t of(uint64_t nprdma_counters_t::*counter) const;

private:
    nprdma_counters_t m_start;
};

// From now on no peer and no device reaches these pages: a transfer must ask
// for them. Their contents stay.
void turn_absent(const void *address, size_t length);

// Mapped memory between two pages that are not there.
class Area {
public:
    explicit Area(size_t length, int flags = MAP_PRIVATE | MAP_ANONYMOUS,
                  int fd = -1);

    // Begins at `place`, far from where the kernel puts mappings.
    Area(uint64_t place, size_t length);
    ~Area();
    Area(const Area&) = delete;
    Area &operator=(const Area&) = delete;

    uint8_t *at(size_t offset = 0) const { return m_base + offset; }
    size_t length() const { return m_length; }

    // Another mapping instead, of the whole area or of some of it.
    void map_again(int flags, int fd = -1);
    void map_again(size_t offset, size_t length, int flags, int fd = -1);

    void protect(size_t offset, size_t length, int rights) const;
    void advise(size_t offset, size_t length, int advice) const;

    // Leaves a hole.
    void unmap(size_t offset, size_t length) const;

private:
    void reserve(void *place);

    uint8_t *m_base;
    size_t  m_length;
};

} // namespace nt

#endif
