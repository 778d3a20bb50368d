// SPDX-License-Identifier: BSD-3-Clause
// Memory whose pages come and go, and proof that transfers have noticed.
#include "paging.h"
#include "ranks.h"

#include <errno.h>

#include <cstring>
#include <string>

namespace nt {

static nprdma_counters_t read_counters()
{
    nprdma_counters_t counters;
    int ret = nprdma_get_counters(&counters, sizeof(counters));

    if (ret != 0) {
        throw Failed(std::string("nprdma_get_counters: ") + strerror(-ret));
    }
    return counters;
}

void Growth::reset()
{
    m_start = read_counters();
}

uint64_t Growth::of(uint64_t nprdma_counters_t::*counter) const
{
    return read_counters().*counter - m_start.*counter;
}

void turn_absent(const void *address, size_t length)
{
    int ret = nprdma_notify_swap_out(const_cast<void*>(address), length);

    if (ret != 0) {
        throw Failed(std::string("nprdma_notify_swap_out: ") + strerror(-ret));
    }
}

static void must(bool good, const char *what)
{
    if (!good) {
        throw Failed(std::string(what) + ": " + strerror(errno));
    }
}

static size_t whole_pages(size_t length)
{
    return (length + PAGE - 1) & ~(PAGE - 1);
}

Area::Area(size_t length, int flags, int fd) : m_length(whole_pages(length))
{
    reserve(nullptr);
    map_again(flags, fd);
}

Area::Area(uint64_t place, size_t length) : m_length(whole_pages(length))
{
    reserve(reinterpret_cast<void*>(place - PAGE));
    map_again(MAP_PRIVATE | MAP_ANONYMOUS);
}

Area::~Area()
{
    munmap(m_base - PAGE, m_length + 2 * PAGE);
}

void Area::reserve(void *place)
{
    void *mapped = mmap(place, m_length + 2 * PAGE, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
                        ((place == nullptr) ? 0 : MAP_FIXED_NOREPLACE), -1, 0);

    must((mapped != MAP_FAILED) && ((place == nullptr) || (mapped == place)),
         "reserve address space");
    m_base = static_cast<uint8_t*>(mapped) + PAGE;
}

void Area::map_again(int flags, int fd)
{
    map_again(0, m_length, flags, fd);
}

void Area::map_again(size_t offset, size_t length, int flags, int fd)
{
    must(mmap(at(offset), length, PROT_READ | PROT_WRITE, flags | MAP_FIXED,
              fd, (fd < 0) ? 0 : offset) == at(offset), "mmap");
}

void Area::protect(size_t offset, size_t length, int rights) const
{
    must(mprotect(at(offset), length, rights) == 0, "mprotect");
}

void Area::advise(size_t offset, size_t length, int advice) const
{
    must(madvise(at(offset), length, advice) == 0, "madvise");
}

void Area::unmap(size_t offset, size_t length) const
{
    must(munmap(at(offset), length) == 0, "munmap");
}

} // namespace nt
